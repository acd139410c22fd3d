//! Losses that an operator accepted: which records may be gone, and what readers learned of it.

use std::collections::BTreeSet;

use seriatim_model::{Position, ShardId};

use crate::history::{History, Moment, Observation};

/// Positions that a reader skipped as lost.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// When the reader skipped them.
    pub at: Moment,
    /// The reader's shards. `None`: all.
    pub shards: Option<BTreeSet<ShardId>>,
    /// First position.
    pub from: Position,
    /// Position after the last.
    pub end: Position,
}

impl History {
    /// Whether knowledge of a position from `earlier` may be invalid at `later`: its loss was
    /// accepted in between.
    #[must_use]
    pub fn was_given_up(&self, position: Position, earlier: Moment, later: Moment) -> bool {
        self.accepted.as_ref().is_some_and(|loss| position >= loss.certain)
            && self.is_accepted_between(earlier, later)
    }

    /// Whether a record may have moved away between `earlier` and `later`, after an accepted loss.
    #[must_use]
    pub fn was_lost(&self, position: Position, earlier: Moment, later: Moment) -> bool {
        self.may_be_gone(position) && self.is_accepted_between(earlier, later)
    }

    pub(crate) fn is_accepted_between(&self, earlier: Moment, later: Moment) -> bool {
        self.accepted
            .as_ref()
            .is_some_and(|loss| loss.done.is_none_or(|done| earlier < done) && loss.at < later)
    }

    /// Whether the record may be at another position too: the duplicate filter was lost with the
    /// sequencing replicas' memory, and a client repeated an append in doubt.
    #[must_use]
    pub fn may_be_again(&self, position: Position, seen: Moment) -> bool {
        self.accepted.as_ref().is_some_and(|loss| loss.at < seen && position >= loss.certain)
    }

    /// Observations, except possibly those received before an accepted loss and delivered after.
    pub fn unbuffered(&self) -> impl Iterator<Item = &Observation> {
        let is_certain = |seen: &&Observation| {
            self.accepted.as_ref().is_none_or(|loss| !seen.is_buffered || seen.position < loss.certain)
        };
        self.observations.iter().filter(is_certain)
    }

    /// Whether an accepted loss covers this position.
    #[must_use]
    pub fn may_be_gone(&self, position: Position) -> bool {
        self.accepted.as_ref().is_some_and(|loss| position >= loss.certain) || self.is_in_gap(position)
    }

    /// Whether the operator learned that no replica holds this position. A gap covers only its own
    /// shard.
    #[must_use]
    pub fn is_in_gap(&self, position: Position) -> bool {
        if self.accepted.is_none() {
            return false;
        }
        let owner = match self.config.order.places_by_position() {
            true => Some(self.placement().stripe_at(position).0),
            false => self.owners.get(&position).copied(),
        };
        match owner {
            Some(owner) => self.is_gap_of(owner, position),
            None => self.shards().any(|shard| self.is_gap_of(shard, position)),
        }
    }

    /// Whether the operator learned that no replica holds the shard's record at this position.
    #[must_use]
    pub fn is_gap_of(&self, shard: ShardId, position: Position) -> bool {
        let mut gaps = self.accepted.iter().flat_map(|loss| &loss.gaps);
        gaps.any(|(of, from, end)| *of == shard && *from <= position && position < *end)
    }

    /// Notes that a reader learned of a lost record.
    pub fn was_told_lost(&mut self, shard: ShardId, position: Position) {
        let moment = self.tick();
        self.told_lost.entry((shard, position)).or_insert(moment);
        if !self.is_gap_of(shard, position) {
            let problem = format!("shard {shard} says that {position} is lost, which nobody accepted");
            self.problems.push(problem);
        }
    }

    /// Notes that a reader of all shards (`None`) or some skips the lost positions `from..end`.
    pub fn skip(&mut self, shards: Option<BTreeSet<ShardId>>, from: Position, end: Position) {
        let at = self.tick();
        self.skipped.push(Skipped { at, shards, from, end });
    }
}
