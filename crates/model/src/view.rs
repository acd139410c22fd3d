//! The participants (nodes, logs, shards, members) and their numbered configurations (views).

use std::fmt;

use crate::position::{Placement, Position};
use crate::wire::{Decoder, Encoder, Wire, WireError, wire_newtype, wire_struct};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty $(as $kind:ident)?)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        wire_newtype!($name $(as $kind)?);
    };
}

number! {
    /// A process that hosts roles. Numbered from 1 within a cluster.
    NodeId(u32)
}
number! {
    /// Number of a log. Never reused, even after its deletion or if the register is set back. 0 is
    /// no log.
    LogId(u64)
}
/// A shard, numbered from 0 within its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

impl ShardId {
    /// Owner of empty positions that belong to no shard. Only [`ShardId::decode_owner`] accepts it.
    pub const NOBODY: Self = Self(u32::MAX);

    /// Decodes a shard or [`ShardId::NOBODY`].
    ///
    /// # Errors
    /// If the bytes end early.
    pub fn decode_owner(input: &mut Decoder) -> Result<Self, WireError> {
        u32::decode(input).map(Self)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Wire for ShardId {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let shard = Self::decode_owner(input)?;
        if shard == Self::NOBODY { Err(WireError::Invalid("shard")) } else { Ok(shard) }
    }
}
number! {
    /// Number of a view or claim; 0 precedes the first.
    ViewNumber(u64 as number)
}
number! {
    /// One run of a replica with its memory. A replica without its memory draws another at random,
    /// so that views do not trust it.
    Incarnation(u64)
}

impl ViewNumber {
    /// Before the first view of a log.
    pub const NONE: Self = Self(0);

    /// The next number to claim after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A replica, as a view names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The node that hosts it.
    pub node: NodeId,
    /// The incarnation that takes part; the view trusts no other.
    pub incarnation: Incarnation,
}

wire_struct! { Member { node, incarnation } }

/// The replicas of one shard in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMembers {
    /// The shard.
    pub shard: ShardId,
    /// Position at which the shard joined the log. The shard holds nothing below.
    pub begins: Position,
    /// Shard replicas: the primary, then backups. Never empty.
    pub replicas: Vec<Member>,
}

/// Flag in the encoded shard number: `begins` follows. Older builds reject it.
const JOINED: u32 = 1 << 31;

impl Wire for ShardMembers {
    fn encode(&self, out: &mut Encoder) {
        let joined = if self.begins == Position::ZERO { 0 } else { JOINED };
        (self.shard.0 | joined).encode(out);
        if joined != 0 {
            self.begins.encode(out);
        }
        self.replicas.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let number = u32::decode(input)?;
        let begins = if number & JOINED == 0 { Position::ZERO } else { Position::decode(input)? };
        Ok(Self { shard: ShardId(number & !JOINED), begins, replicas: Wire::decode(input)? })
    }
}

impl ShardMembers {
    /// The replica that takes pushes and answers reads.
    #[must_use]
    pub fn primary(&self) -> Member {
        self.replicas[0]
    }
}

/// A shard that a view excludes because none of its replicas answered. Its earlier positions stay
/// in the log, and returning replicas serve them.
///
/// Invariants: `last` names the shard, and has no retired shards. `copies` begins with the replicas
/// that `last` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiredShard {
    /// The shard. Its number is never reused.
    pub shard: ShardId,
    /// Last view that included the shard.
    pub last: View,
    /// The shard has no positions from this one on.
    pub until: Position,
    copies: ShardMembers,
}

/// Flag in the encoded shard number: nodes of further copies follow, as the last field. Older
/// builds reject it.
const MORE_COPIES: u32 = 1 << 31;

impl Wire for RetiredShard {
    fn encode(&self, out: &mut Encoder) {
        let others: Vec<NodeId> = self.others().collect();
        let more = if others.is_empty() { 0 } else { MORE_COPIES };
        (self.shard.0 | more).encode(out);
        self.last.encode(out);
        self.until.encode(out);
        if more != 0 {
            others.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let number = u32::decode(input)?;
        let shard = ShardId(number & !MORE_COPIES);
        let last = View::decode_members(input, false)?;
        if last.shard(shard).is_none() {
            return Err(WireError::Invalid("retired shard"));
        }
        let mut retired = Self::new(shard, last, Wire::decode(input)?);
        if number & MORE_COPIES != 0 {
            Vec::<NodeId>::decode(input)?.into_iter().for_each(|node| retired.add_copy(node));
        }
        Ok(retired)
    }
}

impl RetiredShard {
    /// Retires a shard of the view `last` at `until`. That view's replicas are its copies.
    ///
    /// # Panics
    /// If the view does not name the shard.
    #[must_use]
    pub fn new(shard: ShardId, last: View, until: Position) -> Self {
        let copies = last.shard(shard).expect("a retired shard was in its last view").clone();
        Self { shard, last, until, copies }
    }

    /// Replicas that hold the shard's records or must copy them: those of the last view, then
    /// others with incarnation 0 (unknown). Never empty.
    #[must_use]
    pub fn copies(&self) -> &ShardMembers {
        &self.copies
    }

    /// Nodes of the copies.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.copies.replicas.iter().map(|member| member.node)
    }

    /// Nodes of the copies that the last view does not name.
    fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        let named = self.last.shard(self.shard).map_or(0, |members| members.replicas.len());
        self.nodes().skip(named)
    }

    /// Whether the node holds a copy or must make one.
    #[must_use]
    pub fn has_copy_on(&self, node: NodeId) -> bool {
        self.nodes().any(|copy| copy == node)
    }

    /// Adds a copy on the node, unless there is one.
    pub fn add_copy(&mut self, node: NodeId) {
        if !self.has_copy_on(node) {
            self.copies.replicas.push(Member { node, incarnation: Incarnation(0) });
        }
    }

    /// The shard's replicas in its last view.
    ///
    /// # Panics
    /// If the view does not name the shard.
    #[must_use]
    pub fn members(&self) -> &ShardMembers {
        self.last.shard(self.shard).expect("a retired shard was in its last view")
    }

    /// End of the positions that its replicas can serve: `until`, or the start of the gap at the
    /// end that an operator accepted.
    #[must_use]
    pub fn ends(&self, history: &ViewHistory) -> Position {
        self.given_up(history).map_or(self.until, |gap| gap.from)
    }

    /// Gap that an operator accepted at the end of the shard's positions, if any.
    #[must_use]
    pub fn given_up(&self, history: &ViewHistory) -> Option<Gap> {
        history.gaps_of(self.shard).next_back().filter(|gap| gap.end >= self.until)
    }
}

/// A numbered configuration of one log (LazyLog §4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// View number.
    pub number: ViewNumber,
    /// Sequencing replicas. All must acknowledge an append. Never empty.
    pub sequencers: Vec<Member>,
    /// The sequencing replica that decides the order.
    pub leader: NodeId,
    /// The replicas of each shard, by shard number.
    pub shards: Vec<ShardMembers>,
    /// Excluded shards with positions below the view's start, by number.
    pub retired: Vec<RetiredShard>,
    /// Which shard holds which position.
    pub placement: Placement,
    /// First position that the view flushes (pushes again): the `ordered` of the sequencing replica
    /// that it was recovered from.
    pub first: Position,
    /// End of the flush. The view starts with `ordered` and `stable` here.
    pub start: Position,
}

/// Flag in the encoded number of shards: retired shards follow. Older builds reject it.
const SOME_RETIRED: u32 = 1 << 31;

impl Wire for View {
    fn encode(&self, out: &mut Encoder) {
        self.number.encode(out);
        self.sequencers.encode(out);
        self.leader.encode(out);
        let some_retired = if self.retired.is_empty() { 0 } else { SOME_RETIRED };
        (self.shards.len() as u32 | some_retired).encode(out);
        self.shards.iter().for_each(|members| members.encode(out));
        if some_retired != 0 {
            self.retired.encode(out);
        }
        self.placement.encode(out);
        self.first.encode(out);
        self.start.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Self::decode_members(input, true)
    }
}

impl View {
    /// A retired shard's last view has no retired shards itself: `may_retire` is false for it.
    fn decode_members(input: &mut Decoder, may_retire: bool) -> Result<Self, WireError> {
        let (number, sequencers, leader) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let count = u32::decode(input)?;
        let mut shards = vec![];
        for _ in 0..count & !SOME_RETIRED {
            shards.push(Wire::decode(input)?);
        }
        let retired = match count & SOME_RETIRED {
            0 => vec![],
            _ if !may_retire => return Err(WireError::Invalid("retired shard")),
            _ => Wire::decode(input)?,
        };
        let (placement, first, start) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        Ok(Self { number, sequencers, leader, shards, retired, placement, first, start })
    }

    /// The retired shard of this number, if any.
    #[must_use]
    pub fn retired(&self, shard: ShardId) -> Option<&RetiredShard> {
        self.retired.iter().find(|retired| retired.shard == shard)
    }

    /// Nodes that hold the shard's positions: its replicas, or a retired shard's copies.
    #[must_use]
    pub fn holders(&self, shard: ShardId) -> Option<&ShardMembers> {
        self.shard(shard).or_else(|| self.retired(shard).map(RetiredShard::copies))
    }

    /// Whether this incarnation is a sequencing replica of the view.
    #[must_use]
    pub fn names_sequencer(&self, member: Member) -> bool {
        self.sequencers.contains(&member)
    }

    /// The replicas of `shard`, if it is in the view.
    #[must_use]
    pub fn shard(&self, shard: ShardId) -> Option<&ShardMembers> {
        self.shards.iter().find(|members| members.shard == shard)
    }

    /// The shards that take new records, in order.
    #[must_use]
    pub fn open_shards(&self) -> &[ShardId] {
        self.placement.latest()
    }
}

/// Positions `from <= position < end` that a shard lost permanently: no replica of a new view held
/// them, and an operator accepted the loss. Returning replicas do not restore them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gap {
    /// The shard.
    pub shard: ShardId,
    /// The first position.
    pub from: Position,
    /// The position after the last.
    pub end: Position,
}

wire_struct! { Gap { shard, from, end } }

impl Gap {
    /// Whether the gap contains the position, provided that the shard owns it.
    #[must_use]
    pub fn contains(&self, position: Position) -> bool {
        self.from <= position && position < self.end
    }
}

/// Decides which version of a position is valid. Holds registered views as `(view, first)`, gaps,
/// and starts of views after accepted losses.
///
/// A position may have been pushed under several views. The latest registered view whose `first` is
/// at or below it decides, and hides earlier views' versions from its `first` on.
///
/// Invariant: numbers and `first` values increase, because a view removes earlier ones whose
/// `first` is not below its own. Gaps are in the order of shards and positions, and gaps of one
/// shard do not touch. In the list of reassigned positions, numbers and starts increase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewHistory {
    steps: Vec<(ViewNumber, Position)>,
    gaps: Vec<Gap>,
    /// Views that began after an accepted loss, with their starts.
    reassigned: Vec<(ViewNumber, Position)>,
}

/// Flag in the encoded number of steps: gaps follow. Older builds reject it.
const HAS_GAPS: u32 = 1 << 31;

/// Flag in the encoded number of steps: reassigned positions follow the gaps. Older builds reject
/// it.
const HAS_REASSIGNED: u32 = 1 << 30;

impl Wire for ViewHistory {
    fn encode(&self, out: &mut Encoder) {
        let has_gaps = if self.gaps.is_empty() { 0 } else { HAS_GAPS };
        let has_reassigned = if self.reassigned.is_empty() { 0 } else { HAS_REASSIGNED };
        (self.steps.len() as u32 | has_gaps | has_reassigned).encode(out);
        self.steps.iter().for_each(|step| step.encode(out));
        if has_gaps != 0 {
            self.gaps.encode(out);
        }
        if has_reassigned != 0 {
            self.reassigned.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let count = u32::decode(input)?;
        let mut history = Self::default();
        for _ in 0..count & !(HAS_GAPS | HAS_REASSIGNED) {
            let (view, first) = Wire::decode(input)?;
            let before = history.steps.last();
            if view <= history.latest() || before.is_some_and(|(_, earlier)| *earlier >= first) {
                return Err(WireError::Invalid("history of views"));
            }
            history.steps.push((view, first));
        }
        if count & HAS_GAPS != 0 {
            history.gaps = Wire::decode(input)?;
        }
        if count & HAS_REASSIGNED != 0 {
            history.reassigned = Wire::decode(input)?;
            let increase = |pair: &[(ViewNumber, Position)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
            if !history.reassigned.windows(2).all(increase) {
                return Err(WireError::Invalid("reassigned positions"));
            }
        }
        Ok(history)
    }
}

impl ViewHistory {
    /// Adds a registered view, if newer than the latest.
    pub fn push(&mut self, view: ViewNumber, first: Position) {
        if view <= self.latest() {
            return;
        }
        while self.steps.last().is_some_and(|(_, earlier)| *earlier >= first) {
            self.steps.pop();
        }
        let is_last = self.steps.last().is_none_or(|(last, from)| *last < view && *from < first);
        assert!(is_last, "{view} decides from {first} on, after {:?}", self.steps.last());
        self.steps.push((view, first));
    }

    /// The number of the latest registered view, or [`ViewNumber::NONE`].
    #[must_use]
    pub fn latest(&self) -> ViewNumber {
        self.steps.last().map_or(ViewNumber::NONE, |(view, _)| *view)
    }

    /// View whose version of `position` is valid, if any.
    #[must_use]
    pub fn cover(&self, position: Position) -> Option<ViewNumber> {
        let index = self.steps.partition_point(|(_, first)| *first <= position);
        (index > 0).then(|| self.steps[index - 1].0)
    }

    /// The `first` of the view after the view of `position`; `None` if that view is the
    /// latest.
    #[must_use]
    pub fn cover_end(&self, position: Position) -> Option<Position> {
        let index = self.steps.partition_point(|(_, first)| *first <= position);
        self.steps.get(index).map(|(_, first)| *first)
    }

    /// Latest view that decides a position below `end`, or [`ViewNumber::NONE`].
    #[must_use]
    pub fn decides_below(&self, end: Position) -> ViewNumber {
        let index = self.steps.partition_point(|(_, first)| *first < end);
        self.steps[..index].last().map_or(ViewNumber::NONE, |(view, _)| *view)
    }

    /// Forgets views and gaps that only concern positions below `trim`.
    pub fn forget_below(&mut self, trim: Position) {
        let index = self.steps.partition_point(|(_, first)| *first <= trim);
        self.steps.drain(..index.saturating_sub(1));
        self.gaps.retain(|gap| gap.end > trim);
    }

    /// The `first` of the oldest view. Everything below is trimmed.
    #[must_use]
    pub fn start(&self) -> Position {
        self.steps.first().map_or(Position::ZERO, |(_, first)| *first)
    }

    /// Forgets views that only decide below `trim`, and gaps below the remaining
    /// [`start`](Self::start), where everything is trimmed.
    pub fn forget_views_below(&mut self, trim: Position) {
        let decides = self.steps.iter().rev().find(|(_, first)| *first <= trim);
        if let Some((_, start)) = decides.copied() {
            self.forget_below(start);
        }
    }

    /// Adds a gap, unless empty.
    pub fn give_up(&mut self, mut gap: Gap) {
        if gap.from >= gap.end {
            return;
        }
        self.gaps.retain(|known| {
            let touches = known.shard == gap.shard && known.from <= gap.end && gap.from <= known.end;
            if touches {
                (gap.from, gap.end) = (gap.from.min(known.from), gap.end.max(known.end));
            }
            !touches
        });
        let index = self.gaps.partition_point(|known| *known < gap);
        self.gaps.insert(index, gap);
    }

    /// Notes that a view begins at `start` after an accepted loss. Positions from `start` on may
    /// have been final, and get other records.
    pub fn reassign(&mut self, view: ViewNumber, start: Position) {
        while self.reassigned.last().is_some_and(|(_, earlier)| *earlier >= start) {
            self.reassigned.pop();
        }
        let last = self.reassigned.last();
        assert!(
            last.is_none_or(|(last, _)| *last < view),
            "{view} reassigns from {start} on, after {last:?}"
        );
        self.reassigned.push((view, start));
    }

    /// Lowest start of a view after `known` that began after an accepted loss. `None`: no such
    /// view.
    #[must_use]
    pub fn reassigned_after(&self, known: ViewNumber) -> Option<Position> {
        self.reassigned.iter().find(|(view, _)| *view > known).map(|(_, start)| *start)
    }

    /// Last view that began after an accepted loss, and its start, unless a later one began lower.
    #[must_use]
    pub fn last_reassigned(&self) -> Option<(ViewNumber, Position)> {
        self.reassigned.last().copied()
    }

    /// The gaps, in the order of shards and positions.
    #[must_use]
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// The gaps of one shard, in order.
    pub fn gaps_of(&self, shard: ShardId) -> impl DoubleEndedIterator<Item = Gap> + Clone + '_ {
        self.gaps.iter().copied().filter(move |gap| gap.shard == shard)
    }

    /// Whether the shard's positions in `from..end` are all lost or trimmed.
    #[must_use]
    pub fn tells_lost(&self, shard: ShardId, from: Position, end: Position) -> bool {
        end <= self.start() || self.gaps_of(shard).any(|gap| gap.contains(from) && end <= gap.end)
    }

    /// The registered views, oldest first.
    #[must_use]
    pub fn steps(&self) -> &[(ViewNumber, Position)] {
        &self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{decode_one, encode_one};

    #[test]
    fn the_latest_view_at_or_below_a_position_decides() {
        let mut history = ViewHistory::default();
        assert_eq!(history.cover(Position(0)), None);
        history.push(ViewNumber(1), Position(0));
        history.push(ViewNumber(3), Position(10));
        history.push(ViewNumber(2), Position(5));
        assert_eq!(history.cover(Position(9)), Some(ViewNumber(1)));
        assert_eq!(history.cover(Position(10)), Some(ViewNumber(3)));
        history.push(ViewNumber(4), Position(7));
        assert_eq!(history.cover(Position(6)), Some(ViewNumber(1)));
        assert_eq!(history.cover_end(Position(6)), Some(Position(7)));
        assert_eq!(history.cover(Position(12)), Some(ViewNumber(4)));
        let below = [0, 1, 7, 8].map(|end| history.decides_below(Position(end)).0);
        assert_eq!(below, [0, 1, 1, 4]);
        history.forget_below(Position(8));
        assert_eq!(history.steps(), &[(ViewNumber(4), Position(7))]);
    }

    #[test]
    fn gaps_that_touch_become_one() {
        let gap = |shard, from, end| Gap { shard: ShardId(shard), from: Position(from), end: Position(end) };
        let mut history = ViewHistory::default();
        for lost in [gap(1, 5, 9), gap(0, 3, 3), gap(0, 20, 30), gap(0, 2, 6), gap(1, 9, 12), gap(0, 6, 7)] {
            history.give_up(lost);
        }
        assert_eq!(history.gaps(), [gap(0, 2, 7), gap(0, 20, 30), gap(1, 5, 12)]);
        history.forget_below(Position(12));
        assert_eq!(history.gaps(), [gap(0, 20, 30)]);
    }

    #[test]
    fn a_reader_of_an_earlier_view_learns_the_lowest_position_that_is_reassigned() {
        let mut history = ViewHistory::default();
        let after = |history: &ViewHistory| {
            [0, 2, 4, 6, 8].map(|known| history.reassigned_after(ViewNumber(known)).map(|start| start.0))
        };
        for (view, first) in [(2, 0), (4, 5), (6, 7), (8, 30)] {
            history.push(ViewNumber(view), Position(first));
        }
        let before = encode_one(&history);
        assert_eq!(decode_one(before.clone()), Ok(history.clone()));
        history.reassign(ViewNumber(4), Position(9));
        history.reassign(ViewNumber(8), Position(30));
        assert_eq!(after(&history), [Some(9), Some(9), Some(30), Some(30), None]);
        assert_eq!(decode_one(encode_one(&history)), Ok(history.clone()));
        assert_eq!(encode_one(&history)[4..before.len()], before[4..], "the steps are written as before");
        history.forget_below(Position(50));
        assert_eq!(
            after(&history),
            [Some(9), Some(9), Some(30), Some(30), None],
            "also where all is trimmed"
        );
        history.reassign(ViewNumber(9), Position(3));
        assert_eq!(after(&history), [Some(3); 5]);
        history.reassigned = vec![(ViewNumber(9), Position(3)), (ViewNumber(9), Position(4))];
        assert_eq!(
            decode_one::<ViewHistory>(encode_one(&history)),
            Err(WireError::Invalid("reassigned positions"))
        );
    }

    #[test]
    fn what_is_forgotten_lies_below_the_start() {
        let gap = |from, end| Gap { shard: ShardId(0), from: Position(from), end: Position(end) };
        let mut history = ViewHistory::default();
        history.forget_views_below(Position(9));
        for (view, first) in [(1, 0), (2, 5), (4, 9)] {
            history.push(ViewNumber(view), Position(first));
        }
        [gap(1, 3), gap(4, 6), gap(7, 8)].into_iter().for_each(|lost| history.give_up(lost));
        history.forget_views_below(Position(4));
        assert_eq!((history.steps().len(), history.gaps().len()), (3, 3));
        history.forget_views_below(Position(8));
        assert_eq!(history.steps(), [(ViewNumber(2), Position(5)), (ViewNumber(4), Position(9))]);
        assert_eq!((history.start(), history.gaps()), (Position(5), [gap(4, 6), gap(7, 8)].as_slice()));
        history.forget_views_below(Position(100));
        assert_eq!((history.start(), history.latest()), (Position(9), ViewNumber(4)));
    }

    #[test]
    fn a_shard_from_the_beginning_is_written_as_before_any_could_join() {
        let replicas = vec![Member { node: NodeId(3), incarnation: Incarnation(4) }];
        let members = ShardMembers { shard: ShardId(2), begins: Position::ZERO, replicas: replicas.clone() };
        assert_eq!(encode_one(&members), encode_one(&(ShardId(2), replicas)));
        let joined = ShardMembers { begins: Position(7), ..members };
        assert_eq!(decode_one(encode_one(&joined)), Ok(joined));
    }

    #[test]
    fn a_view_without_retired_shards_is_written_as_before_there_were_any() {
        let replicas = vec![Member { node: NodeId(3), incarnation: Incarnation(4) }];
        let members = ShardMembers { shard: ShardId(0), begins: Position::ZERO, replicas: replicas.clone() };
        let view = View {
            number: ViewNumber(2),
            sequencers: replicas,
            leader: NodeId(3),
            shards: vec![members],
            retired: vec![],
            placement: Placement::new(vec![ShardId(0)], 1),
            first: Position(5),
            start: Position(6),
        };
        let View { number, sequencers, leader, shards, placement, first, start, .. } = view.clone();
        let parts = [
            encode_one(&(number, sequencers)),
            encode_one(&(leader, shards)),
            encode_one(&placement),
            encode_one(&(first, start)),
        ];
        assert_eq!(encode_one(&view), parts.concat());
        assert_eq!(decode_one(encode_one(&view)), Ok(view.clone()));
        let retired = |shard, last: &View| {
            let before = RetiredShard::new(ShardId(0), last.clone(), Position(5));
            RetiredShard { shard, ..before }
        };
        let next = View { shards: vec![], retired: vec![retired(ShardId(0), &view)], ..view.clone() };
        assert_eq!(decode_one(encode_one(&next)), Ok(next.clone()));
        assert_eq!(next.holders(ShardId(0)), view.shard(ShardId(0)));
        for wrong in [
            retired(ShardId(1), &view),
            retired(ShardId(0), &View { retired: next.retired.clone(), ..view.clone() }),
        ] {
            let view = View { retired: vec![wrong], ..view.clone() };
            assert!(decode_one::<View>(encode_one(&view)).is_err());
        }
        // Without further copies the encoding begins with the bare shard number.
        let mut more = retired(ShardId(0), &view);
        assert_eq!(encode_one(&more)[..4], encode_one(&ShardId(0))[..]);
        [3, 7, 7].into_iter().for_each(|node| more.add_copy(NodeId(node)));
        assert_eq!(more.nodes().collect::<Vec<_>>(), [NodeId(3), NodeId(7)]);
        assert_eq!(decode_one(encode_one(&more)), Ok(more.clone()));
        assert_ne!(
            encode_one(&more)[..4],
            encode_one(&ShardId(0))[..],
            "a build that does not know of them refuses it"
        );
    }

    #[test]
    fn a_history_that_goes_back_is_refused() {
        let refused = |steps: &[(u64, u64)]| {
            let steps: Vec<_> =
                steps.iter().map(|(view, first)| (ViewNumber(*view), Position(*first))).collect();
            decode_one::<ViewHistory>(encode_one(&steps)) == Err(WireError::Invalid("history of views"))
        };
        assert!(!refused(&[(1, 0), (3, 4)]));
        assert!(refused(&[(0, 0)]) && refused(&[(2, 0), (2, 4)]) && refused(&[(1, 4), (3, 4)]));
        assert!(
            refused(&[(3, 9), (4, 2), (5, 3)]),
            "a view that is pushed now would come before its history"
        );
    }

    #[test]
    fn a_history_without_gaps_is_written_as_before_there_were_any() {
        let mut history = ViewHistory::default();
        history.push(ViewNumber(1), Position(0));
        assert_eq!(encode_one(&history), encode_one(&vec![(ViewNumber(1), Position(0))]));
        history.give_up(Gap { shard: ShardId(2), from: Position(3), end: Position(4) });
        assert_eq!(decode_one(encode_one(&history)), Ok(history));
    }

    #[test]
    fn nobody_is_read_where_the_owner_of_positions_is_told_and_nowhere_else() {
        use crate::storage::{Ordered, Owned};
        use crate::{Endpoint, IdRun, SessionId, Span};

        let nobody = ShardId::NOBODY;
        assert!(decode_one::<ShardId>(encode_one(&nobody)).is_err());
        assert!(decode_one::<Endpoint>(encode_one(&Endpoint::Shard(nobody))).is_err());
        let gap = Gap { shard: nobody, from: Position(0), end: Position(1) };
        assert!(decode_one::<Gap>(encode_one(&gap)).is_err());
        let owned = Owned { shard: nobody, count: 1_000_000 };
        assert_eq!(decode_one(encode_one(&owned)), Ok(owned));
        let ids = IdRun { session: SessionId::NOBODY, first: 7, count: 5 };
        let empty = Ordered { ids, shard: nobody, is_void: true };
        assert_eq!(decode_one(encode_one(&empty)), Ok(empty));
        let held_by_nobody = Ordered { is_void: false, ..empty };
        assert!(decode_one::<Ordered>(encode_one(&held_by_nobody)).is_err());
        for count in [0, crate::limits::MAX_NUMBER + 1] {
            assert!(decode_one::<Span>(encode_one(&Span { first: Position(3), count })).is_err());
        }
    }
}
