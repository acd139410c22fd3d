use std::time::Instant;

use super::super::suite::{Fixture, Restored, attach, batch, entries, message, passes, stream};
use super::*;
use crate::statement::Dialect;
use crate::testing::PostgresServer;

const WITHIN: Duration = Duration::from_secs(20);
const SCHEMA: &str = "create table rows (id serial primary key, body text check (body <> 'entry 913'))";
const INSERT_ROW: &str = "insert into rows (body) values ($text)";

/// A database of its own on a server.
struct Ledger<'a> {
    server: &'a PostgresServer,
    name: &'static str,
    statements: Vec<Statement>,
}

impl<'a> Ledger<'a> {
    fn new(server: &'a PostgresServer, name: &'static str, schema: &str, statements: &[&str]) -> Self {
        server.execute("postgres", &format!("create database {name}"));
        server.execute(name, schema);
        let parse = |text: &&str| Statement::parse(text, Dialect::Postgres).unwrap();
        Self { server, name, statements: statements.iter().map(parse).collect() }
    }

    fn usual(server: &'a PostgresServer, name: &'static str) -> Self {
        Self::new(server, name, SCHEMA, &[INSERT_ROW])
    }

    fn target_at(&self, url: &str, within: Duration) -> PostgresTarget {
        PostgresTarget::new("ledger", url, self.statements.clone(), None, None, within)
    }

    /// Repeats a query until it returns true.
    fn wait_for(&self, sql: &str) {
        let begun = Instant::now();
        while self.query(sql) != ["t"] {
            assert!(begun.elapsed() < WITHIN, "{sql}");
        }
    }

    fn query(&self, sql: &str) -> Vec<String> {
        self.server.query(self.name, sql)
    }
}

impl Fixture for Ledger<'_> {
    type Target = PostgresTarget;

    fn target(&self) -> PostgresTarget {
        self.target_at(&self.server.url(self.name), WITHIN)
    }

    async fn effects(&self) -> Vec<String> {
        self.query("select body from rows order by id")
    }
}

impl Restored for Ledger<'_> {
    async fn save(&mut self) {
        self.server.execute("postgres", &format!("create database {0}_copy template {0}", self.name));
    }

    async fn restore(&mut self) {
        self.server.execute("postgres", &format!("drop database {} with (force)", self.name));
        self.server.execute("postgres", &format!("create database {0} template {0}_copy", self.name));
    }
}

fn attach_reason(result: Result<Position, AttachError>) -> String {
    match result {
        Err(AttachError::Broken { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn apply_reason(result: Result<(), ApplyError>) -> String {
    match result {
        Err(ApplyError::Broken { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

/// One server for all databases, since each start takes seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_keeps_each_promise() {
    let Some(server) = PostgresServer::start() else { return };
    passes(Ledger::usual(&server, "suite")).await;
    a_zombie_changes_nothing(&Ledger::usual(&server, "zombie")).await;
    messages_before_a_rejected_one_are_applied(&Ledger::usual(&server, "rejected")).await;
    a_message_that_fails_at_the_commit_is_found(&server).await;
    statements_see_each_part_with_its_values(&server).await;
    states_of_the_server_reject_nothing(&Ledger::usual(&server, "states")).await;
    the_holder_of_the_lock_is_named(&Ledger::usual(&server, "locked")).await;
    an_unbegun_transaction_writes_nothing(&Ledger::usual(&server, "unbegun")).await;
    a_check_changes_nothing(&Ledger::usual(&server, "checked")).await;
    missing_rights_and_tables_are_reported(&Ledger::usual(&server, "rights")).await;
    passwords_come_from_elsewhere(&Ledger::usual(&server, "passwords")).await;
}

async fn a_zombie_changes_nothing(ledger: &Ledger<'_>) {
    let (mut zombie, mut player) = (ledger.target(), ledger.target());
    attach(&mut zombie, 1).await.unwrap();
    zombie.apply(&batch(0, 2, [0, 1])).await.unwrap();
    assert_eq!(attach(&mut player, 2).await, Ok(Position(2)));
    assert_eq!(zombie.apply(&batch(2, 3, [2])).await, Err(ApplyError::Fenced { epoch: 2 }));
    assert_eq!(attach(&mut zombie, 1).await, Err(AttachError::Fenced { epoch: 2 }));
    assert_eq!(player.apply(&batch(2, 3, [2])).await, Ok(()));
    // Two sessions of one epoch: the first batch moves the bound.
    let mut second = ledger.target();
    assert_eq!(attach(&mut second, 2).await, Ok(Position(3)));
    assert_eq!(second.apply(&batch(3, 4, [3])).await, Ok(()));
    let moved = Err(ApplyError::Moved { applied: Position(4) });
    assert_eq!(player.apply(&batch(3, 4, [3])).await, moved);
    assert_eq!(ledger.effects().await, entries([0, 1, 2, 3]));
}

async fn messages_before_a_rejected_one_are_applied(ledger: &Ledger<'_>) {
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    match target.apply(&batch(0, 920, [903, 912, 913, 914])).await {
        Err(ApplyError::Rejected { position: Position(913), reason }) => {
            assert!(reason.contains("violates check constraint") && reason.ends_with("(23514)"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(attach(&mut target, 1).await, Ok(Position(913)));
    assert_eq!(target.apply(&batch(913, 914, [])).await, Ok(()));
    let with_text = |text: &str| Batch {
        after: Position(914),
        upto: Position(920),
        messages: vec![message(914, &[text])],
    };
    let rejected = target.apply(&with_text("a\0b")).await;
    let Err(ApplyError::Rejected { position: Position(914), reason }) = rejected else {
        panic!("{rejected:?}")
    };
    assert!(reason.contains("invalid byte sequence") && reason.ends_with("(22021)"), "{reason}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(914)));
    let mut odd = with_text("");
    odd.messages[0].parts = vec![bytes::Bytes::from_static(b"\xff")];
    let rejected = target.apply(&odd).await;
    assert!(matches!(rejected, Err(ApplyError::Rejected { position: Position(914), .. })), "{rejected:?}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(914)));
    assert_eq!(target.apply(&with_text("entry 914")).await, Ok(()));
    assert_eq!(ledger.effects().await, entries([903, 912, 914]));
}

async fn a_message_that_fails_at_the_commit_is_found(server: &PostgresServer) {
    let schema = "create table parent (id bigint primary key); insert into parent values (1), (2);
        create table rows (id bigint, parent bigint references parent (id) deferrable initially deferred)";
    let insert = "insert into rows values ($position, $text::bigint)";
    let ledger = Ledger::new(server, "deferred", schema, &[insert]);
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    let messages = vec![message(0, &["1"]), message(1, &["2"]), message(2, &["9"]), message(3, &["1"])];
    let rejected = target.apply(&Batch { after: Position(0), upto: Position(4), messages }).await;
    assert!(matches!(rejected, Err(ApplyError::Rejected { position: Position(2), .. })), "{rejected:?}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(2)));
    assert_eq!(ledger.query("select id from rows order by id"), ["0", "1"]);
}

async fn statements_see_each_part_with_its_values(server: &PostgresServer) {
    let schema = "create table rows (position int, payload bytea, document jsonb, key text, at timestamptz,
            number int); create table parts (position bigint)";
    let rows = "insert into rows values ($position, $payload, $text::jsonb, convert_from($key, 'UTF8'), \
        to_timestamp($time_ms / 1000.0), $index) returning position";
    let ledger = Ledger::new(server, "parts", schema, &[rows, "insert into parts values ($position)"]);
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    let mut keyed = message(4, &["{\"a\": 1}", "2"]);
    keyed.key = Some(bytes::Bytes::from_static(b"k"));
    let messages = vec![keyed, message(5, &["3"])];
    target.apply(&Batch { after: Position(0), upto: Position(6), messages }).await.unwrap();
    let rows =
        "select position, payload, document->>'a', key, extract(epoch from at) * 1000, number from rows
        order by position, number";
    let at = |position: u64| format!("{}.000000", 1_700_000_000_000 + position);
    let expected = [
        format!("4|\\x7b2261223a20317d|1|k|{}|0", at(4)),
        format!("4|\\x32||k|{}|1", at(4)),
        format!("5|\\x33|||{}|0", at(5)),
    ];
    let found: Vec<String> =
        ledger.query(rows).into_iter().map(|row| row.replace(".0000000", ".000000")).collect();
    assert_eq!(found, expected);
    assert_eq!(ledger.query("select count(*) from parts"), ["3"]);
}

async fn states_of_the_server_reject_nothing(ledger: &Ledger<'_>) {
    let statement = Statement::parse(&format!("{INSERT_ROW} returning *"), Dialect::Postgres).unwrap();
    let returning = Ledger { server: ledger.server, name: ledger.name, statements: vec![statement] };
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    // An administrator ends the session, between and during batches.
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = \
        'seriatim player billing ledger'";
    assert_eq!(ledger.query(end), ["t"]);
    apply_reason(target.apply(&batch(0, 1, [0])).await);
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    let mut slow = ledger.target_at(&ledger.server.url(ledger.name), Duration::from_millis(200));
    attach(&mut slow, 1).await.unwrap();
    let client = connect(&ledger.server.url(ledger.name)).await;
    client.client.batch_execute("begin; lock table rows").await.unwrap();
    let reason = apply_reason(slow.apply(&batch(0, 1, [0])).await);
    assert_eq!(reason, "canceling statement due to statement timeout (57014)");
    client.client.batch_execute("rollback").await.unwrap();
    assert_eq!(target.apply(&batch(0, 1, [0])).await, Ok(()));
    // A changed table makes a prepared statement unusable.
    let mut target = returning.target();
    attach(&mut target, 1).await.unwrap();
    assert_eq!(target.apply(&batch(1, 2, [1])).await, Ok(()));
    ledger.server.execute(ledger.name, "alter table rows add remark text");
    let reason = apply_reason(target.apply(&batch(2, 3, [2])).await);
    assert_eq!(reason, "cached plan must not change result type (0A000)");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(2)));
    assert_eq!(target.apply(&batch(2, 3, [2])).await, Ok(()));
    // The bounds are gone.
    ledger.server.execute(ledger.name, "delete from seriatim_bounds");
    assert_eq!(apply_reason(target.apply(&batch(3, 4, [3])).await), "the target's bound was deleted");
    assert_eq!(ledger.effects().await, entries([0, 1, 2]));
}

async fn connect(url: &str) -> Connection {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    Connection::new(client, connection)
}

async fn the_holder_of_the_lock_is_named(ledger: &Ledger<'_>) {
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    let url = format!("{}?application_name=backup", ledger.server.url(ledger.name));
    let holder = connect(&url).await;
    holder.client.batch_execute("begin; update seriatim_bounds set bound = bound").await.unwrap();
    let mut next = ledger.target_at(&url, Duration::from_millis(400));
    let reason = attach_reason(attach(&mut next, 2).await);
    assert!(reason.starts_with("the session ") && reason.contains("('backup' from 127.0.0.1"), "{reason}");
    assert!(reason.contains("end its transaction, as with: select pg_terminate_backend("), "{reason}");
    // A commit whose answer is lost: the attach waits for it, and reports its bound.
    holder.client.batch_execute("rollback; begin; update seriatim_bounds set bound = 5").await.unwrap();
    let mut next = ledger.target();
    let bound = tokio::spawn(async move { attach(&mut next, 2).await });
    ledger.wait_for("select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock'");
    holder.client.batch_execute("commit").await.unwrap();
    assert_eq!(bound.await.unwrap(), Ok(Position(5)));
    let fenced = Err(ApplyError::Fenced { epoch: 2 });
    assert_eq!(target.apply(&batch(0, 1, [0])).await, fenced, "the bound moved, too");
}

async fn an_unbegun_transaction_writes_nothing(ledger: &Ledger<'_>) {
    let mut target = ledger.target();
    attach(&mut target, 1).await.unwrap();
    let open = target.open.as_ref().unwrap();
    let alone = open.connection.client.execute(&open.statements[0], &[&"alone"]).await.unwrap_err();
    assert_eq!(alone.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION));
    assert!(matches!(classify(&alone), Failure::Other(ApplyError::Broken { .. })));
    assert_eq!(ledger.effects().await, entries([]));
}

async fn a_check_changes_nothing(ledger: &Ledger<'_>) {
    let mut target = ledger.target();
    let creates = "the table seriatim_bounds".to_owned();
    assert_eq!(target.check(&stream(7)).await, Ok(Checked::New { creates }));
    assert_eq!(ledger.query("select to_regclass('seriatim_bounds') is null"), ["t"]);
    attach(&mut target, 3).await.unwrap();
    target.apply(&batch(0, 2, [0, 1])).await.unwrap();
    assert_eq!(target.check(&stream(7)).await, Ok(Checked::Bound { epoch: 3, bound: Position(2) }));
    let error = target.check(&stream(8)).await.unwrap_err();
    assert!(error.ends_with("run `seriatim player adopt billing ledger POSITION`"), "{error}");
    ledger.server.execute(ledger.name, "delete from seriatim_bounds");
    assert_eq!(target.check(&stream(7)).await, Ok(Checked::New { creates: String::new() }));
    ledger.server.execute(ledger.name, "drop table rows");
    let expected = "the statement 'insert into rows (body) values ($1)' cannot be prepared: relation \"rows\" does \
        not exist (42P01)";
    assert_eq!(target.check(&stream(7)).await, Err(expected.into()));
    assert_eq!(attach_reason(attach(&mut target, 3).await), expected);
}

async fn missing_rights_and_tables_are_reported(ledger: &Ledger<'_>) {
    ledger.server.execute(ledger.name, "create user clerk; grant insert on rows to clerk");
    let url = ledger.server.url(ledger.name).replace("postgres@", "clerk@");
    let mut target = ledger.target_at(&url, WITHIN);
    for reason in [target.check(&stream(7)).await.unwrap_err(), attach_reason(attach(&mut target, 1).await)] {
        assert!(
            reason.starts_with("there is no table seriatim_bounds (") && reason.ends_with(DDL),
            "{reason}"
        );
    }
    ledger.server.execute(ledger.name, DDL);
    let reason = target.check(&stream(7)).await.unwrap_err();
    let grant = "grant select, insert, update on seriatim_bounds to \"clerk\"";
    assert!(reason.ends_with(grant), "{reason}");
    ledger.server.execute(ledger.name, grant);
    ledger.server.execute(ledger.name, "grant usage on rows_id_seq to clerk");
    assert_eq!(target.check(&stream(7)).await, Ok(Checked::New { creates: String::new() }));
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    assert_eq!(target.apply(&batch(0, 1, [0])).await, Ok(()));
    assert_eq!(ledger.effects().await, entries([0]));
}

async fn passwords_come_from_elsewhere(ledger: &Ledger<'_>) {
    ledger.server.execute(ledger.name, "create user guarded superuser password 'secret'");
    let access = ledger.server.data().join("pg_hba.conf");
    let trusting = std::fs::read_to_string(&access).unwrap();
    let guarded = format!("host all guarded 127.0.0.1/32 scram-sha-256\n{trusting}");
    std::fs::write(&access, guarded).unwrap();
    let loaded = ledger.query("select pg_conf_load_time()").remove(0);
    assert_eq!(ledger.query("select pg_reload_conf()"), ["t"]);
    ledger.wait_for(&format!("select pg_conf_load_time() > '{loaded}'"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    let url = ledger.server.url(ledger.name).replace("postgres@", "guarded@");
    let target = |path: &std::path::Path| {
        PostgresTarget::new(
            "ledger",
            &url,
            ledger.statements.clone(),
            Some(Secret::File(path.into())),
            None,
            WITHIN,
        )
    };
    std::fs::write(&path, "secret\n").unwrap();
    assert_eq!(attach(&mut target(&path), 1).await, Ok(Position(0)));
    std::fs::write(&path, "wrong\n").unwrap();
    let reason = attach_reason(attach(&mut target(&path), 1).await);
    assert_eq!(reason, "cannot connect: password authentication failed for user \"guarded\" (28P01)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_with_tls_needs_the_certificate_of_a_trusted_authority() {
    let Some(mut server) = PostgresServer::start() else { return };
    server.execute("postgres", SCHEMA);
    let statement = Statement::parse(INSERT_ROW, Dialect::Postgres).unwrap();
    let target = |url: &str, ca_file: Option<PathBuf>| {
        PostgresTarget::new("ledger", url, vec![statement.clone()], None, ca_file, WITHIN)
    };
    let url = format!("{}?sslmode=require", server.url("postgres"));
    let authority = server.encrypt();
    let reason = attach_reason(attach(&mut target(&url, None), 1).await);
    assert!(
        reason.starts_with("cannot connect: ") && reason.contains("invalid peer certificate"),
        "{reason}"
    );
    let other_name = url.replace("127.0.0.1", "localhost");
    let reason = attach_reason(attach(&mut target(&other_name, Some(authority.clone())), 1).await);
    assert!(reason.contains("not valid for name"), "{reason}");
    let mut encrypted = target(&url, Some(authority.clone()));
    assert_eq!(attach(&mut encrypted, 1).await, Ok(Position(0)));
    let version = "select version from pg_stat_ssl join pg_stat_activity using (pid) where application_name = \
        'seriatim player billing ledger'";
    assert_eq!(server.query("postgres", version), ["TLSv1.3"]);
    assert_eq!(encrypted.apply(&batch(0, 2, [0, 1])).await, Ok(()));
    assert_eq!(server.query("postgres", "select body from rows order by id"), entries([0, 1]));
    std::fs::write(&authority, "no certificate").unwrap();
    let reason = attach_reason(attach(&mut encrypted, 1).await);
    assert!(reason.ends_with("it has no certificate in PEM form"), "{reason}");
}

/// Kills the server while batches are applied; each entry is one row, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_has_each_entry_once() {
    let Some(mut server) = PostgresServer::start() else { return };
    server.execute("postgres", "create table rows (id serial primary key, body text)");
    let statement = Statement::parse(INSERT_ROW, Dialect::Postgres).unwrap();
    let url = server.url("postgres");
    let mut bound = 0;
    for epoch in 1..=3 {
        let mut target = PostgresTarget::new("ledger", &url, vec![statement.clone()], None, None, WITHIN);
        bound = attach(&mut target, epoch).await.unwrap().0.max(bound);
        let (killed, applying) = std::sync::mpsc::sync_channel(1);
        let applied = tokio::spawn(async move {
            let mut bound = bound;
            while target.apply(&batch(bound, bound + 5, bound..bound + 5)).await.is_ok() {
                bound += 5;
                // Only the first batch counts.
                let _ = killed.try_send(());
            }
            bound
        });
        applying.recv().unwrap();
        server.kill();
        let answered = applied.await.unwrap();
        server.restart();
        bound = attach(
            &mut PostgresTarget::new("ledger", &url, vec![statement.clone()], None, None, WITHIN),
            epoch,
        )
        .await
        .unwrap()
        .0;
        assert!(bound == answered || bound == answered + 5, "{answered} and then {bound}");
        let rows = server.query("postgres", "select body from rows order by id");
        assert_eq!(rows, entries(0..bound));
    }
}
