//! The record store of one shard replica.
//!
//! ```text
//! execute(Bind) ─┬─ put ──▶ seg-N.records    records in arrival order, without positions
//!                └─ bind ─▶ seg-N.bindings   (view, positions) → bytes of a segment
//! read ──▶ valid view by history ──▶ index of that view ──▶ one read per stretch of bytes
//!
//! execute(Put) ──┬────────▶ seg-N.records
//!                └────────▶ seg-N.bindings   ids → bytes of a segment
//! execute(Order) ─────────▶ seg-M.bindings   (view, positions) → shards; this shard's ids → bytes
//! find ──▶ ids ──▶ one read per stretch of bytes
//! ```
//!
//! Records that arrive before their positions (LazyLog §5) are held *by id* until the positions are
//! final. An order copies no record: it binds positions to stored bytes.
//!
//! The last segment is *active*; the others are *sealed*: they have footers and never change. A
//! sealed segment's binding log is rewritten once, without records that a newer view replaced, when
//! its entries are final (`rewriting.rs`). Each binding log starts with the hard state (the
//! replica's view, history and configuration), so old logs can be deleted. A segment is deleted
//! when all positions of its records and binding log are trimmed, its ids have final positions, and
//! neither it nor an older segment holds a record by id.
//!
//! Writes are buffered. The log's durability decides who makes them durable:
//!
//! - `disk`: the node's journal has each command, and files are synced at checkpoints only
//!   ([`ShardStore::checkpoint`], [`OpenMode::Journaled`]).
//! - `memory`: no journal. After a crash the store keeps the intact data
//!   ([`OpenMode::WriteBehind`]).
//!
//! The trim point has its own file (`trim.rs`). Another thread deletes segments, a few at a time
//! ([`ShardStore::next_removal`]), so that no command takes long.

mod bind;
mod binding;
mod completeness;
mod contents;
mod given;
mod ids;
mod index;
mod leaving;
mod load;
mod numbers;
mod order;
mod packed;
mod read;
mod removals;
mod rewriting;
mod runs;
mod segment;
mod trim;
mod usage;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::storage::{HardState, MissingRange, ShardRecovery, StorageCommand, StorageFailure};
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, decode_one, encode_one, wire_struct};
use seriatim_model::{LogId, Position, Record, RecordId, ShardId, TimeIndex};

use crate::disk::Disk;
use crate::error::{OpenError, write_advice};
use binding::Binding;
use contents::{Contents, start_of_view};
use removals::{Removals, Synced};
use rewriting::Rewriting;
use segment::{ActiveSegment, Appended, Trusted, Written};
pub use trim::Removal;
use trim::TrimFile;

/// Sizes of a store. They may change between openings.
#[derive(Clone, Copy, Debug)]
pub struct ShardOptions {
    /// Length at which a segment is sealed, in bytes. One command may exceed it.
    pub segment_bytes: u64,
    /// Deliberate defect for the simulator's checkers: encodes all state to measure a new binding
    /// log.
    pub measures_by_encoding: bool,
    /// Deliberate defect: keeps the active segment after any trim.
    pub keeps_newest: bool,
}

impl ShardOptions {
    /// Segments of this length, in bytes; no defects.
    #[must_use]
    pub const fn new(segment_bytes: u64) -> Self {
        Self { segment_bytes, measures_by_encoding: false, keeps_newest: false }
    }
}

impl Default for ShardOptions {
    fn default() -> Self {
        Self::new(64 << 20)
    }
}

/// How a store recovers, with or without a journal.
#[derive(Clone, Debug)]
pub enum OpenMode {
    /// The node's journal has the commands. The store returns to the checkpoint, or to empty
    /// without one; the host executes later commands.
    Journaled {
        /// From [`ShardStore::checkpoint`], in the journal's last complete checkpoint.
        checkpoint: Option<Bytes>,
    },
    /// No journal. The newest segment is cut off at its first damaged entry; other damage is an
    /// error. The stable bound is lowered to the first position neither held nor known to be
    /// missing.
    WriteBehind,
}

/// Why a command failed. It has no visible effect.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room. The command can be repeated.
    #[error("no room for {file}: {source}")]
    Full {
        /// The file's name.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed. The store rejects further commands.
    #[error("{file}: {source}{}", write_advice(source))]
    Failed {
        /// The file's name.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed earlier.
    #[error("the store failed earlier: {0}")]
    FailedEarlier(String),
    /// An order names a record that the store lacks. The caller is wrong about the store's
    /// contents: this replica must not act as a holder of the record.
    #[error("the record {0} to bind is not in this store")]
    Unheld(RecordId),
    /// The command's positions or ids are impossible.
    #[error("an invalid command: {0}")]
    Nonsense(&'static str),
}

impl StoreError {
    /// The failure to report to the shard replica.
    #[must_use]
    pub fn failure(&self) -> StorageFailure {
        match self {
            Self::Full { .. } => StorageFailure::Full,
            Self::Unheld(_) => StorageFailure::Unheld,
            Self::Failed { .. } | Self::FailedEarlier(_) | Self::Nonsense(_) => StorageFailure::Failed,
        }
    }

    fn at(file: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull => Self::Full { file: file.to_owned(), source },
            _ => Self::Failed { file: file.to_owned(), source },
        }
    }
}

/// The command that the journal must keep, so that replay reaches the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// No command: earlier commands have the same effect.
    Nothing,
    /// The executed command.
    Command,
    /// A shorter command with the same effect.
    Instead(StorageCommand),
}

impl Kept {
    /// The command for the journal, given the executed one.
    #[must_use]
    pub fn of(self, command: &StorageCommand) -> Option<StorageCommand> {
        match self {
            Self::Nothing => None,
            Self::Command => Some(command.clone()),
            Self::Instead(shorter) => Some(shorter),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    log: LogId,
    shard: ShardId,
}

wire_struct! { Owner { log, shard } }

#[derive(Clone, Debug)]
struct Place {
    disk: Arc<dyn Disk>,
    dir: String,
    owner: Owner,
}

/// The record store of one shard replica. See the module's documentation.
#[derive(Debug)]
pub struct ShardStore {
    place: Place,
    options: ShardOptions,
    contents: Contents,
    active: ActiveSegment,
    trim: TrimFile,
    /// Files written since the last `take_unsynced`.
    unsynced: BTreeSet<String>,
    rewriting: Rewriting,
    removals: Removals,
    /// Whether all state of trimmed positions is dropped from memory.
    forgot_trimmed: bool,
    failure: Option<String>,
    /// Whether the active segment is left once all of it is trimmed, even if that frees little.
    leaves_at_any_size: bool,
    /// Segment length set by the log's byte limit. `None`: no limit reported.
    segment_bytes: Option<u64>,
}

/// State besides records and the trim point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Remembered {
    memory: Option<HardState>,
    stable: Position,
    missing: Option<MissingRange>,
    times: TimeIndex,
}

/// A store's part of the journal's checkpoint. It has the valid length of the active segment only:
/// earlier segments are sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShardCheckpoint {
    version: u16,
    segment: u32,
    records: Trusted,
    bindings: Trusted,
    memory: Option<HardState>,
    stable: Position,
    trim: Position,
    missing: Option<MissingRange>,
    /// Ids of positions that are not final. Binding logs have them too, but a trim may delete those
    /// logs before the journal has the commands that decide the ids.
    given: Vec<Binding>,
    times: TimeIndex,
}

impl Wire for ShardCheckpoint {
    fn encode(&self, out: &mut Encoder) {
        self.version.encode(out);
        self.segment.encode(out);
        self.records.encode(out);
        self.bindings.encode(out);
        self.memory.encode(out);
        self.stable.encode(out);
        self.trim.encode(out);
        self.missing.encode(out);
        let is_timed = self.times != TimeIndex::default();
        if is_timed || !self.given.is_empty() {
            self.given.encode(out);
        }
        if is_timed {
            self.times.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(Self {
            version: Wire::decode(input)?,
            segment: Wire::decode(input)?,
            records: Wire::decode(input)?,
            bindings: Wire::decode(input)?,
            memory: Wire::decode(input)?,
            stable: Wire::decode(input)?,
            trim: Wire::decode(input)?,
            // Checkpoints of the first builds end before these fields.
            missing: if input.remaining() == 0 { None } else { Wire::decode(input)? },
            given: if input.remaining() == 0 { vec![] } else { Wire::decode(input)? },
            times: if input.remaining() == 0 { TimeIndex::default() } else { Wire::decode(input)? },
        })
    }
}

/// Most runs (entries of the in-memory index) below the trim point that one command drops.
const FORGOTTEN_AT_ONCE: usize = 1000;

const LOGS: &str = "logs";

const RECORDS_SUFFIX: &str = ".records";

const BINDINGS_SUFFIX: &str = ".bindings";

fn log_directory(log: LogId) -> String {
    format!("{LOGS}/{:016x}", log.0)
}

impl ShardStore {
    /// The directory of a shard replica's store.
    #[must_use]
    pub fn directory(log: LogId, shard: ShardId) -> String {
        format!("{}/shard-{}", log_directory(log), shard.0)
    }

    /// The log that a file belongs to, by its name. `None` for other files.
    #[must_use]
    pub fn log_of(name: &str) -> Option<LogId> {
        let (log, _) = name.strip_prefix(LOGS)?.strip_prefix('/')?.split_once('/')?;
        u64::from_str_radix(log, 16).ok().map(LogId)
    }

    /// All shards with a store on the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn all(disk: &dyn Disk) -> io::Result<Vec<(LogId, ShardId)>> {
        let mut found = vec![];
        for log in disk.list(LOGS)? {
            let Ok(id) = u64::from_str_radix(&log, 16).map(LogId) else { continue };
            for shard in disk.list(&format!("{LOGS}/{log}"))? {
                // Directories of stores set aside have other names, which do not parse.
                let number = shard.strip_prefix("shard-").and_then(|number| number.parse().ok());
                let shard = number.map(ShardId).filter(|shard| *shard != ShardId::NOBODY);
                found.extend(shard.map(|shard| (id, shard)));
            }
        }
        Ok(found)
    }

    /// Whether a shard's store has any record, readable or not.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn has_records(disk: &dyn Disk, log: LogId, shard: ShardId) -> io::Result<bool> {
        let dir = Self::directory(log, shard);
        for file in disk.list(&dir)?.iter().filter(|file| file.ends_with(RECORDS_SUFFIX)) {
            if disk.len(&format!("{dir}/{file}"))? > segment::HEADER_BYTES {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Opens the store in its [`ShardStore::directory`], or creates it.
    ///
    /// # Errors
    /// If it is damaged, has another owner or a newer format, or if the disk fails.
    pub fn open(
        disk: Arc<dyn Disk>,
        log: LogId,
        shard: ShardId,
        mode: OpenMode,
        options: ShardOptions,
    ) -> Result<Self, OpenError> {
        let place = Place { disk, dir: Self::directory(log, shard), owner: Owner { log, shard } };
        load::open(place, mode, options)
    }

    /// Whether [`ShardStore::checkpoint`] returned these bytes.
    #[must_use]
    pub fn is_checkpoint(state: &Bytes) -> bool {
        decode_one::<ShardCheckpoint>(state.clone())
            .is_ok_and(|found| (1..=crate::format::VERSION).contains(&found.version))
    }

    /// Renames the directory of a damaged or orphaned store. Returns the new name.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn set_aside(disk: &dyn Disk, log: LogId, shard: ShardId, incarnation: u64) -> io::Result<String> {
        let place = Self::aside(log, Some(shard), incarnation);
        match disk.rename_dir(&Self::directory(log, shard), &place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(place),
        }
    }

    /// Directory for a shard store set aside, or with `None` for the sequencing replica's state. It
    /// is deleted with the log. `incarnation` distinguishes repeated uses.
    #[must_use]
    pub fn aside(log: LogId, shard: Option<ShardId>, incarnation: u64) -> String {
        let role = shard
            .map_or_else(|| format!("{}/sequencer", log_directory(log)), |shard| Self::directory(log, shard));
        format!("{role}.damaged-{incarnation:016x}")
    }

    /// Deletes a shard's store, if it exists.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn destroy(disk: &dyn Disk, log: LogId, shard: ShardId) -> io::Result<()> {
        disk.delete_dir(&Self::directory(log, shard))?;
        if disk.list(&log_directory(log))?.is_empty() { Self::destroy_all(disk, log) } else { Ok(()) }
    }

    /// Deletes the stores of all shards of a log.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn destroy_all(disk: &dyn Disk, log: LogId) -> io::Result<()> {
        disk.delete_dir(&log_directory(log))
    }

    /// The state with which the shard replica resumes.
    #[must_use]
    pub fn recovery(&self) -> ShardRecovery {
        let Remembered { memory, stable, missing, times } = self.contents.remembered.clone();
        let (trim, put) = (self.trim.position(), self.contents.put());
        let (void, ends) = (self.contents.void(trim), self.contents.ends());
        ShardRecovery { memory, stable, trim, missing, put, void, ends, times }
    }

    /// Entries per in-memory block. An operation on one entry may visit its whole block, of at most
    /// twice as many.
    pub const BLOCK_ENTRIES: usize = runs::BLOCK_ENTRIES;

    /// In-memory entries visited since the opening: found, skipped in a block, packed or unpacked.
    /// The number per command must not grow with the log's length.
    #[must_use]
    pub fn visited(&self) -> u64 {
        self.contents.visited()
    }

    /// Executes a command. Commands are idempotent; repeated ones write no record twice.
    ///
    /// # Errors
    /// If there is no room, or the disk fails; the latter is final. The command then has no visible
    /// effect, but may have raised the trim point.
    pub fn execute(&mut self, command: &StorageCommand) -> Result<Kept, StoreError> {
        if let Some(cause) = &self.failure {
            return Err(StoreError::FailedEarlier(cause.clone()));
        }
        if !self.forgot_trimmed {
            self.forgot_trimmed = self.contents.trim(self.trim.position(), FORGOTTEN_AT_ONCE);
        }
        let rewritten = self.rewrite_some();
        let outcome = rewritten.and_then(|()| self.perform_command(command));
        if let Err(error @ StoreError::Failed { .. }) = &outcome {
            self.failure = Some(error.to_string());
        }
        outcome
    }

    fn perform_command(&mut self, command: &StorageCommand) -> Result<Kept, StoreError> {
        match command {
            StorageCommand::Bind { view, runs } => self.bind_runs(*view, runs),
            StorageCommand::Remember(memory) => self.remember(memory, Binding::Remember(memory.clone())),
            StorageCommand::Stable(position) => self.note_stable(*position),
            StorageCommand::Trim(position) => self.trim_below(*position),
            StorageCommand::RememberMissing { memory, missing } => {
                self.remember(memory, Binding::RememberMissing { memory: memory.clone(), missing: *missing })
            }
            StorageCommand::Put(records) => self.put(records),
            StorageCommand::Order { view, first, runs } => self.order(*view, *first, runs),
            StorageCommand::Map { view, first, owned } => self.note_map(*view, *first, owned),
            StorageCommand::Discard(ids) => self.discard(*ids),
            StorageCommand::Rebind { view, same, runs } => self.rebind(*view, same, runs),
            StorageCommand::Mark { times, whole, segment_bytes } => {
                self.note_times(times, *whole, *segment_bytes)
            }
        }
    }

    /// Takes a snapshot, and names the files that the caller must sync before the snapshot counts
    /// ([`sync_files`](crate::sync_files)); they may grow meanwhile. With a journal, each
    /// checkpoint must be durable before the next is taken.
    pub fn checkpoint(&mut self) -> (Bytes, Vec<String>) {
        if !self.removals.is_write_behind() {
            self.rewriting.note_checkpoint();
        }
        let checkpoint = ShardCheckpoint {
            version: crate::format::VERSION,
            segment: self.active.number,
            records: self.active.records.trusted(),
            bindings: self.active.bindings.trusted(),
            memory: self.contents.remembered.memory.clone(),
            stable: self.contents.remembered.stable,
            trim: self.trim.position(),
            missing: self.contents.remembered.missing,
            given: self.contents.given_bindings(),
            times: self.contents.remembered.times.clone(),
        };
        (encode_one(&checkpoint), self.take_unsynced())
    }

    /// Returns the files written since the last call, for a background sync or an orderly close.
    pub fn take_unsynced(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unsynced).into_iter().collect()
    }

    /// Starts the next segment if the active one lacks room for these records and bindings.
    fn make_room(&mut self, parts: &[&[(RecordId, Record)]], binding_bytes: u64) -> Result<(), StoreError> {
        let bytes: u64 = parts.iter().map(|part| segment::records_bytes(part)).sum();
        let segment_bytes = self.segment_bytes();
        let is_full = |len: u64, more: u64| len + more > segment_bytes;
        let (records, bindings) = (&self.active.records, &self.active.bindings);
        let is_due = !records.is_empty() && is_full(records.len(), bytes)
            || self.active.is_worth_a_new_log(&self.contents, self.options)
                && is_full(bindings.len(), binding_bytes);
        if is_due { self.start_next_segment() } else { Ok(()) }
    }

    fn start_next_segment(&mut self) -> Result<(), StoreError> {
        let initial = self.contents.initial_bindings();
        let next = self.active.seal_and_start_next(&self.place, &initial)?;
        let sealed = std::mem::replace(&mut self.active, next);
        self.contents.add_segment(self.active.number);
        for file in [&sealed.records, &sealed.bindings, &self.active.records, &self.active.bindings] {
            mark(&mut self.unsynced, file.name());
        }
        Ok(())
    }

    /// Writes records to the active segment. Returns each part's stretches of at most `most` bytes
    /// (or one larger record), and the file's new end. The records count once that end is
    /// committed.
    fn write(
        &mut self,
        parts: &[&[(RecordId, Record)]],
        most: u32,
    ) -> Result<(Vec<Vec<Written>>, Appended), StoreError> {
        let (parts_written, end) = (parts.iter().copied(), self.active.records.len());
        let (written, chunks) = segment::encode_records(parts_written, end, most);
        let count = parts.iter().map(|part| part.len() as u64).sum();
        let appended = self.active.append_records(&*self.place.disk, &chunks, count)?;
        mark(&mut self.unsynced, self.active.records.name());
        Ok((written, appended))
    }

    /// Appends entries to the active binding log and applies them to memory. Commits `records`, the
    /// written records that these entries name.
    fn note(&mut self, bindings: Vec<Binding>, records: Option<Appended>) -> Result<(), StoreError> {
        if bindings.is_empty() {
            return Ok(());
        }
        let appended = self.active.append_bindings(&*self.place.disk, &bindings)?;
        mark(&mut self.unsynced, self.active.bindings.name());
        self.active.bindings.commit(appended);
        if let Some(records) = records {
            self.active.records.commit(records);
        }
        for binding in bindings {
            self.contents.take(binding, self.active.number);
        }
        Ok(())
    }

    fn note_stable(&mut self, position: Position) -> Result<Kept, StoreError> {
        if position <= self.contents.remembered.stable {
            return Ok(Kept::Nothing);
        }
        let mut bindings = self.contents.put_again_below(position);
        bindings.push(Binding::Stable(position));
        self.note(bindings, None)?;
        Ok(Kept::Command)
    }

    fn remember(&mut self, memory: &HardState, binding: Binding) -> Result<Kept, StoreError> {
        let mut bindings = self.contents.put_again_below(start_of_view(Some(memory)));
        bindings.push(binding);
        self.note(bindings, None)?;
        Ok(Kept::Command)
    }

    /// Raises the trim point. The journal keeps a repeated trim too, because the trim file may not
    /// be durable yet.
    fn trim_below(&mut self, position: Position) -> Result<Kept, StoreError> {
        // An equal position too: a segment may have become superfluous since the last trim.
        if position >= self.trim.position() {
            self.raise_trim(position)?;
            self.forgot_trimmed = false;
        }
        Ok(Kept::Command)
    }

    /// Raises the trim point and abandons superfluous segments. With a journal, it abandons them at
    /// once: a replica that loses the reason (a log entry) in a crash receives it again. Without
    /// one, a power loss could keep the trim file and lose the reason, so the reason is synced
    /// first ([`ShardStore::next_removal`]).
    fn raise_trim(&mut self, position: Position) -> Result<(), StoreError> {
        let dead_to = self.removals.dead_to().max(self.contents.dead_to(self.active.number, position));
        let first_segment = if self.removals.is_write_behind() { self.trim.first_segment() } else { dead_to };
        self.give_up_below(first_segment, position)?;
        self.removals.note_dead(dead_to);
        Ok(())
    }

    fn give_up_below(&mut self, first_segment: u32, position: Position) -> Result<(), StoreError> {
        let given_up = self.trim.first_segment()..first_segment;
        self.trim.raise(&self.place, position, first_segment)?;
        mark(&mut self.unsynced, self.trim.name());
        for number in given_up {
            self.contents.forget_segment(number);
            for name in self.place.all_files(number) {
                self.unsynced.remove(&name);
            }
        }
        Ok(())
    }

    /// Whether there are files to delete, or to sync first. If this is true just after
    /// [`ShardStore::next_removal`] returned `None`, the disk lacks room for the successor of a
    /// trimmed active segment.
    #[must_use]
    pub fn has_removal(&self) -> bool {
        self.removals.has_next(&self.trim, &self.rewriting)
            || leaving::can_leave(self, leaving::worth_leaving(self))
            || leaving::has_dead(self)
    }

    /// The next few files to delete. Once they are deleted, the caller calls
    /// [`ShardStore::removed`]. A lost removal is repeated after the next opening.
    #[must_use]
    pub fn next_removal(&mut self) -> Option<Removal> {
        leaving::give_up_trimmed(self);
        self.removals.next(&self.trim, &self.rewriting, &self.place, &self.unsynced)
    }

    /// Reports that the last removal is done.
    pub fn removed(&mut self) {
        if let Some(Synced { written_to, dead_to }) = self.removals.done() {
            self.rewriting.note_synced(written_to);
            leaving::give_up_synced(self, dead_to);
        }
    }
}

/// Adds a file name, without an allocation if it is known.
fn mark(unsynced: &mut BTreeSet<String>, name: &str) {
    if !unsynced.contains(name) {
        unsynced.insert(name.to_owned());
    }
}

/// Splits `0..count` into ranges in and outside of `held`.
fn stretches(count: u64, held: &BTreeSet<u64>) -> impl Iterator<Item = (Range<u64>, bool)> + use<> {
    let mut parts: Vec<(Range<u64>, bool)> = vec![];
    let mut next = 0;
    for index in held.iter().copied() {
        if next < index {
            parts.push((next..index, false));
        }
        match parts.last_mut().filter(|(_, is_held)| *is_held) {
            Some((range, _)) => range.end = index + 1,
            None => parts.push((index..index + 1, true)),
        }
        next = index + 1;
    }
    if next < count {
        parts.push((next..count, false));
    }
    parts.into_iter()
}

impl Place {
    fn records_file(&self, segment: u32) -> String {
        format!("{}/seg-{segment:08}{RECORDS_SUFFIX}", self.dir)
    }

    fn bindings_file(&self, segment: u32) -> String {
        format!("{}/seg-{segment:08}{BINDINGS_SUFFIX}", self.dir)
    }

    fn packed_file(&self, segment: u32) -> String {
        format!("{}/seg-{segment:08}.packed", self.dir)
    }

    fn segment_files(&self, segment: u32) -> [String; 2] {
        [self.records_file(segment), self.bindings_file(segment)]
    }

    fn all_files(&self, segment: u32) -> [String; 3] {
        [self.records_file(segment), self.bindings_file(segment), self.packed_file(segment)]
    }

    /// Lengths of a segment's three files, in bytes; 0 for a missing file, such as a replaced log.
    fn all_lens(&self, segment: u32) -> [u64; 3] {
        self.all_files(segment).map(|name| self.disk.len(&name).unwrap_or_default())
    }
}

#[cfg(test)]
mod empty_tests;
#[cfg(test)]
mod fates_tests;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod leaving_tests;
#[cfg(test)]
mod ordering_tests;
#[cfg(test)]
mod restarts_tests;
#[cfg(test)]
mod soak_tests;
#[cfg(test)]
mod tests;
