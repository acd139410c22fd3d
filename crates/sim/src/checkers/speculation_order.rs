//! A subscription with predictions receives records in order, each once unless it failed, and no
//! no-op. Nothing fails below the confirmed bound, or where the final record was predicted.

use std::collections::BTreeMap;

use seriatim_model::{Position, RecordId};

use super::Finding;
use crate::history::{End, Foretelling, History, Moment, Speculation};

pub(super) fn check(history: &History) -> Finding {
    history.speculations.iter().try_for_each(|speculation| follow(history, speculation))
}

fn follow(history: &History, speculation: &Speculation) -> Finding {
    let (mut next, mut confirmed) = (Position::ZERO, Position::ZERO);
    let mut standing: BTreeMap<Position, RecordId> = BTreeMap::new();
    for told in &speculation.told {
        let at = told.at;
        match told.what {
            Foretelling::Record { position, is_void: true, .. } => {
                return Err(format!("the no-op at {position} was told at moment {at}"));
            }
            Foretelling::Record { position, id, .. } => {
                if position < next {
                    return Err(format!("{position} was told at moment {at}, where {next} was to come"));
                }
                next = position.next();
                standing.insert(position, id);
            }
            Foretelling::Confirm(upto) => {
                if upto <= confirmed || upto < standing.keys().next().map_or(upto, |first| first.next()) {
                    return Err(format!(
                        "{upto} was confirmed at moment {at}, and nothing new lies below it"
                    ));
                }
                (confirmed, next) = (upto, next.max(upto));
                standing = standing.split_off(&upto);
            }
            Foretelling::Fail(after) => {
                if after < confirmed {
                    return Err(format!(
                        "{after} failed at moment {at}, and all below {confirmed} was confirmed"
                    ));
                }
                let void = standing.split_off(&after);
                if void.is_empty() {
                    return Err(format!(
                        "{after} failed at moment {at}, and nothing was told there or above"
                    ));
                }
                turned_out_different(history, speculation, at, (after, void.get(&after).copied()))?;
                // Below `after` a record may arrive where none was predicted, if it follows all
                // standing predictions.
                next = standing.keys().next_back().map_or(confirmed, |last| last.next()).min(after);
            }
            Foretelling::Trimmed(first) => {
                if first < next {
                    return Err(format!(
                        "{first} is the first that is left, and {next} was to come, at moment {at}"
                    ));
                }
                (confirmed, next) = (first, first);
                standing.clear();
            }
            Foretelling::Lost(from, end) => {
                if from < next || !standing.is_empty() {
                    return Err(format!(
                        "what is lost at {from} was told at moment {at}, where {next} was to come, and {} records \
                         before it may fail",
                        standing.len()
                    ));
                }
                next = end;
            }
        }
    }
    Ok(())
}

/// Checks that the failed record is not in the final log, unless a view began at or below its
/// position: then it was unknown whether the record would return.
fn turned_out_different(
    history: &History,
    speculation: &Speculation,
    at: Moment,
    (position, id): (Position, Option<RecordId>),
) -> Finding {
    let End::AtRest { trim, .. } = history.end else { return Ok(()) };
    let views = history.views.values().filter(|registered| registered.at <= at);
    let is_beyond = views.skip(1).any(|registered| registered.view.start <= position);
    if position < trim || is_beyond || history.accepted.is_some() {
        return Ok(());
    }
    let last = history.last.get(&position).filter(|_| history.is_wanted(&speculation.wanted, position));
    let last = last.map(|(id, _)| *id);
    match last == id {
        true => {
            Err(format!("{position} failed at moment {at}, with {id:?}, and that is what the log has there"))
        }
        false => Ok(()),
    }
}
