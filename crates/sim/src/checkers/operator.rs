//! The operator gets true answers: a status counts each replica once and credits it only with its
//! records; reported views are registered; reported register entries are the newest.

use seriatim_model::ViewNumber;
use seriatim_protocol::control::LogEntry;

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
        Told::Known { entries, least, most } => check_known(history, entries, (*least, *most)),
        Told::Recovered(_) | Told::Sought(_) => Ok(()),
    }
}

fn check_known(
    history: &History,
    entries: &[LogEntry],
    (least, most): (Option<u64>, Option<u64>),
) -> Finding {
    let entry = match entries {
        [] if least.is_none() => return Ok(()),
        [entry] => entry,
        _ => return Err(format!("nodes know one log, and it was told {} times", entries.len())),
    };
    let (view, version) = (entry.view_number(), entry.version);
    if view != ViewNumber::NONE && !history.views.contains_key(&view) {
        return Err(format!("nodes were said to know view {view}, which was never registered"));
    }
    let is_newest = least.is_none_or(|least| least <= version) && most.is_none_or(|most| version <= most);
    match is_newest {
        true => Ok(()),
        false => Err(format!(
            "version {version} of the log's entry was told: a node knew {least:?}, and the register {most:?}"
        )),
    }
}

fn named(text: &str) -> Option<ViewNumber> {
    let number = text.strip_prefix("view ")?.split_whitespace().next()?;
    number.parse().ok().map(ViewNumber)
}
