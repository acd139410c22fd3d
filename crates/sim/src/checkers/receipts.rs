//! Where records get their positions first, every receipt has the position at which the record is
//! read.

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{History, Outcome};

pub(super) fn check(history: &History) -> Finding {
    if history.config.order.is_lazy() {
        return Ok(());
    }
    for append in history.appends.iter().filter(|append| append.outcome == Outcome::Acknowledged) {
        if append.position.is_none() {
            return Err(format!("{:?} was acknowledged without a position", append.payload));
        }
    }
    for seen in history.unbuffered() {
        let Some(append) = seen.append.map(|index| &history.appends[index]) else { continue };
        let (Some(position), Some(told)) = (append.position, append.completed) else { continue };
        let is_lost = || {
            history.was_lost(position, told, seen.at)
                || history.was_lost(seen.position, seen.at, told)
                || history.may_be_again(position.max(seen.position), seen.at.max(told))
        };
        if position != seen.position && !history.excuse(Excuse::Moved, is_lost()) {
            return Err(format!(
                "{:?} was acknowledged at position {position}, and was read at {}",
                append.payload, seen.position
            ));
        }
    }
    Ok(())
}
