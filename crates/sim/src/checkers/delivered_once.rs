//! No target applies an entry twice.

use std::collections::BTreeSet;

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let Some(playing) = &history.playing else { return Ok(()) };
    for target in &playing.targets {
        let mut applied = BTreeSet::new();
        let again = target.database.effects.iter().find(|(position, _)| !applied.insert(*position));
        if let Some((position, _)) = again {
            return Err(format!("target {} applied the entry at position {position} twice", target.id));
        }
    }
    Ok(())
}
