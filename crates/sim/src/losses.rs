//! The part of a history that tells of losses which an operator accepted: what may be gone since,
//! and what readers were told of it.

use std::collections::BTreeSet;

use seriatim_model::{Position, ShardId};

use crate::history::{History, Moment, Observation};

/// Positions that a reader skipped, since it was told that what was there is lost.
#[derive(Clone, Debug)]
pub struct Skipped {
    /// When.
    pub at: Moment,
    /// The shards whose records it wants, if not all are.
    pub shards: Option<BTreeSet<ShardId>>,
    /// The first position.
    pub from: Position,
    /// The position after the last.
    pub end: Position,
}

impl History {
    /// Whether what was known of a position at the earlier moment, if at any, need not be so later:
    /// an operator accepted its loss in between, and another record may be there.
    #[must_use]
    pub fn was_given_up(&self, position: Position, earlier: Moment, later: Moment) -> bool {
        self.accepted.as_ref().is_some_and(|loss| position >= loss.certain)
            && self.is_accepted_between(earlier, later)
    }

    /// Whether a record that was at a position at the earlier moment, if at any, may be elsewhere
    /// later: an operator accepted its loss in between.
    #[must_use]
    pub fn was_lost(&self, position: Position, earlier: Moment, later: Moment) -> bool {
        self.may_be_gone(position) && self.is_accepted_between(earlier, later)
    }

    /// Whether an operator accepted a loss between two moments.
    pub(crate) fn is_accepted_between(&self, earlier: Moment, later: Moment) -> bool {
        self.accepted
            .as_ref()
            .is_some_and(|loss| loss.done.is_none_or(|done| earlier < done) && loss.at < later)
    }

    /// Whether what is at this position may be elsewhere too: with the sequencing replicas' memory
    /// went the duplicate filter, and a client may have repeated what it did not know to be in the
    /// log.
    #[must_use]
    pub fn may_be_again(&self, position: Position, seen: Moment) -> bool {
        self.accepted.as_ref().is_some_and(|loss| loss.at < seen && position >= loss.certain)
    }

    /// The observations, apart from those that a subscription may have got before an operator
    /// accepted their loss, and handed over after.
    pub fn unbuffered(&self) -> impl Iterator<Item = &Observation> {
        let is_certain = |seen: &&Observation| {
            self.accepted.as_ref().is_none_or(|loss| !seen.is_buffered || seen.position < loss.certain)
        };
        self.observations.iter().filter(is_certain)
    }

    /// Whether an operator accepted that a position is in the log no more.
    #[must_use]
    pub fn may_be_gone(&self, position: Position) -> bool {
        self.accepted.as_ref().is_some_and(|loss| position >= loss.certain) || self.is_in_gap(position)
    }

    /// Whether an operator was told that nobody is known to hold a position. A gap of one shard
    /// says nothing of what another gave out.
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

    /// Whether an operator was told that nobody is known to hold what a shard has at a position, if
    /// anything.
    #[must_use]
    pub fn is_gap_of(&self, shard: ShardId, position: Position) -> bool {
        let mut gaps = self.accepted.iter().flat_map(|loss| &loss.gaps);
        gaps.any(|(of, from, end)| *of == shard && *from <= position && position < *end)
    }

    /// A reader was told that what a shard held at a position is lost.
    pub fn was_told_lost(&mut self, shard: ShardId, position: Position) {
        let moment = self.tick();
        self.told_lost.entry((shard, position)).or_insert(moment);
        if !self.is_gap_of(shard, position) {
            let problem = format!("shard {shard} says that {position} is lost, which nobody accepted");
            self.problems.push(problem);
        }
    }

    /// A reader of all shards, or of some, continues at `end`: the positions from `from` to `end`
    /// are lost.
    pub fn skip(&mut self, shards: Option<BTreeSet<ShardId>>, from: Position, end: Position) {
        let at = self.tick();
        self.skipped.push(Skipped { at, shards, from, end });
    }
}
