//! A log with little load does not suffer from a loaded log: each of its appends takes at most as
//! long as the cluster needs for one ring (buffer of unstable records) of the loaded log.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let (Some(load), Some(second)) = (&history.load, &history.second) else { return Ok(()) };
    // In a chain the replicas write one after the other.
    let writes = if history.config.order.places_first() { history.config.replicas } else { 1 };
    let most = load.capacity.time_for(&history.config, load.record_bytes, load.ring_bytes) * writes;
    let is_late =
        |append: &&crate::history::Append| append.completed_at.is_none_or(|at| at - append.invoked_at > most);
    let late: Vec<_> = second.appends.iter().filter(is_late).collect();
    let Some(first) = late.first() else { return Ok(()) };
    let took =
        first.completed_at.map_or_else(|| "for ever".to_owned(), |at| format!("{:?}", at - first.invoked_at));
    Err(format!(
        "{} of {} appends to a log of which little is asked took longer than {most:?}: the first {took}",
        late.len(),
        second.appends.len()
    ))
}
