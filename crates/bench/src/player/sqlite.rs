//! SQLite databases that a player fills from a log, and without a log.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use seriatim_client::AppendOptions;
use seriatim_model::limits::{PLAYER_BATCH_BYTES, PLAYER_BATCH_MESSAGES};
use seriatim_player::statement::{Dialect, Statement};
use seriatim_player::targets::{AnyTarget, SqliteTarget};
use seriatim_player::{BOUNDS_TABLE, TargetSettings};
use tokio::task::JoinSet;

use super::Playing;
use super::transactions::{KEY_BYTES, Transactions, name_of};
use crate::cluster::Cluster;
use crate::figure::Figure;
use crate::figures::Measured;
use crate::stamp::{WARM_UP, stamped};
use crate::terminal::{Failure, Outcome};

/// Transactions for each second of the measurement.
const PER_SECOND: u64 = 40_000;
/// Appends in flight while the log is filled.
const IN_FLIGHT: usize = 1024;

const TABLE: &str = "create table if not exists entries (position integer, part integer, body blob)";
const INSERT: &str = "insert into entries (position, part, body) values ($position, $index, $payload)";
/// Counts the commits of batches.
const COUNT: &str = "create table if not exists commits (count integer);
    insert into commits select 0 where not exists (select 1 from commits);
    create trigger if not exists counted after update of bound on seriatim_bounds
    begin update commits set count = count + 1; end";

fn setup() -> String {
    format!("{TABLE}; {BOUNDS_TABLE}; {COUNT}")
}

/// A player delivers a full log to databases.
pub(super) async fn through_player(
    cluster: &Cluster,
    transactions: Transactions,
    duration: Duration,
) -> Result<Measured, Failure> {
    let count = count_in(duration);
    fill(cluster, transactions, count).await?;
    let directory = tempfile::tempdir()?;
    let insert = Statement::parse(INSERT, Dialect::Sqlite).map_err(Failure::new)?;
    let target = |target: usize| {
        let (id, path) = (name_of(target), directory.path().join(name_of(target)));
        let target = SqliteTarget::new(&id, path, Some(setup()), vec![insert.clone()]);
        TargetSettings { id, target: AnyTarget::Sqlite(target), dead_letters: false }
    };
    let targets = (0..transactions.targets as usize).map(target).collect();
    let began = Instant::now();
    let playing = Playing::start(cluster, targets, None, true).await?;
    playing.ended.await??;
    measured_in(directory.path(), transactions, count, began.elapsed())
}

/// One thread for each database writes the rows of the same transactions, in batches of the
/// player's size.
pub(super) async fn direct(transactions: Transactions, duration: Duration) -> Result<Measured, Failure> {
    let (directory, count) = (tempfile::tempdir()?, count_in(duration));
    let began = Instant::now();
    let mut writing = JoinSet::new();
    for target in 0..transactions.targets as usize {
        let path = directory.path().join(name_of(target));
        writing.spawn_blocking(move || write(&path, target, transactions, count));
    }
    while let Some(written) = writing.join_next().await {
        written??;
    }
    measured_in(directory.path(), transactions, count, began.elapsed())
}

fn count_in(duration: Duration) -> u64 {
    duration.as_secs() * PER_SECOND
}

async fn fill(cluster: &Cluster, transactions: Transactions, count: u64) -> Outcome {
    let (log, mut in_flight) = (cluster.log().await?, VecDeque::new());
    for number in 0..count {
        let record = transactions.record(number, WARM_UP)?;
        in_flight.push_back(log.submit_with(record, AppendOptions::default()).await?);
        if in_flight.len() >= IN_FLIGHT
            && let Some(append) = in_flight.pop_front()
        {
            append.await?;
        }
    }
    for append in in_flight {
        append.await?;
    }
    Ok(())
}

fn write(path: &Path, target: usize, transactions: Transactions, count: u64) -> rusqlite::Result<()> {
    let database = Connection::open(path)?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.pragma_update(None, "synchronous", "full")?;
    database.execute_batch(&setup())?;
    database.execute("insert into seriatim_bounds values ('direct', 't', '', 0, 0)", [])?;
    let mut advance = database.prepare("update seriatim_bounds set bound = ?1 where player = 'direct'")?;
    let mut insert = database.prepare("insert into entries (position, part, body) values (?1, ?2, ?3)")?;
    let body = stamped(KEY_BYTES, WARM_UP);
    let mut messages = (0..count)
        .filter_map(|number| Some((number, transactions.keys_of(number).remove(&target)?)))
        .peekable();
    while messages.peek().is_some() {
        let (mut batch, mut bytes) = (vec![], 0);
        while let Some((number, keys)) = messages.next_if(|(_, keys)| {
            batch.len() < PLAYER_BATCH_MESSAGES && bytes + keys * KEY_BYTES <= PLAYER_BATCH_BYTES
        }) {
            batch.push((number.cast_signed(), keys));
            bytes += keys * KEY_BYTES;
        }
        database.execute_batch("begin immediate")?;
        advance.execute([batch.last().map(|(number, _)| number + 1)])?;
        for (number, keys) in batch {
            for part in 0..keys {
                insert.execute(params![number, part as i64, &body[..]])?;
            }
        }
        database.execute_batch("commit")?;
    }
    Ok(())
}

/// The figures of databases that were filled in this time. Fails if rows are missing.
fn measured_in(
    directory: &Path,
    transactions: Transactions,
    count: u64,
    took: Duration,
) -> Result<Measured, Failure> {
    let (mut rows, mut commits) = (0, 0);
    for target in 0..transactions.targets as usize {
        let database = Connection::open(directory.join(name_of(target)))?;
        rows += database.query_row("select count(*) from entries", [], |row| row.get::<_, i64>(0))?;
        commits += database.query_row("select count from commits", [], |row| row.get::<_, i64>(0))?;
    }
    let wanted = count * u64::from(transactions.keys);
    if rows.cast_unsigned() != wanted {
        return Err(Failure::new(format!("the databases have {rows} rows instead of {wanted}")));
    }
    let per_commit = rows as f64 / commits.max(1) as f64;
    let rate = rows as f64 / took.as_secs_f64();
    Ok(Measured::of([(Figure::Rate, rate), (Figure::RowsPerCommit, per_commit)]))
}
