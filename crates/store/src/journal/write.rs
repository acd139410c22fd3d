//! One write of the journal: the steps that make a batch durable.

use std::io;

use bytes::Bytes;

use crate::disk::Disk;

/// Zeros are written in pieces of this size, in bytes.
const ZEROS: usize = 1 << 20;

/// What makes a batch durable. It can be performed anywhere, and again after the disk was full.
#[derive(Clone, Debug)]
pub struct JournalWrite {
    pub(super) steps: Vec<Step>,
}

/// Steps are performed in order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Remove a file that is not needed any more.
    Delete { name: String },
    /// Make a file with this many zeros, so that later syncs find its blocks in place.
    Prewrite { name: String, len: u64 },
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
    #[error("{file}: {source}")]
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
}

impl Step {
    fn bytes(&self) -> u64 {
        match self {
            Self::Delete { .. } | Self::Sync { .. } => 0,
            Self::Prewrite { len, .. } => *len,
            Self::Write { chunks, .. } => chunks.iter().map(|chunk| chunk.len() as u64).sum(),
        }
    }

    fn perform(&self, disk: &dyn Disk) -> Result<(), WriteFailure> {
        let (name, may_be_full, outcome) = match self {
            Self::Delete { name } => (name, false, disk.delete(name)),
            Self::Prewrite { name, len } => (name, true, prewrite(disk, name, *len)),
            Self::Write { name, offset, chunks } => (name, true, disk.write_at(name, *offset, chunks)),
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

/// Extends a file with zeros that are written, not implied, up to `len`.
fn prewrite(disk: &dyn Disk, name: &str, len: u64) -> io::Result<()> {
    disk.create(name)?;
    let mut offset = disk.len(name)?;
    let zeros = Bytes::from_static(&[0; ZEROS]);
    while offset < len {
        let piece = zeros.slice(..usize::try_from(len - offset).unwrap_or(ZEROS).min(ZEROS));
        let piece_len = piece.len() as u64;
        disk.write_at(name, offset, &[piece])?;
        offset += piece_len;
    }
    Ok(())
}
