//! The disk as the store needs it, and three disks: one in memory that fails on request, and two
//! around another disk, of which one forgets what was not synced when its process dies, and one has
//! a bound. The disk of a server is the server's.

mod bounded;
mod faulty;
mod volatile;

use std::collections::BTreeMap;
use std::{fmt, io};

use bytes::Bytes;

pub use bounded::BoundedDisk;
pub use faulty::{DiskCounters, MemoryDisk};
pub use volatile::VolatileDisk;

/// A tree of files. Names are relative, their parts separated by `/`: `journal/0001`.
///
/// Written bytes are visible to reads at once, and durable when [`Disk::sync`] of the file
/// returned. Until then a crash may keep or lose any part of them, in any order, in units of 512
/// aligned bytes.
pub trait Disk: fmt::Debug + Send + Sync {
    /// The names of the files and directories in `dir`, without `dir`, in order; none if there is
    /// no such directory.
    ///
    /// # Errors
    /// If the disk fails.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Makes sure that there is a file, and the directories above it. A new file is empty; one that
    /// exists stays as it is.
    ///
    /// # Errors
    /// If the disk fails or is full.
    fn create(&self, name: &str) -> io::Result<()>;

    /// The length of a file, in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file.
    fn len(&self, name: &str) -> io::Result<u64>;

    /// Up to `len` bytes from `offset` on: fewer only where the file ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file; others if the disk fails.
    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Writes the chunks one after another, the first at `offset`. A file grows as needed; a gap
    /// reads as zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no room: part of the bytes may have been written.
    /// [`io::ErrorKind::NotFound`] if there is no such file; others if the disk fails.
    fn write_at(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()>;

    /// The same for what is going to be synced at once, and does not have to be copied before.
    ///
    /// # Errors
    /// The errors of [`Disk::write_at`].
    fn write_through(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        self.write_at(name, offset, chunks)
    }

    /// How many bytes were written that the disk's own thread has yet to give to the operating
    /// system, and how many there may be: above that whoever writes waits. Asking costs next to
    /// nothing.
    fn behind(&self) -> BytesBehind {
        BytesBehind { bytes: 0, most: u64::MAX }
    }

    /// How many bytes more would find room, as far as is known: nothing if there is no bound, or
    /// nobody can tell. What the disk set aside for what it took already does not count.
    ///
    /// # Errors
    /// If the disk fails.
    fn free(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// How many bytes there are in all, the free ones and those in use by this process or others;
    /// nothing if there is no bound, or it is not known.
    ///
    /// # Errors
    /// If the disk fails.
    fn size(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// How long each file is, in bytes, as far as it was written out; nothing where that cannot be
    /// told. Files may come and go meanwhile. It takes a while where there are many.
    ///
    /// # Errors
    /// If the disk fails.
    fn used(&self) -> io::Result<Option<BTreeMap<String, u64>>> {
        Ok(None)
    }

    /// Cuts a file off, or extends it with zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file; others if the disk fails.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;

    /// Makes the file's bytes, its length, and its name durable.
    ///
    /// # Errors
    /// Any error is final for what was written since the last sync: it may be lost, whatever a
    /// later sync says. [`io::ErrorKind::NotFound`] if there is no such file.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Looks whether the files that are in use still have the names under which the next start
    /// looks for them. A file, or a directory above it, may have been moved or removed behind the
    /// disk's back. Of many files one call looks at a part, and the next calls at the others.
    ///
    /// # Errors
    /// If a name leads to another file, or to none, or did when it was looked at before: nothing
    /// that is written after that is found again.
    fn verify(&self) -> io::Result<()> {
        Ok(())
    }

    /// Removes a file, durably. One that is not there is no error.
    ///
    /// # Errors
    /// If the disk fails.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Removes files, durably. Those that are not there are no error.
    ///
    /// # Errors
    /// If the disk fails.
    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        names.iter().try_for_each(|name| self.delete(name))
    }

    /// Removes a directory with all that is in it, durably. One that is not there is no error.
    ///
    /// # Errors
    /// If the disk fails.
    fn delete_dir(&self, dir: &str) -> io::Result<()>;

    /// Gives a directory with all that is in it another name, durably. There must be nothing of
    /// that name.
    ///
    /// # Errors
    /// If the disk fails.
    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()>;
}

/// How far a disk is behind those who write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesBehind {
    /// The number of bytes that are behind.
    pub bytes: u64,
    /// How much may be.
    pub most: u64,
}

impl BytesBehind {
    /// Whether the disk does not keep up: half of what may be behind is.
    #[must_use]
    pub fn is_pressing(&self) -> bool {
        self.bytes >= self.most / 2
    }
}

/// Syncs the files that a checkpoint or an orderly close named. One that was deleted meanwhile
/// needs no sync.
///
/// # Errors
/// The first sync that failed; it is final for the store that named the file.
pub fn sync_files(disk: &dyn Disk, names: &[String]) -> io::Result<()> {
    for name in names {
        match disk.sync(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// The names directly below `dir` among `names`, each once.
fn children<'a>(dir: &str, names: impl Iterator<Item = &'a String>) -> std::collections::BTreeSet<String> {
    names
        .filter_map(|name| name.strip_prefix(dir)?.strip_prefix('/'))
        .map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
        .collect()
}

/// The name of what is called `name`, once `from`, which holds it, is called `to`.
fn renamed(name: &str, from: &str, to: &str) -> Option<String> {
    is_within(from, name).then(|| format!("{to}{}", &name[from.len()..]))
}

/// Whether the file or directory `name` lies in the directory `dir` or below it.
#[must_use]
pub fn is_within(dir: &str, name: &str) -> bool {
    name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}
