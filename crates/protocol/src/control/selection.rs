//! Which replicas a new view has for its shards, and what is lost if those are all.

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
    /// The shards of the new view, with their replicas.
    pub(super) fn selected(&self, liveness: Liveness<'_>, options: Options) -> Vec<ShardMembers> {
        let of = |shard| ShardMembers {
            shard,
            begins: self.begins(shard),
            replicas: self.select(shard, liveness),
        };
        let mut shards: Vec<ShardMembers> = self.going_on().map(of).collect();
        // The log goes on without a shard that has no replica yet.
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

    /// Whether a shard can do without the replicas that have not answered: the others hold all that
    /// the old view's members held, and there are enough replicas, or spares. A replica whose node
    /// is alive may be mute all the same.
    pub(super) fn needs_no_more(&self, shard: ShardId, liveness: Liveness<'_>) -> bool {
        let selected = self.select(shard, liveness);
        let is_held = self.evidence.is_fresh(shard) || self.evidence.is_complete(shard, selected.first());
        let enough =
            selected.len() >= self.entry().config.least_replicas() || shard_set::joins(self.entry(), shard);
        is_held && (enough || liveness.spares(&self.replicas(shard)).next().is_some())
    }

    /// The replicas that the new view is to have for a shard: complete ones first, and among these,
    /// and among the others, former members first, then the ones that are meant to be members; or,
    /// where no replica is complete, the ones that hold most together. The view gets a replica that
    /// is suspected although it answered only if no other holds everything; one whose disk is full
    /// also if the others are fewer than the log needs.
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
            // Any other gets what the first holds from it: better an incomplete replica than one
            // that takes nothing.
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

    /// The first of these, as many as the log is to have. Replicas on nodes that are to leave come
    /// on top of them, until as many that stay hold everything.
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

    /// Orders the replicas: first the one with the fewest missing positions, then always the one
    /// that has most of the positions that all replicas before it miss. Suspicion decides only
    /// between equals: a node is suspected for a moment, and a view loses the records that none of
    /// its replicas has.
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

    /// Asks spare nodes if too few replicas of a shard answer. Returns whether there is a node to
    /// wait for.
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
        // Not all shards choose the same one.
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

    /// The loss if the shards go on with these replicas: what no replica holds any more.
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
            // Where only the shard's replicas hold what is not final yet, it goes with them.
            loss.tail |= !seals;
            let missing = held.map(|held| self.handover.missing(&self.evidence, held));
            loss.add_shard((shard, *begins, certain), is_complete, missing, &self.entry().history);
        }
        Ok((!loss.what.is_empty()).then_some(loss))
    }

    /// The nodes that are meant to host a shard's replicas from now on. One that is away keeps its
    /// place until another holds everything in its stead.
    pub(super) fn assignment(&self, members: &ShardMembers, liveness: Liveness<'_>) -> Vec<NodeId> {
        let before = &self.entry().shards[members.shard.0 as usize];
        let is_whole =
            |member| self.evidence.is_complete(members.shard, Some(member)) || self.goal.drains_early;
        if !members.replicas.iter().all(is_whole) {
            // Records on a node that is to leave may be needed: until they are not, the log does
            // not do without it.
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

/// How many of these can take records.
fn can_hold(members: &[Member], liveness: Liveness<'_>) -> usize {
    members.iter().filter(|member| liveness.can_hold(member.node)).count()
}

/// Fails if one of `nodes`, each of which could help, does not answer.
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

/// Fails if fewer than `least` take part of those that `what` tells, and where they are.
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

/// Nodes, for a person.
fn names(nodes: impl Iterator<Item = NodeId>) -> String {
    nodes.map(|node| format!("node {node}")).collect::<Vec<_>>().join(", ")
}
