//! The data directory of a disk. File operations use its descriptor, so that all files stay
//! together when the directory moves. A check compares the open files with the files that a restart
//! would find under the same names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use seriatim_store::disk::is_within;

use super::DataDirectoryError;

const LOCK_FILE: &str = "lock";

#[derive(Debug)]
pub(super) struct Root {
    /// Path that a restart would use: absolute, unless the process has no working directory.
    path: PathBuf,
    directory: OwnedFd,
    lock: File,
    known: Mutex<Known>,
    /// Why a restart would not find the files. Never changes once set.
    loss: OnceLock<String>,
}

/// Directories that this process found or made. It makes none of them a second time.
#[derive(Debug, Default)]
struct Known {
    names: BTreeSet<String>,
    /// Counts how often this process forgot directories. A change during a search reveals a
    /// removal.
    forgotten: u64,
}

impl Root {
    /// Locks a directory, and makes it if absent.
    pub(super) fn open(given: &Path) -> Result<Self, DataDirectoryError> {
        DataDirectoryError::check(given)?;
        let failed = |source| DataDirectoryError::io(given, source);
        let path = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
        fs::create_dir_all(&path).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let lock = open_at(&directory, LOCK_FILE, OFlags::CREATE).map_err(|errno| failed(errno.into()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(DataDirectoryError::InUse(given.to_owned())),
            Err(fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
        let (known, loss) = (Mutex::default(), OnceLock::new());
        Ok(Self { path, directory, lock, known, loss })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn knows(&self, dir: &str) -> bool {
        self.known().names.contains(dir)
    }

    /// Runs `find` and notes `dirs` as known, unless directories were removed in the meantime:
    /// `dirs` may be among them.
    fn know<T>(&self, dirs: &[&str], find: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let forgotten = self.known().forgotten;
        let found = find()?;
        let mut known = self.known();
        if known.forgotten == forgotten {
            known.names.extend(dirs.iter().map(|dir| (*dir).to_owned()));
        }
        Ok(found)
    }

    /// Fails once the files have lost their names.
    pub(super) fn check(&self) -> io::Result<()> {
        self.loss.get().map_or(Ok(()), |loss| Err(io::Error::other(loss.clone())))
    }

    /// Fails if the name of the directory or of its lock file leads elsewhere, now or at any time
    /// before.
    pub(super) fn verify(&self) -> io::Result<()> {
        self.check()?;
        match self.has_its_name() && self.names(LOCK_FILE, &self.lock) {
            true => Ok(()),
            false => Err(self.lose(LOCK_FILE)),
        }
    }

    fn has_its_name(&self) -> bool {
        is_named(&self.path, &self.directory)
    }

    /// Whether a restart would find this open file under `name`.
    pub(super) fn names(&self, name: &str, file: &File) -> bool {
        is_named(&self.path.join(name), file)
    }

    /// Records the loss of a name and returns it as an error. The first loss stays.
    pub(super) fn lose(&self, name: &str) -> io::Error {
        let loss = self.loss.get_or_init(|| {
            let root = self.path.display();
            if !self.has_its_name() {
                return format!(
                    "the data directory {root} was moved, removed or unmounted while the node used it: put it back"
                );
            }
            let is_there = |dir: &&str| !self.is_missing(dir);
            let lost = ancestors(name).into_iter().rev().find(|dir| !is_there(dir)).unwrap_or(name);
            format!("{root}/{lost} was moved or removed while the node used it: put it back")
        });
        io::Error::other(loss.clone())
    }

    fn is_missing(&self, name: &str) -> bool {
        is_absent(rustix::fs::statat(&self.directory, name, AtFlags::empty()))
    }

    /// Error of an operation on `name`: the loss of a known directory above it, or `errno`.
    fn failed(&self, name: &str, errno: Errno) -> io::Error {
        let is_lost = |dir: &&str| self.knows(dir) && self.is_missing(dir);
        match (errno == Errno::NOENT).then(|| ancestors(name).into_iter().find(is_lost)).flatten() {
            // The directory is not lost if this process has just removed it.
            Some(dir) if self.knows(dir) => self.lose(dir),
            _ => errno.into(),
        }
    }

    pub(super) fn open_file(&self, name: &str) -> io::Result<File> {
        check_name(name)?;
        self.know(&ancestors(name), || self.open_at(name, OFlags::empty()))
    }

    /// Makes the file if absent, and unknown directories above it.
    pub(super) fn create_file(&self, name: &str) -> io::Result<File> {
        self.check()?;
        check_name(name)?;
        for dir in ancestors(name).into_iter().rev().filter(|dir| !self.knows(dir)) {
            self.know(&[dir], || {
                match rustix::fs::mkdirat(&self.directory, dir, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => Ok(()),
                    Err(errno) => Err(self.failed(dir, errno)),
                }
            })?;
        }
        self.open_at(name, OFlags::CREATE)
    }

    fn open_at(&self, name: &str, flags: OFlags) -> io::Result<File> {
        open_at(&self.directory, name, flags).map_err(|errno| self.failed(name, errno))
    }

    /// Sorted names in the directory; empty if it never existed.
    pub(super) fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = self.entries(dir)?.unwrap_or_default();
        names.sort_unstable();
        Ok(names)
    }

    /// Names in the directory; `None` if it never existed.
    fn entries(&self, dir: &str) -> io::Result<Option<Vec<String>>> {
        let directory = match self.open_directory(dir) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut entries = vec![];
        for entry in Dir::new(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                entries.push(name);
            }
        }
        Ok(Some(entries))
    }

    fn open_directory(&self, dir: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = if dir.is_empty() { "." } else { check_name(dir)? };
        let within = format!("{dir}/.");
        self.know(&ancestors(&within), || {
            let opened = rustix::fs::openat(&self.directory, name, flags, Mode::empty());
            opened.map_err(|errno| self.failed(&within, errno))
        })
    }

    pub(super) fn lengths(&self) -> io::Result<BTreeMap<String, u64>> {
        let (mut lengths, mut left) = (BTreeMap::new(), vec![String::new()]);
        while let Some(dir) = left.pop() {
            // A directory that was removed in the meantime counts as empty.
            for entry in self.entries(&dir)?.unwrap_or_default() {
                let name = if dir.is_empty() { entry } else { format!("{dir}/{entry}") };
                match rustix::fs::statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
                        left.push(name)
                    }
                    Ok(found) => _ = lengths.insert(name, u64::try_from(found.st_size).unwrap_or_default()),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(lengths)
    }

    /// Returns whether the file existed.
    pub(super) fn remove_file(&self, name: &str) -> io::Result<bool> {
        match rustix::fs::unlinkat(&self.directory, check_name(name)?, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the directory with its contents. Returns whether it existed.
    pub(super) fn remove_directory(&self, dir: &str) -> io::Result<bool> {
        self.forgetting(check_name(dir)?, || {
            let Some(entries) = self.entries(dir)? else { return Ok(false) };
            for name in entries.into_iter().map(|entry| format!("{dir}/{entry}")) {
                match rustix::fs::statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
                        self.remove_directory(&name)?
                    }
                    Ok(_) | Err(Errno::NOENT) => self.remove_file(&name)?,
                    Err(errno) => return Err(errno.into()),
                };
            }
            // `entries` has noted the directory as known.
            self.forget(dir);
            rustix::fs::unlinkat(&self.directory, dir, AtFlags::REMOVEDIR)?;
            Ok(true)
        })
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.forgetting(check_name(from)?, || {
            Ok(rustix::fs::renameat(&self.directory, from, &self.directory, check_name(to)?)?)
        })
    }

    /// Forgets `dir` before `change` removes or renames it, and again afterwards: a concurrent
    /// search may have noted it.
    fn forgetting<T>(&self, dir: &str, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.forget(dir);
        let changed = change();
        self.forget(dir);
        changed
    }

    fn forget(&self, dir: &str) {
        let mut known = self.known();
        known.forgotten += 1;
        known.names.retain(|name| name != dir && !is_within(dir, name));
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync_directory(&self, dir: &str) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.open_directory(dir)?)?)
    }

    /// Syncs the directories above the file, the root included.
    pub(super) fn sync_names(&self, name: &str) -> io::Result<()> {
        ancestors(name).into_iter().chain([""]).try_for_each(|dir| self.sync_directory(dir))
    }

    pub(super) fn free(&self) -> io::Result<u64> {
        let system = rustix::fs::fstatvfs(&self.directory)?;
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }

    /// Bytes of the file system that processes like this one can use or have used.
    pub(super) fn size(&self) -> io::Result<u64> {
        let system = rustix::fs::fstatvfs(&self.directory)?;
        let used = system.f_blocks.saturating_sub(system.f_bfree);
        Ok(used.saturating_add(system.f_bavail).saturating_mul(system.f_frsize))
    }
}

fn open_at(directory: &OwnedFd, name: &str, flags: OFlags) -> rustix::io::Result<File> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o666))?.into())
}

/// Whether `path` leads to `file`, or cannot be examined.
fn is_named(path: &Path, file: impl std::os::fd::AsFd) -> bool {
    let (named, open) = (rustix::fs::stat(path), rustix::fs::fstat(file));
    match (named, open) {
        (Ok(named), Ok(open)) => (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino),
        (named, _) => !is_absent(named),
    }
}

fn is_absent<T>(found: rustix::io::Result<T>) -> bool {
    matches!(found, Err(Errno::NOENT | Errno::NOTDIR))
}

/// Directory of a file; "" is the root.
pub(super) fn directory(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// Directories above the file, nearest first, without the root.
fn ancestors(name: &str) -> Vec<&str> {
    let above = |name| Some(directory(name)).filter(|dir| !dir.is_empty());
    std::iter::successors(above(name), |dir| above(dir)).collect()
}

/// Fails unless the name leads to a file below the root.
pub(super) fn check_name(name: &str) -> io::Result<&str> {
    let mut parts = Path::new(name).components();
    if !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_))) {
        return Ok(name);
    }
    let cause = format!("'{name}' does not name a file below the root");
    Err(io::Error::new(io::ErrorKind::InvalidInput, cause))
}
