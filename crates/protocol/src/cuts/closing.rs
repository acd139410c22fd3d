//! The closing cut of a view: the chosen member of the ordering layer gives positions to the
//! surviving replicas' records that no cut covers (docs/decisions/2026-11-26-closing-cuts.md).
//!
//! ```text
//! chosen                      replicas of the view that ends
//!   |-- AskRest ------------------>|
//!   |<- RestIs --------------------|    ids that no cut covers
//!   |-- Closing ------------------>|    one part after another, as versions of the claim
//!   |<- Bound ---------------------|    it is in all of their stores
//! ```
//!
//! For each shard the closing cut covers the records that all these replicas have, in the order of
//! the local log, if one of them knows that order (`closing/common.rs`). Positions fixed in advance
//! stay (`closing/content.rs`). Each attempt may hear from other replicas, and so make another
//! closing cut. Only the closing cut of the claim that becomes a view counts. A claim has only one:
//! a restarted member makes none for a claim that sealed it before.

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

const ASK_MOST: Duration = Duration::from_secs(1);

/// A closing cut under way.
///
/// Invariant: its parts are consecutive from `first` on, and each is pushed after the earlier ones
/// are on all required replicas (the survivors). So a store with the last part has all parts.
#[derive(Clone, Debug)]
pub(super) struct ClosingCut {
    claim: ViewNumber,
    of: ViewNumber,
    /// Shards of the next view. `former`: the shards among them that the ending view had, too.
    shards: Vec<ShardMembers>,
    former: Vec<ShardId>,
    first: Position,
    /// Replicas that answered `AskRest`. `true`: the replica was a member of the ending view.
    answered: BTreeMap<(ShardId, NodeId), bool>,
    rests: BTreeMap<ShardId, Common>,
    asks: Backoff,
    /// Parts of the cut. `None` until all replicas have answered.
    parts: Option<Parts>,
}

#[derive(Clone, Debug)]
struct Parts {
    unsent: VecDeque<Cut>,
    pusher: Pusher,
    end: Position,
}

impl ClosingCut {
    /// Asks the replicas of `shards` for their uncovered records of view `of`, which get positions
    /// from `first` on.
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

    fn awaited<'a>(&'a self) -> impl Iterator<Item = (ShardId, NodeId)> + 'a {
        let of =
            |members: &'a ShardMembers| members.replicas.iter().map(|member| (members.shard, member.node));
        self.shards.iter().flat_map(of).filter(|replica| !self.answered.contains_key(replica))
    }

    /// Replicas that were members of the ending view, by shard. They have all covered records.
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

    /// Only a replica's first answer counts: a later answer may contain more records.
    pub(super) fn note_rest(&mut self, replica: (ShardId, NodeId), rest: Option<Rest>) {
        if self.awaited().any(|awaited| awaited == replica) {
            self.answered.insert(replica, rest.is_some());
            rest.into_iter().for_each(|rest| self.rests.entry(replica.0).or_default().add(rest));
        }
    }

    /// Makes the cut once all replicas have answered, and pushes its next part. `decided` returns
    /// the length up to which held cuts decide a shard's local log. `sessions` record the ordered
    /// names.
    pub(super) fn go_on(
        &mut self,
        now: Time,
        (decided, windows): (impl Fn(ShardId) -> u64, Option<&Windows>),
        (filter, sessions): (Filter, &mut Sessions),
        out: &mut Vec<RoleEffect>,
    ) {
        if self.parts.is_none() && self.awaited().next().is_none() {
            let survivors = self.survivors();
            // A former shard lost all replicas, and the loss was accepted. New replicas of it could
            // copy a closing cut from no replica, so the closing cut stays empty.
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

    pub(super) fn note_bound(&mut self, shard: ShardId, batch: Position) {
        if let Some(parts) = &mut self.parts {
            parts.pusher.note_bound(shard, batch);
        }
    }

    /// Position below which all required replicas hold the cut.
    pub(super) fn bound(&self) -> Position {
        self.parts.as_ref().map_or(self.first, |parts| parts.pusher.bound())
    }

    /// End of the cut, once all required replicas hold it.
    pub(super) fn end(&self) -> Option<Position> {
        let parts = self.parts.as_ref()?;
        (parts.unsent.is_empty() && parts.pusher.len() == 0).then_some(parts.end)
    }

    pub(super) fn resend(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        match &mut self.parts {
            Some(parts) => parts.pusher.resend(now, out),
            None if self.asks.is_due(now) => self.ask(now, out),
            None => {}
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match &self.parts {
            Some(parts) => parts.pusher.deadline(),
            None => Some(self.asks.at()),
        }
    }
}
