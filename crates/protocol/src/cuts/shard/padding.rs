//! How a shard that has a quota meets its turns (SpecLog §3.2, §4.3): with records, and with
//! padding where these do not come.
//!
//! Padding is a chunk of the local log without records. Nothing is written for it, and no backup
//! has to say that it has it: it promises nobody anything. It is durable when all that is before it
//! is.

use std::collections::VecDeque;

use seriatim_model::{Address, Endpoint, IdRun, SessionId, ShardId, Time, limits};

use super::message::{Message, Submitted};
use super::{Chunk, LocalLog, LocalPath, Out, Stored};
use crate::cuts::window::{Lender, Share, Window};
use crate::mutation::Mutation;
use crate::shard::{Core, send};

/// The turn of a shard that its last record is in.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    /// The index at which it ends, if the shard was told of it.
    end: Option<u64>,
    /// The index of its first record, and when that came.
    began: (u64, Time),
    /// When a record came before that one.
    before: Option<Time>,
    /// When one came last.
    came_at: Option<Time>,
}

/// The part of a shard's local log for which others wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Awaited {
    /// The length up to which they do.
    to: u64,
    /// Below this index there were records when they asked, maybe not durable yet.
    behind: u64,
}

/// The turns of one shard, as far as it was told the windows.
///
/// Invariant: the numbers of the windows follow each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    pub(super) shard: ShardId,
    pub(super) windows: VecDeque<Window>,
    /// The last of them is a guess.
    guesses_last: bool,
}

impl Turns {
    /// Windows follow. Those that do are known from now on. Says which is the last.
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

    /// The deliberate defect: the window that follows is taken to be as the last one.
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

    /// Whether it was told none.
    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// The index at which the turn ends that an index of the local log is in, if the shard was told
    /// of it.
    pub(super) fn end_at(&self, index: u64) -> Option<u64> {
        let in_window = |window: &Window| {
            let cut = window.awaited(self.shard, index).filter(|cut| *cut < window.cuts)?;
            window.length(self.shard, cut)
        };
        self.windows.iter().find_map(in_window)
    }

    /// The replica lets go of windows all of whose turns are below an index, but for the last.
    fn forget_below(&mut self, index: u64) {
        let is_over =
            |window: &Window| window.length(self.shard, window.cuts - 1).is_none_or(|end| end <= index);
        while self.windows.len() > 1 && is_over(&self.windows[0]) {
            self.windows.pop_front();
        }
    }
}

impl LocalLog {
    /// The deliberate defect: the shard takes itself to keep its quota in a window in which it
    /// lends.
    fn lending_nothing(&self, shard: ShardId, mut window: Window) -> Window {
        let is_it = |lender: &Lender| lender.shard == shard && !window.is_free();
        if let Some(Lender { quota, .. }) = window.lenders.iter().copied().find(is_it) {
            window.lenders.retain(|lender| lender.shard != shard);
            window.shares.push(Share { shard, quota, index: self.length });
            window.shares.sort_by_key(|share| share.shard);
        }
        window
    }

    /// Whether others wait for what is durable now and was not reported: a turn is met with it, or
    /// what was asked for.
    pub(super) fn is_awaited(&self, durable: u64) -> bool {
        let meets_turn = self.turns.end_at(self.reported).is_some_and(|end| end <= durable);
        meets_turn || self.reported < self.awaited.to && self.awaited.to <= durable
    }

    /// Records came from an index on. The last one may be the first of its turn.
    pub(super) fn note_turn(&mut self, now: Time, from: u64) {
        let end = self.length.checked_sub(1).and_then(|last| self.turns.end_at(last));
        let before = self.turn.came_at.replace(now);
        if self.turn.end != end {
            self.turn = Turn { end, began: (from, now), before, came_at: Some(now) };
        }
    }

    /// Fills the local log up to an index.
    pub(super) fn add_padding(&mut self, end: u64) {
        if let Some(count) = end.checked_sub(self.length).filter(|count| *count > 0) {
            let ids = IdRun { session: SessionId::NOBODY, first: self.length, count };
            let names = Submitted { ids, lowest: 0 };
            self.push(Chunk { index: self.length, names, records: vec![], stored: Stored::Durable });
        }
    }

    /// The replica lacks nothing but padding of what is decided: that counts by the primary's word.
    /// No backup is sent it again.
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
    /// When the local log is to be filled up to which index. What is not durable gets no position
    /// before it is, whatever is behind it: until then more records may come that fill the turn.
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

    /// When [`Self::pad_if_due`] is to be called.
    pub(super) fn pad_at(&self, core: &Core) -> Option<Time> {
        self.padding_due(core).map(|(at, _)| at)
    }

    /// Primary: fills the turn that has begun, or all for which others wait, if that is due.
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

    /// Primary: others wait for the shard's turns below this length. It has them reported, again if
    /// they were.
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

    /// The leader tells the windows that follow.
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
