//! Every acknowledged append is in the log at the end, or below the trim point. Limits may trim
//! unread records: each trimmed position that was never read excuses one missing append.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::Position;

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{End, History, Outcome};
use crate::operator::Acceptance;

pub(super) fn check(history: &History) -> Finding {
    let End::AtRest { trim, tail } = history.end else { return Ok(()) };
    let positions = history.positions();
    let mut there: BTreeMap<usize, u32> = BTreeMap::new();
    // Copies of each append outside an accepted loss: after it, the log may hold such an append
    // again.
    let mut certain: BTreeMap<usize, u32> = BTreeMap::new();
    for (position, (_, append)) in &history.last {
        if let Some(append) = append.filter(|_| *position >= trim && *position < tail) {
            *there.entry(append).or_default() += 1;
            let is_certain = history.accepted.is_some() && !history.may_be_gone(*position);
            *certain.entry(append).or_default() += u32::from(is_certain);
        }
    }
    let mut unseen = unseen_below(history, trim);
    for (index, append) in history.appends.iter().enumerate() {
        if append.outcome != Outcome::Acknowledged || there.get(&index) == Some(&1) {
            continue;
        }
        let position = positions.get(&index);
        // An acknowledgement from before the loss may arrive late.
        let is_older = |loss: &Acceptance| loss.done.is_none_or(|done| append.invoked < done);
        let was_lost = history.accepted.as_ref().is_some_and(is_older);
        let is_again = was_lost && certain.get(&index) == Some(&1);
        if history.excuse(Excuse::Moved, is_again) {
            continue;
        }
        let is_gone = was_lost && position.is_none_or(|position| history.may_be_gone(*position));
        if history.excuse(Excuse::Gone, is_gone) {
            continue;
        }
        if position.is_none() && unseen > 0 {
            unseen -= 1;
            continue;
        }
        if position.is_none_or(|position| *position >= trim) {
            return Err(format!(
                "{:?} was acknowledged as {:?}, and is not in the log (trimmed to {trim}, tail {tail}); \
                 it was seen at {position:?}",
                append.payload, append.ids
            ));
        }
    }
    Ok(())
}

fn unseen_below(history: &History, trim: Position) -> u64 {
    if history.retained.is_empty() {
        return 0;
    }
    let observed = history.observations.iter().map(|seen| seen.position);
    let seen: BTreeSet<Position> = observed.filter(|position| *position < trim).collect();
    trim.0 - seen.len() as u64
}
