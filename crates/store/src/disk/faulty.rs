//! A disk in memory for simulations, with injected faults.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::io::Errno;

use super::{Disk, children, is_within, renamed};

/// Length of a sector, in bytes. A crash keeps or loses whole sectors.
const SECTOR_BYTES: u64 = 512;

/// A deterministic disk in memory. Clones share one disk; [`MemoryDisk::fork`] copies it.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

/// Counts of operations since the disk was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Calls of [`Disk::read_at`].
    pub reads: u64,
    /// Calls of [`Disk::write_at`].
    pub writes: u64,
    /// Calls of [`Disk::sync`].
    pub syncs: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

#[derive(Clone, Debug, Default)]
struct State {
    files: BTreeMap<String, MemoryFile>,
    counters: DiskCounters,
    capacity: Option<u64>,
    failing_syncs: u64,
    failing_writes: u64,
    lies: bool,
    unreadable: BTreeMap<String, io::ErrorKind>,
}

#[derive(Clone, Debug, Default)]
struct MemoryFile {
    content: Vec<u8>,
    /// Bytes that survive any crash.
    synced: Vec<u8>,
    unsynced: Vec<Change>,
    name_is_durable: bool,
    /// Unreadable sectors.
    bad: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Bytes),
    Truncate(u64),
}

impl MemoryDisk {
    /// An empty disk without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An independent copy, faults included.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.lock().clone())) }
    }

    /// Simulates a power loss: `seed` decides which sectors of unsynced writes survive, and which
    /// files without a durable name. Cancels requested failures of writes and syncs.
    pub fn crash(&self, seed: u64) {
        let mut state = self.lock();
        let mut random = SplitMix(seed);
        let quarters_kept = random.below(5);
        state.failing_syncs = 0;
        state.failing_writes = 0;
        state.files.retain(|_, file| {
            if !file.name_is_durable && random.below(4) >= quarters_kept {
                return false;
            }
            file.crash(|| random.below(4) < quarters_kept);
            true
        });
    }

    /// The next `count` syncs fail. The writes that they should make durable are lost in the next
    /// crash.
    pub fn fail_syncs(&self, count: u64) {
        self.lock().failing_syncs = count;
    }

    /// The next `count` writes fail, with an error other than [`io::ErrorKind::StorageFull`].
    pub fn fail_writes(&self, count: u64) {
        self.lock().failing_writes = count;
    }

    /// With `lies`, syncs succeed without effect.
    pub fn lie(&self, lies: bool) {
        self.lock().lies = lies;
    }

    /// Makes all writes durable.
    pub fn keep_all(&self) {
        self.lock().files.values_mut().for_each(MemoryFile::sync);
    }

    /// Drops all unsynced changes in a directory.
    pub fn lose_unsynced(&self, dir: &str) {
        let mut state = self.lock();
        state.files.retain(|name, file| !is_within(dir, name) || file.name_is_durable);
        state
            .files
            .iter_mut()
            .filter(|(name, _)| is_within(dir, name))
            .for_each(|(_, file)| file.crash(|| false));
    }

    /// Limits the sum of all file lengths, in bytes. A larger write is done in part, then fails
    /// with [`io::ErrorKind::StorageFull`].
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    fn capacity(&self) -> Option<u64> {
        self.lock().capacity
    }

    /// Makes reads of a file fail with the given error, or succeed again with `None`.
    pub fn set_unreadable(&self, name: &str, how: Option<io::ErrorKind>) {
        let mut state = self.lock();
        match how {
            Some(kind) => state.unreadable.insert(name.to_owned(), kind),
            None => state.unreadable.remove(name),
        };
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, durably. No effect beyond the file's end.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        if let Some(file) = self.lock().files.get_mut(name) {
            for bytes in [&mut file.content, &mut file.synced] {
                if let Some(byte) = bytes.get_mut(offset as usize) {
                    *byte ^= 1 << bit;
                }
            }
        }
    }

    /// Makes reads of the sector at `offset` fail with `EIO` until it is written again. No effect
    /// beyond the file's end.
    pub fn spoil_sector(&self, name: &str, offset: u64) {
        if let Some(file) = self.lock().files.get_mut(name)
            && offset < file.content.len() as u64
        {
            file.bad.insert(offset / SECTOR_BYTES);
        }
    }

    /// Replaces bad sectors with zeros, as an operator does. Returns their number.
    pub fn replace_bad_sectors(&self) -> usize {
        let mut state = self.lock();
        let mut replaced = 0;
        for file in state.files.values_mut() {
            for sector in std::mem::take(&mut file.bad) {
                for bytes in [&mut file.content, &mut file.synced] {
                    let start = bytes.len().min((sector * SECTOR_BYTES) as usize);
                    let end = bytes.len().min(start + SECTOR_BYTES as usize);
                    bytes[start..end].fill(0);
                }
                replaced += 1;
            }
        }
        replaced
    }

    /// The sum of all file lengths, in bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// The counts of operations.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        self.lock().counters
    }

    /// The names of all files, sorted.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.lock().files.keys().cloned().collect()
    }

    /// A file's bytes as reads see them. `None` if there is no such file.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().files.get(name).map(|file| file.content.clone())
    }

    /// Adds a durable file, or replaces the file of that name.
    pub fn put(&self, name: &str, content: Vec<u8>) {
        let file = MemoryFile {
            synced: content.clone(),
            content,
            unsynced: vec![],
            name_is_durable: true,
            bad: BTreeSet::new(),
        };
        self.lock().files.insert(name.to_owned(), file);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn used(&self) -> u64 {
        self.files.values().map(|file| file.content.len() as u64).sum()
    }

    fn file(&mut self, name: &str) -> io::Result<&mut MemoryFile> {
        self.files.get_mut(name).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }

    fn longest(&mut self, name: &str) -> io::Result<u64> {
        let free = self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()));
        Ok((self.file(name)?.content.len() as u64).saturating_add(free))
    }
}

impl MemoryFile {
    fn change(&mut self, change: Change) {
        if let Change::Write(offset, data) = &change {
            self.bad.retain(|sector| !sectors_of(*offset, data.len() as u64).contains(sector));
        }
        change.apply(&mut self.content);
        self.unsynced.push(change);
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply(&mut self.synced);
        }
        self.name_is_durable = true;
    }

    fn crash(&mut self, mut is_kept: impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.unsynced) {
            for part in change.sectors() {
                if is_kept() {
                    part.apply(&mut self.synced);
                }
            }
        }
        self.content.clone_from(&self.synced);
        self.name_is_durable = true;
    }
}

fn sectors_of(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / SECTOR_BYTES..offset.saturating_add(len).div_ceil(SECTOR_BYTES)
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Truncate(len) => bytes.resize(*len as usize, 0),
            Self::Write(offset, data) => {
                let (start, end) = (*offset as usize, *offset as usize + data.len());
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(data);
            }
        }
    }

    /// Splits a write at sector boundaries: a crash keeps or loses each part separately.
    fn sectors(self) -> Vec<Self> {
        let Self::Write(mut offset, mut data) = self else { return vec![self] };
        let mut parts = Vec::new();
        while !data.is_empty() {
            let len = (SECTOR_BYTES - offset % SECTOR_BYTES).min(data.len() as u64);
            parts.push(Self::Write(offset, data.split_to(len as usize)));
            offset += len;
        }
        parts
    }
}

impl Disk for MemoryDisk {
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        Ok(children(dir, self.lock().files.keys()).into_iter().collect())
    }

    fn create(&self, name: &str) -> io::Result<()> {
        self.lock().files.entry(name.to_owned()).or_default();
        Ok(())
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        Ok(self.lock().file(name)?.content.len() as u64)
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut state = self.lock();
        state.counters.reads += 1;
        if let Some(kind) = state.unreadable.get(name) {
            return Err(io::Error::new(*kind, "the disk cannot read this file"));
        }
        let file = state.file(name)?;
        if file.bad.range(sectors_of(offset, len as u64)).next().is_some() {
            return Err(Errno::IO.into());
        }
        let content = &file.content;
        let start = content.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let bytes = Bytes::copy_from_slice(&content[start..content.len().min(start.saturating_add(len))]);
        state.counters.bytes_read += bytes.len() as u64;
        Ok(bytes)
    }

    fn write_at(&self, name: &str, mut offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        let mut state = self.lock();
        state.counters.writes += 1;
        if state.failing_writes > 0 {
            state.failing_writes -= 1;
            return Err(io::Error::other("the disk failed to write"));
        }
        let longest = state.longest(name)?;
        for chunk in chunks {
            let fits = longest.saturating_sub(offset).min(chunk.len() as u64);
            state.file(name)?.change(Change::Write(offset, chunk.slice(..fits as usize)));
            state.counters.bytes_written += fits;
            if fits < chunk.len() as u64 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            offset += fits;
        }
        Ok(())
    }

    fn free(&self) -> io::Result<Option<u64>> {
        Ok(self.capacity().map(|capacity| capacity.saturating_sub(self.used())))
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.lock().file(name)?.change(Change::Truncate(len));
        Ok(())
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.counters.syncs += 1;
        if state.failing_syncs > 0 {
            state.failing_syncs -= 1;
            state.file(name)?.unsynced.clear();
            return Err(io::Error::other("the disk failed to sync"));
        }
        let lies = state.lies;
        let file = state.file(name)?;
        if !lies {
            file.sync();
        }
        Ok(())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.lock().files.remove(name);
        Ok(())
    }

    fn delete_dir(&self, dir: &str) -> io::Result<()> {
        self.lock().files.retain(|name, _| !is_within(dir, name));
        Ok(())
    }

    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let files = std::mem::take(&mut state.files);
        let name_of = |name: String| renamed(&name, from, to).unwrap_or(name);
        state.files = files.into_iter().map(|(name, file)| (name_of(name), file)).collect();
        Ok(())
    }
}

/// Random numbers by Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (OOPSLA
/// '14).
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn written(disk: &MemoryDisk, name: &str, offset: u64, byte: u8, len: usize) {
        disk.create(name).unwrap();
        disk.write_at(name, offset, &[Bytes::from(vec![byte; len])]).unwrap();
    }

    #[test]
    fn a_crash_takes_only_what_was_not_synced() {
        let disk = MemoryDisk::new();
        written(&disk, "d/f", 0, 1, 2048);
        disk.sync("d/f").unwrap();
        written(&disk, "d/f", 1024, 2, 2048);
        written(&disk, "d/new", 0, 3, 10);
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let after = disk.fork();
            after.crash(seed);
            let content = after.content("d/f").unwrap();
            assert!(content[..1024].iter().all(|byte| *byte == 1));
            let sectors: Vec<u8> = content.iter().step_by(512).copied().collect();
            outcomes.insert((sectors, after.content("d/new").is_some()));
            let again = disk.fork();
            again.crash(seed);
            assert_eq!(again.content("d/f"), Some(content));
        }
        assert!(outcomes.len() > 15, "crashes differ: {}", outcomes.len());
    }

    #[test]
    fn a_disk_that_lies_loses_what_it_said_to_be_synced() {
        let disk = MemoryDisk::new();
        written(&disk, "d/f", 0, 1, 10);
        disk.sync("d/f").unwrap();
        disk.lie(true);
        written(&disk, "d/f", 0, 2, 10);
        written(&disk, "d/new", 0, 3, 10);
        disk.sync("d/f").unwrap();
        let (kept, lost) = (disk.fork(), disk);
        kept.keep_all();
        kept.crash(1);
        assert_eq!((kept.content("d/f"), kept.content("d/new")), (Some(vec![2; 10]), Some(vec![3; 10])));
        lost.lose_unsynced("d");
        assert_eq!((lost.content("d/f"), lost.content("d/new")), (Some(vec![1; 10]), None));
    }

    #[test]
    fn a_full_disk_writes_what_fits() {
        let disk = MemoryDisk::new();
        written(&disk, "a", 0, 1, 90);
        disk.set_capacity(Some(100));
        disk.create("b").unwrap();
        let error =
            disk.write_at("b", 0, &[Bytes::from_static(&[2; 8]), Bytes::from_static(&[3; 8])]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.content("b").unwrap(), [2, 2, 2, 2, 2, 2, 2, 2, 3, 3]);
        disk.write_at("a", 80, &[Bytes::from_static(&[4; 10])]).unwrap();
    }

    #[test]
    fn a_failed_sync_loses_for_good() {
        let disk = MemoryDisk::new();
        written(&disk, "a", 0, 1, 4);
        disk.sync("a").unwrap();
        written(&disk, "a", 0, 2, 4);
        disk.fail_syncs(1);
        disk.sync("a").unwrap_err();
        disk.sync("a").unwrap();
        assert_eq!(disk.content("a").unwrap(), [2; 4]);
        disk.crash(0);
        assert_eq!(disk.content("a").unwrap(), [1; 4]);
    }

    #[test]
    fn directories_list_and_go() {
        let disk = MemoryDisk::new();
        for name in ["a/b/c", "a/b/d", "a/e", "ab/f"] {
            disk.create(name).unwrap();
        }
        assert_eq!(disk.list("a").unwrap(), ["b", "e"]);
        assert_eq!(disk.list("none").unwrap(), Vec::<String>::new());
        disk.delete_dir("a").unwrap();
        assert_eq!(disk.files(), ["ab/f"]);
    }
}
