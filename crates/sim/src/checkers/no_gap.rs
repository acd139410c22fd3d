//! A shard gives out each of its positions: an answer for a range holds all of the shard's positions in
//! that range, in order, and no others. A subscription delivers one position after the other.

use super::Finding;
use crate::history::{End, History, Served};

pub(super) fn check(history: &History) -> Finding {
    let placement = history.placement();
    for served in &history.served {
        complete(history, &placement, served)?;
    }
    for delivered in &history.delivered {
        let mut expected = delivered.from;
        for seen in &history.observations[delivered.records.clone()] {
            if seen.position != expected {
                return Err(format!(
                    "a subscription delivered {} where {expected} was to come",
                    seen.position
                ));
            }
            expected = expected.next();
        }
    }
    let End::Settled { trim, tail } = history.end else { return Ok(()) };
    let mut expected = trim;
    for position in history.last.keys().filter(|position| **position >= trim) {
        while history.is_in_gap(expected) && expected < *position {
            expected = expected.next();
        }
        if *position != expected {
            return Err(format!("the log has position {position} where {expected} was to come"));
        }
        expected = expected.next();
    }
    while history.is_in_gap(expected) && expected < tail {
        expected = expected.next();
    }
    if expected != tail {
        return Err(format!("the log ends at {expected}, and its leader has ordered {tail}"));
    }
    Ok(())
}

fn complete(history: &History, placement: &seriatim_model::Placement, served: &Served) -> Finding {
    let mut position = served.from;
    let mut given = history.observations[served.records.clone()].iter().map(|seen| seen.position);
    while position < served.upto {
        let (shard, end) = placement.stripe_at(position);
        let end = end.min(served.upto);
        if shard != served.shard {
            position = end;
            continue;
        }
        while position < end {
            let next = given.next();
            if next != Some(position) {
                return Err(format!(
                    "shard {shard} on node {} gave out {next:?} where position {position} was to come, in \
                     its answer for {}..{}",
                    served.node, served.from, served.upto
                ));
            }
            position = position.next();
        }
    }
    match given.next() {
        None => Ok(()),
        Some(extra) => Err(format!(
            "shard {} on node {} gave out position {extra} in its answer for {}..{}",
            served.shard, served.node, served.from, served.upto
        )),
    }
}
