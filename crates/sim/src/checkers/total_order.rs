//! No position ever has two records, and no record two positions.

use std::collections::BTreeMap;

use seriatim_model::{Position, RecordId};

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{History, Moment};

pub(super) fn check(history: &History) -> Finding {
    let mut at: BTreeMap<Position, (RecordId, Moment)> = BTreeMap::new();
    let mut of: BTreeMap<RecordId, (Position, Moment)> = BTreeMap::new();
    let read = history.unbuffered().map(|seen| (seen.position, seen.id, seen.at));
    let told = history.appends.iter().flat_map(|append| {
        let position = append.position.zip(append.completed);
        append.ids.iter().filter_map(move |id| position.map(|(position, moment)| (position, *id, moment)))
    });
    let mut known: Vec<_> = read.chain(told).collect();
    known.sort_by_key(|(_, _, moment)| *moment);
    for (position, id, moment) in known {
        let (other, before) = *at.entry(position).or_insert((id, moment));
        if history.was_given_up(position, before, moment) {
            history.excuse(Excuse::Overwritten, other != id);
            at.insert(position, (id, moment));
        } else if other != id {
            return Err(format!("position {position} had record {other} and record {id}"));
        }
        let (elsewhere, before) = *of.entry(id).or_insert((position, moment));
        if history.was_lost(elsewhere, before, moment) {
            history.excuse(Excuse::Moved, elsewhere != position);
            of.insert(id, (position, moment));
        } else if elsewhere != position
            && !history.excuse(Excuse::Moved, history.may_be_again(position.max(elsewhere), moment))
        {
            return Err(format!("record {id} was at position {elsewhere} and at position {position}"));
        }
    }
    Ok(())
}
