//! A write of the journal, and the preparation of files for later writes.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::disk::Disk;
use crate::error::write_advice;

/// Most zeros per write, in bytes.
const ZEROS: usize = 1 << 20;

/// The steps that make a batch durable. Any thread may perform them, and repeat them after the disk
/// was full.
#[derive(Clone, Debug)]
pub struct JournalWrite {
    pub(super) steps: Vec<Step>,
    pub(super) next_file: Option<Preparation>,
}

/// One step of a write. Steps are performed in order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Delete {
        name: String,
    },
    /// Creates a file of zeros, or completes a file that was partly prepared.
    Prewrite(Preparation),
    Write {
        name: String,
        offset: u64,
        chunks: Vec<Bytes>,
    },
    Sync {
        name: String,
    },
}

/// Why a batch is not durable.
#[derive(Debug, thiserror::Error)]
pub enum WriteFailure {
    /// There was no room. The caller may perform the same write again.
    #[error("no room for {file}: {source}")]
    Full {
        /// The file's name.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed. The journal must not be used again.
    #[error("{file}: {source}{}", write_advice(source))]
    Failed {
        /// The file's name.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
}

impl JournalWrite {
    /// Performs the write and returns when the batch is durable.
    ///
    /// # Errors
    /// If there is no room, or if the disk fails; a failed sync is always the latter.
    pub fn perform(&self, disk: &dyn Disk) -> Result<(), WriteFailure> {
        self.steps.iter().try_for_each(|step| step.perform(disk))
    }

    /// Most bytes that it writes, zeros of a new file included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(Step::bytes).sum()
    }

    /// The preparation of the next file, for a background thread. `None` if there is none or it was
    /// taken before.
    #[must_use]
    pub fn take_preparation(&self) -> Option<Preparation> {
        self.next_file.clone().filter(|file| !file.is_taken.swap(true, Ordering::Relaxed))
    }
}

/// Divisor: the next file's preparation starts when the current file is a quarter full, so a node
/// that writes little has one file.
pub(super) const PREPARED_FROM: u64 = 4;
/// Divisor: the preparation ends when a further half of the current file is full. The rest leaves
/// time for the sync.
const PREPARED_WITHIN: u64 = 2;

/// Progress of a [`Preparation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The current file fills faster than the preparation proceeds: write the next piece now.
    Behind,
    /// The preparation is early: the next piece can wait.
    Ahead,
    /// The preparation finished or failed.
    Ended,
}

/// A file that a background thread fills with zeros, so that later syncs find its blocks in place.
/// A write that needs the file waits for that thread.
#[derive(Clone, Debug)]
pub struct Preparation {
    pub(super) name: String,
    len: u64,
    is_taken: Arc<AtomicBool>,
    /// Length that the file should have by now, in bytes.
    wanted: Arc<AtomicU64>,
    /// The cause of a failed sync, after which the file is unusable. The lock is held while a piece
    /// is written.
    failure: Arc<Mutex<Option<String>>>,
}

impl Preparation {
    pub(super) fn new(name: String, len: u64) -> Self {
        Self { name, len, is_taken: Arc::default(), wanted: Arc::default(), failure: Arc::default() }
    }

    /// Notes that the current file is filled to `end` of its `len` bytes: the length due grows with
    /// it.
    pub(super) fn keep_up_with(&self, end: u64, len: u64) {
        let within = len / PREPARED_WITHIN;
        let filled = end.saturating_sub(len / PREPARED_FROM).min(within);
        self.wanted.store(self.len * filled / within.max(1), Ordering::Relaxed);
    }

    /// Writes the next piece of the file, or syncs it after the last one. The write that needs the
    /// file reports an error.
    #[must_use]
    pub fn advance(&self, disk: &dyn Disk) -> Advance {
        let mut failure = self.failure();
        if failure.is_some() {
            return Advance::Ended;
        }
        match self.write_piece(disk) {
            Ok(Some(len)) if len < self.wanted.load(Ordering::Relaxed) => return Advance::Behind,
            Ok(Some(_)) => return Advance::Ahead,
            Ok(None) => {}
            Err(_) => return Advance::Ended,
        }
        if let Err(cause) = disk.sync(&self.name) {
            *failure = Some(cause.to_string());
        }
        Advance::Ended
    }

    fn make(&self, disk: &dyn Disk) -> io::Result<()> {
        if let Some(cause) = &*self.failure() {
            return Err(io::Error::other(cause.clone()));
        }
        while self.write_piece(disk)?.is_some() {}
        Ok(())
    }

    /// Extends the file by written zeros (no hole). Returns the new length; `None` if long enough.
    fn write_piece(&self, disk: &dyn Disk) -> io::Result<Option<u64>> {
        let offset = match disk.len(&self.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&self.name).map(|()| 0)?,
            offset => offset?,
        };
        if offset >= self.len {
            return Ok(None);
        }
        let missing = usize::try_from(self.len - offset).unwrap_or(ZEROS);
        let zeros = Bytes::from_static(&[0; ZEROS]).slice(..missing.min(ZEROS));
        let len = offset + zeros.len() as u64;
        disk.write_at(&self.name, offset, &[zeros])?;
        Ok(Some(len))
    }

    fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Step {
    fn bytes(&self) -> u64 {
        match self {
            Self::Delete { .. } | Self::Sync { .. } => 0,
            Self::Prewrite(file) => file.len,
            Self::Write { chunks, .. } => chunks.iter().map(|chunk| chunk.len() as u64).sum(),
        }
    }

    fn perform(&self, disk: &dyn Disk) -> Result<(), WriteFailure> {
        let (name, may_be_full, outcome) = match self {
            Self::Delete { name } => (name, false, disk.delete(name)),
            Self::Prewrite(file) => (&file.name, true, file.make(disk)),
            Self::Write { name, offset, chunks } => (name, true, disk.write_through(name, *offset, chunks)),
            Self::Sync { name } => (name, false, disk.sync(name)),
        };
        outcome.map_err(|source| {
            let file = name.clone();
            if may_be_full && source.kind() == io::ErrorKind::StorageFull {
                WriteFailure::Full { file, source }
            } else {
                WriteFailure::Failed { file, source }
            }
        })
    }
}
