//! A replica that answered a seal or a fence confirms nothing of older views, throughout its
//! incarnation.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.broken_promises.first().map_or(Ok(()), |broken| Err(broken.clone()))
}
