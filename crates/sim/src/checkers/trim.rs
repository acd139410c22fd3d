//! Nothing below the trim point is given out to who asked after every replica had confirmed it. Only a
//! log that lost more than its durability can bear may have forgotten its trim point, and a replica that
//! the view does without may never have heard of it. One that the view counts on again asks the others as soon as it has heard
//! of that view.

use seriatim_model::View;

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{History, Served};

pub(super) fn check(history: &History) -> Finding {
    for served in &history.served {
        let before = history.trims.partition_point(|trim| trim.confirmed < served.asked);
        let Some(first) = history.trims[..before].iter().map(|trim| trim.first).max() else { continue };
        if !history.view_at(served.asked).is_some_and(|view| takes_part(history, view, served)) {
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

/// Whether a view counts on the replica that answered, which had heard of that view when it was asked.
fn takes_part(history: &History, view: &View, served: &Served) -> bool {
    let members = view.shard(served.shard);
    let heard = history.heard.get(&(served.node, served.shard, view.number));
    members.is_some_and(|members| members.replicas.iter().any(|member| member.node == served.node))
        && heard.is_some_and(|heard| *heard < served.asked)
}
