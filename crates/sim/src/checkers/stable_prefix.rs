//! A record that was read at a position is there for every reader after, and in the end. Once one
//! reader was told that a position is lost, no reader that asks later gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{Position, ShardMembers};

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{End, History, Observation};

/// How long a log may take, at durability `memory`, to write behind what is stable.
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

/// A record that was read from a log that lost memory, and no disk, stays readable: also while the
/// log is unavailable, and whatever is accepted. A prediction may be confirmed by the word of
/// another shard, before its own shard knows that it is final; and a replica writes behind only
/// what it knows to be final. A replica that gave it out may be left behind by a view whose
/// replicas hear only then that it is final. Killed processes lose nothing here that they wrote: so
/// what a view wrote anew is kept from the first, and not only after [`WRITTEN_WITHIN`].
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

/// Whether a replica of the position's shard, in the view whose memory was lost, had it and knew it
/// to be final early enough to write it behind. Where it is not known whose position it is, one of
/// each shard.
fn was_known(history: &History, position: Position) -> bool {
    let Some(registered) = history.views.get(&history.lost_in) else { return true };
    let by = history.lost_at.before(WRITTEN_WITHIN);
    let knew = |members: &ShardMembers| {
        members.replicas.iter().any(|member| history.known_at(member.node, members.shard, by) > position)
    };
    let owner = history.owners.get(&position).and_then(|shard| registered.view.holders(*shard));
    owner.map_or_else(|| registered.view.shards.iter().all(knew), knew)
}
