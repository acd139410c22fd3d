//! The record store of one shard replica.
//!
//! ```text
//! execute(Bind) ─┬─ put ──▶ seg-N.records    records in arrival order, without positions
//!                └─ bind ─▶ seg-N.bindings   (view, positions) → bytes of a segment
//! read ──▶ history says which view is valid ──▶ index of that view ──▶ one read per stretch of bytes
//!
//! execute(Put) ──┬────────▶ seg-N.records
//!                └────────▶ seg-N.bindings   ids → bytes of a segment
//! execute(Order) ─────────▶ seg-M.bindings   (view, positions) → shards, and of this one's ids → their bytes
//! find ──▶ ids ──▶ one read per stretch of bytes
//! ```
//!
//! Where records come before their positions (LazyLog §5), they are held *by id* until the position
//! of their id is final. An order copies nothing: it binds positions to where the records were put.
//!
//! The last segment is *active*; all others are *sealed*: they have footers and never change, but
//! their binding logs are rewritten once, without what newer views hide, when all that they tell is
//! final (`rewriting.rs`). Each binding log starts with what the store remembered when it was made,
//! so old ones can go with their segments. A segment goes when all positions that its records ever
//! had are trimmed, and all whose owner its binding log tells, when those whose ids it tells are
//! final, and when no record is held by id in it or in one before it.
//!
//! Writes are buffered; who makes them durable depends on the log's durability:
//!
//! - `disk`: the host writes each command to the node's journal. Files are synced at checkpoints
//!   only ([`ShardStore::checkpoint`]). After a crash they are cut back to what the checkpoint
//!   says, and the journal's later commands are executed again ([`OpenMode::Journaled`]).
//! - `memory`: no journal. After a crash what is whole is kept ([`OpenMode::WriteBehind`]).
//!
//! The trim point lives in a file of its own, overwritten in place: trimming must work on a full
//! disk, and must be durable before the first segment goes. Segments go a few at a time, behind the
//! store's back ([`ShardStore::next_removal`]): a long log is not trimmed in one step.

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

/// Sizes of a store. They may differ from one opening to the next.
#[derive(Clone, Copy, Debug)]
pub struct ShardOptions {
    /// At which length a segment is sealed, in bytes. One command may exceed it.
    pub segment_bytes: u64,
    /// A deliberate defect, to see the simulator's checkers catch it: to learn how long a new
    /// binding log would be, the store encodes all that it holds. A server never wants it.
    pub measures_by_encoding: bool,
    /// Another one: the store keeps its active segment, however far it is trimmed.
    pub keeps_newest: bool,
}

impl ShardOptions {
    /// Segments of this length, in bytes, and no defect.
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

/// Whether a journal has the store's commands, and how far the store's files are to be believed.
#[derive(Clone, Debug)]
pub enum OpenMode {
    /// The commands are in the node's journal. The store is brought to the checkpoint's instant,
    /// and the host executes the commands that follow. Without a checkpoint it starts empty.
    Journaled {
        /// The result of [`ShardStore::checkpoint`], from the journal's last complete checkpoint.
        checkpoint: Option<Bytes>,
    },
    /// There is no journal. What is whole is kept: the newest segment and its bindings are cut off
    /// where they stop being whole, and anything else that is damaged is an error. What is
    /// remembered as stable is believed up to the first position that is neither held nor known to
    /// be lacking.
    WriteBehind,
}

/// Why a command was not carried out. Nothing of it is visible.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room. The same command works when there is room.
    #[error("no room for {file}: {source}")]
    Full {
        /// The file's name on its disk.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed. The store takes no more commands.
    #[error("{file}: {source}{}", write_advice(source))]
    Failed {
        /// The file's name on its disk.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed earlier.
    #[error("the store failed earlier: {0}")]
    FailedEarlier(String),
    /// A record is to have a position, and is not held by its id. Whoever asks has lost track of
    /// what is here: this replica must not go on as if it held the record.
    #[error("the record {0} to bind is not in this store")]
    Unheld(RecordId),
    /// There are no such positions or ids.
    #[error("an invalid command: {0}")]
    Nonsense(&'static str),
}

impl StoreError {
    /// The failure that the shard replica is told.
    #[must_use]
    pub fn failure(&self) -> StorageFailure {
        match self {
            Self::Full { .. } => StorageFailure::Full,
            Self::Unheld(_) => StorageFailure::Unheld,
            Self::Failed { .. } | Self::FailedEarlier(_) | Self::Nonsense(_) => StorageFailure::Failed,
        }
    }

    /// For `map_err`: the disk's error, with the file it is about.
    fn at(file: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull => Self::Full { file: file.to_owned(), source },
            _ => Self::Failed { file: file.to_owned(), source },
        }
    }
}

/// The part of an executed command that the journal has to keep, so that executing it again after a
/// crash leads to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing: the commands before it led there.
    Nothing,
    /// The command.
    Command,
    /// This one, which is shorter.
    Instead(StorageCommand),
}

impl Kept {
    /// The command that the journal keeps, of one that was executed.
    #[must_use]
    pub fn of(self, command: &StorageCommand) -> Option<StorageCommand> {
        match self {
            Self::Nothing => None,
            Self::Command => Some(command.clone()),
            Self::Instead(shorter) => Some(shorter),
        }
    }
}

/// Which shard of which log a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    log: LogId,
    shard: ShardId,
}

wire_struct! { Owner { log, shard } }

/// Where the store's files are.
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
    /// Files that were written since they were last named to a syncer.
    unsynced: BTreeSet<String>,
    rewriting: Rewriting,
    removals: Removals,
    /// Whether nothing is remembered of positions below the trim point.
    forgot_trimmed: bool,
    failure: Option<String>,
    /// Whether the active segment is left when it is trimmed, however little that frees.
    leaves_at_any_size: bool,
    /// Where segments end because the log has a limit of bytes, as far as it was told.
    segment_bytes: Option<u64>,
}

/// The state that is remembered besides records and the trim point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Remembered {
    memory: Option<HardState>,
    stable: Position,
    missing: Option<MissingRange>,
    times: TimeIndex,
}

/// The contents of a store's part of the journal's checkpoint: how far the files of the active
/// segment are to be believed. All earlier segments are sealed.
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
    /// The ids of positions that are not final. The binding logs tell them, too, but a later trim
    /// may take these before the journal has kept the commands that decided about the ids.
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
            // The first checkpoints ended here: nothing could be lacking.
            missing: if input.remaining() == 0 { None } else { Wire::decode(input)? },
            given: if input.remaining() == 0 { vec![] } else { Wire::decode(input)? },
            times: if input.remaining() == 0 { TimeIndex::default() } else { Wire::decode(input)? },
        })
    }
}

/// How many runs of trimmed positions a command forgets at most.
const FORGOTTEN_AT_ONCE: usize = 1000;

/// The directory that holds one for each log.
const LOGS: &str = "logs";

/// How the names of files with records end.
const RECORDS_SUFFIX: &str = ".records";

/// How the names of binding logs end.
const BINDINGS_SUFFIX: &str = ".bindings";

/// The directory of everything that a node keeps of a log besides its journal.
fn log_directory(log: LogId) -> String {
    format!("{LOGS}/{:016x}", log.0)
}

impl ShardStore {
    /// The directory of a shard replica's store.
    #[must_use]
    pub fn directory(log: LogId, shard: ShardId) -> String {
        format!("{}/shard-{}", log_directory(log), shard.0)
    }

    /// Which log a file belongs to, by its name, if it is one of a log's replicas or was put aside
    /// from one.
    #[must_use]
    pub fn log_of(name: &str) -> Option<LogId> {
        let (log, _) = name.strip_prefix(LOGS)?.strip_prefix('/')?.split_once('/')?;
        u64::from_str_radix(log, 16).ok().map(LogId)
    }

    /// Which shards of which logs have a store on the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn all(disk: &dyn Disk) -> io::Result<Vec<(LogId, ShardId)>> {
        let mut found = vec![];
        for log in disk.list(LOGS)? {
            let Ok(id) = u64::from_str_radix(&log, 16).map(LogId) else { continue };
            for shard in disk.list(&format!("{LOGS}/{log}"))? {
                // Others are not called like this: those that were set aside.
                let number = shard.strip_prefix("shard-").and_then(|number| number.parse().ok());
                let shard = number.map(ShardId).filter(|shard| *shard != ShardId::NOBODY);
                found.extend(shard.map(|shard| (id, shard)));
            }
        }
        Ok(found)
    }

    /// Whether there is any record in the store of a shard, readable or not.
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

    /// Opens the store in its [`ShardStore::directory`], or makes an empty one.
    ///
    /// # Errors
    /// If it is damaged, belongs to someone else, is of a newer format, or the disk fails.
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

    /// Whether this is what [`ShardStore::checkpoint`] returned.
    #[must_use]
    pub fn is_checkpoint(state: &Bytes) -> bool {
        decode_one::<ShardCheckpoint>(state.clone())
            .is_ok_and(|found| (1..=crate::format::VERSION).contains(&found.version))
    }

    /// Puts a store that cannot be opened, or is nobody's, out of the way, without removing
    /// anything. Returns where it is, if there is anything.
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

    /// Where what a shard's replica held is put when it is set aside, or what the sequencing
    /// replica did. It goes with the log. `incarnation` tells it from what is set aside at another
    /// time.
    #[must_use]
    pub fn aside(log: LogId, shard: Option<ShardId>, incarnation: u64) -> String {
        let role = shard
            .map_or_else(|| format!("{}/sequencer", log_directory(log)), |shard| Self::directory(log, shard));
        format!("{role}.damaged-{incarnation:016x}")
    }

    /// Removes the store of one shard from the disk, if there is one.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn destroy(disk: &dyn Disk, log: LogId, shard: ShardId) -> io::Result<()> {
        disk.delete_dir(&Self::directory(log, shard))?;
        if disk.list(&log_directory(log))?.is_empty() { Self::destroy_all(disk, log) } else { Ok(()) }
    }

    /// Removes the stores of all shards of a log from the disk, if there are any.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn destroy_all(disk: &dyn Disk, log: LogId) -> io::Result<()> {
        disk.delete_dir(&log_directory(log))
    }

    /// The state that a shard replica needs to go on.
    #[must_use]
    pub fn recovery(&self) -> ShardRecovery {
        let Remembered { memory, stable, missing, times } = self.contents.remembered.clone();
        let (trim, put) = (self.trim.position(), self.contents.put());
        let (void, ends) = (self.contents.void(trim), self.contents.ends());
        ShardRecovery { memory, stable, trim, missing, put, void, ends, times }
    }

    /// How many entries it keeps in a block of what it holds in memory. To find or change one, it
    /// may have to look at all entries of its block, of which there are twice as many at most.
    pub const BLOCK_ENTRIES: usize = runs::BLOCK_ENTRIES;

    /// How many entries of what it holds in memory the store has looked at since it was opened:
    /// those that were found, those that were passed over in a block, and those of each block that
    /// was unpacked or packed. Together with the bytes that it reads and writes that is its work,
    /// of which no command has more because the log is long.
    #[must_use]
    pub fn visited(&self) -> u64 {
        self.contents.visited()
    }

    /// Carries out a command. Executing one again is harmless, and writes nothing that is there.
    ///
    /// # Errors
    /// If there is no room, or the disk fails; the latter is final. Nothing of the command is
    /// visible then, except that a trim point may have been raised.
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

    /// A checkpoint of the store as of now, and the files to be synced before it counts
    /// ([`sync_files`](crate::sync_files)); what is written to them meanwhile does no harm. With a
    /// journal, the last checkpoint is durable when the next one is asked for, or the store does
    /// not go on.
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

    /// The files that were written since they were last named: what an orderly close, or a
    /// background syncer at durability `memory`, has to sync.
    pub fn take_unsynced(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unsynced).into_iter().collect()
    }

    /// Seals the active segment and starts the next one if these records, or so many more bytes of
    /// bindings, would make it too long.
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

    /// Writes records at the end of the active segment, in stretches of at most `most` bytes or one
    /// record. They count once the returned end is committed.
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

    /// Writes entries at the end of the active binding log. When they are there, they count, and
    /// with them the records that they are about. Without any, nothing happens.
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

    /// Raises the trim point. The journal is told of one that is not above it, too: the file that
    /// holds it may not be durable yet.
    fn trim_below(&mut self, position: Position) -> Result<Kept, StoreError> {
        // The same again, as what keeps a segment may have gone since.
        if position >= self.trim.position() {
            self.raise_trim(position)?;
            self.forgot_trimmed = false;
        }
        Ok(Kept::Command)
    }

    /// Raises the trim point, and finds the oldest segments of which nothing is needed. With a
    /// journal they are given up at once: a replica that loses what made ids final hears of it
    /// again. Without one, a power cut may lose that and leave the trim point, so it is synced
    /// before ([`ShardStore::next_removal`]).
    fn raise_trim(&mut self, position: Position) -> Result<(), StoreError> {
        let dead_to = self.removals.dead_to().max(self.contents.dead_to(self.active.number, position));
        let first_segment = if self.removals.is_write_behind() { self.trim.first_segment() } else { dead_to };
        self.give_up_below(first_segment, position)?;
        // Now that the trim point says what of them is not needed.
        self.removals.note_dead(dead_to);
        Ok(())
    }

    /// Raises the trim point, and gives up the segments below one.
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

    /// Whether there are files of which nothing is needed, or that have to be synced before others
    /// can go. If [`ShardStore::next_removal`] has just returned nothing, the disk has no room for
    /// the segment that takes the place of a trimmed one.
    #[must_use]
    pub fn has_removal(&self) -> bool {
        self.removals.has_next(&self.trim, &self.rewriting)
            || leaving::can_leave(self, leaving::worth_leaving(self))
            || leaving::has_dead(self)
    }

    /// The files that are to be deleted next, a few at a time. When that is done,
    /// [`ShardStore::removed`] is to be called. A removal that never was, or that a crash ended, is
    /// repeated by the next incarnation of the store.
    #[must_use]
    pub fn next_removal(&mut self) -> Option<Removal> {
        leaving::give_up_trimmed(self);
        self.removals.next(&self.trim, &self.rewriting, &self.place, &self.unsynced)
    }

    /// The removal that [`ShardStore::next_removal`] named last is done.
    pub fn removed(&mut self) {
        if let Some(Synced { written_to, dead_to }) = self.removals.done() {
            self.rewriting.note_synced(written_to);
            leaving::give_up_synced(self, dead_to);
        }
    }
}

/// Adds an id that is almost always there already.
fn mark(unsynced: &mut BTreeSet<String>, name: &str) {
    if !unsynced.contains(name) {
        unsynced.insert(name.to_owned());
    }
}

/// The parts of `0..count` that are in `held`, and those that are not, in order.
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

    /// Also the one that may have taken the place of another.
    fn all_files(&self, segment: u32) -> [String; 3] {
        [self.records_file(segment), self.bindings_file(segment), self.packed_file(segment)]
    }

    /// How many bytes each of these files has: 0 if it is not there, as one that is being replaced
    /// may be gone.
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
