//! One write of the journal: the steps that make a batch durable; and what can be done before there
//! is a batch.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::disk::Disk;
use crate::error::write_advice;

/// Zeros are written in pieces of this size, in bytes.
const ZEROS: usize = 1 << 20;

/// The work that makes a batch durable. It can be performed anywhere, and again after the disk was
/// full.
#[derive(Clone, Debug)]
pub struct JournalWrite {
    pub(super) steps: Vec<Step>,
    /// The file that a later write starts with, unless it is there already.
    pub(super) next_file: Option<Preparation>,
}

/// Steps are performed in order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Remove a file that is not needed any more.
    Delete { name: String },
    /// Make a file with this many zeros, so that later syncs find its blocks in place.
    Prewrite(Preparation),
    /// Write bytes.
    Write { name: String, offset: u64, chunks: Vec<Bytes> },
    /// Make what was written durable.
    Sync { name: String },
}

/// Why a batch did not become durable.
#[derive(Debug, thiserror::Error)]
pub enum WriteFailure {
    /// There was no room. The same write may be performed again.
    #[error("no room for {file}: {source}")]
    Full {
        /// The file's name on its disk.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
    /// The disk failed. The journal is not to be used any more.
    #[error("{file}: {source}{}", write_advice(source))]
    Failed {
        /// The file's name on its disk.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
}

impl JournalWrite {
    /// Performs the write. It blocks until the batch is durable.
    ///
    /// # Errors
    /// If there is no room, or if the disk fails; a failed sync is always the latter.
    pub fn perform(&self, disk: &dyn Disk) -> Result<(), WriteFailure> {
        self.steps.iter().try_for_each(|step| step.perform(disk))
    }

    /// How many bytes it writes at most, zeros that a new file is made of included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(Step::bytes).sum()
    }

    /// A file that will be needed soon, for whoever has time to make it ready; each is given out
    /// once.
    #[must_use]
    pub fn take_preparation(&self) -> Option<Preparation> {
        self.next_file.clone().filter(|file| !file.is_taken.swap(true, Ordering::Relaxed))
    }
}

/// The next file is prepared from the first of so many parts of a file on, so that a node that
/// writes little has one file.
pub(super) const PREPARED_FROM: u64 = 4;
/// It is there once one of so many parts more is full: what is left of the file is room for its
/// sync.
const PREPARED_WITHIN: u64 = 2;

/// How far a [`Preparation`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It grows more slowly than the file before it fills: the next piece is due.
    Behind,
    /// The next piece has time.
    Ahead,
    /// There is no more to do.
    Ended,
}

/// A file of zeros, so that syncs of what is written over them find the file's blocks in place.
/// Whoever needs it waits for whoever makes it.
#[derive(Clone, Debug)]
pub struct Preparation {
    pub(super) name: String,
    len: u64,
    /// Whether somebody was asked to make it.
    is_taken: Arc<AtomicBool>,
    /// How long it should be by now, in bytes: it grows as the file before it fills.
    wanted: Arc<AtomicU64>,
    /// Held by whoever writes a piece of it. Why it is not to be used, once a sync has failed: that
    /// is final.
    failure: Arc<Mutex<Option<String>>>,
}

impl Preparation {
    pub(super) fn new(name: String, len: u64) -> Self {
        Self { name, len, is_taken: Arc::default(), wanted: Arc::default(), failure: Arc::default() }
    }

    /// The file before it is filled to `end` of `len` bytes: once it is nearly full, this one
    /// should be there.
    pub(super) fn keep_up_with(&self, end: u64, len: u64) {
        let within = len / PREPARED_WITHIN;
        let filled = end.saturating_sub(len / PREPARED_FROM).min(within);
        self.wanted.store(self.len * filled / within.max(1), Ordering::Relaxed);
    }

    /// Writes the next piece of the file, or syncs it if that was the last. What fails shows when
    /// the file is needed.
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

    /// Extends the file as far as it is not long enough.
    fn make(&self, disk: &dyn Disk) -> io::Result<()> {
        if let Some(cause) = &*self.failure() {
            return Err(io::Error::other(cause.clone()));
        }
        while self.write_piece(disk)?.is_some() {}
        Ok(())
    }

    /// Extends the file with zeros that are written, not implied, and says how long it is then.
    /// Nothing if it is long enough.
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
