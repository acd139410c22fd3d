//! Nodes hold a bounded amount in memory, whatever clients send: rings, queues, bytes that were not
//! taken yet, and bytes that wait for the journal.

use super::Finding;
use crate::history::History;

/// How many times what a sequencing replica holds at most a cluster may hold in memory. A ring of
/// 64 MiB and 768 MiB for three nodes are twelve; two more are what was seen here, where rings are
/// a thousandth and messages are not.
const RINGS: u64 = 14;

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = &history.load else { return Ok(()) };
    let most = RINGS * load.ring_bytes * u64::from(load.nodes) / 3;
    let held = load.costs.most_held;
    if held > most {
        return Err(format!("nodes held {held} bytes at once; the bound is {most}"));
    }
    Ok(())
}
