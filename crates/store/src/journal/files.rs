//! Places batches: at the end of the current file, or at the start of the next.

use std::collections::VecDeque;

use bytes::Bytes;

use super::batch::{FILE_HEADER_BYTES, FILE_MAGIC, FileIdentity, PendingBatch};
use super::write::{JournalWrite, PREPARED_FROM, Preparation, Step};
use super::{JournalIdentity, Lsn, Secret};
use crate::format::encode_header;

pub(super) const DIRECTORY: &str = "journal";

pub(super) fn file_name(number: u32) -> String {
    format!("{DIRECTORY}/{number:04}")
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LiveFile {
    pub(super) number: u32,
    pub(super) sequence: u64,
    /// The mark of the file's batches. `None` in versions without salts, where the sequence number
    /// is the mark.
    pub(super) salt: Option<u64>,
    /// Alignment of its batches, in bytes.
    pub(super) block: u64,
    pub(super) first: Lsn,
    /// Whether it has the newest version, which further entries require.
    pub(super) is_newest: bool,
}

impl LiveFile {
    pub(super) fn mark(&self) -> u64 {
        self.salt.unwrap_or(self.sequence)
    }

    /// The mark for the next batch. `None` if the file takes no more: its block length or version
    /// is not the present one.
    fn takes_batches(&self, block: u64) -> Option<u64> {
        self.salt.filter(|_| self.is_newest && self.block == block)
    }
}

#[derive(Clone, Debug)]
pub(super) struct SpareFile {
    pub(super) number: u32,
    /// The preparation that still writes the file's zeros. `None` if the file has its full length.
    pub(super) preparation: Option<Preparation>,
}

#[derive(Debug)]
pub(super) struct Files {
    pub(super) identity: JournalIdentity,
    pub(super) secret: Secret,
    pub(super) file_bytes: u64,
    /// Alignment in new files, in bytes.
    pub(super) block: u64,
    /// Files with entries that recovery needs, by sequence number without gaps. The last takes the
    /// next batch.
    pub(super) live: VecDeque<LiveFile>,
    pub(super) spare: Vec<SpareFile>,
    pub(super) doomed: Vec<u32>,
    /// End of the last live file's batches, in bytes.
    pub(super) end: u64,
    pub(super) next_number: u32,
    /// Whether the next batch must start a new, unrecycled file.
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

    pub(super) fn place(&mut self, batch: PendingBatch) -> JournalWrite {
        let mut steps = self.deletions();
        let (block, bytes) = (self.block, batch.padded_bytes(self.block));
        match self.live.back().and_then(|file| Some((file.number, file.takes_batches(block)?))) {
            // A block stays free for the note that another file follows.
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

    pub(super) fn delete_doomed(&mut self) -> Option<JournalWrite> {
        let steps = self.deletions();
        (!steps.is_empty()).then_some(JournalWrite { steps, next_file: None })
    }

    /// The preparation of the next file. It starts early and proceeds as the current file fills,
    /// because a batch that waits for zeros delays all writers.
    fn next_file(&mut self) -> Option<Preparation> {
        if self.spare.is_empty() && self.end > self.file_bytes / PREPARED_FROM {
            let file = self.new_file();
            self.spare.push(file);
        }
        let preparation = self.spare.last()?.preparation.as_ref()?;
        preparation.keep_up_with(self.end, self.file_bytes);
        Some(preparation.clone())
    }

    pub(super) fn needs_file(&self) -> bool {
        self.live.len() > 1 && self.ready() == 0
    }

    pub(super) fn ready(&self) -> usize {
        self.spare.iter().filter(|file| file.preparation.is_none()).count()
    }

    /// Keeps at most `most` files that are ready for reuse; the next write deletes the others.
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

    /// Makes the next batch start a new file, and deletes the recycled ones.
    pub(super) fn begin_anew(&mut self) {
        self.begins_anew = true;
        self.keep_spares(0);
    }

    fn new_file(&mut self) -> SpareFile {
        let number = self.next_number;
        self.next_number += 1;
        SpareFile { number, preparation: Some(Preparation::new(file_name(number), self.file_bytes)) }
    }

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

    /// Notes at the end of the last file that another one follows, starting with entry `first`.
    /// Written when the new file is durable: a recovery that finds the note without the next file
    /// knows that files are missing. The note is not synced; without it recovery judges by the
    /// files alone. A file without room, or which takes no batches, gets none.
    fn note_of_follower(&self, first: Lsn) -> Option<Step> {
        let file = self.live.back()?;
        let mark = file.takes_batches(self.block).filter(|_| self.end + self.block <= self.file_bytes)?;
        let (name, chunks) = (file_name(file.number), PendingBatch::new(first).seal(mark, self.block));
        Some(Step::Write { name, offset: self.end, chunks })
    }

    /// Frees files with entries before `start` only. Adds them to the spare files while these are
    /// fewer than `spares`; the next write deletes the others.
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
