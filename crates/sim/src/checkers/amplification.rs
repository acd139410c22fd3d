//! Nodes write and send each accepted record a bounded number of times. A view change repeats only
//! records in doubt, once.

use super::Finding;
use crate::history::{History, Load, Outcome};

/// Allowed multiple of the least possible bytes.
const TIMES: u64 = 2;
/// Bytes per copy besides the payload: ids, positions, framing, other messages.
const OVERHEAD: u64 = 150;
/// Bytes that a node writes and sends per second without load.
const IDLE: u64 = 50_000;

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = &history.load else { return Ok(()) };
    let accepted =
        history.appends.iter().filter(|append| append.outcome == Outcome::Acknowledged).count() as u64;
    let config = &history.config;
    let whole = if config.order.keeps_records() { u64::from(config.sequencers) } else { 0 };
    let replicas = u64::from(config.replicas);
    within(load, "written", load.costs.disk_bytes, accepted, whole + 2 * replicas)?;
    // The leader sends a record to every replica, unless clients put it there themselves.
    within(load, "sent", load.costs.sent_bytes, accepted, replicas)
}

fn within(load: &Load, what: &str, bytes: u64, accepted: u64, copies: u64) -> Finding {
    // Each view change may repeat the records in flight.
    let views = load.last_view.0.saturating_sub(load.view.0) * load.ring_bytes;
    let seconds = (load.ended - load.began).as_secs() + 2;
    let least =
        copies * (accepted * (load.record_bytes + OVERHEAD) + views) + seconds * IDLE * u64::from(load.nodes);
    if bytes <= TIMES * least {
        return Ok(());
    }
    let of = accepted * load.record_bytes;
    Err(format!(
        "{bytes} bytes were {what} for {of} bytes of accepted records, of which there are {copies} copies"
    ))
}
