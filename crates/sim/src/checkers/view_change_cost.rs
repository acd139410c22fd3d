//! A view change costs at most the bytes in flight when it began, for any number of attempts: each
//! replica of a shard writes and journals them once. Each attempt may resend one ring.
//!
//! Runs with mute links are not judged: until the muteness is noticed, claims fail while the old
//! view continues, and its appends look like costs.

use super::Finding;
use crate::history::History;

/// Writes per replica and record: store and journal, doubled for checkpoints and sequencing
/// replicas' journals.
const COPIES: u64 = 2 * 2;

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = history.load.as_ref().filter(|load| !load.has_mute_ways) else { return Ok(()) };
    let changes = &load.costs.changes;
    let replicas = u64::from(history.config.replicas);
    let kept = COPIES * changes.count * replicas * load.in_flight_bytes;
    // Per replica, one ring for each attempt, and one for the bytes in flight at the start of each
    // view change.
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
