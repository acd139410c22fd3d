//! No append is in the log twice, not even if its first id became a no-op and the client
//! resubmitted it under another. No refused append is in the log.

use std::collections::BTreeMap;

use seriatim_model::Position;

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{History, Moment, Outcome};

pub(super) fn check(history: &History) -> Finding {
    let mut places: BTreeMap<usize, (Position, Moment)> = BTreeMap::new();
    for seen in history.unbuffered() {
        let Some(append) = seen.append else { continue };
        let (before, earlier) = *places.entry(append).or_insert((seen.position, seen.at));
        let payload = &history.appends[append].payload;
        let may_be_again = || history.may_be_again(seen.position.max(before), seen.at);
        if history.was_lost(before, earlier, seen.at) {
            history.excuse(Excuse::Moved, before != seen.position);
            places.insert(append, (seen.position, seen.at));
        } else if before != seen.position && !history.excuse(Excuse::Moved, may_be_again()) {
            return Err(format!("{payload:?} is at position {before} and at position {}", seen.position));
        }
        let told = history.appends[append].completed.unwrap_or(Moment::MAX);
        if history.appends[append].outcome == Outcome::Refused
            && !history.excuse(Excuse::Moved, history.was_lost(seen.position, seen.at, told))
        {
            return Err(format!("{payload:?} was refused, and is at position {before}"));
        }
    }
    Ok(())
}
