//! One attempt to form a view: questions, answers, and the resulting steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{
    Address, EndedSessions, Endpoint, Gap, Incarnation, LogEntry, Member, NodeId, Position, ShardId,
    ShardMembers, Time, View, ViewNumber,
};

use super::data_loss::{Blocked, Loss};
use super::evidence::Evidence;
use super::flush::{Flush, FlushRange, Outcome};
use super::handover::Handover;
use super::message::{Message, SealedState};
use super::parting::{Group, Partings};
use super::selection::{check_count, need};
use super::{send, shard_set};
use crate::mutation::{Mutation, Options};
use crate::parts::Carried;
use crate::roles::RoleEffect;
use crate::shard::{self, Held};

#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) evidence: Evidence,
    /// Judges the evidence by the rules of the log's ordering.
    pub(super) handover: &'static dyn Handover,
    pub(super) step: Step,
    since: Time,
    /// Unassigned nodes to ask, since too few assigned ones answer.
    pub(super) spares: BTreeMap<ShardId, BTreeSet<NodeId>>,
    spare_sequencers: BTreeSet<NodeId>,
    shards: Vec<ShardMembers>,
    /// Shards that the new view retires.
    pub(super) retiring: BTreeSet<ShardId>,
    /// The loss that this view causes and the operator accepted.
    accepted: Option<Loss>,
    /// `None` before the fence is complete.
    flush: Option<Flush>,
    staged: BTreeMap<NodeId, Incarnation>,
    /// Nodes that became suspected during registration; the view may name them.
    left: BTreeSet<NodeId>,
    pub(super) goal: Goal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Seal,
    Fence,
    Flush,
    Stage,
    Register,
}

impl Step {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Fence => "fence",
            Self::Flush => "flush",
            Self::Stage => "stage",
            Self::Register => "register",
        }
    }
}

/// The nodes as seen by the controller's node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness<'a> {
    pub(super) nodes: &'a BTreeSet<NodeId>,
    pub(super) suspected: &'a BTreeSet<NodeId>,
    /// Since when each suspected node does not answer.
    pub(super) silent_since: &'a BTreeMap<NodeId, Time>,
    /// Nodes with full disks.
    pub(super) full: &'a BTreeSet<NodeId>,
    pub(super) partings: &'a Partings,
}

impl<'a> Liveness<'a> {
    pub(super) fn answers(self, node: NodeId) -> bool {
        !self.suspected.contains(&node)
    }

    pub(super) fn can_hold(self, node: NodeId) -> bool {
        self.answers(node) && !self.full.contains(&node)
    }

    pub(super) fn able(self) -> impl Iterator<Item = NodeId> + use<'a> {
        self.nodes.iter().copied().filter(move |node| self.can_hold(*node))
    }

    /// Whether a node is drained or removed.
    pub(super) fn parts(self, node: NodeId) -> bool {
        self.partings.contains_key(&node)
    }

    /// Nodes that can take records, stay, and are not in `taken`.
    pub(super) fn spares(self, taken: &BTreeSet<NodeId>) -> impl Iterator<Item = NodeId> + use<'a, '_> {
        let free = move |node: &NodeId| self.can_hold(*node) && !self.parts(*node) && !taken.contains(node);
        self.nodes.iter().copied().filter(free)
    }
}

/// Aims besides forming a view.
#[derive(Clone, Debug, Default)]
pub(super) struct Goal {
    /// Whether the operator accepts the loss of records.
    pub(super) accepts_loss: bool,
    /// Abandoned positions of retired shards.
    pub(super) given_up: Vec<Gap>,
    /// Nodes that are silent for so long that others replace their copies of retired shards.
    pub(super) lost: BTreeSet<NodeId>,
    /// Replicas of retired shards that become copies.
    pub(super) keepers: BTreeSet<Address>,
    /// Kinds of roles to fill up to the configured number, not only to the minimum.
    pub(super) replaces: BTreeSet<Endpoint>,
    /// Mutation: does not replace lost sequencing replicas.
    pub(super) leaves_sequencers: bool,
    /// Mutation: excludes draining nodes before others hold their records.
    pub(super) drains_early: bool,
    pub(super) joins: bool,
    /// How long to gather answers beyond the necessary ones.
    pub(super) gather_for: Duration,
}

impl Attempt {
    pub(super) fn new(now: Time, evidence: Evidence, goal: Goal) -> Self {
        let handover = <dyn Handover>::of(evidence.entry().config.order);
        Self {
            evidence,
            handover,
            step: if handover.seals() { Step::Seal } else { Step::Fence },
            since: now,
            spares: BTreeMap::new(),
            spare_sequencers: BTreeSet::new(),
            shards: vec![],
            retiring: BTreeSet::new(),
            accepted: None,
            flush: None,
            staged: BTreeMap::new(),
            left: BTreeSet::new(),
            goal,
        }
    }

    /// Continues from a newer version of the entry if only its pins differ. Otherwise a reader that
    /// raises its pin often could stop a long view change from ever being registered.
    pub(super) fn takes_pins_of(&mut self, newer: &LogEntry) -> bool {
        self.evidence.takes_pins_of(newer)
    }

    pub(super) fn entry(&self) -> &LogEntry {
        self.evidence.entry()
    }

    pub(super) fn claim(&self) -> ViewNumber {
        self.entry().claimed
    }

    pub(super) fn old(&self) -> ViewNumber {
        self.evidence.old()
    }

    /// Nodes to seal: old members, assigned nodes and spares.
    fn sequencers(&self) -> BTreeSet<NodeId> {
        let assigned = self.entry().sequencers.iter().copied();
        assigned
            .chain(self.evidence.old_sequencers().map(|member| member.node))
            .chain(self.spare_sequencers.clone())
            .collect()
    }

    pub(super) fn replicas(&self, shard: ShardId) -> BTreeSet<NodeId> {
        let assigned = self.entry().shards[shard.0 as usize].iter().copied();
        let spares = self.spares.get(&shard).into_iter().flatten().copied();
        let old = self.evidence.old_replicas(shard).map(|member| member.node);
        assigned.chain(old).chain(spares).collect()
    }

    /// Returns whether the answer is new, as do the other `note_` methods: only new answers are
    /// progress.
    pub(super) fn note_sealed(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        state: Option<SealedState>,
    ) -> bool {
        self.evidence.note_sealed(node, incarnation, state)
    }

    /// The new view's shard replicas; empty before the flush.
    pub(super) fn members_of_shards(&self) -> &[ShardMembers] {
        &self.shards
    }

    pub(super) fn note_fenced(
        &mut self,
        shard: ShardId,
        node: NodeId,
        incarnation: Incarnation,
        held: Held,
    ) -> bool {
        self.step < Step::Register && self.evidence.note_fenced(shard, node, incarnation, held)
    }

    pub(super) fn note_flushed(&mut self, first: Position, end: Position, carried: Carried) -> bool {
        // No replica sends a range that ends before it begins.
        let flush = self.flush.as_mut().filter(|_| self.step == Step::Flush && first <= end);
        flush.is_some_and(|flush| flush.note_flushed(FlushRange::new(first, end), carried))
    }

    pub(super) fn note_flushing(&mut self, bound: Position) -> bool {
        self.flush.as_mut().is_some_and(|flush| flush.note_bound(bound))
    }

    pub(super) fn note_shard_flushed(&mut self, shard: ShardId, node: NodeId, upto: Position) -> bool {
        self.flush.as_mut().is_some_and(|flush| flush.note_shard_flushed(shard, node, upto))
    }

    pub(super) fn note_staged(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        // During registration the view must not change: it may be registered already.
        self.step < Step::Register && self.staged.insert(node, incarnation) != Some(incarnation)
    }

    /// Returns whether the attempt must start over.
    pub(super) fn became_suspected(&mut self, node: NodeId) -> bool {
        if self.step == Step::Register {
            self.left.insert(node);
            return false;
        }
        self.evidence.forget(node);
        self.staged.remove(&node);
        let chosen = self.evidence.chosen().is_some_and(|chosen| chosen.node == node);
        let holds =
            self.shards.iter().flat_map(|members| &members.replicas).any(|member| member.node == node);
        match self.step {
            Step::Seal => false,
            Step::Fence | Step::Flush => chosen || holds,
            Step::Stage => holds,
            Step::Register => false,
        }
    }

    /// Whether the view, not yet in registration, names a shard replica on this node.
    pub(super) fn counts_on(&self, node: NodeId) -> bool {
        let mut holding = self.shards.iter().flat_map(|members| &members.replicas);
        self.step < Step::Register && holding.any(|member| member.node == node)
    }

    pub(super) fn left(&self) -> &BTreeSet<NodeId> {
        &self.left
    }

    /// Mutation: chooses another replica under the same number.
    pub(super) fn choose_another(&mut self, now: Time) {
        let chosen = self.evidence.chosen();
        if let (Step::Flush, Some(before), true) = (self.step, chosen, now >= self.gathers_until()) {
            self.evidence.forget_sealed(before.node);
            self.evidence.choose(self.evidence.candidate().or(chosen));
        }
    }

    pub(super) fn enter(&mut self, now: Time, step: Step) {
        self.step = step;
        self.since = now;
    }

    /// Whether all reachable roles answered, or the answers suffice (`go_on`) and the gathering
    /// time is over.
    fn has_gathered(
        &self,
        now: Time,
        liveness: Liveness<'_>,
        candidates: &BTreeSet<NodeId>,
        answered: impl Fn(NodeId) -> bool,
        go_on: bool,
    ) -> bool {
        let awaited = candidates.iter().any(|node| !answered(*node) && liveness.answers(*node));
        !awaited || go_on && now >= self.gathers_until()
    }

    pub(super) fn spares(&self) -> usize {
        self.spares.values().map(BTreeSet::len).sum::<usize>() + self.spare_sequencers.len()
    }

    pub(super) fn gathers_until(&self) -> Time {
        self.since + self.goal.gather_for
    }

    /// Returns the next step, or `None` while this one is incomplete. The error says why no view is
    /// possible at present.
    pub(super) fn next_step(
        &mut self,
        now: Time,
        liveness: Liveness<'_>,
        options: Options,
    ) -> Result<Option<Step>, Blocked> {
        match self.step {
            Step::Seal => self.after_seal(now, liveness),
            Step::Fence if options.mutates(Mutation::FenceSkipped) && self.old() != ViewNumber::NONE => {
                self.shards = self.evidence.old_view().map(|view| view.shards.clone()).unwrap_or_default();
                Ok(Some(self.plan_flush()))
            }
            Step::Fence => self.after_fence(now, liveness, options),
            Step::Flush if self.flush.as_ref().is_some_and(Flush::is_done) => {
                self.replace_sequencers(liveness);
                Ok(Some(Step::Stage))
            }
            Step::Flush => Ok(None),
            Step::Stage => self.after_stage(now, liveness),
            Step::Register => Ok(None),
        }
    }

    fn after_seal(&mut self, now: Time, liveness: Liveness<'_>) -> Result<Option<Step>, Blocked> {
        let chosen = self.evidence.candidate();
        let fresh = self.old() == ViewNumber::NONE;
        let candidates = self.sequencers();
        // Before the first view there is no state to choose, only nodes to stage.
        let go_on = chosen.is_some() || fresh;
        let answered = |node| self.evidence.is_sealed(node);
        if !self.has_gathered(now, liveness, &candidates, answered, go_on) {
            return Ok(None);
        }
        if !fresh && chosen.is_none() && !self.goal.accepts_loss {
            let nodes = self.evidence.old_sequencers().map(|member| member.node);
            // Fails if one of them is silent: it may have its state. If all answered, the state is
            // lost.
            need(liveness, nodes, "sequencing replica", answered)?;
        }
        self.evidence.choose(chosen);
        Ok(Some(Step::Fence))
    }

    pub(super) fn after_fence(
        &mut self,
        now: Time,
        liveness: Liveness<'_>,
        options: Options,
    ) -> Result<Option<Step>, Blocked> {
        for shard in shard_set::shards(self.entry()) {
            let (candidates, go_on) = (self.replicas(shard), self.needs_no_more(shard, liveness));
            let answered = |node| self.evidence.is_fenced(shard, node);
            if !self.has_gathered(now, liveness, &candidates, answered, go_on) {
                return Ok(None);
            }
        }
        if self.retires_later(now, liveness, options) {
            return Ok(None);
        }
        let mut asks_more = false;
        for shard in self.going_on().collect::<Vec<_>>() {
            asks_more |= self.add_spares(shard, liveness);
        }
        if asks_more {
            self.since = now;
            return Ok(None);
        }
        let shards = self.selected(liveness, options);
        let lost = self.what_is_lost(&shards, liveness)?;
        if let Some(loss) = lost.clone().filter(|_| !self.goal.accepts_loss) {
            return Err(Blocked::Lost(loss));
        }
        for ShardMembers { shard, replicas, .. } in &shards {
            let what = || (format!("replicas of shard {shard}"), self.replicas(*shard));
            check_count(liveness, replicas.len(), self.entry().config.least_replicas(), what)?;
        }
        self.shards = shards;
        self.accepted = lost;
        Ok(Some(self.plan_flush()))
    }

    /// Plans the flush, and returns the step after the fence.
    fn plan_flush(&mut self) -> Step {
        let flush = self.handover.flush(&self.evidence, &self.shards);
        let chosen = self.evidence.chosen();
        assert!(
            chosen.is_none() || self.handover.seals(),
            "{chosen:?} was chosen, and no replica was sealed"
        );
        assert!(chosen.is_some() || !flush.is_by_chosen(), "no replica was chosen to flush");
        let takes_part = |(shard, source): (ShardId, Member)| {
            let mut members = self.shards.iter().filter(|members| members.shard == shard);
            members.any(|members| members.replicas.contains(&source))
        };
        assert!(flush.sources().all(takes_part), "a replica of the new view flushes its shard");
        let step = if flush.is_a_step() { Step::Flush } else { Step::Stage };
        self.flush = Some(flush);
        step
    }

    /// The accepted loss of this view, including positions of retired shards.
    pub(super) fn loss(&self) -> Option<Loss> {
        let given_up = self.goal.given_up.clone();
        match self.accepted.clone() {
            Some(loss) => Some(loss.with_retired(given_up)),
            None => (!given_up.is_empty()).then(|| Loss::of_retired(given_up)),
        }
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.flush.as_ref().and_then(Flush::outcome)
    }

    pub(super) fn joins_at(&self) -> Position {
        let known = self.outcome().map(|outcome| outcome.range);
        let range = known.unwrap_or_else(|| self.handover.range(&self.evidence));
        let joins_at = self.handover.joins_at(range);
        assert!(range.reaches(joins_at), "shards join at {joins_at}, and the flush is {range:?}");
        joins_at
    }

    pub(super) fn certain(&self) -> Position {
        let (certain, range) = (self.handover.certain(&self.evidence), self.handover.range(&self.evidence));
        assert!(certain >= range.first(), "{certain} is certain, and the flush is {range:?}");
        certain
    }

    fn after_stage(&mut self, now: Time, liveness: Liveness<'_>) -> Result<Option<Step>, Blocked> {
        if self.replace_sequencers(liveness) {
            self.since = now;
            return Ok(None);
        }
        let least = self.entry().config.least_sequencers();
        let candidates = self.to_stage(liveness);
        let spare: Vec<NodeId> = liveness.spares(&candidates).collect();
        let enough = self.staged.len() >= least;
        // A live node's replica may stay silent; a spare can stand in for it.
        let go_on = enough || !spare.is_empty();
        if !self.has_gathered(now, liveness, &candidates, |node| self.staged.contains_key(&node), go_on) {
            return Ok(None);
        }
        if enough {
            return Ok(Some(Step::Register));
        }
        let missing = least - self.staged.len();
        if spare.is_empty() {
            let what = || ("sequencing replicas".to_owned(), self.sequencers());
            check_count(liveness, self.staged.len(), least, what)?;
        }
        self.spare_sequencers.extend(spare.into_iter().take(missing));
        self.since = now;
        Ok(None)
    }

    /// Adds spares in place of unreachable or draining sequencing replicas. Returns whether it
    /// added any.
    fn replace_sequencers(&mut self, liveness: Liveness<'_>) -> bool {
        if self.goal.leaves_sequencers {
            return false;
        }
        let take_part = self.to_stage(liveness);
        let before = self.spare_sequencers.len();
        let group = self.orderers(&take_part, liveness);
        if !group.drained.is_empty() {
            let spares = group.stand_ins(liveness.spares(&take_part), liveness.partings);
            self.spare_sequencers.extend(spares.into_iter().take(group.unfilled));
        }
        if self.goal.replaces.contains(&Endpoint::Sequencer) {
            let take_part: BTreeSet<NodeId> =
                take_part.into_iter().chain(self.spare_sequencers.clone()).collect();
            let staying = take_part.iter().filter(|node| !liveness.parts(**node)).count();
            let lost = (self.entry().config.sequencers as usize).saturating_sub(staying);
            self.spare_sequencers.extend(liveness.spares(&take_part).take(lost));
        }
        self.spare_sequencers.len() > before
    }

    fn orderers(&self, take_part: &BTreeSet<NodeId>, liveness: Liveness<'_>) -> Group {
        Group::of(&self.entry().sequencers, take_part, self.entry().config.sequencers, liveness.partings)
    }

    /// Nodes to stage: assigned ones, spares and draining members. A node with a full disk only if
    /// too few others are able.
    fn to_stage(&self, liveness: Liveness<'_>) -> BTreeSet<NodeId> {
        // A draining member stays until enough others take part.
        let old = self.evidence.old_sequencers().map(|member| member.node);
        let leaving = old.filter(|node| liveness.parts(*node));
        let all = self.entry().sequencers.iter().chain(&self.spare_sequencers).copied().chain(leaving);
        let suffice = liveness.able().count() >= self.entry().config.least_sequencers();
        let takes_part =
            |node: &NodeId| if suffice { liveness.can_hold(*node) } else { liveness.answers(*node) };
        all.filter(|node| takes_part(node)).collect()
    }

    fn view(&self, liveness: Liveness<'_>, options: Options) -> View {
        let staged = self.staged.iter();
        let mut sequencers: Vec<Member> =
            staged.map(|(node, incarnation)| Member { node: *node, incarnation: *incarnation }).collect();
        // Assigned nodes come before spares, and leaving nodes come last.
        let place = |member: &Member| self.entry().sequencers.iter().position(|node| *node == member.node);
        sequencers.sort_by_key(|member| (liveness.parts(member.node), place(member).unwrap_or(usize::MAX)));
        sequencers.truncate(self.entry().config.sequencers as usize);
        let chosen = self.evidence.chosen().map(|chosen| chosen.node);
        let old_leader = chosen.filter(|chosen| sequencers.iter().any(|member| member.node == *chosen));
        let leader = old_leader.or(sequencers.first().map(|member| member.node)).unwrap_or_default();
        let known = self.outcome().map(|outcome| outcome.range);
        let flushed = known.unwrap_or_default();
        let late = options.mutates(Mutation::FirstAfterFlush);
        View {
            number: self.claim(),
            sequencers,
            leader,
            shards: self.shards_as_known(),
            retired: self.retired(known, liveness),
            placement: shard_set::placement(self.entry(), &self.shards, self.joins_at(), options),
            first: if late { flushed.end() } else { flushed.first() },
            start: flushed.end(),
        }
    }

    /// The shards of the new view. The position where joining shards begin may change until the
    /// flush ends.
    fn shards_as_known(&self) -> Vec<ShardMembers> {
        let of =
            |members: &ShardMembers| ShardMembers { begins: self.begins(members.shard), ..members.clone() };
        self.shards.iter().map(of).collect()
    }

    pub(super) fn begins(&self, shard: ShardId) -> Position {
        match self.evidence.old_view() {
            None => Position::ZERO,
            Some(view) => view.shard(shard).map_or(self.joins_at(), |members| members.begins),
        }
    }

    fn registered_entry(&self, liveness: Liveness<'_>, options: Options) -> LogEntry {
        let mut view = self.view(liveness, options);
        let mut entry = self.entry().clone();
        for members in &view.shards {
            entry.shards[members.shard.0 as usize] = self.assignment(members, liveness);
        }
        self.have_retired(&mut entry, &view);
        let has_left = |shard: &ShardId| view.shard(*shard).is_none();
        for shard in entry.leaving.iter().filter(|shard| has_left(shard)) {
            entry.shards[shard.0 as usize].clear();
        }
        entry.leaving.retain(|shard| !has_left(shard));
        entry.history.push(view.number, self.decides_from(&view));
        let loss = if options.mutates(Mutation::GivenUpUntold) { self.accepted.clone() } else { self.loss() };
        loss.into_iter().flat_map(|loss| loss.gaps).for_each(|gap| entry.history.give_up(gap));
        if self.accepted.is_some() && !options.mutates(Mutation::ReassignedUnmarked) {
            entry.history.reassign(view.number, view.start);
        }
        entry.history.forget_views_below(self.handover.trimmed(&self.evidence, &view.shards));
        view.placement = view.placement.forget_below(entry.history.start());
        entry.unavailable = None;
        if options.mutates(Mutation::EndsForgotten) {
            entry.ended = EndedSessions::default();
        }
        // After an accepted loss the view may start below the end of an ended session.
        entry.ended.cut(view.start);
        entry.sequencers = self.assigned_sequencers(&view, liveness);
        entry.view = Some(view);
        entry
    }

    fn decides_from(&self, view: &View) -> Position {
        let range = FlushRange::new(view.first, view.start);
        let from = self.handover.decides_from(&self.evidence, range);
        assert!(range.reaches(from), "view {} decides from {from}, and its flush was {range:?}", view.number);
        from
    }

    fn assigned_sequencers(&self, view: &View, liveness: Liveness<'_>) -> Vec<NodeId> {
        let before = &self.entry().sequencers;
        let take_part = view.sequencers.iter().map(|member| member.node);
        if !self.handover.seals() {
            // In this ordering sequencers keep no state, so an absent node keeps no place.
            return take_part.collect();
        }
        let replaces = self.goal.replaces.contains(&Endpoint::Sequencer);
        if !replaces && !before.iter().any(|node| liveness.parts(*node)) {
            return before.clone();
        }
        // All members hold the same state. Leaving nodes lose their places first, then absent ones.
        let is_away = |node: &NodeId| view.sequencers.iter().all(|member| member.node != *node);
        let away = before.iter().copied().filter(is_away);
        let mut nodes: Vec<NodeId> = take_part.chain(away).collect();
        nodes.sort_by_key(|node| liveness.parts(*node));
        nodes.truncate(self.entry().config.sequencers as usize);
        nodes
    }

    pub(super) fn ask(
        &self,
        register: Address,
        liveness: Liveness<'_>,
        options: Options,
        out: &mut Vec<RoleEffect>,
    ) {
        let claim = self.claim();
        let config = &self.entry().config;
        let to_sequencer = |node: NodeId| Address::Node(node, Endpoint::Sequencer);
        match self.step {
            Step::Seal => {
                for node in self.sequencers().into_iter().filter(|node| !self.evidence.is_sealed(*node)) {
                    let message = Message::Seal { claim, old: self.old(), config: config.clone() };
                    send(to_sequencer(node), message, out);
                }
            }
            Step::Fence => {
                for shard in shard_set::shards(self.entry()) {
                    let unanswered = |node: &NodeId| !self.evidence.is_fenced(shard, *node);
                    for node in self.replicas(shard).into_iter().filter(unanswered) {
                        let to = Address::Node(node, Endpoint::Shard(shard));
                        send(to, shard::Message::Fence { claim, entry: self.entry().clone() }, out);
                    }
                }
            }
            Step::Flush => {
                let flush = self.flush.as_ref().expect("it was planned");
                flush.ask(&self.evidence, self.view(liveness, options), out);
            }
            Step::Stage => {
                let Outcome { range, carried } = self.outcome().expect("staging follows the flush");
                let to = self.to_stage(liveness).into_iter().filter(|node| !self.staged.contains_key(node));
                for node in to {
                    let (carried, config) = (carried.clone(), config.clone());
                    let (old, ordered) = (self.old(), range.end());
                    let message = Message::Stage { claim, old, config, ordered, carried };
                    send(to_sequencer(node), message, out);
                }
            }
            Step::Register => {
                send(
                    register,
                    Message::CompareAndSet { entry: self.registered_entry(liveness, options) },
                    out,
                );
            }
        }
    }
}
