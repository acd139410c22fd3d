//! A session's appends are in the log in submission order, without gaps. A resubmitted append
//! counts as submitted when it got its last id.

use std::collections::BTreeMap;

use seriatim_model::{Position, SessionId};
use seriatim_protocol::parts::junk::is_junk;

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{End, History};
use crate::operator::Acceptance;

pub(super) fn check(history: &History) -> Finding {
    let mut of_application: BTreeMap<u32, Vec<(Position, u64)>> = BTreeMap::new();
    for (append, (position, seen)) in history.places() {
        let is_there = history.last.get(&position).is_some_and(|(_, there)| *there == Some(append));
        let is_again = history.may_be_again(position, seen);
        if is_again || history.may_be_gone(position) && !is_there {
            // The record may be a repetition, or the client learned this position before it was
            // lost.
            history.excuse(Excuse::Reordered, true);
            continue;
        }
        let append = &history.appends[append];
        let number = if history.unordered {
            // Without an acknowledgement the last id is unknown.
            let Some(id) = append.ids.first() else { continue };
            id.number
        } else {
            append.number
        };
        of_application.entry(append.session).or_default().push((position, number));
    }
    for (session, records) in of_application {
        in_order(records).map_err(|what| format!("the {session}th session of all applications: {what}"))?;
    }
    let End::AtRest { trim, .. } = history.end else { return Ok(()) };
    if history.config.order.places_first() {
        return numbers_rise(history, trim);
    }
    let mut of_log: BTreeMap<SessionId, Vec<(Position, u64)>> = BTreeMap::new();
    // Records below `trim` do not count: shards may be trimmed to different points, and a session
    // may have ended.
    for (position, (id, _)) in history.last.range(trim..).filter(|(_, (id, _))| !is_junk(*id)) {
        of_log.entry(id.session).or_default().push((*position, id.number));
    }
    for (session, records) in of_log {
        let first = records[0].1;
        let gap = (first..).zip(&records).find(|(expected, (_, number))| expected != number);
        if let Some((expected, (position, number))) = gap
            && !is_part_lost(history, *position)
        {
            return Err(format!(
                "session {session} has number {number} at position {position}, where {expected} was to come"
            ));
        }
        if first > 0 && trim == Position::ZERO && !is_part_lost(history, records[0].0) {
            return Err(format!("session {session} starts with number {first}"));
        }
    }
    Ok(())
}

/// Checks that numbers rise, even with gaps. Where records get positions first, appends may be
/// missing if their clients know of the failure, or do not know the outcome.
fn numbers_rise(history: &History, trim: Position) -> Finding {
    let mut of_log: BTreeMap<SessionId, Vec<(Position, u64)>> = BTreeMap::new();
    for (position, (id, _)) in history.last.range(trim..).filter(|(_, (id, _))| !is_junk(*id)) {
        of_log.entry(id.session).or_default().push((*position, id.number));
    }
    of_log.into_iter().try_for_each(|(session, mut records)| {
        // A client may have appended a lost record again, out of order, so it does not count.
        records.retain(|(position, _)| !history.may_be_gone(*position));
        in_order(records).map_err(|what| format!("session {session}: {what}"))
    })
}

/// Whether a loss may have removed or repeated records of a session before this position.
fn is_part_lost(history: &History, position: Position) -> bool {
    let is_so = |loss: &Acceptance| position >= loss.certain || !loss.gaps.is_empty();
    history.excuse(Excuse::SessionForgotten, history.accepted.as_ref().is_some_and(is_so))
}

fn in_order(mut records: Vec<(Position, u64)>) -> Finding {
    records.sort_unstable();
    match records.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
        Some(pair) => Err(format!(
            "number {} is at position {}, number {} at {}",
            pair[0].1, pair[0].0, pair[1].1, pair[1].0
        )),
        None => Ok(()),
    }
}
