//! Which shards a view has, and which of them take new records.
//!
//! A shard joins with the view that first names it, and holds nothing below where the ordering's
//! handover says that shards join. One that is to leave takes no new records from the next view on.
//! It stays a shard like the others, so that what it holds can be read, until all of that is
//! trimmed; then the next view does without it. One that is retired (`retiring.rs`) is no shard of
//! the view.

use seriatim_model::{LogEntry, Placement, Position, ShardId, ShardMembers};

use crate::mutation::{Mutation, Options};

/// Whether the log has this shard, and the registered view does not.
pub(super) fn joins(entry: &LogEntry, shard: ShardId) -> bool {
    entry.view.as_ref().is_some_and(|view| view.shard(shard).is_none())
}

/// Whether the registered view goes on without a shard that has positions.
pub(super) fn is_retired(entry: &LogEntry, shard: ShardId) -> bool {
    entry.view.as_ref().is_some_and(|view| view.retired(shard).is_some())
}

/// The shards that the log has, also the ones that are to leave, but not those that are retired.
pub(super) fn shards(entry: &LogEntry) -> impl Iterator<Item = ShardId> {
    let numbered = (0..).map(ShardId).zip(&entry.shards);
    let here = numbered.filter(|(shard, nodes)| !nodes.is_empty() && !is_retired(entry, *shard));
    here.map(|(shard, _)| shard)
}

/// Which positions go where in a view of these shards that starts to decide at `first`.
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
        // If no other shard can take part yet, the ones that are to leave go on.
        Some(view) if open.is_empty() || open == view.open_shards() => view.placement.clone(),
        Some(view) => view.placement.then(from, open),
    }
}

/// Whether a view can do without a shard that is to leave: it took no new records in the registered
/// view, and what it got before that view started is trimmed, as everything below `trimmed` is.
pub(super) fn has_left(entry: &LogEntry, shard: ShardId, trimmed: Position, options: Options) -> bool {
    let early = options.mutates(Mutation::LeftUntrimmed);
    entry.leaving.contains(&shard)
        && entry
            .view
            .as_ref()
            .is_some_and(|view| !view.open_shards().contains(&shard) && (trimmed >= view.start || early))
}

/// The shards that another view would let take new records, if `answering` nodes answer and these
/// are others than in the registered view.
pub(super) fn due(entry: &LogEntry, answering: usize) -> Option<Vec<ShardId>> {
    let view = entry.view.as_ref()?;
    // Any node can stand in for one that is meant to host a replica.
    let can_join = answering >= entry.config.least_replicas();
    let can_take_part = |shard: ShardId| view.shard(shard).is_some() || can_join;
    let wanted = shards(entry).filter(|shard| !entry.leaving.contains(shard));
    let open: Vec<ShardId> = wanted.filter(|shard| can_take_part(*shard)).collect();
    (!open.is_empty() && open != view.open_shards()).then_some(open)
}
