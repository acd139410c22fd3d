//! A subscription that still runs at the end received exactly the log's records below its position,
//! even after an accepted loss assigned positions of lost records to others.

use seriatim_model::{Position, RecordId};

use super::Finding;
use crate::chosen::Chosen;
use crate::history::{End, History};

pub(super) fn check(history: &History) -> Finding {
    let End::AtRest { trim, .. } = history.end else { return Ok(()) };
    let running = history.choices.iter().filter(|chosen| !chosen.has_ended);
    running.into_iter().try_for_each(|chosen| has_the_log(history, chosen, trim))
}

fn has_the_log(history: &History, chosen: &Chosen, trim: Position) -> Finding {
    let upto = chosen.upto.max(trim);
    for (at, (id, _)) in history.last.range(trim..upto) {
        let given = chosen.given.get(at);
        let is_owed = chosen.answers_for(*at) && history.is_wanted(&chosen.wanted, *at);
        if is_owed && given != Some(id) {
            return Err(objection(chosen, *at, given, Some(id)));
        }
    }
    for (at, given) in chosen.given.range(trim..upto) {
        // If `there` is `None`, the position is in a gap of a shard: the log has no record.
        let there = history.last.get(at).map(|(id, _)| id);
        if there.is_some_and(|id| id != given) {
            return Err(objection(chosen, *at, Some(given), there));
        }
    }
    Ok(())
}

fn objection(chosen: &Chosen, at: Position, given: Option<&RecordId>, there: Option<&RecordId>) -> String {
    format!(
        "a subscription that still runs, and says to have all below {}, was given {given:?} at {at}, where the log has {there:?}",
        chosen.upto
    )
}
