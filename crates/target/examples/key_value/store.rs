//! The store: pairs, changes and bounds in one SQLite file.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, Error, OptionalExtension, Savepoint, Transaction, TransactionBehavior, params};
use seriatim_target::{ApplyError, AttachError, Batch, Message, Session, Stored, Target};

const TABLES: &str = "
    create table if not exists bounds (
        player text, target text, log text not null, bound integer not null, epoch integer not null,
        primary key (player, target));
    create table if not exists pairs (key text primary key, value text not null);
    create table if not exists changes (
        number integer primary key autoincrement, position integer not null, mutation text not null);
";

/// A store. Clones share its connection.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    connection: Arc<Mutex<Connection>>,
}

impl Store {
    /// Opens a file, and creates it if necessary.
    pub(crate) fn open(file: impl AsRef<Path>) -> Result<Self, Error> {
        let connection = Connection::open(file)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A returned commit is durable.
        connection.pragma_update(None, "synchronous", "full")?;
        connection.execute_batch(TABLES)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Runs blocking work on a thread of its own.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut Connection) -> T + Send + 'static) -> T {
        let connection = self.connection.clone();
        let work = move || work(&mut connection.lock().expect("no thread panics with this lock"));
        tokio::task::spawn_blocking(work).await.expect("the work does not panic")
    }
}

impl Target for Store {
    async fn attach(&self, session: &Session, adopts: Option<u64>) -> Result<u64, AttachError> {
        let session = session.clone();
        self.run(move |connection| attach(connection, &session, adopts)).await
    }

    async fn apply(&self, session: &Session, batch: &Batch) -> Result<(), ApplyError> {
        let (session, batch) = (session.clone(), batch.clone());
        self.run(move |connection| apply(connection, &session, &batch)).await
    }
}

fn attach(connection: &mut Connection, session: &Session, adopts: Option<u64>) -> Result<u64, AttachError> {
    let broken = |error: Error| AttachError::Broken { reason: error.to_string() };
    let transaction = begin(connection).map_err(broken)?;
    let stored = read(&transaction, session).map_err(broken)?;
    let stored = Stored::attach(stored, session, adopts)?;
    write(&transaction, session, &stored).map_err(broken)?;
    transaction.commit().map_err(broken)?;
    Ok(stored.bound)
}

fn apply(connection: &mut Connection, session: &Session, batch: &Batch) -> Result<(), ApplyError> {
    let broken = |error: Error| ApplyError::Broken { reason: error.to_string() };
    let mut transaction = begin(connection).map_err(broken)?;
    let stored = read(&transaction, session).map_err(broken)?;
    let mut stored = Stored::apply(stored, session, batch)?;
    let mut outcome = Ok(());
    for message in &batch.messages {
        // A rejected message changes nothing; those before it are committed.
        let savepoint = transaction.savepoint().map_err(broken)?;
        match change(&savepoint, message) {
            Ok(()) => savepoint.commit().map_err(broken)?,
            Err(Failure::Broken(error)) => return Err(broken(error)),
            Err(Failure::Rejected(reason)) => {
                stored.bound = message.position;
                outcome = Err(ApplyError::Rejected { position: message.position, reason });
                break;
            }
        }
    }
    write(&transaction, session, &stored).map_err(broken)?;
    transaction.commit().map_err(broken)?;
    outcome
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>, Error> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn read(transaction: &Transaction<'_>, session: &Session) -> Result<Option<Stored>, Error> {
    let mut select =
        transaction.prepare("select log, bound, epoch from bounds where (player, target) = (?, ?)")?;
    let row = select.query_row(params![session.stream.player, session.target], |row| {
        let (bound, epoch): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(Stored { log: row.get(0)?, bound: bound.cast_unsigned(), epoch: epoch.cast_unsigned() })
    });
    row.optional()
}

fn write(transaction: &Transaction<'_>, session: &Session, stored: &Stored) -> Result<(), Error> {
    let mut replace = transaction
        .prepare("replace into bounds (player, target, log, bound, epoch) values (?, ?, ?, ?, ?)")?;
    let (bound, epoch) = (stored.bound.cast_signed(), stored.epoch.cast_signed());
    replace.execute(params![session.stream.player, session.target, stored.log, bound, epoch])?;
    Ok(())
}

/// Why a message was not applied.
enum Failure {
    /// No retry can succeed.
    Rejected(String),
    Broken(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

fn change(savepoint: &Savepoint<'_>, message: &Message) -> Result<(), Failure> {
    for part in &message.parts {
        let text = std::str::from_utf8(part).map_err(|_| rejected("the mutation is not UTF-8"))?;
        match text.splitn(3, ' ').collect::<Vec<_>>()[..] {
            ["set", key, value] => put(savepoint, key, value)?,
            ["add", key, number] => add(savepoint, key, number)?,
            ["delete", key] => {
                savepoint.prepare("delete from pairs where key = ?")?.execute([key])?;
            }
            _ => return Err(rejected("a mutation is 'set KEY VALUE', 'add KEY NUMBER' or 'delete KEY'")),
        }
        let mut insert = savepoint.prepare("insert into changes (position, mutation) values (?, ?)")?;
        insert.execute(params![message.position.cast_signed(), text])?;
    }
    Ok(())
}

fn put(savepoint: &Savepoint<'_>, key: &str, value: &str) -> Result<(), Failure> {
    savepoint.prepare("replace into pairs (key, value) values (?, ?)")?.execute([key, value])?;
    Ok(())
}

fn add(savepoint: &Savepoint<'_>, key: &str, number: &str) -> Result<(), Failure> {
    let mut select = savepoint.prepare("select value from pairs where key = ?")?;
    let present: Option<String> = select.query_row([key], |row| row.get(0)).optional()?;
    let present = present.map_or(Ok(0), |value| number_of(&value))?;
    let Some(sum) = present.checked_add(number_of(number)?) else {
        return Err(rejected(&format!("'{key}' would exceed 64 bits")));
    };
    put(savepoint, key, &sum.to_string())
}

fn number_of(text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| rejected(&format!("'{text}' is not a number of 64 bits")))
}

fn rejected(reason: &str) -> Failure {
    Failure::Rejected(reason.to_owned())
}
