//! Unreadable state of a role (its store's files and journal entries) is put aside, never removed.

use std::io;

use bytes::Bytes;
use seriatim_model::{Endpoint, Incarnation};
use seriatim_store::{Disk, RoleKey, ShardStore};

/// File of the journal entries: each with its length in four bytes, little endian.
const ENTRIES: &str = "journal-entries";

/// Puts a role's state aside and returns the directory. `incarnation` is the role's next.
///
/// # Errors
/// The file or directory, and the disk's error.
pub(crate) fn put(
    disk: &dyn Disk,
    key: RoleKey,
    incarnation: Incarnation,
    entries: &[Bytes],
) -> Result<String, (String, io::Error)> {
    let shard = match key.endpoint {
        Endpoint::Shard(shard) => Some(shard),
        _ => None,
    };
    let place = ShardStore::aside(key.log, shard, incarnation.0);
    if let Some(shard) = shard {
        let moved = ShardStore::set_aside(disk, key.log, shard, incarnation.0);
        moved.map_err(|source| (place.clone(), source))?;
    }
    let file = format!("{place}/{ENTRIES}");
    match write(disk, &file, entries) {
        Ok(()) => Ok(place),
        Err(source) => Err((file, source)),
    }
}

fn write(disk: &dyn Disk, file: &str, entries: &[Bytes]) -> io::Result<()> {
    disk.create(file)?;
    let mut offset = 0;
    for entry in entries {
        let length = Bytes::copy_from_slice(&(entry.len() as u32).to_le_bytes());
        disk.write_at(file, offset, &[length, entry.clone()])?;
        offset += 4 + entry.len() as u64;
    }
    disk.sync(file)
}
