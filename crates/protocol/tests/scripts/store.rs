//! The state of a shard's store after a restart.

use std::collections::BTreeSet;

use seriatim_model::storage::{Ordered, Run, ShardRecovery, StorageCommand};
use seriatim_model::{IdRun, Position, RecordId, ShardId, TimeIndex, ViewNumber};
use seriatim_protocol::parts::sessions::runs_of;

/// The state after these commands, oldest first.
pub(crate) fn recovered<'a>(
    shard: ShardId,
    commands: impl Iterator<Item = &'a StorageCommand> + Clone,
) -> ShardRecovery {
    let mut found = ShardRecovery {
        memory: None,
        stable: Position(0),
        trim: Position(0),
        missing: None,
        put: vec![],
        void: vec![],
        ends: vec![],
        times: TimeIndex::default(),
    };
    for command in commands.clone() {
        match command {
            StorageCommand::Remember(memory) => found.memory = Some(memory.clone()),
            StorageCommand::RememberMissing { memory, missing } => {
                (found.memory, found.missing) = (Some(memory.clone()), *missing);
            }
            StorageCommand::Stable(position) => found.stable = *position,
            StorageCommand::Trim(position) => found.trim = *position,
            StorageCommand::Bind { view, runs } | StorageCommand::Rebind { view, runs, .. } => {
                note_end(&mut found.ends, *view, runs.iter().map(Run::end).max().unwrap_or_default());
            }
            StorageCommand::Order { view, first, runs } => {
                note_end(&mut found.ends, *view, *first + runs.iter().map(|run| run.ids.count).sum::<u64>());
            }
            StorageCommand::Map { view, first, owned } => {
                note_end(&mut found.ends, *view, *first + owned.iter().map(|part| part.count).sum::<u64>());
            }
            StorageCommand::Put(_) | StorageCommand::Discard(_) => {}
            StorageCommand::Mark { times, whole: true, .. } => found.times = times.clone(),
            StorageCommand::Mark { times, whole: false, .. } => found.times.merge(times),
        }
    }
    (found.put, found.void) = unordered(shard, found.stable, commands);
    found
}

/// Ids of records and of no-ops without a final position.
fn unordered<'a>(
    shard: ShardId,
    stable: Position,
    commands: impl Iterator<Item = &'a StorageCommand>,
) -> (Vec<IdRun>, Vec<IdRun>) {
    let (mut put, mut void) = (BTreeSet::<RecordId>::new(), BTreeSet::<RecordId>::new());
    for command in commands {
        match command {
            StorageCommand::Put(records) => put.extend(records.iter().map(|(id, _)| *id)),
            StorageCommand::Discard(ids) => ids.ids().for_each(|id| _ = put.remove(&id)),
            StorageCommand::Order { first, runs, .. } => {
                let each = |run: &Ordered| run.ids.ids().map(|id| (id, *run)).collect::<Vec<_>>();
                for (position, (id, run)) in (first.0..).zip(runs.iter().flat_map(each)) {
                    if run.shard != shard {
                        continue;
                    }
                    let is_final = Position(position) < stable;
                    if is_final {
                        put.remove(&id);
                    }
                    if run.is_void && !is_final {
                        void.insert(id)
                    } else {
                        void.remove(&id)
                    };
                }
            }
            _ => {}
        }
    }
    (runs_of(put.into_iter()), runs_of(void.into_iter()))
}

/// Notes that the store has versions of view `view` up to `end`.
fn note_end(ends: &mut Vec<(ViewNumber, Position)>, view: ViewNumber, end: Position) {
    match ends.iter_mut().find(|(known, _)| *known == view) {
        Some((_, known)) => *known = end.max(*known),
        None => ends.push((view, end)),
    }
}
