//! SQLite databases.
//!
//! The table `seriatim_bounds` holds the bound. Each batch is one transaction, in WAL mode with
//! `synchronous = FULL`: the update of the bound, then the statements of each part.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use seriatim_model::Position;

use super::place::Place;
use super::{apply_blocking, blocking};
use crate::bounds::{Checked, Session, Stored, checked};
use crate::sql::{DDL, Failure, integer, singles, text_of, time_ms};
use crate::statement::{Parameter, Statement};
use crate::{ApplyError, AttachError, Batch, Message, Stream, Target};

/// How long a transaction waits for the lock of another connection.
const BUSY_FOR: Duration = Duration::from_secs(5);
/// Statements of our own that a connection keeps prepared.
const OWN_STATEMENTS: usize = 8;

const READ: &str = "select stream, epoch, bound from seriatim_bounds where player = ?1 and target = ?2";
const WRITE: &str = "insert into seriatim_bounds (player, target, stream, epoch, bound) \
    values (?1, ?2, ?3, ?4, ?5) on conflict (player, target) \
    do update set stream = excluded.stream, epoch = excluded.epoch, bound = excluded.bound";
const ADVANCE: &str = "update seriatim_bounds set bound = ?1 \
    where player = ?2 and target = ?3 and stream = ?4 and epoch = ?5 and bound = ?6";
const HAS_TABLE: &str = "select 1 from sqlite_master where type = 'table' and name = 'seriatim_bounds'";

/// A SQLite database as a target.
///
/// A dropped future does not end a running transaction. If that transaction commits later, it has
/// moved the bound, and the next batch is answered with [`ApplyError::Moved`].
#[derive(Debug)]
pub struct SqliteTarget {
    database: Arc<Database>,
    /// `None` before an attach, during a call, and after a failed call. No call locks it: the mutex
    /// only lets threads share settings that contain a connection.
    open: Mutex<Option<Open>>,
}

/// The configuration of a target.
#[derive(Debug)]
struct Database {
    id: String,
    path: PathBuf,
    /// Statements that create tables. With them, the first run creates the database.
    setup: Option<String>,
    statements: Vec<Statement>,
}

#[derive(Debug)]
struct Open {
    database: Arc<Database>,
    session: Session,
    connection: Connection,
    place: Place,
}

impl SqliteTarget {
    /// The target `id` in the database at `path`. Opens nothing.
    #[must_use]
    pub fn new(id: &str, path: PathBuf, setup: Option<String>, statements: Vec<Statement>) -> Self {
        Self {
            database: Arc::new(Database { id: id.into(), path, setup, statements }),
            open: Mutex::default(),
        }
    }

    /// Prepares each statement and reads the bound. Changes nothing.
    ///
    /// # Errors
    /// One sentence: what failed, and what to do.
    pub async fn check(&self, stream: &Stream) -> Result<Checked, String> {
        let (database, stream) = (Arc::clone(&self.database), stream.clone());
        blocking(move || database.check(&stream)).await
    }

    fn connection(&mut self) -> &mut Option<Open> {
        self.open.get_mut().expect("no call panics with the lock")
    }
}

impl Target for SqliteTarget {
    async fn attach(
        &mut self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> Result<Position, AttachError> {
        *self.connection() = None;
        let database = Arc::clone(&self.database);
        let session = Session { stream: stream.clone(), epoch };
        let (open, bound) = blocking(move || database.attach(session, adopts)).await?;
        *self.connection() = Some(open);
        Ok(bound)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        apply_blocking(self.connection(), batch, |open, batch| open.apply(batch)).await
    }
}

impl Database {
    fn check(&self, stream: &Stream) -> Result<Checked, String> {
        if self.setup.is_some() && !self.path.exists() {
            let connection = Connection::open_in_memory().map_err(|error| text(&error))?;
            self.try_statements(&connection)?;
            let creates = format!("the database {}", self.path.display());
            return checked(None, stream, &self.id, creates);
        }
        let (connection, _) = self.connect()?;
        self.try_statements(&connection)?;
        let has_table = connection.query_row(HAS_TABLE, [], |_| Ok(())).optional().map_err(|e| text(&e))?;
        let is_readonly = connection.is_readonly("main").map_err(|error| text(&error))?;
        if is_readonly {
            return Err(format!("{} is read-only; permit this user to write it", self.path.display()));
        }
        match has_table {
            None => checked(None, stream, &self.id, "the table seriatim_bounds".into()),
            Some(()) => {
                let stored = self.read(&connection, stream)?;
                checked(stored, stream, &self.id, String::new())
            }
        }
    }

    /// Prepares the statements after the setup, in a transaction that changes nothing.
    fn try_statements(&self, connection: &Connection) -> Result<(), String> {
        let _rolled_back = Transaction::begin(connection).map_err(|error| text(&error))?;
        self.set_up(connection)?;
        self.prepare(connection)
    }

    fn set_up(&self, connection: &Connection) -> Result<(), String> {
        let Some(setup) = &self.setup else { return Ok(()) };
        let failed = |why: &str| format!("the setup '{setup}' fails: {why}");
        let in_transaction = !connection.is_autocommit();
        connection.execute_batch(setup).map_err(|error| failed(&text(&error)))?;
        match connection.is_autocommit() == in_transaction {
            true => Err(failed("it begins or ends a transaction; remove that statement")),
            false => Ok(()),
        }
    }

    fn attach(
        self: Arc<Self>,
        session: Session,
        adopts: Option<Position>,
    ) -> Result<(Open, Position), AttachError> {
        let broken = |reason| AttachError::Broken { reason };
        self.create().map_err(broken)?;
        let (connection, place) = self.connect().map_err(broken)?;
        self.secure(&connection).map_err(broken)?;
        self.set_up(&connection).map_err(broken)?;
        let bound = {
            let transaction = Transaction::begin(&connection).map_err(|error| broken(text(&error)))?;
            connection.execute_batch(DDL).map_err(|error| broken(self.no_table(&error)))?;
            let stored = self.read(&connection, &session.stream).map_err(broken)?;
            let stored = session.attach(stored, adopts)?;
            self.write(&connection, &stored).map_err(|error| broken(text(&error)))?;
            transaction.commit().map_err(|error| broken(text(&error)))?;
            stored.bound
        };
        self.prepare(&connection).map_err(broken)?;
        Ok((Open { database: self, session, connection, place }, bound))
    }

    /// Creates an empty database if the setup will create its tables.
    fn create(&self) -> Result<(), String> {
        if self.setup.is_none() {
            return Ok(());
        }
        match std::fs::File::create_new(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(format!("cannot create {}: {error}", self.path.display()))
            }
            _ => Ok(()),
        }
    }

    fn connect(&self) -> Result<(Connection, Place), String> {
        let path = self.path.display();
        // Precedes the open: if another program replaces the file meanwhile, the first batch fails.
        let place = match std::fs::metadata(&self.path) {
            Ok(metadata) => Place::of(&metadata),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(format!(
                    "{path} does not exist; create the database with its tables, or add `setup` with the statements that create them"
                ));
            }
            Err(error) => return Err(format!("cannot read {path}: {error}")),
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| format!("cannot open {path}: {}", text(&error));
        let connection = Connection::open_with_flags(&self.path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY_FOR).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(self.statements.len() + OWN_STATEMENTS);
        Ok((connection, place))
    }

    /// Selects the modes in which a committed transaction survives a power failure.
    fn secure(&self, connection: &Connection) -> Result<(), String> {
        let path = self.path.display();
        let mode: String = connection
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
            .map_err(|error| format!("cannot use WAL mode in {path}: {}", text(&error)))?;
        if mode != "wal" {
            return Err(format!("{path} cannot use WAL mode, only {mode}; use a file on a local disk"));
        }
        connection.pragma_update(None, "synchronous", "full").map_err(|error| text(&error))
    }

    /// Prepares the statements, which finds missing tables and columns.
    fn prepare(&self, connection: &Connection) -> Result<(), String> {
        for statement in &self.statements {
            let sql = statement.sql();
            let failed = |why: &str| format!("the statement '{sql}' cannot be prepared: {why}");
            let prepared = connection.prepare_cached(sql).map_err(|error| failed(&text(&error)))?;
            if prepared.parameter_count() != statement.parameters().len() {
                return Err(failed("it has a parameter that the player does not know"));
            }
        }
        Ok(())
    }

    fn read(&self, connection: &Connection, stream: &Stream) -> Result<Option<Stored>, String> {
        let mut statement = connection.prepare_cached(READ).map_err(|error| text(&error))?;
        let row = statement
            .query_row(params![stream.player, self.id], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()
            .map_err(|error| text(&error))?;
        row.map(|(stream, epoch, bound)| Stored::from_row(&stream, epoch, bound)).transpose()
    }

    fn write(&self, connection: &Connection, stored: &Stored) -> rusqlite::Result<()> {
        let Stored { stream, epoch, bound } = stored;
        let values = params![stream.player, self.id, stream.to_string(), integer(*epoch), integer(bound.0)];
        connection.execute(WRITE, values).map(|_| ())
    }

    fn no_table(&self, error: &rusqlite::Error) -> String {
        let path = self.path.display();
        format!("{path} has no table seriatim_bounds ({}); create it with: {DDL}", text(error))
    }
}

impl Open {
    fn apply(&self, batch: &Batch) -> Result<(), ApplyError> {
        match self.transaction(batch) {
            Err(Failure::Rejected(_)) => self.apply_singly(batch),
            Err(Failure::Other(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Applies the messages of a rejected batch one at a time, up to the rejected one.
    fn apply_singly(&self, batch: &Batch) -> Result<(), ApplyError> {
        singles(batch)
            .iter()
            .try_for_each(|single| self.transaction(single).map_err(|failure| failure.answer(single)))
    }

    fn transaction(&self, batch: &Batch) -> Result<(), Failure> {
        self.place.check(&self.database.path).map_err(Failure::broken)?;
        let transaction = Transaction::begin(&self.connection).map_err(|error| broken(&error))?;
        if self.advance(batch).map_err(|error| broken(&error))? != 1 {
            return Err(Failure::Other(self.refusal(batch)));
        }
        for message in &batch.messages {
            self.execute(message)?;
        }
        transaction.commit().map_err(|error| classify(&error))
    }

    /// Moves the bound, and returns the number of changed rows.
    fn advance(&self, batch: &Batch) -> rusqlite::Result<usize> {
        let Session { stream, epoch } = &self.session;
        let mut statement = self.connection.prepare_cached(ADVANCE)?;
        statement.execute(params![
            integer(batch.upto.0),
            stream.player,
            self.database.id,
            stream.to_string(),
            integer(*epoch),
            integer(batch.after.0)
        ])
    }

    /// Why the bound of this session did not move.
    fn refusal(&self, batch: &Batch) -> ApplyError {
        let stored = match self.database.read(&self.connection, &self.session.stream) {
            Ok(stored) => stored,
            Err(reason) => return ApplyError::Broken { reason },
        };
        let admitted = self.session.admit(stored.as_ref(), batch.after);
        let reason = "the table seriatim_bounds has two rows of one target; recreate its primary key".into();
        admitted.err().unwrap_or(ApplyError::Broken { reason })
    }

    fn execute(&self, message: &Message) -> Result<(), Failure> {
        for index in 0..message.parts.len() {
            for statement in &self.database.statements {
                let mut prepared =
                    self.connection.prepare_cached(statement.sql()).map_err(|error| classify(&error))?;
                for (number, parameter) in statement.parameters().iter().enumerate() {
                    let value = value(message, index, *parameter).map_err(Failure::Rejected)?;
                    prepared.raw_bind_parameter(number + 1, value).map_err(|error| classify(&error))?;
                }
                let mut rows = prepared.raw_query();
                while rows.next().map_err(|error| classify(&error))?.is_some() {}
                if self.connection.is_autocommit() {
                    return Err(Failure::Rejected("the statement ended the transaction; remove it".into()));
                }
            }
        }
        Ok(())
    }
}

/// A transaction that is rolled back unless it commits.
struct Transaction<'a> {
    connection: &'a Connection,
}

impl<'a> Transaction<'a> {
    fn begin(connection: &'a Connection) -> rusqlite::Result<Self> {
        connection.prepare_cached("begin immediate")?.execute([])?;
        Ok(Self { connection })
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.connection.prepare_cached("commit")?.execute([]).map(|_| ())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Some errors end the transaction by themselves, and a commit ended it.
        if !self.connection.is_autocommit() {
            // If the rollback fails, the next `begin` fails, and the player attaches again.
            let _ = self.connection.execute_batch("rollback");
        }
    }
}

/// The value of a parameter for the part `index`, without a copy.
fn value(message: &Message, index: usize, parameter: Parameter) -> Result<ToSqlOutput<'_>, String> {
    let part = &message.parts[index];
    let value = match parameter {
        Parameter::Position => ValueRef::Integer(integer(message.position.0)),
        Parameter::TimeMs => ValueRef::Integer(time_ms(message)?),
        Parameter::Index => ValueRef::Integer(integer(index as u64)),
        Parameter::Payload => ValueRef::Blob(part),
        Parameter::Key => message.key.as_ref().map_or(ValueRef::Null, |key| ValueRef::Blob(key)),
        Parameter::Text => ValueRef::Text(text_of(message, index)?.as_bytes()),
    };
    Ok(ToSqlOutput::Borrowed(value))
}

fn broken(error: &rusqlite::Error) -> Failure {
    Failure::broken(text(error))
}

/// An error that depends on the state of the machine or of other connections breaks the session; an
/// error that depends on the message rejects it.
fn classify(error: &rusqlite::Error) -> Failure {
    let rejects = match error.sqlite_error_code() {
        Some(code) => matches!(
            code,
            ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::TooBig
                | ErrorCode::ParameterOutOfRange
                | ErrorCode::Unknown
        ),
        None => true,
    };
    if rejects { Failure::Rejected(text(error)) } else { broken(error) }
}

fn text(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "sqlite_tests.rs"]
mod tests;
