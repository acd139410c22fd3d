//! PostgreSQL databases.
//!
//! The table `seriatim_bounds` holds the bound. Each batch is one transaction: the update of the
//! bound, then the statements of each part. The lock on the bound's row orders two sessions. All
//! requests of a batch, with its commit, are sent without waiting for answers.
//!
//! A failed update of the bound raises an error, so the rest of its transaction has no effect. If
//! the transaction does not begin, its statements fail, because the session is read-only outside.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use seriatim_model::Position;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, NoTls, Statement as Prepared};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::not_attached;
use super::password::find_password;
use super::tls;
use crate::bounds::{Checked, Session, Stored, checked};
use crate::config::Secret;
use crate::rejecting::{Failure, singles};
use crate::sql::{DDL, integer, text_of, time_ms};
use crate::statement::{Parameter, Statement};
use crate::{ApplyError, AttachError, Batch, Message, Stream, Target};

/// How long a connection may take.
const CONNECT_FOR: Duration = Duration::from_secs(10);

/// The advisory lock under which targets of one database create the table of the bounds.
const CREATING: i64 = 0x5365_7269_6174_696d;

const BEGIN: &str = "begin isolation level read committed read write";
const READ: &str = "select stream, epoch, bound from seriatim_bounds where player = $1 and target = $2";
const INSERT: &str = "insert into seriatim_bounds (player, target, stream, epoch, bound) \
    values ($1, $2, $3, $4, $5) on conflict (player, target) do nothing";
const WRITE: &str = "update seriatim_bounds set stream = $3, epoch = $4, bound = $5 \
    where player = $1 and target = $2";
/// Moves the bound of one row. Otherwise it divides by zero.
const ADVANCE: &str = "with moved as (update seriatim_bounds set bound = $6 where player = $1 and target = $2 \
    and stream = $3 and epoch = $4 and bound = $5 returning 1) select 1 / (select count(*) from moved)";
/// Whether the table of the bounds exists, and whether this user may create it.
const RIGHTS: &str = "select to_regclass('seriatim_bounds') is not null, \
    coalesce(has_schema_privilege(current_schema(), 'create'), false), current_user::text";
/// Whether this user may use the table of the bounds.
const MAY_WRITE: &str = "select has_table_privilege('seriatim_bounds', 'select') \
    and has_table_privilege('seriatim_bounds', 'insert') and has_table_privilege('seriatim_bounds', 'update')";
/// The session that holds the lock on a bound's row.
const HOLDER: &str = "select a.pid, a.application_name, coalesce(a.client_addr::text, 'this machine'), \
    coalesce(extract(epoch from now() - a.xact_start), 0)::bigint \
    from seriatim_bounds b join pg_locks l on l.locktype = 'transactionid' and l.granted \
    and l.transactionid = b.xmax join pg_stat_activity a on a.pid = l.pid \
    where b.player = $1 and b.target = $2";

/// A PostgreSQL database as a target.
///
/// A lost answer to a commit leaves the outcome open. The next attach settles it: it waits for the
/// row's lock, and reads the bound.
#[derive(Debug)]
pub struct PostgresTarget {
    database: Arc<Database>,
    /// `None` before an attach, during a call, and after a failed call.
    open: Option<Open>,
}

/// The configuration of a target.
#[derive(Debug)]
struct Database {
    id: String,
    url: String,
    statements: Vec<Statement>,
    password: Option<Secret>,
    ca_file: Option<PathBuf>,
    apply_within: Duration,
}

/// A connection to the server. Dropping it closes the connection, and sends nothing more.
#[derive(Debug)]
struct Connection {
    client: Client,
    task: JoinHandle<()>,
}

impl Connection {
    /// Runs `work`, the connection's own part, beside the requests.
    fn new(client: Client, work: impl Future<Output = Result<(), Error>> + Send + 'static) -> Self {
        let task = tokio::spawn(async move {
            // The request that fails reports the error.
            let _ = work.await;
        });
        Self { client, task }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Open {
    database: Arc<Database>,
    connection: Connection,
    session: Session,
    advance: Prepared,
    /// The prepared statements of the target, in its order.
    statements: Vec<Prepared>,
}

type Request<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// A value of a parameter.
enum Value<'a> {
    Number(i64),
    Bytes(Option<&'a [u8]>),
    Text(&'a str),
}

impl PostgresTarget {
    /// The target `id` in the database at `url`. Connects to nothing. A statement may take
    /// `apply_within`. With `sslmode=require`, the connection uses TLS. It trusts the authorities
    /// in `ca_file`, or else those of this machine.
    #[must_use]
    pub fn new(
        id: &str,
        url: &str,
        statements: Vec<Statement>,
        password: Option<Secret>,
        ca_file: Option<PathBuf>,
        apply_within: Duration,
    ) -> Self {
        let (id, url) = (id.into(), url.into());
        let database = Database { id, url, statements, password, ca_file, apply_within };
        Self { database: Arc::new(database), open: None }
    }

    /// Prepares each statement, and reads the bound. Changes nothing.
    ///
    /// # Errors
    /// One sentence: the failure, and what to do.
    pub async fn check(&self, stream: &Stream) -> Result<Checked, String> {
        self.database.check(stream).await
    }
}

impl Target for PostgresTarget {
    async fn attach(
        &mut self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> Result<Position, AttachError> {
        self.open = None;
        let session = Session { stream: stream.clone(), epoch };
        let (open, bound) = Arc::clone(&self.database).attach(session, adopts).await?;
        self.open = Some(open);
        Ok(bound)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        let open = self.open.take().ok_or_else(not_attached)?;
        open.apply(batch).await?;
        self.open = Some(open);
        Ok(())
    }
}

impl Database {
    async fn check(&self, stream: &Stream) -> Result<Checked, String> {
        let connection = self.connect(stream).await?;
        self.prepare(&connection.client).await?;
        let client = &connection.client;
        let row = client.query_one(RIGHTS, &[]).await.map_err(|error| text(&error))?;
        let (has_table, may_create, user): (bool, bool, String) = (row.get(0), row.get(1), row.get(2));
        if !has_table && !may_create {
            return Err(no_table(&format!("the user {user} may not create it")));
        }
        if !has_table {
            return checked(None, stream, &self.id, "the table seriatim_bounds".into());
        }
        let row = client.query_one(MAY_WRITE, &[]).await.map_err(|error| text(&error))?;
        if !row.get::<_, bool>(0) {
            return Err(format!(
                "the user {user} may not write the table seriatim_bounds; \
                 run: grant select, insert, update on seriatim_bounds to \"{user}\""
            ));
        }
        // A pooler may use another connection for each transaction: this one was prepared before.
        let read = client.prepare(READ).await.map_err(|error| text(&error))?;
        client.batch_execute("begin read only").await.map_err(|error| text(&error))?;
        let row = client.query_opt(&read, &[&stream.player, &self.id]).await.map_err(|error| text(&error))?;
        client.batch_execute("commit").await.map_err(|error| text(&error))?;
        let stored = row.map(|row| Stored::from_row(row.get(0), row.get(1), row.get(2))).transpose()?;
        checked(stored, stream, &self.id, String::new())
    }

    async fn attach(
        self: Arc<Self>,
        session: Session,
        adopts: Option<Position>,
    ) -> Result<(Open, Position), AttachError> {
        let broken = |reason| AttachError::Broken { reason };
        let connection = self.connect(&session.stream).await.map_err(broken)?;
        let client = &connection.client;
        self.create_table(client).await.map_err(broken)?;
        let statements = self.prepare(client).await.map_err(broken)?;
        let types = [Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::INT8, Type::INT8];
        let advance = client.prepare_typed(ADVANCE, &types).await.map_err(|error| broken(text(&error)))?;
        let stored = match self.claim(client, &session, adopts).await {
            Ok(stored) => stored?,
            Err(error) => return Err(broken(self.explain(client, &session.stream, &error).await)),
        };
        Ok((Open { database: self, connection, session, advance, statements }, stored.bound))
    }

    /// Connects, and prepares the session: a dead player's transaction ends by itself.
    async fn connect(&self, stream: &Stream) -> Result<Connection, String> {
        let wrong = |error: Error| format!("`url` is not an address of PostgreSQL: {error}");
        let mut config: tokio_postgres::Config = self.url.parse().map_err(wrong)?;
        if let Some(password) = find_password(self.password.as_ref(), &config)? {
            config.password(password);
        }
        config
            .application_name(format!("seriatim player {} {}", stream.player, self.id))
            .connect_timeout(CONNECT_FOR)
            .tcp_user_timeout(self.apply_within);
        let connection = self.dial(&config).await?;
        let within_ms = self.apply_within.as_millis();
        let settings = format!(
            "set synchronous_commit = on; set statement_timeout = {within_ms}; \
             set idle_in_transaction_session_timeout = {within_ms}; set standard_conforming_strings = on; \
             set default_transaction_read_only = on"
        );
        connection.client.batch_execute(&settings).await.map_err(|error| text(&error))?;
        Ok(connection)
    }

    async fn dial(&self, config: &tokio_postgres::Config) -> Result<Connection, String> {
        let failed = |error: Error| format!("cannot connect: {}", text(&error));
        if config.get_ssl_mode() == SslMode::Require {
            let tls = MakeRustlsConnect::new(tls::settings(self.ca_file.as_deref())?);
            let (client, connection) = config.connect(tls).await.map_err(failed)?;
            return Ok(Connection::new(client, connection));
        }
        let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
        Ok(Connection::new(client, connection))
    }

    /// Creates the table of the bounds if it does not exist.
    async fn create_table(&self, client: &Client) -> Result<(), String> {
        let row = client.query_one(RIGHTS, &[]).await.map_err(|error| text(&error))?;
        if row.get::<_, bool>(0) {
            return Ok(());
        }
        let create = format!("{BEGIN}; select pg_advisory_xact_lock({CREATING}); {DDL}; commit");
        client.batch_execute(&create).await.map_err(|error| no_table(&text(&error)))
    }

    /// Prepares the statements, which finds missing tables and columns.
    async fn prepare(&self, client: &Client) -> Result<Vec<Prepared>, String> {
        let mut prepared = Vec::with_capacity(self.statements.len());
        for statement in &self.statements {
            let types: Vec<Type> = statement.parameters().iter().map(type_of).collect();
            let failed = |error: Error| {
                format!("the statement '{}' cannot be prepared: {}", statement.sql(), text(&error))
            };
            prepared.push(client.prepare_typed(statement.sql(), &types).await.map_err(failed)?);
        }
        Ok(prepared)
    }

    /// Locks the bound's row, and writes the session's epoch into it. An inner error leaves the
    /// transaction open: the caller drops the connection.
    async fn claim(
        &self,
        client: &Client,
        session: &Session,
        adopts: Option<Position>,
    ) -> Result<Result<Stored, AttachError>, Error> {
        let lock_ms = self.apply_within.as_millis() / 2;
        client.batch_execute(&format!("{BEGIN}; set local lock_timeout = {lock_ms}")).await?;
        let mut stored = match session.attach(None, adopts) {
            Ok(stored) => stored,
            Err(error) => return Ok(Err(error)),
        };
        if self.write(client, INSERT, &stored).await? == 0 {
            let lock = format!("{READ} for update");
            let row = client.query_one(&lock, &[&session.stream.player, &self.id]).await?;
            let attached = Stored::from_row(row.get(0), row.get(1), row.get(2))
                .map_err(|reason| AttachError::Broken { reason })
                .and_then(|stored| session.attach(Some(stored), adopts));
            stored = match attached {
                Ok(stored) => stored,
                Err(error) => return Ok(Err(error)),
            };
            self.write(client, WRITE, &stored).await?;
        }
        client.batch_execute("commit").await?;
        Ok(Ok(stored))
    }

    /// Writes the bound's row, and returns the number of written rows.
    async fn write(&self, client: &Client, sql: &str, stored: &Stored) -> Result<u64, Error> {
        let Stored { stream, epoch, bound } = stored;
        let (text, epoch, bound) = (stream.to_string(), integer(*epoch), integer(bound.0));
        client.execute(sql, &[&stream.player, &self.id, &text, &epoch, &bound]).await
    }

    /// The reason of a failed attach; for a lock, with the session that holds it.
    async fn explain(&self, client: &Client, stream: &Stream, error: &Error) -> String {
        if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) {
            return text(error);
        }
        let holder = async {
            client.batch_execute("rollback").await?;
            client.query_opt(HOLDER, &[&stream.player, &self.id]).await
        };
        let Ok(Some(row)) = holder.await else {
            return "another session holds the lock on the bound's row; end its transaction".into();
        };
        let (pid, name, address, seconds): (i32, String, String, i64) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        format!(
            "the session {pid} ('{name}' from {address}) has held the lock on the bound's row for {seconds} s; \
             end its transaction, as with: select pg_terminate_backend({pid})"
        )
    }
}

impl Open {
    async fn apply(&self, batch: &Batch) -> Result<(), ApplyError> {
        match self.transaction(batch).await {
            Err(Failure::Rejected(_)) => {}
            Err(Failure::Other(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
        // Finds the rejected message, and applies the messages before it.
        for single in singles(batch) {
            self.transaction(&single).await.map_err(|failure| failure.answer(&single))?;
        }
        Ok(())
    }

    async fn transaction(&self, batch: &Batch) -> Result<(), Failure> {
        // All values are valid before the first request leaves, so each request is sent.
        let values = self.values(batch).map_err(Failure::Rejected)?;
        let Session { stream, epoch } = &self.session;
        let (stream, epoch) = (stream.to_string(), integer(*epoch));
        let (after, upto) = (integer(batch.after.0), integer(batch.upto.0));
        let client = &self.connection.client;
        let player = &self.session.stream.player;
        let advance: [&(dyn ToSql + Sync); 6] = [player, &self.database.id, &stream, &epoch, &after, &upto];
        let mut requests: Vec<Request<'_>> = Vec::with_capacity(values.len() + 3);
        requests.push(Box::pin(client.batch_execute(BEGIN)));
        requests.push(Box::pin(async { client.execute(&self.advance, &advance).await.map(|_| ()) }));
        for (statement, values) in &values {
            let parameters: Vec<&(dyn ToSql + Sync)> = values.iter().map(Value::to_sql).collect();
            requests.push(Box::pin(async move { client.execute(*statement, &parameters).await.map(|_| ()) }));
        }
        requests.push(Box::pin(client.batch_execute("commit")));
        let answers = pipelined(requests).await;
        // The first error is the cause of the others.
        let Some((index, error)) =
            answers.into_iter().enumerate().find_map(|(at, answer)| Some((at, answer.err()?)))
        else {
            return Ok(());
        };
        match index {
            1 if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => {
                Err(Failure::Other(self.refusal(batch).await))
            }
            0 | 1 => Err(Failure::broken(text(&error))),
            _ => Err(classify(&error)),
        }
    }

    /// The values of each execution of a statement.
    fn values<'a>(&'a self, batch: &'a Batch) -> Result<Vec<(&'a Prepared, Vec<Value<'a>>)>, String> {
        let mut executions = Vec::new();
        for message in &batch.messages {
            for index in 0..message.parts.len() {
                for (prepared, statement) in self.statements.iter().zip(&self.database.statements) {
                    let values =
                        statement.parameters().iter().map(|parameter| value(message, index, *parameter));
                    executions.push((prepared, values.collect::<Result<_, _>>()?));
                }
            }
        }
        Ok(executions)
    }

    /// Why the bound of this session did not move.
    async fn refusal(&self, batch: &Batch) -> ApplyError {
        let player = &self.session.stream.player;
        let row = self.connection.client.query_opt(READ, &[player, &self.database.id]).await;
        let stored = row
            .map_err(|error| text(&error))
            .and_then(|row| row.map(|row| Stored::from_row(row.get(0), row.get(1), row.get(2))).transpose());
        match stored {
            Ok(stored) => {
                let reason = "another session changed the bound at the same time".into();
                let admitted = self.session.admit(stored.as_ref(), batch.after);
                admitted.err().unwrap_or(ApplyError::Broken { reason })
            }
            Err(reason) => ApplyError::Broken { reason },
        }
    }
}

/// Sends requests in their order, and waits for all answers.
async fn pipelined(mut requests: Vec<Request<'_>>) -> Vec<Result<(), Error>> {
    // The first poll of a request sends it. The server answers in the same order.
    let mut answers: Vec<Option<Result<(), Error>>> = Vec::with_capacity(requests.len());
    for request in &mut requests {
        answers.push(
            std::future::poll_fn(|context| match request.as_mut().poll(context) {
                std::task::Poll::Ready(answer) => std::task::Poll::Ready(Some(answer)),
                std::task::Poll::Pending => std::task::Poll::Ready(None),
            })
            .await,
        );
    }
    let mut complete = Vec::with_capacity(requests.len());
    for (request, answer) in requests.into_iter().zip(answers) {
        complete.push(match answer {
            Some(answer) => answer,
            None => request.await,
        });
    }
    complete
}

fn type_of(parameter: &Parameter) -> Type {
    match parameter {
        Parameter::Position | Parameter::TimeMs | Parameter::Index => Type::INT8,
        Parameter::Payload | Parameter::Key => Type::BYTEA,
        Parameter::Text => Type::TEXT,
    }
}

/// The value of a parameter for the part `index`.
fn value(message: &Message, index: usize, parameter: Parameter) -> Result<Value<'_>, String> {
    Ok(match parameter {
        Parameter::Position => Value::Number(integer(message.position.0)),
        Parameter::TimeMs => Value::Number(time_ms(message)?),
        Parameter::Index => Value::Number(integer(index as u64)),
        Parameter::Payload => Value::Bytes(Some(&message.parts[index])),
        Parameter::Key => Value::Bytes(message.key.as_deref()),
        Parameter::Text => Value::Text(text_of(message, index)?),
    })
}

impl Value<'_> {
    fn to_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Number(number) => number,
            Self::Bytes(bytes) => bytes,
            Self::Text(text) => text,
        }
    }
}

/// An error that depends on the server or on other sessions breaks the session; an error that
/// depends on the message rejects it.
fn classify(error: &Error) -> Failure {
    let Some(state) = error.code() else { return Failure::broken(text(error)) };
    // A changed table makes a prepared plan unusable; the next session prepares it again.
    let is_stale = error.as_db_error().and_then(DbError::routine) == Some("RevalidateCachedQuery");
    let is_transient = is_stale
        || matches!(state.code(), "40001" | "40P01" | "55P03" | "26000")
        || ["08", "25", "53", "57", "58", "XX"].iter().any(|class| state.code().starts_with(class));
    if is_transient { Failure::broken(text(error)) } else { Failure::Rejected(text(error)) }
}

fn no_table(reason: &str) -> String {
    format!("there is no table seriatim_bounds ({reason}); create it with: {DDL}")
}

/// The server's message with its code, or the cause of a failed connection.
fn text(error: &Error) -> String {
    if let Some(database) = error.as_db_error() {
        let detail = database.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        return format!("{}{detail} ({})", database.message(), database.code().code());
    }
    if error.is_closed() {
        return "the server closed the connection".into();
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
