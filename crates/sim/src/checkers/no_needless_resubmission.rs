//! A record that a shard's replicas have durably when a view ends, and keep into the next, is in the log when that begins:
//! its client need not submit it again.

use std::collections::BTreeMap;

use seriatim_model::{Position, SessionId};

use super::Finding;
use crate::excuses::Excuse;
use crate::history::History;
use crate::kept::Kept;

pub(super) fn check(history: &History) -> Finding {
    let mut of_session: BTreeMap<SessionId, Vec<&Kept>> = BTreeMap::new();
    for kept in history.kept.iter().filter(|kept| kept.ids.count > 0) {
        of_session.entry(kept.ids.session).or_default().push(kept);
    }
    for (position, (id, _)) in &history.last {
        let kept = of_session.get(&id.session).into_iter().flatten();
        let had = kept.filter(|kept| kept.ids.first <= id.number && id.number < kept.ids.end());
        let again = had.into_iter().find(|kept| *position >= kept.start);
        // Its place below the view's start was one of those that an operator gave up.
        let is_lost =
            |kept: &Kept| kept.start > Position::ZERO && history.may_be_gone(Position(kept.start.0 - 1));
        if let Some(kept) = again.filter(|kept| !history.excuse(Excuse::Moved, is_lost(kept))) {
            return Err(format!(
                "{id:?} was on all replicas of its shard that view {} has of the one before, which starts at {}; it is at \
                 position {position}",
                kept.view, kept.start
            ));
        }
    }
    Ok(())
}
