//! Positions in a log, and the shards that hold them.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use crate::limits;
use crate::view::ShardId;
use crate::wire::{Decoder, Encoder, Wire, WireError, at_most, decode_number, wire_struct};

/// A place in a log's total order, from 0. Bounds (`tail`, `stable`, a trim point) are exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// First position of every log.
    pub const ZERO: Self = Self(0);

    /// Highest position of any log.
    pub const MAX: Self = Self(limits::MAX_NUMBER);

    /// Position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        self + 1
    }

    /// Decodes the exclusive end of a range, which code only compares. `u64::MAX` means no end.
    /// `field` is the field's name for errors.
    pub fn decode_end(field: &'static str, input: &mut Decoder) -> Result<Self, WireError> {
        match u64::decode(input)? {
            u64::MAX => Ok(Self(u64::MAX)),
            number => at_most(limits::MAX_NUMBER, field, number).map(Self),
        }
    }

    /// Positions from `earlier` to this one; 0 if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Add<u64> for Position {
    type Output = Self;

    fn add(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

impl AddAssign<u64> for Position {
    fn add_assign(&mut self, count: u64) {
        self.0 += count;
    }
}

impl Sub for Position {
    type Output = u64;

    fn sub(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

crate::wire::wire_newtype!(Position as number);

/// Consecutive positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First position.
    pub first: Position,
    /// Number of positions, at least 1.
    pub count: u64,
}

impl Wire for Span {
    fn encode(&self, out: &mut Encoder) {
        self.first.encode(out);
        self.count.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (first, count) = (Wire::decode(input)?, decode_number("Span.count", input)?);
        if count == 0 { Err(WireError::Invalid("span")) } else { Ok(Self { first, count }) }
    }
}

impl Span {
    /// The positions in `from..end`; `None` if empty.
    #[must_use]
    pub fn between(from: Position, end: Position) -> Option<Self> {
        (from < end).then(|| Self { first: from, count: end - from })
    }

    /// Position after the last.
    #[must_use]
    pub fn end(self) -> Position {
        self.first + self.count
    }

    /// Whether the span contains the position.
    #[must_use]
    pub fn contains(self, position: Position) -> bool {
        self.first <= position && position < self.end()
    }

    /// The part of the span in `from..end`; `None` if empty.
    #[must_use]
    pub fn within(self, from: Position, end: Position) -> Option<Self> {
        Self::between(self.first.max(from), self.end().min(end))
    }

    /// The positions.
    pub fn positions(self) -> impl Iterator<Item = Position> {
        (self.first.0..self.end().0).map(Position)
    }

    /// Sorts spans and joins adjacent ones.
    ///
    /// # Panics
    /// If two overlap.
    #[must_use]
    pub fn joined(mut spans: Vec<Self>) -> Vec<Self> {
        spans.sort_unstable_by_key(|span| span.first);
        let mut joined: Vec<Self> = Vec::with_capacity(spans.len());
        for span in spans {
            assert!(joined.last().is_none_or(|last| last.end() <= span.first), "{span:?} is there twice");
            match joined.last_mut().filter(|last| last.end() == span.first) {
                Some(last) => last.count += span.count,
                None => joined.push(span),
            }
        }
        joined
    }

    /// Joins consecutive positions to spans. `positions` are in order.
    #[must_use]
    pub fn of(positions: impl Iterator<Item = Position>) -> Vec<Self> {
        let mut spans: Vec<Self> = vec![];
        for position in positions {
            match spans.last_mut().filter(|span| span.end() == position) {
                Some(span) => span.count += 1,
                None => spans.push(Self { first: position, count: 1 }),
            }
        }
        spans
    }
}

/// Assigns positions to shards, for `erwin-bb` (LazyLog §4.3, but shards can join and leave).
///
/// From a step's `from` on, stripes of `stripe` positions go to `shards` in turn; a stripe of 1 is
/// the paper's `p mod n`. A later step replaces an earlier one from its `from` on, so a new shard
/// moves no record.
///
/// Steps are in order of `from`, the first is at 0, and none has an empty shard list or a stripe of
/// 0: [`from_steps`](Self::from_steps) rejects others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    steps: Vec<PlacementStep>,
}

/// One step of a [`Placement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementStep {
    /// First position of the step.
    pub from: Position,
    /// Shards that take stripes in turn.
    pub shards: Vec<ShardId>,
    /// Number of consecutive positions in one stripe.
    pub stripe: u64,
}

wire_struct! { PlacementStep { from, shards, stripe as number } }

impl Wire for Placement {
    fn encode(&self, out: &mut Encoder) {
        self.steps.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Self::from_steps(Vec::decode(input)?).ok_or(WireError::Invalid("placement"))
    }
}

impl Placement {
    /// Placement of a new log: `shards` in turn, `stripe` positions each.
    ///
    /// # Panics
    /// If `shards` is empty or `stripe` is 0.
    #[must_use]
    pub fn new(shards: Vec<ShardId>, stripe: u64) -> Self {
        Self::from_steps(vec![PlacementStep { from: Position::ZERO, shards, stripe }])
            .expect("a placement needs a shard and a stripe")
    }

    /// Builds a placement; `None` if the steps break the invariant.
    #[must_use]
    pub fn from_steps(steps: Vec<PlacementStep>) -> Option<Self> {
        let starts_at_zero = steps.first().is_some_and(|step| step.from == Position::ZERO);
        let in_order = steps.windows(2).all(|pair| pair[0].from < pair[1].from);
        let usable = steps.iter().all(|step| !step.shards.is_empty() && step.stripe > 0);
        (starts_at_zero && in_order && usable).then_some(Self { steps })
    }

    /// This placement for positions below `from`, and the given shards for positions from `from`
    /// on.
    #[must_use]
    pub fn then(&self, from: Position, shards: Vec<ShardId>) -> Self {
        let stripe = self.steps.last().map_or(1, |step| step.stripe);
        let before = self.steps.iter().filter(|step| step.from < from).cloned();
        let steps = before.chain([PlacementStep { from, shards, stripe }]).collect();
        Self::from_steps(steps).expect("only an earlier step starts before another")
    }

    /// This placement without steps that end at or below `trim`. Positions below it go to the
    /// shards of the first kept step, which know that they are trimmed.
    #[must_use]
    pub fn forget_below(&self, trim: Position) -> Self {
        let index = self.steps.partition_point(|step| step.from <= trim) - 1;
        let mut steps = self.steps[index..].to_vec();
        if steps[0].from > Position::ZERO {
            steps.insert(0, PlacementStep { from: Position::ZERO, ..steps[0].clone() });
        }
        Self { steps }
    }

    /// Shards of the last step.
    #[must_use]
    pub fn latest(&self) -> &[ShardId] {
        self.steps.last().map_or(&[], |step| &step.shards)
    }

    /// Shard that holds `position`.
    #[must_use]
    pub fn shard_of(&self, position: Position) -> ShardId {
        self.stripe_at(position).0
    }

    /// Shard of `position`, and the exclusive end of the stripe around it.
    #[must_use]
    pub fn stripe_at(&self, position: Position) -> (ShardId, Position) {
        let index = self.steps.partition_point(|step| step.from <= position) - 1;
        let step = &self.steps[index];
        let offset = position - step.from;
        let stripe = offset / step.stripe;
        let shard = step.shards[(stripe % step.shards.len() as u64) as usize];
        let mut end = Position(step.from.0.saturating_add((stripe + 1).saturating_mul(step.stripe)));
        if let Some(next) = self.steps.get(index + 1) {
            end = end.min(next.from);
        }
        (shard, end)
    }

    /// First position in `from..end` that `shard` holds.
    #[must_use]
    pub fn first_of(&self, shard: ShardId, from: Position, end: Position) -> Option<Position> {
        let mut position = from;
        while position < end {
            let (holder, stripe_end) = self.stripe_at(position);
            if holder == shard {
                return Some(position);
            }
            position = stripe_end;
        }
        None
    }

    /// All shards with positions, in order.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardId> {
        let mut shards: Vec<_> = self.steps.iter().flat_map(|step| step.shards.iter().copied()).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripe_of_one_is_modulo() {
        let placement = Placement::new(vec![ShardId(0), ShardId(1), ShardId(2)], 1);
        for p in 0..100 {
            assert_eq!(placement.stripe_at(Position(p)), (ShardId((p % 3) as u32), Position(p + 1)));
        }
    }

    #[test]
    fn a_new_step_moves_nothing_and_cuts_the_stripe() {
        let placement = Placement::from_steps(vec![
            PlacementStep { from: Position(0), shards: vec![ShardId(0)], stripe: 8 },
            PlacementStep { from: Position(5), shards: vec![ShardId(0), ShardId(1)], stripe: 2 },
        ])
        .unwrap();
        assert_eq!(placement.stripe_at(Position(3)), (ShardId(0), Position(5)));
        assert_eq!(placement.stripe_at(Position(7)), (ShardId(1), Position(9)));
        assert_eq!(placement.stripe_at(Position(10)), (ShardId(0), Position(11)));
        assert_eq!(placement.first_of(ShardId(1), Position(2), Position(20)), Some(Position(7)));
        assert_eq!(placement.first_of(ShardId(1), Position(2), Position(7)), None);
        assert_eq!(placement.shards(), vec![ShardId(0), ShardId(1)]);
    }

    #[test]
    fn what_comes_then_replaces_what_would_have_come() {
        let placement = Placement::new(vec![ShardId(0)], 8);
        let two = placement.then(Position(5), vec![ShardId(0), ShardId(1)]);
        assert_eq!(
            (two.shard_of(Position(4)), two.stripe_at(Position(13))),
            (ShardId(0), (ShardId(1), Position(21)))
        );
        let other = two.then(Position(5), vec![ShardId(2)]);
        assert_eq!((other.shard_of(Position(4)), other.latest()), (ShardId(0), &[ShardId(2)][..]));
        assert_eq!(other.then(Position::ZERO, vec![ShardId(3)]), Placement::new(vec![ShardId(3)], 8));
    }

    #[test]
    fn what_is_trimmed_is_asked_of_those_who_are_left() {
        let placement = Placement::new(vec![ShardId(0)], 8).then(Position(5), vec![ShardId(1), ShardId(2)]);
        assert_eq!(placement.forget_below(Position(4)), placement);
        let left = placement.forget_below(Position(6));
        assert_eq!(left.shards(), [ShardId(1), ShardId(2)]);
        for position in (5..100).map(Position) {
            assert_eq!(left.stripe_at(position), placement.stripe_at(position));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Placement::from_steps(vec![]).is_none());
        let step = |from, stripe| PlacementStep { from: Position(from), shards: vec![ShardId(0)], stripe };
        assert!(Placement::from_steps(vec![step(1, 1)]).is_none());
        assert!(Placement::from_steps(vec![step(0, 0)]).is_none());
        assert!(Placement::from_steps(vec![step(0, 1), step(0, 1)]).is_none());
    }
}
