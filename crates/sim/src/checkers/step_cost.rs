//! No step grows with the log. A step, a node's work for one arrival or wakeup, costs a bounded
//! multiple of the records in flight and of one piece of long work (rewriting, trimming,
//! scrubbing), even in a log a thousand times longer.
//!
//! A checkpoint is a step too. A start is none: it reads the journal and keeps an entry for each
//! run of the log.

use seriatim_store::ShardStore;

use super::Finding;
use crate::history::History;

/// Bytes that a step may send, write and journal, in rings (buffers of unstable records).
const MADE_RINGS: u64 = 4;
/// Bytes, in rings, that a step may read.
const READ_RINGS: u64 = 4;
/// Other bytes that a step may read: a piece to rewrite, a piece to scrub, and, for each of eight
/// batches pushed at once, the surroundings of the records of two earlier attempts, in three places
/// each, since records of other clients lie between them.
const READ_PIECES: u64 = (32 << 10) + (256 << 10) + 8 * 2 * 3 * (64 << 10);
/// Bytes that a step may read per subscription beyond the wanted records, because their neighbors
/// on disk are read with them.
const READER_BYTES: u64 = 128 << 10;
/// Entries that a step may visit per record of a batch: lookups in the index and in the map,
/// through the entries before it in the block.
const VISITS: u64 = 4;
/// Other entries that a step may visit: one piece of a trim.
const VISITED_PIECE: u64 = 1000;
/// Blocks that a step may visit, in the index and in the map: one to look into, one to unpack for a
/// change, the previously changed one to pack, and the last entries when they fill a block.
const VISITED_BLOCKS: u64 = 2 * 4;

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = &history.load else { return Ok(()) };
    let step = load.costs.most_step;
    within("sent, wrote and journaled", step.made, "bytes", MADE_RINGS * load.ring_bytes)?;
    let read = READ_RINGS * load.ring_bytes + READ_PIECES + READER_BYTES * u64::from(load.readers);
    within("read", step.read, "bytes", read)?;
    let blocks = VISITED_BLOCKS * ShardStore::BLOCK_ENTRIES as u64;
    within("looked at", step.visited, "entries", VISITS * load.batch_records + VISITED_PIECE + blocks)
}

fn within(what: &str, cost: u64, of: &str, most: u64) -> Finding {
    if cost <= most {
        return Ok(());
    }
    Err(format!("one step {what} {cost} {of}; the bound is {most}, however long the log is"))
}
