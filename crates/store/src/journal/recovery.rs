//! Recovery of the journal after a crash.
//!
//! Recovery reads the gapless run of files with the highest sequence numbers, in order. Entry
//! numbers must have no gap either:
//!
//! - The last batch may be torn: then no higher entry number follows it in any file, because one
//!   batch was on its way at a time. Recovery cuts it off.
//! - The last file must not note that another one follows.
//! - Any other missing entry is damage, unless a checkpoint replaces it.
//!
//! An accepted batch must not disappear later, and a cut-off batch must not come back:
//!
//! - The last batch is written again and synced. Its bytes may exist in the page cache alone, and
//!   after a failed sync even as clean pages.
//! - Zeros overwrite the start of the cut-off bytes. Otherwise their header could match remains of
//!   their body when a later batch at that place is torn.
//!
//! Bytes behind the last batch may come from a client. Recovery accepts none without the salt of
//! the file's use. Remains in a file whose header never became durable are harmless too: the next
//! use may repeat the sequence number, but has another salt.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::batch::{
    Batch, BatchHeader, Entry, FILE_HEADER_BYTES, FILE_MAGIC, FileIdentity, LEAST_BLOCK_BYTES,
};
use super::files::{DIRECTORY, Files, LiveFile, SpareFile, file_name};
use super::write::Preparation;
use super::{JournalIdentity, Lsn, Recovered, RoleKey, Secret};
use crate::disk::Disk;
use crate::error::OpenError;
use crate::format::{SALTED_JOURNALS, VERSION, decode_header, is_blank, version_of};

const MOST_BLOCK_BYTES: u64 = 1 << 20;

#[derive(Debug)]
struct Snapshot {
    key: RoleKey,
    /// The snapshot replaces the role's entries before this one.
    at: Lsn,
    pieces: Vec<Bytes>,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) files: Files,
    pub(super) next: Lsn,
    pub(super) recovered: Recovered,
}

/// Reads the journal. Makes the accepted entries, and the cut-off of a torn batch, durable.
pub(super) fn recover(
    disk: &dyn Disk,
    identity: JournalIdentity,
    secret: Secret,
    (file_bytes, block): (u64, u64),
) -> Result<Found, OpenError> {
    let mut files = survey(disk, Files::new(identity, secret, file_bytes, block))?;
    let mut contents = Contents::new(files.live.front().map_or(Lsn(1), |file| file.first));
    for index in 0..files.live.len() {
        let next_first = files.live.get(index + 1).map(|next| next.first);
        contents.read_file(disk, files.live[index], next_first)?;
    }
    let start = contents.check_complete(&files)?;
    files.end = contents.end;
    contents.complete_recovery(disk)?;
    files.release_below(start, usize::MAX);
    Ok(Found { files, next: contents.next, recovered: contents.recovered(start) })
}

/// Whether any file was ever used, by any owner.
pub(super) fn has_files(disk: &dyn Disk) -> Result<bool, OpenError> {
    for entry in disk.list(DIRECTORY).map_err(OpenError::io(DIRECTORY))? {
        let name = format!("{DIRECTORY}/{entry}");
        let header = disk.read_at(&name, 0, FILE_HEADER_BYTES as usize).map_err(OpenError::io(&name))?;
        if !is_blank(&header) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn survey(disk: &dyn Disk, mut files: Files) -> Result<Files, OpenError> {
    let Files { identity, file_bytes, .. } = files;
    let mut used = Vec::new();
    for entry in disk.list(DIRECTORY).map_err(OpenError::io(DIRECTORY))? {
        let Ok(number) = entry.parse::<u32>() else { continue };
        files.next_number = files.next_number.max(number.saturating_add(1));
        match read_header(disk, number, identity)? {
            Some(file) => used.push(file),
            None => files.spare.push(spare(disk, number, file_bytes)?),
        }
    }
    used.sort_unstable_by_key(|file| std::cmp::Reverse(file.sequence));
    for file in used {
        match files.live.front() {
            Some(later) if later.sequence == file.sequence => {
                let what = "two files have the same sequence number";
                return Err(OpenError::damaged(&file_name(file.number), 0, what));
            }
            Some(later) if later.sequence != file.sequence + 1 => {
                files.spare.push(spare(disk, file.number, file_bytes)?);
            }
            _ => files.live.push_front(file),
        }
    }
    Ok(files)
}

/// A file as its header describes it. `None` if never used.
fn read_header(
    disk: &dyn Disk,
    number: u32,
    identity: JournalIdentity,
) -> Result<Option<LiveFile>, OpenError> {
    let name = file_name(number);
    let header = disk.read_at(&name, 0, FILE_HEADER_BYTES as usize).map_err(OpenError::io(&name))?;
    if is_blank(&header) {
        return Ok(None);
    }
    let found: FileIdentity = decode_header(&name, FILE_MAGIC, &header)?;
    let owner = JournalIdentity { cluster: found.cluster, node: found.node };
    if owner != identity {
        let describe = |who: JournalIdentity| format!("node {} of cluster {:032x}", who.node, who.cluster);
        return Err(OpenError::Foreign { file: name, found: describe(owner), expected: describe(identity) });
    }
    let salt = (version_of(&header) >= SALTED_JOURNALS).then_some(found.salt);
    let block = if found.block == 0 { LEAST_BLOCK_BYTES } else { found.block };
    if block % LEAST_BLOCK_BYTES != 0 || block > MOST_BLOCK_BYTES {
        return Err(OpenError::damaged(&name, 0, "the header names blocks of a size that cannot be"));
    }
    let (first, is_newest) = (Lsn(found.first), version_of(&header) == VERSION);
    Ok(Some(LiveFile { number, sequence: found.sequence, salt, block, first, is_newest }))
}

fn spare(disk: &dyn Disk, number: u32, file_bytes: u64) -> Result<SpareFile, OpenError> {
    let name = file_name(number);
    let len = disk.len(&name).map_err(OpenError::io(&name))?;
    let preparation = (len < file_bytes).then(|| Preparation::new(name, file_bytes));
    Ok(SpareFile { number, preparation })
}

fn clear_header(disk: &dyn Disk, name: &str, offset: u64) -> Result<(), OpenError> {
    let zeros = Bytes::from_static(&[0; LEAST_BLOCK_BYTES as usize]);
    disk.write_at(name, offset, &[zeros]).map_err(OpenError::io(name))
}

#[derive(Debug)]
struct Contents {
    next: Lsn,
    entries: Vec<(Lsn, RoleKey, Bytes)>,
    /// Start and snapshots of a checkpoint whose end marker was not read yet.
    building: (Lsn, Vec<Snapshot>),
    complete: Option<(Lsn, Vec<Snapshot>)>,
    missing: Vec<Missing>,
    /// The last file's name and bytes, and the start of its last valid batch.
    last: Option<(String, Bytes, u64)>,
    /// End of the last file's valid batches, in bytes.
    end: u64,
}

#[derive(Debug)]
struct Missing {
    file: String,
    offset: u64,
    end: Lsn,
}

impl Contents {
    fn new(next: Lsn) -> Self {
        Self {
            next,
            entries: vec![],
            building: (Lsn(0), vec![]),
            complete: None,
            missing: vec![],
            last: None,
            end: 0,
        }
    }

    fn read_file(
        &mut self,
        disk: &dyn Disk,
        file: LiveFile,
        next_first: Option<Lsn>,
    ) -> Result<(), OpenError> {
        let name = file_name(file.number);
        let len = disk.len(&name).map_err(OpenError::io(&name))?;
        let bytes = disk.read_at(&name, 0, len as usize).map_err(OpenError::io(&name))?;
        let (mut offset, mut last, mut is_followed) = (file.block, file.block, false);
        while let Some(batch) = Batch::at(&bytes, offset, file.block) {
            if batch.header.mark != file.mark() || batch.header.first != self.next {
                break;
            }
            last = offset;
            offset += batch.header.padded_bytes(file.block);
            is_followed = batch.is_note_of_follower();
            self.take(batch).map_err(|what| OpenError::damaged(&name, last, what))?;
        }
        match next_first {
            Some(first) if first < self.next => {
                return Err(OpenError::damaged(&name, offset, "the next file starts inside this one"));
            }
            Some(first) if first > self.next => {
                self.missing.push(Missing { file: name.clone(), offset, end: first });
                self.next = first;
            }
            Some(_) => {}
            None if is_followed => {
                let what = "the files after this one are missing; put them back";
                return Err(OpenError::damaged(&name, last, what));
            }
            None if has_later_batch(&bytes, offset, file, self.next) => {
                return Err(OpenError::damaged(
                    &name,
                    offset,
                    "a batch is unreadable, and later ones follow",
                ));
            }
            None => {}
        }
        self.last = Some((name, bytes, last));
        self.end = offset;
        Ok(())
    }

    fn take(&mut self, batch: Batch) -> Result<(), &'static str> {
        let mut lsn = batch.header.first;
        let end = batch.end();
        for entry in batch.entries().map_err(|_| "a batch is not readable")? {
            match entry {
                Entry::Ordinary { key, bytes } => self.entries.push((lsn, key, bytes)),
                Entry::SnapshotOfStart { start, key, bytes } => {
                    self.take_snapshot(Lsn(start), key, Lsn(start), bytes)
                }
                Entry::Snapshot { start, key, bytes } => self.take_snapshot(Lsn(start), key, lsn, bytes),
                Entry::End { start } => self.take_end(Lsn(start)),
            }
            lsn.0 += 1;
        }
        self.next = end;
        Ok(())
    }

    fn take_snapshot(&mut self, start: Lsn, key: RoleKey, at: Lsn, piece: Bytes) {
        if self.building.0 != start {
            self.building = (start, vec![]);
        }
        match self.building.1.last_mut() {
            Some(last) if last.key == key => last.pieces.push(piece),
            _ => self.building.1.push(Snapshot { key, at, pieces: vec![piece] }),
        }
    }

    fn take_end(&mut self, start: Lsn) {
        let (built, snapshots) = std::mem::replace(&mut self.building, (Lsn(0), vec![]));
        let snapshots = if built == start { snapshots } else { vec![] };
        let held: BTreeMap<RoleKey, Lsn> =
            snapshots.iter().map(|snapshot| (snapshot.key, snapshot.at)).collect();
        self.complete = Some((start, snapshots));
        self.entries.retain(|(lsn, key, _)| lsn >= held.get(key).unwrap_or(&start));
    }

    /// Returns the first entry that no checkpoint replaces. Fails if an entry from there on is
    /// missing.
    fn check_complete(&self, files: &Files) -> Result<Lsn, OpenError> {
        let start = self.complete.as_ref().map_or(Lsn(1), |(start, _)| *start);
        if let Some(file) = files.live.front().filter(|file| file.first > start) {
            let what = "the files before this one are missing";
            return Err(OpenError::damaged(&file_name(file.number), 0, what));
        }
        match self.missing.iter().find(|missing| missing.end > start) {
            Some(Missing { file, offset, .. }) => {
                Err(OpenError::damaged(file, *offset, "a batch is unreadable, and later ones follow"))
            }
            None => Ok(start),
        }
    }

    fn complete_recovery(&self, disk: &dyn Disk) -> Result<(), OpenError> {
        let Some((name, bytes, last)) = &self.last else { return Ok(()) };
        if *last < self.end {
            let batch = bytes.slice(*last as usize..self.end as usize);
            disk.write_at(name, *last, &[batch]).map_err(OpenError::io(name))?;
        }
        if bytes.get(self.end as usize..).is_some_and(|rest| BatchHeader::decode(rest).is_some()) {
            clear_header(disk, name, self.end)?;
        }
        disk.sync(name).map_err(OpenError::io(name))
    }

    fn recovered(self, start: Lsn) -> Recovered {
        let entries = self.entries.into_iter().filter(|(lsn, ..)| *lsn >= start);
        let snapshots = self.complete.map_or_else(Vec::new, |(_, snapshots)| snapshots);
        Recovered {
            snapshots: snapshots.into_iter().map(|Snapshot { key, pieces, .. }| (key, pieces)).collect(),
            entries: entries.map(|(_, key, bytes)| (key, bytes)).collect(),
        }
    }
}

/// Whether this use of the file has, after `offset`, a batch whose entries are numbered above
/// `next`.
fn has_later_batch(bytes: &Bytes, offset: u64, file: LiveFile, next: Lsn) -> bool {
    let blocks = bytes.get(offset as usize..).unwrap_or_default().chunks(file.block as usize);
    let mut headers = blocks.skip(1).filter_map(BatchHeader::decode);
    headers.any(|header| header.mark == file.mark() && header.first > next)
}
