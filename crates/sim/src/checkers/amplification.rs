//! Nodes write and send each accepted record a bounded number of times, view changes included: only
//! records that were in doubt are sent or written again, once.

use super::Finding;
use crate::history::{History, Load, Outcome};

/// How many times as much as the least possible.
const TIMES: u64 = 2;
/// The cost of each record besides its bytes, on each disk and each way, in bytes: names,
/// positions, framing, and messages that carry no record.
const OVERHEAD: u64 = 150;
/// The bytes that a node writes and sends in a second, whatever clients ask for.
const IDLE: u64 = 50_000;

pub(super) fn check(history: &History) -> Finding {
    let Some(load) = &history.load else { return Ok(()) };
    let accepted =
        history.appends.iter().filter(|append| append.outcome == Outcome::Acknowledged).count() as u64;
    let config = &history.config;
    let whole = if config.order.keeps_records() { u64::from(config.sequencers) } else { 0 };
    let replicas = u64::from(config.replicas);
    within(load, "written", load.costs.disk_bytes, accepted, whole + 2 * replicas)?;
    // From the leader to every replica of the shard where clients do not put them there themselves.
    within(load, "sent", load.costs.sent_bytes, accepted, replicas)
}

fn within(load: &Load, what: &str, bytes: u64, accepted: u64, copies: u64) -> Finding {
    // Each view change may send and write again what was on its way.
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
