//! Each buffer counts a record with at least the memory that it takes from the allocator.

use std::alloc::System;
use std::collections::VecDeque;

use bytes::Bytes;
use seriatim_model::record::Header;
use seriatim_model::storage::Stored;
use seriatim_model::wire::{decode_one, encode_one};
use seriatim_model::{Position, Record, RecordId, SessionId, ViewNumber};
use seriatim_protocol::shard;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RECORDS: u64 = 10_000;
/// Bytes of a message and a queue without their records.
const ONCE: usize = 1024;

fn stored(position: u64, record: Record) -> Stored {
    Stored { position: Position(position), id: RecordId { session: SessionId(1), number: position }, record }
}

/// A received delivery of the same record, `RECORDS` times.
fn arrived(record: &Record) -> Bytes {
    let records = (0..RECORDS).map(|position| stored(position, record.clone())).collect();
    let (request, view, from, upto) = (1, ViewNumber(1), Position::ZERO, Position(RECORDS));
    encode_one(&shard::Message::Deliver { request, view, from, records, upto })
}

/// Bytes that a reader holds after it has received the delivery and queued its records.
fn taken(arrived: &[u8]) -> usize {
    let region = Region::new(ALLOCATOR);
    let Ok(shard::Message::Deliver { records, .. }) = decode_one(Bytes::copy_from_slice(arrived)) else {
        panic!("it is a delivery")
    };
    let queue: VecDeque<Stored> = records.into();
    let change = region.change();
    assert_eq!(queue.len() as u64, RECORDS);
    change.bytes_allocated - change.bytes_deallocated
}

#[test]
fn a_record_counts_with_at_least_the_memory_that_it_takes() {
    let headers = [1, 2].map(|kind| Header { kind, value: Bytes::from_static(b"0123456789") });
    for record in [
        Record::build(b"", 0, None, &[]),
        Record::build(b"x", 0, None, &[]),
        Record::build(b"x", 0, Some(b"key"), &headers),
        Record::build(&[7; 100], 0, Some(b"key"), &[]),
        Record::build(&[7; 4096], 0, None, &[]),
    ] {
        let (taken, counted) = (taken(&arrived(&record)), record.memory() * RECORDS as usize);
        assert!(taken <= counted + ONCE, "{taken} bytes of {record:?} are counted as {counted}");
        assert!(taken * 4 >= counted, "the count is not far too high: {taken} of {counted}, {record:?}");
    }
}
