//! A replica that answered a seal or a fence of a view change confirms nothing for older views as
//! long as its incarnation lasts.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    history.broken_promises.first().map_or(Ok(()), |broken| Err(broken.clone()))
}
