//! Copies of retired shards: when another node replaces an absent holder.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::{LogEntry, NodeId, Time};

use super::{Controller, STAGGER};
use crate::control::members::Wish;
use crate::control::retiring::stand_ins;

/// The pause between checks for a stand-in.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Nodes that have been silent for as long as a replica may be absent.
pub(super) fn lost(controller: &Controller, now: Time) -> BTreeSet<NodeId> {
    let is_lost = |since: &Time| now >= *since + controller.options.limits.replace_after;
    let silent = controller.silent_since.iter().filter(|(_, since)| is_lost(since));
    silent.map(|(node, _)| *node).collect()
}

/// Whether a node can copy a retired shard in place of an absent holder.
pub(super) fn can_copy(controller: &Controller, now: Time, entry: &LogEntry) -> bool {
    let lost = lost(controller, now);
    let retired = entry.view.iter().flat_map(|view| &view.retired);
    retired.into_iter().any(|retired| !stand_ins(retired, entry, &lost, controller.liveness()).is_empty())
}

/// Schedules a check for when the absent holder of a copy may be replaced. Also drops `keepers`
/// that no longer need a place in the list of copies.
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
