//! Opening a store: which parts of its files are valid.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use seriatim_model::wire::decode_one;
use seriatim_model::{Durability, Position};

use super::binding::{Binding, Bound, OrderPart};
use super::contents::{Contents, start_of_view};
use super::index::IndexRun;
use super::packed::Expected;
use super::removals::Removals;
use super::rewriting::Rewriting;
use super::runs::Stretch;
use super::segment::{
    ActiveSegment, AppendFile, BINDINGS_MAGIC, FOOTER_BYTES, FileIdentity, Frames, HEADER_BYTES,
    RECORDS_MAGIC, Trusted, Written,
};
use super::trim::TrimFile;
use super::{
    BINDINGS_SUFFIX, OpenMode, Owner, Place, Remembered, ShardCheckpoint, ShardOptions, ShardStore,
    StoreError,
};
use crate::error::OpenError;
use crate::format::{
    Magic, PACKED_BINDINGS, TIMED_BINDINGS, VERSION, decode_frame, decode_header, is_blank, version_of,
};

pub(super) fn open(place: Place, mode: OpenMode, options: ShardOptions) -> Result<ShardStore, OpenError> {
    let keeps_what_is_whole = matches!(mode, OpenMode::WriteBehind);
    let checkpoint = match mode {
        OpenMode::WriteBehind => None,
        OpenMode::Journaled { checkpoint: Some(bytes) } => Some(decode_checkpoint(&place, bytes)?),
        OpenMode::Journaled { checkpoint: None } => {
            place.disk.delete_dir(&place.dir).map_err(OpenError::io(&place.dir))?;
            None
        }
    };
    let mut trim = TrimFile::open(&place)?;
    let packed_to = trim.packed_to();
    if let Some(checkpoint) = &checkpoint {
        trim.raise_to(checkpoint.trim);
    }
    let (mut loader, mut active) = match checkpoint {
        Some(checkpoint) => {
            let mut loader = Loader::new(place, &trim, checkpoint.stable);
            let active = loader.load_checkpoint(checkpoint)?;
            (loader, active)
        }
        None => load_what_is_shown(place, &trim)?,
    };
    loader.contents.trim(trim.position(), usize::MAX);
    loader.contents.believe();
    // A checkpoint counts only when the segments before its active one are durable, so only later
    // files need a sync.
    let first_unsynced = if keeps_what_is_whole { 0 } else { active.number };
    let segments = loader.contents.segments().filter(|number| *number >= first_unsynced);
    let segments = segments.map(|number| loader.place.segment_files(number));
    let mut unsynced: BTreeSet<String> = segments.flatten().chain([trim.name().to_owned()]).collect();
    if let Some(next) = loader.succeed_old(&active)? {
        active = next;
        unsynced.extend(loader.place.segment_files(active.number));
    }
    // An earlier incarnation may have left files that it was deleting.
    let removed_to = loader.place.segment_numbers()?.into_iter().chain([trim.first_segment()]).min();
    let removed_to = removed_to.expect("there is at least one");
    // After an orderly close, a store without a journal has a checkpoint too.
    let memory = loader.contents.remembered.memory.as_ref();
    let is_write_behind =
        keeps_what_is_whole || memory.is_some_and(|memory| memory.config.durability == Durability::Memory);
    let replaced = loader.place.replaced_logs(packed_to)?;
    // Without a journal, a power loss may have interrupted a trim.
    let dead_to = if is_write_behind { loader.contents.dead_to(active.number, trim.position()) } else { 0 };
    Ok(ShardStore {
        removals: Removals::new(removed_to, dead_to.max(trim.first_segment()), replaced, is_write_behind),
        rewriting: Rewriting::new(packed_to),
        forgot_trimmed: true,
        unsynced,
        place: loader.place,
        options,
        contents: loader.contents,
        active,
        trim,
        failure: None,
        leaves_at_any_size: false,
        segment_bytes: None,
    })
}

/// Loads the intact data. Lowers the stable bound to the first hole, so that ids of later positions
/// are undecided.
fn load_what_is_shown(place: Place, trim: &TrimFile) -> Result<(Loader, ActiveSegment), OpenError> {
    let load = |believed| {
        let mut loader = Loader::new(place.clone(), trim, believed);
        loader.load_what_is_whole().map(|active| (loader, active))
    };
    let (loader, active) = load(Position(u64::MAX))?;
    let hole = loader.contents.first_hole(trim.position());
    if hole == loader.contents.remembered.stable { Ok((loader, active)) } else { load(hole) }
}

fn decode_checkpoint(place: &Place, bytes: Bytes) -> Result<ShardCheckpoint, OpenError> {
    let mut checkpoint: ShardCheckpoint = decode_one(bytes).map_err(|_| unreadable(place))?;
    if !(1..=VERSION).contains(&checkpoint.version) {
        return Err(OpenError::Version {
            file: place.dir.clone(),
            found: checkpoint.version,
            known: VERSION,
        });
    }
    // The first checkpoints ignored that a view's start is stable.
    checkpoint.stable = checkpoint.stable.max(start_of_view(checkpoint.memory.as_ref()));
    Ok(checkpoint)
}

fn unreadable(place: &Place) -> OpenError {
    OpenError::damaged(&place.dir, 0, "its checkpoint in the journal is not readable")
}

impl Place {
    pub(super) fn check_owner(&self, file: &str, found: Owner) -> Result<(), OpenError> {
        if found == self.owner {
            return Ok(());
        }
        let describe = |owner: Owner| format!("shard {} of log {:016x}", owner.shard, owner.log.0);
        let (found, expected) = (describe(found), describe(self.owner));
        Err(OpenError::Foreign { file: file.to_owned(), found, expected })
    }

    fn len(&self, name: &str) -> Result<u64, OpenError> {
        match self.disk.len(name) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(OpenError::damaged(name, 0, "the file is missing"))
            }
            other => other.map_err(OpenError::io(name)),
        }
    }

    fn read(&self, name: &str, offset: u64, len: u64) -> Result<Bytes, OpenError> {
        let bytes = self.disk.read_at(name, offset, len as usize).map_err(OpenError::io(name))?;
        if (bytes.len() as u64) < len {
            return Err(OpenError::damaged(name, offset + bytes.len() as u64, "the file ends too early"));
        }
        Ok(bytes)
    }

    /// The first `len` bytes of a file. Empty if there is no file.
    fn start_of(&self, name: &str, len: u64) -> Result<Bytes, OpenError> {
        match self.disk.read_at(name, 0, len as usize) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Bytes::new()),
            other => other.map_err(OpenError::io(name)),
        }
    }

    fn truncate(&self, name: &str, len: u64) -> Result<(), OpenError> {
        if self.len(name)? == len {
            return Ok(());
        }
        self.disk.truncate(name, len).map_err(OpenError::io(name))
    }

    fn check_header(&self, name: &str, magic: Magic, segment: u32, header: &Bytes) -> Result<(), OpenError> {
        let identity: FileIdentity = decode_header(name, magic, header)?;
        self.check_owner(name, identity.owner)?;
        match identity.segment == segment {
            true => Ok(()),
            false => Err(OpenError::damaged(name, 0, "the file is another segment's")),
        }
    }

    fn segment_numbers(&self) -> Result<Vec<u32>, OpenError> {
        let names = self.disk.list(&self.dir).map_err(OpenError::io(&self.dir))?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.dedup();
        Ok(numbers)
    }

    /// Segments that still have an old binding log beside a valid packed one.
    fn replaced_logs(&self, packed_to: u32) -> Result<VecDeque<u32>, OpenError> {
        let names = self.disk.list(&self.dir).map_err(OpenError::io(&self.dir))?;
        let old = names.iter().filter(|name| name.ends_with(BINDINGS_SUFFIX));
        Ok(old.filter_map(|name| segment_number(name)).filter(|number| *number < packed_to).collect())
    }

    fn delete_segment(&self, number: u32) -> Result<(), OpenError> {
        self.all_files(number).iter().try_for_each(|name| self.disk.delete(name).map_err(OpenError::io(name)))
    }
}

fn segment_number(name: &str) -> Option<u32> {
    name.strip_prefix("seg-")?.split('.').next()?.parse().ok()
}

#[derive(Debug)]
struct Loader {
    place: Place,
    /// The oldest segment not deleted.
    first_segment: u32,
    /// Packed logs of segments below this number are valid.
    packed_to: u32,
    /// Valid length of each segment's records file, in bytes.
    lengths: BTreeMap<u32, u64>,
    contents: Contents,
}

#[derive(Debug)]
struct Stop {
    offset: u64,
    what: &'static str,
}

impl Loader {
    fn new(place: Place, trim: &TrimFile, believed: Position) -> Self {
        let contents = Contents::new(place.owner.shard, believed);
        let (first_segment, packed_to) = (trim.first_segment(), trim.packed_to());
        Self { place, first_segment, packed_to, lengths: BTreeMap::new(), contents }
    }

    /// Restores the checkpoint and removes later data.
    fn load_checkpoint(&mut self, mut checkpoint: ShardCheckpoint) -> Result<ActiveSegment, OpenError> {
        let given = std::mem::take(&mut checkpoint.given);
        let active = self.load_segments(checkpoint)?;
        for binding in given {
            self.check(&binding).ok_or_else(|| unreadable(&self.place))?;
            self.contents.take(binding, active.number);
        }
        Ok(active)
    }

    fn load_segments(&mut self, checkpoint: ShardCheckpoint) -> Result<ActiveSegment, OpenError> {
        for number in self.place.segment_numbers()? {
            if number >= self.first_segment && number > checkpoint.segment {
                self.place.delete_segment(number)?;
            }
        }
        let ShardCheckpoint { segment: number, records, bindings, memory, stable, missing, times, .. } =
            checkpoint;
        let remembered = Remembered { memory, stable, missing, times };
        if number < self.first_segment {
            self.contents.remembered = remembered;
            return self.create(self.first_segment);
        }
        for sealed in self.first_segment..number {
            self.load_sealed(sealed)?;
        }
        let mut active = ActiveSegment {
            number,
            records: AppendFile::new(self.place.records_file(number), records),
            bindings: AppendFile::new(self.place.bindings_file(number), bindings),
            expected: Expected::default(),
            bindings_began: HEADER_BYTES,
        };
        self.load_trusted(&active)?;
        self.contents.remembered = remembered;
        active.bindings_began = self.bindings_of_a_new_log();
        Ok(active)
    }

    fn load_trusted(&mut self, active: &ActiveSegment) -> Result<(), OpenError> {
        let number = active.number;
        for (file, magic) in [(&active.records, RECORDS_MAGIC), (&active.bindings, BINDINGS_MAGIC)] {
            let (name, trusted) = (file.name(), file.len());
            let len = self.place.len(name)?;
            if len < trusted {
                return Err(OpenError::damaged(name, len, "the file is shorter than its checkpoint says"));
            }
            let header = self.place.read(name, 0, HEADER_BYTES)?;
            self.place.check_header(name, magic, number, &header)?;
            self.place.truncate(name, trusted)?;
        }
        self.add_segment(number, active.records.len());
        let name = active.bindings.name();
        let bytes = self.place.read(name, 0, active.bindings.len())?;
        self.check_whole(number, name, &bytes, active.bindings.trusted())
    }

    fn load_sealed(&mut self, number: u32) -> Result<(), OpenError> {
        let [records, mut bindings] = self.place.segment_files(number);
        if number < self.packed_to {
            bindings = self.place.packed_file(number);
        }
        let sealed = "the footer of a sealed file is damaged";
        for (name, magic) in [(&records, RECORDS_MAGIC), (&bindings, BINDINGS_MAGIC)] {
            let len = self.place.len(name)?;
            let header = self.place.read(name, 0, HEADER_BYTES)?;
            self.place.check_header(name, magic, number, &header)?;
            let trusted = self.footer(name, len)?;
            let trusted = trusted.ok_or_else(|| OpenError::damaged(name, len, sealed))?;
            if magic == RECORDS_MAGIC {
                self.add_segment(number, trusted.len);
            } else {
                let bytes = self.place.read(name, 0, trusted.len)?;
                self.check_whole(number, name, &bytes, trusted)?;
            }
        }
        Ok(())
    }

    fn footer(&self, name: &str, len: u64) -> Result<Option<Trusted>, OpenError> {
        let Some(start) = len.checked_sub(FOOTER_BYTES).filter(|start| *start >= HEADER_BYTES) else {
            return Ok(None);
        };
        Ok(Trusted::from_footer(&self.place.read(name, start, FOOTER_BYTES)?, len))
    }

    fn check_whole(
        &mut self,
        number: u32,
        name: &str,
        bytes: &Bytes,
        trusted: Trusted,
    ) -> Result<(), OpenError> {
        let (entries, stop) = self.take_bindings(number, bytes);
        match stop {
            Some(Stop { offset, what }) => Err(OpenError::damaged(name, offset, what)),
            None if Trusted::of(bytes, entries) != trusted => {
                Err(OpenError::damaged(name, trusted.len, "the file's checksum or count is wrong"))
            }
            None => Ok(()),
        }
    }

    /// Applies a log up to its first damaged entry. Returns the number of entries, and a reason if
    /// it ended early.
    fn take_bindings(&mut self, number: u32, bytes: &Bytes) -> (u64, Option<Stop>) {
        let (mut offset, mut entries) = (HEADER_BYTES as usize, 0);
        let (mut batches, mut batch) = (Batches::of(bytes), vec![]);
        while offset < bytes.len() {
            let stop = |what| Some(Stop { offset: offset as u64, what });
            let Some(len) = batches.next(bytes, offset, &mut batch) else {
                return (entries, stop("an entry is damaged"));
            };
            // A batch counts as a whole: one impossible entry rejects all its entries.
            if batch.iter().any(|binding| self.check(binding).is_none()) {
                return (entries, stop("an entry names records that are not there"));
            }
            offset += len;
            entries += batch.len() as u64;
            batch.drain(..).for_each(|binding| self.contents.take(binding, number));
        }
        (entries, None)
    }

    fn add_segment(&mut self, number: u32, records_len: u64) {
        self.lengths.insert(number, records_len);
        self.contents.add_segment(number);
    }

    /// Checks that an entry's records exist and that its positions and numbers do not overflow.
    fn check(&self, binding: &Binding) -> Option<()> {
        match binding {
            Binding::Bind { first, count, segment, offset, bytes, .. } => {
                first.0.checked_add((*count).into())?;
                let written = Written { count: *count, offset: *offset, bytes: *bytes };
                self.is_there(IndexRun::new(*segment, written)).then_some(())?;
            }
            Binding::Put { first, count, segment, offset, bytes, .. } => {
                first.checked_add((*count).into())?;
                let written = Written { count: *count, offset: *offset, bytes: *bytes };
                self.is_there(IndexRun::new(*segment, written)).then_some(())?;
            }
            Binding::Order { first, parts, .. } => {
                let mut end = first.0;
                for part in parts {
                    end = end.checked_add(part.count())?;
                    if let OrderPart::Here(Bound { ids, place, .. }) = part {
                        ids.first.checked_add(ids.count)?;
                        let fits = |run: &IndexRun| run.count() == ids.count && self.is_there(*run);
                        place.as_ref().is_none_or(fits).then_some(())?;
                    }
                }
            }
            Binding::Refer { first, run, .. } => {
                first.0.checked_add(run.count())?;
                self.is_there(*run).then_some(())?;
            }
            Binding::Ids { first, ids, .. } => {
                first.0.checked_add(ids.count)?;
                ids.first.checked_add(ids.count)?;
            }
            Binding::Map { first, owned, .. } => {
                owned.iter().try_fold(first.0, |end, part| end.checked_add(part.count))?;
            }
            Binding::Stable(_)
            | Binding::Times { .. }
            | Binding::Remember(_)
            | Binding::RememberMissing { .. }
            | Binding::Discard(_) => {}
            Binding::Held { first, run, .. } => {
                first.checked_add(run.count())?;
                self.is_there(*run).then_some(())?;
            }
        }
        Some(())
    }

    /// Whether the run's records exist, or were deleted with their segment.
    fn is_there(&self, run: IndexRun) -> bool {
        let ends_within = |len: &u64| run.end() <= *len;
        run.segment < self.first_segment
            || run.is_sound() && self.lengths.get(&run.segment).is_some_and(ends_within)
    }

    /// Loads the intact data; without a checkpoint only the newest segment may be torn.
    fn load_what_is_whole(&mut self) -> Result<ActiveSegment, OpenError> {
        let mut numbers = self.place.segment_numbers()?;
        numbers.retain(|number| *number >= self.first_segment);
        let Some(newest) = numbers.last().copied() else { return self.create(self.first_segment) };
        for number in self.first_segment..newest {
            self.load_sealed(number)?;
        }
        if self.is_unborn(newest)? {
            let active = self.create(newest)?;
            self.sync(&active)?;
            return Ok(active);
        }
        let [records, bindings] = self.place.segment_files(newest);
        let is_sealed = self.footer(&bindings, self.place.len(&bindings)?)?.is_some();
        if is_sealed && self.records_are_sealed(&records)? {
            self.load_sealed(newest)?;
            return self.create(newest + 1);
        }
        let lengths = (self.place.len(&records)?, self.place.len(&bindings)?);
        let records = self.cut_records(newest, records)?;
        let bindings = self.cut_bindings(newest, bindings)?;
        let bindings_began = self.bindings_of_a_new_log();
        let expected = Expected::default();
        let active = ActiveSegment { number: newest, records, bindings, expected, bindings_began };
        if (active.records.len(), active.bindings.len()) != lengths {
            self.sync(&active)?;
        }
        Ok(active)
    }

    /// Whether the records file has its footer. A power loss may have prevented the footer, and a
    /// client's last record may imitate one.
    fn records_are_sealed(&self, name: &str) -> Result<bool, OpenError> {
        let Some(trusted) = self.footer(name, self.place.len(name)?)? else { return Ok(false) };
        let bytes = self.place.read(name, 0, trusted.len)?;
        Ok(Frames::new(bytes.slice(HEADER_BYTES as usize..)).end_with_one())
    }

    /// Makes a cut durable: an old binding that came back would claim new records.
    fn sync(&self, active: &ActiveSegment) -> Result<(), OpenError> {
        [active.bindings.name(), active.records.name()]
            .into_iter()
            .try_for_each(|name| self.place.disk.sync(name).map_err(OpenError::io(name)))
    }

    /// Whether the segment's creation was interrupted: its binding log is written last.
    fn is_unborn(&self, number: u32) -> Result<bool, OpenError> {
        let [records, bindings] = self.place.segment_files(number);
        let header = self.place.start_of(&bindings, HEADER_BYTES)?;
        let is_absent = (header.len() as u64) < HEADER_BYTES || is_blank(&header);
        Ok(is_absent && self.place.start_of(&records, HEADER_BYTES + 1)?.len() as u64 <= HEADER_BYTES)
    }

    fn cut_records(&mut self, number: u32, name: String) -> Result<AppendFile, OpenError> {
        let bytes = self.read_newest(number, &name, RECORDS_MAGIC)?;
        let mut frames = Frames::new(bytes.slice(HEADER_BYTES as usize..));
        let (mut whole, mut entries) = (HEADER_BYTES as usize, 0);
        while frames.next().is_ok() {
            whole = bytes.len() - frames.remaining();
            entries += 1;
        }
        self.place.truncate(&name, whole as u64)?;
        self.add_segment(number, whole as u64);
        Ok(AppendFile::new(name, Trusted::of(&bytes[..whole], entries)))
    }

    /// Cuts the binding log off at the first entry that is damaged or names damaged records.
    fn cut_bindings(&mut self, number: u32, name: String) -> Result<AppendFile, OpenError> {
        let bytes = self.read_newest(number, &name, BINDINGS_MAGIC)?;
        let (entries, stop) = self.take_bindings(number, &bytes);
        let whole = stop.map_or(bytes.len() as u64, |stop| stop.offset);
        self.place.truncate(&name, whole)?;
        Ok(AppendFile::new(name, Trusted::of(&bytes[..whole as usize], entries)))
    }

    fn read_newest(&self, number: u32, name: &str, magic: Magic) -> Result<Bytes, OpenError> {
        let bytes = self.place.read(name, 0, self.place.len(name)?.max(HEADER_BYTES))?;
        self.place.check_header(name, magic, number, &bytes.slice(..HEADER_BYTES as usize))?;
        Ok(bytes)
    }

    fn bindings_of_a_new_log(&self) -> u64 {
        HEADER_BYTES + Expected::default().batch(&self.contents.initial_bindings()).len() as u64
    }

    /// Seals an active segment of an older version durably and starts the next one: a file has
    /// entries of one version.
    fn succeed_old(&mut self, active: &ActiveSegment) -> Result<Option<ActiveSegment>, OpenError> {
        let name = active.bindings.name();
        if version_of(&self.place.read(name, 0, HEADER_BYTES)?) >= TIMED_BINDINGS {
            return Ok(None);
        }
        active.seal(&*self.place.disk).map_err(not_made)?;
        self.sync(active)?;
        let next = self.create(active.number + 1)?;
        self.sync(&next)?;
        Ok(Some(next))
    }

    fn create(&mut self, number: u32) -> Result<ActiveSegment, OpenError> {
        self.contents.add_segment(number);
        let initial = self.contents.initial_bindings();
        ActiveSegment::create(&self.place, number, &initial).map_err(not_made)
    }
}

fn not_made(error: StoreError) -> OpenError {
    match error {
        StoreError::Full { file, source } | StoreError::Failed { file, source } => {
            OpenError::Io { file, source }
        }
        other => unreachable!("a store that is being made has no past and no commands: {other}"),
    }
}

/// Reads batches: entries that were written together.
#[derive(Debug)]
pub(super) enum Batches {
    /// In version 1 each entry is a frame.
    Frames,
    Packed(Expected),
}

impl Batches {
    pub(super) fn of(file: &[u8]) -> Self {
        match version_of(file) {
            ..PACKED_BINDINGS => Self::Frames,
            _ => Self::Packed(Expected::default()),
        }
    }

    /// Adds the batch at `offset` to `batch` and returns its length in bytes. `None` if it is
    /// damaged.
    pub(super) fn next(&mut self, file: &Bytes, offset: usize, batch: &mut Vec<Binding>) -> Option<usize> {
        match self {
            Self::Packed(expected) => expected.take_batch(&file[offset..], batch),
            Self::Frames => {
                let (binding, len) = decode_frame(&file.slice(offset..))?;
                batch.push(binding);
                Some(len)
            }
        }
    }
}
