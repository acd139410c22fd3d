//! After the last fault every target receives all its entries, without the skipped ones.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let Some(playing) = &history.playing else { return Ok(()) };
    for target in &playing.targets {
        let missing = history.missing(target);
        if let Some(position) = missing.first() {
            return Err(format!(
                "target {} lacks {} entries, first the one at position {position}; its bound is {}",
                target.id,
                missing.len(),
                target.database.bound
            ));
        }
    }
    Ok(())
}
