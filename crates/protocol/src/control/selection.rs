//! The replicas of each shard in a new view, and the resulting loss.

use std::collections::BTreeSet;

use seriatim_model::storage::MissingRange;
use seriatim_model::{Endpoint, Member, NodeId, Position, ShardId, ShardMembers, ViewNumber};

use super::attempt::{Attempt, Liveness};
use super::catalog;
use super::data_loss::{Blocked, Loss};
use super::parting::Group;
use super::shard_set;
use crate::mutation::Options;
use crate::shard::Held;

impl Attempt {
    pub(super) fn selected(&self, liveness: Liveness<'_>, options: Options) -> Vec<ShardMembers> {
        let of = |shard| ShardMembers {
            shard,
            begins: self.begins(shard),
            replicas: self.select(shard, liveness),
        };
        let mut shards: Vec<ShardMembers> = self.going_on().map(of).collect();
        // The view omits a new shard without enough replicas.
        let least = self.entry().config.least_replicas();
        shards.retain(|members| {
            let is_wanted = self.goal.joins && !self.entry().leaving.contains(&members.shard);
            let can_join = members.replicas.len() >= least && is_wanted;
            can_join || !shard_set::joins(self.entry(), members.shard)
        });
        let trimmed = self.evidence.trimmed(&shards);
        shards.retain(|members| !shard_set::has_left(self.entry(), members.shard, trimmed, options));
        shards
    }

    /// Whether the answers suffice: a complete replica answered, and there are enough replicas or
    /// spares. Other replicas may stay silent although their nodes answer.
    pub(super) fn needs_no_more(&self, shard: ShardId, liveness: Liveness<'_>) -> bool {
        let selected = self.select(shard, liveness);
        let is_held = self.evidence.is_fresh(shard) || self.evidence.is_complete(shard, selected.first());
        let enough =
            selected.len() >= self.entry().config.least_replicas() || shard_set::joins(self.entry(), shard);
        is_held && (enough || liveness.spares(&self.replicas(shard)).next().is_some())
    }

    /// The replicas of a shard in the new view. Complete ones come first, former members before
    /// assigned nodes. If none is complete, the first replicas together hold the most records. A
    /// replica on a suspected node is selected only if no other holds everything; a replica on a
    /// full disk also if the others are too few.
    pub(super) fn select(&self, shard: ShardId, liveness: Liveness<'_>) -> Vec<Member> {
        let assigned = &self.entry().shards[shard.0 as usize];
        let old: Vec<Member> = self.evidence.old_replicas(shard).collect();
        let answered = self.evidence.fenced(shard);
        let answered =
            answered.map(|(member, held)| (self.evidence.is_complete(shard, Some(&member)), member, held));
        let all_is_held = answered.clone().any(|(complete, ..)| complete);
        let mut ranked: Vec<_> = answered
            .map(|(complete, member, held)| {
                let node = &member.node;
                let place = assigned.iter().position(|candidate| candidate == node);
                let was = old.iter().position(|candidate| *candidate == member);
                let knows = if complete { Position::ZERO } else { held.stable };
                let rank = (
                    !complete,
                    !liveness.answers(*node),
                    !liveness.can_hold(*node),
                    complete && liveness.parts(*node),
                    if complete { was.unwrap_or(usize::MAX) } else { 0 },
                    place.is_none(),
                    std::cmp::Reverse(knows),
                    place.unwrap_or(usize::MAX),
                );
                (rank, member, *held)
            })
            .collect();
        ranked.sort_by_key(|(rank, ..)| *rank);
        let ranked = ranked.into_iter().map(|(_, member, held)| (member, held)).collect();
        let ranked = if all_is_held { ranked } else { self.most_held_first(ranked, liveness) };
        let mut ranked: Vec<Member> = ranked.into_iter().map(|(member, _)| member).collect();
        if let Some((_, others)) = ranked.split_first_mut() {
            // The others copy from the first, so an incomplete replica is better than one on a full
            // disk.
            others.sort_by_key(|member| liveness.full.contains(&member.node));
        }
        let ranked = self.enough(shard, ranked, liveness);
        let suffice = can_hold(&ranked, liveness) >= self.entry().config.least_replicas();
        let takes_part = |(index, member): &(usize, Member)| match suffice {
            _ if *index == 0 => true,
            true => liveness.can_hold(member.node),
            false => liveness.answers(member.node),
        };
        ranked.into_iter().enumerate().filter(takes_part).map(|(_, member)| member).collect()
    }

    /// The first of the `ranked` replicas, up to the configured number; and further draining ones,
    /// until enough staying ones hold everything.
    fn enough(&self, shard: ShardId, ranked: Vec<Member>, liveness: Liveness<'_>) -> Vec<Member> {
        let wanted = self.entry().config.replicas as usize;
        let parts = |member: &&Member| liveness.parts(member.node);
        let staying = ranked.iter().filter(|member| !parts(member)).take(wanted);
        let is_held = |member: &Member| {
            self.evidence.is_complete(shard, Some(member)) && liveness.can_hold(member.node)
        };
        let (count, held) = staying.fold((0, 0), |(count, held), member| {
            (count + 1, held + usize::from(is_held(member) || self.goal.drains_early))
        });
        let (mut stay, mut empty, mut unheld) = (wanted, wanted - count, wanted - held);
        let takes_part = |(index, member): &(usize, Member)| {
            if !liveness.parts(member.node) {
                let has_place = stay > 0;
                stay = stay.saturating_sub(1);
                return has_place;
            }
            let is_needed = *index == 0 || empty > 0 || unheld > 0 && is_held(member);
            if is_needed {
                (empty, unheld) = (empty.saturating_sub(1), unheld.saturating_sub(1));
            }
            is_needed
        };
        ranked.into_iter().enumerate().filter(takes_part).map(|(_, member)| member).collect()
    }

    /// Orders replicas: each one holds most of the positions that all before it miss. Suspicion
    /// only breaks ties: it may be brief, whereas a view loses records that no member has.
    pub(super) fn most_held_first(
        &self,
        mut ranked: Vec<(Member, Held)>,
        liveness: Liveness<'_>,
    ) -> Vec<(Member, Held)> {
        let certain = self.certain();
        let mut left = MissingRange { from: Position::ZERO, end: certain };
        let mut ordered = vec![];
        while !ranked.is_empty() {
            let left_by = |held: &Held| left.meet(self.handover.missing(&self.evidence, held));
            let cost = |(member, held): &(Member, Held)| {
                let left = left_by(held);
                (left.end - left.from, !liveness.answers(member.node))
            };
            let best = (0..ranked.len()).min_by_key(|index| cost(&ranked[*index])).unwrap_or_default();
            left = left_by(&ranked[best].1);
            ordered.push(ranked.remove(best));
        }
        ordered
    }

    /// Asks spares for missing replicas of a shard. Returns whether it asked any.
    pub(super) fn add_spares(&mut self, shard: ShardId, liveness: Liveness<'_>) -> bool {
        let config = &self.entry().config;
        let wanted = match self.goal.replaces.contains(&Endpoint::Shard(shard)) {
            true => config.replicas as usize,
            false => config.least_replicas(),
        };
        let selected = self.select(shard, liveness);
        let missing = wanted.saturating_sub(can_hold(&selected, liveness));
        let members = selected.iter().map(|member| member.node).collect();
        let group =
            Group::of(&self.entry().shards[shard.0 as usize], &members, config.replicas, liveness.partings);
        let unfilled = if group.drained.is_empty() { 0 } else { group.unfilled };
        let mut spare: Vec<NodeId> = liveness.spares(&self.replicas(shard)).collect();
        if missing.max(unfilled) == 0 || spare.is_empty() {
            return false;
        }
        // Spreads shards over different spares.
        let turn = (catalog::count(self.entry().id) as usize + shard.0 as usize) % spare.len();
        spare.rotate_left(turn);
        let stand_ins = group.stand_ins(spare.iter().copied(), liveness.partings).into_iter().take(unfilled);
        let mut asked: BTreeSet<NodeId> = stand_ins.collect();
        let others = missing.saturating_sub(asked.len());
        spare.retain(|node| !asked.contains(node));
        asked.extend(spare.into_iter().take(others));
        let asks_more = !asked.is_empty();
        self.spares.entry(shard).or_default().extend(asked);
        asks_more
    }

    pub(super) fn what_is_lost(
        &self,
        shards: &[ShardMembers],
        liveness: Liveness<'_>,
    ) -> Result<Option<Loss>, Blocked> {
        if self.old() == ViewNumber::NONE {
            return Ok(None);
        }
        let (seals, complete_suffices) =
            (self.handover.seals(), self.handover.complete_suffices(&self.evidence));
        let is_headless = seals && self.evidence.chosen().is_none();
        let certain = self.certain();
        let mut loss = Loss { certain: Some(certain), tail: is_headless, ..Loss::default() };
        if is_headless {
            loss.what.push("the sequencing replicas".into());
        }
        for ShardMembers { shard, begins, replicas } in shards {
            let shard = *shard;
            let is_complete = self.evidence.is_complete(shard, replicas.first());
            if is_complete && complete_suffices {
                continue;
            }
            if !is_complete && !self.goal.accepts_loss {
                let nodes = self.evidence.old_replicas(shard).map(|member| member.node);
                let answered = |node| self.evidence.is_fenced(shard, node);
                need(liveness, nodes, &format!("replica of shard {shard}"), answered)?;
            }
            let held = replicas.iter().filter_map(|member| self.evidence.held(shard, member.node));
            // If only shard replicas hold records, those above the stable bound may be lost too.
            loss.tail |= !seals;
            let missing = held.map(|held| self.handover.missing(&self.evidence, held));
            loss.add_shard((shard, *begins, certain), is_complete, missing, &self.entry().history);
        }
        Ok((!loss.what.is_empty()).then_some(loss))
    }

    /// The assigned nodes after this view. An absent node keeps its place until another node holds
    /// all records.
    pub(super) fn assignment(&self, members: &ShardMembers, liveness: Liveness<'_>) -> Vec<NodeId> {
        let before = &self.entry().shards[members.shard.0 as usize];
        let is_whole =
            |member| self.evidence.is_complete(members.shard, Some(member)) || self.goal.drains_early;
        if !members.replicas.iter().all(is_whole) {
            // A draining member's records may still be needed.
            let old = self.evidence.old_replicas(members.shard).map(|member| member.node);
            let needed = old.filter(|node| liveness.parts(*node) && !before.contains(node));
            return before.iter().copied().chain(needed).collect();
        }
        let (leaving, mut nodes): (Vec<NodeId>, Vec<NodeId>) =
            members.replicas.iter().map(|member| member.node).partition(|node| liveness.parts(*node));
        let wanted = self.entry().config.replicas as usize;
        let others = before.iter().filter(|node| !nodes.contains(node) && !leaving.contains(node));
        let (gone, away): (Vec<NodeId>, Vec<NodeId>) =
            others.copied().partition(|node| liveness.parts(*node));
        nodes.extend(away);
        nodes.truncate(wanted);
        nodes.extend(leaving);
        let empty = wanted.saturating_sub(nodes.len());
        nodes.extend(gone.into_iter().take(empty));
        nodes
    }
}

fn can_hold(members: &[Member], liveness: Liveness<'_>) -> usize {
    members.iter().filter(|member| liveness.can_hold(member.node)).count()
}

/// Fails if one of `nodes` is silent, since it may hold the needed data.
pub(super) fn need(
    liveness: Liveness<'_>,
    nodes: impl Iterator<Item = NodeId>,
    what: &str,
    answered: impl Fn(NodeId) -> bool,
) -> Result<(), Blocked> {
    let away = names(nodes.filter(|node| !liveness.answers(*node) || !answered(*node)));
    if away.is_empty() {
        return Ok(());
    }
    Err(Blocked::Waits(format!(
        "no responding {what} holds the last acknowledged records: the log continues when {away} is back; \
         readable records stay readable"
    )))
}

/// Fails if `count` is below `least`. `what` returns the role's name and nodes.
pub(super) fn check_count(
    liveness: Liveness<'_>,
    count: usize,
    least: usize,
    what: impl Fn() -> (String, BTreeSet<NodeId>),
) -> Result<(), Blocked> {
    if count >= least {
        return Ok(());
    }
    let (what, nodes) = what();
    let away = names(nodes.into_iter().filter(|node| !liveness.answers(*node)));
    Err(Blocked::Waits(format!(
        "only {count} of the {least} needed {what} respond; down: {}; readable records stay readable",
        if away.is_empty() { "no other node" } else { &away }
    )))
}

fn names(nodes: impl Iterator<Item = NodeId>) -> String {
    nodes.map(|node| format!("node {node}")).collect::<Vec<_>>().join(", ")
}
