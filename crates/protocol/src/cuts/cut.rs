//! A cut, as it travels and is kept.

use seriatim_model::storage::Ordered;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, at_most, wire_struct};
use seriatim_model::{IdRun, Position, SessionId, ShardId, limits};

use super::shard::Submitted;
use super::window::NextWindow;
use crate::mutation::{Mutation, Options};
use crate::parts::Sessions;
use crate::parts::junk::{is_of_nobody, junk};

/// How long the local logs of the shards are that have been ordered, and whose records these are
/// since the last cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The position of the first of its records: where the cut before it ended.
    pub from: Position,
    /// For each shard how much of its local log is decided. What was there before and is not among
    /// the names, here or in earlier cuts, never gets a position in this view.
    pub lengths: Vec<(ShardId, u64)>,
    /// The names that get the positions from the first on, in order. Those of [`ShardId::NOBODY`]
    /// get none: their positions are empty, and say nothing of their sessions.
    pub names: Vec<(ShardId, Submitted)>,
    /// The sessions that end. Each takes one of the positions after the names, with a no-op; or
    /// none in a window, whose positions are given in advance.
    pub ends: Vec<End>,
    /// How far the windows of the view are with it, if it is of one.
    pub course: Option<Course>,
}

/// How far the windows of a view are with a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// The number of the window that the cut is of.
    pub window: u32,
    /// How many cuts of the window are made with it.
    pub made: u32,
    /// The window that follows, where it is decided.
    pub next: Option<NextWindow>,
}

wire_struct! { Course { window, made, next } }

/// A session ends, and its client goes on in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Which.
    pub session: SessionId,
    /// The first of its numbers that is in no cut, and never will be.
    pub at: u64,
    /// The other one.
    pub successor: SessionId,
    /// The shard that has the no-op, if there is one.
    pub shard: ShardId,
}

wire_struct! { End { session, at as number, successor, shard } }

/// In the first format no session ended, and there were no windows. Positions are far below these
/// bits, which say that ends follow, or a course.
const HAS_ENDS: u64 = 1 << 63;
const HAS_COURSE: u64 = 1 << 62;
const _: () = assert!(limits::MAX_NUMBER < HAS_COURSE);

/// Names of a cut, and the shard that has their positions.
#[derive(Debug)]
struct Given(ShardId, Submitted);

impl Wire for Given {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(Self(ShardId::decode_owner(input)?, Wire::decode(input)?))
    }
}

impl Wire for Cut {
    fn encode(&self, out: &mut Encoder) {
        let ends = if self.ends.is_empty() { 0 } else { HAS_ENDS };
        let course = if self.course.is_none() { 0 } else { HAS_COURSE };
        (self.from.0 | ends | course).encode(out);
        self.lengths.encode(out);
        self.names.encode(out);
        if !self.ends.is_empty() {
            self.ends.encode(out);
        }
        if let Some(course) = &self.course {
            course.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let marked = u64::decode(input)?;
        let from = Position(at_most(limits::MAX_NUMBER, "Cut.from", marked & !(HAS_ENDS | HAS_COURSE))?);
        let (lengths, names) = (Wire::decode(input)?, Vec::<Given>::decode(input)?);
        let names = names.into_iter().map(|Given(shard, names)| (shard, names)).collect();
        let ends = if marked & HAS_ENDS == 0 { vec![] } else { Wire::decode(input)? };
        let course = if marked & HAS_COURSE == 0 { None } else { Some(Wire::decode(input)?) };
        Ok(Self { from, lengths, names, ends, course })
    }
}

impl Cut {
    /// One that orders nothing yet.
    pub(super) fn empty(from: Position) -> Self {
        Self { from, lengths: vec![], names: vec![], ends: vec![], course: None }
    }

    /// Where the ends begin.
    fn names_end(&self) -> Position {
        self.from + self.names.iter().map(|(_, names)| names.ids.count).sum::<u64>()
    }

    /// The position after the last that it gives.
    #[must_use]
    pub fn end(&self) -> Position {
        let ends = if self.course.is_some() { 0 } else { self.ends.len() as u64 };
        self.names_end() + ends
    }

    /// The position at which each of the sessions ends.
    fn ends(&self) -> impl Iterator<Item = (Position, &End)> {
        (0..).zip(&self.ends).map(|(nth, end)| (self.end_at(nth), end))
    }

    fn end_at(&self, nth: u64) -> Position {
        match self.course {
            Some(_) => Position(self.names_end().0.saturating_sub(1)),
            None => self.names_end() + nth,
        }
    }

    /// The position at which one more session ends. In a window that is the last one of the cut.
    pub(super) fn next_end(&self) -> Position {
        self.end_at(self.ends.len() as u64)
    }

    /// Gives the next positions to nobody.
    pub(super) fn pad(&mut self, count: u64) {
        let (id, _) = junk(self.names_end());
        let new = IdRun { session: id.session, first: id.number, count };
        let is_padding = |ids: &IdRun| is_of_nobody(ids.session) && ids.end() == new.first;
        match self.names.last_mut().filter(|(_, last)| is_padding(&last.ids)) {
            Some((_, last)) => last.ids.count += count,
            None if count > 0 => self.names.push((ShardId::NOBODY, Submitted { ids: new, lowest: 0 })),
            None => {}
        }
    }

    /// How many of its positions are given to nobody.
    pub(super) fn empty_positions(&self) -> u64 {
        let of_nobody = self.names.iter().filter(|(shard, _)| *shard == ShardId::NOBODY);
        of_nobody.map(|(_, names)| names.ids.count).sum()
    }

    /// How much of a shard's local log is decided.
    pub(super) fn length(&self, shard: ShardId) -> u64 {
        self.lengths.iter().find(|(of, _)| *of == shard).map_or(0, |(_, length)| *length)
    }

    /// The names and ends that get the positions, as the shards are told.
    pub(super) fn runs(&self) -> Vec<Ordered> {
        let names = self.names.iter().map(|(shard, names)| Ordered {
            ids: names.ids,
            shard: *shard,
            is_void: *shard == ShardId::NOBODY,
        });
        let ends = self.ends().filter(|_| self.course.is_none()).map(|(position, end)| {
            let (id, _) = junk(position);
            let ids = IdRun { session: id.session, first: id.number, count: 1 };
            Ordered { ids, shard: end.shard, is_void: true }
        });
        names.chain(ends).collect()
    }

    /// Takes note of what it orders.
    pub(super) fn apply(&self, sessions: &mut Sessions, options: Options) {
        let mut position = self.from;
        for (shard, Submitted { ids, lowest }) in &self.names {
            let passed_over_too = options.mutates(Mutation::PassedOverOrdered) && !is_of_nobody(ids.session);
            if *shard != ShardId::NOBODY || passed_over_too {
                sessions.bind(*ids, position);
                sessions.admit(ids.session, ids.end(), *lowest, position);
            }
            position += ids.count;
        }
        for (position, End { session, at, successor, .. }) in self.ends() {
            sessions.end_in_log(*session, *at, *successor, position);
        }
    }
}
