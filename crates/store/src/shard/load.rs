//! Opening a store: what its files hold, and how far they are believed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use seriatim_model::Position;
use seriatim_model::storage::ShardMemory;
use seriatim_model::wire::decode_one;

use super::binding::Binding;
use super::index::{Index, IndexRun};
use super::segment::{
    ActiveSegment, AppendFile, BINDINGS_MAGIC, FOOTER_BYTES, FileIdentity, Frames, HEADER_BYTES, Put,
    RECORDS_MAGIC, Trusted,
};
use super::trim::TrimFile;
use super::{OpenMode, Owner, Place, Remembered, ShardCheckpoint, ShardOptions, ShardStore, StoreError};
use crate::error::OpenError;
use crate::format::{Magic, VERSION, decode_frame, decode_header, is_blank};

/// Opens a store or makes an empty one.
pub(super) fn open(place: Place, mode: OpenMode, options: ShardOptions) -> Result<ShardStore, OpenError> {
    let is_write_behind = matches!(mode, OpenMode::WriteBehind);
    let checkpoint = match mode {
        OpenMode::WriteBehind => None,
        OpenMode::Journaled { checkpoint: Some(bytes) } => Some(decode_checkpoint(&place, bytes)?),
        OpenMode::Journaled { checkpoint: None } => {
            place.disk.delete_dir(&place.dir).map_err(OpenError::io(&place.dir))?;
            None
        }
    };
    let mut trim = TrimFile::open(&place)?;
    if let Some(checkpoint) = &checkpoint {
        trim.raise_to(checkpoint.trim);
    }
    let mut loader = Loader::new(place, trim.first_segment());
    let active = match checkpoint {
        Some(checkpoint) => loader.load_checkpoint(checkpoint)?,
        None => loader.load_what_is_whole()?,
    };
    loader.index.trim(trim.position());
    loader.remembered.believe_start();
    if is_write_behind {
        let Loader { remembered, index, place, .. } = &mut loader;
        remembered.stable = remembered.first_hole(place.owner.shard, index, trim.position());
    }
    // A checkpoint counts only when the segments before its active one are durable.
    let first_unsynced = if is_write_behind { 0 } else { active.number };
    let segments =
        loader.segments.range(first_unsynced..).map(|(number, _)| loader.place.segment_files(*number));
    let unsynced: BTreeSet<String> = segments.flatten().chain([trim.name().to_owned()]).collect();
    Ok(ShardStore {
        unsynced,
        place: loader.place,
        options,
        remembered: loader.remembered,
        index: loader.index,
        segments: loader.segments,
        active,
        trim,
        failure: None,
    })
}

fn decode_checkpoint(place: &Place, bytes: Bytes) -> Result<ShardCheckpoint, OpenError> {
    let checkpoint: ShardCheckpoint = decode_one(bytes)
        .map_err(|_| OpenError::damaged(&place.dir, 0, "its checkpoint in the journal is not readable"))?;
    if checkpoint.version != VERSION {
        return Err(OpenError::Version {
            file: place.dir.clone(),
            found: checkpoint.version,
            known: VERSION,
        });
    }
    Ok(checkpoint)
}

impl Place {
    /// Whether a file belongs to this store.
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

    /// Up to `len` bytes of a file; none if there is no file.
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

    /// The numbers of the segments that have a file, in order.
    fn segment_numbers(&self) -> Result<Vec<u32>, OpenError> {
        let names = self.disk.list(&self.dir).map_err(OpenError::io(&self.dir))?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.dedup();
        Ok(numbers)
    }

    fn delete_segment(&self, number: u32) -> Result<(), OpenError> {
        self.segment_files(number)
            .iter()
            .try_for_each(|name| self.disk.delete(name).map_err(OpenError::io(name)))
    }
}

/// The number in a name like `seg-00000001.records`.
fn segment_number(name: &str) -> Option<u32> {
    name.strip_prefix("seg-")?.split('.').next()?.parse().ok()
}

/// Collects what the files hold.
#[derive(Debug)]
struct Loader {
    place: Place,
    /// The oldest segment that was not deleted.
    first_segment: u32,
    segments: BTreeMap<u32, Position>,
    /// How long the records of each segment are, in bytes.
    lengths: BTreeMap<u32, u64>,
    remembered: Remembered,
    index: Index,
}

/// Why a binding log is not read on.
#[derive(Debug)]
struct Stop {
    offset: u64,
    what: &'static str,
}

impl Loader {
    fn new(place: Place, first_segment: u32) -> Self {
        Self {
            place,
            first_segment,
            segments: BTreeMap::new(),
            lengths: BTreeMap::new(),
            remembered: Remembered::default(),
            index: Index::default(),
        }
    }

    /// Brings the store to the checkpoint's instant, and removes what came later.
    fn load_checkpoint(&mut self, checkpoint: ShardCheckpoint) -> Result<ActiveSegment, OpenError> {
        for number in self.place.segment_numbers()? {
            if number < self.first_segment || number > checkpoint.segment {
                self.place.delete_segment(number)?;
            }
        }
        let ShardCheckpoint { segment: number, records, bindings, memory, stable, lacks, .. } = checkpoint;
        if number < self.first_segment {
            self.remembered = Remembered { memory, stable, lacks };
            return self.create(self.first_segment);
        }
        for sealed in self.first_segment..number {
            self.load_sealed(sealed)?;
        }
        let active = ActiveSegment {
            number,
            records: AppendFile::new(self.place.records_file(number), records),
            bindings: AppendFile::new(self.place.bindings_file(number), bindings),
        };
        self.load_trusted(&active)?;
        self.remembered = Remembered { memory, stable, lacks };
        Ok(active)
    }

    /// Loads the active segment of a checkpoint, and cuts off what came later.
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
        self.lengths.insert(number, active.records.len());
        self.segments.entry(number).or_default();
        let name = active.bindings.name();
        let bytes = self.place.read(name, 0, active.bindings.len())?;
        self.check_whole(name, &bytes, active.bindings.trusted())
    }

    /// Loads a segment that has its footers.
    fn load_sealed(&mut self, number: u32) -> Result<(), OpenError> {
        let [records, bindings] = self.place.segment_files(number);
        let sealed = "the footer of a sealed file is damaged";
        for (name, magic) in [(&records, RECORDS_MAGIC), (&bindings, BINDINGS_MAGIC)] {
            let len = self.place.len(name)?;
            let header = self.place.read(name, 0, HEADER_BYTES)?;
            self.place.check_header(name, magic, number, &header)?;
            let trusted = self.footer(name, len)?;
            let trusted = trusted.ok_or_else(|| OpenError::damaged(name, len, sealed))?;
            if magic == RECORDS_MAGIC {
                self.lengths.insert(number, trusted.len);
                self.segments.entry(number).or_default();
            } else {
                let bytes = self.place.read(name, 0, trusted.len)?;
                self.check_whole(name, &bytes, trusted)?;
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

    /// Takes a binding log of which nothing may be missing.
    fn check_whole(&mut self, name: &str, bytes: &Bytes, trusted: Trusted) -> Result<(), OpenError> {
        let (entries, stop) = self.take_bindings(bytes);
        match stop {
            Some(Stop { offset, what }) => Err(OpenError::damaged(name, offset, what)),
            None if Trusted::of(bytes, entries) != trusted => {
                Err(OpenError::damaged(name, trusted.len, "the file's checksum or count is wrong"))
            }
            None => Ok(()),
        }
    }

    /// Takes the entries of a binding log up to the first that is not whole. Returns how many there
    /// were, and where it stopped before the end.
    fn take_bindings(&mut self, bytes: &Bytes) -> (u64, Option<Stop>) {
        let (mut offset, mut entries) = (HEADER_BYTES, 0);
        while offset < bytes.len() as u64 {
            let rest = bytes.slice(offset as usize..);
            let Some((binding, len)) = decode_frame::<Binding>(&rest) else {
                return (entries, Some(Stop { offset, what: "an entry is damaged" }));
            };
            if self.take_binding(binding).is_none() {
                return (entries, Some(Stop { offset, what: "an entry names records that are not there" }));
            }
            offset += len as u64;
            entries += 1;
        }
        (entries, None)
    }

    /// Takes an entry; not if it names records that are missing.
    fn take_binding(&mut self, binding: Binding) -> Option<()> {
        match binding {
            Binding::Bind { segment, .. } if segment < self.first_segment => {}
            Binding::Bind { view, first, count, segment, offset, bytes } => {
                let end = u64::from(offset) + u64::from(bytes);
                let last = first.0.checked_add(u64::from(count))?;
                self.lengths.get(&segment).filter(|len| end <= **len && count > 0)?;
                let run = IndexRun::new(segment, Put { first, count, offset, bytes });
                self.index.insert(view, first, run);
                let bound = self.segments.entry(segment).or_default();
                *bound = (*bound).max(Position(last));
            }
            Binding::Stable(position) => self.remembered.stable = self.remembered.stable.max(position),
            Binding::Remember(memory) => self.take_memory(memory),
            Binding::RememberLacking { memory, lacks } => {
                self.take_memory(memory);
                self.remembered.lacks = lacks;
            }
        }
        Some(())
    }

    fn take_memory(&mut self, memory: ShardMemory) {
        self.index.hide(&memory.history);
        self.remembered.memory = Some(memory);
    }

    /// Keeps what is whole, without a checkpoint: only the newest segment may be torn.
    fn load_what_is_whole(&mut self) -> Result<ActiveSegment, OpenError> {
        let mut numbers = self.place.segment_numbers()?;
        for number in numbers.extract_if(.., |number| *number < self.first_segment) {
            self.place.delete_segment(number)?;
        }
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
        let is_sealed = self.footer(&records, self.place.len(&records)?)?.is_some()
            && self.footer(&bindings, self.place.len(&bindings)?)?.is_some();
        if is_sealed {
            self.load_sealed(newest)?;
            return self.create(newest + 1);
        }
        let lengths = (self.place.len(&records)?, self.place.len(&bindings)?);
        let records = self.cut_records(newest, records)?;
        let bindings = self.cut_bindings(newest, bindings)?;
        let active = ActiveSegment { number: newest, records, bindings };
        if (active.records.len(), active.bindings.len()) != lengths {
            self.sync(&active)?;
        }
        Ok(active)
    }

    /// What was cut off cannot come back: an old binding would take new records for its own.
    fn sync(&self, active: &ActiveSegment) -> Result<(), OpenError> {
        [active.bindings.name(), active.records.name()]
            .into_iter()
            .try_for_each(|name| self.place.disk.sync(name).map_err(OpenError::io(name)))
    }

    /// Whether the making of a segment was interrupted: its binding log comes last.
    fn is_unborn(&self, number: u32) -> Result<bool, OpenError> {
        let [records, bindings] = self.place.segment_files(number);
        let header = self.place.start_of(&bindings, HEADER_BYTES)?;
        let is_absent = (header.len() as u64) < HEADER_BYTES || is_blank(&header);
        Ok(is_absent && self.place.start_of(&records, HEADER_BYTES + 1)?.len() as u64 <= HEADER_BYTES)
    }

    /// Cuts the newest records off at the first that is not whole.
    fn cut_records(&mut self, number: u32, name: String) -> Result<AppendFile, OpenError> {
        let bytes = self.read_newest(number, &name, RECORDS_MAGIC)?;
        let mut frames = Frames::new(bytes.slice(HEADER_BYTES as usize..));
        let (mut whole, mut entries) = (HEADER_BYTES as usize, 0);
        while frames.next().is_ok() {
            whole = bytes.len() - frames.remaining();
            entries += 1;
        }
        self.place.truncate(&name, whole as u64)?;
        self.lengths.insert(number, whole as u64);
        self.segments.entry(number).or_default();
        Ok(AppendFile::new(name, Trusted::of(&bytes[..whole], entries)))
    }

    /// Cuts the newest bindings off at the first that is not whole or whose records are not.
    fn cut_bindings(&mut self, number: u32, name: String) -> Result<AppendFile, OpenError> {
        let bytes = self.read_newest(number, &name, BINDINGS_MAGIC)?;
        let (entries, stop) = self.take_bindings(&bytes);
        let whole = stop.map_or(bytes.len() as u64, |stop| stop.offset);
        self.place.truncate(&name, whole)?;
        Ok(AppendFile::new(name, Trusted::of(&bytes[..whole as usize], entries)))
    }

    fn read_newest(&self, number: u32, name: &str, magic: Magic) -> Result<Bytes, OpenError> {
        let bytes = self.place.read(name, 0, self.place.len(name)?.max(HEADER_BYTES))?;
        self.place.check_header(name, magic, number, &bytes.slice(..HEADER_BYTES as usize))?;
        Ok(bytes)
    }

    fn create(&mut self, number: u32) -> Result<ActiveSegment, OpenError> {
        self.segments.entry(number).or_default();
        ActiveSegment::create(&self.place, number, &self.remembered).map_err(|error| match error {
            StoreError::Full { file, source } | StoreError::Failed { file, source } => {
                OpenError::Io { file, source }
            }
            StoreError::FailedEarlier(cause) => {
                unreachable!("a store that is being made has no past: {cause}")
            }
        })
    }
}
