//! The record store of one shard replica.
//!
//! ```text
//! execute(Bind) ─┬─ put ──▶ seg-N.records    records in arrival order, without positions
//!                └─ bind ─▶ seg-N.bindings   (view, positions) → bytes of a segment
//! read ──▶ history says which view is valid ──▶ index of that view ──▶ one read per stretch of bytes
//! ```
//!
//! The last segment is *active*; all others are *sealed*: they have footers and never change. Each
//! binding log starts with what the store remembered when it was made, so old ones can go with their
//! segments.
//!
//! Writes are buffered; who makes them durable depends on the log's durability:
//!
//! - `disk`: the host writes each command to the node's journal. Files are synced at checkpoints only
//!   ([`ShardStore::checkpoint`]). After a crash they are cut back to what the checkpoint says, and the
//!   journal's later commands are executed again ([`OpenMode::Journaled`]).
//! - `memory`: no journal. After a crash what is whole is kept ([`OpenMode::WriteBehind`]).
//!
//! The trim point lives in a file of its own, overwritten in place: trimming must work on a full disk,
//! and must be durable before the first segment goes.

mod binding;
mod index;
mod load;
mod read;
mod segment;
mod trim;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::storage::{Lacking, Run, ShardMemory, ShardRecovery, StorageCommand, StorageFailure};
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, decode_one, encode_one, wire_struct};
use seriatim_model::{LogId, Position, Record, RecordId, ShardId, ViewHistory, ViewNumber};

use crate::disk::Disk;
use crate::error::OpenError;
use binding::Binding;
use index::{Index, IndexRun};
use segment::{ActiveSegment, Appended, Put, Trusted};
use trim::TrimFile;

/// Sizes of a store. They may differ from one opening to the next.
#[derive(Clone, Copy, Debug)]
pub struct ShardOptions {
    /// At which length a segment is sealed, in bytes. One command may exceed it.
    pub segment_bytes: u64,
}

impl Default for ShardOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20 }
    }
}

/// Whose store it is, and how far its files are to be believed.
#[derive(Clone, Debug)]
pub enum OpenMode {
    /// The commands are in the node's journal. The store is brought to the checkpoint's instant, and
    /// the host executes the commands that follow. Without a checkpoint it starts empty.
    Journaled {
        /// What [`ShardStore::checkpoint`] returned, from the journal's last complete checkpoint.
        checkpoint: Option<Bytes>,
    },
    /// There is no journal. What is whole is kept: the newest segment and its bindings are cut off
    /// where they stop being whole, and anything else that is damaged is an error. What is remembered as
    /// stable is believed up to the first position that is neither held nor known to be lacking.
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
    #[error("{file}: {source}")]
    Failed {
        /// The file's name on its disk.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed earlier.
    #[error("the store failed earlier: {0}")]
    FailedEarlier(String),
}

impl StoreError {
    /// What the shard replica is told.
    #[must_use]
    pub fn failure(&self) -> StorageFailure {
        match self {
            Self::Full { .. } => StorageFailure::Full,
            Self::Failed { .. } | Self::FailedEarlier(_) => StorageFailure::Failed,
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
    remembered: Remembered,
    index: Index,
    /// For each segment a bound above all positions that it ever held.
    segments: BTreeMap<u32, Position>,
    active: ActiveSegment,
    trim: TrimFile,
    /// Files that were written since they were last named to a syncer.
    unsynced: BTreeSet<String>,
    failure: Option<String>,
}

/// What is remembered besides records and the trim point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Remembered {
    memory: Option<ShardMemory>,
    stable: Position,
    lacks: Option<Lacking>,
}

/// What the journal's checkpoint holds of a store: how far the files of the active segment are to be
/// believed. All earlier segments are sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShardCheckpoint {
    version: u16,
    segment: u32,
    records: Trusted,
    bindings: Trusted,
    memory: Option<ShardMemory>,
    stable: Position,
    trim: Position,
    lacks: Option<Lacking>,
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
        self.lacks.encode(out);
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
            lacks: if input.remaining() == 0 { None } else { Wire::decode(input)? },
        })
    }
}

/// The directory that holds one for each log.
const LOGS: &str = "logs";

/// How the names of files with records end.
const RECORDS_SUFFIX: &str = ".records";

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
                found.extend(number.map(|number| (id, ShardId(number))));
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
            .is_ok_and(|found| found.version == crate::format::VERSION)
    }

    /// Puts a store that cannot be opened out of the way, without removing anything. Returns where it is.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn set_aside(disk: &dyn Disk, log: LogId, shard: ShardId, life: u64) -> io::Result<String> {
        let place = format!("{}.damaged-{life:016x}", Self::directory(log, shard));
        disk.rename_dir(&Self::directory(log, shard), &place)?;
        Ok(place)
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

    /// What a shard replica needs to go on.
    #[must_use]
    pub fn recovery(&self) -> ShardRecovery {
        let Remembered { memory, stable, lacks } = self.remembered.clone();
        ShardRecovery { memory, stable, trim: self.trim.position(), lacks }
    }

    /// Carries out a command. Executing one again is harmless.
    ///
    /// # Errors
    /// If there is no room, or the disk fails; the latter is final. Nothing of the command is visible
    /// then, except that a trim point may have been raised.
    pub fn execute(&mut self, command: &StorageCommand) -> Result<(), StoreError> {
        if let Some(cause) = &self.failure {
            return Err(StoreError::FailedEarlier(cause.clone()));
        }
        let outcome = match command {
            StorageCommand::Bind { view, runs } => self.bind_runs(*view, runs),
            StorageCommand::Remember(memory) => self.remember(memory),
            StorageCommand::Stable(position) => self.note_stable(*position),
            StorageCommand::Trim(position) => self.trim_below(*position),
            StorageCommand::RememberLacking { memory, lacks } => self.remember_lacking(memory, *lacks),
        };
        if let Err(error @ StoreError::Failed { .. }) = &outcome {
            self.failure = Some(error.to_string());
        }
        outcome
    }

    /// A checkpoint of the store as of now, and the files to be synced before it counts
    /// ([`sync_files`](crate::sync_files)); what is written to them meanwhile does no harm.
    pub fn checkpoint(&mut self) -> (Bytes, Vec<String>) {
        let checkpoint = ShardCheckpoint {
            version: crate::format::VERSION,
            segment: self.active.number,
            records: self.active.records.trusted(),
            bindings: self.active.bindings.trusted(),
            memory: self.remembered.memory.clone(),
            stable: self.remembered.stable,
            trim: self.trim.position(),
            lacks: self.remembered.lacks,
        };
        (encode_one(&checkpoint), self.take_unsynced())
    }

    /// The files that were written since they were last named: what an orderly close, or a background
    /// syncer at durability `memory`, has to sync.
    pub fn take_unsynced(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unsynced).into_iter().collect()
    }

    fn history(&self) -> Option<&ViewHistory> {
        self.remembered.memory.as_ref().map(|memory| &memory.history)
    }

    fn bind_runs(&mut self, view: ViewNumber, runs: &[Run]) -> Result<(), StoreError> {
        let fresh = self.fresh_parts(view, runs)?;
        if fresh.is_empty() {
            return Ok(());
        }
        let bytes = fresh.iter().map(|part| segment::records_bytes(part.records)).sum();
        self.make_room(bytes)?;
        let (put, records) = self.put(&fresh)?;
        let bindings =
            put.iter().map(|put| Binding::bind(view, self.active.number, *put)).collect::<Vec<_>>();
        let bindings = self.append_bindings(&bindings)?;
        self.active.records.commit(records);
        self.active.bindings.commit(bindings);
        for placed in put {
            self.index.insert(view, placed.first, IndexRun::new(self.active.number, placed));
            let end = self.segments.entry(self.active.number).or_default();
            *end = (*end).max(placed.first + u64::from(placed.count));
        }
        Ok(())
    }

    /// What of `runs` is neither trimmed nor held already.
    fn fresh_parts<'a>(&self, view: ViewNumber, runs: &'a [Run]) -> Result<Vec<Part<'a>>, StoreError> {
        let mut fresh = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            let below_trim = self.trim.position().since(run.first).min(run.records.len() as u64);
            let part = Part { first: run.first + below_trim, records: &run.records[below_trim as usize..] };
            let mut held = self.held(view, part)?;
            if !held.is_empty()
                && runs[..index].iter().any(|earlier| earlier.first < run.end() && run.first < earlier.end())
            {
                // What is held is going to be replaced by an earlier run of this very command.
                held.clear();
            }
            part.without(&held, &mut fresh);
        }
        Ok(fresh)
    }

    /// Seals the active segment and starts the next one if `bytes` more would make it too long.
    fn make_room(&mut self, bytes: u64) -> Result<(), StoreError> {
        let is_empty = self.active.records.is_empty();
        if is_empty || self.active.records.len() + bytes <= self.options.segment_bytes {
            return Ok(());
        }
        let next = self.active.seal_and_start_next(&self.place, &self.remembered)?;
        let sealed = std::mem::replace(&mut self.active, next);
        self.segments.entry(sealed.number).or_default();
        self.segments.entry(self.active.number).or_default();
        for file in [&sealed.records, &sealed.bindings, &self.active.records, &self.active.bindings] {
            mark(&mut self.unsynced, file.name());
        }
        Ok(())
    }

    /// Writes records at the end of the active segment. They count once the returned end is committed.
    fn put(&mut self, parts: &[Part<'_>]) -> Result<(Vec<Put>, Appended), StoreError> {
        let (put, chunks) = segment::encode_records(parts, self.active.records.len());
        let count = put.iter().map(|put| u64::from(put.count)).sum();
        let appended = self.active.append_records(&*self.place.disk, &chunks, count)?;
        mark(&mut self.unsynced, self.active.records.name());
        Ok((put, appended))
    }

    /// Writes entries at the end of the active binding log. They count once committed.
    fn append_bindings(&mut self, bindings: &[Binding]) -> Result<Appended, StoreError> {
        let bytes = Binding::encode_all(bindings);
        let appended = self.active.append_bindings(&*self.place.disk, &[bytes], bindings.len() as u64)?;
        mark(&mut self.unsynced, self.active.bindings.name());
        Ok(appended)
    }

    fn remember(&mut self, memory: &ShardMemory) -> Result<(), StoreError> {
        self.note_memory(memory, Binding::Remember(memory.clone()))
    }

    fn remember_lacking(&mut self, memory: &ShardMemory, lacks: Option<Lacking>) -> Result<(), StoreError> {
        self.note_memory(memory, Binding::RememberLacking { memory: memory.clone(), lacks })?;
        self.remembered.lacks = lacks;
        Ok(())
    }

    fn note_memory(&mut self, memory: &ShardMemory, binding: Binding) -> Result<(), StoreError> {
        let appended = self.append_bindings(&[binding])?;
        self.active.bindings.commit(appended);
        self.index.hide(&memory.history);
        self.remembered.memory = Some(memory.clone());
        Ok(())
    }

    fn note_stable(&mut self, position: Position) -> Result<(), StoreError> {
        if position > self.remembered.stable {
            let appended = self.append_bindings(&[Binding::Stable(position)])?;
            self.active.bindings.commit(appended);
            self.remembered.stable = position;
        }
        Ok(())
    }

    /// Raises the trim point, and deletes the oldest segments as long as all they held lies below it.
    fn trim_below(&mut self, position: Position) -> Result<(), StoreError> {
        if position <= self.trim.position() {
            return Ok(());
        }
        let below = |(number, end): (&u32, &Position)| *number != self.active.number && *end <= position;
        let dead: Vec<u32> =
            self.segments.iter().take_while(|entry| below(*entry)).map(|(n, _)| *n).collect();
        let first_segment = dead.last().map_or(self.trim.first_segment(), |last| last + 1);
        self.trim.raise(&self.place, position, first_segment)?;
        mark(&mut self.unsynced, self.trim.name());
        self.index.trim(position);
        for number in dead {
            self.segments.remove(&number);
            for name in self.place.segment_files(number) {
                self.unsynced.remove(&name);
                self.place.disk.delete(&name).map_err(StoreError::at(&name))?;
            }
        }
        Ok(())
    }
}

/// Adds a name that is almost always there already.
fn mark(unsynced: &mut BTreeSet<String>, name: &str) {
    if !unsynced.contains(name) {
        unsynced.insert(name.to_owned());
    }
}

/// Consecutive records of a run.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    first: Position,
    records: &'a [(RecordId, Record)],
}

impl<'a> Part<'a> {
    fn end(&self) -> Position {
        self.first + self.records.len() as u64
    }

    /// Adds the stretches of this part that lie between the positions in `held` to `out`.
    fn without(self, held: &BTreeSet<Position>, out: &mut Vec<Part<'a>>) {
        let mut rest = self;
        for position in held {
            let (before, after) = rest.records.split_at((*position - rest.first) as usize);
            out.push(Part { first: rest.first, records: before });
            rest = Part { first: position.next(), records: &after[1..] };
        }
        out.push(rest);
        out.retain(|part| !part.records.is_empty());
    }
}

impl Place {
    fn records_file(&self, segment: u32) -> String {
        format!("{}/seg-{segment:08}{RECORDS_SUFFIX}", self.dir)
    }

    fn bindings_file(&self, segment: u32) -> String {
        format!("{}/seg-{segment:08}.bindings", self.dir)
    }

    fn segment_files(&self, segment: u32) -> [String; 2] {
        [self.records_file(segment), self.bindings_file(segment)]
    }
}

#[cfg(test)]
mod lives;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod tests;
