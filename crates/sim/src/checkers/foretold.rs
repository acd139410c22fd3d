//! Where windows assign positions (slots) to shards in advance, cuts and predictions match the
//! slots of their window.

use std::collections::BTreeMap;

use seriatim_model::{Position, RecordId, ShardId, ViewNumber};

use super::Finding;
use crate::history::History;
use crate::slots::{Slots, sizes};

type SlotsOfView = BTreeMap<Position, (ShardId, u64)>;

pub(super) fn check(history: &History) -> Finding {
    let slots = &history.slots;
    if let Some(conflict) = slots.conflicts.first() {
        return Err(format!("a window was told in two ways: {conflict}"));
    }
    let mut views: Vec<ViewNumber> = slots.windows.keys().map(|(view, _)| *view).collect();
    views.dedup();
    for view in views {
        follow_each_other(slots, view)?;
        let end = end_of(slots, view);
        let of_view = slots.of_view(view, end);
        are_as_foretold(slots, view, &of_view)?;
        are_foretold_there(slots, view, &of_view)?;
    }
    Ok(())
}

/// Each window begins where the previous one ends, in positions and in local logs.
fn follow_each_other(slots: &Slots, view: ViewNumber) -> Finding {
    let of_view: Vec<_> =
        slots.windows.range((view, 0)..=(view, u32::MAX)).map(|(_, window)| window).collect();
    for two in of_view.windows(2) {
        let (before, window) = (two[0], two[1]);
        let all = slots.of_view(view, window.base);
        let last = all.range(before.base..).next_back();
        let (_, room) = sizes(before);
        if last.is_some_and(|(last, _)| last.next() + room != window.base) {
            return Err(format!("in view {view}, {before:?} ends at {last:?}, and {window:?} follows"));
        }
        for (shard, _, index) in &window.shares {
            // A shard without turns in the previous window keeps its index in its local log.
            let had_turns = before.shares.iter().any(|(before, ..)| before == shard);
            let own = all.values().rev().find(|(of, _)| of == shard).filter(|_| had_turns);
            if own.is_some_and(|(_, last)| last + 1 != *index) {
                return Err(format!("in view {view}, shard {shard} is at {own:?} where {window:?} begins"));
            }
        }
    }
    Ok(())
}

fn end_of(slots: &Slots, view: ViewNumber) -> Position {
    let cuts = slots.cuts.range((view, Position::ZERO)..=(view, Position(u64::MAX)));
    let cuts = cuts.map(|((_, first), runs)| *first + runs.iter().map(|run| run.ids.count).sum::<u64>());
    let predicted = slots.predictions.iter().filter(|prediction| prediction.view == view);
    let predicted = predicted.filter_map(|prediction| prediction.records.last().map(|(last, _)| last.next()));
    cuts.chain(predicted).max().unwrap_or_default()
}

/// Each cut gives each slot to the id at that index of the shard's local log, or leaves it empty.
fn are_as_foretold(slots: &Slots, view: ViewNumber, of_view: &SlotsOfView) -> Finding {
    for ((_, first), runs) in slots.cuts.range((view, Position::ZERO)..=(view, Position(u64::MAX))) {
        let mut position = *first;
        for run in runs {
            for id in run.ids.ids() {
                let slot = of_view.get(&position);
                let named = slot.and_then(|(shard, index)| slots.name(view, *shard, *index));
                let is_padding = |id: RecordId| id.session == seriatim_model::SessionId::NOBODY;
                let is_right = match (slot, named) {
                    (Some((shard, _)), Some(name)) if is_padding(name) || is_padding(id) => {
                        is_padding(name)
                            && is_padding(id)
                            && run.shard == ShardId::NOBODY
                            && shard != &run.shard
                    }
                    (Some((shard, _)), Some(name)) => {
                        name == id && (run.shard == *shard || run.shard == ShardId::NOBODY)
                    }
                    // Nothing to compare: the window of the position or the id of the slot is
                    // unknown.
                    (None, _) => slots.has_no_turn(view, position),
                    (Some(_), None) => true,
                };
                if !is_right {
                    return Err(format!(
                        "in view {view}, a cut has {id:?} of shard {} at {position}, which is the slot {slot:?} of {named:?}",
                        run.shard
                    ));
                }
                position += 1;
            }
        }
    }
    Ok(())
}

/// Each prediction names a slot of its shard and the id at that index.
fn are_foretold_there(slots: &Slots, view: ViewNumber, of_view: &SlotsOfView) -> Finding {
    for prediction in slots.predictions.iter().filter(|prediction| prediction.view == view) {
        let shard = prediction.shard;
        for (position, id) in &prediction.records {
            let slot = of_view.get(position);
            let named = slot.and_then(|(_, index)| slots.name(view, shard, *index));
            let is_right = slot.is_some_and(|(of, _)| *of == shard) && named.is_none_or(|name| name == *id);
            if !is_right {
                return Err(format!(
                    "in view {view}, shard {shard} predicted {id:?} at {position}, which is the slot {slot:?} of {named:?}"
                ));
            }
        }
        let own = of_view.range(prediction.from..prediction.upto).filter(|(_, (of, _))| *of == shard);
        for (position, _) in own {
            let is_told = prediction.records.iter().any(|(at, _)| at == position)
                || prediction.empty.iter().any(|span| span.contains(*position));
            if !is_told {
                return Err(format!(
                    "in view {view}, shard {shard} predicted {}..{}, and left out its own {position}",
                    prediction.from, prediction.upto
                ));
            }
        }
    }
    Ok(())
}
