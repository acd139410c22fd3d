//! Every record read was appended, under the id that its client received.

use std::collections::BTreeMap;

use seriatim_model::RecordId;

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{History, Moment};

pub(super) fn check(history: &History) -> Finding {
    // Per application session and log session: number of appends before number 0 of the log
    // session. An application may restart in another log session.
    let mut earlier = BTreeMap::new();
    for append in &history.appends {
        if append.ids.len() > 1 {
            return Err(format!(
                "{:?} was acknowledged under several names: {:?}",
                append.payload, append.ids
            ));
        }
        // In one session each resubmission raises the numbers of later appends.
        let mut is_right = |id: &RecordId| {
            if history.unordered {
                return id.number >= append.number + u64::from(append.again);
            }
            let Some(before) = append.number.checked_sub(id.number) else { return false };
            let may_differ = !history.config.order.properties().continues_sessions;
            *earlier.entry((append.session, id.session)).or_insert(before) == before
                && (before == 0 || may_differ)
        };
        if let Some(id) = append.ids.first().filter(|id| !is_right(id)) {
            return Err(format!(
                "{:?} is number {} of its session, and was named {id}",
                append.payload, append.number
            ));
        }
    }
    for seen in &history.observations {
        if seen.is_void {
            // Other checkers judge no-ops: no acknowledged append may be missing.
            continue;
        }
        let Some(append) = seen.append else {
            return Err(format!(
                "position {} holds {}, whose content nobody appended",
                seen.position, seen.id
            ));
        };
        let append = &history.appends[append];
        let differs = append.ids.first().is_some_and(|id| *id != seen.id);
        let is_lost = || history.was_lost(seen.position, seen.at, Moment::MAX);
        if differs && !history.excuse(Excuse::Moved, is_lost()) {
            return Err(format!(
                "{:?} was acknowledged as {:?}, and is at position {} as {}",
                append.payload, append.ids, seen.position, seen.id
            ));
        }
    }
    Ok(())
}
