//! A replaced replica keeps its files while another replica of the shard reads from them.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.removed_early.first().map_or(Ok(()), |early| Err(early.clone()))
}
