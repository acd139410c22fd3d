//! The closing cut of a view: the chosen member of the ordering layer gives positions to whatever the surviving replicas of
//! each shard hold that no cut covers (docs/decisions/2026-11-26-closing-cuts.md).
//!
//! ```text
//! chosen                      replicas of the view that ends
//!   |-- AskRest ------------------>|
//!   |<- RestIs --------------------|    the ids of what no cut covers
//!   |-- Closing ------------------>|    one part after another, as versions of the claim
//!   |<- Bound ---------------------|    it is in all of their stores
//! ```
//!
//! It covers of each shard what all of these replicas have, in the order of the local log, as far as one of them knows that.
//! The replicas that answer differ from attempt to attempt, and so may the closing cuts: only that of the claim which becomes a
//! view counts, and a claim has one, since a member makes none for a claim that it was sealed for before it restarted.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::{
    Address, Endpoint, Member, NodeId, Position, ShardId, ShardMembers, Time, ViewNumber, limits,
};

use super::ShardMessage;
use super::cut::Cut;
use super::free::{Filter, take};
use super::pushing::Pusher;
use super::shard::{Rest, Submitted};
use crate::parts::{Backoff, IdSet, Sessions};
use crate::roles::RoleEffect;

/// The longest wait before a replica is asked again.
const ASK_MOST: Duration = Duration::from_secs(1);

/// A closing cut under way.
///
/// Invariant: its parts follow each other from `first` on, and one is pushed when those before it are on all replicas that
/// are to hold them. So a store that has the last has all.
#[derive(Clone, Debug)]
pub(super) struct ClosingCut {
    claim: ViewNumber,
    of: ViewNumber,
    /// The shards of the next view, and those of them that the view which ends had.
    shards: Vec<ShardMembers>,
    former: Vec<ShardId>,
    first: Position,
    /// The replicas that answered, each with whether it was a member of the view that ends.
    answered: BTreeMap<(ShardId, NodeId), bool>,
    rests: BTreeMap<ShardId, Common>,
    asks: Backoff,
    /// Once all have answered.
    parts: Option<Parts>,
}

/// The records of a shard that all of its replicas have, as far as they have answered.
#[derive(Clone, Debug, Default)]
struct Common {
    /// The part of the local log that all those have that know its order: the index of its first record, and ids.
    ordered: Option<(u64, Vec<Submitted>)>,
    /// The records of each of the others.
    unordered: Vec<IdSet>,
}

/// The parts of a closing cut.
#[derive(Clone, Debug)]
struct Parts {
    unsent: VecDeque<Cut>,
    pusher: Pusher,
    end: Position,
}

impl ClosingCut {
    /// Asks the replicas of the next view, which has these shards, for their rests of view `of`. These get positions from
    /// `first` on.
    pub(super) fn new(
        now: Time,
        (claim, of): (ViewNumber, ViewNumber),
        (shards, former): (&[ShardMembers], Vec<ShardId>),
        first: Position,
        out: &mut Vec<RoleEffect>,
    ) -> Self {
        let asks = Backoff::new(now, limits::RESEND_AFTER, ASK_MOST);
        let (answered, rests, shards) = (BTreeMap::new(), BTreeMap::new(), shards.to_vec());
        let mut closing = Self { claim, of, shards, former, first, answered, rests, asks, parts: None };
        closing.ask(now, out);
        closing
    }

    /// The replicas that have not answered.
    fn awaited<'a>(&'a self) -> impl Iterator<Item = (ShardId, NodeId)> + 'a {
        let of =
            |members: &'a ShardMembers| members.replicas.iter().map(|member| (members.shard, member.node));
        self.shards.iter().flat_map(of).filter(|replica| !self.answered.contains_key(replica))
    }

    /// The replicas that were members of the view that ends: they have all that is covered of their shard.
    fn survivors(&self) -> Vec<(ShardId, Vec<Member>)> {
        let of = |members: &ShardMembers| {
            let survives = |member: &&Member| self.answered.get(&(members.shard, member.node)) == Some(&true);
            (members.shard, members.replicas.iter().filter(survives).copied().collect())
        };
        self.shards.iter().map(of).collect()
    }

    fn ask(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        self.asks.tried(now);
        for (shard, node) in self.awaited() {
            let message = ShardMessage::AskRest { view: self.claim, of: self.of };
            let to = Address::Node(node, Endpoint::Shard(shard));
            out.push(RoleEffect::Send { to, message: message.into() });
        }
    }

    /// A replica says what it has. Its first answer counts: what it says later may be more.
    pub(super) fn note_rest(&mut self, replica: (ShardId, NodeId), rest: Option<Rest>) {
        if self.awaited().any(|awaited| awaited == replica) {
            self.answered.insert(replica, rest.is_some());
            rest.into_iter().for_each(|rest| self.rests.entry(replica.0).or_default().add(rest));
        }
    }

    /// Makes the cut as soon as everybody has answered, and pushes what is next of it. `decided` says how much of each
    /// shard's local log the cuts decide that the member holds; `sessions` take note of what is ordered.
    pub(super) fn go_on(
        &mut self,
        now: Time,
        decided: impl Fn(ShardId) -> u64,
        (filter, sessions): (Filter, &mut Sessions),
        out: &mut Vec<RoleEffect>,
    ) {
        if self.parts.is_none() && self.awaited().next().is_none() {
            let survivors = self.survivors();
            // Nobody is left of such a shard: its loss was accepted. Its new replicas could get a closing cut from no one, and
            // would lack that for ever.
            let is_lost =
                |(shard, members): &(ShardId, Vec<Member>)| members.is_empty() && self.former.contains(shard);
            let unsent = match survivors.iter().any(is_lost) {
                true => VecDeque::new(),
                false => self.cut(decided, filter, sessions),
            };
            let end = unsent.back().map_or(self.first, Cut::end);
            let routes = survivors.iter().map(|(shard, members)| (*shard, &members[..]));
            let pusher = Pusher::closing(self.claim, routes, self.first);
            self.parts = Some(Parts { unsent, pusher, end });
        }
        let Some(Parts { unsent, pusher, .. }) = &mut self.parts else { return };
        while pusher.len() == 0
            && let Some(part) = unsent.pop_front()
        {
            pusher.push(now, part, out);
        }
    }

    /// The parts of the cut, each with as many ids as a cut has at most.
    fn cut(
        &self,
        decided: impl Fn(ShardId) -> u64,
        filter: Filter,
        sessions: &mut Sessions,
    ) -> VecDeque<Cut> {
        let mut parts = VecDeque::new();
        let mut part = Cut::empty(self.first);
        for (shard, common) in &self.rests {
            for told in common.undecided(decided(*shard)) {
                if part.names.len() >= filter.most_names() {
                    let next = Cut::empty(part.end());
                    parts.push_back(std::mem::replace(&mut part, next));
                }
                let Some(new) = filter.new_of(told, &part, sessions) else { continue };
                let held = common.held_of(new);
                if held.ids.count > 0 {
                    take((*shard, held), &mut part, sessions);
                }
                if held != new {
                    // Nothing behind it in the local log is covered: a session's records keep their order.
                    break;
                }
            }
        }
        if part.end() > part.from {
            parts.push_back(part);
        }
        parts
    }

    /// A shard holds a part of it.
    pub(super) fn note_bound(&mut self, shard: ShardId, batch: Position) {
        if let Some(parts) = &mut self.parts {
            parts.pusher.note_bound(shard, batch);
        }
    }

    /// Below it, everything is on all replicas that are to hold it.
    pub(super) fn bound(&self) -> Position {
        self.parts.as_ref().map_or(self.first, |parts| parts.pusher.bound())
    }

    /// Where it ends, once it is on all replicas that are to hold it.
    pub(super) fn end(&self) -> Option<Position> {
        let parts = self.parts.as_ref()?;
        (parts.unsent.is_empty() && parts.pusher.len() == 0).then_some(parts.end)
    }

    /// Asks and sends again what was not answered in time.
    pub(super) fn resend(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        match &mut self.parts {
            Some(parts) => parts.pusher.resend(now, out),
            None if self.asks.is_due(now) => self.ask(now, out),
            None => {}
        }
    }

    /// When something is due to be asked or sent again.
    pub(super) fn deadline(&self) -> Option<Time> {
        match &self.parts {
            Some(parts) => parts.pusher.deadline(),
            None => Some(self.asks.at()),
        }
    }
}

impl Common {
    /// One more replica has this.
    fn add(&mut self, rest: Rest) {
        match rest {
            Rest::LocalLog { from, names } => {
                self.ordered = Some(match self.ordered.take() {
                    Some(known) => common_part(known, (from, names)),
                    None => (from, names),
                });
            }
            Rest::Unordered { names } => self.unordered.push(names.into_iter().collect()),
        }
    }

    /// The ids of the local log that no cut is known to decide about: replicas that let go of something knew that it is
    /// decided, and the member may hold cuts that they were not told of.
    fn undecided(&self, decided: u64) -> Vec<Submitted> {
        let Some((from, names)) = &self.ordered else { return vec![] };
        part_of((*from, names), decided, u64::MAX)
    }

    /// The first of these ids, as far as the records are in all stores.
    fn held_of(&self, names: Submitted) -> Submitted {
        let gaps = self.unordered.iter().filter_map(|held| held.missing(names.ids).first().copied());
        let end = gaps.map(|gap| gap.first).min().unwrap_or(names.ids.end());
        names.head(end - names.ids.first)
    }
}

/// The part of a local log that two replicas of its shard have.
fn common_part(one: (u64, Vec<Submitted>), other: (u64, Vec<Submitted>)) -> (u64, Vec<Submitted>) {
    let from = one.0.max(other.0);
    let end = length(&one).min(length(&other)).max(from);
    let part = part_of((one.0, &one.1), from, end);
    let same = part_of((other.0, &other.1), from, end);
    assert!(singly(&same).eq(singly(&part)), "a shard's local logs differ: {one:?}, {other:?}");
    (from, part)
}

fn length((from, names): &(u64, Vec<Submitted>)) -> u64 {
    names.iter().fold(*from, |length, names| length.saturating_add(names.ids.count))
}

fn singly(names: &[Submitted]) -> impl Iterator<Item = seriatim_model::RecordId> {
    names.iter().flat_map(|names| names.ids.ids())
}

/// The ids of a local log from one index to before another.
fn part_of((mut index, names): (u64, &[Submitted]), from: u64, end: u64) -> Vec<Submitted> {
    let mut part = vec![];
    for names in names {
        let next = index.saturating_add(names.ids.count);
        let (first, last) = (from.max(index), end.min(next));
        if first < last {
            part.push(names.tail(first - index).head(last - first));
        }
        index = next;
    }
    part
}

#[cfg(test)]
mod tests {
    use seriatim_model::{IdRun, SessionId};

    use super::*;

    fn names(session: u64, first: u64, count: u64) -> Submitted {
        Submitted { ids: IdRun { session: SessionId(session.into()), first, count }, lowest: 0 }
    }

    fn log(from: u64, names: &[Submitted]) -> Rest {
        Rest::LocalLog { from, names: names.to_vec() }
    }

    fn common(rests: &[Rest]) -> Common {
        let mut common = Common::default();
        rests.iter().cloned().for_each(|rest| common.add(rest));
        common
    }

    #[test]
    fn what_all_have_is_covered_from_where_nothing_is_decided() {
        let (a, b, c) = (names(1, 0, 3), names(2, 0, 2), names(1, 3, 4));
        let (long, short) = (log(0, &[a, b, c]), log(3, &[b]));
        let both = common(&[long.clone(), short.clone()]);
        assert_eq!(both.undecided(0), [b], "one let go of what is decided");
        assert_eq!(both.undecided(7), []);
        let alone = common(std::slice::from_ref(&long));
        assert_eq!(alone.undecided(0), [a, b, c]);
        assert_eq!(alone.undecided(6), [c.tail(1)], "cuts decide within a run");
        assert_eq!(common(&[long.clone(), log(7, &[c.tail(2)])]).undecided(0), [c.tail(2)]);
        assert_eq!(common(&[short, long, log(5, &[])]).undecided(0), []);
        assert_eq!(common(&[]).undecided(4), []);
    }

    #[test]
    fn a_replica_that_let_go_of_more_than_another_has_leaves_nothing_to_cover() {
        let (a, b) = (names(1, 0, 3), names(2, 0, 2));
        assert_eq!(common(&[log(0, &[a]), log(3, &[b])]).undecided(0), []);
        assert_eq!(common(&[log(0, &[a]), log(5, &[])]).undecided(0), []);
    }

    #[test]
    fn a_record_that_a_restarted_replica_lacks_is_not_covered() {
        let a = names(1, 3, 4);
        let unordered = |first, count| Rest::Unordered { names: vec![names(1, first, count).ids] };
        assert_eq!(common(&[log(0, &[a]), unordered(0, 9)]).held_of(a), a);
        assert_eq!(common(&[log(0, &[a]), unordered(0, 9), unordered(0, 5)]).held_of(a), a.head(2));
        assert_eq!(common(&[log(0, &[a]), unordered(4, 9)]).held_of(a).ids.count, 0);
        assert_eq!(common(&[unordered(0, 9)]).undecided(0), [], "nobody knows the order");
    }

    #[test]
    #[should_panic(expected = "local logs differ")]
    fn two_local_logs_of_a_shard_are_one() {
        common(&[log(0, &[names(1, 0, 2)]), log(0, &[names(2, 0, 2)])]);
    }
}
