//! After all replicas confirmed a trim, requests get nothing below it. Exceptions: a log that lost
//! more than it can bear, and replicas outside the view or in another incarnation. A replica that
//! rejoins asks the others once it knows the view.

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

/// Whether the replica was a member throughout, and knew the view when it was asked.
fn takes_part(history: &History, view: &View, served: &Served) -> bool {
    let Served { node, shard, asked, at, .. } = served;
    let members = view.shard(*shard).map(|members| &members.replicas);
    let Some(member) = members.and_then(|members| members.iter().find(|member| member.node == *node)) else {
        return false;
    };
    let is_it =
        |moment| history.incarnation_at(*node, *shard, moment).is_some_and(|it| it == member.incarnation);
    let heard = history.heard.get(&(*member, *shard, view.number));
    is_it(*asked) && is_it(*at) && heard.is_some_and(|heard| heard < asked)
}
