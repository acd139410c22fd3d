//! One attempt to form a view: what was asked, what was answered, and what that is enough for.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::storage::Lacking;
use seriatim_model::{
    Address, Endpoint, Gap, Incarnation, Member, NodeId, Position, ShardId, ShardMembers, Time, View,
    ViewNumber, limits,
};

use super::catalog;
use super::loss::{Loss, Trouble};
use super::message::{LogEntry, Message, SealedState};
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
    fenced: BTreeMap<(ShardId, NodeId), (Incarnation, Held)>,
    /// Nodes that are asked although they are not meant to host a replica of the shard: too few that are
    /// meant to answer.
    spares: BTreeMap<ShardId, BTreeSet<NodeId>>,
    /// The same for sequencing replicas.
    spare_sequencers: BTreeSet<NodeId>,
    chosen: Option<Member>,
    shards: Vec<ShardMembers>,
    /// What none of them holds.
    gaps: Vec<Gap>,
    /// How far the flush is known to be.
    flushing: Position,
    flushed: Option<Flushed>,
    staged: BTreeMap<NodeId, Incarnation>,
    /// Nodes that fell silent while the view was being registered, which may name them.
    left: BTreeSet<NodeId>,
    purpose: Purpose,
}

#[derive(Clone, Debug)]
struct Flushed {
    first: Position,
    end: Position,
    sessions: Sessions,
}

/// What is waited for.
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

/// Who answers, as the node of the controller sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) nodes: &'a BTreeSet<NodeId>,
    pub(super) silent: &'a BTreeSet<NodeId>,
}

impl<'a> Around<'a> {
    fn answers(self, node: NodeId) -> bool {
        !self.silent.contains(&node)
    }

    /// The nodes that answer and are none of `taken`.
    pub(super) fn spares(self, taken: &BTreeSet<NodeId>) -> impl Iterator<Item = NodeId> + use<'a, '_> {
        let free = move |node: &NodeId| self.answers(*node) && !taken.contains(node);
        self.nodes.iter().copied().filter(free)
    }
}

/// What an attempt is to achieve beyond a view.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Purpose {
    /// Whether the operator accepts that what nobody holds any more is lost.
    pub(super) accepts_loss: bool,
    /// Whether replicas that are away are replaced, not only as many as the log needs to go on.
    pub(super) replaces: bool,
    /// Whether shards may join.
    pub(super) joins: bool,
    /// The defect of counting on replicas that lack something.
    pub(super) counts_lacking: bool,
}

impl Attempt {
    pub(super) fn new(now: Time, entry: LogEntry, purpose: Purpose) -> Self {
        Self {
            entry,
            step: Step::Seal,
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

    fn old_replicas(&self, shard: ShardId) -> impl Iterator<Item = Member> {
        let members = self.entry.view.as_ref().and_then(|view| view.shard(shard));
        members.into_iter().flat_map(|members| members.replicas.iter().copied())
    }

    /// Those that may hold what the old view left, and those that are to be members.
    fn sequencers(&self) -> BTreeSet<NodeId> {
        let assigned = self.entry.sequencers.iter().copied();
        assigned
            .chain(self.old_members().map(|member| member.node))
            .chain(self.spare_sequencers.clone())
            .collect()
    }

    fn replicas(&self, shard: ShardId) -> BTreeSet<NodeId> {
        let assigned = self.entry.shards[shard.0 as usize].iter().copied();
        let spares = self.spares.get(&shard).into_iter().flatten().copied();
        assigned.chain(self.old_replicas(shard).map(|member| member.node)).chain(spares).collect()
    }

    /// Whether nothing was pushed to the shard in any view that was registered.
    fn is_fresh(&self, shard: ShardId) -> bool {
        self.old() == ViewNumber::NONE || shape::joins(&self.entry, shard)
    }

    /// A replica is sealed. Says whether that is news, as do the other answers: what is only repeated is no
    /// progress.
    pub(super) fn is_sealed(
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

    pub(super) fn is_fenced(
        &mut self,
        shard: ShardId,
        node: NodeId,
        incarnation: Incarnation,
        held: Held,
    ) -> bool {
        let answer = (incarnation, held);
        self.step < Step::Register && self.fenced.insert((shard, node), answer) != Some(answer)
    }

    pub(super) fn is_flushed(&mut self, first: Position, end: Position, sessions: Sessions) -> bool {
        let awaited = self.step == Step::Flush;
        if awaited {
            self.flushed = Some(Flushed { first, end, sessions });
        }
        awaited
    }

    /// The chosen replica is on its way.
    pub(super) fn is_flushing(&mut self, bound: Position) -> bool {
        let further = bound > self.flushing;
        self.flushing = self.flushing.max(bound);
        further
    }

    pub(super) fn is_staged(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        // What is being registered stays as it is: it may be registered already.
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

    /// Those that fell silent when nothing could be changed about the view any more.
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
        !awaited || go_on && now >= self.since + limits::GATHER_FOR
    }

    /// How many nodes are asked to stand in for others.
    pub(super) fn spares(&self) -> usize {
        self.spares.values().map(BTreeSet::len).sum::<usize>() + self.spare_sequencers.len()
    }

    /// When waiting for more than enough ends.
    pub(super) fn gathers_until(&self) -> Time {
        self.since + limits::GATHER_FOR
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
            Step::Flush => Ok(self.flushed.as_ref().map(|_| Step::Stage)),
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

    fn after_fence(
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
        if self.chosen.is_none() {
            let start = self.first();
            self.flushed = Some(Flushed { first: start, end: start, sessions: Sessions::default() });
            return Ok(Some(Step::Stage));
        }
        Ok(Some(Step::Flush))
    }

    /// The shards of the new view, with their replicas.
    fn selected(&self, around: Around<'_>, options: Options) -> Vec<ShardMembers> {
        let of = |shard| {
            let begins = match self.entry.view.as_ref() {
                None => Position::ZERO,
                Some(view) => view.shard(shard).map_or(self.first(), |members| members.begins),
            };
            ShardMembers { shard, begins, replicas: self.select(shard, around) }
        };
        let mut shards: Vec<ShardMembers> = shape::shards(&self.entry).map(of).collect();
        // The log goes on without a shard that has nobody yet.
        let least = self.entry.config.least_replicas();
        shards.retain(|members| {
            let is_wanted = self.purpose.joins && !self.entry.leaving.contains(&members.shard);
            let can_join = members.replicas.len() >= least && is_wanted;
            can_join || !shape::joins(&self.entry, members.shard)
        });
        let trimmed = self.trimmed(&shards);
        shards.retain(|members| !shape::has_left(&self.entry, members.shard, trimmed, options));
        shards
    }

    /// Where the new view starts to decide: where the flush starts, if there is one.
    fn first(&self) -> Position {
        match &self.flushed {
            Some(flushed) => flushed.first,
            None if self.chosen.is_some() => self.chosen_ordered(),
            None if self.old() == ViewNumber::NONE => Position::ZERO,
            None => self.highest_stable(),
        }
    }

    /// Whether a shard can do without those that have not answered: what the old view's members held is held,
    /// and there are enough replicas, or spares. One whose node is heard may be mute all the same.
    fn needs_no_more(&self, shard: ShardId, around: Around<'_>) -> bool {
        let selected = self.select(shard, around);
        let is_held = self.is_fresh(shard) || self.is_complete(shard, selected.first());
        let enough = selected.len() >= self.entry.config.least_replicas() || shape::joins(&self.entry, shard);
        is_held && (enough || around.spares(&self.replicas(shard)).next().is_some())
    }

    /// Whether a replica holds everything that the old view's members held, and knows what they trimmed.
    fn is_complete(&self, shard: ShardId, member: Option<&Member>) -> bool {
        let Some(member) = member else { return false };
        let Some((incarnation, held)) = self.fenced.get(&(shard, member.node)) else { return false };
        let was_member = self.old_replicas(shard).any(|old| old == *member)
            && *incarnation == member.incarnation
            && held.view == self.old()
            && (self.purpose.counts_lacking || held.lacks.is_none());
        self.is_fresh(shard) || was_member
    }

    /// The replicas that the new view is to have for a shard: complete ones first, and among those, and
    /// among the others, those that were members, and those that are meant to be; or, where nobody is
    /// complete, those that hold most together.
    /// One that is silent although it answered is taken only if nobody else holds everything.
    fn select(&self, shard: ShardId, around: Around<'_>) -> Vec<Member> {
        let assigned = &self.entry.shards[shard.0 as usize];
        let old: Vec<Member> = self.old_replicas(shard).collect();
        let answered = self.fenced.range((shard, NodeId(0))..=(shard, NodeId(u32::MAX)));
        let answered = answered.map(|((_, node), (incarnation, held))| {
            let member = Member { node: *node, incarnation: *incarnation };
            (self.is_complete(shard, Some(&member)), member, held)
        });
        let all_is_held = answered.clone().any(|(complete, ..)| complete);
        let mut ranked: Vec<_> = answered
            .map(|(complete, member, held)| {
                let node = &member.node;
                let place = assigned.iter().position(|candidate| candidate == node);
                let was = old.iter().position(|candidate| *candidate == member);
                let knows = if complete { Position::ZERO } else { held.stable };
                let rank = (
                    !complete,
                    !around.answers(*node),
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
        let ranked = if all_is_held { ranked } else { self.most_held_first(ranked, around) };
        let wanted = self.entry.config.replicas as usize;
        let ranked = ranked.into_iter().map(|(member, _)| member).take(wanted).enumerate();
        let taken = ranked.filter(|(index, member)| *index == 0 || around.answers(member.node));
        taken.map(|(_, member)| member).collect()
    }

    /// First the replica that lacks least, then always the one that has most of what those before it lack.
    fn most_held_first(&self, mut ranked: Vec<(Member, Held)>, around: Around<'_>) -> Vec<(Member, Held)> {
        let certain = self.certain();
        let mut left = Lacking { from: Position::ZERO, end: certain };
        let mut ordered = vec![];
        while !ranked.is_empty() {
            let left_by = |held: &Held| left.meet(held.lacks_in(&self.entry.history, certain));
            let cost = |(member, held): &(Member, Held)| {
                let left = left_by(held);
                (!around.answers(member.node), left.end - left.from)
            };
            let best = (0..ranked.len()).min_by_key(|index| cost(&ranked[*index])).unwrap_or_default();
            left = left_by(&ranked[best].1);
            ordered.push(ranked.remove(best));
        }
        ordered
    }

    /// Asks spare nodes if too few replicas of a shard answer. Says whether there is somebody to wait for.
    fn add_spares(&mut self, shard: ShardId, around: Around<'_>) -> bool {
        let config = &self.entry.config;
        let wanted = if self.purpose.replaces { config.replicas as usize } else { config.least_replicas() };
        let missing = wanted.saturating_sub(self.select(shard, around).len());
        let mut spare: Vec<NodeId> = around.spares(&self.replicas(shard)).collect();
        if missing == 0 || spare.is_empty() {
            return false;
        }
        // Not all shards choose the same one.
        let turn = (catalog::count(self.entry.id) as usize + shard.0 as usize) % spare.len();
        spare.rotate_left(turn);
        self.spares.entry(shard).or_default().extend(spare.into_iter().take(missing));
        true
    }

    /// What nobody holds any more, if the shards go on with these replicas.
    fn what_is_lost(&self, shards: &[ShardMembers], around: Around<'_>) -> Result<Option<Loss>, Trouble> {
        if self.old() == ViewNumber::NONE {
            return Ok(None);
        }
        let mut loss = Loss { certain: self.certain(), tail: self.chosen.is_none(), ..Loss::default() };
        if self.chosen.is_none() {
            loss.what.push("the sequencing replicas".into());
        }
        for ShardMembers { shard, begins, replicas } in shards {
            let shard = *shard;
            if self.is_complete(shard, replicas.first()) {
                continue;
            }
            if !self.purpose.accepts_loss {
                let nodes = self.old_replicas(shard).map(|member| member.node);
                let answered = |node| self.fenced.contains_key(&(shard, node));
                need(around, nodes, &format!("replicas of shard {shard}"), answered)?;
            }
            let held = replicas.iter().filter_map(|member| self.fenced.get(&(shard, member.node)));
            let held: Vec<Held> = held.map(|(_, held)| *held).collect();
            loss.add_shard((shard, *begins), &held, &self.entry.history);
        }
        Ok((!loss.what.is_empty()).then_some(loss))
    }

    /// Where the new view's flush begins: what lies below, the old view's shards held.
    fn certain(&self) -> Position {
        self.highest_stable().max(self.chosen_ordered())
    }

    /// How far the chosen replica got: from there on its flush binds what it holds, and below the shards do.
    fn chosen_ordered(&self) -> Position {
        let chosen = self.chosen.and_then(|chosen| self.sealed.get(&chosen.node));
        let state = chosen.and_then(|(_, state)| state.as_ref());
        state.map_or(Position::ZERO, |state| state.ordered)
    }

    fn highest_stable(&self) -> Position {
        let start = self.entry.view.as_ref().map_or(Position::ZERO, |view| view.start);
        self.fenced.values().map(|(_, held)| held.stable).fold(start, Position::max)
    }

    fn after_stage(&mut self, now: Time, around: Around<'_>) -> Result<Option<Step>, Trouble> {
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

    /// Who is to be a sequencing replica of the new view: those that are meant to, and spares if those are
    /// too few.
    fn to_stage(&self, around: Around<'_>) -> BTreeSet<NodeId> {
        let all = self.entry.sequencers.iter().chain(&self.spare_sequencers);
        all.copied().filter(|node| around.answers(*node)).collect()
    }

    /// The new view, as far as it is known.
    fn view(&self, options: Options) -> View {
        let staged = self.staged.iter();
        let mut sequencers: Vec<Member> =
            staged.map(|(node, incarnation)| Member { node: *node, incarnation: *incarnation }).collect();
        // Spares stand in only as far as they are needed.
        let place = |member: &Member| self.entry.sequencers.iter().position(|node| *node == member.node);
        sequencers.sort_by_key(|member| place(member).unwrap_or(usize::MAX));
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
            placement: shape::placement(&self.entry, &self.shards, self.first(), options),
            first,
            start,
        }
    }

    /// The nodes that are meant to host a shard's replicas from now on. One that is away keeps its place
    /// until another holds everything in its stead.
    fn assignment(&self, members: &ShardMembers) -> Vec<NodeId> {
        let before = &self.entry.shards[members.shard.0 as usize];
        if !members.replicas.iter().all(|member| self.is_complete(members.shard, Some(member))) {
            return before.clone();
        }
        let mut nodes: Vec<NodeId> = members.replicas.iter().map(|member| member.node).collect();
        let others: Vec<NodeId> = before.iter().filter(|node| !nodes.contains(node)).copied().collect();
        nodes.extend(others);
        nodes.truncate(self.entry.config.replicas as usize);
        nodes
    }

    /// Below it, every one of these replicas has trimmed, as far as its shard goes back. One that is away learns so from the history.
    fn trimmed(&self, shards: &[ShardMembers]) -> Position {
        let trim =
            |shard, node| self.fenced.get(&(shard, node)).map_or(Position::ZERO, |(_, held)| held.trim);
        let old = shards.iter().filter(|members| !self.is_fresh(members.shard));
        let members = old.flat_map(|ShardMembers { shard, replicas, .. }| {
            replicas.iter().map(|member| trim(*shard, member.node))
        });
        members.min().unwrap_or(Position::ZERO)
    }

    /// The register's entry with the new view.
    fn registered_entry(&self, options: Options) -> LogEntry {
        let mut view = self.view(options);
        let mut entry = self.entry.clone();
        for members in &view.shards {
            entry.shards[members.shard.0 as usize] = self.assignment(members);
        }
        let has_left = |shard: &ShardId| view.shard(*shard).is_none();
        for shard in entry.leaving.iter().filter(|shard| has_left(shard)) {
            entry.shards[shard.0 as usize].clear();
        }
        entry.leaving.retain(|shard| !has_left(shard));
        entry.history.push(view.number, view.first);
        self.gaps.iter().for_each(|gap| entry.history.give_up(*gap));
        entry.history.forget_views_below(self.trimmed(&view.shards));
        view.placement = view.placement.forget_below(entry.history.start());
        entry.unavailable = None;
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
            Step::Flush => {
                let Member { node, incarnation } = self.chosen.expect("a flush has a chosen replica");
                let message =
                    Message::Flush { claim, old: self.old(), incarnation, view: self.view(options) };
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
                send(register, Message::CompareAndSet { entry: self.registered_entry(options) }, out);
            }
        }
    }
}

/// Fails if one of `nodes`, each of which could help, does not answer.
fn need(
    around: Around<'_>,
    nodes: impl Iterator<Item = NodeId>,
    what: &str,
    answered: impl Fn(NodeId) -> bool,
) -> Result<(), Trouble> {
    let away = names(nodes.filter(|node| !around.answers(*node) || !answered(*node)));
    if away.is_empty() {
        return Ok(());
    }
    Err(Trouble::Waits(format!(
        "none of the {what} that hold what was acknowledged last answers: the log goes on when {away} is back; \
         what is stable can be read"
    )))
}

/// Fails if fewer than `least` take part of those that `what` tells, and where they are.
fn check_count(
    around: Around<'_>,
    count: usize,
    least: usize,
    what: impl Fn() -> (String, BTreeSet<NodeId>),
) -> Result<(), Trouble> {
    if count >= least {
        return Ok(());
    }
    let (what, nodes) = what();
    let away = names(nodes.into_iter().filter(|node| !around.answers(*node)));
    Err(Trouble::Waits(format!(
        "only {count} of the at least {least} {what} that an append needs answer; away: {}; what is stable can \
         be read",
        if away.is_empty() { "nobody else" } else { &away }
    )))
}

/// Nodes, for a person.
fn names(nodes: impl Iterator<Item = NodeId>) -> String {
    nodes.map(|node| format!("node {node}")).collect::<Vec<_>>().join(", ")
}
