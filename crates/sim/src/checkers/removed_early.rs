//! A replica that was replaced keeps its files as long as another replica of the shard reads what it lacks from them.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.removed_early.first().map_or(Ok(()), |early| Err(early.clone()))
}
