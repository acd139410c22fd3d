//! The example `key_value`: its store, and its process when it is killed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rusqlite::Connection;
use seriatim_target::proto::from_player::Request;
use seriatim_target::proto::from_target::Answer;
use seriatim_target::{ApplyError, Batch, Message, Session, Target};

use crate::player::{Player, hello};

#[path = "../../examples/key_value/store.rs"]
mod store;

use store::Store;

fn message(position: u64, parts: &[&[u8]]) -> Message {
    let parts = parts.iter().map(|part| part.to_vec().into()).collect();
    Message { position, parts, ..Message::default() }
}

fn changes(file: &Path) -> Vec<(u64, String)> {
    let connection = Connection::open(file).unwrap();
    let mut select = connection.prepare("select position, mutation from changes order by number").unwrap();
    let rows = select.query_map([], |row| {
        let position: i64 = row.get(0)?;
        Ok((position.cast_unsigned(), row.get(1)?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn value(file: &Path, key: &str) -> String {
    let connection = Connection::open(file).unwrap();
    connection.query_row("select value from pairs where key = ?", [key], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_rejected_message_changes_nothing_and_those_before_it_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store.db");
    let store = Store::open(&file).unwrap();
    let stream = hello(7).stream.unwrap();
    let session = Session { stream, target: "ledger".into(), epoch: 7 };
    assert_eq!(store.attach(&session, None).await, Ok(0));
    let messages = vec![
        message(0, &[b"set name a long value", b"add total 5"]),
        message(2, &[b"add total 2", b"delete name", b"set name b"]),
    ];
    assert_eq!(store.apply(&session, &Batch { after: 0, upto: 4, messages }).await, Ok(()));
    let wrong: [&[u8]; 6] = [
        b"\xff",
        b"increase total",
        b"delete a b",
        b"add name 1",
        b"add total x",
        b"add total 9223372036854775807",
    ];
    for wrong in wrong {
        let bound = store.attach(&session, None).await.unwrap();
        let messages = vec![
            message(bound, &[b"add total 1"]),
            message(bound + 1, &[b"set lost 1", wrong]),
            message(bound + 2, &[b"set lost 2"]),
        ];
        let outcome = store.apply(&session, &Batch { after: bound, upto: bound + 3, messages }).await;
        let Err(ApplyError::Rejected { position, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(position, bound + 1);
        assert_eq!(store.attach(&session, None).await, Ok(bound + 1));
    }
    assert_eq!((value(&file, "total"), value(&file, "name")), ("13".into(), "b".into()));
    assert!(changes(&file).iter().all(|(_, mutation)| !mutation.contains("lost")));
    assert_eq!(changes(&file).len(), 5 + wrong.len());
}

/// A process of the example.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(file: &Path) -> Self {
        let mut child = Command::new(example())
            .arg(file)
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example is built: cargo build -p seriatim-target --examples");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, address }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The example's program; cargo builds it beside the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples/key_value")
}

fn addition(position: u64) -> Message {
    message(position, &[b"add total 1", format!("set last {position}").as_bytes()])
}

#[tokio::test]
async fn a_killed_process_applied_each_message_once_in_order() {
    const ROUNDS: u64 = 5;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("store.db");
    let mut answered = 0;
    for round in 0..=ROUNDS {
        let process = Process::start(&file);
        let mut player = Player::play(process.address, Some(Request::Hello(hello(7)))).await;
        let Ok(Some(Answer::Attached(attached))) = player.answer().await else { panic!("no bound") };
        let bound = attached.applied;
        assert!(bound >= answered, "the store lost applied messages");
        for batch in 0..8 {
            let (after, upto) = (bound + batch * 10, bound + batch * 10 + 10);
            let messages = (after..upto).map(addition).collect();
            player.send(Request::Batch(Batch { after, upto, messages })).await;
        }
        // The last round answers all batches.
        for _ in 0..if round == ROUNDS { 8 } else { round } {
            let Ok(Some(Answer::Applied(applied))) = player.answer().await else { panic!("not applied") };
            answered = applied.upto;
        }
        process.kill();
    }
    let expected = (0..answered).flat_map(|position| {
        [(position, "add total 1".to_owned()), (position, format!("set last {position}"))]
    });
    assert_eq!(changes(&file), expected.collect::<Vec<_>>());
    assert_eq!(value(&file, "total"), answered.to_string());
}
