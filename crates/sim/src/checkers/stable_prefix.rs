//! What was read at a position is there for every reader after, and in the end. What one reader was told is lost, no
//! reader gets that asks later.

use std::collections::BTreeMap;

use seriatim_model::Position;

use super::Finding;
use crate::history::{End, History, Observation};

pub(super) fn check(history: &History) -> Finding {
    let mut first: BTreeMap<Position, &Observation> = BTreeMap::new();
    for seen in history.unbuffered() {
        let before = *first.entry(seen.position).or_insert(seen);
        if history.was_given_up(seen.position, before.at, seen.at) {
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
    let End::Settled { trim, tail } = history.end else { return Ok(()) };
    for (position, seen) in first {
        if history.was_given_up(position, seen.at, u64::MAX) || history.is_in_gap(position) {
            continue;
        }
        let lost = position >= trim && history.last.get(&position).is_none_or(|(id, _)| *id != seen.id);
        if lost || position >= tail {
            return Err(format!(
                "position {position} was read with {} at moment {}, and is not so in the end (tail {tail})",
                seen.id, seen.at
            ));
        }
    }
    Ok(())
}
