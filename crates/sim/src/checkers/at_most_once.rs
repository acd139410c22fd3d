//! No append is in the log twice, under whatever name; and none that was refused is there.

use std::collections::BTreeMap;

use seriatim_model::Position;

use super::Finding;
use crate::history::{History, Outcome};

pub(super) fn check(history: &History) -> Finding {
    let mut places: BTreeMap<usize, Position> = BTreeMap::new();
    for seen in &history.observations {
        let Some(append) = seen.append else { continue };
        let before = *places.entry(append).or_insert(seen.position);
        let payload = &history.appends[append].payload;
        if before != seen.position {
            return Err(format!("{payload:?} is at position {before} and at position {}", seen.position));
        }
        if history.appends[append].outcome == Outcome::Refused {
            return Err(format!("{payload:?} was refused, and is at position {before}"));
        }
    }
    Ok(())
}
