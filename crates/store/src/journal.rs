//! The node's one journal: entries of all roles, group-committed, in recycled prewritten files.
//!
//! ```text
//! append ──▶ queue of batches ──next_write──▶ JournalWrite::perform ──written──▶ durable
//! (memory)                       (one at a time; run by a syncer)
//! ```
//!
//! After [`Journal::open`] the journal never waits and never touches the disk: it returns writes,
//! and the caller reports their outcome. One batch at a time is on its way to the disk, so a crash
//! can tear only the last batch. Any other unreadable byte is damage.
//!
//! **Files** are called `journal/NNNN` and recycled. Each use has a *sequence* number, one higher
//! than the previous file's, and a *salt* ([`Secret`]), which distinguishes its batches from
//! remains of an earlier use and from clients' payloads. Entry numbers ([`Lsn`]) have no gaps, so
//! recovery notices a missing batch.
//!
//! **Checkpoints** bound the entries that recovery reads. They proceed in pieces between ordinary
//! entries. `begin_checkpoint` fixes the first entry that recovery will read. `add_snapshot`
//! appends a role's present state, which replaces its earlier entries. `finish_checkpoint` appends
//! an end marker; once that is durable, files with older entries only are free. Until then recovery
//! uses the previous checkpoint and all entries since.

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

/// File that marks a disk with a journal. It is outside of the journal's directory, to survive its
/// loss.
const BEGUN_FILE: &str = "journal-begun";

/// Number of a journal entry: from 1, without gaps. 0 is before the first entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The role that owns an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleKey {
    /// The role's log.
    pub log: LogId,
    /// The role among the log's roles on this node.
    pub endpoint: Endpoint,
}

wire_struct! { RoleKey { log, endpoint } }

/// The owner of a journal. `open` refuses another owner's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalIdentity {
    /// The cluster.
    pub cluster: u128,
    /// The node.
    pub node: NodeId,
}

/// Sizes of a journal. They may change between openings.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// Length of a prewritten file, in bytes. A larger batch gets a larger file.
    pub file_bytes: u64,
    /// Most bytes of entries in one write, unless a single entry is larger.
    pub batch_bytes: usize,
    /// Least bytes of entries and padding between two checkpoints.
    pub checkpoint_bytes: u64,
    /// Most bytes of snapshots that the caller adds in one piece of work.
    pub snapshot_bytes: usize,
    /// Most recycled files kept for later use.
    pub spare_files: usize,
    /// Alignment of writes in a file, in bytes: a multiple of 512, at most 1 MiB. When a power loss
    /// destroys a sector no larger than this, earlier writes survive.
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

/// The contents of an opened journal.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The roles' snapshots in the last complete checkpoint, each in pieces cut at arbitrary bytes.
    pub snapshots: Vec<(RoleKey, Vec<Bytes>)>,
    /// The entries since that checkpoint began, in order, except those covered by a snapshot.
    pub entries: Vec<(RoleKey, Bytes)>,
}

/// The journal failed. Entries not yet reported durable may or may not be on the disk. The caller
/// must open the journal again once the cause is fixed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal failed: {cause}")]
pub struct JournalError {
    /// The disk's error.
    pub cause: String,
}

/// Identifies a checkpoint that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a checkpoint counts when it is finished"]
pub struct CheckpointId(Lsn);

/// The journal of a node. See the module's documentation.
#[derive(Debug)]
pub struct Journal {
    options: JournalOptions,
    files: Files,
    /// Batches waiting for [`Journal::next_write`], oldest first. Only the last may be empty.
    queue: VecDeque<PendingBatch>,
    offered: Option<Offered>,
    next: Lsn,
    durable: Lsn,
    is_full: bool,
    failure: Option<JournalError>,
    checkpoint: Checkpoint,
}

#[derive(Debug)]
struct Offered {
    write: JournalWrite,
    last: Lsn,
    bytes: usize,
    /// Whether the caller has the write and has not reported its outcome.
    in_flight: bool,
}

#[derive(Debug, Default)]
struct Checkpoint {
    /// Start of the checkpoint in progress.
    begun: Option<Lsn>,
    /// The end marker being written, and its checkpoint's start.
    ending: Option<(Lsn, Lsn)>,
    /// Bytes of entries and padding since the last checkpoint's start.
    bytes_since: u64,
    /// Upper bound of the checkpoint's snapshots, in bytes: previous snapshots and entries up to
    /// its start.
    before: u64,
    /// Bytes of snapshots added to the present or last checkpoint so far.
    said: u64,
    /// Whether the checkpoint deletes all files before its start.
    forgets: bool,
}

impl Journal {
    /// Opens the journal in the directory `journal` of `disk`, or creates it. The recovered entries
    /// are then durable, and a torn last batch cannot come back. Each opening needs a new `secret`.
    ///
    /// # Errors
    /// If the journal is damaged, has another owner or a newer format, or if the disk fails.
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

    /// Whether the disk is marked by [`Journal::note_begun`] and all journal files are gone.
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

    /// Marks the disk as having a journal. The caller does so once a journal file is durable. Does
    /// nothing on a full disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn note_begun(disk: &dyn Disk) -> Result<(), OpenError> {
        match disk.create(BEGUN_FILE).and_then(|()| disk.sync(BEGUN_FILE)) {
            Err(cause) if cause.kind() == ErrorKind::StorageFull => Ok(()),
            outcome => outcome.map_err(OpenError::io(BEGUN_FILE)),
        }
    }

    /// Adds an entry in memory. Later writes make entries durable in order.
    pub fn append(&mut self, key: RoleKey, chunks: &[Bytes]) -> Lsn {
        let len: usize = chunks.iter().map(Bytes::len).sum();
        let batches = self.queue.len();
        let lsn = self.push(len, |out| Entry::encode_ordinary(key, len, chunks, out));
        let begun = (self.queue.len() - batches) as u64;
        self.checkpoint.bytes_since += len as u64 + begun * self.options.block_bytes;
        lsn
    }

    /// The next write: pending entries, up to the batch size. `None` if there are none, or until
    /// [`Journal::written`] reports the outcome of the last write. After a full disk, returns the
    /// same write again.
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

    /// Reports the outcome of the last write and returns the last durable entry. If there was no
    /// room ([`Journal::is_full`]), the write is offered again.
    ///
    /// # Errors
    /// If this write or an earlier one failed for another reason: that is final.
    ///
    /// # Panics
    /// If the caller has no unreported write.
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

    /// The failure of the journal, if it failed.
    #[must_use]
    pub fn failure(&self) -> Option<&JournalError> {
        self.failure.as_ref()
    }

    /// The last durable entry.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Bytes of entries not durable yet, framing included.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        let queued: usize = self.queue.iter().map(PendingBatch::bytes).sum();
        queued + self.offered.as_ref().map_or(0, |offered| offered.bytes)
    }

    /// Whether a checkpoint is due: none is in progress, and the entries since the last one reach
    /// the configured bytes and twice the last snapshots. So checkpoints write no more than the
    /// entries do.
    #[must_use]
    pub fn checkpoint_due(&self) -> bool {
        let most = self.options.checkpoint_bytes.max(2 * self.checkpoint.said);
        self.has_no_checkpoint() && self.checkpoint.bytes_since >= most
    }

    /// Whether no checkpoint, including its end marker, is in progress.
    #[must_use]
    pub fn has_no_checkpoint(&self) -> bool {
        self.checkpoint.begun.is_none() && self.checkpoint.ending.is_none()
    }

    /// Deletes recycled files above `most`, with the next write.
    pub fn keep_spares(&mut self, most: usize) {
        self.files.keep_spares(most);
    }

    /// Upper bound of the bytes still to write for the present checkpoint; if there is none, for
    /// the next.
    #[must_use]
    pub fn checkpoint_needs(&self) -> u64 {
        let Checkpoint { begun, bytes_since, before, said, .. } = self.checkpoint;
        let bytes =
            if begun.is_some() { (before + bytes_since).saturating_sub(said) } else { said + bytes_since };
        let pieces = bytes / self.options.snapshot_bytes.max(1) as u64 + 1;
        bytes + pieces * (self.options.block_bytes + batch::MOST_FRAMING_BYTES)
    }

    /// Bytes that fit in the recycled files.
    #[must_use]
    pub fn ready_bytes(&self) -> u64 {
        self.files.ready() as u64 * self.options.file_bytes
    }

    /// Whether a checkpoint would much reduce [`checkpoint_needs`](Self::checkpoint_needs), and
    /// none is in progress.
    #[must_use]
    pub fn checkpoint_pays(&self) -> bool {
        self.has_no_checkpoint() && self.checkpoint.bytes_since >= self.options.checkpoint_bytes / 8
    }

    /// Whether the next write deletes files.
    #[must_use]
    pub fn has_superfluous_files(&self) -> bool {
        !self.files.doomed.is_empty()
    }

    /// Whether the next write deletes files with forgotten records ([`Journal::begin_forgetting`]).
    #[must_use]
    pub fn has_files_to_forget(&self) -> bool {
        self.checkpoint.forgets && self.has_superfluous_files()
    }

    /// Whether no file is ready for reuse and only a checkpoint can free one. On a full disk, a
    /// checkpoint is then due.
    #[must_use]
    pub fn needs_file(&self) -> bool {
        self.has_no_checkpoint() && self.files.needs_file()
    }

    /// Begins a checkpoint. Abandons a checkpoint in progress.
    pub fn begin_checkpoint(&mut self) -> CheckpointId {
        self.checkpoint.forgets = false;
        self.begin()
    }

    /// Begins a checkpoint that erases present entries: the next write starts a new file, and the
    /// checkpoint deletes all files before it.
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

    /// Adds a piece of a role's snapshot. The snapshot covers the role's entries before its first
    /// piece, and none after. The other pieces follow before any other role's.
    ///
    /// # Panics
    /// If another checkpoint was begun since.
    pub fn add_snapshot(&mut self, id: CheckpointId, key: RoleKey, piece: &[Bytes]) -> Lsn {
        assert_eq!(self.checkpoint.begun, Some(id.0), "the checkpoint is the one in progress");
        let len: usize = piece.iter().map(Bytes::len).sum();
        self.checkpoint.said += len as u64;
        self.push(len, |out| Entry::encode_snapshot(id.0, key, len, piece, out))
    }

    /// Finishes a checkpoint, which must have a snapshot of each role, except roles whose entries
    /// all came later. The snapshots' files must be synced before. Returns the entry that, once
    /// durable, makes the checkpoint count.
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
