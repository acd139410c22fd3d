//! Nothing below the trim point is given out to who asked after every replica had confirmed it. Only a
//! log that lost more than its durability can bear may have forgotten its trim point.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    if history.lost_too_much {
        return Ok(());
    }
    for served in &history.served {
        let before = history.trims.partition_point(|trim| trim.confirmed < served.asked);
        let Some(first) = history.trims[..before].iter().map(|trim| trim.first).max() else { continue };
        let records = &history.observations[served.records.clone()];
        if let Some(seen) = records.iter().find(|seen| seen.position < first) {
            return Err(format!(
                "node {} gave out position {} of shard {}, asked for after the log was trimmed to {first}",
                served.node, seen.position, served.shard
            ));
        }
    }
    Ok(())
}
