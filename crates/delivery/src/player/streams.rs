//! The player's subscriptions, and the turns of recoveries.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::storage::Stored;
use seriatim_model::{Position, Time};
use seriatim_protocol::Mutation;

use super::machine::{Effect, Note, Out, Player, StreamNumber, message};
use super::queue::Item;
use super::target::{State, Turn};
use super::targets::Changed;

/// Room of the main stream, in records.
const MAIN_RECORDS: u64 = 1024;
/// Room of the main stream, in bytes.
const MAIN_BYTES: i64 = 4 << 20;
/// Longest turn of a recovery while another one waits, as a multiple of the time without room.
const TURN: u32 = 10;
/// First wait before a failed stream is opened again.
const REOPEN_FIRST: Duration = Duration::from_millis(100);
/// Longest wait before a failed stream is opened again.
const REOPEN_MOST: Duration = Duration::from_secs(10);

/// The receiver of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// All targets.
    Main,
    /// One target that recovers.
    Recovery(usize),
}

#[derive(Clone, Debug)]
struct Open {
    owner: Owner,
    /// The next position.
    next: Position,
    end: Option<Position>,
    /// Records that may still arrive.
    records: u64,
    /// Bytes that may still arrive. Negative if the last record exceeded them.
    bytes: i64,
    /// When to open the stream again. None: it is open.
    reopen_at: Option<Time>,
    failures: u32,
}

impl Open {
    fn has_room(&self) -> bool {
        self.records > 0 && self.bytes > 0
    }
}

/// All streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    open: BTreeMap<StreamNumber, Open>,
    last: u64,
}

impl Streams {
    fn add(&mut self, owner: Owner, next: Position, end: Option<Position>, failures: u32) -> StreamNumber {
        self.last += 1;
        let open = Open { owner, next, end, records: 0, bytes: 0, reopen_at: None, failures };
        self.open.insert(StreamNumber(self.last), open);
        StreamNumber(self.last)
    }

    /// Opens a stream.
    pub(super) fn open(
        &mut self,
        owner: Owner,
        (from, end): (Position, Option<Position>),
        out: &mut Out,
    ) -> StreamNumber {
        let stream = self.add(owner, from, end, 0);
        out.push(Effect::Open { stream, from, end });
        stream
    }

    /// Number of recovery streams.
    fn recoveries(&self) -> usize {
        self.open.values().filter(|open| open.owner != Owner::Main).count()
    }

    pub(super) fn next(&self, stream: StreamNumber) -> Option<Position> {
        self.open.get(&stream).map(|open| open.next)
    }

    /// Accounts for a record. None: the stream is closed.
    pub(super) fn fetched(&mut self, stream: StreamNumber, record: &Stored) -> Option<Owner> {
        let open = self.open.get_mut(&stream)?;
        assert!(record.position >= open.next, "a stream delivers each position once, in order");
        open.next = record.position.next();
        open.records = open.records.saturating_sub(1);
        open.bytes -= record.record.memory() as i64;
        open.failures = 0;
        Some(open.owner)
    }

    /// Notes that nothing below `end` follows. None: the stream is closed.
    pub(super) fn passed(&mut self, stream: StreamNumber, end: Position) -> Option<Owner> {
        let open = self.open.get_mut(&stream)?;
        open.next = open.next.max(end);
        open.records = open.records.saturating_sub(1);
        Some(open.owner)
    }

    /// Keeps the main stream's room at half or more.
    pub(super) fn refill_main(&mut self, stream: StreamNumber, out: &mut Out) {
        let Some(open) = self.open.get(&stream) else { return };
        if open.records <= MAIN_RECORDS / 2 || open.bytes <= MAIN_BYTES / 2 {
            let (records, bytes) = (MAIN_RECORDS - open.records, (MAIN_BYTES - open.bytes) as u64);
            self.pull(stream, records, bytes, out);
        }
    }

    fn pull(&mut self, stream: StreamNumber, records: u64, bytes: u64, out: &mut Out) {
        let open = self.open.get_mut(&stream).expect("the stream is open");
        (open.records, open.bytes) = (open.records + records, open.bytes + bytes as i64);
        out.push(Effect::Pull { stream, records, bytes });
    }

    pub(super) fn close(&mut self, stream: StreamNumber, out: &mut Out) {
        if self.open.remove(&stream).is_some() {
            out.push(Effect::Close { stream });
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.open.values().filter_map(|open| open.reopen_at).min()
    }
}

impl Player {
    /// Opens the main stream at `from`.
    pub(super) fn open_main(&mut self, from: Position, out: &mut Out) {
        self.dispatched = Some(from);
        self.scanned = from;
        let stream = self.streams.open(Owner::Main, (from, self.config.until), out);
        self.streams.refill_main(stream, out);
    }

    /// Gives an entry of a recovery stream to its target.
    pub(super) fn recovered(
        &mut self,
        now: Time,
        stream: StreamNumber,
        index: usize,
        record: &Stored,
        out: &mut Out,
    ) {
        let Some(mut mapped) = self.map(record, out) else { return };
        if let Some(parts) = mapped.messages.remove(&index) {
            let message = message(record, parts);
            self.targets[index].read_ms = message.appended_ms;
            let item = Item::Message(message);
            let mut others = Changed::default();
            let has_memory = self.targets.make_room(index, item.memory(), &mut others);
            let limits = self.config.limits;
            let is_queued = self.targets.edit(index, |target| {
                let fits = has_memory && target.catchup.has_room(item.memory(), &limits);
                let is_open = target.hears(stream);
                if is_open && fits {
                    target.push_catchup(item);
                }
                fits || !is_open
            });
            others.targets.remove(&index);
            others.closed.into_iter().for_each(|stream| self.streams.close(stream, out));
            others.targets.into_iter().for_each(|other| self.advance(now, other, out));
            self.open_recoveries(now, out);
            if !is_queued {
                if let Some(recovery) = self.targets[index].recovery() {
                    recovery.is_refused = true;
                }
                self.yield_turn(index, out);
                return self.open_recoveries(now, out);
            }
        }
        let next = record.position.next();
        if self.targets[index].hears(stream)
            && let Some(recovery) = self.targets[index].recovery()
        {
            recovery.next = recovery.next.max(next);
        }
        self.advance(now, index, out);
        self.refill(now, index, out);
    }

    /// Pulls more of a recovery, if its queue has room.
    pub(super) fn refill(&mut self, now: Time, index: usize, out: &mut Out) {
        let limits = self.config.limits;
        let memory = self.targets.memory();
        let target = &mut self.targets[index];
        let is_free = target.catchup.is_half_free(&limits);
        let has_memory = target.catchup.is_empty() || memory + limits.queue_bytes / 2 <= limits.memory;
        let State::Recovering(recovery) = &mut target.state else { return };
        let Turn::Open { stream, stalled, .. } = &mut recovery.turn else { return };
        if self.streams.open.get(stream).is_none_or(Open::has_room) {
            return;
        }
        if !is_free || !has_memory {
            if stalled.is_none() {
                *stalled = Some(now);
                self.schedule(now + limits.yield_after);
            }
            return;
        }
        *stalled = None;
        let (stream, records) = (*stream, limits.queue_messages.div_ceil(2) as u64);
        let spent = self.streams.open[&stream].bytes.min(0).unsigned_abs();
        self.streams.pull(stream, records, limits.queue_bytes as u64 / 2 + spent, out);
    }

    /// Takes the stream of a recovery away. The recovery waits for another turn.
    fn yield_turn(&mut self, index: usize, out: &mut Out) {
        if let Some(stream) = self.targets.yield_turn(index) {
            self.streams.close(stream, out);
        }
    }

    /// Closes the recovery stream of a target whose session ends.
    pub(super) fn close_recovery(&mut self, index: usize, out: &mut Out) {
        let keeps = self.mutates(Mutation::NoTerm);
        let Some(recovery) = self.targets[index].recovery() else { return };
        if let Turn::Open { stream, .. } = recovery.turn
            && !keeps
        {
            self.streams.close(stream, out);
        }
    }

    /// Opens streams for the recoveries that wait longest, within the limit.
    pub(super) fn open_recoveries(&mut self, now: Time, out: &mut Out) {
        while self.streams.recoveries() < self.config.limits.recoveries {
            let Some(index) = self.targets.next_waiting() else { return };
            let shortens = u64::from(self.mutates(Mutation::RecoveryEndsEarly));
            let Some(recovery) = self.targets[index].recovery() else { return };
            let goal = Position(recovery.goal.0 - shortens);
            if recovery.next >= goal {
                recovery.turn = Turn::Complete;
                recovery.next = recovery.goal;
                self.advance(now, index, out);
                continue;
            }
            let range = (recovery.next, Some(goal));
            let stream = self.streams.open(Owner::Recovery(index), range, out);
            if let Some(recovery) = self.targets[index].recovery() {
                let until = now + self.config.limits.yield_after * TURN;
                recovery.turn = Turn::Open { stream, stalled: None, until };
                recovery.is_refused = false;
            }
            self.refill(now, index, out);
        }
        if let Some(at) = self.streams_deadline() {
            self.schedule(at);
        }
    }

    /// Takes turns: streams without room for a while, or with a long turn, make way for waiting
    /// recoveries.
    pub(super) fn take_turns(&mut self, now: Time, out: &mut Out) {
        let yield_after = self.config.limits.yield_after;
        for index in 0..self.targets.len() {
            if self.targets.next_waiting().is_none() || self.mutates(Mutation::SlotKept) {
                break;
            }
            if self.targets[index].yields_at(yield_after).is_some_and(|at| now >= at) {
                self.yield_turn(index, out);
                self.open_recoveries(now, out);
            }
        }
    }

    pub(super) fn ended(&mut self, now: Time, stream: StreamNumber, out: &mut Out) {
        let Some(open) = self.streams.open.remove(&stream) else { return };
        let end = open.end.expect("only a stream with an end ends");
        match open.owner {
            Owner::Main => {
                self.advance_main(end.max(self.dispatched.unwrap_or_default()));
                self.scan(now, out);
            }
            Owner::Recovery(index) => {
                if self.targets[index].hears(stream)
                    && let Some(recovery) = self.targets[index].recovery()
                {
                    recovery.turn = Turn::Complete;
                    recovery.next = recovery.goal;
                }
                self.open_recoveries(now, out);
                self.advance(now, index, out);
            }
        }
    }

    pub(super) fn failed(&mut self, now: Time, stream: StreamNumber, reason: String, out: &mut Out) {
        let Some(open) = self.streams.open.get_mut(&stream) else { return };
        let wait = REOPEN_FIRST.saturating_mul(1 << open.failures.min(16)).min(REOPEN_MOST);
        open.failures += 1;
        open.reopen_at = Some(now + wait);
        out.push(Effect::Note(Note::StreamFailed { reason }));
        self.schedule(now + wait);
    }

    /// Opens failed streams again, where they were.
    pub(super) fn reopen(&mut self, now: Time, out: &mut Out) {
        let is_due = |open: &Open| open.reopen_at.is_some_and(|at| at <= now);
        let due = self.streams.open.iter().filter(|(_, open)| is_due(open)).map(|(stream, _)| *stream);
        for old in due.collect::<Vec<_>>() {
            let open = self.streams.open.remove(&old).expect("it was found");
            let stream = self.streams.add(open.owner, open.next, open.end, open.failures);
            out.push(Effect::Open { stream, from: open.next, end: open.end });
            match open.owner {
                Owner::Main => self.streams.refill_main(stream, out),
                Owner::Recovery(index) => {
                    if self.targets[index].hears(old)
                        && let Some(recovery) = self.targets[index].recovery()
                        && let Turn::Open { stream: number, stalled, .. } = &mut recovery.turn
                    {
                        (*number, *stalled) = (stream, None);
                    }
                    self.refill(now, index, out);
                }
            }
        }
    }

    pub(super) fn streams_deadline(&self) -> Option<Time> {
        let yield_after = self.config.limits.yield_after;
        let waits = self.targets.next_waiting().is_some() && !self.mutates(Mutation::SlotKept);
        let targets = self.targets.iter().filter(|_| waits);
        let yields = targets.filter_map(|target| target.yields_at(yield_after)).min();
        self.streams.deadline().into_iter().chain(yields).min()
    }
}
