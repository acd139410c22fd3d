//! Cuts and their wire form.

use seriatim_model::storage::Ordered;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, at_most, wire_struct};
use seriatim_model::{IdRun, Position, SessionId, ShardId, limits};

use super::shard::Submitted;
use super::window::NextWindow;
use crate::mutation::{Mutation, Options};
use crate::parts::Sessions;
use crate::parts::junk::{is_of_nobody, junk};

/// A decision about the order: the decided length of each shard's local log, and the names (ids) of
/// the records that this cut orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Position of the cut's first record: the end of the previous cut.
    pub from: Position,
    /// Decided length of each local log. A record below it that no cut names never gets a position
    /// in this view.
    pub lengths: Vec<(ShardId, u64)>,
    /// Names in the order of their positions. Names of [`ShardId::NOBODY`] are padding or skipped
    /// records: their positions stay empty, and sessions do not count them.
    pub names: Vec<(ShardId, Submitted)>,
    /// Sessions that end with this cut. Each takes one position after the names, for a no-op. In a
    /// window, whose positions are fixed in advance, ends take none.
    pub ends: Vec<End>,
    /// Progress of the view's windows, if it has windows.
    pub course: Option<Course>,
}

/// Progress of a view's windows after a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// Number of the window of this cut.
    pub window: u32,
    /// Number of the window's cuts made so far, including this one.
    pub made: u32,
    /// The next window, once it is decided.
    pub next: Option<NextWindow>,
}

wire_struct! { Course { window, made, next } }

/// The end of a session whose client continues in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The session that ends.
    pub session: SessionId,
    /// First number of the session that no cut orders, now or later.
    pub at: u64,
    /// Session in which the client continues.
    pub successor: SessionId,
    /// Shard that stores the no-op. In a window there is no no-op.
    pub shard: ShardId,
}

wire_struct! { End { session, at as number, successor, shard } }

/// Flags in the encoded `from`: the cut has ends, or a course. The first format had neither.
/// Positions never reach these bits.
const HAS_ENDS: u64 = 1 << 63;
const HAS_COURSE: u64 = 1 << 62;
const _: () = assert!(limits::MAX_NUMBER < HAS_COURSE);

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
    pub(super) fn empty(from: Position) -> Self {
        Self { from, lengths: vec![], names: vec![], ends: vec![], course: None }
    }

    fn names_end(&self) -> Position {
        self.from + self.names.iter().map(|(_, names)| names.ids.count).sum::<u64>()
    }

    /// The position after the cut's last one.
    #[must_use]
    pub fn end(&self) -> Position {
        let ends = if self.course.is_some() { 0 } else { self.ends.len() as u64 };
        self.names_end() + ends
    }

    fn ends(&self) -> impl Iterator<Item = (Position, &End)> {
        (0..).zip(&self.ends).map(|(nth, end)| (self.end_at(nth), end))
    }

    fn end_at(&self, nth: u64) -> Position {
        match self.course {
            Some(_) => Position(self.names_end().0.saturating_sub(1)),
            None => self.names_end() + nth,
        }
    }

    /// Position at which one more session would end. In a window: the last position of the cut.
    pub(super) fn next_end(&self) -> Position {
        self.end_at(self.ends.len() as u64)
    }

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

    pub(super) fn empty_positions(&self) -> u64 {
        let of_nobody = self.names.iter().filter(|(shard, _)| *shard == ShardId::NOBODY);
        of_nobody.map(|(_, names)| names.ids.count).sum()
    }

    pub(super) fn length(&self, shard: ShardId) -> u64 {
        self.lengths.iter().find(|(of, _)| *of == shard).map_or(0, |(_, length)| *length)
    }

    /// The cut's ids in the order of their positions, as the shards receive them.
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
