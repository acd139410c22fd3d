//! Every target applies its entries in the order of the log.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let Some(playing) = &history.playing else { return Ok(()) };
    for target in &playing.targets {
        let falls = target.database.effects.windows(2).find(|pair| pair[1].0 < pair[0].0);
        if let Some(pair) = falls {
            let (earlier, later) = (pair[0].0, pair[1].0);
            return Err(format!("target {} applied position {later} after {earlier}", target.id));
        }
    }
    Ok(())
}
