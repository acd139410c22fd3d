//! Kills of players, of targets and of the log's leader.

use std::fs;
use std::time::Duration;

use rand::RngExt;
use rustix::process::Signal;
use seriatim_target::testing::Memory;

use super::{Stage, log_of, loops, until};

/// Two targets of different kinds, each with all entries.
fn both(stage: &Stage, ledger: &super::Database) -> String {
    let file = stage.path("lines.txt");
    let routes = "[[route]]\nto = \"ledger\"\n[[route]]\nto = \"lines\"\n";
    let target = format!("[[target]]\nid = \"lines\"\nkind = \"file\"\npath = \"{}\"\n", file.display());
    stage.configure("player.toml", "all = true", &format!("{routes}{}{target}", ledger.target("ledger")))
}

/// The lines of the file target. Empty before its first attach.
fn lines(stage: &Stage) -> Vec<String> {
    let text = fs::read_to_string(stage.path("lines.txt")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until both targets have this number of entries.
async fn delivered(stage: &Stage, ledger: &super::Database, count: usize) {
    until("both targets have all entries", || ledger.rows().len() == count && lines(stage).len() == count)
        .await;
}

async fn check(stage: &Stage, ledger: &super::Database) {
    let log = log_of(stage, "orders").await;
    let rows = ledger.rows();
    assert_eq!(rows.len(), log.len(), "each entry is a row, once");
    assert!(rows == log, "the rows are the log, in order");
    let bodies: Vec<String> = log.into_iter().map(|(_, body)| body).collect();
    assert!(lines(stage) == bodies, "the lines are the log, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_player_delivers_each_entry_once() {
    for round in 0..loops() {
        let mut stage = Stage::new().await;
        let ledger = stage.database("ledger.db");
        let config = both(&stage, &ledger);
        let appends = {
            let command = stage.command.clone();
            let text: String = (100..40_100).map(|line| format!("line {line}\n")).collect();
            tokio::spawn(async move { command.good_on(&["append", "orders"], text.as_bytes()).await })
        };
        for kill in 1..=5 {
            let player = stage.play(&config, &["--take-over"]).await;
            let wanted = (kill * 5000).min(ledger.rows().len() + rand::rng().random_range(1..4000));
            until("the player makes progress", || ledger.rows().len() >= wanted.min(39_000)).await;
            player.kill().await;
        }
        appends.await.expect("the appends succeed");
        stage.play_all(&config).await;
        assert_eq!(ledger.rows().len(), 40_000, "round {round}");
        check(&stage, &ledger).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_player_outlives_the_kill_of_the_cluster() {
    let mut stage = Stage::new().await;
    let ledger = stage.database("ledger.db");
    let config = both(&stage, &ledger);
    let player = stage.play(&config, &[]).await;
    for round in 0..3_u64 {
        stage.append(100 + 2000 * round..100 + 2000 * (round + 1)).await;
        until("some entries are delivered", || !ledger.rows().is_empty()).await;
        stage.cluster.kill_and_restart().await;
    }
    let command = crate::command::CommandLine::new(stage.cluster.address());
    stage.command = command;
    delivered(&stage, &ledger, 6000).await;
    let status = player.stop(Signal::INT).await;
    assert_eq!(status.code(), Some(130));
    check(&stage, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_player_is_refused_and_a_later_one_deposes_the_first() {
    let mut stage = Stage::new().await;
    let ledger = stage.database("ledger.db");
    let config = both(&stage, &ledger);
    let first = stage.play(&config, &[]).await;
    stage.append(100..200).await;
    delivered(&stage, &ledger, 100).await;
    let (_, said) = stage.command.bad(&["player", "run", "--config", &config]).await;
    assert!(said.contains("already at work: process ") && said.contains("--take-over"), "{said}");
    let second = stage.play(&config, &["--take-over"]).await;
    let status = first.end("the second player", Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(1));
    stage.append(200..300).await;
    delivered(&stage, &ledger, 200).await;
    second.kill().await;
    let standby = stage.play(&config, &["--standby"]).await;
    stage.append(300..400).await;
    delivered(&stage, &ledger, 300).await;
    standby.stop(Signal::TERM).await;
    check(&stage, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_database_continues_from_its_own_bound() {
    let mut stage = Stage::new().await;
    let ledger = stage.database("ledger.db");
    let config = both(&stage, &ledger);
    stage.append(100..600).await;
    stage.play_all(&config).await;
    fs::copy(stage.path("ledger.db"), stage.path("copy.db")).expect("a copy");
    stage.append(600..1100).await;
    let player = stage.play(&config, &["--take-over"]).await;
    delivered(&stage, &ledger, 1000).await;
    stage.command.good(&["player", "pause", "orders", "ledger"]).await;
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(stage.path(&format!("ledger.db{suffix}")));
    }
    fs::copy(stage.path("copy.db"), stage.path("ledger.db")).expect("the copy is put back");
    stage.command.good(&["player", "resume", "orders", "ledger"]).await;
    delivered(&stage, &ledger, 1000).await;
    until("the restore is reported", || stage.said().contains("it was restored from an older state")).await;
    player.stop(Signal::INT).await;
    check(&stage, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_under_one_target_delays_no_other() {
    let mut stage = Stage::new().await;
    let ledger = stage.database("ledger.db");
    let config = both(&stage, &ledger);
    let player = stage.play(&config, &[]).await;
    stage.append(1000..2000).await;
    until("both targets receive", || ledger.rows().len() == 1000).await;
    // The database has a file of its own below the limit; the file target exceeds it.
    let large = "x".repeat(100_000);
    let before = fs::metadata(stage.path("lines.txt")).expect("the file is there").len();
    player.limit_file_sizes_softly(before + 4 * 100_000);
    let lines_in: String = (0..20).map(|_| format!("{large}\n")).collect();
    stage.command.good_on(&["append", "orders"], lines_in.as_bytes()).await;
    until("the file target reports the failure", || stage.said().contains("target lines: ")).await;
    player.limit_file_sizes_softly(u64::MAX);
    until("the file target catches up", || lines(&stage).len() == 1020).await;
    until("the database has all", || ledger.rows().len() == 1020).await;
    player.stop(Signal::INT).await;
    check(&stage, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgresql_receives_each_entry_once() {
    let Some(mut server) = seriatim_player::testing::PostgresServer::start() else { return };
    let mut stage = Stage::new().await;
    let table = "create table entries (number bigserial primary key, position bigint, body text)";
    server.execute("postgres", table);
    let target = format!(
        "[[target]]\nid = \"billing\"\nkind = \"postgres\"\nurl = \"{}\"\n\
         statement = \"insert into entries (position, body) values ($position, $text)\"\n",
        server.url("postgres")
    );
    let config = stage.configure("player.toml", "map = \"key\"", &target);
    let player = stage.play(&config, &[]).await;
    let count = |server: &seriatim_player::testing::PostgresServer| {
        server.query("postgres", "select count(*) from entries")[0].parse::<u64>().expect("a number")
    };
    let mut lines = 100;
    for _ in 0..loops() {
        let before = count(&server);
        let appends = {
            let command = stage.command.clone();
            let text: String = (lines..lines + 20_000).map(|line| format!("line {line}\n")).collect();
            tokio::spawn(async move { command.good_on(&["append", "orders"], text.as_bytes()).await })
        };
        lines += 20_000;
        until("the database receives entries", || count(&server) > before).await;
        server.kill();
        server.restart();
        appends.await.expect("the appends succeed");
    }
    let all = 20_000 * u64::from(loops());
    until("the database receives all", || count(&server) >= all).await;
    player.stop(Signal::INT).await;
    let rows = server.query("postgres", "select position || ' ' || body from entries order by number");
    let log = log_of(&stage, "orders").await;
    let log: Vec<String> = log.into_iter().map(|(position, body)| format!("{position} {body}")).collect();
    assert!(rows == log, "the rows are the log, in order");
}

/// Serves the memory at an address, on a runtime of its own, which ends all connections and calls
/// when it shuts down.
async fn serve(memory: &Memory, address: &str) -> (tokio::runtime::Runtime, String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (memory, address) = (memory.clone(), address.to_owned());
    let listening = runtime.spawn(async move {
        let mut again = tokio::time::interval(super::LOOK_EVERY);
        let listener = loop {
            // The runtime of a killed service closes its listener in the background.
            again.tick().await;
            if let Ok(listener) = tokio::net::TcpListener::bind(&address).await {
                break listener;
            }
        };
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(seriatim_target::serve(listener, memory, std::future::pending()));
        address
    });
    let address = tokio::time::timeout(super::WITHIN, listening)
        .await
        .expect("the port becomes free")
        .expect("it listens");
    (runtime, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_service_receives_each_entry_once() {
    let mut stage = Stage::new().await;
    let memory = Memory::default();
    let (mut runtime, address) = serve(&memory, "127.0.0.1:0").await;
    let target = format!("[[target]]\nid = \"service\"\nkind = \"grpc\"\nurl = \"http://{address}\"\n");
    let config = stage.configure("player.toml", "map = \"key\"", &target);
    let player = stage.play(&config, &[]).await;
    let appends = {
        let command = stage.command.clone();
        let text: String = (100..30_100).map(|line| format!("line {line}\n")).collect();
        tokio::spawn(async move { command.good_on(&["append", "orders"], text.as_bytes()).await })
    };
    for kill in 1..=3 {
        until("the service receives entries", || memory.messages().len() >= kill * 3000).await;
        runtime.shutdown_background();
        (runtime, _) = serve(&memory, &address).await;
    }
    appends.await.expect("the appends succeed");
    until("the service receives all", || memory.messages().len() >= 30_000).await;
    player.stop(Signal::INT).await;
    runtime.shutdown_background();
    let text = |part: &[u8]| String::from_utf8(part.to_vec()).expect("text");
    let messages = memory.messages();
    let messages: Vec<_> =
        messages.iter().map(|message| (message.position, text(&message.parts[0]))).collect();
    assert!(messages == log_of(&stage, "orders").await, "the messages are the log, in order");
}
