//! Records that each single subscription received.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use seriatim_model::storage::Stored;
use seriatim_model::{Position, RecordId, ShardId};

use crate::client::key_of;
use crate::history::{History, Observation};

/// A subscription's filter.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Key prefix. `None`: any record.
    pub prefix: Option<Vec<u8>>,
    /// Shards. `None`: all.
    pub shards: Option<BTreeSet<ShardId>>,
}

/// A subscription that starts at the beginning of the log.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Its filter.
    pub wanted: Wanted,
    /// Received records that did not fail.
    pub given: BTreeMap<Position, RecordId>,
    /// The subscription received every wanted record below this position, and all of them are
    /// final.
    pub upto: Position,
    /// Ranges of positions that the reader skipped as trimmed or lost.
    pub passed: Vec<Range<Position>>,
    /// Whether the subscription has ended, or its client died.
    pub has_ended: bool,
}

impl Chosen {
    /// Notes received records.
    pub fn give(&mut self, records: &[Stored]) {
        self.given.extend(records.iter().map(|stored| (stored.position, stored.id)));
    }

    /// Notes that the reader skips to `end`: the positions before are trimmed or lost.
    pub fn pass(&mut self, end: Position) {
        self.passed.push(self.upto..end);
    }

    /// Whether the subscription must have received the record of this position, if it is wanted.
    #[must_use]
    pub fn answers_for(&self, position: Position) -> bool {
        position < self.upto && !self.passed.iter().any(|passed| passed.contains(&position))
    }

    /// Drops received records at or above `first`: their predictions failed.
    pub fn fail(&mut self, first: Position) {
        self.given.split_off(&first);
    }
}

impl History {
    /// Begins a subscription. Returns its number.
    pub fn choose(&mut self, wanted: Wanted) -> usize {
        self.choices.push(Chosen { wanted, ..Chosen::default() });
        self.choices.len() - 1
    }

    /// Whether a subscription wants the final record of a position.
    #[must_use]
    pub fn is_wanted(&self, wanted: &Wanted, position: Position) -> bool {
        let append = self.last.get(&position).and_then(|(_, append)| *append);
        self.matches(wanted, append, self.last_shards.get(&position))
    }

    /// Whether a subscription wants an observed record.
    #[must_use]
    pub fn wants(&self, wanted: &Wanted, position: Position, seen: &Observation) -> bool {
        self.matches(wanted, seen.append.filter(|_| !seen.is_void), self.owners.get(&position))
    }

    fn matches(&self, wanted: &Wanted, append: Option<usize>, shard: Option<&ShardId>) -> bool {
        let Some(append) = append else { return false };
        let has = |prefix: &Vec<u8>| key_of(&self.appends[append].payload).starts_with(prefix);
        let is_of = |shards: &BTreeSet<ShardId>| shard.is_some_and(|shard| shards.contains(shard));
        wanted.prefix.as_ref().is_none_or(has) && wanted.shards.as_ref().is_none_or(is_of)
    }
}
