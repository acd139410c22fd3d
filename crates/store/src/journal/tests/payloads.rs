//! Payloads that imitate the journal's own bytes.

use super::*;
use crate::journal::batch::{Batch, BatchHeader};

const WIDE: JournalOptions =
    JournalOptions { file_bytes: 1 << 20, batch_bytes: 1 << 20, checkpoint_bytes: 1 << 20, ..OPTIONS };

/// A batch that a client forges, with a sequence number in place of the salt.
fn forged(sequence: u64, first: Lsn, bytes: &'static [u8]) -> Vec<u8> {
    let mut batch = PendingBatch::new(first);
    batch.add(|out| Entry::Ordinary { key: OTHER, bytes: bytes.into() }.encode(out));
    batch.seal(sequence, BLOCK_BYTES).concat()
}

/// Bytes from the start of a payload, alone in its batch, to the next block.
fn to_next_block() -> usize {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open_with(&disk, WIDE).unwrap();
    store(&mut journal, &disk, b"a marker");
    let at = disk.content("journal/0001").unwrap().windows(8).position(|bytes| bytes == b"a marker").unwrap();
    at.next_multiple_of(BLOCK_BYTES as usize) - at
}

/// Batch headers far ahead for these sequence numbers, each at the start of a block.
fn headers(sequences: std::ops::Range<u64>) -> Vec<u8> {
    let mut payload = vec![0; to_next_block()];
    sequences.for_each(|sequence| payload.extend(forged(sequence, Lsn(u64::MAX / 2), b"")));
    payload
}

fn checkpoint(journal: &mut Journal, disk: &MemoryDisk) {
    let id = journal.begin_checkpoint();
    journal.add_snapshot(id, KEY, &[Bytes::from_static(b"state")]);
    journal.finish_checkpoint(id);
    drain(journal, disk);
}

/// Bytes behind the last batch.
fn rest(journal: &Journal, disk: &MemoryDisk) -> Vec<u8> {
    let (name, _, end) = last_batch(journal, 0);
    disk.content(&name).unwrap().split_off(end as usize)
}

#[test]
fn headers_in_payloads_keep_no_journal_from_opening() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open_with(&disk, WIDE).unwrap();
    let payload = headers(1..46);
    let mut met = 0;
    for round in 0..20u8 {
        store(&mut journal, &disk, &payload);
        if journal.checkpoint_due() {
            checkpoint(&mut journal, &disk);
        }
        // Begins a recycled file and overwrites little of it.
        let used = journal.files.live.back().unwrap().sequence;
        while journal.files.live.back().unwrap().sequence == used {
            store(&mut journal, &disk, &vec![round; 20_000]);
        }
        let (_, recovered) = open_with(&disk.fork(), WIDE).unwrap();
        assert_eq!(recovered.entries.last().unwrap().1, vec![round; 20_000]);
        let sequence = journal.files.live.back().unwrap().sequence;
        let rest = rest(&journal, &disk);
        let mut found = rest.chunks(BLOCK_BYTES as usize).filter_map(BatchHeader::decode);
        met += u32::from(found.any(|header| header.mark == sequence));
    }
    assert!(met > 10, "it is met often: {met}");
}

#[test]
fn headers_in_a_torn_batch_keep_no_journal_from_opening() {
    let disk = MemoryDisk::new();
    let (mut journal, _) = open_with(&disk, WIDE).unwrap();
    store(&mut journal, &disk, b"first");
    let before = disk.fork();
    let payload = headers(1..10);
    store(&mut journal, &disk, &payload);
    // All of the torn batch but its first block reached the disk.
    let (name, _, end) = last_batch(&journal, 0);
    let second = 3 * BLOCK_BYTES;
    let torn = &disk.content(&name).unwrap()[second as usize..end as usize];
    before.write_at(&name, second, &[Bytes::copy_from_slice(torn)]).unwrap();
    assert_eq!(bytes_of(&open_with(&before, WIDE).unwrap().1), [b"first"]);
}

/// Fills two journal files with copies of `block`, beginning on a block boundary of the journal,
/// then recycles both files.
fn play(block: &[u8]) -> (MemoryDisk, Journal) {
    let disk = MemoryDisk::new();
    let options = JournalOptions { file_bytes: 256 << 10, ..WIDE };
    let (mut journal, _) = open_with(&disk, options).unwrap();
    let payload = [vec![0; to_next_block()], block.repeat(40)].concat();
    store(&mut journal, &disk, &payload);
    store(&mut journal, &disk, &payload);
    checkpoint(&mut journal, &disk);
    for n in 0..40u8 {
        store(&mut journal, &disk, &[n; 1500]);
    }
    (disk, journal)
}

#[test]
fn a_batch_in_a_payload_is_not_replayed() {
    // A first run reveals which sequence number and entry number come next.
    let marker = forged(u64::MAX, Lsn(1), b"forged");
    let (_, journal) = play(&marker);
    let (sequence, next) = (journal.files.live.back().unwrap().sequence, journal.next);
    let (disk, journal) = play(&forged(sequence, next, b"forged"));
    assert_eq!((journal.files.live.back().unwrap().sequence, journal.next), (sequence, next));
    let rest = Bytes::from(rest(&journal, &disk));
    assert!(Batch::at(&rest, 0, BLOCK_BYTES).is_some_and(|batch| batch.header.first == next), "it is met");
    let recovered = open_with(&disk, WIDE).unwrap().1;
    assert_eq!(recovered.entries.len(), 40);
    assert!(recovered.entries.iter().all(|(key, _)| *key == KEY));
}
