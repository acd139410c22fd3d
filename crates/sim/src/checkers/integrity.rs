//! What is read is what was appended, under the name that its client was told.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    for append in &history.appends {
        if append.ids.len() > 1 {
            return Err(format!(
                "{:?} was acknowledged under several names: {:?}",
                append.payload, append.ids
            ));
        }
        // In one session every record that is appended again moves those after it up.
        let is_right = |number: u64| {
            number == append.number || history.unordered && number >= append.number + u64::from(append.again)
        };
        if let Some(id) = append.ids.first().filter(|id| !is_right(id.number)) {
            return Err(format!(
                "{:?} is number {} of its session, and was named {id}",
                append.payload, append.number
            ));
        }
    }
    for seen in &history.observations {
        if seen.is_void {
            // Whose name it was is told by others: no acknowledged append is missing.
            continue;
        }
        let Some(append) = seen.append else {
            return Err(format!(
                "position {} holds {}, whose content nobody appended",
                seen.position, seen.id
            ));
        };
        let append = &history.appends[append];
        if append.ids.first().is_some_and(|id| *id != seen.id) {
            return Err(format!(
                "{:?} was acknowledged as {:?}, and is at position {} as {}",
                append.payload, append.ids, seen.position, seen.id
            ));
        }
    }
    Ok(())
}
