//! Copies of retired shards: when another node is to keep one in place of a node that stays away.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::{LogEntry, NodeId, Time};

use super::{Controller, STAGGER};
use crate::control::members::Wish;
use crate::control::retiring::stand_ins;

/// How long the controller waits at least before it looks again whether a node can stand in for one
/// that stays away.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The nodes that have not answered for as long as a replica may be away before another node
/// replaces it.
pub(super) fn lost(controller: &Controller, now: Time) -> BTreeSet<NodeId> {
    let is_lost = |since: &Time| now >= *since + controller.options.limits.replace_after;
    let silent = controller.silent_since.iter().filter(|(_, since)| is_lost(since));
    silent.map(|(node, _)| *node).collect()
}

/// Whether a node can copy a retired shard in place of a node that stays away.
pub(super) fn can_copy(controller: &Controller, now: Time, entry: &LogEntry) -> bool {
    let lost = lost(controller, now);
    let retired = entry.view.iter().flat_map(|view| &view.retired);
    retired.into_iter().any(|retired| !stand_ins(retired, entry, &lost, controller.liveness()).is_empty())
}

/// A copy of a retired shard is on a node that does not answer: looks, when that has been so for
/// long enough, whether another node can keep one instead. The controller drops what it knows of
/// keepers that the present entry does not ask for.
pub(super) fn look_after_copies(controller: &mut Controller, now: Time) {
    let Some(entry) = &controller.current else { return };
    controller.keepers.retain(|replica| Wish::of(entry, *replica) == Wish::Keep);
    let retired = entry.view.iter().flat_map(|view| &view.retired);
    let is_short = |away: usize, copies: usize| copies < entry.config.replicas as usize + away;
    let due = retired.filter_map(|retired| {
        let away = retired.nodes().filter(|node| controller.suspected.contains(node));
        let since = away.clone().filter_map(|node| controller.silent_since.get(&node)).min()?;
        is_short(away.count(), retired.nodes().count()).then_some(*since)
    });
    if let Some(since) = due.min() {
        let due = since + controller.options.limits.replace_after;
        let pause = if due > now { due - now } else { LOOK_AGAIN };
        controller.look_after(now, pause + STAGGER * controller.rank());
    }
}
