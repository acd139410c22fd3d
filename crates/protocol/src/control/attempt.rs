//! One attempt to form a view: what was asked, what was answered, and what that is enough for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{
    Address, Endpoint, Gap, Incarnation, Member, NodeId, Position, ShardId, ShardMembers, Time, View,
    ViewNumber,
};

use super::ended::EndedSessions;
use super::loss::Trouble;
use super::message::{LogEntry, Message, SealedState};
use super::parting::{Group, Partings};
use super::selection::{check_count, need};
use super::{send, shape};
use crate::deviation::{Deviation, Options};
use crate::parts::Sessions;
use crate::roles::RoleEffect;
use crate::shard::{self, Held};

/// An attempt to form the view `entry.claimed`.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// The entry that the claim put into the register.
    pub(super) entry: LogEntry,
    pub(super) step: Step,
    /// When the step began.
    since: Time,
    sealed: BTreeMap<NodeId, (Incarnation, Option<SealedState>)>,
    pub(super) fenced: BTreeMap<(ShardId, NodeId), (Incarnation, Held)>,
    /// Nodes that are asked although they are not meant to host a replica of the shard: too few that are
    /// meant to answer.
    pub(super) spares: BTreeMap<ShardId, BTreeSet<NodeId>>,
    /// The same for sequencing replicas.
    spare_sequencers: BTreeSet<NodeId>,
    pub(super) chosen: Option<Member>,
    pub(super) shards: Vec<ShardMembers>,
    /// The positions that none of them holds.
    gaps: Vec<Gap>,
    /// How far the flush is known to be.
    flushing: Position,
    pub(super) flushed: Option<Flushed>,
    /// Where each shard flushes itself: who does it, and how far that is.
    pub(super) flushes: BTreeMap<ShardId, (Member, Position)>,
    staged: BTreeMap<NodeId, Incarnation>,
    /// Nodes that fell silent while the view was being registered, which may name them.
    left: BTreeSet<NodeId>,
    pub(super) purpose: Purpose,
}

#[derive(Clone, Debug)]
pub(super) struct Flushed {
    pub(super) first: Position,
    pub(super) end: Position,
    pub(super) sessions: Sessions,
}

/// The step that an attempt waits for.
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

/// The nodes, and which of them answer, as the node of the controller sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) nodes: &'a BTreeSet<NodeId>,
    pub(super) silent: &'a BTreeSet<NodeId>,
    /// The nodes whose disks are full.
    pub(super) full: &'a BTreeSet<NodeId>,
    /// The nodes that do not stay.
    pub(super) partings: &'a Partings,
}

impl<'a> Around<'a> {
    pub(super) fn answers(self, node: NodeId) -> bool {
        !self.silent.contains(&node)
    }

    /// Whether a node can take records.
    pub(super) fn can_hold(self, node: NodeId) -> bool {
        self.answers(node) && !self.full.contains(&node)
    }

    /// How many nodes can take records.
    pub(super) fn able(self) -> usize {
        self.nodes.iter().filter(|node| self.can_hold(**node)).count()
    }

    /// Whether a node is to leave.
    pub(super) fn parts(self, node: NodeId) -> bool {
        self.partings.contains_key(&node)
    }

    /// The nodes that can take records, stay, and are none of `taken`.
    pub(super) fn spares(self, taken: &BTreeSet<NodeId>) -> impl Iterator<Item = NodeId> + use<'a, '_> {
        let free = move |node: &NodeId| self.can_hold(*node) && !self.parts(*node) && !taken.contains(node);
        self.nodes.iter().copied().filter(free)
    }
}

/// The aims of an attempt beyond a view.
#[derive(Clone, Debug, Default)]
pub(super) struct Purpose {
    /// Whether the operator accepts that what nobody holds any more is lost.
    pub(super) accepts_loss: bool,
    /// Whether replicas that are away are replaced, not only as many as the log needs to go on.
    pub(super) replaces: bool,
    /// The defect of leaving the places of lost sequencing replicas empty.
    pub(super) leaves_sequencers: bool,
    /// The defect of doing without replicas on nodes that are to leave before others hold what they hold.
    pub(super) drains_early: bool,
    /// Whether shards may join.
    pub(super) joins: bool,
    /// How long answers are gathered beyond those that are needed.
    pub(super) gather_for: Duration,
    /// The defect of counting on replicas that lack something.
    pub(super) counts_lacking: bool,
    /// The defect of writing anew what was trimmed.
    pub(super) flushes_trimmed: bool,
    /// How often a shard's replica could not read what it was to flush: then it is another's turn.
    pub(super) turns: BTreeMap<ShardId, usize>,
}

impl Attempt {
    pub(super) fn new(now: Time, entry: LogEntry, purpose: Purpose) -> Self {
        let step = if entry.config.order.places_first() { Step::Fence } else { Step::Seal };
        Self {
            entry,
            step,
            since: now,
            sealed: BTreeMap::new(),
            fenced: BTreeMap::new(),
            spares: BTreeMap::new(),
            spare_sequencers: BTreeSet::new(),
            chosen: None,
            shards: vec![],
            gaps: vec![],
            flushing: Position::ZERO,
            flushed: None,
            flushes: BTreeMap::new(),
            staged: BTreeMap::new(),
            left: BTreeSet::new(),
            purpose,
        }
    }

    pub(super) fn claim(&self) -> ViewNumber {
        self.entry.claimed
    }

    pub(super) fn old(&self) -> ViewNumber {
        self.entry.view_number()
    }

    fn old_members(&self) -> impl Iterator<Item = Member> {
        self.entry.view.iter().flat_map(|view| view.sequencers.iter().copied())
    }

    pub(super) fn old_replicas(&self, shard: ShardId) -> impl Iterator<Item = Member> {
        let members = self.entry.view.as_ref().and_then(|view| view.shard(shard));
        members.into_iter().flat_map(|members| members.replicas.iter().copied())
    }

    /// Nodes that may hold what the old view left, and nodes that are to be members.
    fn sequencers(&self) -> BTreeSet<NodeId> {
        let assigned = self.entry.sequencers.iter().copied();
        assigned
            .chain(self.old_members().map(|member| member.node))
            .chain(self.spare_sequencers.clone())
            .collect()
    }

    pub(super) fn replicas(&self, shard: ShardId) -> BTreeSet<NodeId> {
        let assigned = self.entry.shards[shard.0 as usize].iter().copied();
        let spares = self.spares.get(&shard).into_iter().flatten().copied();
        assigned.chain(self.old_replicas(shard).map(|member| member.node)).chain(spares).collect()
    }

    /// Whether nothing was pushed to the shard in any view that was registered.
    pub(super) fn is_fresh(&self, shard: ShardId) -> bool {
        self.old() == ViewNumber::NONE || shape::joins(&self.entry, shard)
    }

    /// A replica is sealed. Says whether that is news, as do the other answers: what is only repeated is no
    /// progress.
    pub(super) fn note_sealed(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        state: Option<SealedState>,
    ) -> bool {
        let answer = (incarnation, state);
        self.sealed.insert(node, answer) != Some(answer)
    }

    /// The replicas of the shards that take part; none before the flush.
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
        let answer = (incarnation, held);
        self.step < Step::Register && self.fenced.insert((shard, node), answer) != Some(answer)
    }

    pub(super) fn note_flushed(&mut self, first: Position, end: Position, sessions: Sessions) -> bool {
        let awaited = self.step == Step::Flush;
        if awaited {
            self.flushed = Some(Flushed { first, end, sessions });
        }
        awaited
    }

    /// The chosen replica is on its way.
    pub(super) fn note_flushing(&mut self, bound: Position) -> bool {
        let further = bound > self.flushing;
        self.flushing = self.flushing.max(bound);
        further
    }

    pub(super) fn note_staged(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        // A view that is being registered stays as it is: it may be registered already.
        self.step < Step::Register && self.staged.insert(node, incarnation) != Some(incarnation)
    }

    /// A node does not answer any more. Says whether the attempt cannot go on as it began.
    pub(super) fn fell_silent(&mut self, node: NodeId) -> bool {
        if self.step == Step::Register {
            self.left.insert(node);
            return false;
        }
        self.sealed.remove(&node);
        self.staged.remove(&node);
        self.fenced.retain(|(_, fenced), _| *fenced != node);
        let chosen = self.chosen.is_some_and(|chosen| chosen.node == node);
        let holds =
            self.shards.iter().flat_map(|members| &members.replicas).any(|member| member.node == node);
        match self.step {
            Step::Seal => false,
            Step::Fence | Step::Flush => chosen || holds,
            Step::Stage => holds,
            Step::Register => false,
        }
    }

    /// Whether a replica of this node is to hold what the view takes.
    pub(super) fn counts_on(&self, node: NodeId) -> bool {
        let mut holding = self.shards.iter().flat_map(|members| &members.replicas);
        self.step < Step::Register && holding.any(|member| member.node == node)
    }

    /// The nodes that fell silent when nothing could be changed about the view any more.
    pub(super) fn left(&self) -> &BTreeSet<NodeId> {
        &self.left
    }

    /// The defect of choosing another replica when the first takes long, under the same number.
    pub(super) fn choose_another(&mut self, now: Time) {
        if let (Step::Flush, Some(chosen), true) = (self.step, self.chosen, now >= self.gathers_until()) {
            self.sealed.remove(&chosen.node);
            self.chosen = self.choose().or(self.chosen);
        }
    }

    pub(super) fn enter(&mut self, now: Time, step: Step) {
        self.step = step;
        self.since = now;
    }

    /// Whether nothing more is worth waiting for: everyone who answers has answered, or the step can do
    /// without the others and they had their time.
    fn has_gathered(
        &self,
        now: Time,
        around: Around<'_>,
        candidates: &BTreeSet<NodeId>,
        answered: impl Fn(NodeId) -> bool,
        go_on: bool,
    ) -> bool {
        let awaited = candidates.iter().any(|node| !answered(*node) && around.answers(*node));
        !awaited || go_on && now >= self.gathers_until()
    }

    /// How many nodes are asked to stand in for others.
    pub(super) fn spares(&self) -> usize {
        self.spares.values().map(BTreeSet::len).sum::<usize>() + self.spare_sequencers.len()
    }

    /// When waiting for more than enough ends.
    pub(super) fn gathers_until(&self) -> Time {
        self.since + self.purpose.gather_for
    }

    /// The step to go on with, if the present one is complete; or why there can be no view.
    pub(super) fn next_step(
        &mut self,
        now: Time,
        around: Around<'_>,
        options: Options,
    ) -> Result<Option<Step>, Trouble> {
        match self.step {
            Step::Seal => self.after_seal(now, around),
            Step::Fence if options.deviates(Deviation::FenceSkipped) && self.old() != ViewNumber::NONE => {
                self.shards = self.entry.view.as_ref().map(|view| view.shards.clone()).unwrap_or_default();
                Ok(Some(Step::Flush))
            }
            Step::Fence => self.after_fence(now, around, options),
            Step::Flush if self.flushed.is_some() && self.have_shards_flushed() => {
                self.replace_sequencers(around);
                Ok(Some(Step::Stage))
            }
            Step::Flush => Ok(None),
            Step::Stage => self.after_stage(now, around),
            Step::Register => Ok(None),
        }
    }

    fn after_seal(&mut self, now: Time, around: Around<'_>) -> Result<Option<Step>, Trouble> {
        let chosen = self.choose();
        let fresh = self.old() == ViewNumber::NONE;
        let candidates = self.sequencers();
        // Before the first view there is nothing to choose: it only matters who can be staged.
        let go_on = chosen.is_some() || fresh;
        if !self.has_gathered(now, around, &candidates, |node| self.sealed.contains_key(&node), go_on) {
            return Ok(None);
        }
        if !fresh && chosen.is_none() && !self.purpose.accepts_loss {
            let nodes = self.old_members().map(|member| member.node);
            let answered = |node| self.sealed.contains_key(&node);
            // If all of them answered, none has its memory.
            need(around, nodes, "sequencing replicas", answered)?;
        }
        self.chosen = chosen;
        Ok(Some(Step::Fence))
    }

    /// Step 3: a sealed replica that the old view names, this life of it. The one that got furthest has
    /// the least to flush.
    fn choose(&self) -> Option<Member> {
        let view = self.entry.view.as_ref()?;
        let candidates = self.sealed.iter().filter_map(|(node, (incarnation, state))| {
            let member = Member { node: *node, incarnation: *incarnation };
            let state = state.as_ref()?;
            view.names_sequencer(member).then_some((state.ordered, *node == view.leader, member))
        });
        candidates.max().map(|(_, _, member)| member)
    }

    pub(super) fn after_fence(
        &mut self,
        now: Time,
        around: Around<'_>,
        options: Options,
    ) -> Result<Option<Step>, Trouble> {
        for shard in shape::shards(&self.entry) {
            let (candidates, go_on) = (self.replicas(shard), self.needs_no_more(shard, around));
            let answered = |node| self.fenced.contains_key(&(shard, node));
            if !self.has_gathered(now, around, &candidates, answered, go_on) {
                return Ok(None);
            }
        }
        let mut asks_more = false;
        for shard in shape::shards(&self.entry).collect::<Vec<_>>() {
            asks_more |= self.add_spares(shard, around);
        }
        if asks_more {
            self.since = now;
            return Ok(None);
        }
        let shards = self.selected(around, options);
        let lost = self.what_is_lost(&shards, around)?;
        if let Some(loss) = lost.clone().filter(|_| !self.purpose.accepts_loss) {
            return Err(Trouble::Lost(loss));
        }
        for ShardMembers { shard, replicas, .. } in &shards {
            let what = || (format!("replicas of shard {shard}"), self.replicas(*shard));
            check_count(around, replicas.len(), self.entry.config.least_replicas(), what)?;
        }
        self.shards = shards;
        self.gaps = lost.map(|loss| loss.gaps).unwrap_or_default();
        if self.places_first() {
            self.plan_flushes();
            return Ok(Some(Step::Flush));
        }
        if self.chosen.is_none() {
            let (first, end) = (self.first(), self.joins_at());
            self.flushed = Some(Flushed { first, end, sessions: Sessions::default() });
            return Ok(Some(Step::Stage));
        }
        Ok(Some(Step::Flush))
    }

    /// Where the new view starts to decide: where the flush starts, if there is one.
    pub(super) fn first(&self) -> Position {
        match &self.flushed {
            Some(flushed) => flushed.first,
            None if self.places_first() => self.written_everywhere(),
            None if self.chosen.is_some() => self.chosen_ordered(),
            None if self.old() == ViewNumber::NONE => Position::ZERO,
            None if self.has_cuts() => self.lowest_stable(),
            None => self.highest_stable(),
        }
    }

    /// Where the new view's flush begins: what lies below, the old view's shards held.
    pub(super) fn certain(&self) -> Position {
        if self.has_cuts() {
            return self.cuts_end();
        }
        if self.places_first() {
            return self.written_everywhere();
        }
        self.highest_stable().max(self.chosen_ordered())
    }

    /// How far the chosen replica got: from there on its flush binds what it holds, and below the shards do.
    fn chosen_ordered(&self) -> Position {
        self.chosen_state().map_or(Position::ZERO, |state| state.ordered)
    }

    /// The state that the chosen replica holds.
    pub(super) fn chosen_state(&self) -> Option<&SealedState> {
        let (_, state) = self.sealed.get(&self.chosen?.node)?;
        state.as_ref()
    }

    pub(super) fn highest_stable(&self) -> Position {
        let start = self.entry.view.as_ref().map_or(Position::ZERO, |view| view.start);
        self.fenced.values().map(|(_, held)| held.stable).fold(start, Position::max)
    }

    fn after_stage(&mut self, now: Time, around: Around<'_>) -> Result<Option<Step>, Trouble> {
        if self.replace_sequencers(around) {
            self.since = now;
            return Ok(None);
        }
        let least = self.entry.config.least_sequencers();
        let candidates = self.to_stage(around);
        let spare: Vec<NodeId> = around.spares(&candidates).collect();
        let enough = self.staged.len() >= least;
        // One whose node is heard may be mute all the same: others can stand in for it.
        let go_on = enough || !spare.is_empty();
        if !self.has_gathered(now, around, &candidates, |node| self.staged.contains_key(&node), go_on) {
            return Ok(None);
        }
        if enough {
            return Ok(Some(Step::Register));
        }
        let missing = least - self.staged.len();
        if spare.is_empty() {
            let what = || ("sequencing replicas".to_owned(), self.sequencers());
            check_count(around, self.staged.len(), least, what)?;
        }
        self.spare_sequencers.extend(spare.into_iter().take(missing));
        self.since = now;
        Ok(None)
    }

    /// Asks spares in place of sequencing replicas that do not answer, if that is what the view is for. Says whether there are
    /// some that were not asked yet.
    fn replace_sequencers(&mut self, around: Around<'_>) -> bool {
        if self.purpose.leaves_sequencers {
            return false;
        }
        let take_part = self.to_stage(around);
        let before = self.spare_sequencers.len();
        let group = self.orderers(&take_part, around);
        if !group.drained.is_empty() {
            let spares = group.stand_ins(around.spares(&take_part), around.partings);
            self.spare_sequencers.extend(spares.into_iter().take(group.unfilled));
        }
        if self.purpose.replaces {
            let take_part: BTreeSet<NodeId> =
                take_part.into_iter().chain(self.spare_sequencers.clone()).collect();
            let staying = take_part.iter().filter(|node| !around.parts(**node)).count();
            let lost = (self.entry.config.sequencers as usize).saturating_sub(staying);
            self.spare_sequencers.extend(around.spares(&take_part).take(lost));
        }
        self.spare_sequencers.len() > before
    }

    /// The sequencing replicas, where these nodes take part.
    fn orderers(&self, take_part: &BTreeSet<NodeId>, around: Around<'_>) -> Group {
        Group::of(&self.entry.sequencers, take_part, self.entry.config.sequencers, around.partings)
    }

    /// The nodes that are to host sequencing replicas of the new view: those that are meant to, and spares if
    /// those are too few. Nodes whose disks are full only if the log cannot do without them.
    fn to_stage(&self, around: Around<'_>) -> BTreeSet<NodeId> {
        // One that is to leave stays until others are enough.
        let leaving = self.old_members().map(|member| member.node).filter(|node| around.parts(*node));
        let all = self.entry.sequencers.iter().chain(&self.spare_sequencers).copied().chain(leaving);
        let suffice = around.able() >= self.entry.config.least_sequencers();
        let takes_part = |node: &NodeId| if suffice { around.can_hold(*node) } else { around.answers(*node) };
        all.filter(|node| takes_part(node)).collect()
    }

    /// The new view, as far as it is known.
    fn view(&self, around: Around<'_>, options: Options) -> View {
        let staged = self.staged.iter();
        let mut sequencers: Vec<Member> =
            staged.map(|(node, incarnation)| Member { node: *node, incarnation: *incarnation }).collect();
        // Spares stand in only as far as they are needed.
        let place = |member: &Member| self.entry.sequencers.iter().position(|node| *node == member.node);
        sequencers.sort_by_key(|member| (around.parts(member.node), place(member).unwrap_or(usize::MAX)));
        sequencers.truncate(self.entry.config.sequencers as usize);
        let chosen = self.chosen.map(|chosen| chosen.node);
        let old_leader = chosen.filter(|chosen| sequencers.iter().any(|member| member.node == *chosen));
        let leader = old_leader.or(sequencers.first().map(|member| member.node)).unwrap_or_default();
        let (first, start) = self
            .flushed
            .as_ref()
            .map_or((Position::ZERO, Position::ZERO), |flushed| (flushed.first, flushed.end));
        let first = if options.deviates(Deviation::FirstAfterFlush) { start } else { first };
        View {
            number: self.claim(),
            sequencers,
            leader,
            shards: self.shards.clone(),
            placement: shape::placement(&self.entry, &self.shards, self.joins_at(), options),
            first,
            start,
        }
    }

    /// The register's entry with the new view.
    fn registered_entry(&self, around: Around<'_>, options: Options) -> LogEntry {
        let mut view = self.view(around, options);
        let mut entry = self.entry.clone();
        for members in &view.shards {
            entry.shards[members.shard.0 as usize] = self.assignment(members, around);
        }
        let has_left = |shard: &ShardId| view.shard(*shard).is_none();
        for shard in entry.leaving.iter().filter(|shard| has_left(shard)) {
            entry.shards[shard.0 as usize].clear();
        }
        entry.leaving.retain(|shard| !has_left(shard));
        entry.history.push(view.number, if self.has_cuts() { view.start } else { view.first });
        self.gaps.iter().for_each(|gap| entry.history.give_up(*gap));
        let trimmed = if self.places_first() { self.highest_trim() } else { self.trimmed(&view.shards) };
        entry.history.forget_views_below(trimmed);
        view.placement = view.placement.forget_below(entry.history.start());
        entry.unavailable = None;
        if options.deviates(Deviation::EndsForgotten) {
            entry.ended = EndedSessions::default();
        }
        let take_part = view.sequencers.iter().map(|member| member.node);
        if self.places_first() {
            // Where the sequencer is does not matter: it keeps nothing.
            entry.sequencers = take_part.collect();
            // After an accepted loss it may begin below what an ended session was given.
            entry.ended.cut(view.start);
        } else if self.purpose.replaces || entry.sequencers.iter().any(|node| around.parts(*node)) {
            // All that take part hold the same. Those that are away lose their places to others, as far as there are any, and
            // those that are to leave do so first.
            let is_away = |node: &NodeId| view.sequencers.iter().all(|member| member.node != *node);
            let away = entry.sequencers.iter().copied().filter(is_away);
            let mut nodes: Vec<NodeId> = take_part.chain(away).collect();
            nodes.sort_by_key(|node| around.parts(*node));
            nodes.truncate(entry.config.sequencers as usize);
            entry.sequencers = nodes;
        }
        entry.view = Some(view);
        entry
    }

    /// Asks whoever has not answered.
    pub(super) fn ask(
        &self,
        register: Address,
        around: Around<'_>,
        options: Options,
        out: &mut Vec<RoleEffect>,
    ) {
        let claim = self.claim();
        let config = &self.entry.config;
        let to_sequencer = |node: NodeId| Address::Node(node, Endpoint::Sequencer);
        match self.step {
            Step::Seal => {
                for node in self.sequencers().into_iter().filter(|node| !self.sealed.contains_key(node)) {
                    let message = Message::Seal { claim, old: self.old(), config: config.clone() };
                    send(to_sequencer(node), message, out);
                }
            }
            Step::Fence => {
                for shard in shape::shards(&self.entry) {
                    let unanswered = |node: &NodeId| !self.fenced.contains_key(&(shard, *node));
                    for node in self.replicas(shard).into_iter().filter(unanswered) {
                        let to = Address::Node(node, Endpoint::Shard(shard));
                        send(to, shard::Message::Fence { claim, entry: self.entry.clone() }, out);
                    }
                }
            }
            Step::Flush if self.places_first() => self.ask_shards_to_flush(out),
            Step::Flush => {
                let Member { node, incarnation } = self.chosen.expect("a flush has a chosen replica");
                let message =
                    Message::Flush { claim, old: self.old(), incarnation, view: self.view(around, options) };
                send(to_sequencer(node), message, out);
            }
            Step::Stage => {
                let Flushed { end, sessions, .. } = self.flushed.clone().expect("staging follows the flush");
                let to = self.to_stage(around).into_iter().filter(|node| !self.staged.contains_key(node));
                for node in to {
                    let sessions = sessions.clone();
                    let config = config.clone();
                    let message = Message::Stage { claim, old: self.old(), config, ordered: end, sessions };
                    send(to_sequencer(node), message, out);
                }
            }
            Step::Register => {
                send(register, Message::CompareAndSet { entry: self.registered_entry(around, options) }, out);
            }
        }
    }
}
