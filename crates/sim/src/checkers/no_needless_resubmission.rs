//! A record durable on a shard's replicas when a view ends, and kept into the next view, is in the
//! log when that starts: its client need not submit it again.

use std::collections::BTreeMap;

use seriatim_model::{Position, SessionId};

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{History, Moment};
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
        // An accepted loss includes the position just below the view's start.
        let is_lost =
            |kept: &Kept| kept.start > Position::ZERO && history.may_be_gone(Position(kept.start.0 - 1));
        // The record is in the log twice: the duplicate filter was lost with the memory that an
        // operator gave up.
        let is_again = |kept: &Kept| {
            let mut below = history.last.range(..kept.start);
            history.may_be_again(*position, Moment::MAX)
                && (history.trimmed_to > Position::ZERO || below.any(|(_, (other, _))| other == id))
        };
        let is_excused = |kept: &&Kept| history.excuse(Excuse::Moved, is_lost(kept) || is_again(kept));
        if let Some(kept) = again.filter(|kept| !is_excused(kept)) {
            return Err(format!(
                "{id:?} was on all replicas of its shard that view {} has of the one before, which starts at {}; it is at \
                 position {position}",
                kept.view, kept.start
            ));
        }
    }
    Ok(())
}
