//! Delivers records before they are final, in order, and confirms a second bound below which no
//! record fails.
//!
//! After SpecLog (OSDI '25, §3): a reader computes on predictions, and confirms or undoes later.
//! Unlike there, a failure voids only the first wrong record and all after it.

use std::collections::VecDeque;
use std::ops::Range;

use seriatim_model::{Gap, Position, RecordId, ShardId, ViewHistory, ViewNumber};
use seriatim_protocol::{Mutation, Options};

use crate::failure::Failure;
use crate::source::{Basis, Known};

/// Requests each position in turn, final or predicted. Later it reports the confirmed bound or the
/// first void position.
///
/// Promises: positions of given records strictly increase, except after a failure. It omits only
/// empty positions and those announced as trimmed or lost. Nothing below a confirmation fails. A
/// failure is at the lowest wrong position.
///
/// Invariant: `confirmed <= next`, and `given` holds all of `confirmed..next`, in order, with
/// nothing between.
#[derive(Debug)]
pub(crate) struct TwoBounds {
    next: Position,
    confirmed: Position,
    /// Confirmed bound reported to the sink.
    told: Position,
    end: Position,
    given: VecDeque<Given>,
    /// Number of predicted entries in `given`.
    predicted: usize,
    /// Whether records were confirmed since the last report.
    has_news: bool,
    /// A view, and the bound below which all its predictions are final.
    holds: (ViewNumber, Position),
    /// Whether delivery continues after lost records.
    skips_lost: bool,
    options: Options,
}

/// A record given to the sink, or a run of positions without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    first: Position,
    end: Position,
    /// None: positions without a record.
    id: Option<RecordId>,
    shard: Option<ShardId>,
    basis: Basis,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Give the record to the sink.
    Give {
        speculative: bool,
    },
    /// Nothing to deliver at this position; continue with the next.
    Pass,
    /// Report a loss to the sink.
    Lose {
        shard: ShardId,
        range: Range<Position>,
    },
    Wait,
    Fail(Failure),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trimmed {
    /// First void position, if the sink must take back records.
    pub(crate) failed: Option<Position>,
    /// Next position after the failure, before the skip to the trim point.
    pub(crate) next: Position,
    /// Whether the trim reaches beyond `next`.
    pub(crate) skips: bool,
}

impl TwoBounds {
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

    /// Next position. Everything below it was delivered, or has no record.
    pub(crate) fn next(&self) -> Position {
        self.next
    }

    /// Bound below which everything is final.
    pub(crate) fn confirmed(&self) -> Position {
        self.confirmed
    }

    /// First given and unconfirmed record at or above `first`.
    pub(crate) fn record_from(&self, first: Position) -> Option<Position> {
        let index = self.given.partition_point(|given| given.end <= first);
        self.given.range(index..).find(|given| given.id.is_some()).map(|given| given.first)
    }

    /// First given position in the gap that is not final: a record of the gap's shard, or a
    /// position without a record.
    pub(crate) fn undecided_in(&self, gap: &Gap) -> Option<Position> {
        let index = self.given.partition_point(|given| given.end <= gap.from);
        let mut given = self.given.range(index..).take_while(|given| given.first < gap.end);
        let is_undecided = |given: &&Given| {
            given.basis != Basis::Final && given.shard.is_none_or(|shard| shard == gap.shard)
        };
        given.find(is_undecided).map(|given| given.first.max(gap.from))
    }

    /// Next position to ask the source for; None at the end.
    pub(crate) fn wanted(&self) -> Option<Position> {
        (self.next < self.end).then_some(self.next)
    }

    pub(crate) fn has_end(&self) -> bool {
        self.end < Position::MAX
    }

    pub(crate) fn is_done(&self) -> bool {
        self.confirmed >= self.end
    }

    /// Handles the source's knowledge of the wanted `position`.
    ///
    /// # Panics
    /// If another position was wanted.
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
            // A loss is final, so everything before it must be decided first.
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

    pub(crate) fn holds(&mut self, view: ViewNumber, upto: Position) {
        let any = self.options.mutates(Mutation::HoldsAnyView);
        match self.holds {
            (known, bound) if known == view || any => self.holds = (view, bound.max(upto)),
            _ => self.holds = (view, upto),
        }
    }

    /// Compares the given records of `range` with the source's present knowledge; returns the
    /// lowest wrong position. Positions of `range` that are still unknown are compared when their
    /// final data arrives.
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
                // The source's empty span is shorter than the given one: compare the rest
                // separately, even beyond `range`.
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

    /// Enters a view that begins at `start`. A prediction for a position that the predicting view
    /// decides becomes final. Predictions from `start` on are void, and the others stay undecided.
    /// Returns the lowest void position.
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
                // A record below the confirmed bound of its view stays final, even after an
                // undecided one: no shard reports it again.
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

    /// Voids everything given from `first` on. Returns `first` if this voids records.
    ///
    /// # Panics
    /// If `first` was confirmed.
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

    /// Returns the confirmed bound if it rose. A record is final if it came as final or its view's
    /// bound holds. Other shards' final deliveries prove nothing: their view may place the position
    /// elsewhere.
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

    pub(crate) fn takes_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether to report a risen bound even if no new records lie below it.
    pub(crate) fn tells_empty(&self) -> bool {
        !self.options.mutates(Mutation::EmptyNotTold)
    }

    /// Handles a trim of final data below `first`. Predictions there are void: no shard can decide
    /// them.
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
