//! Players and their targets: everything is delivered in order and once, through kills.
//!
//! `SERIATIM_PLAYER_LOOPS` repeats the kill loops.

mod commands;
mod http;
mod kills;
mod log;
mod mistakes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::process::Process;
use crate::surroundings::Surroundings;

/// Time limit of each wait.
const WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A cluster with the log `orders`, and a directory for the targets.
struct Stage {
    cluster: Cluster,
    command: CommandLine,
    runs: u32,
}

impl Stage {
    async fn new() -> Self {
        let cluster = Cluster::start(&[]).await;
        let command = CommandLine::new(cluster.address());
        command.good(&["log", "create", "orders"]).await;
        Self { cluster, command, runs: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.cluster.scratch().join(name)
    }

    /// Writes a configuration for the log `orders`. Returns its path.
    fn configure(&self, name: &str, head: &str, targets: &str) -> String {
        let path = self.path(name);
        let server = self.cluster.address();
        let text = format!("log = \"orders\"\nserver = \"{server}\"\n{head}\n{targets}");
        fs::write(&path, text).expect("the directory is writable");
        path.to_str().expect("a path of letters").to_owned()
    }

    /// Appends the lines `from..to`.
    async fn append(&self, lines: std::ops::Range<u64>) {
        let lines: String = lines.map(|line| format!("line {line}\n")).collect();
        self.command.good_on(&["append", "orders"], lines.as_bytes()).await;
    }

    /// Starts `player run` with these options; waits until it plays.
    async fn play(&mut self, config: &str, options: &[&str]) -> Process {
        self.runs += 1;
        let words = self.path(&format!("player-{}.err", self.runs));
        let arguments = [&["player", "run", "--config", config], options].concat();
        let mut process = Process::spawn(arguments, words, &Surroundings::default());
        let line = process.line().await;
        assert!(line.starts_with("playing orders as "), "{line}");
        process
    }

    /// Plays until the tail.
    async fn play_all(&self, config: &str) {
        let output =
            self.command.run(&["player", "run", "--config", config, "--take-over", "--until-tail"]).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }

    /// Standard error of the last started player.
    fn said(&self) -> String {
        crate::process::said(&self.path(&format!("player-{}.err", self.runs)))
    }

    fn database(&self, name: &str) -> Database {
        Database::create(&self.path(name))
    }
}

/// A SQLite database with a table of entries.
struct Database {
    path: PathBuf,
}

impl Database {
    fn create(path: &Path) -> Self {
        let connection = Connection::open(path).expect("a database can be created");
        let table = "create table entries (number integer primary key autoincrement, position integer, body text \
                     check (body <> 'line 13'))";
        connection.execute_batch(table).expect("a table can be created");
        Self { path: path.into() }
    }

    /// A target of the configuration.
    fn target(&self, id: &str) -> String {
        format!(
            "[[target]]\nid = \"{id}\"\nkind = \"sqlite\"\npath = \"{}\"\n\
             statement = \"insert into entries (position, body) values ($position, $text)\"\n",
            self.path.display()
        )
    }

    /// Positions and bodies in the order in which they were inserted.
    fn rows(&self) -> Vec<(u64, String)> {
        let connection = Connection::open(&self.path).expect("the database is there");
        connection.busy_timeout(WITHIN).expect("a timeout");
        let mut statement = connection
            .prepare("select position, body from entries order by number")
            .expect("the table is there");
        let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, String>(1)?));
        let rows = statement.query_map([], row).expect("it can be read");
        rows.map(|row| row.expect("a row")).collect()
    }
}

/// The log's records: positions and payloads.
async fn log_of(stage: &Stage, log: &str) -> Vec<(u64, String)> {
    records_of(&stage.command, log).await
}

async fn records_of(command: &CommandLine, log: &str) -> Vec<(u64, String)> {
    let printed = command.good(&["read", log, "--json"]).await;
    let line = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let position = record["position"].as_u64().expect("a position");
        (position, record["record"].as_str().expect("a payload").to_owned())
    };
    text(&printed).lines().map(line).collect()
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let looking = async {
        let mut again = tokio::time::interval(LOOK_EVERY);
        while !look() {
            again.tick().await;
        }
    };
    tokio::time::timeout(WITHIN, looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// The status of a player, with the exit status of the command.
async fn status(stage: &Stage, name: &str) -> (Option<i32>, serde_json::Value) {
    let output = stage.command.run(&["player", "status", name, "--json"]).await;
    let status = serde_json::from_slice(&output.stdout);
    (output.status.code(), status.unwrap_or_else(|cause| panic!("{cause}: {}", text(&output.stderr))))
}

/// Number of repetitions of a kill loop.
fn loops() -> u32 {
    let loops = std::env::var("SERIATIM_PLAYER_LOOPS").ok();
    loops.map_or(3, |loops| loops.parse().expect("SERIATIM_PLAYER_LOOPS is a number"))
}
