//! Buffered writes: their limit, the room reserved for them, and the thread that passes them to the
//! operating system.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::open_file::OpenFile;
use super::root::Root;

/// Most buffered bytes per disk. Further writers wait.
pub(super) const MOST_BEHIND: u64 = 32 << 20;

/// Time that short writes wait for further writes.
const GATHER_FOR: Duration = Duration::from_millis(10);

/// Buffered bytes that end the gathering early.
const GATHER_BYTES: u64 = 1 << 20;

/// Pause between attempts to complete the reserve.
const REFILL_EVERY: Duration = Duration::from_millis(100);

/// The reserve exceeds the buffered bytes by one part in `SLACK`, for partly filled blocks and
/// metadata of the file system.
const SLACK: u64 = 16;

const RESERVE_FILE: &str = "reserve";

/// A reserve with fewer bytes counts as none.
const LEAST_RESERVE: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Behind {
    queue: Mutex<Queue>,
    work: Condvar,
    room: Condvar,
    reserve: Mutex<Reserve>,
}

#[derive(Debug)]
struct Queue {
    files: VecDeque<Arc<OpenFile>>,
    bytes: u64,
    /// Limit of `bytes`, by the reserve. `None` if the file system cannot reserve room.
    capacity: Option<u64>,
    is_over: bool,
}

impl Behind {
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

    /// Drops the queued files. Each of them holds this value: without the thread, neither would be
    /// freed.
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

    pub(super) fn bytes(&self) -> u64 {
        self.queue().bytes
    }

    /// Counts `bytes` as buffered. Returns false if the caller must write them at once: the file
    /// system cannot reserve room, or `bytes` exceeds the limit. Waits while too many bytes are
    /// buffered.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if the reserve is short and does not cover `bytes`.
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

    pub(super) fn release(&self, bytes: u64) {
        self.queue().bytes -= bytes;
        self.room.notify_all();
    }

    pub(super) fn push(&self, file: Arc<OpenFile>) {
        self.queue().files.push_back(file);
        self.work.notify_one();
    }

    /// Runs `write`. While the disk is full, gives reserved room back and retries.
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

    fn tell_capacity(&self, reserve: &Reserve) {
        self.queue().capacity = reserve.capacity();
        self.room.notify_all();
    }

    pub(super) fn run(&self) {
        while let Some(files) = self.next() {
            for file in files {
                // The file keeps the error for its next user.
                let _ = file.write_behind();
            }
            let mut reserve = self.reserve();
            if reserve.is_short() {
                reserve.refill();
                self.tell_capacity(&reserve);
            }
        }
    }

    /// Waits for queued files, then at most [`GATHER_FOR`] for more. An empty list asks the thread
    /// to refill the reserve, `None` to end.
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

    pub(super) fn end(&self) {
        self.queue().is_over = true;
        self.work.notify_all();
    }
}

/// Room for admitted writes on a full disk: an unnamed file, so that the end of the process frees
/// it.
#[derive(Debug)]
struct Reserve {
    file: File,
    /// Allocated bytes of the file.
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

    const WANTED: u64 = MOST_BEHIND + MOST_BEHIND / SLACK;

    fn is_short(&self) -> bool {
        self.is_supported && self.len < Self::WANTED
    }

    fn capacity(&self) -> Option<u64> {
        let least = if self.len < LEAST_RESERVE { 0 } else { self.len - self.len / (SLACK + 1) };
        self.is_supported.then_some(if self.is_short() { least.min(MOST_BEHIND - 1) } else { MOST_BEHIND })
    }

    /// Extends the reserve, up to its wanted length.
    fn refill(&mut self) {
        let mut more = Self::WANTED - self.len;
        while self.is_short() && more >= LEAST_RESERVE {
            match extend(&self.file, self.len, self.len + more) {
                Ok(()) => self.len += more,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    // The failed allocation may have taken some blocks: free them.
                    let _ = self.file.set_len(self.len);
                    more /= 2;
                }
                Err(_) => self.is_supported = false,
            }
            more = more.min(Self::WANTED - self.len);
        }
    }

    /// Gives at most [`LEAST_RESERVE`] bytes back to the file system. False if none are left, or on
    /// failure.
    fn give(&mut self) -> bool {
        if self.len == 0 {
            return false;
        }
        let len = self.len.saturating_sub(LEAST_RESERVE);
        // The file system frees blocks only when it journals the change: hence the sync.
        let given = self.file.set_len(len).and_then(|()| self.file.sync_all());
        self.len = len;
        given.is_ok()
    }
}

#[cfg(target_os = "linux")]
fn extend(file: &File, from: u64, end: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), from, end - from)?)
}

#[cfg(not(target_os = "linux"))]
fn extend(_file: &File, _from: u64, _end: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Allocates blocks without a change of the file's length.
#[cfg(target_os = "linux")]
pub(super) fn take_room(file: &File, from: u64, end: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, from, end - from)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn take_room(_file: &File, _from: u64, _end: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Starts writeback of the range now: a later sync would otherwise wait for all of it.
#[cfg(target_os = "linux")]
pub(super) fn begin_writing(file: &File, from: u64, end: u64) {
    let len = std::num::NonZeroU64::new(end - from);
    // Pages under writeback stay cached. A failure is harmless.
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
        // The write succeeds after the third return of reserved room.
        let mut refusals = 3;
        let write = || {
            refusals -= 1;
            if refusals < 0 { Ok(()) } else { Err(full()) }
        };
        behind.in_reserve(write).unwrap();
        assert_eq!(behind.reserve().len, Reserve::WANTED - 3 * LEAST_RESERVE);
        assert!(behind.admit(MOST_BEHIND / 4).unwrap());
        assert_eq!(behind.admit(MOST_BEHIND / 4).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(behind.in_reserve(|| Err::<(), _>(full())).is_err());
        assert_eq!(behind.admit(1).unwrap_err().kind(), io::ErrorKind::StorageFull);
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
