//! No two records at one position, and no record at two positions, ever.

use std::collections::BTreeMap;

use seriatim_model::{Position, RecordId};

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let mut at: BTreeMap<Position, RecordId> = BTreeMap::new();
    let mut of: BTreeMap<RecordId, Position> = BTreeMap::new();
    let read = history.observations.iter().map(|seen| (seen.position, seen.id));
    let told = history.appends.iter().flat_map(|append| {
        let position = append.position;
        append.ids.iter().filter_map(move |id| Some((position?, *id)))
    });
    for (position, id) in read.chain(told) {
        let other = *at.entry(position).or_insert(id);
        if other != id {
            return Err(format!("position {position} had record {other} and record {id}"));
        }
        let elsewhere = *of.entry(id).or_insert(position);
        if elsewhere != position {
            return Err(format!("record {id} was at position {elsewhere} and at position {position}"));
        }
    }
    Ok(())
}
