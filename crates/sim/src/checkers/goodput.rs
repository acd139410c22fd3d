//! Under overload at least half of the capacity of the slowest disk, processor or link becomes
//! stable. Beside a second log two fifths suffice: to keep that log fast, fewer bytes wait for each
//! journal, and long pauses leave a disk idle.

use super::Finding;
use crate::history::{History, Outcome};

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = history.load.as_ref().filter(|load| load.capacity.saturates) else { return Ok(()) };
    let alone = load.capacity.goodput(&history.config, load.record_bytes, load.ring_bytes, load.faults);
    let least = if load.is_shared { alone * 4 / 5 } else { alone };
    let done = if history.config.order.places_first() {
        // An acknowledged append is stable.
        let in_time = |at| at <= load.ended;
        let acknowledged = |append: &&crate::history::Append| {
            append.outcome == Outcome::Acknowledged && append.completed_at.is_some_and(in_time)
        };
        history.appends.iter().filter(acknowledged).count() as u64
    } else {
        load.stable.0
    };
    let bytes = done * load.record_bytes;
    if bytes >= least {
        return Ok(());
    }
    let possible = load.capacity.records_bytes(&history.config, load.record_bytes);
    Err(format!(
        "{bytes} bytes are stable after {:?} of load; at least {least} have to be, of {possible} that are possible in a \
         second",
        load.capacity.load_for.unwrap_or_default()
    ))
}
