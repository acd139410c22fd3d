//! How a shard that has a quota meets its turns (SpecLog §3.2, §4.3): with records, and with padding where these do not come.
//!
//! Padding is a chunk of the local log without records. Nothing is written for it, and no backup has to say that it has it: it
//! promises nobody anything. It is durable when all that is before it is.

use std::collections::VecDeque;

use seriatim_model::{Address, Endpoint, IdRun, SessionId, ShardId, Time, limits};

use super::message::{Message, Submitted};
use super::{Chunk, LocalLog, LocalPath, Out, Stored};
use crate::cuts::window::{Lender, Share, Window};
use crate::mutation::Mutation;
use crate::shard::{Core, send};

/// The turns of one shard, as far as it was told the windows.
///
/// Invariant: the windows follow each other.
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
        self.windows.back().map(|last| last.number)
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

    /// The index at which the turn ends that an index of the local log is in, if the shard was told of it.
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
    /// The deliberate defect: the shard takes itself to keep its quota in a window in which it lends.
    fn lending_nothing(&self, shard: ShardId, mut window: Window) -> Window {
        let is_it = |lender: &Lender| lender.shard == shard && !window.is_free();
        if let Some(Lender { quota, .. }) = window.lenders.iter().copied().find(is_it) {
            window.lenders.retain(|lender| lender.shard != shard);
            window.shares.push(Share { shard, quota, index: self.length });
            window.shares.sort_by_key(|share| share.shard);
        }
        window
    }

    /// Whether others wait for what is durable now and was not reported: a turn is met with it, or what was asked for.
    pub(super) fn is_awaited(&self, durable: u64) -> bool {
        let meets_turn = self.turns.end_at(self.reported).is_some_and(|end| end <= durable);
        meets_turn || self.reported < self.awaited_to && self.awaited_to <= durable
    }

    /// A record came. It may be the first one of its turn.
    pub(super) fn note_turn(&mut self, now: Time) {
        let end = self.length.checked_sub(1).and_then(|last| self.turns.end_at(last));
        if self.turn_began.0 != end {
            self.turn_began = (end, now);
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

    /// The replica lacks nothing but padding of what is decided: that counts by the primary's word. No backup is sent it again.
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
    /// When the turn that has begun is to be filled, if it has a record and is not met: at once if that came alone and leaves little
    /// empty, and otherwise when it has waited.
    pub(super) fn pad_at(&self, core: &Core) -> Option<Time> {
        let local = &self.local;
        let last = local.chunks.back().filter(|last| !last.records.is_empty() && core.is_primary())?;
        let end = local.turns.end_at(last.end() - 1)?;
        let after = limits::pad_after(core.memory.config.interval());
        let (_, began) = local.turn_began;
        let is_alone = local.reported_at.is_none_or(|at| at + after <= began);
        let missing = end.checked_sub(local.length).filter(|missing| *missing > 0)?;
        let waits = !is_alone || missing > limits::PADDED_AT_ONCE;
        Some(if waits { began + after } else { Time::ZERO })
    }

    /// Primary: fills the turn that has begun, if that is due.
    pub(super) fn pad_if_due(&mut self, core: &mut Core, now: Time, out: &mut Out) {
        if self.pad_at(core).is_none_or(|at| now < at) {
            return;
        }
        if let Some(end) = self.local.length.checked_sub(1).and_then(|last| self.local.turns.end_at(last)) {
            self.pad_to(core, end, out);
        }
    }

    fn pad_to(&mut self, core: &mut Core, end: u64, out: &mut Out) {
        let index = self.local.length;
        if end <= index {
            return;
        }
        self.local.add_padding(end);
        let names = self.local.chunks.back().expect("it was just added").names;
        for (node, backup) in &self.local.backups {
            let (view, incarnation) = (core.view_number(), backup.incarnation);
            let message = Message::LocalAppend { view, incarnation, index, names, records: vec![] };
            send(Address::Node(*node, Endpoint::Shard(core.shard)), message, out);
        }
        self.foretell(core, out);
    }

    /// Primary: others wait for the shard's turns below this length. It has them reported, again if they were.
    pub(super) fn fix(&mut self, core: &mut Core, length: u64, out: &mut Out) {
        if !core.is_primary() || !self.has_begun(core) {
            return;
        }
        self.local.awaited_to = self.local.awaited_to.max(length);
        self.pad_to(core, length, out);
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
