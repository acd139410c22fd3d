//! The trim point, in a file of its own that is overwritten in place; and which binding logs are
//! packed ones.
//!
//! It needs no room once it exists, so a full disk can be trimmed. It fits into one sector, so it
//! is never torn. It is synced before the first segment goes ([`Removal`]): a segment that is
//! missing was trimmed.
//!
//! Which segment is the oldest depends on more than the trim point: on names that are final or
//! discarded, which the last binding log says. Without a journal the two files may survive a power
//! cut one without the other, so the trim point is written at once, and the oldest segment only
//! when what it relies on is durable.

use std::io;

use bytes::Bytes;
use seriatim_model::Position;
use seriatim_model::wire::wire_struct;

use super::{Owner, Place, StoreError};
use crate::disk::{Disk, sync_files};
use crate::error::OpenError;
use crate::format::{Magic, decode_header, encode_header, is_blank};

/// The first bytes of the file.
const MAGIC: Magic = *b"SERIATRM";

/// How long the file is, in bytes.
const FILE_BYTES: usize = 64;

/// Files that are to be deleted, a few of them, and what has to be durable first. It takes as long
/// as the disk takes, so the store leaves it to a thread that may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    sync: Vec<String>,
    delete: Vec<String>,
}

impl Removal {
    pub(super) fn new(sync: Vec<String>, delete: Vec<String>) -> Self {
        Self { sync, delete }
    }

    /// Does it.
    ///
    /// # Errors
    /// If the disk fails. A failed sync is final for the store.
    pub fn perform(&self, disk: &dyn Disk) -> io::Result<()> {
        sync_files(disk, &self.sync)?;
        disk.delete_all(&self.delete)
    }
}

/// The trim point and the oldest segment of which anything is needed.
#[derive(Debug)]
pub(super) struct TrimFile {
    name: String,
    content: Content,
}

#[derive(Clone, Copy, Debug)]
struct Content {
    owner: Owner,
    trim: Position,
    first_segment: u32,
    /// Zeros, as the files of version 1 had there, are no segment.
    packed_to: u32,
}

wire_struct! { Content { owner, trim, first_segment, packed_to } }

impl TrimFile {
    /// Reads the file of a store, or makes it.
    pub(super) fn open(place: &Place) -> Result<Self, OpenError> {
        let name = format!("{}/trim", place.dir);
        place.disk.create(&name).map_err(OpenError::io(&name))?;
        let bytes = place.disk.read_at(&name, 0, FILE_BYTES).map_err(OpenError::io(&name))?;
        if is_blank(&bytes) {
            let content =
                Content { owner: place.owner, trim: Position::ZERO, first_segment: 1, packed_to: 0 };
            let bytes = encode_header(MAGIC, &content, FILE_BYTES);
            place.disk.write_at(&name, 0, &[bytes]).map_err(OpenError::io(&name))?;
            return Ok(Self { name, content });
        }
        let content: Content = decode_header(&name, MAGIC, &bytes)?;
        place.check_owner(&name, content.owner)?;
        Ok(Self { name, content })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn position(&self) -> Position {
        self.content.trim
    }

    pub(super) fn first_segment(&self) -> u32 {
        self.content.first_segment
    }

    /// Of segments below this the packed binding logs count.
    pub(super) fn packed_to(&self) -> u32 {
        self.content.packed_to
    }

    /// Takes over a trim point from a checkpoint.
    pub(super) fn raise_to(&mut self, trim: Position) {
        self.content.trim = self.content.trim.max(trim);
    }

    /// Raises the trim point, and says which segments are going to be deleted.
    pub(super) fn raise(
        &mut self,
        place: &Place,
        trim: Position,
        first_segment: u32,
    ) -> Result<(), StoreError> {
        self.overwrite(place, Content { trim, first_segment, ..self.content })
    }

    /// Lets the packed logs of segments below `packed_to` count.
    pub(super) fn pack(&mut self, place: &Place, packed_to: u32) -> Result<(), StoreError> {
        assert!(packed_to > self.content.packed_to, "what counts stays as it is");
        self.overwrite(place, Content { packed_to, ..self.content })
    }

    fn overwrite(&mut self, place: &Place, content: Content) -> Result<(), StoreError> {
        let bytes: Bytes = encode_header(MAGIC, &content, FILE_BYTES);
        place.disk.write_at(&self.name, 0, &[bytes]).map_err(StoreError::at(&self.name))?;
        self.content = content;
        Ok(())
    }
}
