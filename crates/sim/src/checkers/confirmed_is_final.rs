//! Below a confirmed bound, a subscription with predictions got exactly the log's records, and all
//! of them were final at that moment.

use std::collections::BTreeMap;

use seriatim_model::{Position, RecordId};

use super::Finding;
use crate::history::{End, Foretelling, History, Moment, Speculation};

pub(super) fn check(history: &History) -> Finding {
    if history.accepted.is_some() {
        // If an operator accepted a loss, even final records may be gone.
        return Ok(());
    }
    history.speculations.iter().try_for_each(|speculation| follow(history, speculation))
}

fn follow(history: &History, speculation: &Speculation) -> Finding {
    let mut standing: BTreeMap<Position, RecordId> = BTreeMap::new();
    let mut confirmed = Position::ZERO;
    for told in &speculation.told {
        match told.what {
            Foretelling::Record { position, id, .. } => {
                standing.insert(position, id);
            }
            Foretelling::Fail(after) => {
                standing.split_off(&after);
            }
            Foretelling::Trimmed(first) => {
                standing = standing.split_off(&first);
                confirmed = first;
            }
            Foretelling::Lost(_, end) => confirmed = end,
            Foretelling::Confirm(upto) => {
                let rest = standing.split_off(&upto);
                let is_final = std::mem::replace(&mut standing, rest);
                were_committed(history, told.at, upto, &is_final)?;
                are_all(history, speculation, (told.at, confirmed, upto), &is_final)?;
                confirmed = upto;
            }
        }
    }
    Ok(())
}

/// Where shards write at given positions, each shard decides alone which of its positions are
/// final.
fn were_committed(
    history: &History,
    at: Moment,
    upto: Position,
    records: &BTreeMap<Position, RecordId>,
) -> Finding {
    let stable = history.stable_at(at);
    if !history.config.order.places_first() {
        return match upto <= stable {
            true => Ok(()),
            false => Err(format!(
                "{upto} was confirmed at moment {at}, when only what lies below {stable} was final"
            )),
        };
    }
    let placement = history.placement();
    let is_early = |position: &&Position| {
        **position >= stable.max(history.written_at(placement.shard_of(**position), at))
    };
    match records.keys().find(is_early) {
        Some(position) => Err(format!("{position} was confirmed at moment {at}, before it was final")),
        None => Ok(()),
    }
}

fn are_all(
    history: &History,
    speculation: &Speculation,
    (at, from, upto): (Moment, Position, Position),
    records: &BTreeMap<Position, RecordId>,
) -> Finding {
    let End::AtRest { trim, .. } = history.end else { return Ok(()) };
    if upto <= trim || from >= upto {
        return Ok(());
    }
    let from = from.max(trim);
    let told: BTreeMap<Position, RecordId> = records.range(from..upto).map(|(at, id)| (*at, *id)).collect();
    let wanted = |position: &Position| history.is_wanted(&speculation.wanted, *position);
    let expected = history.last.range(from..upto).filter(|(position, _)| wanted(position));
    let expected: BTreeMap<Position, RecordId> = expected.map(|(at, (id, _))| (*at, *id)).collect();
    if told == expected {
        return Ok(());
    }
    let differs = |position: &Position| told.get(position) != expected.get(position);
    let position = told.keys().chain(expected.keys()).copied().filter(differs).min().unwrap_or(from);
    Err(format!(
        "{upto} was confirmed at moment {at}, with {:?} at {position}, where the log has {:?}",
        told.get(&position),
        expected.get(&position)
    ))
}
