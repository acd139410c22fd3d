//! The cost of a view change is bounded by the bytes that were on their way when it began, not by
//! how long it takes: however many attempts it needs, each replica of a shard writes and journals
//! those once. Each attempt may send again at most what a sequencing replica holds.
//!
//! Where only heartbeats pass between nodes, and nobody knows that yet, a claim gets nowhere while
//! the view that it is to replace goes on: the appends of that time are no cost of it, and cannot
//! be told from it. Such runs are not judged.

use super::Finding;
use crate::history::History;

/// How often a replica writes what it keeps: to its store, and to the journal; and as much again
/// for checkpoints that fall into a view change, and what sequencing replicas journal.
const COPIES: u64 = 2 * 2;

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = history.load.as_ref().filter(|load| !load.has_mute_ways) else { return Ok(()) };
    let changes = &load.costs.changes;
    let replicas = u64::from(history.config.replicas);
    let kept = COPIES * changes.count * replicas * load.in_flight_bytes;
    // The bytes that were on their way when a view change began are sent besides.
    let sent = (changes.count + changes.attempts) * replicas * load.ring_bytes;
    for (what, bytes, most) in
        [("written and journaled", changes.kept_bytes, kept), ("sent", changes.sent_bytes, sent)]
    {
        if bytes > most {
            return Err(format!(
                "{bytes} bytes were {what} in {} view changes of {} attempts; the bound is {most}",
                changes.count, changes.attempts
            ));
        }
    }
    Ok(())
}
