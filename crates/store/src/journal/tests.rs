//! The journal against crashes, full disks, damage, clients' payloads, and a simple model.

mod payloads;

use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::files::DIRECTORY;
use super::*;
use crate::disk::MemoryDisk;

const BLOCK_BYTES: u64 = 4096;
const IDENTITY: JournalIdentity = JournalIdentity { cluster: 7, node: NodeId(3) };
const OPTIONS: JournalOptions = JournalOptions {
    file_bytes: 8 * BLOCK_BYTES,
    batch_bytes: 3000,
    checkpoint_bytes: 40_000,
    snapshot_bytes: 3000,
    spare_files: 3,
    block_bytes: BLOCK_BYTES,
};
const KEY: RoleKey = RoleKey { log: LogId(1), endpoint: Endpoint::Sequencer };
const OTHER: RoleKey = RoleKey { log: LogId(2), endpoint: Endpoint::Shard(seriatim_model::ShardId(4)) };

fn secret() -> Secret {
    thread_local! {
        static OPENINGS: Cell<u128> = const { Cell::new(0) };
    }
    OPENINGS.set(OPENINGS.get() + 1);
    Secret::new(OPENINGS.get())
}

fn open_with(disk: &MemoryDisk, options: JournalOptions) -> Result<(Journal, Recovered), OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Journal::open(&disk, IDENTITY, secret(), options)
}

fn try_open(disk: &MemoryDisk) -> Result<(Journal, Recovered), OpenError> {
    open_with(disk, OPTIONS)
}

fn open(disk: &MemoryDisk) -> (Journal, Recovered) {
    try_open(disk).unwrap()
}

fn append(journal: &mut Journal, bytes: &[u8]) -> Lsn {
    journal.append(KEY, &[Bytes::copy_from_slice(bytes)])
}

fn drain(journal: &mut Journal, disk: &MemoryDisk) {
    while let Some(write) = journal.next_write() {
        journal.written(write.perform(disk)).unwrap();
    }
}

fn store(journal: &mut Journal, disk: &MemoryDisk, bytes: &[u8]) {
    append(journal, bytes);
    drain(journal, disk);
}

fn bytes_of(recovered: &Recovered) -> Vec<Vec<u8>> {
    recovered.entries.iter().map(|(_, bytes)| bytes.to_vec()).collect()
}

/// Name of the last file, and start and end of its last batch of `len` bytes.
fn last_batch(journal: &Journal, len: u64) -> (String, u64, u64) {
    let name = files::file_name(journal.files.live.back().unwrap().number);
    (name, journal.files.end - len, journal.files.end)
}

fn files_with(disk: &MemoryDisk, bytes: &[u8]) -> Vec<String> {
    let has_it = |name: &String| {
        let content = disk.read_at(name, 0, usize::MAX).unwrap();
        content.windows(bytes.len()).any(|window| window == bytes)
    };
    disk.files().into_iter().filter(has_it).collect()
}

#[test]
fn a_journal_that_forgets_has_nothing_in_any_file_of_what_was_before() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    let secret = [b"SECRET".as_slice(), &[b'x'; 5000]].concat();
    for _ in 0..30 {
        store(&mut journal, &disk, &secret);
    }
    // An ordinary checkpoint keeps some freed files unchanged.
    let id = journal.begin_checkpoint();
    journal.add_snapshot(id, KEY, &[Bytes::from_static(b"before")]);
    journal.finish_checkpoint(id);
    drain(&mut journal, &disk);
    assert!(files_with(&disk, b"SECRET").len() > 2);
    let id = journal.begin_forgetting();
    journal.add_snapshot(id, KEY, &[Bytes::from_static(b"state")]);
    store(&mut journal, &disk, b"after");
    journal.finish_checkpoint(id);
    drain(&mut journal, &disk);
    assert!(!journal.has_files_to_forget());
    assert_eq!(files_with(&disk, b"SECRET"), [""; 0]);
    store(&mut journal, &disk, b"more");
    disk.crash(3);
    let (_, recovered) = open(&disk);
    assert_eq!(recovered.snapshots, [(KEY, vec![Bytes::from_static(b"state")])]);
    assert_eq!(bytes_of(&recovered), [b"after".to_vec(), b"more".to_vec()]);
}

#[test]
fn a_journal_that_forgets_survives_a_power_cut_at_any_write() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    for number in 0..20 {
        store(&mut journal, &disk, &[number; 5000]);
    }
    let id = journal.begin_forgetting();
    journal.add_snapshot(id, KEY, &[Bytes::from_static(b"state")]);
    journal.finish_checkpoint(id);
    let mut writes = 0;
    while let Some(write) = journal.next_write() {
        for seed in 0..20 {
            let disk = disk.fork();
            let _ = write.perform(&disk);
            disk.crash(seed);
            let (_, recovered) = open(&disk);
            let is_before = recovered.entries.len() == 20;
            assert_eq!(is_before, recovered.snapshots.is_empty(), "one or the other");
        }
        journal.written(write.perform(&disk)).unwrap();
        writes += 1;
    }
    assert_eq!(writes, 2, "the checkpoint, and the deletion of the files before it");
}

#[test]
fn entries_come_back_in_order_with_their_roles() {
    let disk = MemoryDisk::new();
    let (mut journal, recovered) = open(&disk);
    assert!(recovered.entries.is_empty() && recovered.snapshots.is_empty());
    let long = Bytes::from(vec![9; 20_000]);
    assert_eq!(journal.append(KEY, &[Bytes::from_static(b"a"), Bytes::from_static(b"b")]), Lsn(1));
    assert_eq!(journal.append(OTHER, std::slice::from_ref(&long)), Lsn(2));
    assert_eq!(journal.append(KEY, &[]), Lsn(3));
    assert!(journal.pending_bytes() > 20_000);
    drain(&mut journal, &disk);
    assert_eq!((journal.durable(), journal.pending_bytes()), (Lsn(3), 0));
    disk.crash(1);
    let (mut journal, recovered) = open(&disk);
    assert_eq!(recovered.entries, [(KEY, "ab".into()), (OTHER, long), (KEY, Bytes::new())]);
    assert_eq!(journal.durable(), Lsn(3));
    assert_eq!(append(&mut journal, b"c"), Lsn(4));
}

#[test]
fn one_write_is_out_at_a_time_and_takes_what_is_pending() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    assert!(journal.next_write().is_none());
    append(&mut journal, b"a");
    let write = journal.next_write().unwrap();
    append(&mut journal, b"b");
    append(&mut journal, b"c");
    assert!(journal.next_write().is_none());
    assert_eq!(journal.written(write.perform(&disk)), Ok(Lsn(1)));
    let syncs = disk.counters().syncs;
    let write = journal.next_write().unwrap();
    assert_eq!(journal.written(write.perform(&disk)), Ok(Lsn(3)));
    assert_eq!(disk.counters().syncs, syncs + 1);
}

#[test]
fn the_next_file_is_made_before_it_is_needed_by_whoever_has_time() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    let mut prepared = 0;
    for number in 0..20u32 {
        append(&mut journal, &[7; 1000]);
        let write = journal.next_write().unwrap();
        if let Some(file) = write.take_preparation() {
            assert!(write.take_preparation().is_none(), "it is given out once");
            if number % 3 > 0 {
                while file.advance(&disk) != Advance::Ended {}
                assert_eq!(file.advance(&disk), Advance::Ended);
            }
            prepared += 1;
        }
        let (before, is_new) = (disk.counters().writes, journal.files.end <= 2 * BLOCK_BYTES);
        journal.written(write.perform(&disk)).unwrap();
        assert!(disk.counters().writes <= before + if is_new { 2 } else { 1 });
    }
    assert!(prepared >= 2);
    disk.crash(3);
    let (_, recovered) = open(&disk);
    assert_eq!(recovered.entries.len(), 20);
}

#[test]
fn the_next_file_grows_as_fast_as_the_one_before_it_fills() {
    const MIB: u64 = 1 << 20;
    let disk = MemoryDisk::new();
    let options = JournalOptions { file_bytes: 16 * MIB, checkpoint_bytes: 1 << 30, ..OPTIONS };
    let (mut journal, _) = open_with(&disk, options).unwrap();
    let (mut next, mut most_missing) = (None, 0);
    while journal.files.live.len() < 2 {
        append(&mut journal, &vec![7; 1_900_000]);
        let write = journal.next_write().unwrap();
        next = write.take_preparation().or(next);
        let needs_next = journal.files.live.len() > 1;
        if let Some(next) = &next {
            while next.advance(&disk) == Advance::Behind {}
            let is = disk.len(&files::file_name(2)).unwrap();
            most_missing = if needs_next { 16 * MIB - is } else { most_missing };
            assert!(is <= 2 * journal.files.end || needs_next, "no sooner than it must: {is}");
        }
        journal.written(write.perform(&disk)).unwrap();
    }
    assert_eq!(most_missing, 0, "no batch waits for zeros");
}

#[test]
fn a_file_that_could_not_be_synced_is_never_used() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    let mut failed = false;
    for _ in 0..20 {
        append(&mut journal, &[7; 1000]);
        let Some(write) = journal.next_write() else { break };
        if let Some(file) = write.take_preparation() {
            disk.fail_syncs(1);
            while file.advance(&disk) != Advance::Ended {}
        }
        failed |= journal.written(write.perform(&disk)).is_err();
    }
    assert!(failed && journal.failure().is_some());
}

#[test]
fn a_torn_last_batch_is_cut_off_at_every_byte_and_stays_gone() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    store(&mut journal, &disk, b"first");
    let before = disk.fork();
    store(&mut journal, &disk, &[7; 1200]);
    let (name, start, _) = last_batch(&journal, BLOCK_BYTES);
    let (old, new) = (before.content(&name).unwrap(), disk.content(&name).unwrap());
    // The batch tears at each byte before its padding, which is zeros like the prewritten file.
    for cut in start..start + 1236 {
        let torn = before.fork();
        let mut content = old.clone();
        content[start as usize..cut as usize].copy_from_slice(&new[start as usize..cut as usize]);
        torn.put(&name, content);
        let (mut journal, recovered) = open(&torn);
        assert_eq!(bytes_of(&recovered), [b"first"], "cut at {cut}");
        append(&mut journal, b"next");
        drain(&mut journal, &torn);
        torn.crash(cut);
        assert_eq!(bytes_of(&open(&torn).1), [&b"first"[..], b"next"], "cut at {cut}");
    }
}

#[test]
fn remains_of_a_cut_off_batch_do_not_come_back() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    store(&mut journal, &disk, b"first");
    let before = disk.fork();
    // A batch of three blocks loses the last one; then that block comes back alone.
    store(&mut journal, &disk, &[7; 9000]);
    let (name, start, end) = last_batch(&journal, 3 * BLOCK_BYTES);
    let whole = Bytes::from(disk.content(&name).unwrap());
    let last = end - BLOCK_BYTES;
    let torn = before.fork();
    torn.write_at(&name, start, &[whole.slice(start as usize..last as usize)]).unwrap();
    let (_, recovered) = open(&torn);
    assert_eq!(bytes_of(&recovered), [b"first"]);
    torn.write_at(&name, last, &[whole.slice(last as usize..end as usize)]).unwrap();
    assert_eq!(bytes_of(&open(&torn).1), [b"first"]);
}

#[test]
fn a_sector_that_the_power_failed_under_takes_nothing_durable_with_it() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    for n in 0..5u8 {
        store(&mut journal, &disk, &[n; 300]);
    }
    let durable = disk.fork();
    store(&mut journal, &disk, &[5; 300]);
    let (name, start, end) = last_batch(&journal, BLOCK_BYTES);
    // Sectors of the largest size become garbage where the batch was written.
    let first = start - start % 4096;
    let garbage = vec![0xa5; (end.next_multiple_of(4096) - first) as usize];
    durable.write_at(&name, first, &[garbage.into()]).unwrap();
    assert_eq!(open(&durable).1.entries.len(), 5);
}

#[test]
fn remains_of_a_batch_in_a_file_that_never_came_to_be_do_not_come_back() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    for n in 0..6u8 {
        store(&mut journal, &disk, &[n; 700]);
    }
    append(&mut journal, &[9; 700]);
    let mut write = journal.next_write().unwrap();
    // The power fails before the first file notes its follower.
    write.steps.truncate(3);
    journal.written(write.perform(&disk)).unwrap();
    assert_eq!(journal.files.live.len(), 2);
    let (name, ..) = last_batch(&journal, BLOCK_BYTES);
    let remains = disk.read_at(&name, BLOCK_BYTES, BLOCK_BYTES as usize).unwrap();
    // The batch reached the disk; the sector with the file's header did not.
    disk.write_at(&name, 0, &[Bytes::from(vec![0; 512])]).unwrap();
    let (mut journal, recovered) = open(&disk);
    assert_eq!(recovered.entries.len(), 6);
    // The next batch gets the same file and sequence number; only its header reaches the disk.
    store(&mut journal, &disk, &[9; 700]);
    assert_eq!(last_batch(&journal, BLOCK_BYTES), (name.clone(), BLOCK_BYTES, 2 * BLOCK_BYTES));
    disk.write_at(&name, BLOCK_BYTES, &[remains]).unwrap();
    assert_eq!(open(&disk).1.entries.len(), 6);
}

#[test]
fn a_batch_of_another_use_of_the_file_is_not_taken() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    store(&mut journal, &disk, b"first");
    let (name, _, end) = last_batch(&journal, BLOCK_BYTES);
    let salt = journal.files.live[0].salt.unwrap();
    for (mark, entries) in [(salt + 1, 1), (1, 1), (salt, 2)] {
        let disk = disk.fork();
        let mut batch = PendingBatch::new(Lsn(2));
        batch.add(|out| Entry::encode_ordinary(KEY, 0, &[], out));
        disk.write_at(&name, end, &batch.seal(mark, BLOCK_BYTES)).unwrap();
        assert_eq!(open(&disk).1.entries.len(), entries);
    }
}

#[test]
fn damage_before_the_last_batch_is_named() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    for n in 0..30u8 {
        store(&mut journal, &disk, &[n; 700]);
    }
    assert!(journal.files.live.len() >= 3);
    let last = files::file_name(journal.files.live.back().unwrap().number);
    for name in disk.files() {
        // Six batches of one block behind each header. In a file with a follower, recovery does not
        // need the note.
        let end = if name == last { journal.files.end } else { OPTIONS.file_bytes } - BLOCK_BYTES;
        for offset in (0..batch::FILE_HEADER_BYTES).step_by(7).chain((BLOCK_BYTES..end).step_by(97)) {
            let damaged = disk.fork();
            damaged.flip_bit(&name, offset, (offset % 8) as u8);
            match try_open(&damaged) {
                Err(OpenError::Damaged { file, offset: at, .. }) => {
                    assert_eq!(file, name);
                    assert!(at <= offset && offset < at + BLOCK_BYTES, "bit at {offset} reported at {at}");
                }
                Err(OpenError::Version { .. } | OpenError::Features { .. }) if offset < 16 => {}
                other => panic!("bit at {offset} of {name}: {:?}", other.map(|(_, recovered)| recovered)),
            }
        }
    }
}

#[test]
fn a_missing_file_is_noticed() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    for n in 0..30u8 {
        store(&mut journal, &disk, &[n; 700]);
    }
    for name in disk.files() {
        let damaged = disk.fork();
        damaged.delete(&name).unwrap();
        assert!(matches!(try_open(&damaged), Err(OpenError::Damaged { .. })), "{name}");
    }
}

#[test]
fn a_full_disk_is_survived() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    store(&mut journal, &disk, b"first");
    disk.set_capacity(Some(disk.used() + 100));
    append(&mut journal, &[1; 40_000]);
    append(&mut journal, b"last");
    for _ in 0..3 {
        let write = journal.next_write().unwrap();
        let outcome = write.perform(&disk);
        assert!(matches!(outcome, Err(WriteFailure::Full { .. })));
        assert_eq!(journal.written(outcome), Ok(Lsn(1)));
        assert!(journal.is_full());
    }
    let crashed = disk.fork();
    crashed.crash(5);
    assert_eq!(bytes_of(&open(&crashed).1), [b"first"]);
    disk.set_capacity(None);
    drain(&mut journal, &disk);
    assert!(!journal.is_full());
    assert_eq!(bytes_of(&open(&disk).1), [b"first".to_vec(), vec![1; 40_000], b"last".to_vec()]);
}

#[test]
fn a_failed_sync_is_final() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    store(&mut journal, &disk, b"first");
    append(&mut journal, b"lost");
    disk.fail_syncs(1);
    let write = journal.next_write().unwrap();
    assert!(journal.written(write.perform(&disk)).is_err());
    assert!(journal.failure().is_some());
    append(&mut journal, b"later");
    assert!(journal.next_write().is_none());
    assert_eq!(journal.durable(), Lsn(1));
    // The batch is only in the page cache: recovery must make it durable.
    let (_, recovered) = open(&disk);
    assert_eq!(bytes_of(&recovered), [&b"first"[..], b"lost"]);
    disk.crash(0);
    assert_eq!(bytes_of(&open(&disk).1), [&b"first"[..], b"lost"]);
}

#[test]
fn another_node_or_cluster_is_refused() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    store(&mut journal, &disk, b"a");
    let disk: Arc<dyn Disk> = Arc::new(disk);
    for identity in
        [JournalIdentity { node: NodeId(4), ..IDENTITY }, JournalIdentity { cluster: 8, ..IDENTITY }]
    {
        assert!(matches!(Journal::open(&disk, identity, secret(), OPTIONS), Err(OpenError::Foreign { .. })));
    }
}

#[test]
fn checkpoints_replace_what_came_before() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    store(&mut journal, &disk, b"old");
    let id = journal.begin_checkpoint();
    append(&mut journal, b"before its snapshot");
    journal.append(OTHER, &[Bytes::from_static(b"the other's")]);
    let large = Bytes::from((0..300_000u32).map(|n| n as u8).collect::<Vec<_>>());
    journal.add_snapshot(id, KEY, &[Bytes::from_static(b"s"), large.slice(..10)]);
    append(&mut journal, b"between");
    journal.add_snapshot(id, KEY, &[large.slice(10..)]);
    journal.add_snapshot(id, OTHER, &[]);
    let end = journal.finish_checkpoint(id);
    append(&mut journal, b"after");
    let before_end = disk.fork();
    before_end.put("journal/not-a-number", vec![1]);
    while journal.durable() < end {
        let write = journal.next_write().unwrap();
        let is_last = journal.offered.as_ref().unwrap().last >= end;
        if !is_last {
            write.perform(&before_end).unwrap();
        }
        journal.written(write.perform(&disk)).unwrap();
    }
    drain(&mut journal, &disk);
    let (_, recovered) = open(&disk);
    assert_eq!(bytes_of(&recovered), [&b"between"[..], b"after"]);
    assert_eq!(recovered.snapshots[0].1.concat(), [b"s", &large[..]].concat());
    assert_eq!(recovered.snapshots[1], (OTHER, vec![Bytes::new()]));
    let (_, recovered) = open(&before_end);
    assert!(recovered.snapshots.is_empty());
    assert_eq!(bytes_of(&recovered), [&b"old"[..], b"before its snapshot", b"the other's", b"between"]);
}

#[test]
fn files_are_used_again() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    let mut names = BTreeSet::new();
    for round in 0..40u32 {
        while !journal.checkpoint_due() {
            store(&mut journal, &disk, &[round as u8; 900]);
        }
        let id = journal.begin_checkpoint();
        journal.add_snapshot(id, KEY, &[Bytes::copy_from_slice(&round.to_le_bytes())]);
        journal.finish_checkpoint(id);
        drain(&mut journal, &disk);
        names.extend(disk.files());
        if round % 7 == 0 {
            let (reopened, recovered) = open(&disk);
            assert_eq!(recovered.snapshots, [(KEY, vec![Bytes::copy_from_slice(&round.to_le_bytes())])]);
            assert!(recovered.entries.is_empty());
            journal = reopened;
        }
    }
    assert!(names.len() <= 6, "{names:?}");
    assert!(disk.used() <= 6 * OPTIONS.file_bytes + 4096);
}

struct Soak {
    disk: MemoryDisk,
    random: u64,
    journal: Journal,
    /// Entries since the last checkpoint that is or may be complete, in order.
    entries: Vec<Vec<u8>>,
    /// Checkpoints that are or may be complete: number of covered entries, and end marker.
    checkpoints: Vec<(usize, Lsn)>,
    /// The checkpoint in progress, the number of entries that it covers, and its pieces not added
    /// yet.
    under_way: Option<(CheckpointId, Option<usize>, Vec<Bytes>)>,
    first: u64,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let disk = MemoryDisk::new();
        let (journal, _) = open(&disk);
        let checkpoints = vec![(0, Lsn(0))];
        Self { disk, random: seed, journal, entries: vec![], checkpoints, under_way: None, first: 0 }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn step(&mut self) {
        match self.below(20) {
            0..9 => {
                let (len, byte) = (self.below(1800) as usize, self.below(3) as u8);
                let mut bytes = self.first.to_le_bytes().to_vec();
                self.first += 1;
                bytes.resize(8 + len, byte);
                self.keep_a_copy(&mut bytes);
                append(&mut self.journal, &bytes);
                self.entries.push(bytes);
            }
            9..16 => {
                if let Some(write) = self.journal.next_write() {
                    self.journal.written(write.perform(&self.disk)).unwrap();
                }
            }
            16..19 => self.checkpoint_goes_on(),
            _ => self.crash(),
        }
    }

    /// A client appends a piece of a journal file.
    fn keep_a_copy(&mut self, bytes: &mut Vec<u8>) {
        let names = self.disk.files();
        if names.is_empty() || self.below(4) > 0 {
            return;
        }
        let name = &names[self.below(names.len() as u64) as usize];
        let offset = self.below(OPTIONS.file_bytes);
        bytes.extend_from_slice(&self.disk.read_at(name, offset, 1500).unwrap());
    }

    /// Continues a checkpoint. A snapshot's content is the number of covered entries.
    fn checkpoint_goes_on(&mut self) {
        match self.under_way.take() {
            None => {
                let rest = (0..self.below(4)).map(|_| Bytes::from(vec![1; 2000])).collect();
                self.under_way = Some((self.journal.begin_checkpoint(), None, rest));
            }
            Some((id, None, rest)) => {
                let covered = self.entries.len();
                let piece = Bytes::copy_from_slice(&(covered as u64).to_le_bytes());
                self.journal.add_snapshot(id, KEY, &[piece]);
                self.under_way = Some((id, Some(covered), rest));
            }
            Some((id, Some(covered), mut rest)) => match rest.pop() {
                Some(piece) => {
                    self.journal.add_snapshot(id, KEY, &[piece]);
                    self.under_way = Some((id, Some(covered), rest));
                }
                None => self.checkpoints.push((covered, self.journal.finish_checkpoint(id))),
            },
        }
    }

    /// Power fails during or between writes, and again during recovery.
    fn crash(&mut self) {
        if let Some(write) = self.journal.next_write() {
            let steps = self.below(write.steps.len() as u64 + 1) as usize;
            JournalWrite { steps: write.steps[..steps].to_vec(), next_file: None }
                .perform(&self.disk)
                .unwrap();
        }
        let durable = self.journal.durable();
        for _ in 0..=self.below(3) {
            let seed = self.below(1 << 30);
            self.disk.crash(seed);
            self.recover(durable);
        }
    }

    fn recover(&mut self, durable: Lsn) {
        let (journal, recovered) = open(&self.disk);
        assert!(journal.durable() >= durable, "what was durable is there");
        let covered = recovered
            .snapshots
            .first()
            .map_or(0, |(_, chunks)| u64::from_le_bytes(chunks[0][..8].try_into().unwrap()) as usize);
        let checkpoint = self.checkpoints.iter().rposition(|(_, end)| *end <= journal.durable()).unwrap();
        assert_eq!(self.checkpoints[checkpoint].0, covered, "the last complete checkpoint counts");
        self.checkpoints.truncate(checkpoint + 1);
        self.entries.truncate(covered + recovered.entries.len());
        assert_eq!(bytes_of(&recovered), self.entries[covered..]);
        self.journal = journal;
        self.under_way = None;
    }
}

#[test]
fn random_crashes_lose_nothing_durable_and_invent_nothing() {
    for seed in 0..1000 {
        let mut soak = Soak::new(seed);
        for _ in 0..150 {
            soak.step();
        }
        soak.crash();
    }
}

fn real_journal() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    for n in 0..12u8 {
        store(&mut journal, &disk, &[n; 900]);
        if n == 6 {
            let id = journal.begin_checkpoint();
            journal.add_snapshot(id, OTHER, &[Bytes::from_static(b"snapshot")]);
            journal.finish_checkpoint(id);
        }
    }
    disk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn garbage_files_never_panic(files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 1..4)) {
        let disk = MemoryDisk::new();
        for (n, bytes) in files.into_iter().enumerate() {
            disk.put(&format!("{DIRECTORY}/{n:04}"), bytes);
        }
        let _ = try_open(&disk);
    }

    #[test]
    fn damaged_journals_never_panic(
        flips in prop::collection::vec((0usize..3, 0u64..30_000, 0u8..8), 0..4),
        swap in any::<bool>(),
        cut in prop::option::of((0usize..3, 0u64..30_000)),
    ) {
        let disk = real_journal();
        let names = disk.files();
        for (file, offset, bit) in flips {
            disk.flip_bit(&names[file % names.len()], offset, bit);
        }
        if let Some((file, len)) = cut {
            disk.truncate(&names[file % names.len()], len).unwrap();
        }
        if swap {
            let (first, second) = (disk.content(&names[0]).unwrap(), disk.content(&names[1]).unwrap());
            disk.put(&names[0], second);
            disk.put(&names[1], first);
        }
        let _ = try_open(&disk);
    }
}

fn live_files(journal: &Journal) -> Vec<String> {
    journal.files.live.iter().map(|file| files::file_name(file.number)).collect()
}

#[test]
fn a_journal_whose_last_files_are_missing_is_refused() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    (0..40).for_each(|number| store(&mut journal, &disk, &[number; 3000]));
    let files = live_files(&journal);
    assert!(files.len() > 3, "{files:?}");
    for kept in 1..files.len() {
        let after = disk.fork();
        files[kept..].iter().for_each(|name| after.delete(name).unwrap());
        let error = try_open(&after).unwrap_err();
        assert!(matches!(&error, OpenError::Damaged { file, .. } if *file == files[kept - 1]), "{error}");
        assert!(error.to_string().contains("the files after this one are missing"), "{error}");
    }
    assert_eq!(open(&disk).1.entries.len(), 40);
}

#[test]
fn a_crash_at_any_step_of_the_start_of_a_file_leaves_a_journal_that_opens() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open(&disk);
    let mut starts = 0;
    for number in 0..30 {
        append(&mut journal, &[number; 3000]);
        let write = journal.next_write().unwrap();
        let is_start = live_files(&journal).len() > starts + 1;
        if is_start {
            starts += 1;
            assert_eq!(write.steps.len(), 4, "{write:?}");
            for (done, seed) in (0..=4).flat_map(|done| (0..20).map(move |seed| (done, seed))) {
                let after = disk.fork();
                let part = JournalWrite { steps: write.steps[..done].to_vec(), next_file: None };
                part.perform(&after).unwrap();
                after.crash(seed);
                let (mut journal, recovered) = open(&after);
                assert!(recovered.entries.len() >= number as usize, "step {done}, seed {seed}");
                store(&mut journal, &after, b"it goes on");
                open(&after);
            }
        }
        journal.written(write.perform(&disk)).unwrap();
    }
    assert!(starts > 2);
}

#[test]
fn a_journal_that_is_gone_is_told_from_one_that_never_was() {
    let disk = MemoryDisk::new();
    assert!(!Journal::is_missing(&disk).unwrap());
    let (mut journal, _) = open(&disk);
    store(&mut journal, &disk, b"a");
    Journal::note_begun(&disk).unwrap();
    assert!(!Journal::is_missing(&disk).unwrap());
    // A prepared but unused file does not count.
    disk.put("journal/0002", vec![0; 8192]);
    disk.delete("journal/0001").unwrap();
    assert!(Journal::is_missing(&disk).unwrap());
    disk.delete_dir("journal").unwrap();
    assert!(Journal::is_missing(&disk).unwrap());
}
