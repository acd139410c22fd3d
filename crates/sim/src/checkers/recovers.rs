//! All appends have an outcome one second after the load, plus the time for the work in flight and,
//! per fault, for one ring (buffer of unstable records): a view change may repeat it.

use std::time::Duration;

use super::Finding;
use crate::history::History;

const WITHIN: Duration = Duration::from_secs(1);

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = &history.load else { return Ok(()) };
    let brought_over = load.ring_bytes * u64::from(load.faults);
    let bytes = load.in_flight_bytes + brought_over;
    let work = load.capacity.time_for(&history.config, load.record_bytes, bytes);
    let until = load.ended + WITHIN + work;
    let is_late = |append: &&crate::history::Append| append.completed_at.is_none_or(|at| at > until);
    let late: Vec<_> = history.appends.iter().filter(is_late).collect();
    let Some(last) =
        late.iter().map(|append| append.completed_at).max_by_key(|at| at.map_or(u64::MAX, |at| at.0))
    else {
        return Ok(());
    };
    let when = last.map_or_else(|| "never".to_owned(), |at| format!("{:?} after the load", at - load.ended));
    Err(format!(
        "{} of {} appends had no outcome by {:?} after the load; the last: {when}",
        late.len(),
        history.appends.len(),
        until - load.ended
    ))
}
