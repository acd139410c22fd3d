//! The disk of a server: a directory of the operating system's file system, and a thread that
//! writes buffered data.

mod behind;
mod open_file;
mod root;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use rustix::fs::Access;
use rustix::io::Errno;
use seriatim_store::disk::is_within;
use seriatim_store::{BytesBehind, Disk};

use behind::{Behind, MOST_BEHIND};
use open_file::OpenFile;
use root::{Root, check_name, directory};

/// Most files kept open.
const MAX_OPEN_FILES: usize = 512;

/// One disk keeps at most one in `SHARE` of the process's file descriptors open: other disks and
/// connections need descriptors too.
const SHARE: u64 = 8;

/// Files kept open even under a lower descriptor limit.
const MIN_OPEN_FILES: usize = 8;

/// Open files that one [`Disk::verify`] checks. Four calls check all of `MAX_OPEN_FILES`.
const VERIFIED_FILES: usize = MAX_OPEN_FILES / 4;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// Another process uses it.
    #[error("the data directory {} is in use by another process; stop that one, or give another directory", .0.display())]
    InUse(PathBuf),
    /// A symbolic link to a missing directory.
    #[error(
        "the data directory {} is a link to {}, which does not exist; make that directory, mount its file system, or give \
         another directory",
        path.display(), target.display()
    )]
    NoTarget {
        /// The link.
        path: PathBuf,
        /// Link target.
        target: PathBuf,
    },
    /// The user may not write to the directory, or to its nearest existing parent.
    #[error(
        "user {user} may not write to {}; make that user the owner of the data directory, start the node as another user, \
         or give another directory",
        path.display()
    )]
    NotPermitted {
        /// The directory.
        path: PathBuf,
        /// Number of this process's user.
        user: u32,
    },
    /// The file system is mounted read-only.
    #[error("{} is on a read-only file system; mount that for writing, or give another directory", .0.display())]
    ReadOnly(PathBuf),
    /// The operating system refused.
    #[error("cannot use the data directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl DataDirectoryError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => {
                Self::NotPermitted { path, user: rustix::process::geteuid().as_raw() }
            }
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path),
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn check(path: &Path) -> Result<(), Self> {
        let is_absent = |path: &Path| matches!(path.try_exists(), Ok(false));
        if let (Ok(target), true) = (std::fs::read_link(path), is_absent(path)) {
            return Err(Self::NoTarget { path: path.to_owned(), target });
        }
        let existing = path.ancestors().find(|above| !is_absent(above));
        // A relative path may have no existing ancestor: use the working directory.
        let existing = existing.unwrap_or(Path::new("."));
        if existing.metadata().is_ok_and(|found| !found.is_dir()) {
            return Err(Self::io(path, io::ErrorKind::NotADirectory.into()));
        }
        let reads = if existing == path { Access::READ_OK } else { Access::empty() };
        match rustix::fs::access(existing, reads | Access::WRITE_OK | Access::EXEC_OK) {
            Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => Err(Self::io(existing, errno.into())),
            _ => Ok(()),
        }
    }
}

/// A data directory, locked by this process while this value lives.
///
/// Writes gather in memory, at most 32 MiB per disk. A thread passes them to the operating system,
/// usually within 10 ms, and starts their writeback. It also makes new files. A killed process
/// loses writes not yet passed on. Writers wait only while 32 MiB are buffered. An unnamed file
/// reserves room for buffered writes, so that a full disk rejects the write itself. If a buffered
/// write fails nevertheless, each later use of the file fails.
///
/// A directory that existed is never made a second time. If it disappears, or [`Disk::verify`] or
/// [`Disk::sync`] finds that a name leads elsewhere, each later use fails.
#[derive(Debug)]
pub struct RealDisk {
    root: Arc<Root>,
    handles: Mutex<Handles>,
    behind: Arc<Behind>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        for handle in self.handles().open.values() {
            // Ignore the error: no caller is left to receive it.
            let _ = handle.file.flush();
        }
        self.behind.end();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Most open files of a disk. `allowed` is the process's limit; `None`: no limit.
fn most_open(allowed: Option<u64>) -> usize {
    let share =
        allowed.map_or(MAX_OPEN_FILES, |allowed| usize::try_from(allowed / SHARE).unwrap_or(usize::MAX));
    share.clamp(MIN_OPEN_FILES, MAX_OPEN_FILES)
}

/// Open files.
///
/// Invariant: after an insertion at most `most` files are open, besides files in use.
#[derive(Debug)]
struct Handles {
    open: BTreeMap<String, Handle>,
    most: usize,
    uses: u64,
    /// Names being removed or renamed. No file at or below them is opened.
    going: Vec<String>,
    /// Counts completed removals and renames. A change during an open reveals a removal.
    gone: u64,
    /// Last file that [`Disk::verify`] checked.
    verified: String,
}

#[derive(Debug)]
struct Handle {
    file: Arc<OpenFile>,
    /// Number of the last use: the file with the lowest closes first.
    used: u64,
    name_is_durable: bool,
}

impl RealDisk {
    /// Locks a directory, and makes it if absent.
    ///
    /// # Errors
    /// If another process uses it, or the operating system refuses.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, DataDirectoryError> {
        let path = root.into();
        let root = Arc::new(Root::open(&path)?);
        let failed = |source| DataDirectoryError::io(&path, source);
        let behind = Arc::new(Behind::new(&root).map_err(failed)?);
        let writing = Arc::clone(&behind);
        let thread = thread::Builder::new().name("write behind".into());
        let thread = Some(thread.spawn(move || writing.run()).map_err(failed)?);
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let handles = Mutex::new(Handles::new(most_open(allowed)));
        Ok(Self { root, handles, behind, thread })
    }

    /// Length of each file in bytes, without buffered writes.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn lengths(&self) -> io::Result<BTreeMap<String, u64>> {
        self.root.lengths()
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str) -> io::Result<Arc<OpenFile>> {
        self.root.check()?;
        loop {
            let gone = {
                let mut handles = self.handles();
                if let Some(file) = handles.get(name) {
                    return Ok(file);
                }
                if handles.is_going(name) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                handles.gone
            };
            // Open the file without the lock: other threads must not wait for the disk. Of two
            // opens, the first counts.
            let opened = Arc::new(OpenFile::open(&self.root, name, Arc::clone(&self.behind))?);
            let mut handles = self.handles();
            if let Some(file) = handles.get(name) {
                return Ok(file);
            }
            // If the file was removed in the meantime, keep no handle.
            if handles.gone == gone && !handles.is_going(name) {
                handles.put(name, &opened);
                return Ok(opened);
            }
        }
    }

    /// Runs `change` while `names`, and all files below them, are closed.
    fn let_go<T>(
        &self,
        names: &[String],
        change: impl FnOnce(&[Arc<OpenFile>]) -> io::Result<T>,
    ) -> io::Result<T> {
        self.root.check()?;
        let closed = self.handles().close(names);
        let outcome = change(&closed);
        self.handles().closed(names);
        outcome
    }

    fn is_open(&self, name: &str, file: &Arc<OpenFile>) -> bool {
        self.handles().open.get(name).is_some_and(|handle| Arc::ptr_eq(&handle.file, file))
    }

    /// Open files in `dir` with buffered work.
    fn pending(&self, dir: &str) -> Vec<Arc<OpenFile>> {
        let handles = self.handles();
        let within =
            handles.open.iter().filter(|(name, handle)| is_within(dir, name) && !handle.file.is_idle());
        within.map(|(_, handle)| Arc::clone(&handle.file)).collect()
    }
}

impl Handles {
    fn new(most: usize) -> Self {
        let (going, verified) = (vec![], String::new());
        Self { open: BTreeMap::new(), most, uses: 0, going, gone: 0, verified }
    }

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

    /// Closes an eighth of the files, least recently used first: closing one at a time would scan
    /// all files at each opening. Files in use or with buffered writes stay: a second handle would
    /// miss those writes.
    fn make_room(&mut self) {
        let is_unused = |handle: &Handle| Arc::strong_count(&handle.file) == 1 && handle.file.is_idle();
        let mut unused: Vec<u64> =
            self.open.values().filter(|handle| is_unused(handle)).map(|handle| handle.used).collect();
        unused.sort_unstable();
        let in_use = self.open.len() - unused.len();
        let least = (self.most / 8).max(self.open.len() + 1 - self.most);
        if let Some(last) = unused.get(least - 1).or(unused.last()) {
            self.open.retain(|_, handle| handle.used > *last || !is_unused(handle));
        }
        let (open, most) = (self.open.len(), self.most);
        assert!(
            open < most || open <= in_use,
            "{open} files are open, {in_use} of them in use; the bound is {most}"
        );
    }

    fn name_is_durable(&self, name: &str) -> bool {
        self.open.get(name).is_some_and(|handle| handle.name_is_durable)
    }

    fn is_going(&self, name: &str) -> bool {
        self.going.iter().any(|going| going == name || is_within(going, name))
    }

    /// Closes `names` and everything below, which cannot be opened until `closed`.
    fn close(&mut self, names: &[String]) -> Vec<Arc<OpenFile>> {
        self.going.extend_from_slice(names);
        let mut closed = vec![];
        for name in names {
            closed.extend(self.open.remove(name));
            let below = format!("{name}/");
            let within = self.open.range(below.clone()..).take_while(|(open, _)| open.starts_with(&below));
            let within: Vec<String> = within.map(|(open, _)| open.clone()).collect();
            closed.extend(within.iter().filter_map(|open| self.open.remove(open)));
        }
        closed.into_iter().map(|handle| handle.file).collect()
    }

    fn closed(&mut self, names: &[String]) {
        self.gone += 1;
        for name in names {
            let at = self.going.iter().position(|going| going == name);
            self.going.swap_remove(at.expect("it was going"));
        }
    }

    fn next_to_verify(&mut self) -> Vec<(String, Arc<OpenFile>)> {
        let after = (Bound::Excluded(self.verified.clone()), Bound::Unbounded);
        let next = self.open.range(after).chain(&self.open).take(VERIFIED_FILES.min(self.open.len()));
        let next: Vec<_> = next.map(|(name, handle)| (name.clone(), Arc::clone(&handle.file))).collect();
        if let Some((last, _)) = next.last() {
            self.verified.clone_from(last);
        }
        next
    }
}

impl Disk for RealDisk {
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.pending(dir).iter().try_for_each(|file| file.flush())?;
        self.root.list(dir)
    }

    fn create(&self, name: &str) -> io::Result<()> {
        self.root.check()?;
        check_name(name)?;
        let mut handles = self.handles();
        // A concurrent sync may have kept the handle of a deleted file of this name: drop it.
        if let Some(before) = handles.open.remove(name).filter(|before| !before.file.is_idle()) {
            before.file.flush()?;
        }
        handles.put(name, &OpenFile::create(&self.root, name, Arc::clone(&self.behind)));
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
        Ok(Some(self.root.free()?.saturating_sub(self.behind.bytes())))
    }

    fn size(&self) -> io::Result<Option<u64>> {
        self.root.size().map(Some)
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
            self.root.sync_names(name)?;
            let mut handles = self.handles();
            let handle = handles.open.get_mut(name);
            if let Some(handle) = handle.filter(|handle| Arc::ptr_eq(&handle.file, &file)) {
                handle.name_is_durable = true;
            }
        }
        // Fail if a restart would not find the bytes under this name.
        match file.has_its_name() {
            true => Ok(()),
            false if self.is_open(name, &file) => Err(self.root.lose(name)),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn verify(&self) -> io::Result<()> {
        self.root.verify()?;
        let files = self.handles().next_to_verify();
        match files.iter().find(|(name, file)| !file.has_its_name() && self.is_open(name, file)) {
            Some((name, _)) => Err(self.root.lose(name)),
            None => Ok(()),
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.delete_all(&[name.to_owned()])
    }

    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        let directories = self.let_go(names, |closed| {
            closed.iter().for_each(|file| file.forget());
            let mut directories = BTreeSet::new();
            for name in names {
                if self.root.remove_file(name)? {
                    directories.insert(directory(name));
                }
            }
            Ok(directories)
        })?;
        directories.into_iter().try_for_each(|dir| self.root.sync_directory(dir))
    }

    fn delete_dir(&self, dir: &str) -> io::Result<()> {
        let was_there = self.let_go(&[dir.to_owned()], |closed| {
            closed.iter().for_each(|file| file.forget());
            self.root.remove_directory(dir)
        })?;
        if was_there { self.root.sync_directory(directory(dir)) } else { Ok(()) }
    }

    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()> {
        self.pending(from).iter().try_for_each(|file| file.flush())?;
        self.let_go(&[from.to_owned()], |closed| {
            closed.iter().try_for_each(|file| file.flush())?;
            self.root.rename(from, to)
        })?;
        self.root.sync_directory(directory(to))
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
        // Remove the file while its handle is open, as during another thread's sync.
        std::fs::remove_file(dir.path().join("file")).unwrap();
        disk.create("file").unwrap();
        disk.write_at("file", 0, &[Bytes::from_static(b"after")]).unwrap();
        disk.sync("file").unwrap();
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"after");
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

    fn write(disk: &RealDisk, name: &str) -> io::Result<()> {
        disk.create(name)?;
        disk.write_at(name, 0, &[Bytes::from_static(b"x")])?;
        disk.sync(name)
    }

    fn in_use() -> (tempfile::TempDir, PathBuf, RealDisk) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let disk = RealDisk::open(&root).unwrap();
        write(&disk, "a/b/open").unwrap();
        disk.verify().unwrap();
        (dir, root, disk)
    }

    fn is_lost<T: std::fmt::Debug>(outcome: io::Result<T>, names: &str) {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(names) && error.ends_with("put it back"), "{error}");
    }

    #[test]
    fn nothing_is_synced_or_made_anew_where_the_directory_was() {
        for is_replaced in [false, true] {
            let (dir, root, disk) = in_use();
            std::fs::rename(&root, dir.path().join("elsewhere")).unwrap();
            if is_replaced {
                std::fs::create_dir(&root).unwrap();
            }
            is_lost(disk.sync("a/b/open"), "root was moved");
            is_lost(disk.verify(), "root was moved");
            is_lost(disk.create("a/b/other"), "root was moved");
            is_lost(disk.write_at("a/b/open", 1, &[Bytes::from_static(b"y")]), "root was moved");
            is_lost(disk.delete("a/b/open"), "root was moved");
            drop(disk);
            let left = std::fs::read_dir(&root).map(|entries| entries.count()).ok();
            assert_eq!(left, is_replaced.then_some(0));
            assert!(dir.path().join("elsewhere/a/b/open").exists());
        }
    }

    #[test]
    fn the_loss_of_any_file_that_is_open_is_noticed_without_a_write() {
        let losses = [
            ("", "root was moved"),
            ("lock", "root/lock was moved"),
            ("a", "root/a was moved"),
            ("a/b", "root/a/b was moved"),
            ("a/b/open", "root/a/b/open was moved"),
        ];
        for (lost, says) in losses {
            let (dir, root, disk) = in_use();
            std::fs::rename(root.join(lost), dir.path().join("elsewhere")).unwrap();
            is_lost(disk.verify(), says);
            is_lost(disk.create("c"), says);
        }
    }

    #[test]
    fn of_many_open_files_each_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path()).unwrap();
        (0..MAX_OPEN_FILES).for_each(|number| write(&disk, &format!("{number:04}")).unwrap());
        std::fs::remove_file(dir.path().join("0300")).unwrap();
        let calls = (0..4).take_while(|_| disk.verify().is_ok()).count();
        assert!(calls < 4);
        is_lost(disk.verify(), "0300 was moved or removed");
    }

    #[test]
    fn a_directory_is_made_once() {
        let (_dir, root, disk) = in_use();
        write(&disk, "a/c/open").unwrap();
        std::fs::remove_dir_all(root.join("a/b")).unwrap();
        let outcome = disk.create("a/b/other").and_then(|()| disk.sync("a/b/other"));
        is_lost(outcome, "root/a/b was moved or removed");
        assert!(!root.join("a/b").exists());
    }

    #[test]
    fn what_the_disk_removes_or_renames_itself_is_not_lost() {
        let (_dir, root, disk) = in_use();
        disk.delete_dir("a/b").unwrap();
        write(&disk, "a/b/open").unwrap();
        disk.rename_dir("a/b", "a/c").unwrap();
        write(&disk, "a/b/open").unwrap();
        disk.delete("a/b/open").unwrap();
        assert_eq!(disk.sync("a/b/open").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(disk.lengths().unwrap().into_keys().collect::<Vec<_>>(), ["a/c/open", "lock"]);
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                for number in 0..300 {
                    let name = format!("d/{}/file", number % 3);
                    write(&disk, &name).unwrap();
                    match number % 2 {
                        0 => disk.delete(&name).unwrap(),
                        _ => disk.delete_dir(directory(&name)).unwrap(),
                    }
                }
            });
            while !changes.is_finished() {
                disk.verify().unwrap();
                for name in ["d/0/file", "d/1/file", "d/2/file"] {
                    let synced = disk.sync(name);
                    assert!(synced.is_ok() || disk.verify().is_ok(), "{synced:?}");
                }
            }
        });
        disk.verify().unwrap();
        assert!(root.join("a/c/open").exists());
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let refused = RealDisk::open(&link).unwrap_err();
        assert!(matches!(refused, DataDirectoryError::NoTarget { .. }), "{refused}");
        std::fs::create_dir(dir.path().join("nowhere")).unwrap();
        RealDisk::open(&link).unwrap();
        let denied = DataDirectoryError::io(&link, io::ErrorKind::PermissionDenied.into());
        assert!(matches!(denied, DataDirectoryError::NotPermitted { .. }), "{denied}");
        let read_only = DataDirectoryError::io(&link, io::ErrorKind::ReadOnlyFilesystem.into());
        assert!(matches!(read_only, DataDirectoryError::ReadOnly(_)), "{read_only}");
    }
}
