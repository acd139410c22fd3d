//! The node's one journal: entries of all roles, group-committed, in recycled prewritten files.
//!
//! ```text
//! append ──▶ queue of batches ──next_write──▶ JournalWrite::perform ──written──▶ durable
//! (memory)                       (one at a time; run by a syncer)
//! ```
//!
//! The journal itself never waits and never touches the disk after [`Journal::open`]: it hands out
//! what is to be written and is told how that went. Because at most one batch is on its way to the
//! disk, at most the last batch can be torn after a crash. Anything else that is unreadable is
//! damage.
//!
//! **Files** are called `journal/NNNN` and used again and again. Each use has a *sequence* number,
//! one higher than that of the file before, and a *salt*, which nobody but the node knows
//! ([`Secret`]). Both stand in the file's header, and the salt in each batch, so neither what an
//! earlier use left behind nor what a client put into a record is taken for a batch. Numbers of
//! entries ([`Lsn`]) have no gaps, so a batch that is missing between two others is noticed.
//! `journal/batch.rs` has the layout.
//!
//! **Checkpoints** bound what recovery reads, and go in pieces, between ordinary entries.
//! `begin_checkpoint` fixes where entries start to count. `add_snapshot` appends what a role is at
//! that instant: it stands for all that the role has appended before, and the role's later entries
//! follow it. `finish_checkpoint` appends an end marker. When that is durable, files that hold only
//! entries from before the beginning are free for their next use. Until then the checkpoint before
//! counts, and everything since.

mod batch;
mod files;
mod recovery;
mod secret;
mod write;

use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::wire::{Wire, wire_struct};
use seriatim_model::{Endpoint, LogId, NodeId};

use crate::disk::Disk;
use crate::error::OpenError;
use batch::{Entry, PendingBatch};
use files::Files;

pub use secret::Secret;
pub use write::{Advance, JournalWrite, Preparation, WriteFailure};

/// Says that the disk has a journal. It is not in the journal's directory, so that it does not go
/// with that.
const BEGUN_FILE: &str = "journal-begun";

/// The number of an entry: from 1, without gaps, for the whole journal. 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The role that an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleKey {
    /// The log that the role works for.
    pub log: LogId,
    /// Which of the log's roles on this node.
    pub endpoint: Endpoint,
}

wire_struct! { RoleKey { log, endpoint } }

/// The owner of a journal. Another cluster's or node's journal is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalIdentity {
    /// The cluster.
    pub cluster: u128,
    /// The node.
    pub node: NodeId,
}

/// Sizes of a journal. They may differ from one opening to the next.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// How long a prewritten file is, in bytes. A batch that is larger gets a larger file.
    pub file_bytes: u64,
    /// How many bytes of entries one write carries at most, unless a single entry is larger.
    pub batch_bytes: usize,
    /// After how many bytes a checkpoint is due at the earliest: those of the entries, and what
    /// they are padded by.
    pub checkpoint_bytes: u64,
    /// How many bytes of snapshots a checkpoint adds at once.
    pub snapshot_bytes: usize,
    /// How many files are kept for their next use; more are deleted.
    pub spare_files: usize,
    /// Each write starts at a multiple of this in its file, in bytes, which is one of 512 itself
    /// and at most 1 MiB. A disk that loses a sector as the power fails loses nothing that an
    /// earlier write left, if its sectors are no larger.
    pub block_bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            file_bytes: 16 << 20,
            batch_bytes: 8 << 20,
            checkpoint_bytes: 64 << 20,
            snapshot_bytes: 256 << 10,
            spare_files: 8,
            block_bytes: 4096,
        }
    }
}

/// The contents of a journal when it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// For each role the bytes of its snapshot in the last complete checkpoint, in pieces whose
    /// boundaries mean nothing.
    pub snapshots: Vec<(RoleKey, Vec<Bytes>)>,
    /// The entries since that checkpoint began, in the order in which they were appended, without
    /// those that a role appended before its snapshot was taken.
    pub entries: Vec<(RoleKey, Bytes)>,
}

/// The journal does not work any more: what was not reported durable may or may not be. Only
/// opening it again, after the cause is gone, brings it back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal failed: {cause}")]
pub struct JournalError {
    /// The disk's error.
    pub cause: String,
}

/// Names a checkpoint that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a checkpoint counts when it is finished"]
pub struct CheckpointId(Lsn);

/// The journal of a node. See the module's documentation.
#[derive(Debug)]
pub struct Journal {
    options: JournalOptions,
    files: Files,
    /// Batches that were not handed out yet, oldest first. None is empty but the last may be.
    queue: VecDeque<PendingBatch>,
    /// The batch that was handed out.
    offered: Option<Offered>,
    next: Lsn,
    durable: Lsn,
    is_full: bool,
    failure: Option<JournalError>,
    checkpoint: Checkpoint,
}

/// A batch on its way to the disk.
#[derive(Debug)]
struct Offered {
    write: JournalWrite,
    last: Lsn,
    bytes: usize,
    /// Whether it was taken and not yet reported; false after the disk was full.
    in_flight: bool,
}

#[derive(Debug, Default)]
struct Checkpoint {
    /// Where the one in progress starts.
    begun: Option<Lsn>,
    /// The end marker that is on its way, and where its checkpoint starts.
    ending: Option<(Lsn, Lsn)>,
    /// Bytes of entries since the last one was begun.
    bytes_since: u64,
    /// How much there was to be said when the last one was begun: it says no more than the one
    /// before and all entries since.
    before: u64,
    /// Bytes of snapshots of the last one, as far as it came.
    said: u64,
    /// Whether no file is to keep what was appended before the last one.
    forgets: bool,
}

impl Journal {
    /// Opens the journal in the directory `journal` of `disk`, or starts one. What it accepts is
    /// durable when it returns, and a torn last batch can never come back. Each opening has a
    /// `secret` of its own.
    ///
    /// # Errors
    /// If the journal is damaged, belongs to someone else, is of a newer format, or the disk fails.
    pub fn open(
        disk: &Arc<dyn Disk>,
        identity: JournalIdentity,
        secret: Secret,
        options: JournalOptions,
    ) -> Result<(Self, Recovered), OpenError> {
        let found = recovery::recover(&**disk, identity, secret, (options.file_bytes, options.block_bytes))?;
        let bytes_since = found.recovered.entries.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let snapshots = found.recovered.snapshots.iter().flat_map(|(_, pieces)| pieces);
        let said = snapshots.map(|piece| piece.len() as u64).sum();
        let journal = Self {
            options,
            files: found.files,
            queue: VecDeque::new(),
            offered: None,
            next: found.next,
            durable: Lsn(found.next.0 - 1),
            is_full: false,
            failure: None,
            checkpoint: Checkpoint { bytes_since, said, ..Checkpoint::default() },
        };
        Ok((journal, found.recovered))
    }

    /// Whether the disk had a journal, by [`Journal::note_begun`], and no file of it is left.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn is_missing(disk: &dyn Disk) -> Result<bool, OpenError> {
        match disk.len(BEGUN_FILE) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(false),
            len => len.map_err(OpenError::io(BEGUN_FILE))?,
        };
        Ok(!recovery::has_files(disk)?)
    }

    /// Records on the disk that it has a journal, one file of which is durable. On a full disk this
    /// does nothing.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn note_begun(disk: &dyn Disk) -> Result<(), OpenError> {
        match disk.create(BEGUN_FILE).and_then(|()| disk.sync(BEGUN_FILE)) {
            Err(cause) if cause.kind() == ErrorKind::StorageFull => Ok(()),
            outcome => outcome.map_err(OpenError::io(BEGUN_FILE)),
        }
    }

    /// Adds an entry, in memory. It becomes durable with a later write; entries do so in order.
    pub fn append(&mut self, key: RoleKey, chunks: &[Bytes]) -> Lsn {
        let len: usize = chunks.iter().map(Bytes::len).sum();
        let batches = self.queue.len();
        let lsn = self.push(len, |out| Entry::encode_ordinary(key, len, chunks, out));
        // A batch takes a block more than its entries, at most.
        let begun = (self.queue.len() - batches) as u64;
        self.checkpoint.bytes_since += len as u64 + begun * self.options.block_bytes;
        lsn
    }

    /// The next write, if any: everything pending, up to the batch size. At most one write is out
    /// at a time; [`Journal::written`] must follow before there is another. After the disk was
    /// full, the same write is offered again.
    pub fn next_write(&mut self) -> Option<JournalWrite> {
        if self.failure.is_some() {
            return None;
        }
        if self.offered.is_none() {
            let (write, last, bytes) = match self.queue.pop_front() {
                Some(batch) => {
                    let (last, bytes) = (batch.last(), batch.bytes());
                    (self.files.place(batch), last, bytes)
                }
                None => (self.files.delete_doomed()?, self.durable, 0),
            };
            self.offered = Some(Offered { write, last, bytes, in_flight: false });
        }
        let offered = self.offered.as_mut()?;
        let is_free = !std::mem::replace(&mut offered.in_flight, true);
        is_free.then(|| offered.write.clone())
    }

    /// Reports how the last write went, and returns the last entry that is durable. If there was no
    /// room ([`Journal::is_full`]), nothing else changes and the write is offered again.
    ///
    /// # Errors
    /// If the write failed otherwise, now or ever before: that is final.
    ///
    /// # Panics
    /// If no write is out.
    pub fn written(&mut self, outcome: Result<(), WriteFailure>) -> Result<Lsn, JournalError> {
        let offered = self.offered.as_mut().filter(|offered| offered.in_flight);
        offered.expect("a write was handed out before its outcome is reported").in_flight = false;
        match outcome {
            Ok(()) => {
                let offered = self.offered.take().expect("it is there");
                self.durable = offered.last;
                self.is_full = false;
                self.release_files();
            }
            Err(WriteFailure::Full { .. }) => self.is_full = true,
            Err(failure @ WriteFailure::Failed { .. }) => {
                self.failure.get_or_insert(JournalError { cause: failure.to_string() });
            }
        }
        self.failure.clone().map_or(Ok(self.durable), Err)
    }

    /// Whether the last write found no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Why the journal does not work any more, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<&JournalError> {
        self.failure.as_ref()
    }

    /// The last entry that is durable. All before it are, too.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// How many bytes were appended and are not durable yet, framing included.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        let queued: usize = self.queue.iter().map(PendingBatch::bytes).sum();
        queued + self.offered.as_ref().map_or(0, |offered| offered.bytes)
    }

    /// Whether enough was appended since the last checkpoint, and none is in progress: as much as
    /// the last one took, at least. Where roles hold much for long, checkpoints then take no more
    /// of the disk than what is appended.
    #[must_use]
    pub fn checkpoint_due(&self) -> bool {
        let most = self.options.checkpoint_bytes.max(2 * self.checkpoint.said);
        self.has_no_checkpoint() && self.checkpoint.bytes_since >= most
    }

    /// Whether no checkpoint is in progress, nor its end on its way to the disk.
    #[must_use]
    pub fn has_no_checkpoint(&self) -> bool {
        self.checkpoint.begun.is_none() && self.checkpoint.ending.is_none()
    }

    /// Gives room back: of the files that are ready for their next use so many stay.
    pub fn keep_spares(&mut self, most: usize) {
        self.files.keep_spares(most);
    }

    /// How many bytes the next checkpoint takes at most, or what is left to be said of the one in
    /// progress.
    #[must_use]
    pub fn checkpoint_needs(&self) -> u64 {
        let Checkpoint { begun, bytes_since, before, said, .. } = self.checkpoint;
        let bytes =
            if begun.is_some() { (before + bytes_since).saturating_sub(said) } else { said + bytes_since };
        let pieces = bytes / self.options.snapshot_bytes.max(1) as u64 + 1;
        bytes + pieces * (self.options.block_bytes + batch::MOST_FRAMING_BYTES)
    }

    /// How many bytes find place in files that are ready for their next use.
    #[must_use]
    pub fn ready_bytes(&self) -> u64 {
        self.files.ready() as u64 * self.options.file_bytes
    }

    /// Whether so much was appended since the last checkpoint, none being in progress, that another
    /// one makes [`checkpoint_needs`](Self::checkpoint_needs) much less.
    #[must_use]
    pub fn checkpoint_pays(&self) -> bool {
        self.has_no_checkpoint() && self.checkpoint.bytes_since >= self.options.checkpoint_bytes / 8
    }

    /// Whether files wait to be deleted, with the next write.
    #[must_use]
    pub fn has_superfluous_files(&self) -> bool {
        !self.files.doomed.is_empty()
    }

    /// Whether files wait to be deleted because they hold forgotten records
    /// ([`Journal::begin_forgetting`]).
    #[must_use]
    pub fn has_files_to_forget(&self) -> bool {
        self.checkpoint.forgets && self.has_superfluous_files()
    }

    /// Whether a checkpoint would free a file, and the journal has no other for when the present
    /// one is full. On a disk without room that is when one is due.
    #[must_use]
    pub fn needs_file(&self) -> bool {
        self.has_no_checkpoint() && self.files.needs_file()
    }

    /// Begins a checkpoint. One that is in progress is given up.
    pub fn begin_checkpoint(&mut self) -> CheckpointId {
        self.checkpoint.forgets = false;
        self.begin()
    }

    /// Begins a checkpoint that leaves nothing in the journal's files of what is durable now: the
    /// next write begins a file without a past, and when the checkpoint counts all files before
    /// that one are deleted.
    ///
    /// # Panics
    /// If a checkpoint is in progress.
    pub fn begin_forgetting(&mut self) -> CheckpointId {
        assert!(self.has_no_checkpoint(), "files that another checkpoint frees would be used again");
        self.files.begin_anew();
        self.checkpoint.forgets = true;
        self.begin()
    }

    fn begin(&mut self) -> CheckpointId {
        self.checkpoint.before = self.checkpoint.said + self.checkpoint.bytes_since;
        self.checkpoint.begun = Some(self.next);
        (self.checkpoint.bytes_since, self.checkpoint.said) = (0, 0);
        CheckpointId(self.next)
    }

    /// Adds a piece of a role's snapshot to a checkpoint. The first one says where the snapshot was
    /// taken: it holds what all entries that the role has appended so far did, and nothing of later
    /// ones. The others follow, before any other role's.
    ///
    /// # Panics
    /// If another checkpoint was begun since.
    pub fn add_snapshot(&mut self, id: CheckpointId, key: RoleKey, piece: &[Bytes]) -> Lsn {
        assert_eq!(self.checkpoint.begun, Some(id.0), "the checkpoint is the one in progress");
        let len: usize = piece.iter().map(Bytes::len).sum();
        self.checkpoint.said += len as u64;
        self.push(len, |out| Entry::encode_snapshot(id.0, key, len, piece, out))
    }

    /// Finishes a checkpoint which has a snapshot of every role that is to exist after a recovery,
    /// unless the role's first entry is a later one. The files that the snapshots rely on must be
    /// synced before. Returns the entry that, once durable, makes the checkpoint count.
    ///
    /// # Panics
    /// If another checkpoint was begun since.
    pub fn finish_checkpoint(&mut self, id: CheckpointId) -> Lsn {
        let begun = self.checkpoint.begun.take();
        assert_eq!(begun, Some(id.0), "the checkpoint that is finished is the one in progress");
        let end = self.push(0, |out| Entry::End { start: id.0.0 }.encode(out));
        self.checkpoint.ending = Some((end, id.0));
        end
    }

    /// Adds an entry of about `len` bytes to the last batch of the queue that has room.
    fn push(&mut self, len: usize, encode: impl FnOnce(&mut seriatim_model::wire::Encoder)) -> Lsn {
        let lsn = self.next;
        self.next = Lsn(lsn.0 + 1);
        let limit = self.options.batch_bytes;
        if self.queue.back().is_none_or(|batch| batch.bytes() + len > limit) {
            self.queue.push_back(PendingBatch::new(lsn));
        }
        self.queue.back_mut().expect("there is a last batch").add(encode);
        lsn
    }

    /// Frees the files that a checkpoint made superfluous when it became durable.
    fn release_files(&mut self) {
        if let Some((end, start)) = self.checkpoint.ending
            && end <= self.durable
        {
            self.checkpoint.ending = None;
            let spares = if self.checkpoint.forgets { 0 } else { self.options.spare_files };
            self.files.release_below(start, spares);
        }
    }
}

#[cfg(test)]
mod tests;
