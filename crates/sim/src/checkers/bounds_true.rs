//! A target has applied exactly its messages below its bound, without the skipped ones. It
//! acknowledges no bound above its stored bound.

use std::collections::BTreeSet;

use super::Finding;
use crate::history::{End, History};

pub(super) fn check(history: &History) -> Finding {
    let Some(playing) = &history.playing else { return Ok(()) };
    let entries = history.entries();
    for target in &playing.targets {
        let bound = target.database.bound;
        if let Some((acknowledged, stored)) = target.untrue.first() {
            return Err(format!("target {} acknowledged {acknowledged}, and stores {stored}", target.id));
        }
        let applied: BTreeSet<_> = target.database.effects.iter().map(|(position, _)| *position).collect();
        if let Some(position) = applied.last().filter(|position| **position >= bound) {
            return Err(format!(
                "target {} applied position {position}, and its bound is {bound}",
                target.id
            ));
        }
        if !matches!(history.end, End::AtRest { .. }) {
            continue;
        }
        let lacks = entries.range(..bound).find(|(position, entry)| {
            !applied.contains(position)
                && !target.is_skipped(**position)
                && !target.parts(**position, entry).is_empty()
        });
        if let Some((position, _)) = lacks {
            return Err(format!("target {} lacks position {position}, and its bound is {bound}", target.id));
        }
    }
    Ok(())
}
