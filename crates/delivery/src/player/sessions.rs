//! Sessions with targets: attach, batches, end.

use seriatim_model::{Position, Time};
use seriatim_protocol::Mutation;

use super::machine::{Effect, Note, Out, Player, Stop, TargetIndex};
use super::message::{ApplyError, AttachError, Message};
use super::queue::Item;
use super::target::{Quiet, Recovery, State, Target, Term, Turn, Why};

impl Player {
    pub(super) fn wake(&mut self, now: Time, out: &mut Out) {
        self.wake_at = None;
        let within = self.config.limits.apply_within;
        for index in 0..self.targets.len() {
            let target = &mut self.targets[index];
            match target.state {
                State::Down { attach_at } if attach_at <= now => self.attach(now, index, out),
                _ if target.is_late(now, within) => {
                    target.shrink_batches();
                    self.broken(now, index, format!("no answer for {} s", within.as_secs_f64()), out);
                }
                _ => {}
            }
        }
        self.reopen(now, out);
        self.take_turns(now, out);
        if self.scan_at.is_some_and(|at| at <= now) {
            self.scan(now, out);
        }
        self.start(now, out);
        if let Some(at) = self.next_deadline() {
            self.schedule(at);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let within = self.config.limits.apply_within;
        let start = self.started_at + self.config.limits.start_within;
        let starts = (self.dispatched.is_none() && self.targets.has_ready()).then_some(start);
        let targets = self.targets.iter().filter_map(|target| target.deadline(within)).min();
        [targets, self.streams_deadline(), self.scan_at, starts].into_iter().flatten().min()
    }

    fn attach(&mut self, now: Time, index: usize, out: &mut Out) {
        let target = &mut self.targets[index];
        target.state = State::Attaching { since: now };
        let (term, adopts) = (target.term, target.adopts);
        out.push(Effect::Attach { target: TargetIndex(index), term, adopts });
        self.schedule(now + self.config.limits.apply_within);
    }

    pub(super) fn attach_answered(
        &mut self,
        now: Time,
        index: usize,
        term: Term,
        outcome: Result<Position, AttachError>,
        out: &mut Out,
    ) {
        if !self.targets.has_term(index, term)
            || !matches!(self.targets[index].state, State::Attaching { .. })
        {
            return;
        }
        match outcome {
            Ok(bound) if bound > self.tail.max(self.targets[index].first) => {
                self.targets[index].state = State::Doubted { bound };
                out.push(Effect::AskTail);
            }
            Ok(bound) => self.enter(now, index, bound, out),
            Err(AttachError::Fenced { epoch }) => self.stop(Stop::Fenced { epoch }, out),
            Err(AttachError::OtherStream { stream }) => {
                self.halt(now, index, Why::OtherStream { stream }, out)
            }
            Err(AttachError::Unusable { reason }) => self.halt(now, index, Why::Unusable { reason }, out),
            Err(AttachError::Broken { reason }) => self.broken(now, index, reason, out),
        }
        self.start(now, out);
    }

    pub(super) fn tail_answered(&mut self, now: Time, tail: Position, out: &mut Out) {
        self.tail = self.tail.max(tail);
        for index in 0..self.targets.len() {
            let State::Doubted { bound } = self.targets[index].state else { continue };
            match bound > self.tail.max(self.targets[index].first) {
                true => self.halt(now, index, Why::AboveTail { bound, tail: self.tail }, out),
                false => self.enter(now, index, bound, out),
            }
        }
        self.start(now, out);
    }

    /// Starts a session at the target's bound.
    fn enter(&mut self, now: Time, index: usize, bound: Position, out: &mut Out) {
        let remembers = self.mutates(Mutation::AppliedRemembered);
        let target = &mut self.targets[index];
        target.sessions += 1;
        let acknowledged = target.acknowledged;
        let believed = if remembers { bound.max(acknowledged) } else { bound };
        target.attached(now, believed);
        if bound < acknowledged {
            target.acknowledged = believed;
            let note = Note::Restored { target: TargetIndex(index), from: acknowledged, to: bound };
            out.push(Effect::Note(note));
        }
        let (skip, first) = (target.skip.take(), target.first);
        out.push(Effect::Note(Note::Attached { target: TargetIndex(index), bound }));
        self.complete_attach(index, Ok(()), out);
        match skip {
            Some((at, upto, command)) if at == bound => return self.move_to(now, index, upto, command, out),
            Some((_, upto, Some(number))) if bound >= upto => {
                out.push(Effect::Done { number, outcome: Ok(()) });
            }
            Some((at, _, Some(number))) => {
                let outcome = Err(format!("the target's bound is {bound}, not {at}"));
                out.push(Effect::Done { number, outcome });
            }
            _ => {}
        }
        match bound < first {
            true => self.move_to(now, index, first, None, out),
            false => self.place(now, index, out),
        }
    }

    /// Moves a target's bound with an empty batch, before it receives messages.
    fn move_to(&mut self, now: Time, index: usize, upto: Position, skips: Option<u64>, out: &mut Out) {
        if self.mutates(Mutation::SkipUnrecorded) && skips.is_some() {
            self.targets[index].attached(now, upto);
            return self.moved(now, index, skips, out);
        }
        self.targets[index].state = State::Moving { upto, skips };
        self.send(now, index, upto, vec![], out);
    }

    fn moved(&mut self, now: Time, index: usize, skips: Option<u64>, out: &mut Out) {
        out.extend(skips.map(|number| Effect::Done { number, outcome: Ok(()) }));
        self.place(now, index, out);
    }

    /// Lets an attached target receive messages.
    fn place(&mut self, now: Time, index: usize, out: &mut Out) {
        if self.dispatched.is_none() {
            self.targets[index].state = State::Ready;
            return self.start(now, out);
        }
        let bound = self.targets[index].applied;
        self.recover(now, index, bound, out);
        self.reconsider(now, index, out);
        self.advance(now, index, out);
    }

    /// Opens the main stream when all targets have answered, or enough time has passed. It starts
    /// at the lowest bound near the highest: a target that was away for days does not pull the
    /// others through its past (the paper starts at the lowest bound, algorithm 5).
    fn start(&mut self, now: Time, out: &mut Out) {
        if self.dispatched.is_some() || !self.targets.has_ready() || self.is_over {
            return;
        }
        let limit = self.started_at + self.config.limits.start_within;
        if now < limit && self.targets.iter().any(Target::is_pending) {
            return self.schedule(limit);
        }
        let (lowest, highest) = self.targets.ready_bounds(self.tail);
        let skips = self.mutates(Mutation::StartAtHighest);
        self.open_main(if skips { highest } else { lowest }, out);
        for index in 0..self.targets.len() {
            if self.targets[index].state != State::Ready {
                continue;
            }
            match skips && self.targets[index].applied >= lowest {
                true => self.targets[index].state = State::Normal,
                false => self.place(now, index, out),
            }
        }
    }

    /// Starts a recovery from `from`, unless the main stream has not passed it.
    fn recover(&mut self, now: Time, index: usize, from: Position, out: &mut Out) {
        let dispatched = self.dispatched.expect("the main stream is open");
        let target = TargetIndex(index);
        if from >= dispatched {
            return self.caught_up(now, index, out);
        }
        let joins = dispatched.since(from) <= self.config.limits.join;
        let since = self.targets.next_turn();
        let forgets_join = self.mutates(Mutation::JoinTooLate);
        self.targets[index].state = State::Recovering(Recovery {
            goal: dispatched,
            missed: (!joins || forgets_join).then_some(dispatched),
            next: from,
            turn: Turn::Waiting { since },
            is_refused: false,
        });
        out.push(Effect::Note(Note::Recovers { target, from, to: dispatched }));
        self.open_recoveries(now, out);
    }

    /// Lets a target receive the main stream. If it lacks no message, a search moves its bound.
    fn caught_up(&mut self, now: Time, index: usize, out: &mut Out) {
        self.targets[index].state = State::Normal;
        out.push(Effect::Note(Note::CaughtUp { target: TargetIndex(index) }));
        self.scan_soon(now);
    }

    /// Searches for quiet targets in a while; at once if the requested range is complete.
    pub(super) fn scan_soon(&mut self, now: Time) {
        let ends = self.config.until.is_some_and(|until| self.dispatched >= Some(until));
        self.scan_by(if ends { now } else { now + self.config.limits.quiet_for });
    }

    /// Searches for quiet targets at this time at the latest.
    pub(super) fn scan_by(&mut self, at: Time) {
        self.scan_at = Some(self.scan_at.map_or(at, |earlier| earlier.min(at)));
        self.schedule(at);
    }

    /// Ends a recovery that has sent everything below its goal.
    fn recovered_all(&mut self, now: Time, index: usize, out: &mut Out) {
        let Some(recovery) = self.targets[index].recovery() else { return };
        match recovery.missed {
            None => self.caught_up(now, index, out),
            Some(missed) => self.recover(now, index, missed, out),
        }
    }

    /// Sends what the target may receive, and changes its state when a queue is empty.
    pub(super) fn advance(&mut self, now: Time, index: usize, out: &mut Out) {
        if self.is_over {
            return;
        }
        let sends_early = self.mutates(Mutation::NormalWhileFetching);
        loop {
            let target = &mut self.targets[index];
            let (may_send, is_flying, is_new) = (target.may_send(), target.is_flying(), target.is_new());
            let sent = target.sent;
            let Some(source) = target.source() else { return };
            match source.front() {
                None => match &target.state {
                    State::Full { missed } => {
                        let missed = *missed;
                        self.recover(now, index, missed, out);
                    }
                    State::Recovering(recovery) if recovery.turn == Turn::Complete => {
                        self.recovered_all(now, index, out);
                    }
                    State::Recovering(_) if sends_early && may_send => {
                        let limits = self.config.limits;
                        let messages =
                            self.targets.edit(index, |target| target.normal.take_messages(&limits));
                        let Some(last) = messages.last() else { return };
                        let upto = last.position.next();
                        self.send(now, index, upto, messages, out);
                    }
                    _ => return,
                },
                Some(Item::Gap { .. }) if is_flying => return,
                Some(&Item::Gap { from, end, ref reason }) => {
                    if is_new {
                        let note = Note::BeginsAbove {
                            target: TargetIndex(index),
                            first: end,
                            reason: reason.clone(),
                        };
                        out.push(Effect::Note(note));
                        self.targets.edit(index, |target| target.source().and_then(super::queue::Queue::pop));
                        self.send(now, index, end, vec![], out);
                    } else if sent < from {
                        self.send(now, index, from, vec![], out);
                    } else {
                        let why = Why::Gap { end, reason: reason.clone() };
                        return self.halt(now, index, why, out);
                    }
                }
                Some(Item::Message(_)) if !may_send => return,
                Some(Item::Message(_)) => self.send_queued(now, index, out),
            }
        }
    }

    fn send_queued(&mut self, now: Time, index: usize, out: &mut Out) {
        let limits = self.config.limits;
        let dispatched = self.dispatched.expect("the main stream is open");
        let drops_last = self.mutates(Mutation::CaughtUpEarly);
        let (upto, messages) = self.targets.edit(index, |target| {
            let limits = target.batch_limits(&limits);
            let source = target.source().expect("the state sends");
            let messages = source.take_messages(&limits);
            if drops_last && source.len() == 1 && target.is_complete() {
                target.catchup.clear();
            }
            let last = messages.last().expect("the front is a message").position.next();
            (target.covered(dispatched).map_or(last, |covered| covered.max(last)), messages)
        });
        self.send(now, index, upto, messages, out);
        self.refill(now, index, out);
    }

    fn send(&mut self, now: Time, index: usize, upto: Position, messages: Vec<Message>, out: &mut Out) {
        let batch = self.targets.edit(index, |target| target.fly(now, upto, messages));
        let term = self.targets[index].term;
        out.push(Effect::Send { target: TargetIndex(index), term, batch });
        self.schedule(now + self.config.limits.apply_within);
    }

    /// Moves the bounds of targets without messages (the paper's dummy entries, section 2.6).
    pub(super) fn scan(&mut self, now: Time, out: &mut Out) {
        let Some(dispatched) = self.dispatched else { return };
        (self.scanned, self.scan_at) = (dispatched, None);
        let limits = self.config.limits;
        let ends = self.config.until.is_some_and(|until| dispatched >= until);
        for index in 0..self.targets.len() {
            let over_queued = self.mutates(Mutation::AdvanceOverQueued);
            let target = &mut self.targets[index];
            if over_queued && target.state == State::Normal && !target.normal.is_empty() {
                self.targets.edit(index, |target| target.normal.clear());
                self.send(now, index, dispatched, vec![], out);
                continue;
            }
            match target.quiet(now, dispatched, ends, &limits) {
                None => {}
                Some(Quiet::Moves(upto)) => self.send(now, index, upto, vec![], out),
                Some(Quiet::Waits(at)) => self.scan_by(at),
            }
        }
    }

    pub(super) fn applied(&mut self, now: Time, index: usize, term: Term, upto: Position, out: &mut Out) {
        if !self.targets.has_term(index, term) {
            return;
        }
        if !self.targets.edit(index, |target| target.apply(now, upto)) {
            let reason = format!("it acknowledged position {upto}, where no batch ends");
            return self.broken(now, index, reason, out);
        }
        if let State::Moving { upto: goal, skips } = self.targets[index].state {
            assert!(upto == goal, "a moving target has one batch in flight");
            return self.moved(now, index, skips, out);
        }
        self.reconsider(now, index, out);
        self.advance(now, index, out);
        self.refill(now, index, out);
        // The last search found the target busy.
        self.scan_soon(now);
        self.open_recoveries(now, out);
    }

    pub(super) fn not_applied(
        &mut self,
        now: Time,
        index: usize,
        term: Term,
        error: ApplyError,
        out: &mut Out,
    ) {
        if !self.targets.has_term(index, term) {
            return;
        }
        match error {
            ApplyError::Fenced { epoch } => self.stop(Stop::Fenced { epoch }, out),
            ApplyError::Broken { reason } => self.broken(now, index, reason, out),
            ApplyError::Moved { applied } => {
                let sent = self.targets[index].applied;
                let reason = format!("its bound is {applied} and not {sent}: it is read again");
                self.broken(now, index, reason, out);
            }
            ApplyError::Rejected { position, reason } => {
                match self.targets.edit(index, |target| target.reject(position)) {
                    Some(message) => self.rejected(now, index, message, reason, out),
                    None => {
                        let reason = format!("it rejected position {position}, which is not in flight");
                        self.broken(now, index, reason, out);
                    }
                }
            }
        }
    }

    fn rejected(&mut self, now: Time, index: usize, message: Message, reason: String, out: &mut Out) {
        let reason = shortened(reason);
        let dead_letters = self.targets[index].config.dead_letters;
        self.halt(now, index, Why::Rejected { message: message.clone(), reason: reason.clone() }, out);
        if dead_letters {
            out.push(Effect::DeadLetter { target: TargetIndex(index), message, reason });
        }
    }

    /// Ends a session that failed. The player attaches again after a while.
    pub(super) fn broken(&mut self, now: Time, index: usize, reason: String, out: &mut Out) {
        let reason = shortened(reason);
        let attach_at = now + self.targets[index].back_off();
        self.targets[index].last_error = Some(reason.clone());
        self.complete_attach(index, Err(reason.clone()), out);
        self.end(now, index, State::Down { attach_at }, out);
        self.schedule(attach_at);
        out.push(Effect::Note(Note::Down { target: TargetIndex(index), reason }));
    }

    /// Stops a target until an operator acts.
    fn halt(&mut self, now: Time, index: usize, why: Why, out: &mut Out) {
        let reason = why.to_string();
        self.targets[index].last_error = Some(reason.clone());
        self.complete_attach(index, Err(reason), out);
        self.end(now, index, State::Stopped(why.clone()), out);
        out.push(Effect::Note(Note::Stopped { target: TargetIndex(index), why }));
        self.reconsider(now, index, out);
    }

    /// Ends a session, with its queues and its recovery stream.
    pub(super) fn end(&mut self, now: Time, index: usize, state: State, out: &mut Out) {
        let target = &mut self.targets[index];
        if target.has_session() {
            target.detaching = Some(target.term);
            out.push(Effect::Detach { target: TargetIndex(index), term: target.term });
        }
        if let State::Moving { upto, skips } = target.state {
            // The next session moves the bound, if this one did not.
            let at = target.applied;
            self.targets[index].skip = Some((at, upto, skips));
        }
        self.close_recovery(index, out);
        let keeps = self.mutates(Mutation::QueueKept);
        self.targets.edit(index, |target| target.end_session(keeps));
        self.targets[index].state = state;
        self.open_recoveries(now, out);
        self.start(now, out);
    }
}

/// Most characters of a target's reason.
const REASON_CHARS: usize = 300;

/// The reason without its end, if it is long: a database may repeat the whole message in it.
fn shortened(reason: String) -> String {
    match reason.char_indices().nth(REASON_CHARS) {
        None => reason,
        Some((end, _)) => format!("{}…", &reason[..end]),
    }
}
