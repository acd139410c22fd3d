//! The store: transactions go to the log, and reads go to the shards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};
use serde_json::json;
use seriatim_client::wal::{Transaction, WalError};
use seriatim_client::{Position, Record};
use seriatim_player::statement::{Dialect, Statement};
use seriatim_player::targets::{AnyTarget, SqliteTarget};
use seriatim_player::{Begin, Map, PlayerLimits, Settings, Start, TargetSettings};

/// Name of the log, and of the player.
pub(crate) const LOG: &str = "transfers";
pub(crate) const SHARDS: usize = 4;

/// The tables of a shard. `pairs` is the store; `history` is there for the check alone.
const SETUP: &str = "create table if not exists pairs (key text primary key, value integer not null);
    create table if not exists history (position integer not null, change text not null)";
/// What a shard does with each change, in the transaction that also moves its bound.
const STATEMENTS: [&str; 2] = [
    "insert into pairs (key, value) values ($text ->> 'key', $text ->> 'add') \
        on conflict (key) do update set value = value + excluded.value",
    "insert into history (position, change) values ($position, $text)",
];

/// Adds an amount to the value of a key. A key without a value counts as 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) add: i64,
}

impl Change {
    pub(crate) fn new(key: impl Into<String>, add: i64) -> Self {
        Self { key: key.into(), add }
    }

    /// The mutation that the shard applies.
    pub(crate) fn mutation(&self, transaction: u64) -> String {
        json!({ "transaction": transaction, "key": self.key, "add": self.add }).to_string()
    }
}

/// The shard of a key.
pub(crate) fn shard_of(key: &str) -> usize {
    let hash = key.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    hash as usize % SHARDS
}

/// The record of a transaction. One append writes all its changes, on any shards.
pub(crate) fn record(transaction: u64, changes: &[Change]) -> Result<Record, WalError> {
    let empty = Transaction::new();
    let put =
        |all: Transaction, change: &Change| all.put(id(shard_of(&change.key)), change.mutation(transaction));
    changes.iter().fold(empty, put).into_record()
}

/// The player that brings transactions from the log to the shards below `directory`.
pub(crate) fn player(directory: &Path, until_tail: bool) -> Result<Settings, String> {
    let statements = STATEMENTS.map(|statement| Statement::parse(statement, Dialect::Sqlite));
    let statements = statements.into_iter().collect::<Result<Vec<_>, _>>()?;
    let target = |shard: &Shard| {
        let target =
            SqliteTarget::new(&id(shard.number), shard.file(), Some(SETUP.into()), statements.clone());
        TargetSettings { id: id(shard.number), target: AnyTarget::Sqlite(target), dead_letters: false }
    };
    Ok(Settings {
        log: LOG.into(),
        name: LOG.into(),
        map: Map::Wal,
        begin: Begin::Start,
        targets: shards(directory).iter().map(target).collect(),
        start: Start::TakeOver,
        above: None,
        until_tail,
        pin: false,
        dead_letter: None,
        limits: PlayerLimits::default(),
    })
}

/// The shards below `directory`, each in a directory of its own.
pub(crate) fn shards(directory: &Path) -> Vec<Shard> {
    (0..SHARDS).map(|number| Shard { number, directory: directory.join(id(number)) }).collect()
}

pub(crate) fn id(shard: usize) -> String {
    format!("shard-{shard}")
}

/// The value of a key, if its shard has applied all transactions below `bound`. None: it has not
/// yet. A client that appended a transaction at position 7 reads its own change with the bound 8.
pub(crate) fn get(directory: &Path, key: &str, bound: Position) -> rusqlite::Result<Option<i64>> {
    let shard = shards(directory).swap_remove(shard_of(key));
    let sql = "select coalesce((select value from pairs where key = ?1), 0) \
        from seriatim_bounds where bound >= ?2";
    shard.open()?.query_row(sql, (key, bound.0 as i64), |row| row.get(0)).optional()
}

/// A SQLite database with a part of the keys.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) number: usize,
    pub(crate) directory: PathBuf,
}

impl Shard {
    fn file(&self) -> PathBuf {
        self.directory.join("store.db")
    }

    pub(crate) fn open(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(self.file())?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(connection)
    }

    /// All pairs.
    pub(crate) fn pairs(&self) -> rusqlite::Result<BTreeMap<String, i64>> {
        let connection = self.open()?;
        let mut pairs = connection.prepare("select key, value from pairs")?;
        pairs.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    /// The applied changes in the order of their application, each with its transaction's position.
    pub(crate) fn history(&self) -> rusqlite::Result<Vec<(i64, String)>> {
        let connection = self.open()?;
        let mut history = connection.prepare("select position, change from history order by rowid")?;
        history.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }
}
