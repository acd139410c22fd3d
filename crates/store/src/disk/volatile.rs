//! A disk that keeps unsynced writes in its process, so that `kill -9` loses them. The operating
//! system's page cache survives `kill -9` and would hide a missing sync.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{BytesBehind, Disk, children, is_within, renamed};

const PAGE_BYTES: u64 = 4096;

/// A test aid. Keeps unsynced writes in memory, and passes them to the disk `below` at a sync.
#[derive(Debug)]
pub struct VolatileDisk<D> {
    below: D,
    unsynced: Mutex<BTreeMap<String, Overlay>>,
}

#[derive(Debug)]
struct Overlay {
    len: u64,
    /// Length of the file below that is still valid, in bytes: a truncation lowers it at once.
    below_len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl<D: Disk> VolatileDisk<D> {
    /// Wraps a disk.
    #[must_use]
    pub fn new(below: D) -> Self {
        Self { below, unsynced: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Overlay>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlay<'a>(
        &self,
        unsynced: &'a mut BTreeMap<String, Overlay>,
        name: &str,
    ) -> io::Result<&'a mut Overlay> {
        if !unsynced.contains_key(name) {
            let len = self.below.len(name)?;
            unsynced.insert(name.to_owned(), Overlay { len, below_len: len, pages: BTreeMap::new() });
        }
        Ok(unsynced.get_mut(name).expect("it was just inserted"))
    }
}

impl Overlay {
    fn page(&self, below: &dyn Disk, name: &str, number: u64) -> io::Result<Vec<u8>> {
        if let Some(page) = self.pages.get(&number) {
            return Ok(page.clone());
        }
        let start = number * PAGE_BYTES;
        let len = self.below_len.saturating_sub(start).min(PAGE_BYTES);
        let mut page = if len == 0 { vec![] } else { below.read_at(name, start, len as usize)?.to_vec() };
        page.resize(PAGE_BYTES as usize, 0);
        Ok(page)
    }

    fn write(&mut self, below: &dyn Disk, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (number, within) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let count = (PAGE_BYTES as usize - within).min(bytes.len() - done);
            let mut page = self.page(below, name, number)?;
            page[within..within + count].copy_from_slice(&bytes[done..done + count]);
            self.pages.insert(number, page);
            done += count;
        }
        self.len = self.len.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn truncate(&mut self, len: u64) {
        self.len = len;
        self.below_len = self.below_len.min(len);
        self.pages.retain(|number, _| number * PAGE_BYTES < len);
        if let Some(page) = self.pages.get_mut(&(len / PAGE_BYTES)) {
            page[(len % PAGE_BYTES) as usize..].fill(0);
        }
    }

    fn write_down(&self, below: &dyn Disk, name: &str) -> io::Result<()> {
        below.create(name)?;
        if below.len(name)? > self.below_len {
            below.truncate(name, self.below_len)?;
        }
        for (number, page) in &self.pages {
            let start = number * PAGE_BYTES;
            let len = (self.len - start).min(PAGE_BYTES) as usize;
            below.write_at(name, start, &[Bytes::copy_from_slice(&page[..len])])?;
        }
        if below.len(name)? < self.len {
            below.truncate(name, self.len)?;
        }
        Ok(())
    }
}

impl<D: Disk> Disk for VolatileDisk<D> {
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = children(dir, self.lock().keys());
        names.extend(self.below.list(dir)?);
        Ok(names.into_iter().collect())
    }

    fn create(&self, name: &str) -> io::Result<()> {
        let mut unsynced = self.lock();
        match self.overlay(&mut unsynced, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                unsynced.insert(name.to_owned(), Overlay { len: 0, below_len: 0, pages: BTreeMap::new() });
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        match self.lock().get(name) {
            Some(overlay) => Ok(overlay.len),
            None => self.below.len(name),
        }
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes> {
        let unsynced = self.lock();
        let Some(overlay) = unsynced.get(name) else { return self.below.read_at(name, offset, len) };
        let end = overlay.len.min(offset.saturating_add(len as u64));
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let page = overlay.page(&self.below, name, at / PAGE_BYTES)?;
            let within = at % PAGE_BYTES;
            let count = (PAGE_BYTES - within).min(end - at);
            bytes.extend_from_slice(&page[within as usize..(within + count) as usize]);
            at += count;
        }
        Ok(bytes.into())
    }

    fn write_at(&self, name: &str, mut offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        let mut unsynced = self.lock();
        let overlay = self.overlay(&mut unsynced, name)?;
        for chunk in chunks {
            overlay.write(&self.below, name, offset, chunk)?;
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    fn behind(&self) -> BytesBehind {
        self.below.behind()
    }

    fn free(&self) -> io::Result<Option<u64>> {
        self.below.free()
    }

    fn size(&self) -> io::Result<Option<u64>> {
        self.below.size()
    }

    fn used(&self) -> io::Result<Option<BTreeMap<String, u64>>> {
        self.below.used()
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.overlay(&mut self.lock(), name)?.truncate(len);
        Ok(())
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let mut unsynced = self.lock();
        if let Some(overlay) = unsynced.remove(name) {
            overlay.write_down(&self.below, name)?;
        }
        self.below.sync(name)
    }

    fn verify(&self) -> io::Result<()> {
        self.below.verify()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.lock().remove(name);
        self.below.delete(name)
    }

    fn delete_dir(&self, dir: &str) -> io::Result<()> {
        self.lock().retain(|name, _| !is_within(dir, name));
        self.below.delete_dir(dir)
    }

    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()> {
        let mut unsynced = self.lock();
        self.below.rename_dir(from, to)?;
        let moved: Vec<String> = unsynced.keys().filter(|name| is_within(from, name)).cloned().collect();
        for name in moved {
            let overlay = unsynced.remove(&name).expect("just listed");
            unsynced.extend(renamed(&name, from, to).map(|name| (name, overlay)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::disk::MemoryDisk;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Truncate(u64),
        Sync,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..20_000, prop::collection::vec(1u8.., 1..9000))
                .prop_map(|(at, bytes)| Step::Write(at, bytes)),
            (0u64..20_000).prop_map(Step::Truncate),
            Just(Step::Sync),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn reads_see_everything_and_the_disk_below_only_what_was_synced(steps in prop::collection::vec(step(), 1..20)) {
            let (below, plain) = (MemoryDisk::new(), MemoryDisk::new());
            let volatile = VolatileDisk::new(below.clone());
            let mut synced = None;
            for disk in [&volatile as &dyn Disk, &plain] {
                disk.create("f").unwrap();
            }
            for step in steps {
                for disk in [&volatile as &dyn Disk, &plain] {
                    match &step {
                        Step::Write(at, bytes) => disk.write_at("f", *at, &[bytes.clone().into()]).unwrap(),
                        Step::Truncate(len) => disk.truncate("f", *len).unwrap(),
                        Step::Sync => disk.sync("f").unwrap(),
                    }
                }
                if matches!(step, Step::Sync) {
                    synced = plain.content("f");
                }
                prop_assert_eq!(volatile.len("f").unwrap(), plain.len("f").unwrap());
                let seen = volatile.read_at("f", 0, 100_000).unwrap();
                prop_assert_eq!(Some(seen.to_vec()), plain.content("f"));
                prop_assert_eq!(below.content("f"), synced.clone());
            }
        }
    }
}
