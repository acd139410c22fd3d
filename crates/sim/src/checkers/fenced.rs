//! After a player has attached to a target, no player with a lower epoch changes the target.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let Some(playing) = &history.playing else { return Ok(()) };
    for target in &playing.targets {
        let is_late = target.transactions.iter().find(|transaction| transaction.epoch < transaction.known);
        if let Some(late) = is_late {
            return Err(format!(
                "target {} applied a batch of epoch {} at moment {}, and epoch {} had attached",
                target.id, late.epoch, late.at, late.known
            ));
        }
    }
    Ok(())
}
