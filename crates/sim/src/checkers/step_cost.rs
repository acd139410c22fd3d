//! Nothing that a node does at once grows with the log. A step, which is what a node does for one
//! arrival, or when it does what is due, makes, reads and looks at a bounded multiple of what may
//! be on its way, and of the pieces in which long work goes (rewriting, trimming, looking for
//! damage): a log that is a thousand times longer makes no step longer.
//!
//! A checkpoint is a step like any other: what it says of each role is on its way, too. A start is
//! none. It reads what was not rewritten yet, and keeps an entry for each run of the log.

use seriatim_store::ShardStore;

use super::Finding;
use crate::history::History;

/// How much of what is on its way one step may send, write and journal: so many times what a
/// sequencing replica holds.
const MADE_RINGS: u64 = 4;
/// How much of it a step may read.
const READ_RINGS: u64 = 4;
/// How much a step may read besides, in bytes: a piece of a log that is rewritten, one that is
/// looked through for damage, and, of each of eight batches that are pushed at once, what lies
/// around the records that two earlier attempts wrote, each of them in three places: clients send
/// few at a time under load, and those of others come in between.
const READ_PIECES: u64 = (32 << 10) + (256 << 10) + 8 * 2 * 3 * (64 << 10);
/// How much a step may read besides for each subscription, in bytes: records that lie around those
/// it is given, which are read together with them.
const READER_BYTES: u64 = 128 << 10;
/// How many entries a step may look at for each record of a batch, which is what one step handles:
/// the record is looked up in the index and in the map, and others that stand before it in their
/// blocks are passed over.
const VISITS: u64 = 4;
/// How many entries a step may look at besides: what a trim has forgotten at once.
const VISITED_PIECE: u64 = 1000;
/// How many blocks of entries a step may go through besides, of what grows with the log: in the
/// index and in the map one that it looks into, one that it unpacks to change it, the one that was
/// changed before and is packed, and the last entries when these make a block.
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
