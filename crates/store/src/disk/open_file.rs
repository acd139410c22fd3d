//! An open file whose end is written behind: short appends gather in memory, in room that is theirs already, and go
//! to the operating system together.
#![allow(
    clippy::disallowed_types,
    reason = "this is a part of the one place that performs real file operations"
)]

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// How much of one file gathers at most, in bytes. What is longer is written at once.
const GATHERED_BYTES: usize = 64 << 10;

/// How much room is taken ahead at least and at most, in bytes: as much as the file has, so that small files stay
/// small.
const ROOM_BYTES: (u64, u64) = (16 << 10, 1 << 20);

/// How many buffers one system call takes at most (Linux: 1024).
const MAX_SLICES: usize = 1024;

/// An open file, and what was appended to it but not yet given to the operating system.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    tail: Mutex<Tail>,
}

#[derive(Debug)]
struct Tail {
    /// The file's length, with what is gathered.
    len: u64,
    /// Up to where there is room on the disk: appends below it cannot fail for want of it.
    room: u64,
    /// Whether the file system gives room ahead of writes.
    gives_room: bool,
    /// The last bytes of the file.
    gathered: Vec<u8>,
    /// Why they could not be written: final.
    failure: Option<String>,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// It was given to the operating system.
    Through,
    /// It gathers. Whether it is the first to do so: somebody has to see to it that it is written.
    Behind {
        /// Whether nothing had gathered before.
        is_first: bool,
    },
}

impl OpenFile {
    /// Takes an open file of which nothing is gathered.
    pub(super) fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let tail = Tail { len, room: len, gives_room: true, gathered: vec![], failure: None };
        Ok(Self { file, tail: Mutex::new(tail) })
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> u64 {
        self.tail().len
    }

    /// Gives what is gathered to the operating system.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.tail().flush(&self.file)
    }

    pub(super) fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut tail = self.tail();
        let len = len.min(usize::try_from(tail.len.saturating_sub(offset)).unwrap_or(usize::MAX));
        if let Some(start) = offset.checked_sub(tail.written()) {
            let start = usize::try_from(start).unwrap_or(usize::MAX).min(tail.gathered.len());
            return Ok(Bytes::copy_from_slice(&tail.gathered[start..start + len]));
        }
        if offset + len as u64 > tail.written() {
            tail.flush(&self.file)?;
        }
        drop(tail);
        let mut buffer = vec![0; len];
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        Ok(buffer.into())
    }

    pub(super) fn write_at(&self, offset: u64, chunks: &[Bytes]) -> io::Result<Wrote> {
        let mut tail = self.tail();
        tail.check()?;
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        let end = offset + bytes as u64;
        if offset == tail.len && bytes <= GATHERED_BYTES && tail.make_room(&self.file, end)? {
            if tail.gathered.len() + bytes > GATHERED_BYTES {
                tail.flush(&self.file)?;
            }
            let is_first = tail.gathered.is_empty();
            chunks.iter().for_each(|chunk| tail.gathered.extend_from_slice(chunk));
            tail.len = end;
            return Ok(Wrote::Behind { is_first });
        }
        tail.flush(&self.file)?;
        let written = write_at(&self.file, offset, chunks);
        tail.len = match &written {
            Ok(()) => tail.len.max(end),
            // Part of it may have been written.
            Err(_) => self.file.metadata()?.len(),
        };
        tail.room = tail.room.max(tail.len);
        written.map(|()| Wrote::Through)
    }

    /// Cuts the file off, or extends it with zeros. Room beyond its end is given back.
    pub(super) fn truncate(&self, len: u64) -> io::Result<()> {
        let mut tail = self.tail();
        tail.flush(&self.file)?;
        self.file.set_len(len)?;
        (tail.len, tail.room) = (len, len);
        Ok(())
    }

    /// Makes the bytes and the length durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()
    }
}

impl Tail {
    /// How much of the file the operating system has.
    fn written(&self) -> u64 {
        self.len - self.gathered.len() as u64
    }

    fn check(&self) -> io::Result<()> {
        let failed = |failure: &String| Err(io::Error::other(failure.clone()));
        self.failure.as_ref().map_or(Ok(()), failed)
    }

    fn flush(&mut self, file: &File) -> io::Result<()> {
        self.check()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        let written = file.write_all_at(&self.gathered, self.written());
        match &written {
            Ok(()) => self.gathered = vec![],
            Err(error) => self.failure = Some(format!("what was written behind is lost: {error}")),
        }
        written
    }

    /// Whether there is room for the file's first `end` bytes, as far as the file system gives it ahead of writes.
    fn make_room(&mut self, file: &File, end: u64) -> io::Result<bool> {
        if !self.gives_room || end <= self.room {
            return Ok(self.gives_room);
        }
        let ahead = end.clamp(ROOM_BYTES.0, ROOM_BYTES.1);
        let outcome = take_room(file, self.room, end + ahead).map(|()| end + ahead);
        let outcome = match outcome {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                take_room(file, self.room, end).map(|()| end)
            }
            outcome => outcome,
        };
        match outcome {
            Ok(room) => self.room = room,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Err(error),
            Err(_) => self.gives_room = false,
        }
        Ok(self.gives_room)
    }
}

#[cfg(target_os = "linux")]
fn take_room(file: &File, from: u64, end: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, from, end - from)?)
}

#[cfg(not(target_os = "linux"))]
fn take_room(_file: &File, _from: u64, _end: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn write_at(file: &File, mut offset: u64, chunks: &[Bytes]) -> io::Result<()> {
    let all: Vec<IoSlice<'_>> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
    for group in all.chunks(MAX_SLICES) {
        let mut group = group.to_vec();
        let mut left = group.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match rustix::io::pwritev(file, left, offset) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, OpenFile, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let file = OpenFile::new(open()).unwrap();
        let seen = open();
        (dir, file, seen)
    }

    fn bytes(len: usize, value: u8) -> [Bytes; 1] {
        [vec![value; len].into()]
    }

    fn on_disk(seen: &File) -> u64 {
        seen.metadata().unwrap().len()
    }

    #[test]
    fn short_appends_gather_and_are_read_where_they_are() {
        let (_dir, file, seen) = file();
        assert_eq!(file.write_at(0, &bytes(100, 1)).unwrap(), Wrote::Behind { is_first: true });
        assert_eq!(file.write_at(100, &bytes(100, 2)).unwrap(), Wrote::Behind { is_first: false });
        assert_eq!((file.len(), on_disk(&seen)), (200, 0));
        assert_eq!(file.read_at(150, 1000).unwrap(), [2; 50][..]);
        assert_eq!((file.read_at(200, 10).unwrap().len(), file.read_at(900, 10).unwrap().len()), (0, 0));
        file.flush().unwrap();
        assert_eq!((file.len(), on_disk(&seen)), (200, 200));
        assert_eq!(file.read_at(0, 1000).unwrap()[..], [[1; 100], [2; 100]].concat());
        // What lies on both sides is read as well.
        assert_eq!(file.write_at(200, &bytes(5, 3)).unwrap(), Wrote::Behind { is_first: true });
        assert_eq!(file.read_at(199, 3).unwrap(), [2, 3, 3][..]);
    }

    #[test]
    fn what_could_not_be_written_behind_fails_whatever_comes_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        File::create(&path).unwrap();
        let file = OpenFile::new(File::open(&path).unwrap()).unwrap();
        {
            let mut tail = file.tail();
            (tail.len, tail.room, tail.gathered) = (5, 5, vec![1; 5]);
        }
        file.flush().unwrap_err();
        assert!(file.sync().unwrap_err().to_string().contains("lost"));
        assert!(file.write_at(5, &bytes(1, 2)).unwrap_err().to_string().contains("lost"));
    }

    #[test]
    fn so_much_gathers_and_no_more() {
        let (_dir, file, seen) = file();
        let piece = GATHERED_BYTES / 4;
        for index in 0..9 {
            file.write_at((index * piece) as u64, &bytes(piece, 1)).unwrap();
            assert!(file.len() - on_disk(&seen) <= GATHERED_BYTES as u64);
        }
        let long = bytes(GATHERED_BYTES + 1, 2);
        assert_eq!(file.write_at(file.len(), &long).unwrap(), Wrote::Through);
        assert_eq!(file.len(), on_disk(&seen));
    }

    #[test]
    fn what_is_no_append_finds_all_that_was_written_before() {
        let (_dir, file, seen) = file();
        file.write_at(0, &bytes(10, 1)).unwrap();
        assert_eq!(file.write_at(5, &bytes(2, 2)).unwrap(), Wrote::Through);
        assert_eq!(file.read_at(0, 10).unwrap(), [1, 1, 1, 1, 1, 2, 2, 1, 1, 1][..]);
        file.write_at(10, &bytes(10, 3)).unwrap();
        file.truncate(12).unwrap();
        assert_eq!((file.len(), on_disk(&seen)), (12, 12));
        file.write_at(12, &bytes(1, 4)).unwrap();
        file.sync().unwrap();
        assert_eq!(file.read_at(9, 9).unwrap(), [1, 3, 3, 4][..]);
    }
}
