//! Nothing below the trim point is given out to who asked after every replica had confirmed it. Only a
//! log that lost more than its durability can bear may have forgotten its trim point, and a replica that
//! the view does without may never have heard of it.

use seriatim_model::View;

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{History, Served};

pub(super) fn check(history: &History) -> Finding {
    for served in &history.served {
        let before = history.trims.partition_point(|trim| trim.confirmed < served.asked);
        let Some(first) = history.trims[..before].iter().map(|trim| trim.first).max() else { continue };
        if !history.view_at(served.asked).is_some_and(|view| takes_part(view, served)) {
            continue;
        }
        let records = &history.observations[served.records.clone()];
        let given = records.iter().find(|seen| seen.position < first);
        if let Some(seen) = given.filter(|_| !history.excuse(Excuse::Untrimmed, history.lost_too_much)) {
            return Err(format!(
                "node {} gave out position {} of shard {}, asked for after the log was trimmed to {first}",
                served.node, seen.position, served.shard
            ));
        }
    }
    Ok(())
}

fn takes_part(view: &View, served: &Served) -> bool {
    let members = view.shard(served.shard);
    members.is_some_and(|members| members.replicas.iter().any(|member| member.node == served.node))
}
