//! What a target applies is what the mapping rule of the entry's position gives it.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let Some(playing) = &history.playing else { return Ok(()) };
    let entries = history.entries();
    for target in &playing.targets {
        for (position, parts) in &target.database.effects {
            let Some(entry) = entries.get(position) else {
                return Err(format!("target {} applied position {position}, where no entry is", target.id));
            };
            if target.parts(*position, entry) != *parts {
                return Err(format!(
                    "target {} applied other parts of the entry at position {position} than its rule gives it",
                    target.id
                ));
            }
        }
    }
    Ok(())
}
