//! A disk of limited size.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{BytesBehind, Disk, is_within, renamed};

/// A disk that rejects file growth beyond its limit with [`io::ErrorKind::StorageFull`].
/// Overwriting needs no room.
#[derive(Debug)]
pub struct BoundedDisk<D> {
    below: D,
    most: u64,
    files: Mutex<Files>,
}

/// Invariant: `used` is the sum of all lengths.
#[derive(Debug, Default)]
struct Files {
    lengths: BTreeMap<String, u64>,
    used: u64,
}

impl Files {
    fn set(&mut self, name: &str, len: u64) {
        let before = self.lengths.insert(name.to_owned(), len).unwrap_or(0);
        assert!(self.used >= before, "the used space is the sum of all lengths");
        self.used = self.used - before + len;
    }

    fn remove(&mut self, name: &str) {
        self.set(name, 0);
        self.lengths.remove(name);
    }

    fn within(&self, dir: &str) -> Vec<String> {
        self.lengths.keys().filter(|name| is_within(dir, name)).cloned().collect()
    }
}

impl<D: Disk> BoundedDisk<D> {
    /// Limits the disk `below` to `most` bytes. `lengths` names its files with their lengths, in
    /// bytes.
    #[must_use]
    pub fn new(below: D, most: u64, lengths: BTreeMap<String, u64>) -> Self {
        let files = Mutex::new(Files { used: lengths.values().sum(), lengths });
        Self { below, most, files }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grow(&self, name: &str, end: u64, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let before = {
            let mut files = self.files();
            let before = files.lengths.get(name).copied().unwrap_or(0);
            let more = end.saturating_sub(before);
            if more > 0 && files.used + more > self.most {
                return Err(io::ErrorKind::StorageFull.into());
            }
            files.set(name, before.max(end));
            before
        };
        let written = write();
        if written.is_err() {
            // A failed write may have written some bytes, so take the file's true length.
            let len = self.below.len(name).unwrap_or(before);
            self.files().set(name, len);
        }
        written
    }
}

fn end_of(offset: u64, chunks: &[Bytes]) -> u64 {
    offset + chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>()
}

impl<D: Disk> Disk for BoundedDisk<D> {
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.below.list(dir)
    }

    fn create(&self, name: &str) -> io::Result<()> {
        self.below.create(name)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.below.len(name)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes> {
        self.below.read_at(name, offset, len)
    }

    fn write_at(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        self.grow(name, end_of(offset, chunks), || self.below.write_at(name, offset, chunks))
    }

    fn write_through(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        self.grow(name, end_of(offset, chunks), || self.below.write_through(name, offset, chunks))
    }

    fn behind(&self) -> BytesBehind {
        self.below.behind()
    }

    fn free(&self) -> io::Result<Option<u64>> {
        let left = self.most.saturating_sub(self.files().used);
        Ok(Some(self.below.free()?.map_or(left, |free| free.min(left))))
    }

    fn size(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.below.size()?.map_or(self.most, |size| size.min(self.most))))
    }

    fn used(&self) -> io::Result<Option<BTreeMap<String, u64>>> {
        self.below.used()
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.below.truncate(name, len)?;
        self.files().set(name, len);
        Ok(())
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.below.sync(name)
    }

    fn verify(&self) -> io::Result<()> {
        self.below.verify()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.below.delete(name)?;
        self.files().remove(name);
        Ok(())
    }

    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        self.below.delete_all(names)?;
        let mut files = self.files();
        names.iter().for_each(|name| files.remove(name));
        Ok(())
    }

    fn delete_dir(&self, dir: &str) -> io::Result<()> {
        self.below.delete_dir(dir)?;
        let mut files = self.files();
        files.within(dir).iter().for_each(|name| files.remove(name));
        Ok(())
    }

    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename_dir(from, to)?;
        let mut files = self.files();
        for name in files.within(from) {
            let len = files.lengths.get(&name).copied().unwrap_or(0);
            files.remove(&name);
            files.set(&renamed(&name, from, to).unwrap_or(name), len);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    fn zeros(len: usize) -> Vec<Bytes> {
        vec![vec![0; len].into()]
    }

    #[test]
    fn what_is_beyond_the_bound_is_refused_until_something_goes() {
        let below = MemoryDisk::new();
        below.create("old").unwrap();
        below.write_at("old", 0, &zeros(400)).unwrap();
        let disk = BoundedDisk::new(below, 1000, BTreeMap::from([("old".to_owned(), 400)]));
        disk.create("a/new").unwrap();
        disk.write_at("a/new", 0, &zeros(500)).unwrap();
        assert_eq!(disk.free().unwrap(), Some(100));
        let refused = disk.write_at("a/new", 450, &zeros(151)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        disk.write_through("a/new", 100, &zeros(400)).unwrap();
        disk.write_at("a/new", 450, &zeros(150)).unwrap();
        assert_eq!(disk.free().unwrap(), Some(0));
        disk.rename_dir("a", "b").unwrap();
        disk.truncate("b/new", 100).unwrap();
        assert_eq!(disk.free().unwrap(), Some(500));
        disk.delete("old").unwrap();
        disk.delete_dir("b").unwrap();
        assert_eq!(disk.free().unwrap(), Some(1000));
    }
}
