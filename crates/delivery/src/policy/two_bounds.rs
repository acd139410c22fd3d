//! Records before they are final, in the order of positions, with a second bound: below it, all
//! that was given stays.
//!
//! The idea is SpecLog's (OSDI '25, §3): a reader computes on what is predicted, and confirms or
//! undoes later. It differs from the paper in that exactly that fails which turned out different,
//! and what follows it, and not all that is unconfirmed.

use std::collections::VecDeque;
use std::ops::Range;

use seriatim_model::{Gap, Position, RecordId, ShardId, ViewHistory, ViewNumber};
use seriatim_protocol::{Mutation, Options};

use crate::failure::Failure;
use crate::source::{Basis, Known};

/// Takes one position after the other, final or predicted, and says later up to where all is final,
/// or from where on it is void.
///
/// It promises: positions that it has records given of strictly increase, but that a failure sets
/// them back; it leaves out only those that are empty, or were announced as trimmed or lost; a
/// position below a confirmation never fails, and a failure is at the lowest position that turned
/// out different.
///
/// Invariant: `confirmed <= next`, and `given` holds all of `confirmed..next`, in order, with
/// nothing between.
#[derive(Debug)]
pub(crate) struct TwoBounds {
    next: Position,
    confirmed: Position,
    /// Up to where the sink was told that all is final.
    told: Position,
    end: Position,
    given: VecDeque<Given>,
    /// How many of those are predicted.
    predicted: usize,
    /// Whether records were confirmed of which the sink was not told.
    has_news: bool,
    /// All that was predicted in this view below this bound is final.
    holds: (ViewNumber, Position),
    /// Whether it goes on after what is lost.
    skips_lost: bool,
    options: Options,
}

/// A record that was given, or consecutive positions that were passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    first: Position,
    end: Position,
    /// Nothing for positions without a record.
    id: Option<RecordId>,
    /// The shard that gave the record out.
    shard: Option<ShardId>,
    basis: Basis,
}

/// The consequence of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The record goes to the sink.
    Give {
        /// Whether it may still fail.
        speculative: bool,
    },
    /// There is nothing for the sink at the position that was wanted. On with the next one.
    Pass,
    /// The sink is told that what this shard had is lost.
    Lose {
        /// The shard.
        shard: ShardId,
        /// The positions of the records.
        range: Range<Position>,
    },
    /// Nothing, until the source has news.
    Wait,
    /// The sink is told why nothing follows.
    Fail(Failure),
}

/// The consequence of a trim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trimmed {
    /// The sink has to take back the records from there on.
    pub(crate) failed: Option<Position>,
    /// The position that was to come next, but for the trim.
    pub(crate) next: Position,
    /// The records that should have come next were trimmed.
    pub(crate) skips: bool,
}

impl TwoBounds {
    /// Hands over the records in `from..end`. One that `skips_lost` goes on after what is lost.
    pub(crate) fn new(from: Position, end: Position, skips_lost: bool, options: Options) -> Self {
        Self {
            next: from,
            confirmed: from,
            told: from,
            end,
            given: VecDeque::new(),
            predicted: 0,
            has_news: false,
            holds: (ViewNumber::NONE, Position::ZERO),
            skips_lost,
            options,
        }
    }

    /// Everything below it was handed over, or has no record.
    pub(crate) fn next(&self) -> Position {
        self.next
    }

    /// Everything below it is final.
    pub(crate) fn confirmed(&self) -> Position {
        self.confirmed
    }

    /// The first record at `first` or above that was given and is not confirmed.
    pub(crate) fn record_from(&self, first: Position) -> Option<Position> {
        let index = self.given.partition_point(|given| given.end <= first);
        self.given.range(index..).find(|given| given.id.is_some()).map(|given| given.first)
    }

    /// The first position in a shard's gap that was given and may fail: of a record of that shard,
    /// or as one without a record.
    pub(crate) fn undecided_in(&self, gap: &Gap) -> Option<Position> {
        let index = self.given.partition_point(|given| given.end <= gap.from);
        let mut given = self.given.range(index..).take_while(|given| given.first < gap.end);
        let is_undecided = |given: &&Given| {
            given.basis != Basis::Final && given.shard.is_none_or(|shard| shard == gap.shard)
        };
        given.find(is_undecided).map(|given| given.first.max(gap.from))
    }

    /// The position that the source is to be asked for, unless the end is reached.
    pub(crate) fn wanted(&self) -> Option<Position> {
        (self.next < self.end).then_some(self.next)
    }

    /// Whether the reader wants no more than what lies below some position.
    pub(crate) fn has_end(&self) -> bool {
        self.end < Position::MAX
    }

    /// Whether the end is reached, and all before it is final.
    pub(crate) fn is_done(&self) -> bool {
        self.confirmed >= self.end
    }

    /// Takes the source's knowledge of `position`, which was wanted.
    ///
    /// # Panics
    /// If it was not.
    pub(crate) fn answered(&mut self, position: Position, known: Known) -> Next {
        assert!(
            self.wanted() == Some(position),
            "positions are handed over one after the other: {position} came where {} was wanted, below {}",
            self.next,
            self.end
        );
        match known {
            Known::Record { id, shard, basis } => {
                let speculative = basis != Basis::Final || self.predicted > 0;
                self.push(Given {
                    first: position,
                    end: position.next(),
                    id: Some(id),
                    shard: Some(shard),
                    basis,
                });
                Next::Give { speculative }
            }
            Known::Empty { end, basis } => {
                let end = end.min(self.end);
                assert!(end > position, "a span that is empty begins at {position} and ends at {end}");
                self.push(Given { first: position, end, id: None, shard: None, basis });
                Next::Pass
            }
            Known::NotYet => Next::Wait,
            // All before it is decided first: a loss is final.
            Known::Lost { .. } if self.confirmed < position => Next::Wait,
            Known::Lost { shard, end } if self.skips_lost => {
                let end = end.min(self.end);
                assert!(end > position, "the lost span at {position} ends after it, not at {end}");
                self.push(Given { first: position, end, id: None, shard: None, basis: Basis::Final });
                Next::Lose { shard, range: position..end }
            }
            Known::Lost { shard, end } => Next::Fail(Failure::Lost { position, shard, end }),
        }
    }

    fn push(&mut self, mut given: Given) {
        self.next = given.end;
        if given.id.is_none() && self.options.mutates(Mutation::EmptyNotGiven) {
            given.basis = Basis::Final;
        }
        if let Some(last) = self.given.back_mut()
            && last.id.is_none()
            && given.id.is_none()
            && last.basis == given.basis
        {
            last.end = given.end;
            return;
        }
        self.predicted += usize::from(given.basis != Basis::Final);
        self.given.push_back(given);
    }

    /// Everything that was predicted in `view` below `upto` is final.
    pub(crate) fn holds(&mut self, view: ViewNumber, upto: Position) {
        let any = self.options.mutates(Mutation::HoldsAnyView);
        match self.holds {
            (known, bound) if known == view || any => self.holds = (view, bound.max(upto)),
            _ => self.holds = (view, upto),
        }
    }

    /// Compares what was given of these positions with what is known now: `know` tells of a
    /// position. Returns the lowest position at which something else turned out to stand, or
    /// nothing. What was given of others is not looked at: that may be much, and is compared when
    /// something final comes of it.
    pub(crate) fn compare(
        &mut self,
        range: Range<Position>,
        mut know: impl FnMut(Position) -> Known,
    ) -> Option<Position> {
        let mut index = self.given.partition_point(|given| given.end <= range.start);
        let mut looks_below = range.end;
        while let Some(given) = self.given.get(index).copied().filter(|given| given.first < looks_below) {
            index += 1;
            if given.basis == Basis::Final {
                continue;
            }
            let (end, basis) = match (know(given.first), given.id) {
                (Known::Record { id, basis, .. }, Some(given_id)) if id == given_id => (given.end, basis),
                (Known::Empty { end, basis }, None) => (end.min(given.end), basis),
                (Known::Record { .. } | Known::Empty { .. }, _) => return Some(given.first),
                (Known::NotYet | Known::Lost { .. }, _) => continue,
            };
            assert!(end > given.first, "{} is unknown, and also empty up to {end}", given.first);
            if end < given.end {
                // Less is known than was passed over: the rest is looked at by itself, also where
                // something final came of it before.
                looks_below = looks_below.max(end.next());
                self.given.insert(index, Given { first: end, ..given });
                self.predicted += 1;
            }
            let is_final = basis == Basis::Final;
            self.predicted -= usize::from(is_final);
            let basis = if is_final { basis } else { given.basis };
            self.given[index - 1] = Given { end, basis, ..given };
        }
        None
    }

    /// A view is registered, whose positions begin at `start`. What was predicted in earlier ones
    /// stays where these still decide, cannot come any more from `start` on, and is undecided
    /// between. Returns the lowest position of what cannot come.
    pub(crate) fn entered(
        &mut self,
        view: ViewNumber,
        start: Position,
        history: &ViewHistory,
    ) -> Option<Position> {
        if self.options.mutates(Mutation::OldPredictionsKept) {
            for given in self.given.iter_mut().filter(|given| given.basis != Basis::Final) {
                given.basis = Basis::Predicted(view);
            }
            return None;
        }
        let mut split = VecDeque::with_capacity(self.given.len());
        let mut void = None;
        self.predicted = 0;
        for given in self.given.drain(..) {
            let Basis::Predicted(before) = given.basis else {
                split.push_back(given);
                continue;
            };
            let mut rest = given;
            while rest.first < rest.end {
                let cover = history.cover(rest.first);
                let end = history.cover_end(rest.first).map_or(rest.end, |end| end.min(rest.end));
                // A record that was held stays so, also where one before it is not known to be: of
                // that nobody tells again.
                let is_held = before == self.holds.0 && rest.first < self.holds.1;
                let end = if is_held { end.min(self.holds.1) } else { end };
                let basis = if is_held || cover == Some(before) { Basis::Final } else { given.basis };
                if before < view && end > start && void.is_none() {
                    void = Some(rest.first.max(start));
                }
                if cover == Some(view) && self.options.mutates(Mutation::FlushedIsVoid) {
                    void = void.map_or(Some(rest.first), |void| Some(void.min(rest.first)));
                }
                self.predicted += usize::from(basis != Basis::Final);
                split.push_back(Given { end, basis, ..rest });
                rest.first = end;
            }
        }
        self.given = split;
        void
    }

    /// Everything that was given from `first` on is void, and wanted anew. Returns from where on
    /// the sink has to take back records, if it was given any of those.
    ///
    /// # Panics
    /// If all at `first` was confirmed.
    pub(crate) fn fail(&mut self, first: Position) -> Option<Position> {
        assert!(first >= self.confirmed, "{first} fails, and all below {} was confirmed", self.confirmed);
        let first = if self.options.mutates(Mutation::FailTooFar) { self.confirmed } else { first };
        let mut has_records = false;
        while let Some(last) = self.given.back_mut().filter(|last| last.end > first) {
            has_records |= last.id.is_some();
            if last.first < first {
                last.end = first;
                break;
            }
            self.predicted -= usize::from(last.basis != Basis::Final);
            self.given.pop_back();
        }
        self.next = self.next.min(first);
        has_records.then_some(first)
    }

    /// Returns the bound below which all that was given is final, if it rose. It is if it came as
    /// final, or is told to hold: that shards have given out more does not say so, since they may
    /// go by a view that places it elsewhere.
    pub(crate) fn confirm(&mut self) -> Option<Position> {
        while let Some(given) = self.given.front_mut() {
            let bound = match given.basis {
                Basis::Final => given.end,
                Basis::Predicted(view) => {
                    let any = self.options.mutates(Mutation::HoldsAnyView);
                    let held = Some(self.holds.1).filter(|_| view == self.holds.0 || any);
                    held.unwrap_or_default().min(given.end)
                }
            };
            if bound < given.end {
                if bound > given.first && given.id.is_none() {
                    given.first = bound;
                    self.confirmed = bound;
                }
                break;
            }
            self.confirmed = given.end;
            self.has_news |= given.id.is_some();
            self.predicted -= usize::from(given.basis != Basis::Final);
            self.given.pop_front();
        }
        let rises = self.confirmed > self.told;
        self.told = self.confirmed;
        rises.then_some(self.confirmed)
    }

    /// Whether records were confirmed since this was asked.
    pub(crate) fn takes_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether a reader is told a bound, too, below which no record lies that it was not told.
    pub(crate) fn tells_empty(&self) -> bool {
        !self.options.mutates(Mutation::EmptyNotTold)
    }

    /// Everything below `first` was trimmed, and was final before. What is predicted there can
    /// never be told right or wrong: it is void.
    pub(crate) fn trimmed(&mut self, first: Position) -> Trimmed {
        let undecided = self.given.iter().find(|given| given.basis != Basis::Final && given.first < first);
        let failed = undecided.map(|given| given.first).and_then(|undecided| self.fail(undecided));
        let next = self.next;
        let skips = first > next;
        if skips {
            assert_eq!(self.predicted, 0, "predictions below a trim point are void");
            self.given.clear();
            (self.next, self.confirmed, self.told) = (first, first, first);
        }
        Trimmed { failed, next, skips }
    }
}

#[cfg(test)]
#[path = "two_bounds_tests.rs"]
mod tests;
