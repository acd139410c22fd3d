//! How a shard with a quota meets its turns (SpecLog §3.2, §4.3): with records, or padding in their
//! place.
//!
//! Padding is a chunk without records. It needs no write and no acknowledgement, since it holds no
//! data. It is durable when everything before it is.

use std::collections::VecDeque;

use seriatim_model::{Address, Endpoint, IdRun, SessionId, ShardId, Time, limits};

use super::message::{Message, Submitted};
use super::{Chunk, LocalLog, LocalPath, Out, Stored};
use crate::cuts::window::{Lender, Share, Window};
use crate::mutation::Mutation;
use crate::shard::{Core, send};

/// The turn of the shard's last record.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    /// Index at which the turn ends. `None`: its window is unknown.
    end: Option<u64>,
    /// Index and arrival of the turn's first record.
    began: (u64, Time),
    /// Arrival of the last record before the turn.
    before: Option<Time>,
    came_at: Option<Time>,
}

/// The part of a local log, up to index `to`, for which other shards wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Awaited {
    to: u64,
    /// Length of the local log when the other shards asked. Lower records may not be durable yet.
    behind: u64,
}

/// The turns of one shard in the windows that it knows.
///
/// Invariant: the numbers of the windows are consecutive.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    pub(super) shard: ShardId,
    pub(super) windows: VecDeque<Window>,
    guesses_last: bool,
}

impl Turns {
    /// Adds windows that follow the known ones. Returns the number of the last known window.
    fn learn(&mut self, shard: ShardId, windows: Vec<Window>) -> Option<u32> {
        self.shard = shard;
        if std::mem::take(&mut self.guesses_last) {
            self.windows.pop_back();
        }
        for window in windows {
            let next = self.windows.back().map_or(window.number, |last| last.number + 1);
            if window.number == next {
                self.windows.push_back(window);
            }
        }
        let (first, last) = (self.windows.front()?.number, self.windows.back()?.number);
        assert_eq!(
            (last - first) as usize + 1,
            self.windows.len(),
            "windows {first} to {last} follow each other"
        );
        Some(last)
    }

    /// The deliberate defect: assumes that the next window equals the last one.
    fn guess(&mut self) {
        if let Some((last, base)) = self.windows.back().and_then(|last| Some((last, last.end()?))) {
            let mut guessed = Window { number: last.number + 1, base, ..last.clone() };
            for share in &mut guessed.shares {
                share.index = last.length_before(share.shard, last.cuts).expect("it has a share");
            }
            self.windows.push_back(guessed);
            self.guesses_last = true;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// End of the turn that contains an index, if its window is known.
    pub(super) fn end_at(&self, index: u64) -> Option<u64> {
        let in_window = |window: &Window| {
            let cut = window.awaited(self.shard, index).filter(|cut| *cut < window.cuts)?;
            window.length(self.shard, cut)
        };
        self.windows.iter().find_map(in_window)
    }

    /// Drops windows that end below an index, except the last one.
    fn forget_below(&mut self, index: u64) {
        let is_over =
            |window: &Window| window.length(self.shard, window.cuts - 1).is_none_or(|end| end <= index);
        while self.windows.len() > 1 && is_over(&self.windows[0]) {
            self.windows.pop_front();
        }
    }
}

impl LocalLog {
    /// The deliberate defect: the shard keeps its quota in a window in which it lends.
    fn lending_nothing(&self, shard: ShardId, mut window: Window) -> Window {
        let is_it = |lender: &Lender| lender.shard == shard && !window.is_free();
        if let Some(Lender { quota, .. }) = window.lenders.iter().copied().find(is_it) {
            window.lenders.retain(|lender| lender.shard != shard);
            window.shares.push(Share { shard, quota, index: self.length });
            window.shares.sort_by_key(|share| share.shard);
        }
        window
    }

    /// Whether other shards wait for the durable, unreported indexes.
    pub(super) fn is_awaited(&self, durable: u64) -> bool {
        let meets_turn = self.turns.end_at(self.reported).is_some_and(|end| end <= durable);
        meets_turn || self.reported < self.awaited.to && self.awaited.to <= durable
    }

    pub(super) fn note_turn(&mut self, now: Time, from: u64) {
        let end = self.length.checked_sub(1).and_then(|last| self.turns.end_at(last));
        let before = self.turn.came_at.replace(now);
        if self.turn.end != end {
            self.turn = Turn { end, began: (from, now), before, came_at: Some(now) };
        }
    }

    pub(super) fn add_padding(&mut self, end: u64) {
        if let Some(count) = end.checked_sub(self.length).filter(|count| *count > 0) {
            let ids = IdRun { session: SessionId::NOBODY, first: self.length, count };
            let names = Submitted { ids, lowest: 0 };
            self.push(Chunk { index: self.length, names, records: vec![], stored: Stored::Durable });
        }
    }

    /// Extends the local log to the decided length: it lacks only padding there, which counts
    /// without a copy. Backups do not receive it again.
    pub(super) fn catch_up_with_padding(&mut self) {
        if self.decided > self.length {
            assert!(self.chunks.is_empty(), "everything below {} is decided", self.decided);
            self.length = self.decided;
        }
        for backup in self.backups.values_mut() {
            backup.received = backup.received.max(self.decided);
            backup.stored = backup.stored.max(self.decided);
        }
    }
}

impl LocalPath {
    /// When to pad, and up to which index. A turn is not padded before its first record is durable:
    /// that record gets no position earlier, and more records may come.
    fn padding_due(&self, core: &Core) -> Option<(Time, u64)> {
        let local = &self.local;
        let durable = local.durable();
        let last = local.chunks.back().filter(|last| !last.records.is_empty() && core.is_primary());
        let of_turn = last.and_then(|last| {
            let (Turn { before, began: (first, began), .. }, end) =
                (&local.turn, local.turns.end_at(last.end() - 1)?);
            let after = limits::pad_after(core.memory.config.interval());
            let is_alone = before.is_none_or(|at| at + after <= *began);
            let missing = end.checked_sub(local.length).filter(|missing| *missing > 0)?;
            let waits = !is_alone || missing > limits::PADDED_AT_ONCE;
            let at = if waits { *began + after } else { Time::ZERO };
            (*first < durable).then_some((at, end))
        });
        let Awaited { to, behind } = local.awaited;
        let is_asked = local.length < to && behind <= durable && core.is_primary();
        let asked = is_asked.then_some((Time::ZERO, to));
        [of_turn, asked].into_iter().flatten().min()
    }

    pub(super) fn pad_at(&self, core: &Core) -> Option<Time> {
        self.padding_due(core).map(|(at, _)| at)
    }

    pub(super) fn pad_if_due(&mut self, core: &mut Core, now: Time, out: &mut Out) {
        while let Some((_, end)) = self.padding_due(core).filter(|(at, _)| *at <= now) {
            self.pad_to(core, end, out);
        }
    }

    fn pad_to(&mut self, core: &mut Core, end: u64, out: &mut Out) {
        let index = self.local.length;
        self.local.add_padding(end);
        let names = self.local.chunks.back().expect("it was just added").names;
        for (node, backup) in &self.local.backups {
            let (view, incarnation) = (core.view_number(), backup.incarnation);
            let message = Message::LocalAppend { view, incarnation, index, names, records: vec![] };
            send(Address::Node(*node, Endpoint::Shard(core.shard)), message, out);
        }
        self.foretell(core, out);
    }

    /// Primary: fills the local log up to `length`, since other shards wait, and reports it, even
    /// again.
    pub(super) fn fix(&mut self, core: &mut Core, now: Time, length: u64, out: &mut Out) {
        if !core.is_primary() || !self.has_begun(core) {
            return;
        }
        if length > self.local.awaited.to {
            self.local.awaited = Awaited { to: length, behind: self.local.length };
        }
        self.pad_if_due(core, now, out);
        if self.local.reported >= length {
            (self.local.reported, self.local.named) = (self.local.decided, self.local.decided);
        }
    }

    pub(super) fn learn_windows(
        &mut self,
        core: &mut Core,
        leader: Address,
        windows: Vec<Window>,
        out: &mut Out,
    ) {
        let lends_nothing = core.options.mutates(Mutation::LenderPredicts);
        let windows = match lends_nothing {
            true => {
                windows.into_iter().map(|window| self.local.lending_nothing(core.shard, window)).collect()
            }
            false => windows,
        };
        if let Some(number) = self.local.turns.learn(core.shard, windows) {
            self.local.turns.forget_below(self.local.decided);
            if core.options.mutates(Mutation::LeaseIgnored) {
                self.local.turns.guess();
                self.local.foretelling.guessed();
            }
            send(leader, Message::WindowsKnown { view: core.view_number(), number }, out);
            self.foretell(core, out);
        }
    }
}
