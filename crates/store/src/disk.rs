//! The [`Disk`] trait for the files of the journal and the record stores; a disk in memory with
//! injected faults; two wrappers. The server's disk is in another crate.

mod bounded;
mod faulty;
mod volatile;

use std::collections::BTreeMap;
use std::{fmt, io};

use bytes::Bytes;

pub use bounded::BoundedDisk;
pub use faulty::{DiskCounters, MemoryDisk};
pub use volatile::VolatileDisk;

/// A tree of files. Names are relative, with parts separated by `/`: `journal/0001`.
///
/// Reads see written bytes at once. [`Disk::sync`] makes them durable. Until then a crash may keep
/// or lose any part of them, in any order, in aligned units of 512 bytes.
pub trait Disk: fmt::Debug + Send + Sync {
    /// The sorted names of the files and directories in `dir`, without `dir`. Empty if there is no
    /// `dir`.
    ///
    /// # Errors
    /// If the disk fails.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Creates an empty file and its parent directories. An existing file stays unchanged.
    ///
    /// # Errors
    /// If the disk fails or is full.
    fn create(&self, name: &str) -> io::Result<()>;

    /// The length of a file, in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file.
    fn len(&self, name: &str) -> io::Result<u64>;

    /// Reads `len` bytes from `offset`; fewer only at the file's end.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file; others if the disk fails.
    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Writes the chunks one after another from `offset`. The file grows as needed; a gap reads as
    /// zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no room; part of the bytes may be written.
    /// [`io::ErrorKind::NotFound`] if there is no such file; others if the disk fails.
    fn write_at(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()>;

    /// Like [`Disk::write_at`], for bytes that are synced next: the disk need not buffer a copy.
    ///
    /// # Errors
    /// Those of [`Disk::write_at`].
    fn write_through(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        self.write_at(name, offset, chunks)
    }

    /// The backlog: written bytes that the disk's own thread has not yet passed to the operating
    /// system. While it exceeds its limit, writers wait. This call is cheap.
    fn behind(&self) -> BytesBehind {
        BytesBehind { bytes: 0, most: u64::MAX }
    }

    /// Free bytes, except those reserved for accepted writes. `None`: unlimited or unknown.
    ///
    /// # Errors
    /// If the disk fails.
    fn free(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Total bytes, free or used by any process. `None`: unlimited or unknown.
    ///
    /// # Errors
    /// If the disk fails.
    fn size(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// The length of each file, without bytes still in the backlog, in bytes. `None`: unknown.
    /// Files may appear and vanish meanwhile. Slow with many files.
    ///
    /// # Errors
    /// If the disk fails.
    fn used(&self) -> io::Result<Option<BTreeMap<String, u64>>> {
        Ok(None)
    }

    /// Truncates a file, or extends it with zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file; others if the disk fails.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Makes the file's bytes, length and name durable.
    ///
    /// # Errors
    /// Any error is final for the writes since the last sync: they may be lost even if a later sync
    /// succeeds. [`io::ErrorKind::NotFound`] if there is no such file.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Checks that the names of the files in use still lead to them: another process may have moved
    /// or removed a file or directory. With many files, each call checks some.
    ///
    /// # Errors
    /// If a name leads, or once led, to another file or to none: the next start would not find the
    /// writes of this process.
    fn verify(&self) -> io::Result<()> {
        Ok(())
    }

    /// Removes a file, durably. A missing file is no error.
    ///
    /// # Errors
    /// If the disk fails.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Removes files, durably. A missing file is no error.
    ///
    /// # Errors
    /// If the disk fails.
    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        names.iter().try_for_each(|name| self.delete(name))
    }

    /// Removes a directory and its contents, durably. A missing directory is no error.
    ///
    /// # Errors
    /// If the disk fails.
    fn delete_dir(&self, dir: &str) -> io::Result<()>;

    /// Renames a directory, durably. The new name must be free.
    ///
    /// # Errors
    /// If the disk fails.
    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()>;
}

/// A disk's backlog of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesBehind {
    /// The backlog, in bytes.
    pub bytes: u64,
    /// Its limit, in bytes.
    pub most: u64,
}

impl BytesBehind {
    /// Whether the backlog is at least half of its limit.
    #[must_use]
    pub fn is_pressing(&self) -> bool {
        self.bytes >= self.most / 2
    }
}

/// Syncs the files that a checkpoint or an orderly close named, except those deleted meanwhile.
///
/// # Errors
/// The first failed sync; that store must not be used again.
pub fn sync_files(disk: &dyn Disk, names: &[String]) -> io::Result<()> {
    for name in names {
        match disk.sync(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn children<'a>(dir: &str, names: impl Iterator<Item = &'a String>) -> std::collections::BTreeSet<String> {
    names
        .filter_map(|name| name.strip_prefix(dir)?.strip_prefix('/'))
        .map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
        .collect()
}

/// The name of a file after its directory `from` is renamed to `to`. `None` if the file is not in
/// `from`.
fn renamed(name: &str, from: &str, to: &str) -> Option<String> {
    is_within(from, name).then(|| format!("{to}{}", &name[from.len()..]))
}

/// Whether `name` lies in the directory `dir` or below it.
#[must_use]
pub fn is_within(dir: &str, name: &str) -> bool {
    name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}
