//! A reader that skips a lost range skips no record that is in the log in the end, unless a later
//! loss gave these positions to other records.

use seriatim_model::Position;

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{End, History, Moment, Skipped};

pub(super) fn check(history: &History) -> Finding {
    let End::AtRest { trim, .. } = history.end else { return Ok(()) };
    for Skipped { at, shards, from, end } in &history.skipped {
        let is_theirs = |position: Position| {
            let shard = history.last_shards.get(&position);
            shards.as_ref().is_none_or(|shards| shard.is_some_and(|shard| shards.contains(shard)))
        };
        let there = history.last.range(*from.max(&trim)..*end.max(&trim));
        for position in there.map(|(position, _)| *position).filter(|position| is_theirs(*position)) {
            if !history.excuse(Excuse::Overwritten, history.was_given_up(position, *at, Moment::MAX)) {
                return Err(format!(
                    "a reader was told at moment {at} to skip {from}..{end}, which is lost, and the log has a record at \
                     {position}"
                ));
            }
        }
    }
    Ok(())
}
