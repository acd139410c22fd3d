//! After all members of a view ended a session at a number, the log holds no append of the session
//! from that number on.

use super::Finding;
use crate::excuses::Excuse;
use crate::history::History;
use crate::operator::Acceptance;

pub(super) fn check(history: &History) -> Finding {
    for seen in &history.observations {
        let Some((end, told)) = history.ended.get(&seen.id.session) else { continue };
        // The accepted loss may include the knowledge of bound numbers and of session ends.
        let is_forgotten = |loss: &Acceptance| *told > loss.at || history.may_be_gone(seen.position);
        let is_excused = || history.accepted.as_ref().is_some_and(is_forgotten);
        if seen.id.number >= *end && !history.excuse(Excuse::SessionForgotten, is_excused()) {
            return Err(format!(
                "{} is at position {}, but its session ended at {end}",
                seen.id, seen.position
            ));
        }
    }
    Ok(())
}
