//! The sequencing replica's part in a view change: seal, flush, stage (docs/design/views.md, steps
//! 2 to 6).

use seriatim_model::{Address, IdRun, Position, ShardId, Time, View, ViewNumber, limits};

use super::log_state::LogState;
use super::push::{Pusher, takes};
use super::sequencer::{Sequencer, reply};
use crate::control::Message;
use crate::mutation::{Mutation, Options};
use crate::parts::membership::{SealOutcome, Staged};
use crate::parts::{Entry, Ring, Sessions};
use crate::roles::RoleEffect;

/// Entries that the chosen replica binds for a claim. Its own state stays for the next attempt.
#[derive(Clone, Debug)]
pub(super) struct Flush {
    claim: ViewNumber,
    controller: Address,
    pusher: Pusher,
    next_slot: u64,
    first: Position,
    sessions: Sessions,
    options: Options,
}

impl Flush {
    fn new(claim: ViewNumber, controller: Address, view: &View, log: &LogState, options: Options) -> Self {
        Self {
            claim,
            controller,
            pusher: Pusher::new(claim, view, log.ordered(), options),
            next_slot: 0,
            first: log.ordered(),
            sessions: log.sessions().clone(),
            options,
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.pusher.deadline()
    }

    /// Pushes up to the window, and reports when all is bound.
    fn go_on(&mut self, now: Time, held: &Ring, out: &mut Vec<RoleEffect>) {
        self.pusher.resend(now, Position::ZERO, out);
        while self.pusher.has_room() && self.next_slot < held.end() {
            let entries = held.iter_from(self.next_slot);
            let count = takes(entries.clone().map(|(_, entry)| entry), &self.options.limits);
            let mut batch: Vec<&Entry> = vec![];
            for (slot, entry) in entries.take(count) {
                batch.push(entry);
                self.next_slot = slot + 1;
            }
            if batch.is_empty() {
                break;
            }
            if self.options.mutates(Mutation::FlushReversed) {
                batch.reverse();
            }
            let early = self.options.mutates(Mutation::StableBeforeRegister);
            let stable = if early { self.pusher.end() + batch.len() as u64 } else { Position::ZERO };
            self.pusher.push(now, batch.into_iter(), stable, out);
        }
        if self.pusher.is_empty() {
            reply(self.controller, self.flushed(), out);
        }
    }

    fn flushed(&mut self) -> Message {
        self.sessions.prune(limits::MAX_BOUND_RUNS, self.options.limits.void_runs);
        Message::Flushed {
            claim: self.claim,
            first: self.first,
            end: self.pusher.end(),
            carried: self.sessions.clone().into(),
        }
    }

    fn bound(&mut self, now: Time, shard: ShardId, batch: Position, voids: &[IdRun]) {
        self.pusher.bound(shard, batch, voids);
        while let Some(bound) = self.pusher.take_bound(now) {
            let mut position = bound.from;
            for bound in bound.ids {
                self.sessions.apply(bound, position);
                position += bound.ids.count;
            }
        }
    }
}

impl Sequencer {
    /// Step 2: rejects claims below `claim`, and reports its state of view `old`.
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
            (self.flush, self.orderer) = (None, None);
            if adopts {
                self.adopt_staged(old, Position::ZERO);
            }
            self.persist_claim(adopts, out);
        }
        let holds_old = old != ViewNumber::NONE && self.membership.number == old
            || self.options.mutates(Mutation::StageDestroys) && self.membership.number != ViewNumber::NONE;
        let state = holds_old.then(|| self.log.sealed());
        let sealed = Message::Sealed { claim, incarnation: self.membership.me.incarnation, state };
        if self.options.mutates(Mutation::SealNotDurable) {
            return reply(from, sealed, out);
        }
        self.gate.confirm(from, sealed, out);
    }

    /// Step 5: binds entries in arrival order, from `ordered` on, under the claim.
    pub(super) fn begin_flush(
        &mut self,
        now: Time,
        from: Address,
        claim: ViewNumber,
        view: View,
        out: &mut Vec<RoleEffect>,
    ) {
        let skipped = self.options.mutates(Mutation::SealSkipped);
        if claim <= self.membership.number || claim != self.membership.claim && !skipped {
            return self.membership.tell_preempted(from, out);
        }
        if self.flush.as_ref().is_none_or(|flush| flush.claim != claim) {
            self.flush = Some(Flush::new(claim, from, &view, &self.log, self.options));
        }
        self.membership.back_off(now);
        self.continue_flush(now, out);
        if let Some(flush) = self.flush.as_ref().filter(|flush| !flush.pusher.is_empty()) {
            reply(from, Message::Flushing { claim, bound: flush.pusher.bound_below() }, out);
        }
    }

    pub(super) fn continue_flush(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if let Some(flush) = &mut self.flush {
            flush.go_on(now, self.log.ring(), out);
        }
    }

    pub(super) fn flush_bound(
        &mut self,
        now: Time,
        shard: ShardId,
        view: ViewNumber,
        (batch, voids): (Position, &[IdRun]),
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(flush) = self.flush.as_mut().filter(|flush| flush.claim == view) else { return };
        flush.bound(now, shard, batch, voids);
        flush.go_on(now, self.log.ring(), out);
    }

    /// Step 6: prepares the claimed view beside the old one's state.
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
            self.orderer = None;
            if adopts {
                self.adopt_staged(old, Position::ZERO);
                self.persist_claim(true, out);
            }
            self.persist_staged(&staged, out);
            if self.options.mutates(Mutation::StageDestroys) {
                self.log.restore(staged.ordered, staged.carried.sessions.clone(), vec![]);
            }
            self.membership.prepare(staged);
        }
        self.gate.confirm(from, Message::Staged { claim, incarnation: self.membership.me.incarnation }, out);
    }
}
