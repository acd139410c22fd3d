//! The positions that a closing cut gives to the rests of the shards, the records that no cut
//! covers.
//!
//! Without windows it is one cut of all rests, shard by shard. With windows it continues the cuts
//! of the known windows, up to the last that contains a record of a rest. In these, every shard
//! keeps its slots, filled or empty.
//!
//! ```text
//! quotas 2 (shard a) and 3 (b); cut 0 is made; the rests reach to index 4 of a and index 7 of b:
//!   cut           1             2
//!   position   5 6 7 8 9   10 11 12 13 14
//!   shard      a a b b b    a  a  b  b  b
//!   index      2 3 3 4 5    -  -  6  -  -
//! ```
//!
//! **Why no prediction moves.** A primary predicts index x of its local log once it knows the
//! window and each backup durably has everything up to x. So x is in the rest while a replica of
//! the shard knows its local log: local logs of a shard are prefixes of the primary's, and a
//! restarted replica reports its records. The cut of x is filled here, since replicas receive a
//! window only when all members of the layer know it. The position of a slot depends on the window
//! alone. Records outside the known windows were not predicted, and follow at the end.
//!
//! If no replica knows the order of a shard, its slots stay empty: its own predictions are lost,
//! those of other shards hold. Two claims may close differently; only one counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::{Position, ShardId};

use super::common::Common;
use crate::cuts::cut::Cut;
use crate::cuts::free::{Filter, take};
use crate::cuts::shard::Submitted;
use crate::cuts::window::{Turn, Window, Windows};
use crate::mutation::Mutation;
use crate::parts::Sessions;
use crate::parts::junk::is_of_nobody;

/// Makes the parts of a closing cut, each with about as many names as a cut may have.
pub(super) struct Content<'a> {
    rests: &'a BTreeMap<ShardId, Common>,
    filter: Filter,
    sessions: &'a mut Sessions,
    parts: VecDeque<Cut>,
    part: Cut,
    /// Shards with a record that some replica lacks. Their part of the closing cut ends before it.
    ended: BTreeSet<ShardId>,
}

/// Treatment of the positions of skipped names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// Skipped positions stay empty.
    Keep,
    /// The next names get the skipped positions.
    Skip,
}

impl<'a> Content<'a> {
    /// `sessions` contain the names ordered so far, and record new ones.
    pub(super) fn new(
        first: Position,
        rests: &'a BTreeMap<ShardId, Common>,
        filter: Filter,
        sessions: &'a mut Sessions,
    ) -> Self {
        let (parts, part) = (VecDeque::new(), Cut::empty(first));
        Self { rests, filter, sessions, parts, part, ended: BTreeSet::new() }
    }

    /// All parts. `decided` returns the decided length of a shard's local log.
    pub(super) fn parts(
        mut self,
        decided: impl Fn(ShardId) -> u64,
        windows: Option<&Windows>,
    ) -> VecDeque<Cut> {
        let mut covered: BTreeMap<ShardId, u64> =
            self.rests.keys().map(|shard| (*shard, decided(*shard))).collect();
        if let Some(windows) = windows {
            self.fill_windows(windows, &mut covered);
        }
        let rests = self.rests;
        let leaves_rest = windows.is_some() && self.filter.mutates(Mutation::ClosedAtSlowest);
        for (shard, common) in rests.iter().filter(|_| !leaves_rest) {
            for names in common.undecided(covered[shard]) {
                if !is_of_nobody(names.ids.session) && !self.ended.contains(shard) {
                    self.order(*shard, common, names, Passed::Skip);
                }
            }
        }
        if self.part.end() > self.part.from {
            self.parts.push_back(self.part);
        }
        self.parts
    }

    /// Continues the windows' cuts up to the last one with a record of a rest.
    fn fill_windows(&mut self, windows: &Windows, covered: &mut BTreeMap<ShardId, u64>) {
        let ahead = [(Some(windows.now.clone()), windows.made), (windows.foreseen(), 0)];
        for (window, made) in ahead {
            let Some(window) = window.filter(|window| !window.is_free()) else { return };
            let end = self.last_needed(&window).max(made);
            for cut in made..end {
                window.turns_in(cut).for_each(|turn| self.fill(turn));
            }
            for (shard, covered) in covered.iter_mut() {
                let filled = window.length_before(*shard, end);
                *covered = filled.map_or(*covered, |filled| filled.max(*covered));
            }
            if end < window.cuts {
                return;
            }
            for lender in &window.lenders {
                let index = covered.get(&lender.shard).copied().unwrap_or(0);
                self.fill(Turn { shard: lender.shard, index, quota: lender.room() });
                covered.insert(lender.shard, index + u64::from(lender.room()));
            }
        }
    }

    /// Number of the window's cuts that cover all rests.
    fn last_needed(&self, window: &Window) -> u32 {
        let needed = window.shares.iter().filter_map(|share| {
            let length = self.rests.get(&share.shard).and_then(Common::length);
            window.needed(share.shard, length.unwrap_or(0))
        });
        let at_slowest = self.filter.mutates(Mutation::ClosedAtSlowest);
        if at_slowest { needed.min() } else { needed.max() }.unwrap_or(0)
    }

    /// Gives a turn its positions, with padding for missing names.
    fn fill(&mut self, turn: Turn) {
        let (shard, end) = (turn.shard, turn.index + u64::from(turn.quota));
        let Some(common) = self.rests.get(&shard) else { return self.pad(end - turn.index) };
        let (first, known) = common.within(turn.index, end);
        self.pad(first.min(end) - turn.index);
        let mut index = first.min(end);
        for names in known {
            index += names.ids.count;
            match is_of_nobody(names.ids.session) || self.ended.contains(&shard) {
                true => self.pad(names.ids.count),
                false => self.order(shard, common, names, Passed::Keep),
            }
        }
        self.pad(end - index);
    }

    fn pad(&mut self, count: u64) {
        if !self.filter.mutates(Mutation::ClosedUnpadded) {
            self.make_room();
            self.part.pad(count);
        }
    }

    /// Orders new names. The shard's part ends before the first record that some replica lacks,
    /// since a session's records keep their order.
    fn order(&mut self, shard: ShardId, common: &Common, names: Submitted, passed: Passed) {
        self.make_room();
        let new = self.filter.new_of(names, &self.part, self.sessions);
        let Some(new) = new else { return self.pass_over(names, passed) };
        self.pass_over(names.head(new.ids.first - names.ids.first), passed);
        let held = common.held_of(new);
        if held.ids.count > 0 {
            take((shard, held), &mut self.part, self.sessions);
        }
        if held != new {
            self.ended.insert(shard);
        }
        self.pass_over(names.tail(held.ids.end() - names.ids.first), passed);
    }

    fn pass_over(&mut self, names: Submitted, passed: Passed) {
        if passed == Passed::Keep {
            self.filter.pass_over(names, &mut self.part);
        }
    }

    fn make_room(&mut self) {
        if self.part.names.len() >= self.filter.most_names() {
            let next = Cut::empty(self.part.end());
            self.parts.push_back(std::mem::replace(&mut self.part, next));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use seriatim_model::{IdRun, LogConfig, Order, RecordId, SessionId};

    use super::*;
    use crate::cuts::shard::Rest;
    use crate::cuts::window::{Lender, NextWindow, Share};
    use crate::mutation::Options;

    #[derive(Clone, Debug)]
    struct Ended {
        windows: Windows,
        /// `log`: records (`true`) and padding. All replicas have the first `everywhere` entries; a
        /// cut decides the first `decided`.
        shards: Vec<Shard>,
    }

    #[derive(Clone, Debug)]
    struct Shard {
        log: Vec<bool>,
        decided: u64,
        everywhere: u64,
        /// First index and length of each answering replica.
        answers: Vec<(u64, u64)>,
    }

    impl Shard {
        fn id(&self, shard: u32, index: u64) -> Option<RecordId> {
            let session = SessionId(u128::from(shard) + 1);
            let before = self.log[..index as usize].iter().filter(|is_record| **is_record).count() as u64;
            self.log[index as usize].then_some(RecordId { session, number: before })
        }

        fn names(&self, shard: u32, from: u64, end: u64) -> Vec<Submitted> {
            let name = |index| {
                let padding = RecordId { session: SessionId::NOBODY, number: index };
                let RecordId { session, number: first } = self.id(shard, index).unwrap_or(padding);
                Submitted { ids: IdRun { session, first, count: 1 }, lowest: 0 }
            };
            (from..end).map(name).collect()
        }
    }

    /// Shard and index of each remaining slot, computed slot by slot.
    fn slots(windows: &Windows) -> Vec<(ShardId, u64)> {
        let mut slots = vec![];
        let mut lent = 1000;
        let all = [(Some(windows.now.clone()), windows.made), (windows.foreseen(), 0)];
        for (window, made) in all.into_iter().filter_map(|(window, made)| Some((window?, made))) {
            let mut next: BTreeMap<ShardId, u64> =
                window.shares.iter().map(|share| (share.shard, share.index)).collect();
            for cut in 0..window.cuts {
                for (rank, share) in (0..).zip(&window.shares) {
                    if rank % window.groups == cut % window.groups {
                        let index = next.get_mut(&share.shard).expect("it has a share");
                        let turn = *index..*index + u64::from(share.quota);
                        *index = turn.end;
                        slots.extend(turn.filter(|_| cut >= made).map(|index| (share.shard, index)));
                    }
                }
            }
            for lender in &window.lenders {
                let room = lent..lent + u64::from(lender.room());
                lent = room.end;
                slots.extend(room.map(|index| (ShardId::NOBODY, index)));
            }
        }
        slots
    }

    fn rests(ended: &Ended) -> BTreeMap<ShardId, Common> {
        let mut rests: BTreeMap<ShardId, Common> = BTreeMap::new();
        for (number, shard) in (0..).zip(&ended.shards) {
            for (from, length) in &shard.answers {
                let names = shard.names(number, *from, *length);
                rests.entry(ShardId(number)).or_default().add(Rest::LocalLog { from: *from, names });
            }
        }
        rests
    }

    /// Owner and name of each position of the closing cut. `None`: it is empty.
    fn closed(ended: &Ended, options: Options) -> Vec<Option<(ShardId, RecordId)>> {
        let config = LogConfig { order: Order::Belfast, ..LogConfig::default() };
        let (mut sessions, rests) = (Sessions::default(), rests(ended));
        for (number, shard) in (0..).zip(&ended.shards) {
            let records = shard.log[..shard.decided as usize].iter().filter(|is_record| **is_record);
            sessions.admit(SessionId(number + 1), records.count() as u64, 0, Position::ZERO);
        }
        let content = Content::new(Position(100), &rests, Filter::new(&config, options), &mut sessions);
        let decided = |shard: ShardId| ended.shards[shard.0 as usize].decided;
        let parts = content.parts(decided, Some(&ended.windows));
        let names = parts.iter().flat_map(|part| &part.names);
        let singly = names.flat_map(|(shard, names)| names.ids.ids().map(|id| (*shard, id)));
        singly.map(|(shard, id)| (shard != ShardId::NOBODY).then_some((shard, id))).collect()
    }

    /// The first prediction that fails, of shards with a replica left.
    fn moved(ended: &Ended, closed: &[Option<(ShardId, RecordId)>]) -> Option<(ShardId, u64)> {
        let slots = slots(&ended.windows);
        let predicted = slots.iter().enumerate().filter(|(_, (shard, index))| {
            let of = ended.shards.get(shard.0 as usize);
            of.is_some_and(|of| !of.answers.is_empty() && *index < of.everywhere && of.log[*index as usize])
        });
        let mut predicted = predicted.map(|(at, slot)| (at, *slot));
        let is_wrong = |(at, (shard, index)): &(usize, (ShardId, u64))| {
            let id = ended.shards[shard.0 as usize].id(shard.0, *index);
            closed.get(*at).copied().flatten() != id.map(|id| (*shard, id))
        };
        predicted.find(is_wrong).map(|(_, slot)| slot)
    }

    prop_compose! {
        fn shard(decided: u64)
            (log in prop::collection::vec(any::<bool>(), decided as usize + 9), more in (0..9_u64, 0..9_u64, 0..9_u64),
             from in (0..=decided, 0..=decided), answers in 0..3_usize) -> Shard {
            let (one, other) = (decided + more.0, decided + more.1);
            let everywhere = one.min(other).min(decided + more.2);
            Shard { log, decided, everywhere, answers: [(from.0, one), (from.1, other)][..answers].to_vec() }
        }
    }

    prop_compose! {
        fn windows()
            (shares in prop::collection::vec((1..4_u32, 0..5_u64), 1..4), cuts in 2..5_u32, staggers in any::<bool>(),
             lends in any::<bool>(), next in prop::option::of(prop::collection::vec(1..4_u32, 3)))
            (made in 0..cuts, shares in Just(shares), cuts in Just(cuts), staggers in Just(staggers), lends in Just(lends),
             next in Just(next)) -> Windows {
            let lenders = Vec::from_iter(lends.then_some(Lender { shard: ShardId(7), quota: 1 }));
            let next = next.map(|quotas| NextWindow {
                cuts,
                keepers: (0..).map(ShardId).zip(quotas).take(shares.len()).collect(),
                lenders: vec![],
            });
            let groups = if staggers && shares.len() > 1 { 2 } else { 1 };
            let share = |(shard, (quota, index))| Share { shard: ShardId(shard), quota, index };
            let shares = (0..).zip(shares).map(share).collect();
            let mut now = Window { number: 0, base: Position::ZERO, cuts, groups, shares, lenders };
            // The cuts made so far end at 100.
            let before = now.cut_from(made).expect("it is not free");
            now.base = Position(100 - before.0);
            Windows { now, made, next }
        }
    }

    fn ended() -> impl Strategy<Value = Ended> {
        windows().prop_flat_map(|windows| {
            let decided =
                |share: &Share| windows.now.length_before(share.shard, windows.made).expect("it has a share");
            let shards: Vec<_> = windows.now.shares.iter().map(decided).map(shard).collect();
            (Just(windows), shards).prop_map(|(windows, shards)| Ended { windows, shards })
        })
    }

    proptest! {
        /// INV1: a shard with a replica left keeps its predicted positions.
        #[test]
        fn no_prediction_moves(ended in ended()) {
            let closed = closed(&ended, Options::default());
            prop_assert_eq!(moved(&ended, &closed), None, "{:?}", closed);
        }

        #[test]
        fn everything_that_is_left_is_covered(ended in ended()) {
            let closed = closed(&ended, Options::default());
            for (number, shard) in (0..).zip(&ended.shards) {
                let length = shard.answers.iter().map(|(_, length)| *length).min().unwrap_or(0);
                let left: Vec<RecordId> =
                    (shard.decided..length.max(shard.decided)).filter_map(|index| shard.id(number, index)).collect();
                let of_shard = closed.iter().flatten().filter(|(owner, _)| *owner == ShardId(number));
                prop_assert_eq!(of_shard.map(|(_, id)| *id).collect::<Vec<_>>(), left);
            }
        }
    }

    #[test]
    fn closing_at_the_slowest_or_without_padding_moves_predictions() {
        let keepers = [(ShardId(0), 1), (ShardId(1), 2)];
        let windows = Windows::begin(Window::first(Position(100), 4, &keepers));
        let shard = |log: &[bool]| {
            let length = log.len() as u64;
            Shard { log: log.to_vec(), decided: 0, everywhere: length, answers: vec![(0, length)] }
        };
        let ended = Ended { windows, shards: vec![shard(&[true]), shard(&[true, false, true, true, true])] };
        assert_eq!(moved(&ended, &closed(&ended, Options::default())), None);
        for mutation in [Mutation::ClosedAtSlowest, Mutation::ClosedUnpadded] {
            let options = Options { mutation: Some(mutation), ..Options::default() };
            assert!(moved(&ended, &closed(&ended, options)).is_some(), "{mutation:?}");
        }
    }
}
