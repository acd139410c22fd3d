//! Records of a file or of standard input, read ahead by a thread of its own.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use seriatim_client::Record;
use seriatim_model::limits::MAX_RECORD_OVERHEAD_BYTES;
use tokio::sync::mpsc;

use super::resume::Prefix;
use crate::arguments::{AppendArguments, InputFormat};
use crate::json_record::JsonRecord;
use crate::output::Failure;

/// Most records of a chunk, the unit in which the reading thread passes records on.
const CHUNK_RECORDS: usize = 256;
/// A chunk takes no further record once it has this many bytes, so it has fewer bytes than this and
/// one largest record.
const CHUNK_BYTES: usize = 256 << 10;
/// Most waiting chunks. With the chunk being read and the chunk being submitted, the command holds
/// at most six chunks, the buffer of [`CHUNK_BYTES`] and one incomplete record.
const CHUNKS_AHEAD: usize = 4;
/// Most bytes of a JSON line per byte of its record: an escape takes six, a header of six bytes
/// takes 26; the rest is for the fields of readers.
const JSON_EXPANSION: usize = 8;

pub(super) struct Item {
    pub(super) record: Record,
    pub(super) upto: Prefix,
}

pub(super) struct Reading {
    /// Records up to the end of the input or the first error.
    pub(super) chunks: mpsc::Receiver<Vec<Result<Item, Failure>>>,
    unfinished: Unfinished,
}

impl Reading {
    /// The record whose end the reading thread waits for. None if it waits for nothing, or for the
    /// first byte of a record.
    pub(super) fn unfinished(&self) -> Option<Rest> {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Number of the record in the input, from 1.
    pub(super) number: u64,
    /// At least one.
    pub(super) bytes: usize,
}

type Unfinished = Arc<Mutex<Option<Rest>>>;

pub(super) struct Input {
    source: Box<dyn Read + Send>,
    name: String,
    /// Length in bytes. None for a pipe.
    pub(super) len: Option<u64>,
}

impl Input {
    pub(super) fn open(arguments: &AppendArguments) -> Result<Self, Failure> {
        match &arguments.file {
            Some(path) if path.as_os_str() != "-" => {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|cause| Failure::new(format!("{name}: {cause}")))?;
                let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file);
                Ok(Self { source: Box::new(file), name, len: metadata.map(|file| file.len()) })
            }
            _ => {
                Ok(Self { source: Box::new(std::io::stdin()), name: "standard input".to_owned(), len: None })
            }
        }
    }

    /// Starts the reading thread. The input has to begin with `done`, which is skipped.
    pub(super) fn read(self, format: Format, done: Prefix) -> Reading {
        let (chunks, received) = mpsc::channel(CHUNKS_AHEAD);
        let unfinished = Unfinished::default();
        let reading = Reading { chunks: received, unfinished: Arc::clone(&unfinished) };
        std::thread::spawn(move || {
            let source = BufReader::with_capacity(CHUNK_BYTES, self.source);
            let mut reader = Reader::new(source, self.name, format, unfinished);
            let mut chunk = match reader.pass_over(done) {
                Ok(()) => reader.chunk(),
                Err(failure) => vec![Err(failure)],
            };
            while !chunk.is_empty() {
                let is_last = chunk.last().is_some_and(Result::is_err);
                if chunks.blocking_send(chunk).is_err() || is_last {
                    break;
                }
                chunk = reader.chunk();
            }
        });
        reading
    }
}

/// How the input separates records, and what each record receives.
#[derive(Clone, Debug)]
pub(super) struct Format {
    input: InputFormat,
    delimiter: u8,
    key: Option<Bytes>,
    /// In bytes.
    max_record_bytes: u32,
    /// Whether a last record without an end is refused: the input may still grow, and a later run
    /// would read a longer record under the same number.
    wants_ends: bool,
}

impl Format {
    pub(super) fn of(arguments: &AppendArguments, max_record_bytes: u32) -> Self {
        let delimiter = if arguments.null { 0 } else { b'\n' };
        let key = arguments.key.clone().map(Bytes::from);
        Self {
            input: arguments.input,
            delimiter,
            key,
            max_record_bytes,
            wants_ends: arguments.resume.is_some(),
        }
    }

    /// Most bytes of a record in the input, without its delimiter.
    fn longest(&self) -> usize {
        match self.input {
            InputFormat::Lines => self.max_record_bytes as usize,
            InputFormat::Json => {
                JSON_EXPANSION * (self.max_record_bytes as usize + MAX_RECORD_OVERHEAD_BYTES as usize)
            }
        }
    }

    pub(super) fn unit(&self) -> &'static str {
        if self.delimiter == 0 { "record" } else { "line" }
    }

    fn record(&self, raw: Vec<u8>) -> Result<Record, String> {
        let record = match self.input {
            InputFormat::Lines => Record::from(raw),
            InputFormat::Json => JsonRecord::parse(&raw)?,
        };
        Ok(match &self.key {
            Some(key) => record.with_key(key.clone()),
            None => record,
        })
    }
}

/// Splits the input into records. It reads more input only after it has passed on every complete
/// record of its buffer.
struct Reader<R> {
    source: BufReader<R>,
    name: String,
    format: Format,
    at: Prefix,
    /// Bytes behind `at` that were taken from the buffer of `source`. Invariant: at most one more
    /// than [`Format::longest`], and none is a delimiter.
    begun: Vec<u8>,
    has_ended: bool,
    unfinished: Unfinished,
}

impl<R: Read> Reader<R> {
    fn new(source: BufReader<R>, name: String, format: Format, unfinished: Unfinished) -> Self {
        Self { source, name, format, at: Prefix::default(), begun: vec![], has_ended: false, unfinished }
    }

    /// Skips the records that an earlier run appended.
    fn pass_over(&mut self, done: Prefix) -> Result<(), Failure> {
        while self.at.records < done.records && self.next_bytes()?.is_some() {}
        if self.at == done {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{} does not begin with the {} {}s that an earlier run appended: use the same input",
            self.name,
            done.records,
            self.format.unit()
        )))
    }

    /// The next records, and the error of the record after them. Empty at the end. Waits only for
    /// the first record.
    fn chunk(&mut self) -> Vec<Result<Item, Failure>> {
        let begin = self.at.bytes;
        let first = self.next_bytes();
        let mut items: Vec<_> = self.item(first).into_iter().collect();
        while items.last().is_some_and(Result::is_ok)
            && items.len() < CHUNK_RECORDS
            && self.at.bytes - begin < CHUNK_BYTES as u64
        {
            let next = self.complete();
            let Some(item) = self.item(next) else { break };
            items.push(item);
        }
        items
    }

    fn item(&self, raw: Result<Option<Vec<u8>>, Failure>) -> Option<Result<Item, Failure>> {
        let raw = raw.transpose()?;
        Some(raw.and_then(|raw| {
            let record = self.format.record(raw).map_err(|wrong| self.wrong(self.at.records, &wrong))?;
            Ok(Item { record, upto: self.at })
        }))
    }

    fn wrong(&self, number: u64, what: &str) -> Failure {
        let (name, unit) = (&self.name, self.format.unit());
        Failure::new(format!("{name}, {unit} {number}: {what}; earlier {unit}s were appended"))
    }

    /// The next record without its delimiter. None at the end. Waits for input.
    fn next_bytes(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            let complete = self.complete()?;
            if complete.is_some() {
                return Ok(complete);
            }
            if self.has_ended {
                return self.last();
            }
            self.read_on()?;
        }
    }

    /// The next record if its end is in the buffer. Never waits.
    fn complete(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let (delimiter, longest) = (self.format.delimiter, self.format.longest());
        let room = longest + 1 - self.begun.len();
        let mut buffered = self.source.buffer().take(room as u64);
        let taken = buffered.read_until(delimiter, &mut self.begun).expect("a slice of memory can be read");
        self.source.consume(taken);
        if self.begun.last() == Some(&delimiter) {
            let mut raw = self.take();
            raw.pop();
            return Ok(Some(raw));
        }
        if self.begun.len() <= longest {
            return Ok(None);
        }
        let limit = self.format.max_record_bytes;
        Err(self.wrong(
            self.at.records + 1,
            &format!(
                "it has more than {longest} bytes, and the log allows records of {limit} bytes; split it, or create a log with a \
                 larger --max-record-bytes"
            ),
        ))
    }

    fn read_on(&mut self) -> Result<(), Failure> {
        let rest = Rest { number: self.at.records + 1, bytes: self.begun.len() };
        self.waits_for((rest.bytes > 0).then_some(rest));
        let read = loop {
            match self.source.fill_buf() {
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                read => break read.map(<[u8]>::is_empty),
            }
        };
        self.waits_for(None);
        self.has_ended = read.map_err(|cause| Failure::new(format!("{}: {cause}", self.name)))?;
        Ok(())
    }

    fn waits_for(&self, rest: Option<Rest>) {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = rest;
    }

    /// The last record without a delimiter. Refused if a later run may continue behind it.
    fn last(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if self.begun.is_empty() {
            return Ok(None);
        }
        if self.format.wants_ends {
            let (name, unit) = (&self.name, self.format.unit());
            return Err(Failure::new(format!(
                "{name}: the last {unit} has no end and was skipped; end it and run the command again, or append it \
                 without --resume"
            )));
        }
        Ok(Some(self.take()))
    }

    fn take(&mut self) -> Vec<u8> {
        let raw = mem::take(&mut self.begun);
        self.at.add(&raw);
        raw
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::io;
    use std::rc::Rc;

    use super::*;

    fn reader(input: &'static [u8], delimiter: u8) -> Reader<&'static [u8]> {
        reader_of(BufReader::new(input), InputFormat::Lines, delimiter)
    }

    fn reader_of<R: Read>(source: BufReader<R>, input: InputFormat, delimiter: u8) -> Reader<R> {
        let format = Format { input, delimiter, key: None, max_record_bytes: 1000, wants_ends: false };
        Reader::new(source, "input".into(), format, Unfinished::default())
    }

    fn records(chunk: Vec<Result<Item, Failure>>) -> Vec<Record> {
        chunk.into_iter().map(|item| item.unwrap().record).collect()
    }

    fn to_the_end<R: Read>(mut reader: Reader<R>) -> Vec<Record> {
        let chunks = std::iter::from_fn(|| Some(records(reader.chunk())).filter(|chunk| !chunk.is_empty()));
        chunks.flatten().collect()
    }

    fn all(parts: &[&'static [u8]]) -> Vec<Record> {
        parts.iter().map(|part| Record::from(*part)).collect()
    }

    #[test]
    fn lines_are_taken_as_they_are() {
        let input = b"a\n\n\0b\r\nlast";
        assert_eq!(to_the_end(reader(input, b'\n')), all(&[b"a", b"", b"\0b\r", b"last"]));
    }

    #[test]
    fn records_may_end_with_a_nul() {
        assert_eq!(to_the_end(reader(b"a\nb\0\0c", 0)), all(&[b"a\nb", b"", b"c"]));
    }

    #[test]
    fn only_the_same_input_is_gone_on_with() {
        let mut first = reader(b"a\nb\n", b'\n');
        let done = first.chunk()[1].as_ref().unwrap().upto;
        let mut longer = reader(b"a\nb\nc", b'\n');
        assert!(longer.pass_over(done).is_ok());
        assert_eq!(records(longer.chunk()), all(&[b"c"]));
        for other in [&b"a\nB\nc"[..], b"a\n", b"a\nbb\n", b"a\nb"] {
            let Err(Failure::Message(wrong)) = reader(other, b'\n').pass_over(done) else {
                panic!("{other:?}")
            };
            assert!(wrong.contains("does not begin with the 2 lines"), "{wrong}");
        }
    }

    #[test]
    fn a_last_line_that_may_still_grow_is_left_for_another_run() {
        let mut reader = reader(b"a\nb", b'\n');
        reader.format.wants_ends = true;
        assert_eq!(records(reader.chunk()), all(&[b"a"]));
        let [Err(Failure::Message(wrong))] = &reader.chunk()[..] else { panic!("it has no end") };
        assert!(wrong.contains("last line has no end") && reader.at.records == 1, "{wrong}");
    }

    #[test]
    fn a_line_that_is_wrong_comes_after_those_before_it() {
        let mut reader = reader(b"{\"record\": \"a\"}\nb\nc\n", b'\n');
        reader.format.input = InputFormat::Json;
        let chunk = reader.chunk();
        assert_eq!(chunk.len(), 2);
        assert_eq!(chunk[0].as_ref().unwrap().record, Record::from("a"));
        let Err(Failure::Message(wrong)) = &chunk[1] else { panic!("it is wrong") };
        assert!(wrong.starts_with("input, line 2: not a record"), "{wrong}");
    }
    /// An input in pieces. It checks at each read that all complete records were passed on, because
    /// the read may wait.
    struct Pieces {
        pieces: VecDeque<Vec<u8>>,
        delimiter: u8,
        complete: usize,
        passed_on: Rc<Cell<usize>>,
    }

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            assert_eq!(self.passed_on.get(), self.complete, "a complete record waits for more input");
            let Some(piece) = self.pieces.front_mut() else { return Ok(0) };
            let len = piece.len().min(into.len());
            into[..len].copy_from_slice(&piece[..len]);
            self.complete += piece.drain(..len).filter(|byte| *byte == self.delimiter).count();
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            Ok(len)
        }
    }

    fn passed_on(pieces: &[&[u8]], format: (InputFormat, u8), buffer_bytes: usize) -> Vec<Record> {
        let count = Rc::new(Cell::new(0));
        let pieces = pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| piece.to_vec()).collect();
        let source = Pieces { pieces, delimiter: format.1, complete: 0, passed_on: Rc::clone(&count) };
        let mut reader = reader_of(BufReader::with_capacity(buffer_bytes, source), format.0, format.1);
        let mut all = vec![];
        loop {
            let chunk = records(reader.chunk());
            if chunk.is_empty() {
                return all;
            }
            all.extend(chunk);
            count.set(all.len());
        }
    }

    const BUFFERS: [usize; 3] = [1, 3, CHUNK_BYTES];

    #[test]
    fn every_complete_record_is_passed_on_before_the_next_read_however_the_input_is_cut() {
        for (input, delimiter) in
            [(&b"a\n\nbc\nd\0e\nf"[..], b'\n'), (b"a\0\0b\nc\0d\0", 0), (b"\n\n\n", b'\n')]
        {
            let whole = to_the_end(reader(input, delimiter));
            // One bit per place at which the input may be cut.
            for cuts in 0..1_u32 << (input.len() - 1) {
                let mut pieces = vec![];
                let mut begin = 0;
                for end in (1..input.len()).filter(|end| cuts & 1 << (end - 1) != 0).chain([input.len()]) {
                    pieces.push(&input[begin..end]);
                    begin = end;
                }
                for buffer_bytes in BUFFERS {
                    let all = passed_on(&pieces, (InputFormat::Lines, delimiter), buffer_bytes);
                    assert_eq!(all, whole, "{pieces:?}");
                }
            }
        }
    }

    #[test]
    fn a_complete_line_of_json_is_passed_on_before_the_next_read() {
        let input = b"{\"record\":\"a\"}\n{\"record\":\"\",\"key\":\"k\"}\n{\"record\":\"b\"}";
        let whole = [Record::from("a"), Record::from("").with_key("k"), Record::from("b")];
        for first in 0..=input.len() {
            for second in first..=input.len() {
                let pieces = [&input[..first], &input[first..second], &input[second..]];
                for buffer_bytes in BUFFERS {
                    let all = passed_on(&pieces, (InputFormat::Json, b'\n'), buffer_bytes);
                    assert_eq!(all, whole, "{pieces:?}");
                }
            }
        }
    }

    #[test]
    fn more_complete_records_than_a_chunk_takes_are_passed_on_before_the_next_read() {
        let lines = [&b"x\n".repeat(2 * CHUNK_RECORDS + 1)[..], b"be"].concat();
        let all = passed_on(&[&lines, b"gun\n"], (InputFormat::Lines, b'\n'), CHUNK_BYTES);
        assert_eq!((all.len(), all.last()), (2 * CHUNK_RECORDS + 2, Some(&Record::from("begun"))));
        let long = vec![b'x'; 999];
        let lines = [&long[..], b"\n"].concat().repeat(2 * CHUNK_BYTES / 1000);
        let all = passed_on(&[&lines, &long], (InputFormat::Lines, b'\n'), 2 * CHUNK_BYTES);
        assert!(all.len() > 2 * CHUNK_BYTES / 1000 && all.iter().all(|record| record.len() == 999));
    }

    #[test]
    fn a_record_that_is_too_long_is_read_no_further() {
        let most_json = JSON_EXPANSION * (1000 + MAX_RECORD_OVERHEAD_BYTES as usize);
        for (input, longest) in [(InputFormat::Lines, 1000), (InputFormat::Json, most_json)] {
            let mut reader = reader_of(BufReader::with_capacity(64, io::repeat(b'x')), input, b'\n');
            let chunk = reader.chunk();
            let [Err(Failure::Message(wrong))] = &chunk[..] else { panic!("it is too long") };
            assert!(wrong.contains(&format!("line 1: it has more than {longest} bytes")), "{wrong}");
            assert!(reader.begun.capacity() <= 2 * (longest + 1), "{} bytes", reader.begun.capacity());
        }
        let longest = [&[b'x'; 1000][..], b"\n", &[b'y'; 1000]].concat();
        let read = passed_on(&[&longest], (InputFormat::Lines, b'\n'), 64);
        assert_eq!(read.iter().map(Record::len).collect::<Vec<_>>(), [1000, 1000]);
    }

    #[test]
    fn the_record_whose_end_is_waited_for_is_named() {
        struct Looking<'a>(&'a [&'static [u8]], usize, Unfinished);
        impl Read for Looking<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let rest =
                    [None, Some(Rest { number: 2, bytes: 2 }), Some(Rest { number: 2, bytes: 3 }), None];
                assert_eq!(*self.2.lock().unwrap(), rest[self.1]);
                self.1 += 1;
                let Some(mut piece) = self.0.get(self.1 - 1).copied() else { return Ok(0) };
                piece.read(into)
            }
        }
        let unfinished = Unfinished::default();
        let pieces = [&b"one\ntw"[..], b"o", b"\n"];
        let source = BufReader::new(Looking(&pieces, 0, Arc::clone(&unfinished)));
        let mut reader = reader_of(source, InputFormat::Lines, b'\n');
        reader.unfinished = Arc::clone(&unfinished);
        for record in [&b"one"[..], b"two"] {
            assert_eq!(records(reader.chunk()), [Record::from(record)]);
            assert_eq!(*unfinished.lock().unwrap(), None);
        }
        assert!(reader.chunk().is_empty());
    }
}
