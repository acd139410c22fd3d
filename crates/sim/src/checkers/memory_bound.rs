//! Nodes hold bounded memory under any load.

use super::Finding;
use crate::history::History;

/// Most memory of three nodes, in rings (buffers of unstable records). In production, rings of 64
/// MiB and 768 MiB for three nodes make twelve. Two more were measured here: simulated rings are a
/// thousandth of that size, but messages are not.
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
