//! The disk of a server: a directory of the operating system's file system, and a thread that writes behind.

mod behind;
mod open_file;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use seriatim_store::disk::is_within;
use seriatim_store::{BytesBehind, Disk};

use behind::{Behind, MOST_BEHIND};
use open_file::OpenFile;

/// How many files are kept open at most, unless more are in use.
const MAX_OPEN_FILES: usize = 512;

/// Which part of the files that the process may have open one disk keeps, if that is less: there may be several disks, and
/// connections need some, too.
const SHARE: u64 = 8;

/// How many files are kept open however few the process may have.
const MIN_OPEN_FILES: usize = 8;

/// The file whose lock says that a process uses the directory.
const LOCK_FILE: &str = "lock";

/// Why a data directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// Another process uses it. Stop that one, or choose another directory.
    #[error("the data directory {} is in use by another process; stop that one, or give another directory", .0.display())]
    InUse(PathBuf),
    /// The operating system refused.
    #[error("cannot use the data directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A data directory that belongs to this process alone while this value lives.
///
/// Writes are taken behind: they gather in memory, up to 32 MiB of a disk, and a thread of the disk's own gives them to
/// the operating system, usually within 10 ms, and has it go on with them at once. So is a file that is made. Until then
/// a killed process loses them, as a power failure loses what was not synced. Nobody who writes waits for the disk unless
/// all of that is behind. Room for it is set aside before, in a file without a name, so that a disk without room refuses
/// the write itself; a write that fails all the same, behind the back of whoever made it, fails every later use of the
/// file.
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
    handles: Mutex<Handles>,
    behind: Arc<Behind>,
    thread: Option<JoinHandle<()>>,
    _lock: File,
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        for handle in self.handles().open.values() {
            // Nobody is left to be told. What had to be durable was synced.
            let _ = handle.file.flush();
        }
        self.behind.end();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// How many files one disk keeps open in a process that may have so many; nothing if there is no bound.
fn most_open(allowed: Option<u64>) -> usize {
    let share =
        allowed.map_or(MAX_OPEN_FILES, |allowed| usize::try_from(allowed / SHARE).unwrap_or(usize::MAX));
    share.clamp(MIN_OPEN_FILES, MAX_OPEN_FILES)
}

/// The files that are open.
///
/// Invariant: where one is put in, no more than `most` are open with it, but for those that are in use.
#[derive(Debug)]
struct Handles {
    open: BTreeMap<String, Handle>,
    most: usize,
    uses: u64,
}

#[derive(Debug)]
struct Handle {
    file: Arc<OpenFile>,
    /// Counts up with every use, so that the one used longest ago is closed first.
    used: u64,
    /// Whether the file's name is known to be durable.
    name_is_durable: bool,
}

/// The outcome of looking at something, unless it is not there any more.
fn unless_gone<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

impl RealDisk {
    /// Takes a directory, and makes it if there is none.
    ///
    /// # Errors
    /// If another process uses it, or the operating system refuses.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, DataDirectoryError> {
        let root = root.into();
        let failed = |source| DataDirectoryError::Io { path: root.clone(), source };
        fs::create_dir_all(&root).map_err(failed)?;
        let path = root.join(LOCK_FILE);
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataDirectoryError::InUse(root)),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let behind = Arc::new(Behind::new(&root).map_err(failed)?);
        let writing = Arc::clone(&behind);
        let thread = thread::Builder::new().name("write behind".into());
        let thread = Some(thread.spawn(move || writing.run()).map_err(failed)?);
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let handles = Mutex::new(Handles { open: BTreeMap::new(), most: most_open(allowed), uses: 0 });
        Ok(Self { root, handles, behind, thread, _lock: lock })
    }

    /// How long each file is, in bytes, as far as it was written out.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn lengths(&self) -> io::Result<BTreeMap<String, u64>> {
        let (mut lengths, mut left) = (BTreeMap::new(), vec![self.root.clone()]);
        while let Some(directory) = left.pop() {
            // A directory that is removed meanwhile takes nothing.
            let Some(entries) = unless_gone(fs::read_dir(directory))? else { continue };
            for entry in entries {
                let entry = entry?;
                let path = entry.path();
                let Some(found) = unless_gone(entry.metadata())? else { continue };
                if found.is_dir() {
                    left.push(path);
                } else if let Some(name) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) {
                    lengths.insert(name.to_owned(), found.len());
                }
            }
        }
        Ok(lengths)
    }

    fn path(&self, name: &str) -> io::Result<PathBuf> {
        let relative = Path::new(name);
        if relative.components().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(self.root.join(relative));
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("'{name}' does not name a file below the root"),
        ))
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str) -> io::Result<Arc<OpenFile>> {
        if let Some(file) = self.handles().get(name) {
            return Ok(file);
        }
        // Not under the lock: others do not wait for the disk. If two come here, the first one's counts.
        let opened = Arc::new(OpenFile::open(self.path(name)?, Arc::clone(&self.behind))?);
        let mut handles = self.handles();
        if let Some(file) = handles.get(name) {
            return Ok(file);
        }
        handles.put(name, &opened);
        Ok(opened)
    }

    /// The files in a directory that the operating system may not know of yet.
    fn pending(&self, dir: &str) -> Vec<Arc<OpenFile>> {
        let handles = self.handles();
        let within =
            handles.open.iter().filter(|(name, handle)| is_within(dir, name) && !handle.file.is_idle());
        within.map(|(_, handle)| Arc::clone(&handle.file)).collect()
    }

    /// Makes the names of `path` and of the directories above it durable, up to the root.
    fn sync_directories_above(&self, path: &Path) -> io::Result<()> {
        for directory in path.ancestors().skip(1) {
            File::open(directory)?.sync_all()?;
            if directory == self.root {
                break;
            }
        }
        Ok(())
    }
}

impl Handles {
    fn get(&mut self, name: &str) -> Option<Arc<OpenFile>> {
        self.uses += 1;
        let handle = self.open.get_mut(name)?;
        handle.used = self.uses;
        Some(Arc::clone(&handle.file))
    }

    fn put(&mut self, name: &str, file: &Arc<OpenFile>) {
        if self.open.len() >= self.most {
            self.make_room();
        }
        let handle = Handle { file: Arc::clone(file), used: self.uses, name_is_durable: false };
        self.open.insert(name.to_owned(), handle);
    }

    /// Closes an eighth of the files, those used least recently: one at a time, each opening would look at all of them. One
    /// that somebody uses, or of which something is behind, stays: what opens it anew has to find all of it.
    fn make_room(&mut self) {
        let is_unused = |handle: &Handle| Arc::strong_count(&handle.file) == 1 && handle.file.is_idle();
        let mut unused: Vec<u64> =
            self.open.values().filter(|handle| is_unused(handle)).map(|handle| handle.used).collect();
        unused.sort_unstable();
        let in_use = self.open.len() - unused.len();
        // There may be more than usual, if so many were in use.
        let least = (self.most / 8).max(self.open.len() + 1 - self.most);
        if let Some(last) = unused.get(least - 1).or(unused.last()) {
            self.open.retain(|_, handle| handle.used > *last || !is_unused(handle));
        }
        let (open, most) = (self.open.len(), self.most);
        assert!(
            open < most || open <= in_use,
            "{open} files are open, of which {in_use} were in use, and not {most}"
        );
    }

    fn name_is_durable(&self, name: &str) -> bool {
        self.open.get(name).is_some_and(|handle| handle.name_is_durable)
    }
}

impl Disk for RealDisk {
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.pending(dir).iter().try_for_each(|file| file.flush())?;
        let entries = match fs::read_dir(self.path(dir)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<()> {
        let path = self.path(name)?;
        let mut handles = self.handles();
        // A sync on another thread may have kept a file that was deleted under this name: it is not taken for this one.
        if let Some(before) = handles.open.remove(name).filter(|before| !before.file.is_idle()) {
            before.file.flush()?;
        }
        handles.put(name, &OpenFile::create(path, Arc::clone(&self.behind)));
        Ok(())
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.file(name)?.len()
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes> {
        self.file(name)?.read_at(offset, len)
    }

    fn write_at(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        self.file(name)?.write_at(offset, chunks)
    }

    fn write_through(&self, name: &str, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        self.file(name)?.write_through(offset, chunks)
    }

    fn behind(&self) -> BytesBehind {
        BytesBehind { bytes: self.behind.bytes(), most: MOST_BEHIND }
    }

    fn free(&self) -> io::Result<Option<u64>> {
        let system = rustix::fs::statvfs(&self.root)?;
        Ok(Some(system.f_bavail.saturating_mul(system.f_frsize).saturating_sub(self.behind.bytes())))
    }

    fn used(&self) -> io::Result<Option<BTreeMap<String, u64>>> {
        self.lengths().map(Some)
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.file(name)?.truncate(len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let file = self.file(name)?;
        file.sync()?;
        if !self.handles().name_is_durable(name) {
            self.sync_directories_above(&self.path(name)?)?;
            let mut handles = self.handles();
            let handle = handles.open.get_mut(name);
            if let Some(handle) = handle.filter(|handle| Arc::ptr_eq(&handle.file, &file)) {
                handle.name_is_durable = true;
            }
        }
        Ok(())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.delete_all(&[name.to_owned()])
    }

    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        let mut directories = BTreeSet::new();
        for name in names {
            let path = self.path(name)?;
            let handle = self.handles().open.remove(name);
            handle.iter().for_each(|handle| handle.file.forget());
            match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            }
            directories.insert(path.parent().unwrap_or(&self.root).to_owned());
        }
        directories.iter().try_for_each(|directory| File::open(directory)?.sync_all())
    }

    fn delete_dir(&self, dir: &str) -> io::Result<()> {
        let path = self.path(dir)?;
        let mut handles = self.handles();
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut handles.open).into_iter().partition(|(name, _)| is_within(dir, name));
        handles.open = kept.into_iter().collect();
        drop(handles);
        gone.iter().for_each(|(_, handle)| handle.file.forget());
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        File::open(path.parent().unwrap_or(&self.root))?.sync_all()
    }

    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()> {
        let mut handles = self.handles();
        for (_, handle) in handles.open.iter().filter(|(name, _)| is_within(from, name)) {
            handle.file.flush()?;
        }
        handles.open.retain(|name, _| !is_within(from, name));
        drop(handles);
        let path = self.path(to)?;
        fs::rename(self.path(from)?, &path)?;
        File::open(path.parent().unwrap_or(&self.root))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let first = RealDisk::open(dir.path()).unwrap();
        assert!(matches!(RealDisk::open(dir.path()), Err(DataDirectoryError::InUse(_))));
        drop(first);
        RealDisk::open(dir.path()).unwrap();
    }

    #[test]
    fn a_file_that_is_made_anew_is_not_the_one_that_was_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path()).unwrap();
        disk.create("file").unwrap();
        disk.write_at("file", 0, &[Bytes::from_static(b"before")]).unwrap();
        disk.sync("file").unwrap();
        // As a thread finds it that deletes while another syncs: the handle is still there.
        fs::remove_file(dir.path().join("file")).unwrap();
        disk.create("file").unwrap();
        disk.write_at("file", 0, &[Bytes::from_static(b"after")]).unwrap();
        disk.sync("file").unwrap();
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"after");
    }

    #[test]
    fn many_chunks_are_written_in_order_and_more_files_than_handles_work() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path()).unwrap();
        let chunks: Vec<Bytes> =
            (0..5000u32).map(|n| Bytes::copy_from_slice(&n.to_le_bytes()[..n as usize % 5])).collect();
        disk.create("a/many").unwrap();
        disk.write_at("a/many", 3, &chunks).unwrap();
        assert_eq!(disk.read_at("a/many", 3, usize::MAX).unwrap(), chunks.concat());
        for n in 0..MAX_OPEN_FILES + 10 {
            let name = format!("b/{n}");
            disk.create(&name).unwrap();
            disk.write_at(&name, 0, &[Bytes::from(name.clone())]).unwrap();
        }
        assert_eq!(disk.read_at("b/0", 0, 9).unwrap(), "b/0");
        assert_eq!(disk.list("b").unwrap().len(), MAX_OPEN_FILES + 10);
    }

    #[test]
    fn a_process_that_may_open_few_files_keeps_few_open() {
        // The usual limit, with a cluster of three nodes in one process: most of it is left for connections.
        assert_eq!(most_open(Some(1024)), 128);
        assert_eq!([Some(16), Some(1 << 20), None].map(most_open), [MIN_OPEN_FILES, 512, 512]);
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path()).unwrap();
        disk.handles().most = 3;
        let is_unused = |name: &str| {
            let handles = disk.handles();
            handles.open.get(name).is_none_or(|one| one.file.is_idle() && Arc::strong_count(&one.file) == 1)
        };
        for name in (0..9).map(|n| n.to_string()) {
            disk.create(&name).unwrap();
            // A file of which something is behind stays open.
            while !is_unused(&name) {
                thread::yield_now();
            }
        }
        assert_eq!(disk.handles().open.len(), 3);
        assert_eq!(disk.list("").unwrap().len(), 10);
        let in_use: Vec<_> = (0..6).map(|name| disk.file(&name.to_string()).unwrap()).collect();
        assert_eq!(disk.handles().open.len(), 6, "those in use stay");
        drop(in_use);
        disk.file("8").unwrap();
        assert_eq!(disk.handles().open.len(), 3, "until they are not");
    }

    #[test]
    fn names_stay_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path()).unwrap();
        for name in ["../x", "/etc/x", "a/../../x"] {
            assert_eq!(disk.create(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}
