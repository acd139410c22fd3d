//! A directory of the operating system's file system.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is the one place that performs real file operations"
)]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Disk, is_within};

/// How many files are kept open.
const MAX_OPEN_FILES: usize = 512;

/// How many buffers one system call takes at most (Linux: 1024).
const MAX_SLICES: usize = 1024;

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
        /// What the operating system said.
        source: io::Error,
    },
}

/// A data directory that belongs to this process alone while this value lives.
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
    handles: Mutex<Handles>,
    _lock: File,
}

/// The files that are open.
#[derive(Debug, Default)]
struct Handles {
    open: BTreeMap<String, Handle>,
    uses: u64,
}

#[derive(Debug)]
struct Handle {
    file: Arc<File>,
    /// Counts up with every use, so that the one used longest ago is closed first.
    used: u64,
    /// Whether the file's name is known to be durable.
    name_is_durable: bool,
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
            Ok(()) => Ok(Self { root, handles: Mutex::default(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(DataDirectoryError::InUse(root)),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
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

    fn file(&self, name: &str) -> io::Result<Arc<File>> {
        if let Some(file) = self.handles().get(name) {
            return Ok(file);
        }
        let file = Arc::new(OpenOptions::new().read(true).write(true).open(self.path(name)?)?);
        self.handles().put(name, &file);
        Ok(file)
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
    fn get(&mut self, name: &str) -> Option<Arc<File>> {
        self.uses += 1;
        let handle = self.open.get_mut(name)?;
        handle.used = self.uses;
        Some(Arc::clone(&handle.file))
    }

    fn put(&mut self, name: &str, file: &Arc<File>) {
        if self.open.len() >= MAX_OPEN_FILES {
            let oldest = self.open.iter().min_by_key(|(_, handle)| handle.used).map(|(name, _)| name.clone());
            self.open.remove(&oldest.expect("the cache is not empty"));
        }
        let handle = Handle { file: Arc::clone(file), used: self.uses, name_is_durable: false };
        self.open.entry(name.to_owned()).or_insert(handle);
    }

    fn name_is_durable(&self, name: &str) -> bool {
        self.open.get(name).is_some_and(|handle| handle.name_is_durable)
    }
}

impl Disk for RealDisk {
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
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
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // A sync on another thread may have kept a file that was deleted under this name.
        let mut handles = self.handles();
        handles.open.remove(name);
        handles.put(name, &Arc::new(file));
        Ok(())
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        Ok(self.file(name)?.metadata()?.len())
    }

    fn read_at(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes> {
        let file = self.file(name)?;
        let available = file.metadata()?.len().saturating_sub(offset);
        let mut buffer = vec![0; len.min(usize::try_from(available).unwrap_or(usize::MAX))];
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        Ok(buffer.into())
    }

    fn write_at(&self, name: &str, mut offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        let file = self.file(name)?;
        let all: Vec<IoSlice<'_>> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
        for group in all.chunks(MAX_SLICES) {
            let mut group = group.to_vec();
            let mut left = group.as_mut_slice();
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match rustix::io::pwritev(&*file, left, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        offset += count as u64;
                        IoSlice::advance_slices(&mut left, count);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.file(name)?.set_len(len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        let file = self.file(name)?;
        file.sync_data()?;
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
        self.handles().open.remove(name);
        let path = self.path(name)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        File::open(path.parent().unwrap_or(&self.root))?.sync_all()
    }

    fn delete_dir(&self, dir: &str) -> io::Result<()> {
        self.handles().open.retain(|name, _| !is_within(dir, name));
        let path = self.path(dir)?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
        File::open(path.parent().unwrap_or(&self.root))?.sync_all()
    }

    fn rename_dir(&self, from: &str, to: &str) -> io::Result<()> {
        self.handles().open.retain(|name, _| !is_within(from, name));
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
        assert!(disk.handles().open.len() <= MAX_OPEN_FILES);
        assert_eq!(disk.list("b").unwrap().len(), MAX_OPEN_FILES + 10);
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
