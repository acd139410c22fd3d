//! Records from a file or from standard input, read on a thread of its own, a bounded number ahead.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use seriatim_client::Record;
use tokio::sync::mpsc;

use super::resume::Prefix;
use crate::arguments::{AppendArguments, InputFormat};
use crate::json_record::JsonRecord;
use crate::output::Failure;

/// How many records travel from the reading thread at once.
const CHUNK_RECORDS: usize = 256;
/// How many bytes they have at most, unless one is longer.
const CHUNK_BYTES: usize = 256 << 10;
/// How many such chunks wait.
const CHUNKS_AHEAD: usize = 4;

/// A record, and the input up to its end.
pub(super) struct Item {
    pub(super) record: Record,
    pub(super) upto: Prefix,
}

/// The records of the input, a few at a time, up to its end or to what is wrong with it.
pub(super) type Chunks = mpsc::Receiver<Vec<Result<Item, Failure>>>;

/// The input of a command.
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    name: String,
    /// How long it is, if that is known, in bytes.
    pub(super) len: Option<u64>,
}

impl Input {
    /// Opens what is to be appended.
    ///
    /// # Errors
    /// If the file cannot be opened.
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

    /// Reads it: everything that follows `done`, with which it has to begin.
    pub(super) fn read(self, format: Format, done: Prefix) -> Chunks {
        let (chunks, received) = mpsc::channel(CHUNKS_AHEAD);
        std::thread::spawn(move || {
            let source = BufReader::with_capacity(CHUNK_BYTES, self.source);
            let mut reader = Reader { source, name: self.name, format, at: Prefix::default() };
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
        received
    }
}

/// How records follow one another in the input, and what each is given.
#[derive(Clone, Debug)]
pub(super) struct Format {
    input: InputFormat,
    delimiter: u8,
    key: Option<String>,
    /// Whether a last record without an end is refused: it may still be written, and another run would take what it becomes
    /// for what it was.
    wants_ends: bool,
}

impl Format {
    pub(super) fn of(arguments: &AppendArguments) -> Self {
        let delimiter = if arguments.null { 0 } else { b'\n' };
        let wants_ends = arguments.resume.is_some();
        Self { input: arguments.input, delimiter, key: arguments.key.clone(), wants_ends }
    }

    /// The word for one record of the input.
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

/// Takes the input apart.
struct Reader<R> {
    source: BufReader<R>,
    name: String,
    format: Format,
    at: Prefix,
}

impl<R: Read> Reader<R> {
    /// Passes over what was appended by an earlier run.
    fn pass_over(&mut self, done: Prefix) -> Result<(), Failure> {
        while self.at.records < done.records && self.next_bytes()?.is_some() {}
        if self.at == done {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{} does not begin with the {} {}s that were appended before: go on with the same input",
            self.name,
            done.records,
            self.format.unit()
        )))
    }

    /// The next records, and what is wrong with the one that follows them; nothing at the end.
    fn chunk(&mut self) -> Vec<Result<Item, Failure>> {
        let mut items = vec![];
        let begin = self.at.bytes;
        while items.len() < CHUNK_RECORDS && self.at.bytes - begin < CHUNK_BYTES as u64 {
            let Some(item) = self.next_item().transpose() else { break };
            let is_last = item.is_err();
            items.push(item);
            // A person's line is appended as soon as it is typed: reading on might wait for more.
            if is_last || self.source.buffer().is_empty() {
                break;
            }
        }
        items
    }

    fn next_item(&mut self) -> Result<Option<Item>, Failure> {
        let Some(raw) = self.next_bytes()? else { return Ok(None) };
        let record = self.format.record(raw).map_err(|wrong| {
            let (name, unit, number) = (&self.name, self.format.unit(), self.at.records);
            Failure::new(format!("{name}, {unit} {number}: {wrong}; what comes before it was appended"))
        })?;
        Ok(Some(Item { record, upto: self.at }))
    }

    /// The bytes of the next record, without what ends it; nothing at the end. A last one without an end counts, too, unless
    /// another run may go on behind it.
    fn next_bytes(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut raw = vec![];
        let read = self.source.read_until(self.format.delimiter, &mut raw);
        if read.map_err(|cause| Failure::new(format!("{}: {cause}", self.name)))? == 0 {
            return Ok(None);
        }
        let has_end = raw.last() == Some(&self.format.delimiter);
        if self.format.wants_ends && !has_end {
            let (name, unit) = (&self.name, self.format.unit());
            return Err(Failure::new(format!(
                "{name}: the last {unit} has no end and was left out; end it and run the command again, or append it \
                 without --resume"
            )));
        }
        self.at.add(&raw);
        if has_end {
            raw.pop();
        }
        Ok(Some(raw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(input: &'static [u8], delimiter: u8) -> Reader<&'static [u8]> {
        let format = Format { input: InputFormat::Lines, delimiter, key: None, wants_ends: false };
        Reader { source: BufReader::new(input), name: "input".into(), format, at: Prefix::default() }
    }

    fn records(chunk: Vec<Result<Item, Failure>>) -> Vec<Record> {
        chunk.into_iter().map(|item| item.unwrap().record).collect()
    }

    fn all(parts: &[&'static [u8]]) -> Vec<Record> {
        parts.iter().map(|part| Record::from(*part)).collect()
    }

    #[test]
    fn lines_are_taken_as_they_are() {
        let mut reader = reader(b"a\n\n\0b\r\nlast", b'\n');
        assert_eq!(records(reader.chunk()), all(&[b"a", b"", b"\0b\r", b"last"]));
        assert!(reader.chunk().is_empty());
    }

    #[test]
    fn records_may_end_with_a_nul() {
        assert_eq!(records(reader(b"a\nb\0\0c", 0).chunk()), all(&[b"a\nb", b"", b"c"]));
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
        let chunk = reader.chunk();
        assert_eq!(chunk[0].as_ref().unwrap().record, Record::from("a"));
        let Err(Failure::Message(wrong)) = &chunk[1] else { panic!("it has no end") };
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
}
