//! The trim file: the trim point, the oldest segment, and the end of the packed binding logs.
//!
//! It is overwritten in place and needs no new room, so a full disk can be trimmed. It fits into
//! one sector, so it is never torn. It is synced before the first segment is deleted ([`Removal`]):
//! a missing segment was trimmed.
//!
//! The oldest segment also depends on ids that are final or discarded, as noted in the last binding
//! log. Without a journal, a power loss may keep one file without the other: so the trim point is
//! written at once, the oldest segment when its reasons are durable.

use std::io;

use bytes::Bytes;
use seriatim_model::Position;
use seriatim_model::wire::wire_struct;

use super::{Owner, Place, StoreError};
use crate::disk::{Disk, sync_files};
use crate::error::OpenError;
use crate::format::{Magic, decode_header, encode_header, is_blank};

const MAGIC: Magic = *b"SERIATRM";

/// Length of the file, in bytes.
const FILE_BYTES: usize = 64;

/// Files to sync, then a few to delete. For a thread that may wait for the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    sync: Vec<String>,
    delete: Vec<String>,
}

impl Removal {
    pub(super) fn new(sync: Vec<String>, delete: Vec<String>) -> Self {
        Self { sync, delete }
    }

    /// Syncs, then deletes.
    ///
    /// # Errors
    /// If the disk fails. A failed sync is final for the store.
    pub fn perform(&self, disk: &dyn Disk) -> io::Result<()> {
        sync_files(disk, &self.sync)?;
        disk.delete_all(&self.delete)
    }
}

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
    /// Packed logs of segments below this number are valid. 0 in files of version 1: no packed
    /// logs.
    packed_to: u32,
}

wire_struct! { Content { owner, trim, first_segment, packed_to } }

impl TrimFile {
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

    pub(super) fn packed_to(&self) -> u32 {
        self.content.packed_to
    }

    pub(super) fn raise_to(&mut self, trim: Position) {
        self.content.trim = self.content.trim.max(trim);
    }

    pub(super) fn raise(
        &mut self,
        place: &Place,
        trim: Position,
        first_segment: u32,
    ) -> Result<(), StoreError> {
        self.overwrite(place, Content { trim, first_segment, ..self.content })
    }

    /// Makes the packed logs below `packed_to` valid.
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
