//! A file with buffered writes, which a thread passes to the operating system.
//!
//! Two locks, always in this order: `io` is held during changes in the file system, which may take
//! as long as a disk takes; `state` is held only while memory is copied, and its holder never
//! waits.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;

use super::behind::{Behind, begin_writing, take_room};
use super::root::Root;

/// Most bytes in one buffered piece.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes reserved besides each piece's own, for partly filled blocks at its ends.
const PIECE_ROOM: u64 = 8 << 10;

/// Least and most bytes allocated beyond a file's end; in between, as many as the file has, so that
/// small files stay small. Blocks of one allocation are contiguous.
const ROOM_BYTES: (u64, u64) = (16 << 10, 2 << 20);

/// Bytes passed to the operating system before their writeback is started.
const BEGIN_BYTES: u64 = 256 << 10;

/// Most buffers per system call (Linux: 1024).
const MAX_SLICES: usize = 1024;

#[derive(Debug)]
pub(super) struct OpenFile {
    root: Arc<Root>,
    name: String,
    behind: Arc<Behind>,
    io: Mutex<Io>,
    /// Empty until the file is opened or made.
    file: OnceLock<File>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct Io {
    /// End of the blocks allocated for the file.
    room: u64,
    /// End of the range whose writeback was started.
    begun: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Length including buffered writes. `None`: not known yet.
    len: Option<u64>,
    /// Whether the file must be made if absent.
    is_made: bool,
    /// Whether the file must be truncated to zero before buffered pieces are written.
    is_cut: bool,
    /// Buffered pieces in write order. The thread may be writing the first.
    pieces: VecDeque<Piece>,
    /// Newest piece, which may still grow.
    last: Vec<u8>,
    /// Offset of the newest piece, and the bytes admitted for it.
    last_at: (u64, u64),
    /// Whether the thread's queue has the file.
    is_queued: bool,
    is_deleted: bool,
    /// Why buffered pieces could not be written. Each later read, write and sync fails with it.
    failure: Option<(io::ErrorKind, String)>,
}

#[derive(Clone, Debug)]
struct Piece {
    offset: u64,
    bytes: Bytes,
    admitted: u64,
}

impl OpenFile {
    pub(super) fn open(root: &Arc<Root>, name: &str, behind: Arc<Behind>) -> io::Result<Self> {
        let file = root.open_file(name)?;
        let len = file.metadata()?.len();
        let state = State { len: Some(len), ..State::default() };
        let io = Io { room: len, begun: len };
        let (root, name, file) = (Arc::clone(root), name.to_owned(), OnceLock::from(file));
        Ok(Self { root, name, behind, io: Mutex::new(io), file, state: Mutex::new(state) })
    }

    /// A file that the thread makes if absent.
    pub(super) fn create(root: &Arc<Root>, name: &str, behind: Arc<Behind>) -> Arc<Self> {
        let state = State { is_made: true, is_queued: true, ..State::default() };
        let (root, name, io, file) = (Arc::clone(root), name.to_owned(), Mutex::default(), OnceLock::new());
        let created = Arc::new(Self { root, name, behind, io, file, state: Mutex::new(state) });
        created.behind.push(Arc::clone(&created));
        created
    }

    fn io(&self) -> MutexGuard<'_, Io> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        if let Some(len) = self.state().len {
            return Ok(len);
        }
        self.opened(&mut self.io())?;
        Ok(self.state().len.unwrap_or_default())
    }

    /// Whether a restart would find this file under its name. True for a file not made yet.
    pub(super) fn has_its_name(&self) -> bool {
        self.file.get().is_none_or(|file| self.root.names(&self.name, file))
    }

    /// Whether dropping the handle loses no write and no error.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        !state.is_queued && !state.is_behind() && state.failure.is_none()
    }

    pub(super) fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let whole = self.len()?;
        let (len, behind, has_file, is_all_written) = {
            let state = self.state();
            state.check()?;
            let whole = state.len.unwrap_or(whole);
            let len = len.min(usize::try_from(whole.saturating_sub(offset)).unwrap_or(usize::MAX));
            (len, state.behind(offset, len), !state.is_cut, !state.is_behind())
        };
        if let [(0, only)] = behind.as_slice()
            && only.len() == len
        {
            return Ok(only.clone());
        }
        let mut buffer = vec![0; len];
        if let Some(file) = self.file.get().filter(|_| has_file && len > 0) {
            let filled = read_at(file, &mut buffer, offset)?;
            if is_all_written {
                buffer.truncate(filled);
            }
        }
        for (at, bytes) in behind {
            buffer[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(buffer.into())
    }

    /// Buffers the bytes. Waits only while the disk has too many buffered bytes.
    pub(super) fn write_at(self: &Arc<Self>, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        let whole = self.len()?;
        self.state().check()?;
        if bytes == 0 {
            return Ok(());
        }
        let admitted = bytes as u64 + PIECE_ROOM;
        if !self.behind.admit(admitted)? {
            return self.write_through(offset, chunks);
        }
        let mut state = self.state();
        if let Err(error) = state.check() {
            drop(state);
            self.behind.release(admitted);
            return Err(error);
        }
        let spared = state.take(offset, chunks, bytes, admitted);
        state.len = Some(state.len.unwrap_or(whole).max(offset + bytes as u64));
        let is_first = !std::mem::replace(&mut state.is_queued, true);
        drop(state);
        self.behind.release(spared);
        if is_first {
            self.behind.push(Arc::clone(self));
        }
        Ok(())
    }

    /// Writes the bytes after all buffered pieces, without buffering.
    pub(super) fn write_through(&self, offset: u64, chunks: &[Bytes]) -> io::Result<()> {
        let mut io = self.io();
        self.write_pieces(&mut io, false)?;
        let file = self.opened(&mut io)?;
        let written = write_at(file, offset, chunks);
        let bytes: usize = chunks.iter().map(Bytes::len).sum();
        let mut state = self.state();
        state.len = match &written {
            Ok(()) if bytes == 0 => state.len,
            Ok(()) => state.len.max(Some(offset + bytes as u64)),
            // A part may have been written: read the length.
            Err(_) => Some(file.metadata()?.len()),
        };
        let len = state.len.unwrap_or_default();
        (io.room, io.begun) = (io.room.max(len), io.begun.max(len));
        written
    }

    /// Passes buffered pieces to the operating system.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.write_pieces(&mut self.io(), false)
    }

    /// As `flush`, on the writing thread; also starts writeback.
    pub(super) fn write_behind(&self) -> io::Result<()> {
        self.state().is_queued = false;
        self.write_pieces(&mut self.io(), true)
    }

    /// Shortens the file, or extends it with zeros. Frees room beyond its end.
    pub(super) fn truncate(self: &Arc<Self>, len: u64) -> io::Result<()> {
        {
            let mut state = self.state();
            state.check()?;
            if len == 0 && !state.has_pieces() {
                (state.len, state.is_cut) = (Some(0), true);
                let is_first = !std::mem::replace(&mut state.is_queued, true);
                drop(state);
                if is_first {
                    self.behind.push(Arc::clone(self));
                }
                return Ok(());
            }
        }
        let mut io = self.io();
        self.write_pieces(&mut io, false)?;
        self.opened(&mut io)?.set_len(len)?;
        *io = Io { room: len, begun: len };
        self.state().len = Some(len);
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        let mut io = self.io();
        self.write_pieces(&mut io, false)?;
        let file = self.opened(&mut io)?;
        // Later writes continue during the sync.
        drop(io);
        file.sync_data()
    }

    /// Drops buffered writes before the file's deletion: none makes it again.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.is_deleted = true;
        let released = state.drop_pieces();
        drop(state);
        self.behind.release(released);
        // Wait for I/O in progress.
        drop(self.io());
    }

    /// The file's handle. Makes the file if necessary.
    fn opened(&self, io: &mut Io) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        if self.state().is_deleted {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Only a file not made yet has no handle.
        let file = self.behind.in_reserve(|| self.root.create_file(&self.name))?;
        let len = file.metadata()?.len();
        *io = Io { room: len, begun: len };
        let file = self.file.get_or_init(|| file);
        let mut state = self.state();
        state.is_made = false;
        state.len.get_or_insert(len);
        Ok(file)
    }

    fn write_pieces(&self, io: &mut Io, begins: bool) -> io::Result<()> {
        let outcome = self.try_write_pieces(io, begins);
        if let Err(error) = &outcome {
            let mut state = self.state();
            state.failure.get_or_insert_with(|| lost(error));
            let released = state.drop_pieces();
            drop(state);
            self.behind.release(released);
        }
        outcome
    }

    fn try_write_pieces(&self, io: &mut Io, begins: bool) -> io::Result<()> {
        loop {
            let mut state = self.state();
            if state.is_deleted || !state.is_behind() {
                return state.check();
            }
            state.check()?;
            let is_cut = std::mem::take(&mut state.is_cut);
            let piece = state.first();
            drop(state);
            let file = self.opened(io)?;
            if is_cut {
                file.set_len(0)?;
                *io = Io::default();
            }
            let Some(piece) = piece else { continue };
            let end = piece.offset + piece.bytes.len() as u64;
            io.make_room(file, end);
            self.behind.in_reserve(|| file.write_all_at(&piece.bytes, piece.offset))?;
            if begins && end >= io.begun + BEGIN_BYTES {
                begin_writing(file, io.begun, end);
                io.begun = end;
            }
            // If the piece was dropped, `drop_pieces` has released its bytes.
            let done = self.state().pieces.pop_front();
            self.behind.release(done.map_or(0, |piece| piece.admitted));
        }
    }
}

impl Io {
    /// Allocates blocks ahead. If this fails, the write itself allocates.
    fn make_room(&mut self, file: &File, end: u64) {
        if end > self.room {
            let room = end + end.clamp(ROOM_BYTES.0, ROOM_BYTES.1);
            let _ = take_room(file, self.room, room);
            self.room = room;
        }
    }
}

/// Failure of a file whose buffered pieces were dropped. `FileTooLarge` stays, because the text
/// names its remedy. Other kinds become `Other`, so that no caller retries as for a full disk, or
/// takes a lost directory for a missing file.
fn lost(error: &io::Error) -> (io::ErrorKind, String) {
    let kind = match error.kind() {
        io::ErrorKind::FileTooLarge => io::ErrorKind::FileTooLarge,
        _ => io::ErrorKind::Other,
    };
    (kind, format!("writes in its buffer are lost: {error}"))
}

impl State {
    fn check(&self) -> io::Result<()> {
        if self.is_deleted {
            return Err(io::ErrorKind::NotFound.into());
        }
        let failed = |(kind, text): &(io::ErrorKind, String)| Err(io::Error::new(*kind, text.clone()));
        self.failure.as_ref().map_or(Ok(()), failed)
    }

    fn has_pieces(&self) -> bool {
        !self.pieces.is_empty() || !self.last.is_empty()
    }

    fn is_behind(&self) -> bool {
        self.is_made || self.is_cut || self.has_pieces()
    }

    /// Adds a write. Returns the part of `admitted` not needed.
    fn take(&mut self, offset: u64, chunks: &[Bytes], bytes: usize, admitted: u64) -> u64 {
        let end_of_last = self.last_at.0 + self.last.len() as u64;
        let fits = !self.last.is_empty() && offset == end_of_last && self.last.len() + bytes <= PIECE_BYTES;
        if !fits {
            self.freeze();
            self.last_at = (offset, 0);
        }
        chunks.iter().for_each(|chunk| self.last.extend_from_slice(chunk));
        // Bytes that extend the newest piece need no further blocks.
        let spared = if fits { PIECE_ROOM } else { 0 };
        self.last_at.1 += admitted - spared;
        spared
    }

    fn freeze(&mut self) {
        if !self.last.is_empty() {
            let (offset, admitted) = self.last_at;
            let bytes = std::mem::take(&mut self.last).into();
            self.pieces.push_back(Piece { offset, bytes, admitted });
        }
    }

    fn first(&mut self) -> Option<Piece> {
        if self.pieces.is_empty() {
            self.freeze();
        }
        self.pieces.front().cloned()
    }

    /// Returns the bytes admitted for the dropped work.
    fn drop_pieces(&mut self) -> u64 {
        self.freeze();
        (self.is_made, self.is_cut) = (false, false);
        std::mem::take(&mut self.pieces).iter().map(|piece| piece.admitted).sum()
    }

    /// Buffered bytes of a range in write order, each with its start relative to `offset`.
    fn behind(&self, offset: u64, len: usize) -> Vec<(usize, Bytes)> {
        let end = offset + len as u64;
        let within = |at: u64, bytes: usize| {
            let (from, to) = (offset.max(at), end.min(at + bytes as u64));
            (from < to).then(|| ((from - offset) as usize, (from - at) as usize..(to - at) as usize))
        };
        let frozen = self.pieces.iter().filter_map(|piece| {
            let (at, range) = within(piece.offset, piece.bytes.len())?;
            Some((at, piece.bytes.slice(range)))
        });
        let last = within(self.last_at.0, self.last.len());
        let last = last.map(|(at, range)| (at, Bytes::copy_from_slice(&self.last[range])));
        frozen.chain(last).collect()
    }
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
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
    use proptest::prelude::*;

    use super::*;

    /// A file without a writing thread.
    fn file() -> (tempfile::TempDir, Arc<OpenFile>) {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(dir.path()).unwrap());
        let behind = Arc::new(Behind::new(&root).unwrap());
        let file = OpenFile::create(&root, "dir/file", behind);
        (dir, file)
    }

    fn on_disk(dir: &tempfile::TempDir) -> Vec<u8> {
        std::fs::read(dir.path().join("dir/file")).unwrap()
    }

    fn bytes(len: usize, value: u8) -> [Bytes; 1] {
        [vec![value; len].into()]
    }

    #[test]
    fn a_file_is_made_and_written_behind_and_read_where_it_is() {
        let (dir, file) = file();
        file.truncate(0).unwrap();
        file.write_at(0, &bytes(100, 1)).unwrap();
        file.write_at(100, &bytes(100, 2)).unwrap();
        assert_eq!(file.len().unwrap(), 200);
        assert_eq!(file.read_at(150, 1000).unwrap(), [2; 50][..]);
        assert_eq!((file.read_at(200, 9).unwrap().len(), file.read_at(900, 9).unwrap().len()), (0, 0));
        assert!(!dir.path().join("dir").exists() && !file.is_idle());
        assert_eq!(file.behind.bytes(), 200 + PIECE_ROOM);
        file.write_behind().unwrap();
        assert_eq!(on_disk(&dir), [[1; 100], [2; 100]].concat());
        assert!(file.is_idle() && file.behind.bytes() == 0);
        file.write_at(200, &bytes(5, 3)).unwrap();
        assert_eq!(file.read_at(199, 3).unwrap(), [2, 3, 3][..]);
    }

    #[test]
    fn what_could_not_be_written_behind_fails_whatever_comes_later() {
        let (dir, file) = file();
        file.truncate(0).unwrap();
        file.write_at(0, &bytes(5, 1)).unwrap();
        std::fs::write(dir.path().join("dir"), "in the way").unwrap();
        file.write_behind().unwrap_err();
        assert!(file.sync().unwrap_err().to_string().contains("lost"));
        assert!(file.write_at(5, &bytes(1, 2)).unwrap_err().to_string().contains("lost"));
        assert!(file.read_at(0, 5).is_err() && file.behind.bytes() == 0);
    }

    #[test]
    fn a_lost_buffer_names_the_limit_of_file_sizes_and_is_never_retried() {
        let kind = |kind: io::ErrorKind| lost(&kind.into()).0;
        assert_eq!(kind(io::ErrorKind::FileTooLarge), io::ErrorKind::FileTooLarge);
        assert_eq!(kind(io::ErrorKind::StorageFull), io::ErrorKind::Other);
        assert_eq!(kind(io::ErrorKind::NotFound), io::ErrorKind::Other);
    }

    #[test]
    fn nothing_is_made_or_written_under_the_name_of_a_file_that_is_deleted() {
        let (dir, file) = file();
        file.truncate(0).unwrap();
        file.write_at(0, &bytes(5, 1)).unwrap();
        file.forget();
        assert_eq!(file.behind.bytes(), 0);
        let _ = file.write_behind();
        assert_eq!(file.write_at(5, &bytes(1, 2)).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!dir.path().join("dir").exists());
    }

    #[test]
    fn who_writes_more_than_may_be_behind_waits_for_the_disk() {
        let (dir, file) = file();
        file.truncate(0).unwrap();
        let count = 40;
        std::thread::scope(|scope| {
            let written = scope.spawn(|| {
                for number in 0..count {
                    file.write_at(number << 20, &bytes(1 << 20, number as u8)).unwrap();
                    assert!(file.behind.bytes() <= super::super::behind::MOST_BEHIND);
                }
            });
            while !written.is_finished() {
                file.write_behind().unwrap();
            }
        });
        file.sync().unwrap();
        assert_eq!((on_disk(&dir).len() as u64, file.behind.bytes()), (count << 20, 0));
        assert_eq!(file.read_at(7 << 20, 2).unwrap(), [7, 7][..]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(Vec<u8>),
        Write(u64, Vec<u8>),
        Through(u64, Vec<u8>),
        Truncate(u64),
        Behind,
        Sync,
    }

    fn step() -> impl Strategy<Value = Step> {
        let some = || prop::collection::vec(1u8.., 0..3000);
        prop_oneof![
            4 => some().prop_map(Step::Append),
            2 => (0u64..9000, some()).prop_map(|(at, bytes)| Step::Write(at, bytes)),
            1 => (0u64..9000, some()).prop_map(|(at, bytes)| Step::Through(at, bytes)),
            1 => prop_oneof![Just(0), 0u64..9000].prop_map(Step::Truncate),
            1 => Just(Step::Behind),
            1 => Just(Step::Sync),
        ]
    }

    fn write(model: &mut Vec<u8>, at: u64, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        if !bytes.is_empty() {
            model.resize(model.len().max(end), 0);
            model[at as usize..end].copy_from_slice(bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn reads_find_everything_wherever_it_is(steps in prop::collection::vec(step(), 1..30)) {
            let (dir, file) = file();
            let mut model = vec![];
            for step in steps {
                match step {
                    Step::Append(bytes) => {
                        let at = file.len().unwrap();
                        file.write_at(at, &[bytes.clone().into()]).unwrap();
                        write(&mut model, at, &bytes);
                    }
                    Step::Write(at, bytes) => {
                        file.write_at(at, &[bytes.clone().into(), Bytes::new()]).unwrap();
                        write(&mut model, at, &bytes);
                    }
                    Step::Through(at, bytes) => {
                        file.write_through(at, &[bytes.clone().into()]).unwrap();
                        write(&mut model, at, &bytes);
                    }
                    Step::Truncate(len) => {
                        file.truncate(len).unwrap();
                        model.resize(len as usize, 0);
                    }
                    Step::Behind => file.write_behind().unwrap(),
                    Step::Sync => {
                        file.sync().unwrap();
                        prop_assert_eq!(&on_disk(&dir), &model);
                    }
                }
                prop_assert_eq!(file.len().unwrap(), model.len() as u64);
                prop_assert_eq!(&file.read_at(0, 1 << 20).unwrap()[..], &model[..]);
                let middle = model.len() / 3..model.len() / 2;
                prop_assert_eq!(&file.read_at(middle.start as u64, middle.len()).unwrap()[..], &model[middle]);
            }
            file.flush().unwrap();
            prop_assert_eq!((on_disk(&dir), file.behind.bytes()), (model, 0));
            // Each case's reserve takes a few dozen MiB of disk.
            file.behind.forget();
        }
    }
}
