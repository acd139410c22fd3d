//! The closing cut of a view: the chosen member of the ordering layer gives positions to whatever
//! the surviving replicas of each shard hold that no cut covers
//! (docs/decisions/2026-11-26-closing-cuts.md).
//!
//! ```text
//! chosen                      replicas of the view that ends
//!   |-- AskRest ------------------>|
//!   |<- RestIs --------------------|    the ids of what no cut covers
//!   |-- Closing ------------------>|    one part after another, as versions of the claim
//!   |<- Bound ---------------------|    it is in all of their stores
//! ```
//!
//! It covers of each shard what all of these replicas have, in the order of the local log, as far
//! as one of them knows that (`closing/common.rs`); where positions are given in advance, at these
//! (`closing/content.rs`). The replicas that answer differ from attempt to attempt, and so may the
//! closing cuts: only that of the claim which becomes a view counts, and a claim has one, since a
//! member makes none for a claim that it was sealed for before it restarted.

mod common;
mod content;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::{
    Address, Endpoint, Member, NodeId, Position, ShardId, ShardMembers, Time, ViewNumber, limits,
};

use super::ShardMessage;
use super::cut::Cut;
use super::free::Filter;
use super::pushing::Pusher;
use super::shard::Rest;
use super::window::Windows;
use crate::parts::{Backoff, Sessions};
use crate::roles::RoleEffect;

use common::Common;
use content::Content;

/// The longest wait before a replica is asked again.
const ASK_MOST: Duration = Duration::from_secs(1);

/// A closing cut under way.
///
/// Invariant: its parts follow each other from `first` on, and one is pushed when those before it
/// are on all replicas that are to hold them. So a store that has the last has all.
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

/// The parts of a closing cut.
#[derive(Clone, Debug)]
struct Parts {
    unsent: VecDeque<Cut>,
    pusher: Pusher,
    end: Position,
}

impl ClosingCut {
    /// Asks the replicas of the next view, which has these shards, for their rests of view `of`.
    /// These get positions from `first` on.
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

    /// The replicas that were members of the view that ends: they have all that is covered of their
    /// shard.
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

    /// Makes the cut as soon as everybody has answered, and pushes what is next of it. `decided`
    /// says how much of each shard's local log the cuts decide that the member holds, and the
    /// windows how far these are; `sessions` take note of what is ordered.
    pub(super) fn go_on(
        &mut self,
        now: Time,
        (decided, windows): (impl Fn(ShardId) -> u64, Option<&Windows>),
        (filter, sessions): (Filter, &mut Sessions),
        out: &mut Vec<RoleEffect>,
    ) {
        if self.parts.is_none() && self.awaited().next().is_none() {
            let survivors = self.survivors();
            // Nobody is left of such a shard: its loss was accepted. Its new replicas could get a
            // closing cut from no one, and would lack that for ever.
            let is_lost =
                |(shard, members): &(ShardId, Vec<Member>)| members.is_empty() && self.former.contains(shard);
            let unsent = match survivors.iter().any(is_lost) {
                true => VecDeque::new(),
                false => Content::new(self.first, &self.rests, filter, sessions).parts(decided, windows),
            };
            let end = unsent.iter().fold(self.first, |end, part| {
                assert!(part.from == end, "a part from {} on follows those up to {end}", part.from);
                part.end()
            });
            let routes = survivors.iter().map(|(shard, members)| (*shard, &members[..]));
            let pusher = Pusher::closing(self.claim, routes, self.first);
            self.parts = Some(Parts { unsent, pusher, end });
        }
        let Some(Parts { unsent, pusher, .. }) = &mut self.parts else { return };
        while pusher.len() == 0
            && let Some(part) = unsent.pop_front()
        {
            assert!(pusher.bound() == part.from, "entries before {} are still in flight", part.from);
            pusher.push(now, part, out);
        }
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
