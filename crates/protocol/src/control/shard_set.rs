//! The shards of a view, and which of them are open for new records.
//!
//! A shard joins with the first view that names it, and holds nothing below the handover's position
//! for joining shards. A leaving shard is closed from the next view on. It stays readable until its
//! records are trimmed; then a view drops it. A retired shard (`retiring.rs`) is no shard of the
//! view.

use seriatim_model::{LogEntry, Placement, Position, ShardId, ShardMembers};

use crate::mutation::{Mutation, Options};

/// Whether the view does not name this shard yet.
pub(super) fn joins(entry: &LogEntry, shard: ShardId) -> bool {
    entry.view.as_ref().is_some_and(|view| view.shard(shard).is_none())
}

pub(super) fn is_retired(entry: &LogEntry, shard: ShardId) -> bool {
    entry.view.as_ref().is_some_and(|view| view.retired(shard).is_some())
}

/// The shards of the next view: leaving ones too, but no retired ones.
pub(super) fn shards(entry: &LogEntry) -> impl Iterator<Item = ShardId> {
    let numbered = (0..).map(ShardId).zip(&entry.shards);
    let here = numbered.filter(|(shard, nodes)| !nodes.is_empty() && !is_retired(entry, *shard));
    here.map(|(shard, _)| shard)
}

/// The placement of a view that decides from `first`.
pub(super) fn placement(
    entry: &LogEntry,
    members: &[ShardMembers],
    first: Position,
    options: Options,
) -> Placement {
    let open = members.iter().map(|members| members.shard).filter(|shard| !entry.leaving.contains(shard));
    let open: Vec<ShardId> = open.collect();
    let from = if options.mutates(Mutation::PlacedAnew) { Position::ZERO } else { first };
    match &entry.view {
        None => Placement::new(open, entry.config.stripe),
        // Without another open shard the leaving ones stay open.
        Some(view) if open.is_empty() || open == view.open_shards() => view.placement.clone(),
        Some(view) => view.placement.then(from, open),
    }
}

/// Whether the next view can drop a leaving shard: it is closed, and its records are below
/// `trimmed`.
pub(super) fn has_left(entry: &LogEntry, shard: ShardId, trimmed: Position, options: Options) -> bool {
    let early = options.mutates(Mutation::LeftUntrimmed);
    entry.leaving.contains(&shard)
        && entry
            .view
            .as_ref()
            .is_some_and(|view| !view.open_shards().contains(&shard) && (trimmed >= view.start || early))
}

/// The next view's open shards if `answering` nodes answer; `None` if they do not change.
pub(super) fn due(entry: &LogEntry, answering: usize) -> Option<Vec<ShardId>> {
    let view = entry.view.as_ref()?;
    // Any node can stand in for an assigned one.
    let can_join = answering >= entry.config.least_replicas();
    let can_take_part = |shard: ShardId| view.shard(shard).is_some() || can_join;
    let wanted = shards(entry).filter(|shard| !entry.leaving.contains(shard));
    let open: Vec<ShardId> = wanted.filter(|shard| can_take_part(*shard)).collect();
    (!open.is_empty() && open != view.open_shards()).then_some(open)
}
