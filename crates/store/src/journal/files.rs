//! Which file a batch goes to: the end of the current one, or the start of the next.

use std::collections::VecDeque;

use bytes::Bytes;

use super::batch::{FILE_HEADER_BYTES, FILE_MAGIC, FileIdentity, PendingBatch};
use super::write::{JournalWrite, PREPARED_FROM, Preparation, Step};
use super::{JournalIdentity, Lsn, Secret};
use crate::format::encode_header;

/// The directory of the journal.
pub(super) const DIRECTORY: &str = "journal";

/// The name of the file with this number.
pub(super) fn file_name(number: u32) -> String {
    format!("{DIRECTORY}/{number:04}")
}

/// A file in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveFile {
    pub(super) number: u32,
    pub(super) sequence: u64,
    /// The mark of its batches. A file of a version without salts has none.
    pub(super) salt: Option<u64>,
    /// Its batches start at multiples of this, in bytes; the first behind the header.
    pub(super) block: u64,
    /// The first entry of its first batch.
    pub(super) first: Lsn,
    /// Whether its header says that it is of the newest version, as every entry in it must be.
    pub(super) is_newest: bool,
}

impl LiveFile {
    /// The mark in each of its batches.
    pub(super) fn mark(&self) -> u64 {
        self.salt.unwrap_or(self.sequence)
    }

    /// The mark of the next batch, unless the file has other blocks or is of an older version and
    /// takes no more.
    fn takes_batches(&self, block: u64) -> Option<u64> {
        self.salt.filter(|_| self.is_newest && self.block == block)
    }
}

/// A file that waits for its next use.
#[derive(Clone, Debug)]
pub(super) struct SpareFile {
    pub(super) number: u32,
    /// How its blocks come to be there; nothing if they all are.
    pub(super) preparation: Option<Preparation>,
}

/// The files of a journal.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) identity: JournalIdentity,
    pub(super) secret: Secret,
    pub(super) file_bytes: u64,
    /// Batches of new files start at multiples of this, in bytes.
    pub(super) block: u64,
    /// In the order of their sequence numbers, which have no gaps. The last takes the next batch.
    pub(super) live: VecDeque<LiveFile>,
    pub(super) spare: Vec<SpareFile>,
    /// Files to be deleted with the next write.
    pub(super) doomed: Vec<u32>,
    /// Where the next batch goes in the last live file, in bytes.
    pub(super) end: u64,
    /// The number that the next new file gets.
    pub(super) next_number: u32,
    /// Whether the next batch begins a file, which has nothing of an earlier use.
    begins_anew: bool,
}

impl Files {
    pub(super) fn new(identity: JournalIdentity, secret: Secret, file_bytes: u64, block: u64) -> Self {
        Self {
            identity,
            secret,
            file_bytes,
            block,
            live: VecDeque::new(),
            spare: vec![],
            doomed: vec![],
            end: 0,
            next_number: 1,
            begins_anew: false,
        }
    }

    /// Gives a batch its place, and says what is to be done to write it there.
    pub(super) fn place(&mut self, batch: PendingBatch) -> JournalWrite {
        let mut steps = self.deletions();
        let (block, bytes) = (self.block, batch.padded_bytes(self.block));
        match self.live.back().and_then(|file| Some((file.number, file.takes_batches(block)?))) {
            // A block is left for the note that another file follows.
            Some((number, mark)) if !self.begins_anew && self.end + bytes + block <= self.file_bytes => {
                let name = file_name(number);
                let chunks = batch.seal(mark, block);
                steps.push(Step::Write { name: name.clone(), offset: self.end, chunks });
                steps.push(Step::Sync { name });
                self.end += bytes;
            }
            _ => self.start_file(batch, &mut steps),
        }
        JournalWrite { steps, next_file: self.next_file() }
    }

    fn deletions(&mut self) -> Vec<Step> {
        self.doomed.drain(..).map(|number| Step::Delete { name: file_name(number) }).collect()
    }

    /// Deletes what is superfluous, where no batch is to be written; nothing if there is no such
    /// file.
    pub(super) fn delete_doomed(&mut self) -> Option<JournalWrite> {
        let steps = self.deletions();
        (!steps.is_empty()).then_some(JournalWrite { steps, next_file: None })
    }

    /// The file that is needed when this one is full. Zeros that are written when a batch waits for
    /// them hold up everyone; so another file is thought of early in one, and grows as this one
    /// fills.
    fn next_file(&mut self) -> Option<Preparation> {
        if self.spare.is_empty() && self.end > self.file_bytes / PREPARED_FROM {
            let file = self.new_file();
            self.spare.push(file);
        }
        let preparation = self.spare.last()?.preparation.as_ref()?;
        preparation.keep_up_with(self.end, self.file_bytes);
        Some(preparation.clone())
    }

    /// Whether files could be used again that are needed.
    pub(super) fn needs_file(&self) -> bool {
        self.live.len() > 1 && self.ready() == 0
    }

    /// How many files are ready for their next use.
    pub(super) fn ready(&self) -> usize {
        self.spare.iter().filter(|file| file.preparation.is_none()).count()
    }

    /// Keeps so many of the files that are ready for their next use, and deletes the others with
    /// the next write.
    pub(super) fn keep_spares(&mut self, most: usize) {
        let mut ready = 0;
        let doomed = &mut self.doomed;
        self.spare.retain(|file| {
            ready += usize::from(file.preparation.is_none());
            let stays = file.preparation.is_some() || ready <= most;
            if !stays {
                doomed.push(file.number);
            }
            stays
        });
    }

    /// Has the next batch begin a file without an earlier use, and deletes the files that are ready
    /// for another one.
    pub(super) fn begin_anew(&mut self) {
        self.begins_anew = true;
        self.keep_spares(0);
    }

    fn new_file(&mut self) -> SpareFile {
        let number = self.next_number;
        self.next_number += 1;
        SpareFile { number, preparation: Some(Preparation::new(file_name(number), self.file_bytes)) }
    }

    /// Places a batch at the start of the next file, together with the file's header.
    fn start_file(&mut self, batch: PendingBatch, steps: &mut Vec<Step>) {
        self.begins_anew = false;
        let spare = self.spare.pop().unwrap_or_else(|| self.new_file());
        let sequence = self.live.back().map_or(1, |file| file.sequence + 1);
        let name = file_name(spare.number);
        steps.extend(spare.preparation.map(Step::Prewrite));
        let (salt, first) = (self.secret.salt(sequence), batch.first());
        let note = self.note_of_follower(first);
        let block = self.block;
        let number = spare.number;
        self.live.push_back(LiveFile { number, sequence, salt: Some(salt), block, first, is_newest: true });
        self.end = block + batch.padded_bytes(block);
        let JournalIdentity { cluster, node } = self.identity;
        let identity = FileIdentity { cluster, node, sequence, first: first.0, salt, block };
        let mut chunks = vec![encode_header(FILE_MAGIC, &identity, FILE_HEADER_BYTES as usize)];
        chunks.push(Bytes::from(vec![0; (block - FILE_HEADER_BYTES) as usize]));
        chunks.extend(batch.seal(salt, block));
        steps.push(Step::Write { name: name.clone(), offset: 0, chunks });
        steps.push(Step::Sync { name });
        steps.extend(note);
    }

    /// Notes at the end of the last file that another file follows, whose first entry is `first`.
    /// The journal writes the note when the new file is durable: a recovery that finds the note and
    /// no next file knows that files are missing. No sync waits for the note: a power loss may take
    /// it, and recovery then judges by the files alone. A file that has no room for the note, or
    /// takes no batches, gets none.
    fn note_of_follower(&self, first: Lsn) -> Option<Step> {
        let file = self.live.back()?;
        let mark = file.takes_batches(self.block).filter(|_| self.end + self.block <= self.file_bytes)?;
        let (name, chunks) = (file_name(file.number), PendingBatch::new(first).seal(mark, self.block));
        Some(Step::Write { name, offset: self.end, chunks })
    }

    /// Frees the files whose entries are all below `start`: `spares` of them stay for their next
    /// use.
    pub(super) fn release_below(&mut self, start: Lsn, spares: usize) {
        while self.live.get(1).is_some_and(|second| second.first <= start) {
            let file = self.live.pop_front().expect("there are two");
            if self.spare.len() < spares {
                self.spare.push(SpareFile { number: file.number, preparation: None });
            } else {
                self.doomed.push(file.number);
            }
        }
    }
}
