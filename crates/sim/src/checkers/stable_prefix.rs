//! A record stays at the position where it was first read. A position once reported lost is never
//! served to a later request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{Position, ShardMembers};

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{End, History, Observation};

/// Longest time until nodes write final records to disk in the background, at durability `memory`.
const WRITTEN_WITHIN: Duration = Duration::from_millis(10);

pub(super) fn check(history: &History) -> Finding {
    let mut first: BTreeMap<Position, &Observation> = BTreeMap::new();
    for seen in history.unbuffered() {
        let before = *first.entry(seen.position).or_insert(seen);
        if history.was_given_up(seen.position, before.at, seen.at) {
            history.excuse(Excuse::Overwritten, (before.id, before.append) != (seen.id, seen.append));
            first.insert(seen.position, seen);
            continue;
        }
        if (before.id, before.append) != (seen.id, seen.append) {
            return Err(format!(
                "position {} had {} of append {:?} at moment {}, and {} of append {:?} at moment {}",
                seen.position, before.id, before.append, before.at, seen.id, seen.append, seen.at
            ));
        }
    }
    for served in &history.served {
        for seen in &history.observations[served.records.clone()] {
            if history.told_lost.get(&(served.shard, seen.position)).is_some_and(|told| *told < served.asked)
            {
                return Err(format!(
                    "position {} is lost, a reader was told, and node {} gave out {} at moment {}",
                    seen.position, served.node, seen.id, seen.at
                ));
            }
        }
    }
    still_readable(history, &first)?;
    let End::AtRest { trim, tail } = history.end else { return Ok(()) };
    for (position, seen) in first {
        let lost = position >= trim && history.last.get(&position).is_none_or(|(id, _)| *id != seen.id);
        let is_given_up = || history.was_given_up(position, seen.at, u64::MAX) || history.is_in_gap(position);
        if (lost || position >= tail) && !history.excuse(Excuse::Gone, is_given_up()) {
            return Err(format!(
                "position {position} was read with {} at moment {}, and is not so in the end (tail {tail})",
                seen.id, seen.at
            ));
        }
    }
    Ok(())
}

/// After a loss of memory, but of no disk, every record that was read stays readable, even while
/// the log is unavailable or after an accepted loss. Exceptions: predictions, which another shard
/// may confirm before their own shard knows that they are final; and records that no replica in the
/// lost view knew as final early enough to write them behind. Killed processes keep all their
/// writes here, so rewritten records survive at once, not only after [`WRITTEN_WITHIN`].
fn still_readable(history: &History, first: &BTreeMap<Position, &Observation>) -> Finding {
    if history.disks_failed {
        return Ok(());
    }
    let is_old = |seen: &Observation| seen.seen_at + WRITTEN_WITHIN < history.lost_at;
    let is_final = |seen: &&Observation| !seen.is_confirmed && is_old(seen);
    let given_out: BTreeSet<Position> =
        history.unbuffered().filter(is_final).map(|seen| seen.position).collect();
    let is_kept = |seen: &Observation| {
        is_old(seen) && given_out.contains(&seen.position) && was_known(history, seen.position)
    };
    if let Some(loss) = &history.accepted {
        let is_given_up =
            |(position, seen): &(&Position, &&Observation)| is_kept(seen) && history.may_be_gone(**position);
        if let Some((position, _)) = first.iter().find(is_given_up) {
            return Err(format!(
                "position {position} was read, no disk failed, and it was given up: {loss:?}"
            ));
        }
    }
    if !matches!(history.end, End::Unavailable(_)) {
        return Ok(());
    }
    let in_the_end = history.observations.iter().filter(|seen| seen.at >= history.judged_from);
    let there: BTreeSet<Position> = in_the_end.map(|seen| seen.position).collect();
    let is_gone = |(position, seen): &(&Position, &&Observation)| {
        is_kept(seen) && **position >= history.trimmed_to && !there.contains(*position)
    };
    match first.iter().find(is_gone) {
        Some((position, _)) => Err(format!(
            "position {position} was read, no disk failed, and nobody gives it out while the log is unavailable"
        )),
        None => Ok(()),
    }
}

/// Whether a replica of the position's shard, in the view whose memory was lost, knew the record as
/// final early enough to write it behind. If the shard is unknown: a replica of each.
fn was_known(history: &History, position: Position) -> bool {
    let Some(registered) = history.views.get(&history.lost_in) else { return true };
    let by = history.lost_at.before(WRITTEN_WITHIN);
    let knew = |members: &ShardMembers| {
        members.replicas.iter().any(|member| history.known_at(member.node, members.shard, by) > position)
    };
    let owner = history.owners.get(&position).and_then(|shard| registered.view.holders(*shard));
    owner.map_or_else(|| registered.view.shards.iter().all(knew), knew)
}
