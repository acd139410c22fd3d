//! Below its bound, a subscription to chosen shards received exactly the records of these shards
//! that any reader saw.

use std::collections::BTreeMap;

use seriatim_model::{Position, RecordId};

use super::Finding;
use crate::chosen::Chosen;
use crate::excuses::Excuse;
use crate::history::{End, History, Observation};

pub(super) fn check(history: &History) -> Finding {
    let End::AtRest { trim, .. } = history.end else { return Ok(()) };
    let mut choices = history.choices.iter().filter(|chosen| chosen.wanted.shards.is_some()).peekable();
    if choices.peek().is_none() {
        return Ok(());
    }
    let seen: BTreeMap<Position, &Observation> =
        history.observations.iter().map(|seen| (seen.position, seen)).collect();
    choices.try_for_each(|chosen| {
        has_all(history, chosen, &seen)?;
        has_no_other(history, chosen, &seen, trim)
    })
}

fn has_all(history: &History, chosen: &Chosen, seen: &BTreeMap<Position, &Observation>) -> Finding {
    for (at, seen) in seen.range(..chosen.upto).filter(|(at, seen)| history.wants(&chosen.wanted, **at, seen))
    {
        let is_missed = chosen.answers_for(*at) && chosen.given.get(at) != Some(&seen.id);
        if is_missed && !history.excuse(Excuse::Overwritten, history.may_be_gone(*at)) {
            return Err(objection(chosen, *at, Some(seen.id)));
        }
    }
    Ok(())
}

fn has_no_other(
    history: &History,
    chosen: &Chosen,
    seen: &BTreeMap<Position, &Observation>,
    trim: Position,
) -> Finding {
    for (at, id) in chosen.given.range(..chosen.upto) {
        let is_foreign = match seen.get(at) {
            // A reader of the whole log does not know the shard of a position.
            Some(seen) if !history.owners.contains_key(at) => seen.id != *id,
            Some(seen) => seen.id != *id || !history.wants(&chosen.wanted, *at, seen),
            // The record may have been trimmed before another reader got it.
            None => *at >= trim,
        };
        if is_foreign && !history.excuse(Excuse::Overwritten, history.may_be_gone(*at)) {
            return Err(objection(chosen, *at, seen.get(at).map(|seen| seen.id)));
        }
    }
    Ok(())
}

fn objection(chosen: &Chosen, at: Position, seen: Option<RecordId>) -> String {
    format!(
        "a subscription to {:?} has {:?} at {at}, where others saw {seen:?}, and says to have all below {}",
        chosen.wanted.shards,
        chosen.given.get(&at),
        chosen.upto
    )
}
