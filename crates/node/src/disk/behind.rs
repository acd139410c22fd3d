//! The bytes that were written and not yet given to the operating system: how much there may be of
//! them, the room that is set aside for them, and the thread that writes them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::open_file::OpenFile;
use super::root::Root;

/// How much of a disk may be behind, in bytes. Who writes more waits for the disk.
pub(super) const MOST_BEHIND: u64 = 32 << 20;

/// How long short writes gather before they are given to the operating system.
const GATHER_FOR: Duration = Duration::from_millis(10);

/// With so much behind nothing is waited for, in bytes.
const GATHER_BYTES: u64 = 1 << 20;

/// How often it is tried to set room aside again when there was none.
const REFILL_EVERY: Duration = Duration::from_millis(100);

/// The reserve has so much more than what it is for, in parts of it: blocks are not filled to their
/// ends, and files have blocks that tell of their blocks.
const SLACK: u64 = 16;

/// The name of the reserve until it has none.
const RESERVE_FILE: &str = "reserve";

/// A smaller reserve is none, in bytes.
const LEAST_RESERVE: u64 = 1 << 20;

/// The writes that a disk has behind.
#[derive(Debug)]
pub(super) struct Behind {
    queue: Mutex<Queue>,
    /// There is something to be done.
    work: Condvar,
    /// There is less behind than there was.
    room: Condvar,
    reserve: Mutex<Reserve>,
}

#[derive(Debug)]
struct Queue {
    files: VecDeque<Arc<OpenFile>>,
    bytes: u64,
    /// How many bytes may be behind: room for them is set aside. Nothing if the file system sets
    /// none aside.
    capacity: Option<u64>,
    is_over: bool,
}

impl Behind {
    /// Sets room aside in the file system of `root`.
    pub(super) fn new(root: &Root) -> io::Result<Self> {
        let mut reserve = Reserve::new(root)?;
        reserve.refill();
        let capacity = reserve.capacity();
        Ok(Self {
            queue: Mutex::new(Queue { files: VecDeque::new(), bytes: 0, capacity, is_over: false }),
            work: Condvar::new(),
            room: Condvar::new(),
            reserve: Mutex::new(reserve),
        })
    }

    /// Lets go of the files that wait, each of which holds it: where nothing writes them, neither
    /// would ever go.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.queue().files.clear();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self) -> MutexGuard<'_, Reserve> {
        self.reserve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes are behind.
    pub(super) fn bytes(&self) -> u64 {
        self.queue().bytes
    }

    /// Takes so many bytes more behind; or says that they are to be written at once, if this file
    /// system sets no room aside or they are too many. Waits if there is too much behind already.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if no room can be set aside for them.
    pub(super) fn admit(&self, bytes: u64) -> io::Result<bool> {
        let mut queue = self.queue();
        loop {
            let Some(capacity) = queue.capacity.filter(|_| bytes <= MOST_BEHIND) else { return Ok(false) };
            if queue.bytes + bytes <= capacity {
                queue.bytes += bytes;
                return Ok(true);
            }
            if capacity < MOST_BEHIND {
                return Err(io::ErrorKind::StorageFull.into());
            }
            queue = self.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// So many bytes are not behind any more.
    pub(super) fn release(&self, bytes: u64) {
        self.queue().bytes -= bytes;
        self.room.notify_all();
    }

    /// Something of the file is to be done.
    pub(super) fn push(&self, file: Arc<OpenFile>) {
        self.queue().files.push_back(file);
        self.work.notify_one();
    }

    /// Writes to a file for which room was set aside.
    pub(super) fn in_reserve<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match write() {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    let mut reserve = self.reserve();
                    if !reserve.give() {
                        return Err(error);
                    }
                    self.tell_capacity(&reserve);
                }
                outcome => return outcome,
            }
        }
    }

    /// Lets as much be behind as there is room for.
    fn tell_capacity(&self, reserve: &Reserve) {
        self.queue().capacity = reserve.capacity();
        self.room.notify_all();
    }

    /// Does what is to be done until nothing will be any more.
    pub(super) fn run(&self) {
        while let Some(files) = self.next() {
            for file in files {
                // The file keeps the error for whoever uses it next.
                let _ = file.write_behind();
            }
            let mut reserve = self.reserve();
            if reserve.is_short() {
                reserve.refill();
                self.tell_capacity(&reserve);
            }
        }
    }

    /// Waits for work, and a little for more of it.
    fn next(&self) -> Option<VecDeque<Arc<OpenFile>>> {
        let nothing = |queue: &mut Queue| queue.files.is_empty() && !queue.is_over;
        let (queue, waited) = if self.reserve().is_short() {
            let waited = self.work.wait_timeout_while(self.queue(), REFILL_EVERY, nothing);
            waited.map(|(queue, _)| (queue, true)).unwrap_or_else(|poisoned| (poisoned.into_inner().0, true))
        } else {
            let waited = self.work.wait_while(self.queue(), nothing);
            (waited.unwrap_or_else(PoisonError::into_inner), false)
        };
        if queue.files.is_empty() {
            return (waited && !queue.is_over).then(VecDeque::new);
        }
        let few = |queue: &mut Queue| queue.bytes < GATHER_BYTES && !queue.is_over;
        let gathered = self.work.wait_timeout_while(queue, GATHER_FOR, few);
        let mut queue = gathered.unwrap_or_else(PoisonError::into_inner).0;
        Some(std::mem::take(&mut queue.files))
    }

    /// Nothing will be behind any more: everyone who could write is gone.
    pub(super) fn end(&self) {
        self.queue().is_over = true;
        self.work.notify_all();
    }
}

/// Room in a file system that is given to what was taken behind when there is no other: a file
/// without a name, so that it goes with its process.
#[derive(Debug)]
struct Reserve {
    file: File,
    /// How long the file is, in bytes: all of them have room.
    len: u64,
    is_supported: bool,
}

impl Reserve {
    fn new(root: &Root) -> io::Result<Self> {
        let file = root.create_file(RESERVE_FILE)?;
        file.set_len(0)?;
        root.remove_file(RESERVE_FILE)?;
        Ok(Self { file, len: 0, is_supported: true })
    }

    /// As much as all that may be behind needs.
    const WANTED: u64 = MOST_BEHIND + MOST_BEHIND / SLACK;

    fn is_short(&self) -> bool {
        self.is_supported && self.len < Self::WANTED
    }

    /// How many bytes may be behind.
    fn capacity(&self) -> Option<u64> {
        let least = if self.len < LEAST_RESERVE { 0 } else { self.len - self.len / (SLACK + 1) };
        self.is_supported.then_some(if self.is_short() { least.min(MOST_BEHIND - 1) } else { MOST_BEHIND })
    }

    /// Takes as much of the missing room as there is.
    fn refill(&mut self) {
        let mut more = Self::WANTED - self.len;
        while self.is_short() && more >= LEAST_RESERVE {
            match extend(&self.file, self.len, self.len + more) {
                Ok(()) => self.len += more,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    // Part of it may have been taken.
                    let _ = self.file.set_len(self.len);
                    more /= 2;
                }
                Err(_) => self.is_supported = false,
            }
            more = more.min(Self::WANTED - self.len);
        }
    }

    /// Gives some of the room back to the file system; not if there is none.
    fn give(&mut self) -> bool {
        if self.len == 0 {
            return false;
        }
        let len = self.len.saturating_sub(LEAST_RESERVE);
        // Synced: what was just given back is free only when the file system has it in its journal.
        let given = self.file.set_len(len).and_then(|()| self.file.sync_all());
        self.len = len;
        given.is_ok()
    }
}

/// Makes a file longer, up to `end`, by room.
#[cfg(target_os = "linux")]
fn extend(file: &File, from: u64, end: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), from, end - from)?)
}

#[cfg(not(target_os = "linux"))]
fn extend(_file: &File, _from: u64, _end: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Takes room for a file from `from` up to `end`. The file stays as long as it is.
#[cfg(target_os = "linux")]
pub(super) fn take_room(file: &File, from: u64, end: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, from, end - from)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn take_room(_file: &File, _from: u64, _end: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Tells the operating system to begin with the writing of what it was given, and not to wait until
/// there is much of it: what is synced meanwhile would wait for all of that.
#[cfg(target_os = "linux")]
pub(super) fn begin_writing(file: &File, from: u64, end: u64) {
    let len = std::num::NonZeroU64::new(end - from);
    // Pages that are being written stay where they are. That advice is not taken is no error.
    let _ = rustix::fs::fadvise(file, from, len, rustix::fs::Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn begin_writing(_file: &File, _from: u64, _end: u64) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> io::Error {
        io::ErrorKind::StorageFull.into()
    }

    #[test]
    fn what_was_admitted_finds_room_and_nothing_more_is_admitted_without() {
        let dir = tempfile::tempdir().unwrap();
        let behind = Behind::new(&Root::open(dir.path()).unwrap()).unwrap();
        assert!(behind.admit(MOST_BEHIND / 2).unwrap());
        // The disk becomes full: three times something has to be given back until what is behind
        // has room.
        let mut refusals = 3;
        let write = || {
            refusals -= 1;
            if refusals < 0 { Ok(()) } else { Err(full()) }
        };
        behind.in_reserve(write).unwrap();
        assert_eq!(behind.reserve().len, Reserve::WANTED - 3 * LEAST_RESERVE);
        assert!(behind.admit(MOST_BEHIND / 4).unwrap());
        assert_eq!(behind.admit(MOST_BEHIND / 4).unwrap_err().kind(), io::ErrorKind::StorageFull);
        // When nothing is left, nothing helps.
        assert!(behind.in_reserve(|| Err::<(), _>(full())).is_err());
        assert_eq!(behind.admit(1).unwrap_err().kind(), io::ErrorKind::StorageFull);
        // As soon as there is room again it is taken.
        behind.reserve().refill();
        assert_eq!(behind.reserve().capacity(), Some(MOST_BEHIND));
    }

    #[test]
    fn other_failures_are_told_and_the_reserve_stays() {
        let dir = tempfile::tempdir().unwrap();
        let behind = Behind::new(&Root::open(dir.path()).unwrap()).unwrap();
        let failed = behind.in_reserve(|| Err::<(), _>(io::Error::other("broken")));
        assert_eq!(failed.unwrap_err().to_string(), "broken");
        assert!(!behind.reserve().is_short());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "it has no name, and the lock has one");
    }
}
