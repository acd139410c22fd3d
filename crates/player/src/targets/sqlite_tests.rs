use rusqlite::types::Value;
use tempfile::TempDir;

use super::super::suite::{Fixture, attach, batch, entries, message, passes, stream};
use super::*;
use crate::statement::Dialect;

const SCHEMA: &str = "create table parent (id integer primary key);
    create table rows (id integer primary key, body text not null check (body <> 'entry 913'));";

struct Ledger {
    directory: TempDir,
    statements: Vec<Statement>,
}

impl Ledger {
    fn new(schema: &str, statements: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let parse = |text: &&str| Statement::parse(text, Dialect::Sqlite).unwrap();
        let ledger = Self { directory, statements: statements.iter().map(parse).collect() };
        ledger.connection().execute_batch(schema).unwrap();
        ledger
    }

    fn usual() -> Self {
        Self::new(SCHEMA, &["insert into rows (body) values ($text)"])
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("ledger.db")
    }

    fn connection(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    fn execute(&self, sql: &str) {
        self.connection().execute_batch(sql).unwrap();
    }

    fn rows(&self, sql: &str) -> Vec<Vec<Value>> {
        let connection = self.connection();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    }
}

impl Fixture for Ledger {
    type Target = SqliteTarget;

    fn target(&self) -> SqliteTarget {
        SqliteTarget::new("ledger", self.path(), None, self.statements.clone())
    }

    async fn effects(&self) -> Vec<String> {
        let text = |row: Vec<Value>| match &row[..] {
            [Value::Text(text)] => text.clone(),
            other => panic!("{other:?}"),
        };
        self.rows("select body from rows order by id").into_iter().map(text).collect()
    }

    async fn save(&mut self) {
        let copy = self.directory.path().join("copy.db");
        self.execute(&format!("vacuum into '{}'", copy.display()));
    }

    async fn restore(&mut self) {
        for suffix in ["-wal", "-shm"] {
            // The last connection has deleted them.
            let _ = std::fs::remove_file(self.directory.path().join(format!("ledger.db{suffix}")));
        }
        std::fs::copy(self.directory.path().join("copy.db"), self.path()).unwrap();
    }
}

fn reason<T: std::fmt::Debug>(result: Result<T, ApplyError>) -> String {
    match result {
        Err(ApplyError::Broken { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_database_passes_the_suite() {
    passes(Ledger::usual()).await;
}

#[tokio::test]
async fn a_zombie_changes_nothing() {
    let ledger = Ledger::usual();
    let (mut zombie, mut player) = (ledger.target(), ledger.target());
    attach(&mut zombie, 1).await.unwrap();
    zombie.apply(&batch(0, 2, [0, 1])).await.unwrap();
    assert_eq!(attach(&mut player, 2).await, Ok(Position(2)));
    assert_eq!(zombie.apply(&batch(2, 3, [2])).await, Err(ApplyError::Fenced { epoch: 2 }));
    assert_eq!(attach(&mut zombie, 1).await, Err(AttachError::Fenced { epoch: 2 }));
    assert_eq!(player.apply(&batch(2, 3, [2])).await, Ok(()));
    assert_eq!(ledger.effects().await, entries([0, 1, 2]));
}

#[tokio::test]
async fn two_sessions_of_one_epoch_apply_a_batch_once() {
    let ledger = Ledger::usual();
    let (mut first, mut second) = (ledger.target(), ledger.target());
    attach(&mut first, 1).await.unwrap();
    attach(&mut second, 1).await.unwrap();
    assert_eq!(second.apply(&batch(0, 2, [0, 1])).await, Ok(()));
    let moved = Err(ApplyError::Moved { applied: Position(2) });
    assert_eq!(first.apply(&batch(0, 2, [0, 1])).await, moved);
    assert_eq!(ledger.effects().await, entries([0, 1]));
}

#[tokio::test]
async fn messages_before_a_rejected_one_are_applied() {
    let ledger = Ledger::usual();
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    match target.apply(&batch(0, 920, [903, 912, 913, 914])).await {
        Err(ApplyError::Rejected { position, reason }) => {
            assert_eq!(position, Position(913));
            assert!(reason.contains("CHECK constraint failed"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(attach(&mut target, 1).await, Ok(Position(913)));
    assert_eq!(ledger.effects().await, entries([903, 912]));
    // `skip` moves the bound behind it.
    assert_eq!(target.apply(&batch(913, 914, [])).await, Ok(()));
    assert_eq!(target.apply(&batch(914, 920, [914])).await, Ok(()));
    assert_eq!(ledger.effects().await, entries([903, 912, 914]));
}

#[tokio::test]
async fn a_rejected_first_message_leaves_the_bound_at_its_position() {
    let ledger = Ledger::usual();
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    let rejected = target.apply(&batch(0, 920, [913])).await;
    assert!(matches!(rejected, Err(ApplyError::Rejected { position: Position(913), .. })), "{rejected:?}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(913)));
    let text = ApplyError::Rejected {
        position: Position(914),
        reason: "part 0 is not UTF-8 text (invalid utf-8 sequence of 1 bytes from index 0); a statement can use $payload".into(),
    };
    let mut odd = batch(913, 920, [914]);
    odd.messages[0].parts = vec![bytes::Bytes::from_static(b"\xff")];
    assert_eq!(target.apply(&odd).await, Err(text));
}

#[tokio::test]
async fn a_message_that_fails_at_the_commit_is_found() {
    let schema = "create table parent (id integer primary key);
        create table rows (id integer primary key,
            body text references parent (id) deferrable initially deferred);";
    let ledger = Ledger::new(schema, &["insert into rows (id, body) values ($position, $text)"]);
    ledger.execute("insert into parent values (1), (2)");
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    let messages = vec![message(0, &["1"]), message(1, &["2"]), message(2, &["9"]), message(3, &["1"])];
    let rejected = target.apply(&Batch { after: Position(0), upto: Position(4), messages }).await;
    assert!(matches!(rejected, Err(ApplyError::Rejected { position: Position(2), .. })), "{rejected:?}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(2)));
    assert_eq!(ledger.rows("select id from rows").len(), 2);
}

#[tokio::test]
async fn a_conflict_that_rolls_back_applies_nothing_twice() {
    let ledger = Ledger::new(SCHEMA, &["insert or rollback into rows (body) values ($text)"]);
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    let rejected = target.apply(&batch(0, 920, [903, 912, 913, 914])).await;
    assert!(matches!(rejected, Err(ApplyError::Rejected { position: Position(913), .. })), "{rejected:?}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(913)));
    assert_eq!(ledger.effects().await, entries([903, 912]));
}

#[tokio::test]
async fn statements_see_each_part_with_its_values() {
    let schema = "create table rows (position, payload, text, key, time_ms, number);
        create table parts (position, number);";
    let rows =
        "insert into rows values ($position, $payload, $text, $key, $time_ms, $index) returning position";
    let ledger = Ledger::new(schema, &[rows, "insert into parts values ($position, $index);"]);
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    let mut keyed = message(4, &["a", "b"]);
    keyed.key = Some(bytes::Bytes::from_static(b"k"));
    let messages = vec![keyed, message(5, &["c"])];
    target.apply(&Batch { after: Position(0), upto: Position(6), messages }).await.unwrap();
    let row = |position: i64, part: &str, key: Value, index: i64| {
        let (text, time) = (Value::Text(part.into()), Value::Integer(1_700_000_000_000 + position));
        let payload = Value::Blob(part.into());
        vec![Value::Integer(position), payload, text, key, time, Value::Integer(index)]
    };
    let key = || Value::Blob(b"k".to_vec());
    let expected = [row(4, "a", key(), 0), row(4, "b", key(), 1), row(5, "c", Value::Null, 0)];
    assert_eq!(ledger.rows("select * from rows order by position, number"), expected);
    assert_eq!(ledger.rows("select count(*) from parts"), [[Value::Integer(3)]]);
}

#[tokio::test]
async fn a_state_of_the_database_breaks_the_session_and_rejects_nothing() {
    let ledger = Ledger::usual();
    let mut target = ledger.target();
    for (limit, expected) in [
        ("pragma query_only = 1", "attempt to write a readonly database"),
        ("pragma max_page_count = 1", "database or disk is full"),
    ] {
        let bound = attach(&mut target, 1).await.unwrap().0;
        target.connection().as_ref().unwrap().connection.execute_batch(limit).unwrap();
        let large = message(bound, &[&"x".repeat(100_000)]);
        let upto = Position(bound + 1);
        let large = Batch { after: Position(bound), upto, messages: vec![large] };
        assert_eq!(reason(target.apply(&large).await), expected);
        assert_eq!(attach(&mut target, 1).await, Ok(Position(bound)));
    }
    let open = target.connection().as_ref().unwrap();
    open.connection.busy_timeout(Duration::from_millis(1)).unwrap();
    let other = ledger.connection();
    other.execute_batch("begin immediate").unwrap();
    assert_eq!(reason(target.apply(&batch(0, 1, [0])).await), "database is locked");
    other.execute_batch("rollback").unwrap();
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    assert_eq!(target.apply(&batch(0, 1, [0])).await, Ok(()));
    assert_eq!(ledger.effects().await, entries([0]));
}

#[tokio::test]
async fn a_database_that_is_replaced_under_the_player_is_opened_again() {
    let mut ledger = Ledger::usual();
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    target.apply(&batch(0, 2, [0, 1])).await.unwrap();
    ledger.save().await;
    target.apply(&batch(2, 3, [2])).await.unwrap();
    std::fs::remove_file(ledger.path()).unwrap();
    ledger.restore().await;
    let reason = reason(target.apply(&batch(3, 4, [3])).await);
    assert!(reason.starts_with("another program replaced"), "{reason}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(2)));
    assert_eq!(target.apply(&batch(2, 4, [2, 3])).await, Ok(()));
    assert_eq!(ledger.effects().await, entries([0, 1, 2, 3]));
}

#[tokio::test]
async fn a_missing_database_or_table_is_reported() {
    let ledger = Ledger::new("", &["insert into rows (body) values ($text)"]);
    let mut target = ledger.target();
    let broken = attach(&mut target, 1).await;
    let reason =
        "the statement 'insert into rows (body) values (?1)' cannot be prepared: no such table: rows";
    assert_eq!(broken, Err(AttachError::Broken { reason: reason.into() }));
    assert_eq!(target.check(&stream(7)).await, Err(reason.into()));
    std::fs::remove_file(ledger.path()).unwrap();
    let error = target.check(&stream(7)).await.unwrap_err();
    assert!(error.contains("does not exist; create the database with its tables, or add `setup`"), "{error}");
}

#[tokio::test]
async fn a_check_changes_nothing() {
    let ledger = Ledger::usual();
    let mut target = ledger.target();
    let before = std::fs::read(ledger.path()).unwrap();
    let creates = "the table seriatim_bounds".to_owned();
    assert_eq!(target.check(&stream(7)).await, Ok(Checked::New { creates }));
    assert_eq!(std::fs::read(ledger.path()).unwrap(), before);
    attach(&mut target, 3).await.unwrap();
    target.apply(&batch(0, 2, [0, 1])).await.unwrap();
    let checked = target.check(&stream(7)).await.unwrap();
    assert_eq!(checked, Checked::Bound { epoch: 3, bound: Position(2) });
    assert_eq!(checked.to_string(), "bound 2, last epoch 3");
    let error = target.check(&stream(8)).await.unwrap_err();
    assert!(error.ends_with("run `seriatim player adopt billing ledger POSITION`"), "{error}");
}
