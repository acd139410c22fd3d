//! While the log and the player are well, a target that is well gets its entries in time, although
//! other targets are not well.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let Some(playing) = &history.playing else { return Ok(()) };
    playing.disturbed.first().map_or(Ok(()), |disturbed| Err(disturbed.clone()))
}
