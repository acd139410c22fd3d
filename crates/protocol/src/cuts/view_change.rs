//! A member of the ordering layer in a view change: it is sealed; the chosen member completes its
//! cuts on the shards and closes the view; the members of the next view are staged.

use seriatim_model::{
    Address, Endpoint, Member, NodeId, Position, ShardId, ShardMembers, Time, View, ViewNumber, limits,
};

use super::closing::ClosingCut;
use super::cut::Cut;
use super::free::Filter;
use super::memory::JournalRecord;
use super::owed::Owed;
use super::pushing::Pusher;
use super::quotas::Quotas;
use super::sequencer::{Sequencer, reply, sweep};
use super::shard::Rest;
use crate::control::{self, Message, SealedState};
use crate::mutation::Mutation;
use crate::parts::membership::{Registered, SealOutcome, Staged};
use crate::parts::{Carried, Sessions};
use crate::roles::RoleEffect;

/// Completion of the chosen member's cuts for a claim, and the closing cut behind them. The
/// member's own state does not change: after a failed attempt the next one needs it.
#[derive(Clone, Debug)]
pub(super) struct Flush {
    claim: ViewNumber,
    controller: Address,
    completed: Pusher,
    closing: ClosingCut,
    sessions: Sessions,
    owed: Owed,
}

impl Flush {
    pub(super) fn deadline(&self) -> Option<Time> {
        [self.completed.deadline(), self.closing.deadline()].into_iter().flatten().min()
    }

    /// End of the closing cut, once all required replicas hold everything.
    fn end(&self) -> Option<Position> {
        self.closing.end().filter(|_| self.completed.len() == 0)
    }

    /// Position below which all required replicas hold everything.
    fn bound(&self) -> Position {
        if self.completed.len() > 0 { self.completed.bound() } else { self.closing.bound() }
    }
}

impl Sequencer {
    /// Seals this member: it obeys no lower claim any more, and reports its cuts of view `old`.
    pub(super) fn seal(
        &mut self,
        now: Time,
        from: Address,
        claim: ViewNumber,
        old: ViewNumber,
        out: &mut Vec<RoleEffect>,
    ) {
        let skipped = self.options.mutates(Mutation::SealSkipped) && self.membership.is_open();
        let Some(outcome) = self.membership.seal(now, from, (claim, old), skipped, out) else { return };
        if let SealOutcome::Newly { adopts } = outcome {
            (self.flush, self.leader) = (None, None);
            self.sealed_for = claim;
            if adopts {
                self.adopt_staged(old, Position::ZERO);
            }
            self.persist_claim(adopts, out);
        }
        let holds_old = old != ViewNumber::NONE && self.membership.number == old;
        let state =
            holds_old.then(|| SealedState { ordered: self.bound, held: self.end().since(self.bound) });
        let sealed = Message::Sealed { claim, incarnation: self.membership.me.incarnation, state };
        self.gate.confirm(from, sealed, out);
    }

    /// Completes the held cuts on the replicas of the next view that were members of this one:
    /// these have the records; other replicas copy them later. Then asks for uncovered records.
    /// Each replica reports whether it was a member: this member does not know, if it did not see
    /// the view start.
    ///
    /// Only this process knows the answers: after a restart it would make another closing cut.
    pub(super) fn begin_flush(
        &mut self,
        now: Time,
        from: Address,
        claim: ViewNumber,
        next: &View,
        out: &mut Vec<RoleEffect>,
    ) {
        let is_obeyed = claim == self.membership.claim && claim == self.sealed_for;
        if claim <= self.membership.number || !is_obeyed {
            return self.membership.tell_preempted(from, out);
        }
        self.membership.back_off(now);
        if self.flush.as_ref().is_none_or(|flush| flush.claim != claim) {
            let members: Vec<(ShardId, Vec<Member>)> =
                next.shards.iter().map(|members| (members.shard, self.old_members(members))).collect();
            let routes = members.iter().map(|(shard, members)| (*shard, &members[..]));
            let numbers = (claim, self.membership.number);
            let mut completed = Pusher::new(numbers, routes, self.bound);
            if !self.options.mutates(Mutation::CutsLost) {
                self.cuts.iter().for_each(|cut| completed.push(now, cut.clone(), out));
            }
            let shards = (&next.shards[..], self.former_shards(next));
            let closing = ClosingCut::new(now, numbers, shards, completed.end(), out);
            let sessions = self.sessions.clone();
            let owed = match self.options.mutates(Mutation::OwedForgotten) {
                true => Owed::default(),
                false => {
                    let cuts = self.cuts.make_contiguous();
                    self.owed.in_view(next, self.membership.number, self.bound, cuts)
                }
            };
            self.flush = Some(Flush { claim, controller: from, completed, closing, sessions, owed });
            self.go_on_closing(now, out);
        }
        self.report_flush(out);
    }

    /// Shards of the next view that this view has. A member that has not heard of this view's
    /// registration does not know them, and takes all for former ones. A joining shard begins at
    /// the end of the cuts, and so may a former shard that lost all replicas. Such a member cannot
    /// tell them apart: with a joining shard it closes nothing.
    fn former_shards(&self, next: &View) -> Vec<ShardId> {
        let old = self.membership.view.as_ref().filter(|view| view.number == self.membership.number);
        let is_former = |members: &&ShardMembers| old.is_none_or(|view| view.shard(members.shard).is_some());
        next.shards.iter().filter(is_former).map(|members| members.shard).collect()
    }

    fn old_members(&self, next: &seriatim_model::ShardMembers) -> Vec<Member> {
        let old = self.membership.view.as_ref().and_then(|view| view.shard(next.shard));
        let was_member = |member: &&Member| old.is_some_and(|old| old.replicas.contains(member));
        next.replicas.iter().filter(was_member).copied().collect()
    }

    fn go_on_closing(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let Some(flush) = &mut self.flush else { return };
        let decided = |shard| self.cuts.back().map_or(0, |cut: &Cut| cut.length(shard));
        let filter = Filter::new(&self.config, self.options);
        flush.closing.go_on(now, (decided, self.windows.as_ref()), (filter, &mut flush.sessions), out);
    }

    fn report_flush(&mut self, out: &mut Vec<RoleEffect>) {
        let Some(flush) = &self.flush else { return };
        let (claim, controller) = (flush.claim, flush.controller);
        let message = match flush.end() {
            Some(end) => {
                let unlisted = self.options.mutates(Mutation::ClosedUnlisted);
                let mut sessions = if unlisted { self.sessions.clone() } else { flush.sessions.clone() };
                sweep(&mut sessions, end, &self.config, self.options);
                sessions.prune(limits::MAX_BOUND_RUNS, self.options.limits.void_runs);
                let quotas = self.windows.as_ref().map_or_else(|| self.quotas.clone(), Quotas::of);
                let carried = Carried { sessions, order: quotas.carried(&flush.owed) };
                Message::Flushed { claim, first: flush.completed.end(), end, carried }
            }
            None => Message::Flushing { claim, bound: flush.bound() },
        };
        reply(controller, message, out);
    }

    pub(super) fn flush_bound(
        &mut self,
        now: Time,
        shard: ShardId,
        view: ViewNumber,
        batch: Position,
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(flush) = self.flush.as_mut().filter(|flush| flush.claim == view) else { return };
        flush.completed.note_bound(shard, batch);
        flush.closing.note_bound(shard, batch);
        self.flush_goes_on(now, out);
    }

    pub(super) fn rest_told(
        &mut self,
        now: Time,
        replica: (ShardId, NodeId),
        view: ViewNumber,
        rest: Option<Rest>,
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(flush) = self.flush.as_mut().filter(|flush| flush.claim == view) else { return };
        flush.closing.note_rest(replica, rest);
        self.flush_goes_on(now, out);
    }

    fn flush_goes_on(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        self.go_on_closing(now, out);
        if self.flush.as_ref().is_some_and(|flush| flush.end().is_some()) {
            self.report_flush(out);
        }
    }

    pub(super) fn resend_flush(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if let Some(flush) = &mut self.flush {
            flush.completed.resend(now, out);
            flush.closing.resend(now, out);
        }
    }

    pub(super) fn stage(
        &mut self,
        from: Address,
        old: ViewNumber,
        staged: Staged,
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(outcome) = self.membership.stage(from, old, &staged, out) else { return };
        let claim = staged.claim;
        if let SealOutcome::Newly { adopts } = outcome {
            self.leader = None;
            if adopts {
                self.adopt_staged(old, Position::ZERO);
                self.persist_claim(true, out);
            }
            self.persist(&JournalRecord::Staged(staged.clone()), out);
            self.membership.prepare(staged);
        }
        self.gate.confirm(from, Message::Staged { claim, incarnation: self.membership.me.incarnation }, out);
    }

    pub(super) fn registered(&mut self, now: Time, entry: control::LogEntry, out: &mut Vec<RoleEffect>) {
        let Some(view) = entry.view else { return };
        match self.membership.registered(now, &view) {
            Registered::Starts => {
                let started = self.persist(&JournalRecord::Started { view: view.clone() }, out);
                self.start(&view, started);
                // A later claim may have sealed this member before it heard of the view.
                if self.membership.is_open() {
                    self.say_open(&view, out);
                }
            }
            Registered::Ends => {
                (self.flush, self.leader) = (None, None);
                self.persist_claim(false, out);
            }
            Registered::Known => self.membership.learn(&view),
            Registered::CannotStart => {}
        }
    }

    /// Before it knew the view, this member accepted nothing. A leader asks for reports; a follower
    /// announces itself and gets the cuts.
    fn say_open(&mut self, view: &View, out: &mut Vec<RoleEffect>) {
        if let Some(leader) = &self.leader {
            return leader.ask_for_reports(out);
        }
        let held = super::message::Message::Held { view: view.number, end: self.end() };
        self.gate.confirm(Address::Node(view.leader, Endpoint::Sequencer), held, out);
    }

    pub(super) fn adopt_staged(&mut self, number: ViewNumber, start: Position) {
        let staged = self.membership.adopt(number, start);
        self.leader = None;
        self.cuts.clear();
        self.bound = staged.ordered;
        self.sessions = staged.carried.sessions;
        (self.quotas, self.owed) = Quotas::of_carried(&staged.carried.order);
        self.windows = None;
        if self.options.mutates(Mutation::SuccessorForgotten) {
            self.sessions.forget_successors();
        }
    }
}
