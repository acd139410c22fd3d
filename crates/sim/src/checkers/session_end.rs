//! Nothing of a session is in the log from the number on at which all members of a view ended it.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    if history.accepted.is_some() {
        // Which numbers were bound, and where sessions ended, may have been lost.
        return Ok(());
    }
    for seen in &history.observations {
        let end = history.ended.get(&seen.id.session);
        if let Some(end) = end.filter(|end| seen.id.number >= **end) {
            return Err(format!(
                "{} is at position {}, but its session ended at {end}",
                seen.id, seen.position
            ));
        }
    }
    Ok(())
}
