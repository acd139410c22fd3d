//! The measured transactions: keys of 1 KB, whose hashes choose the targets.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use seriatim_client::Record;
use seriatim_client::wal::Transaction;
use seriatim_model::record::key_hash;
use seriatim_model::storage::Stored;
use seriatim_model::wal;
use seriatim_player::{Mapper, Messages};

use super::samples::Samples;
use crate::stamp::stamped;
use crate::terminal::Failure;

/// Bytes of a key with its value.
pub(super) const KEY_BYTES: usize = 1024;

/// Transactions for a number of targets, each with the same number of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transactions {
    pub(super) targets: u32,
    pub(super) keys: u32,
}

impl Transactions {
    /// The targets of a transaction, with the number of its keys for each.
    pub(super) fn keys_of(self, number: u64) -> BTreeMap<usize, usize> {
        let mut keys = BTreeMap::new();
        for key in 0..u64::from(self.keys) {
            let hash = key_hash(&(number * u64::from(self.keys) + key).to_le_bytes());
            *keys.entry((hash % u64::from(self.targets)) as usize).or_default() += 1;
        }
        keys
    }

    /// `before` and the number of messages for each target in the first `count` transactions.
    pub(super) fn messages(self, count: u64, before: &[u64]) -> Vec<u64> {
        let mut messages = before.to_vec();
        for number in 0..count {
            self.keys_of(number).keys().for_each(|target| messages[*target] += 1);
        }
        messages
    }

    /// The mutations of a transaction, by target. Each begins with the stamp.
    fn mutations(self, number: u64, stamp: u64) -> Vec<(String, Bytes)> {
        let of_target = |(target, keys)| (0..keys).map(move |_| (name_of(target), stamped(KEY_BYTES, stamp)));
        self.keys_of(number).into_iter().flat_map(of_target).collect()
    }

    /// The record of a transaction.
    pub(super) fn record(self, number: u64, stamp: u64) -> Result<Record, Failure> {
        record_of(self.mutations(number, stamp))
    }

    /// A record with a mutation for each target, which does not count.
    pub(super) fn warm_up(self, stamp: u64) -> Result<Record, Failure> {
        let all = (0..self.targets as usize).map(|target| (name_of(target), stamped(KEY_BYTES, stamp)));
        record_of(all.collect())
    }
}

fn record_of(mutations: Vec<(String, Bytes)>) -> Result<Record, Failure> {
    let put =
        |transaction: Transaction, (target, mutation): (String, Bytes)| transaction.put(target, mutation);
    Ok(mutations.into_iter().fold(Transaction::new(), put).into_record()?)
}

/// The id of a target.
pub(super) fn name_of(target: usize) -> String {
    format!("t{target}")
}

/// Maps transactions as `map = "wal"` does, and notes the time before.
#[derive(Debug)]
pub(super) struct Timed(pub(super) Arc<Samples>);

impl Mapper for Timed {
    fn map(&self, stored: &Stored, out: &mut Messages) {
        self.0.dispatched(stored.position.0);
        let mutations = wal::decode(&stored.record).expect("the benchmark has appended a transaction");
        for (target, mutation) in mutations.into_iter().flatten() {
            out.put(target, mutation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_over_the_targets() {
        let transactions = Transactions { targets: 20, keys: 10 };
        let mut all = BTreeMap::<usize, usize>::new();
        for number in 0..1000 {
            let keys = transactions.keys_of(number);
            assert_eq!(keys.values().sum::<usize>(), 10);
            keys.into_iter().for_each(|(target, keys)| *all.entry(target).or_default() += keys);
        }
        assert!(all.len() == 20 && all.values().all(|keys| (400..600).contains(keys)), "{all:?}");
    }

    #[test]
    fn a_record_has_each_key_for_its_target() {
        let transactions = Transactions { targets: 3, keys: 5 };
        let mutations = transactions.mutations(7, 9);
        let mut keys = BTreeMap::<usize, usize>::new();
        for (target, mutation) in mutations {
            assert_eq!(mutation.len(), KEY_BYTES);
            *keys.entry(target[1..].parse().unwrap()).or_default() += 1;
        }
        assert_eq!(keys, transactions.keys_of(7));
    }
}
