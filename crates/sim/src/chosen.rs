//! The part of a history that single subscriptions were given.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use seriatim_model::storage::Stored;
use seriatim_model::{Position, RecordId, ShardId};

use crate::client::key_of;
use crate::history::{History, Observation};

/// The records that a subscription wants.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The first bytes of their keys; none: any.
    pub prefix: Option<Vec<u8>>,
    /// Their shards; none: all.
    pub shards: Option<BTreeSet<ShardId>>,
}

/// A subscription, from the beginning of the log on.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// The records that it wants.
    pub wanted: Wanted,
    /// The records that it was given and that did not fail since.
    pub given: BTreeMap<Position, RecordId>,
    /// It has everything below this position that it wants, and all of that is final, ...
    pub upto: Position,
    /// The positions that the reader skips, because the log reported them as trimmed or lost.
    pub passed: Vec<Range<Position>>,
    /// Whether it has ended, or its client is gone.
    pub has_ended: bool,
}

impl Chosen {
    /// It is given records.
    pub fn give(&mut self, records: &[Stored]) {
        self.given.extend(records.iter().map(|stored| (stored.position, stored.id)));
    }

    /// The reader continues at `end`: the positions before it are trimmed or lost.
    pub fn pass(&mut self, end: Position) {
        self.passed.push(self.upto..end);
    }

    /// Whether it is to have what it wants of this position.
    #[must_use]
    pub fn answers_for(&self, position: Position) -> bool {
        position < self.upto && !self.passed.iter().any(|passed| passed.contains(&position))
    }

    /// Records that it was given at `first` or above are void.
    pub fn fail(&mut self, first: Position) {
        self.given.split_off(&first);
    }
}

impl History {
    /// A subscription begins. Returns its number.
    pub fn choose(&mut self, wanted: Wanted) -> usize {
        self.choices.push(Chosen { wanted, ..Chosen::default() });
        self.choices.len() - 1
    }

    /// Whether there is a record at a position in the end, which a subscription wants.
    #[must_use]
    pub fn is_wanted(&self, wanted: &Wanted, position: Position) -> bool {
        let append = self.last.get(&position).and_then(|(_, append)| *append);
        self.matches(wanted, append, self.last_shards.get(&position))
    }

    /// Whether a subscription wants what a reader saw at a position.
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
