//! A shard's answer for a range holds exactly its positions there, in order. An empty position
//! never has a record. Subscriptions and reads of the whole log deliver every position in order.
//! The reported shard of a position owns it.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{Position, ShardId, Span};

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{End, History, MapTold, Moment, Served};

pub(super) fn check(history: &History) -> Finding {
    if let Some(hole) = history.holes.first() {
        return Err(hole.clone());
    }
    if history.config.order.places_by_position() {
        let placement = history.placement();
        // A position assigned again after a loss may belong to another shard.
        let last = |served: &Served| Position(served.upto.0.saturating_sub(1));
        let was_lost = |served: &Served| history.was_lost(last(served), served.at, Moment::MAX);
        history.served.iter().try_for_each(|served| {
            let found = complete(history, &placement, served);
            let is_wrong = found.is_err();
            if is_wrong && history.excuse(Excuse::Disowned, was_lost(served)) { Ok(()) } else { found }
        })?;
    } else {
        let owners = owners(history)?;
        history.served.iter().try_for_each(|served| gave_its_own(history, &owners, served))?;
        history.maps.iter().try_for_each(|told| is_true(history, &owners, told))?;
    }
    let empty = Empty::told(history);
    stays_empty(history, &empty)?;
    delivered_in_order(history, &empty)?;
    let End::AtRest { trim, tail } = history.end else { return Ok(()) };
    // Skips empty positions and gaps up to `end`. A record there counts even if its position was
    // empty before an operator accepted a loss.
    let pass = |mut position: Position, end: Position| {
        let is_passed =
            |position| empty.has(position) || history.excuse(Excuse::Gap, history.is_in_gap(position));
        while position < end && is_passed(position) {
            position = position.next();
        }
        position
    };
    let mut expected = trim;
    for position in history.last.keys().filter(|position| **position >= trim) {
        expected = pass(expected, *position);
        if *position != expected {
            return Err(format!("the log has position {position} where {expected} was to come"));
        }
        expected = expected.next();
    }
    expected = pass(expected, tail);
    if expected != tail {
        return Err(format!("the log ends at {expected}, and its leader has ordered {tail}"));
    }
    Ok(())
}

struct Empty {
    /// Spans in ascending order, none adjacent to another.
    spans: Vec<Span>,
}

impl Empty {
    fn told(history: &History) -> Self {
        let mut told: Vec<Span> =
            history.served.iter().flat_map(|served| served.empty.iter().copied()).collect();
        told.sort_unstable_by_key(|span| (span.first, span.count));
        let mut spans: Vec<Span> = vec![];
        for span in told {
            match spans.last_mut().filter(|last| span.first <= last.end()) {
                Some(last) => last.count = last.end().max(span.end()) - last.first,
                None => spans.push(span),
            }
        }
        Self { spans }
    }

    fn pass(&self, position: Position) -> Position {
        let next = self.spans.partition_point(|span| span.end() <= position);
        self.spans.get(next).filter(|span| span.contains(position)).map_or(position, |span| span.end())
    }

    fn has(&self, position: Position) -> bool {
        self.pass(position) > position
    }
}

/// Empty positions lie within the answer's range, and none of them ever had a record.
fn stays_empty(history: &History, empty: &Empty) -> Finding {
    for served in &history.served {
        let is_outside = |span: &&Span| span.first < served.from || span.end() > served.upto;
        if let Some(span) = served.empty.iter().find(is_outside) {
            let Served { shard, node, from, upto, .. } = served;
            return Err(format!(
                "shard {shard} on node {node} told of {span:?} in its answer for {from}..{upto}"
            ));
        }
    }
    for seen in &history.observations {
        let is_wrong = empty.has(seen.position);
        if is_wrong && !history.excuse(Excuse::Disowned, history.may_be_gone(seen.position)) {
            return Err(format!(
                "position {} has {}, and a reader was told that it is empty",
                seen.position, seen.id
            ));
        }
    }
    Ok(())
}

/// A reader of the whole log gets every position in order, except no-ops and empty ones.
fn delivered_in_order(history: &History, empty: &Empty) -> Finding {
    let end = match history.end {
        End::AtRest { trim, .. } => trim,
        _ => Position(u64::MAX),
    };
    let voids = history.observations.iter().filter(|seen| seen.is_void).map(|seen| seen.position);
    let voids: BTreeSet<Position> = voids.collect();
    let may_be_void = |position: Position| {
        // Readers cannot check a trimmed or abandoned position any more.
        let is_gone = position < end || history.may_be_gone(position);
        let may_have_voids = !history.config.order.keeps_records();
        voids.contains(&position) || empty.has(position) || may_have_voids && is_gone
    };
    for delivered in &history.delivered {
        let mut expected = delivered.from;
        for seen in &history.observations[delivered.records.clone()] {
            while expected < seen.position && may_be_void(expected) {
                expected = expected.next();
            }
            if seen.position != expected {
                return Err(format!("a reader got {} where {expected} was to come", seen.position));
            }
            expected = expected.next();
        }
        while expected < delivered.upto && may_be_void(expected) {
            expected = expected.next();
        }
        if expected < delivered.upto {
            return Err(format!(
                "a reader got nothing where {expected} was to come, and was told to read on at {}",
                delivered.upto
            ));
        }
    }
    Ok(())
}

fn owners(history: &History) -> Result<BTreeMap<Position, ShardId>, String> {
    let mut owners = BTreeMap::new();
    for served in &history.served {
        for seen in &history.observations[served.records.clone()] {
            let owner = *owners.entry(seen.position).or_insert(served.shard);
            let position = seen.position;
            if owner != served.shard && !history.excuse(Excuse::Disowned, history.may_be_gone(position)) {
                return Err(format!(
                    "position {position} was given out by shards {owner} and {}",
                    served.shard
                ));
            }
        }
    }
    Ok(owners)
}

/// An answer holds every position that its shard ever served in the range, in order.
fn gave_its_own(history: &History, owners: &BTreeMap<Position, ShardId>, served: &Served) -> Finding {
    let range = owners.range(served.from..served.upto.max(served.from));
    let own = range.filter(|(_, owner)| **owner == served.shard).map(|(position, _)| *position);
    let given = history.observations[served.records.clone()].iter().map(|seen| seen.position);
    // Lost records are not compared: they may have been served before the loss, or by another
    // shard.
    let is_certain = |position: &Position| !history.may_be_gone(*position);
    let is_excused = || own.clone().filter(is_certain).eq(given.clone().filter(is_certain));
    match own.clone().eq(given.clone()) || history.excuse(Excuse::Disowned, is_excused()) {
        true => Ok(()),
        false => Err(format!(
            "shard {} on node {} gave out {:?} in its answer for {}..{}, and has {:?}",
            served.shard,
            served.node,
            given.collect::<Vec<_>>(),
            served.from,
            served.upto,
            own.collect::<Vec<_>>()
        )),
    }
}

/// Only the reported owner of a position ever served it.
fn is_true(history: &History, owners: &BTreeMap<Position, ShardId>, told: &MapTold) -> Finding {
    let mut first = told.from;
    for owned in &told.owned {
        let end = first + owned.count;
        let is_wrong = |position: &Position, owner: &ShardId| {
            *owner != owned.shard && !history.excuse(Excuse::Disowned, history.may_be_gone(*position))
        };
        if let Some((position, owner)) =
            owners.range(first..end).find(|(position, owner)| is_wrong(position, owner))
        {
            return Err(format!(
                "a reader was told at moment {} that shard {} has position {position}, which shard {owner} gave out",
                told.at, owned.shard
            ));
        }
        first = end;
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
