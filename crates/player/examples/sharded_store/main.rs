//! A key-value store over several SQLite databases, with transactions across them (LogPlayer,
//! sections 1 and 4).
//!
//! ```sh
//! cargo run --release -p seriatim-player --example sharded_store
//! ```
//!
//! Each key lives on one shard. A transaction changes keys on any shards with **one append**: the
//! log holds it whole, or not at all. The player delivers to each shard its part, in the order of
//! the log and once. So the shards agree, without locks and without two-phase commit.
//!
//! `store.rs` is the store. This file uses it for money: a writer transfers amounts between
//! accounts. Meanwhile [`FAULTS`] kill the player, the writer, a node and the whole cluster, take
//! away the disk of a shard and restore a shard from an old copy. At the end, each shard has
//! exactly its part of each transaction, and no money has appeared or disappeared.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod scene;
mod store;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use scene::{Fault, Scene};
use seriatim_client::Position;
use store::Change;

type Failure = Box<dyn Error + Send + Sync>;

const ACCOUNTS: u64 = 40;
/// Money of each account at the start.
const DEPOSIT: i64 = 1000;

/// The faults, in order.
const FAULTS: [Fault; 16] = [
    Fault::KillPlayer,
    Fault::KillWriter,
    Fault::LoseNode,
    Fault::KillPlayer,
    Fault::ReturnNode,
    Fault::LoseDisk,
    Fault::KillPlayer,
    Fault::ReturnDisk,
    Fault::CopyShard,
    Fault::KillWriter,
    Fault::RestoreShard,
    Fault::SecondPlayer,
    Fault::KillCluster,
    Fault::KillPlayer,
    Fault::KillWriter,
    Fault::KillPlayer,
];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let transactions = run(directory.path(), 500).await?;
    check(directory.path(), transactions)?;
    let bank = store::get(directory.path(), "bank", Position(transactions))?.unwrap_or_default();
    println!(
        "{transactions} transactions over {} shards: the shards agree; the bank has {bank}",
        store::SHARDS
    );
    Ok(())
}

/// Inflicts each fault after `distance` more transactions, until all shards have applied all
/// transactions. Returns their number.
async fn run(directory: &Path, distance: u64) -> Result<u64, Failure> {
    let mut scene = Scene::begin(directory).await?;
    for fault in FAULTS {
        let transactions = scene.written(distance).await?;
        println!("{transactions} transactions: {fault:?}");
        scene.inflict(fault).await?;
    }
    scene.end().await
}

/// The changes of a transaction. Number 0 has the deposits. Any other one is a transfer between two
/// accounts, with a fee for the bank.
fn changes_of(transaction: u64) -> Vec<Change> {
    let account = |number: u64| format!("account-{}", number % ACCOUNTS);
    if transaction == 0 {
        return (0..ACCOUNTS).map(|number| Change::new(account(number), DEPOSIT)).collect();
    }
    let amount = (transaction % 50) as i64 + 1;
    vec![
        Change::new(account(transaction * 7), -amount - 1),
        Change::new(account(transaction * 13 + 1), amount),
        Change::new("bank", 1),
    ]
}

/// Checks that each shard has applied its part of each transaction, once and in order, that the
/// shards agree on the position of each transaction, and that all values add up to the deposits.
fn check(directory: &Path, transactions: u64) -> Result<(), Failure> {
    let mut positions = BTreeMap::new();
    let mut sum = 0;
    for (number, shard) in store::shards(directory).iter().enumerate() {
        let is_own = |change: &Change| store::shard_of(&change.key) == number;
        let mut expected = (0..transactions).flat_map(|transaction| {
            let own = changes_of(transaction).into_iter().filter(is_own);
            own.map(move |change| (transaction, change))
        });
        let mut pairs: BTreeMap<String, i64> = BTreeMap::new();
        for (position, applied) in shard.history()? {
            let (transaction, change) = expected.next().ok_or("too many changes")?;
            let right = change.mutation(transaction);
            if applied != right || *positions.entry(transaction).or_insert(position) != position {
                return Err(format!("shard {number} has {applied} at {position}, not {right}").into());
            }
            *pairs.entry(change.key).or_default() += change.add;
        }
        if let Some(missing) = expected.next() {
            return Err(format!("shard {number} lacks {missing:?}").into());
        }
        if shard.pairs()? != pairs {
            return Err(format!("the pairs of shard {number} differ from its history").into());
        }
        sum += pairs.values().sum::<i64>();
    }
    let is_increasing = positions.values().is_sorted_by(|earlier, later| earlier < later);
    if !is_increasing || sum != ACCOUNTS as i64 * DEPOSIT {
        return Err(format!("the positions are {positions:?}, and the sum is {sum}").into());
    }
    Ok(())
}

#[cfg(test)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shards_agree_through_all_faults() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let transactions = run(directory.path(), 40).await.expect("the shards apply all transactions");
    check(directory.path(), transactions).expect("the shards agree");
    let bank = |bound| store::get(directory.path(), "bank", bound).expect("the shard can be read");
    assert_eq!(bank(Position(transactions)), Some(transactions as i64 - 1));
    assert_eq!(bank(Position(2 * transactions)), None, "no shard has applied so many transactions");

    // The check finds a change that is lost, moved or applied twice.
    let shard = store::shards(directory.path()).swap_remove(0);
    let copy = directory.path().join("right.db");
    scene::copy_shard(&shard, &copy).expect("the shard can be copied");
    for damage in [
        "delete from history where rowid = 7",
        "delete from history where rowid = (select max(rowid) from history)",
        "update history set position = position + 1 where rowid = 7",
        "insert into history select * from history where rowid = 7",
        "update pairs set value = value + 1 where key = 'account-0'",
    ] {
        let connection = shard.open().expect("the shard exists");
        assert_eq!(connection.execute(damage, []).expect("the statement is valid"), 1, "{damage}");
        assert!(check(directory.path(), transactions).is_err(), "{damage}");
        scene::restore_shard(&shard, &copy).expect("the shard can be restored");
        check(directory.path(), transactions).expect("the shards agree again");
    }
}
