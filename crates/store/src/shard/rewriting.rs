//! Rewrites a sealed segment's binding log once, when all its positions are final: without versions
//! hidden by a newer view, trimmed positions and ids with positions, and with neighbours joined.
//! This frees room and speeds up the opening of a long log.
//!
//! ```text
//! seg-N.bindings ──a piece with each command──▶ seg-N.packed
//! seg-N.packed ──later commands are durable──▶ trim file says: packed to N + 1
//!                                              └──▶ seg-N.bindings is deleted
//! ```
//!
//! The trim file decides which of a segment's two logs is valid: the packed one below its bound. A
//! packed log omits entries because of later commands, such as a new view or a trim. So the bound
//! is raised only when these are durable: with a journal, when a checkpoint taken after the
//! rewriting is durable; without one, when all files were synced. After an earlier crash the old
//! log is valid and is rewritten again.
//!
//! A packed log has no ids. Ids still held are noted again in the active log before the packed one
//! is complete. Segments are rewritten in order, so a packed log omits decisions only about ids
//! that earlier packed logs omit too.

use std::collections::VecDeque;
use std::io;

use seriatim_model::storage::Owned;
use seriatim_model::{IdRun, Position, ViewNumber};

use super::binding::{Binding, Bound, OrderPart};
use super::contents::Contents;
use super::index::{IndexRun, hidden_from};
use super::load::Batches;
use super::packed::Expected;
use super::runs::Stretch;
use super::segment::{AppendFile, BINDINGS_MAGIC, FOOTER_BYTES, HEADER_BYTES, Trusted, Written, new_file};
use super::{Place, ShardStore, StoreError, mark};

/// Bytes read per command, unless a batch is longer.
const PIECE_BYTES: u64 = if cfg!(test) { 400 } else { 4 << 10 };

/// Most runs rewritten per command, unless one entry has more. A command adds at most one run per 4
/// KiB of records, and commands come in threes (put, order, stable), so the rewriting keeps up.
const RUNS_AT_ONCE: usize = if cfg!(test) { 64 } else { 512 };

/// Most held runs noted again per command.
const TOLD_AT_ONCE: usize = if cfg!(test) { 4 } else { 64 };

/// The log of a segment with held records waits for this many newer segments: most ids are final by
/// then.
const WAITS_FOR: u32 = 4;

/// Most parts of a map entry that is carried over to the next piece; a longer entry is written at
/// once.
const MAX_MAP_PARTS: usize = 64;

/// Number of commands without rewriting after a failure such as a full disk. Each further failure
/// doubles it.
const FIRST_PAUSE: u64 = 1000;

/// Progress of the rewriting, as segment numbers.
///
/// Invariant: `sure_to` ≤ `covered_to` ≤ `written_to`, and the trim file's `packed_to` is never
/// above `sure_to`.
#[derive(Debug)]
pub(super) struct Rewriting {
    /// Logs of segments below this number are rewritten, not necessarily durably.
    written_to: u32,
    /// `written_to` at the last checkpoint.
    covered_to: u32,
    /// Logs of segments below this number are rewritten, and the commands that they rely on are
    /// durable.
    sure_to: u32,
    current: Option<Rewrite>,
    /// Number of commands until the rewriting resumes.
    wait: u64,
    /// Commands to skip after the next failure.
    pause: u64,
}

impl Rewriting {
    pub(super) fn new(packed_to: u32) -> Self {
        let (written_to, covered_to, sure_to) = (packed_to, packed_to, packed_to);
        Self { written_to, covered_to, sure_to, current: None, wait: 0, pause: FIRST_PAUSE }
    }

    pub(super) fn written_to(&self) -> u32 {
        self.written_to
    }

    pub(super) fn sure_to(&self) -> u32 {
        self.sure_to
    }

    fn note_written(&mut self, number: u32) {
        self.written_to = number + 1;
        self.pause = FIRST_PAUSE;
        self.check();
    }

    /// Notes a new checkpoint; the previous one is durable.
    pub(super) fn note_checkpoint(&mut self) {
        self.sure_to = self.covered_to;
        self.covered_to = self.written_to;
        self.check();
    }

    /// Notes a sync of all files after the rewriting of logs below `written_to`.
    pub(super) fn note_synced(&mut self, written_to: u32) {
        self.covered_to = self.covered_to.max(written_to);
        self.sure_to = self.sure_to.max(written_to);
        self.check();
    }

    fn check(&self) {
        let Self { written_to, covered_to, sure_to, .. } = *self;
        assert!(
            sure_to <= covered_to && covered_to <= written_to,
            "sure entries are covered, and covered entries are written"
        );
    }

    fn begin(&mut self, place: &Place, number: u32) {
        match Rewrite::begin(place, number) {
            Ok(rewrite) => self.current = Some(rewrite),
            Err(_) => self.give_up(),
        }
    }

    fn give_up(&mut self) {
        self.current = None;
        self.wait = self.pause;
        self.pause = self.pause.saturating_mul(2);
    }
}

impl ShardStore {
    /// Rewrites at most one piece. Retries failures later: the old logs still exist.
    pub(super) fn rewrite_some(&mut self) -> Result<(), StoreError> {
        if self.rewriting.sure_to > self.trim.packed_to() {
            return self.use_packed_logs();
        }
        if self.rewriting.wait > 0 {
            self.rewriting.wait -= 1;
            return Ok(());
        }
        let first = self.trim.first_segment();
        let Some(mut current) = self.rewriting.current.take().filter(|current| current.number >= first)
        else {
            let number = self.rewriting.written_to.max(first);
            let has_waited = self.active.number.saturating_sub(number) >= WAITS_FOR;
            if number < self.active.number
                && self.contents.is_told_final(number)
                && (has_waited || !self.contents.held.need(number))
            {
                self.rewriting.begin(&self.place, number);
            }
            return Ok(());
        };
        let outcome = current.go_on(&self.place, &self.contents, self.trim.position());
        // Held ids must be in the active log before the old one is deleted.
        match self.note(std::mem::take(&mut current.held), None) {
            Ok(()) => {}
            Err(StoreError::Full { .. }) => {
                self.rewriting.give_up();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        match outcome {
            Ok(false) => self.rewriting.current = Some(current),
            Ok(true) => {
                mark(&mut self.unsynced, current.out.name());
                self.rewriting.note_written(current.number);
            }
            Err(_) => self.rewriting.give_up(),
        }
        Ok(())
    }

    /// Makes packed logs valid; old ones may be deleted once the trim file is durable.
    fn use_packed_logs(&mut self) -> Result<(), StoreError> {
        let (from, to) = (self.trim.packed_to().max(self.trim.first_segment()), self.rewriting.sure_to);
        self.trim.pack(&self.place, to)?;
        mark(&mut self.unsynced, self.trim.name());
        for number in from..to {
            self.unsynced.remove(&self.place.bindings_file(number));
            self.removals.note_replaced(number);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Rewrite {
    number: u32,
    old: String,
    /// End of the old log's entries, and the offset reached so far, in bytes.
    end: u64,
    at: u64,
    /// Bytes per read; grows for a longer batch.
    piece: u64,
    batches: Batches,
    /// Entries not rewritten yet.
    read: VecDeque<Binding>,
    out: AppendFile,
    expected: Expected,
    entries: Vec<Binding>,
    /// The last run and owners, not written yet: the next ones may be joined with them.
    run: Option<(ViewNumber, Position, IndexRun)>,
    map: Option<(ViewNumber, Position, Vec<Owned>)>,
    map_end: Option<(ViewNumber, Position)>,
    /// Held ids to note in the active log.
    held: Vec<Binding>,
    /// The last hard state and the last stable bound in the log.
    memory: Option<Binding>,
    stable: Option<Binding>,
}

impl Rewrite {
    fn begin(place: &Place, number: u32) -> Result<Self, StoreError> {
        let old = place.bindings_file(number);
        let read = |offset, len| place.disk.read_at(&old, offset, len).map_err(StoreError::at(&old));
        let len = place.disk.len(&old).map_err(StoreError::at(&old))?;
        let footer = read(len.saturating_sub(FOOTER_BYTES), FOOTER_BYTES as usize)?;
        let header = read(0, HEADER_BYTES as usize)?;
        let trusted = Trusted::from_footer(&footer, len).ok_or_else(|| damaged(&old))?;
        let out = new_file(place, place.packed_file(number), BINDINGS_MAGIC, number, &[], 0)?;
        Ok(Self {
            number,
            end: trusted.len,
            at: HEADER_BYTES,
            piece: PIECE_BYTES,
            batches: Batches::of(&header),
            read: VecDeque::new(),
            old,
            out,
            expected: Expected::default(),
            entries: vec![],
            run: None,
            map: None,
            map_end: None,
            held: vec![],
            memory: None,
            stable: None,
        })
    }

    /// Rewrites one piece. Returns whether it was the last.
    fn go_on(&mut self, place: &Place, contents: &Contents, trim: Position) -> Result<bool, StoreError> {
        if self.read.is_empty() && self.at < self.end {
            self.read_some(place)?;
        }
        let mut runs = 0;
        while runs < RUNS_AT_ONCE
            && self.held.len() < TOLD_AT_ONCE
            && let Some(binding) = self.read.pop_front()
        {
            runs += binding.runs();
            self.take(binding, contents, trim);
        }
        let is_last = self.read.is_empty() && self.at == self.end;
        if is_last {
            self.finish();
        } else if self.map.as_ref().is_some_and(|(.., parts)| parts.len() > MAX_MAP_PARTS) {
            self.flush_map();
        }
        self.flush(place)?;
        if is_last {
            self.out.seal(&*place.disk)?;
        }
        Ok(is_last)
    }

    fn read_some(&mut self, place: &Place) -> Result<(), StoreError> {
        let len = self.piece.min(self.end - self.at);
        let bytes =
            place.disk.read_at(&self.old, self.at, len as usize).map_err(StoreError::at(&self.old))?;
        let (mut read, mut batch) = (0, vec![]);
        while let Some(len) = self.batches.next(&bytes, read, &mut batch) {
            read += len;
            self.read.extend(batch.drain(..));
        }
        if read == 0 {
            // The batch is longer than the read, or damaged.
            self.piece *= 2;
            return if len == self.end - self.at { Err(damaged(&self.old)) } else { Ok(()) };
        }
        self.at += read as u64;
        self.piece = PIECE_BYTES;
        Ok(())
    }

    fn flush(&mut self, place: &Place) -> Result<(), StoreError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let batch = self.expected.batch(&self.entries);
        let appended = self.out.append(&*place.disk, &[batch], self.entries.len() as u64)?;
        self.out.commit(appended);
        self.entries.clear();
        Ok(())
    }

    /// Takes over the still valid part of an entry.
    fn take(&mut self, binding: Binding, contents: &Contents, trim: Position) {
        match binding {
            Binding::Bind { view, first, count, segment, offset, bytes } => {
                let written = Written { count, offset, bytes };
                self.add_run(view, first, IndexRun::new(segment, written), contents, trim);
            }
            Binding::Refer { view, first, run } => self.add_run(view, first, run, contents, trim),
            Binding::Map { view, mut first, owned } => {
                for part in owned {
                    self.add_owned(view, first, part, contents, trim);
                    first += part.count;
                }
            }
            Binding::Order { view, mut first, parts } => {
                for part in parts {
                    let owned = match part {
                        OrderPart::Elsewhere(owned) => owned,
                        OrderPart::Here(Bound { ids, place, .. }) => {
                            self.tell_again(ids, contents);
                            if let Some(run) = place {
                                self.add_run(view, first, run, contents, trim);
                            }
                            Owned { shard: contents.shard(), count: ids.count }
                        }
                    };
                    self.add_owned(view, first, owned, contents, trim);
                    first += part.count();
                }
            }
            Binding::Put { session, first, count, .. } => {
                self.tell_again(IdRun { session, first, count: count.into() }, contents);
            }
            Binding::Held { session, first, run } => {
                self.tell_again(IdRun { session, first, count: run.count() }, contents);
            }
            Binding::Ids { ids, .. } => self.tell_again(ids, contents),
            // The next log starts with all known times.
            Binding::Discard(_) | Binding::Times { .. } => {}
            Binding::Remember(_) | Binding::RememberMissing { .. } => self.memory = Some(binding),
            Binding::Stable(_) => self.stable = Some(binding),
        }
    }

    fn tell_again(&mut self, ids: IdRun, contents: &Contents) {
        let held = contents.held.within(ids);
        self.held.extend(held.map(|(first, run)| Binding::Held { session: ids.session, first, run }));
    }

    fn add_run(
        &mut self,
        view: ViewNumber,
        first: Position,
        run: IndexRun,
        contents: &Contents,
        trim: Position,
    ) {
        let count = shown(contents, view, first, run.count());
        if count == 0 || first + count <= trim || !contents.has_segment(run.segment) {
            return;
        }
        let run = run.head(count);
        if let Some((last_view, last_first, last)) = &mut self.run
            && *last_view == view
            && *last_first + last.count() == first
            && let Some(joined) = last.join(run)
        {
            *last = joined;
            return;
        }
        self.flush_run();
        self.run = Some((view, first, run));
    }

    fn flush_run(&mut self) {
        self.entries.extend(self.run.take().map(|(view, first, run)| match run.whole() {
            Some(written) => Binding::bind(view, first, run.segment, written),
            None => Binding::Refer { view, first, run },
        }));
    }

    fn add_owned(
        &mut self,
        view: ViewNumber,
        first: Position,
        owned: Owned,
        contents: &Contents,
        trim: Position,
    ) {
        let count = shown(contents, view, first, owned.count);
        if count == 0 || first + count <= trim {
            return;
        }
        let owned = owned.head(count);
        if self.map_end != Some((view, first)) {
            self.flush_map();
        }
        self.map_end = Some((view, first + count));
        let (.., parts) = self.map.get_or_insert((view, first, vec![]));
        match parts.last_mut().and_then(|last| last.join(owned).map(|joined| (last, joined))) {
            Some((last, joined)) => *last = joined,
            None => parts.push(owned),
        }
    }

    fn flush_map(&mut self) {
        let map = self.map.take();
        self.entries.extend(map.map(|(view, first, owned)| Binding::Map { view, first, owned }));
        self.map_end = None;
    }

    fn finish(&mut self) {
        self.flush_run();
        self.flush_map();
        self.entries.extend(self.memory.take());
        self.entries.extend(self.stable.take());
    }
}

/// Number of the `count` positions that precede the first one hidden by a newer registered view.
fn shown(contents: &Contents, view: ViewNumber, first: Position, count: u64) -> u64 {
    let hidden = contents.history().and_then(|history| hidden_from(history, view));
    hidden.map_or(count, |from| from.since(first).min(count))
}

fn damaged(file: &str) -> StoreError {
    let source = io::Error::new(io::ErrorKind::InvalidData, "a sealed binding log is damaged");
    StoreError::Failed { file: file.to_owned(), source }
}
