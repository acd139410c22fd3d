//! An operator is told nothing that is not so: a log's status says of no replica that it has what it has not, and counts each
//! once; and the view with which a log is said to go on is one that the register has.

use seriatim_model::ViewNumber;

use super::Finding;
use crate::history::History;
use crate::operator::Told;

pub(super) fn check(history: &History) -> Finding {
    history.told.iter().try_for_each(|told| check_told(history, told))
}

fn check_told(history: &History, told: &Told) -> Finding {
    match told {
        Told::Status { status, sequencers, stable, absent } => {
            if status.open > *sequencers {
                return Err(format!("{} of {sequencers} sequencing replicas take part", status.open));
            }
            let Some(bound) = status.stable else { return Ok(()) };
            if let Some(shard) = absent.first() {
                return Err(format!(
                    "everything below {bound} was said to be stable, and shard {shard} is not there"
                ));
            }
            let behind = stable.iter().find(|(_, known)| *known < bound);
            behind.map_or(Ok(()), |(shard, known)| {
                Err(format!(
                    "everything below {bound} was said to be stable, and shard {shard} knows that of {known}"
                ))
            })
        }
        Told::Recovered(told) if told.done => {
            let view = named(&told.text);
            let is_registered = view.is_some_and(|view| history.views.contains_key(&view));
            if is_registered { Ok(()) } else { Err(format!("no view was registered: {}", told.text)) }
        }
        Told::Takes(shard, view) => {
            let registered = history.views.get(view).map(|registered| &registered.view);
            let takes = registered.is_some_and(|view| view.open_shards().contains(shard));
            if takes { Ok(()) } else { Err(format!("shard {shard} was said to take records in view {view}")) }
        }
        Told::Recovered(_) | Told::Sought(_) => Ok(()),
    }
}

/// The view that a text begins with.
fn named(text: &str) -> Option<ViewNumber> {
    let number = text.strip_prefix("view ")?.split_whitespace().next()?;
    number.parse().ok().map(ViewNumber)
}
