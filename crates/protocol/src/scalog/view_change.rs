//! What a member of the ordering layer does in a view change: it is sealed, the chosen one completes on the shards what
//! it holds, and those that are to be members are staged.

use seriatim_model::{Address, Member, Position, ShardId, Time, View, ViewNumber, limits};

use super::memory::JournalRecord;
use super::pushing::Pusher;
use super::sequencer::{Sequencer, Staged, reply};
use crate::control::{self, Message, SealedState, behind};
use crate::deviation::Deviation;
use crate::parts::Sessions;
use crate::roles::RoleEffect;

/// How long a member that is sealed waits for its new view before it asks for one.
const SEALED_PATIENCE: std::time::Duration = std::time::Duration::from_millis(400);

/// What the chosen member completes on behalf of a claim. Its own state stays as it is: an attempt that dies here must
/// leave it to the next.
#[derive(Clone, Debug)]
pub(super) struct Flush {
    claim: ViewNumber,
    controller: Address,
    pusher: Pusher,
    sessions: Sessions,
}

impl Flush {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.pusher.deadline()
    }
}

impl Sequencer {
    /// Obeys nobody below `claim` any more, and says what it holds of view `old`.
    pub(super) fn seal(
        &mut self,
        now: Time,
        from: Address,
        claim: ViewNumber,
        old: ViewNumber,
        out: &mut Vec<RoleEffect>,
    ) {
        if claim < self.claim {
            return reply(from, Message::Outbid { claim: self.claim }, out);
        }
        if self.is_ahead(from, claim, old, out) {
            return;
        }
        let skipped = self.options.deviates(Deviation::SealSkipped) && self.is_open();
        if claim > self.claim && !skipped {
            // A view that was registered, and that it did not see start, is the old view now.
            let adopts = self.is_staged_for(old);
            self.claim = claim;
            (self.flush, self.leader) = (None, None);
            if adopts {
                self.adopt_staged(old, Position::ZERO);
            }
            self.persist_claim(adopts, out);
        }
        self.report_at = now + SEALED_PATIENCE;
        let holds_old = old != ViewNumber::NONE && self.number == old;
        let state =
            holds_old.then(|| SealedState { ordered: self.bound, held: self.end().since(self.bound) });
        let sealed = Message::Sealed { claim, incarnation: self.me.incarnation, state };
        self.gate.confirm(from, sealed, out);
    }

    /// Whether it knows a registered view that the claimant's register does not: it says so, and obeys nobody who would
    /// replace that view by what came before it.
    fn is_ahead(&self, from: Address, claim: ViewNumber, old: ViewNumber, out: &mut Vec<RoleEffect>) -> bool {
        let view = self.registered_number();
        let is_ahead = behind::is_shown_by(claim, old, view);
        if is_ahead {
            reply(from, Message::Ahead { claim, view }, out);
        }
        is_ahead
    }

    /// Whether it is prepared for view `old`, which was registered, and did not see it start.
    fn is_staged_for(&self, old: ViewNumber) -> bool {
        self.number < old && self.staged.as_ref().is_some_and(|staged| staged.claim == old)
    }

    /// Completes the cuts that it holds on those replicas of the next view that were members of their own: they have
    /// the records. Others get them later.
    pub(super) fn begin_flush(
        &mut self,
        now: Time,
        from: Address,
        claim: ViewNumber,
        next: &View,
        out: &mut Vec<RoleEffect>,
    ) {
        if claim <= self.number || claim != self.claim {
            return reply(from, Message::Outbid { claim: self.claim }, out);
        }
        self.report_at = now + SEALED_PATIENCE;
        if self.flush.as_ref().is_none_or(|flush| flush.claim != claim) {
            let members: Vec<(ShardId, Vec<Member>)> =
                next.shards.iter().map(|members| (members.shard, self.old_members(members))).collect();
            let routes = members.iter().map(|(shard, members)| (*shard, &members[..]));
            let pusher = Pusher::new((claim, self.number), routes, self.bound);
            let sessions = self.sessions.clone();
            let mut flush = Flush { claim, controller: from, pusher, sessions };
            if !self.options.deviates(Deviation::CutsLost) {
                self.cuts.iter().for_each(|cut| flush.pusher.push(now, cut.clone(), out));
            }
            flush.sessions.prune(limits::MAX_BOUND_RUNS);
            self.flush = Some(flush);
        }
        self.report_flush(out);
    }

    /// Those of a shard's replicas in the next view that were replicas in this one.
    fn old_members(&self, next: &seriatim_model::ShardMembers) -> Vec<Member> {
        let old = self.view.as_ref().and_then(|view| view.shard(next.shard));
        let was_member = |member: &&Member| old.is_some_and(|old| old.replicas.contains(member));
        next.replicas.iter().filter(was_member).copied().collect()
    }

    /// Says how far the cuts are on the shards.
    fn report_flush(&self, out: &mut Vec<RoleEffect>) {
        let Some(flush) = &self.flush else { return };
        let (claim, end, sessions) = (flush.claim, flush.pusher.end(), flush.sessions.clone());
        let message = match flush.pusher.len() {
            // Nothing is bound anew: what is completed belongs to the view before.
            0 => Message::Flushed { claim, first: end, end, sessions },
            _ => Message::Flushing { claim, bound: flush.pusher.bound() },
        };
        reply(flush.controller, message, out);
    }

    /// A shard holds a cut.
    pub(super) fn flush_bound(
        &mut self,
        shard: ShardId,
        view: ViewNumber,
        batch: Position,
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(flush) = self.flush.as_mut().filter(|flush| flush.claim == view) else { return };
        flush.pusher.is_bound(shard, batch);
        if flush.pusher.len() == 0 {
            self.report_flush(out);
        }
    }

    pub(super) fn resend_flush(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if let Some(flush) = &mut self.flush {
            flush.pusher.resend(now, out);
        }
    }

    /// Is prepared to start the claimed view, beside the state of the old one.
    pub(super) fn stage(
        &mut self,
        from: Address,
        old: ViewNumber,
        staged: Staged,
        out: &mut Vec<RoleEffect>,
    ) {
        let claim = staged.claim;
        if claim >= self.claim && self.is_ahead(from, claim, old, out) {
            return;
        }
        if claim < self.claim || claim <= self.number {
            return reply(from, Message::Outbid { claim: self.claim }, out);
        }
        if self.staged.as_ref() != Some(&staged) {
            self.claim = claim;
            self.leader = None;
            if self.is_staged_for(old) {
                // What was registered, and not seen to start, is not to be overwritten.
                self.adopt_staged(old, Position::ZERO);
                self.persist_claim(true, out);
            }
            self.persist(&JournalRecord::Staged(staged.clone()), out);
            self.staged = Some(staged);
        }
        self.gate.confirm(from, Message::Staged { claim, incarnation: self.me.incarnation }, out);
    }

    /// A view is registered: starts it, if this member is prepared for it.
    pub(super) fn registered(&mut self, now: Time, entry: control::LogEntry, out: &mut Vec<RoleEffect>) {
        let Some(view) = entry.view else { return };
        if view.number <= self.number {
            return;
        }
        let amnesia =
            self.options.deviates(Deviation::AmnesiaAcknowledges) && self.number == ViewNumber::NONE;
        let prepared = self.staged.as_ref().is_some_and(|staged| staged.claim == view.number);
        if self.is_named_in(&view) && (prepared || amnesia) {
            let started = self.persist(&JournalRecord::Started { view: view.clone() }, out);
            return self.start(view, started);
        }
        if view.number > self.claim {
            // Nobody sealed this member, but its view is over: it is as frozen as if sealed.
            self.claim = view.number;
            (self.flush, self.leader) = (None, None);
            self.persist_claim(false, out);
        }
        self.cannot_start = self.cannot_start.max(view.number);
        self.report_at = now;
    }

    /// The staged state becomes the member's own, in place of that of the view before.
    pub(super) fn adopt_staged(&mut self, number: ViewNumber, start: Position) {
        let staged = self.staged.take().filter(|staged| staged.claim == number);
        let staged = staged.unwrap_or(Staged { claim: number, start, sessions: Sessions::default() });
        self.number = number;
        self.view = None;
        self.leader = None;
        self.cuts.clear();
        self.bound = staged.start;
        self.sessions = staged.sessions;
    }
}
