//! Windows: cuts with quotas fixed in advance, and the resulting positions (SpecLog §3.2, §4.2).
//!
//! Each shard that *keeps* a quota has a *turn* in some cuts: it brings exactly its quota of
//! records, or padding instead. So the index of a record in its local log determines its position
//! before any cut orders it. With several groups, a shard has its turn in one cut of a round
//! (§4.6).
//!
//! ```text
//! two shards with quotas 2 and 3, one group, base 0:
//!   cut           0             1
//!   position   0 1 2 3 4    5 6 7 8 9
//!   shard      a a b b b    a a b b b
//!   index      0 1 0 1 2    2 3 3 4 5
//! ```
//!
//! A shard that was late again and again *lends* (§4.5): it has no turn, but *room* behind the last
//! cut's turns. In a *free* window all shards lend; its cuts take all available records, at
//! positions unknown in advance.

use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, wire_struct};
use seriatim_model::{Position, ShardId, limits};

use super::cut::Cut;
use crate::shard;

/// A run of cuts with quotas fixed in advance.
///
/// Invariants: `cuts` is not zero; `shares` and `lenders` are ordered by shard; no quota is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Number in its view, from 0.
    pub number: u32,
    /// First position of its first cut.
    pub base: Position,
    /// Number of cuts.
    pub cuts: u32,
    /// Number of groups of shards. With 1, each shard has a turn in each cut.
    pub groups: u32,
    /// Shards that keep a quota. If empty, the window is free.
    pub shares: Vec<Share>,
    /// Shards without turns.
    pub lenders: Vec<Lender>,
}

/// One shard's part of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The shard.
    pub shard: ShardId,
    /// Number of positions in each of its turns.
    pub quota: u32,
    /// Index of its local log where its first turn begins.
    pub index: u64,
}

/// A shard without turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lender {
    /// The shard.
    pub shard: ShardId,
    /// The quota that the shard had, or would have.
    pub quota: u32,
}

/// A window decided in advance. Its start may be unknown until the window before it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextWindow {
    /// Number of cuts.
    pub cuts: u32,
    /// Shards that keep a quota, with it. If empty, the window is free.
    pub keepers: Vec<(ShardId, u32)>,
    /// The shards that lend.
    pub lenders: Vec<Lender>,
}

wire_struct! { Share { shard, quota, index as number } }
wire_struct! { Lender { shard, quota } }

impl Wire for Window {
    fn encode(&self, out: &mut Encoder) {
        let Self { number, base, cuts, groups, shares, lenders } = self;
        number.encode(out);
        base.encode(out);
        cuts.encode(out);
        groups.encode(out);
        shares.encode(out);
        lenders.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (number, base, cuts) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let (groups, shares, lenders) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let window = Self { number, base, cuts, groups, shares, lenders };
        if window.is_sound() { Ok(window) } else { Err(WireError::Invalid("Window")) }
    }
}

impl Wire for NextWindow {
    fn encode(&self, out: &mut Encoder) {
        self.cuts.encode(out);
        self.keepers.encode(out);
        self.lenders.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let next =
            Self { cuts: Wire::decode(input)?, keepers: Wire::decode(input)?, lenders: Wire::decode(input)? };
        if next.is_sound() { Ok(next) } else { Err(WireError::Invalid("NextWindow")) }
    }
}

fn are_sound(cuts: u32, mut keepers: impl Iterator<Item = (ShardId, u32)>, lenders: &[Lender]) -> bool {
    let fits = |quota: u32| (1..=limits::MAX_QUOTA).contains(&quota);
    let mut last = None;
    let keepers_rise = keepers.all(|(shard, quota)| last.replace(shard) < Some(shard) && fits(quota));
    let lenders_rise = lenders.windows(2).all(|two| two[0].shard < two[1].shard);
    cuts > 0
        && cuts <= *limits::WINDOWS.end()
        && keepers_rise
        && lenders_rise
        && lenders.iter().all(|lender| fits(lender.quota))
}

/// One shard's part of a cut: indexes of its local log with consecutive positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The shard.
    pub shard: ShardId,
    /// The first index.
    pub index: u64,
    /// Number of indexes.
    pub quota: u32,
}

impl Lender {
    /// Number of the shard's positions behind the last cut's turns, in a window that is not free.
    #[must_use]
    pub fn room(self) -> u32 {
        self.quota.saturating_mul(limits::ROOM_QUOTAS).max(limits::LEAST_ROOM)
    }
}

impl NextWindow {
    fn is_sound(&self) -> bool {
        are_sound(self.cuts, self.keepers.iter().copied(), &self.lenders)
    }

    /// `index` returns the length of a shard's local log when the window begins.
    fn begin(&self, number: u32, base: Position, index: impl Fn(ShardId) -> u64) -> Window {
        let share =
            |(shard, quota): &(ShardId, u32)| Share { shard: *shard, quota: *quota, index: index(*shard) };
        let shares: Vec<Share> = self.keepers.iter().map(share).collect();
        let (cuts, groups, lenders) = (self.cuts, groups(shares.len()), self.lenders.clone());
        Window { number, base, cuts, groups, shares, lenders }.asserted()
    }
}

fn groups(keepers: usize) -> u32 {
    u32::try_from(keepers.div_ceil(limits::STAGGER_ABOVE)).unwrap_or(u32::MAX).max(1)
}

impl Window {
    pub(super) fn first(base: Position, cuts: u32, keepers: &[(ShardId, u32)]) -> Self {
        NextWindow { cuts, keepers: keepers.to_vec(), lenders: vec![] }.begin(0, base, |_| 0)
    }

    /// The window as plain data, for checkers, which compute positions themselves.
    pub(super) fn told(&self) -> shard::Turns {
        let Self { number, base, cuts, groups, ref shares, ref lenders } = *self;
        let shares = shares.iter().map(|share| (share.shard, share.quota, share.index)).collect();
        let lenders = lenders.iter().filter(|_| !self.is_free());
        let rooms = lenders.map(|lender| (lender.shard, lender.room())).collect();
        shard::Turns { number, base, cuts, groups, shares, rooms }
    }

    fn asserted(self) -> Self {
        assert!(self.is_sound(), "{self:?} is no window");
        self
    }

    fn is_sound(&self) -> bool {
        let groups = self.groups as usize;
        let shares = self.shares.iter().map(|share| (share.shard, share.quota));
        let has_groups = groups > 0 && groups <= self.shares.len().max(1);
        are_sound(self.cuts, shares, &self.lenders) && has_groups
    }

    /// Whether no position is known in advance.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.shares.is_empty()
    }

    fn group(&self, rank: usize) -> u32 {
        u32::try_from(rank).expect("a log has few shards") % self.groups
    }

    fn cut_size(&self, group: u32) -> u64 {
        let of_group = self.shares.iter().enumerate().filter(|(rank, _)| self.group(*rank) == group);
        of_group.map(|(_, share)| u64::from(share.quota)).sum()
    }

    /// First position of the turns in cut `cut`. For `cut` = `cuts`: the end of the last turns.
    fn turns_from(&self, cut: u32) -> Position {
        let round: u64 = self.shares.iter().map(|share| u64::from(share.quota)).sum();
        let begun: u64 = (0..cut % self.groups).map(|group| self.cut_size(group)).sum();
        self.base + u64::from(cut / self.groups) * round + begun
    }

    /// First position of cut `cut`. For `cut` = `cuts`: the end of the window. `None`: the window
    /// is free.
    #[must_use]
    pub fn cut_from(&self, cut: u32) -> Option<Position> {
        let room = if cut < self.cuts {
            0
        } else {
            self.lenders.iter().map(|lender| u64::from(lender.room())).sum()
        };
        (!self.is_free()).then(|| self.turns_from(cut) + room)
    }

    /// First position behind the window. `None`: the window is free.
    #[must_use]
    pub fn end(&self) -> Option<Position> {
        self.cut_from(self.cuts)
    }

    fn turns(&self, rank: usize, cut: u32) -> u64 {
        let group = self.group(rank);
        cut.checked_sub(group).map_or(0, |since| u64::from(since / self.groups) + 1)
    }

    /// Length of a local log that meets the turns in the cuts up to and including this one.
    fn length_at(&self, rank: usize, cut: u32) -> u64 {
        let Share { quota, index, .. } = self.shares[rank];
        index + self.turns(rank, cut) * u64::from(quota)
    }

    /// Like `length_at`. `None`: the shard has no share.
    pub(super) fn length(&self, shard: ShardId, cut: u32) -> Option<u64> {
        Some(self.length_at(self.rank(shard)?, cut))
    }

    /// Like `length`, for the cuts before this one.
    pub(super) fn length_before(&self, shard: ShardId, cut: u32) -> Option<u64> {
        let rank = self.rank(shard)?;
        Some(cut.checked_sub(1).map_or(self.shares[rank].index, |last| self.length_at(rank, last)))
    }

    /// Number of cuts that cover a local log of this length, at most all. `None`: the shard has no
    /// share.
    pub(super) fn needed(&self, shard: ShardId, length: u64) -> Option<u32> {
        let begun = length > self.shares[self.rank(shard)?].index;
        let last = if begun { self.awaited(shard, length - 1)?.saturating_add(1) } else { 0 };
        Some(last.min(self.cuts))
    }

    /// First cut whose turn a local log of this length does not meet. A result of `cuts` or more:
    /// it meets all.
    pub(super) fn awaited(&self, shard: ShardId, length: u64) -> Option<u32> {
        let rank = self.rank(shard)?;
        let Share { quota, index, .. } = self.shares[rank];
        let met = length.saturating_sub(index) / u64::from(quota);
        let cut = u64::from(self.group(rank)) + met * u64::from(self.groups);
        Some(u32::try_from(cut).unwrap_or(u32::MAX))
    }

    /// Position of an index of the shard's local log. `None`: no turn of this window contains it.
    pub(super) fn position(&self, shard: ShardId, index: u64) -> Option<Position> {
        let cut = self.awaited(shard, index).filter(|cut| *cut < self.cuts)?;
        let mut position = self.turns_from(cut);
        for turn in self.turns_in(cut) {
            if turn.shard == shard {
                return Some(position + index.checked_sub(turn.index)?);
            }
            position += u64::from(turn.quota);
        }
        None
    }

    pub(super) fn turns_in(&self, cut: u32) -> impl Iterator<Item = Turn> {
        let in_cut = move |(rank, share): (usize, &Share)| {
            (self.group(rank) == cut % self.groups).then(|| Turn {
                shard: share.shard,
                index: self.length_at(rank, cut) - u64::from(share.quota),
                quota: share.quota,
            })
        };
        self.shares.iter().enumerate().filter_map(in_cut)
    }

    /// Quotas of all shards, also of lenders.
    pub(super) fn quotas(&self) -> impl Iterator<Item = (ShardId, u32)> {
        let kept = self.shares.iter().map(|share| (share.shard, share.quota));
        kept.chain(self.lenders.iter().map(|lender| (lender.shard, lender.quota)))
    }

    fn rank(&self, shard: ShardId) -> Option<usize> {
        self.shares.binary_search_by_key(&shard, |share| share.shard).ok()
    }
}

/// Progress of a view's windows.
///
/// Invariant: `made < now.cuts`; `next` follows `now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The window of the next cut.
    pub now: Window,
    /// Number of its cuts already made.
    pub made: u32,
    /// The next window, once decided.
    pub next: Option<NextWindow>,
}

wire_struct! { Windows { now, made, next } }

impl Windows {
    pub(super) fn begin(first: Window) -> Self {
        Self { now: first, made: 0, next: None }
    }

    /// The next window, if its start is known: each shard that keeps a quota in it keeps one now,
    /// which fixes its first index.
    pub(super) fn foreseen(&self) -> Option<Window> {
        let (next, base) = (self.next.as_ref()?, self.now.end()?);
        let last = |shard| self.now.length(shard, self.now.cuts - 1);
        let is_known = next.keepers.iter().all(|(shard, _)| last(*shard).is_some());
        is_known.then(|| next.begin(self.now.number + 1, base, |shard| last(shard).unwrap_or(0)))
    }

    /// The deliberate defect: applies smaller next quotas at once.
    pub(super) fn use_next_quotas(&mut self) {
        let Some(next) = self.next.as_ref().filter(|next| next.keepers.len() == self.now.shares.len()) else {
            return;
        };
        let shares = self.now.shares.iter_mut().zip(&next.keepers);
        for (share, (_, quota)) in shares.filter(|(share, (_, quota))| *quota < share.quota) {
            let less = u64::from(self.made) * u64::from(share.quota - quota);
            (share.quota, share.index) = (*quota, share.index + less);
            self.now.base += less;
        }
    }

    pub(super) fn quotas(&self) -> impl Iterator<Item = (ShardId, u32)> {
        let next = self.next.iter().flat_map(|next| {
            let lent = next.lenders.iter().map(|lender| (lender.shard, lender.quota));
            next.keepers.iter().copied().chain(lent)
        });
        self.now.quotas().chain(next)
    }

    pub(super) fn take(&mut self, cut: &Cut) {
        let Some(course) = &cut.course else { return };
        let follows =
            course.window == self.now.number && self.made < course.made && course.made <= self.now.cuts;
        assert!(follows, "{course:?} follows {self:?}");
        let at_its_place = self.now.cut_from(course.made).is_none_or(|from| from == cut.end());
        assert!(at_its_place, "a cut ends at {} in {self:?}", cut.end());
        if course.next.is_some() {
            self.next.clone_from(&course.next);
        }
        self.made = course.made;
        if self.made == self.now.cuts {
            let foreseen = self.foreseen();
            let next = self.next.take().expect("the next window is decided before the last cut of this one");
            let next = next.begin(self.now.number + 1, cut.end(), |shard| cut.length(shard));
            assert!(foreseen.is_none_or(|foreseen| foreseen == next), "{next:?} follows {self:?}");
            (self.now, self.made) = (next, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::cuts::cut::Course;

    fn window(groups: u32, shares: &[(u32, u64)], cuts: u32, base: u64) -> Window {
        let shares = (0..).zip(shares);
        let shares = shares.map(|(shard, (quota, index))| Share {
            shard: ShardId(shard),
            quota: *quota,
            index: *index,
        });
        let (base, shares) = (Position(base), shares.collect());
        Window { number: 3, base, cuts, groups, shares, lenders: vec![] }.asserted()
    }

    /// Position of each index, end of the window, and length of each local log then, written slot
    /// by slot.
    type Slots = (BTreeMap<(ShardId, u64), Position>, Position, BTreeMap<ShardId, u64>);

    fn slots(window: &Window) -> Slots {
        let mut next: BTreeMap<ShardId, u64> =
            window.shares.iter().map(|share| (share.shard, share.index)).collect();
        let (mut slots, mut position) = (BTreeMap::new(), window.base);
        for cut in 0..window.cuts {
            for (rank, share) in (0..).zip(&window.shares) {
                if rank % window.groups != cut % window.groups {
                    continue;
                }
                for _ in 0..share.quota {
                    let index = next.get_mut(&share.shard).expect("every shard is there");
                    slots.insert((share.shard, *index), position);
                    *index += 1;
                    position += 1;
                }
            }
        }
        (slots, position, next)
    }

    prop_compose! {
        fn any_window()(shares in prop::collection::vec((1..5_u32, 0..9_u64), 1..6), cuts in 1..10_u32, base in 0..50_u64)
            (groups in 1..=shares.len().min(3) as u32, shares in Just(shares), cuts in Just(cuts), base in Just(base))
            -> Window {
            window(groups, &shares, cuts, base)
        }
    }

    proptest! {
        #[test]
        fn positions_are_those_of_slots_written_one_after_the_other(window in any_window()) {
            let (slots, end, lengths) = slots(&window);
            prop_assert_eq!(window.end(), Some(end));
            for (&(shard, index), position) in &slots {
                prop_assert_eq!(window.position(shard, index), Some(*position));
            }
            for (shard, length) in &lengths {
                prop_assert_eq!(window.length(*shard, window.cuts - 1), Some(*length));
                prop_assert_eq!(window.position(*shard, *length), None);
            }
            let before = window.shares.iter().filter(|share| share.index > 0);
            for share in before {
                prop_assert_eq!(window.position(share.shard, share.index - 1), None);
            }
            let stranger = ShardId(99);
            prop_assert_eq!(window.position(stranger, 0), None);
        }

        #[test]
        fn a_shard_is_waited_for_until_it_has_met_its_turns(window in any_window()) {
            for (cut, share) in (0..window.cuts).flat_map(|cut| window.shares.iter().map(move |share| (cut, share))) {
                let length = window.length(share.shard, cut).expect("it has a share");
                prop_assert!(window.awaited(share.shard, length) > Some(cut));
                if length > share.index {
                    prop_assert!(window.awaited(share.shard, length - 1) <= Some(cut));
                }
            }
        }

        #[test]
        fn the_turns_of_all_cuts_are_all_slots_and_a_window_follows(window in any_window(), quota in 1..4_u32) {
            let mut position = window.base;
            for cut in 0..window.cuts {
                prop_assert_eq!(window.cut_from(cut), Some(position));
                for turn in window.turns_in(cut) {
                    for at in 0..u64::from(turn.quota) {
                        prop_assert_eq!(window.position(turn.shard, turn.index + at), Some(position));
                        position += 1;
                    }
                }
            }
            let (_, end, lengths) = slots(&window);
            let keepers = window.shares.iter().map(|share| (share.shard, share.quota + quota)).collect();
            let next = NextWindow { cuts: 4, keepers, lenders: vec![] };
            let windows = Windows { now: window.clone(), made: 0, next: Some(next) };
            let next = windows.foreseen().expect("all shards keep a quota");
            prop_assert_eq!((next.number, next.base), (window.number + 1, end));
            for (share, before) in next.shares.iter().zip(&window.shares) {
                prop_assert_eq!((share.index, share.quota), (lengths[&share.shard], before.quota + quota));
            }
        }
    }

    #[test]
    fn the_example_of_the_paper_and_a_staggered_one() {
        let together = window(1, &[(2, 0), (3, 0), (2, 0)], 10, 0);
        assert_eq!(together.position(ShardId(1), 3), Some(Position(9)));
        assert_eq!(together.cut_from(2), Some(Position(14)));
        let staggered = window(2, &[(2, 0), (3, 0), (2, 0)], 10, 0);
        assert_eq!((staggered.cut_size(0), staggered.cut_size(1)), (4, 3));
        assert_eq!(staggered.cut_from(3), Some(Position(11)));
        assert_eq!(staggered.position(ShardId(2), 2), Some(Position(9)));
    }

    #[test]
    fn lenders_have_room_behind_the_last_turns_and_where_they_keep_again_is_not_known() {
        let lender = Lender { shard: ShardId(7), quota: 20 };
        assert_eq!((lender.room(), Lender { quota: 2, ..lender }.room()), (320, 256));
        let now = Window { lenders: vec![lender], ..window(1, &[(2, 0), (3, 0)], 4, 0) };
        assert_eq!((now.cut_from(3), now.end()), (Some(Position(15)), Some(Position(340))));
        let of = |keepers: &[(u32, u32)]| NextWindow {
            cuts: 4,
            keepers: keepers.iter().map(|(shard, quota)| (ShardId(*shard), *quota)).collect(),
            lenders: vec![],
        };
        let mut windows = Windows { now, made: 3, next: Some(of(&[(0, 2), (1, 3)])) };
        assert_eq!(windows.foreseen().map(|next| next.base), Some(Position(340)));
        windows.next = Some(of(&[(0, 2), (1, 3), (7, 9)]));
        assert_eq!(windows.foreseen(), None);

        let mut last = Cut::empty(Position(15));
        last.pad(325);
        last.lengths = vec![(ShardId(0), 8), (ShardId(1), 12), (ShardId(7), 6)];
        last.course = Some(Course { window: 3, made: 4, next: None });
        windows.take(&last);
        assert_eq!(windows.now.shares[2], Share { shard: ShardId(7), quota: 9, index: 6 });
        assert_eq!((windows.now.number, windows.now.base, windows.made), (4, Position(340), 0));
    }

    #[test]
    fn shards_take_turns_where_there_are_many() {
        let first = |shards: u32| {
            let keepers: Vec<_> = (0..shards).map(|shard| (ShardId(shard), 1)).collect();
            Window::first(Position::ZERO, 10, &keepers)
        };
        let groups = [1, 6, 7, 12, 13].map(|shards| first(shards).groups);
        assert_eq!(groups, [1, 1, 2, 2, 3]);
    }
}
