//! Where records are ordered later, a prediction fails only with the view's leader: it holds if the
//! leader's process leads the next view and, where clients put records on shards, the primaries'
//! processes stay too. Exceptions: a process that restarts with its memory is the same member, but
//! forgot its bindings; a leader cut off during the seal may lead the next view without its
//! bindings, if the chosen member is missing there; a reader of chosen shards loses a record whose
//! position the next view gives to another shard.
//!
//! Where positions are given in advance, a prediction holds if the process of any replica of its
//! shard stays into the next view. But a skipped id keeps its position, without a record.

use seriatim_model::{Announced, Member, NodeId, Position, ShardId, View, ViewNumber};

use super::Finding;
use crate::history::{Foretelling, History, Moment, RegisteredView, Speculation};

pub(super) fn check(history: &History) -> Finding {
    let order = history.config.order;
    if !(order.is_lazy() || order.has_quotas()) || history.accepted.is_some() {
        return Ok(());
    }
    for speculation in &history.speculations {
        for (index, told) in speculation.told.iter().enumerate() {
            let Foretelling::Fail(after) = told.what else { continue };
            // Predictions below a trim point get no outcome.
            let next = speculation.told.get(index + 1).map(|next| &next.what);
            if matches!(next, Some(Foretelling::Trimmed(first)) if *first > after) {
                continue;
            }
            // The failed record was predicted in this view, or by a primary of the previous view
            // before it knew this one.
            let earlier = speculation.told[..index].iter().rev();
            let since = earlier.filter_map(|earlier| match earlier.what {
                Foretelling::Record { position, .. } if position >= after => Some(earlier.at),
                _ => None,
            });
            let since = since.min().unwrap_or(told.at);
            match order.has_quotas() {
                true => holds_with_its_shard(history, speculation, index, after)?,
                false => holds(history, speculation, (since, told.at), after)?,
            }
        }
    }
    Ok(())
}

fn holds(
    history: &History,
    speculation: &Speculation,
    (since, at): (Moment, Moment),
    after: Position,
) -> Finding {
    let known: Vec<&RegisteredView> =
        history.views.values().filter(|registered| registered.at <= at).collect();
    let before = history.views.values().filter(|registered| registered.at <= since).count();
    let from = before.saturating_sub(2);
    // A predicted record keeps its position, but another shard may own the position in the next
    // view.
    let moves = |before: &View, next: &View| {
        speculation.wanted.shards.is_some() && before.open_shards() != next.open_shards()
    };
    let is_excused = known[from..]
        .windows(2)
        .any(|pair| moves(&pair[0].view, &pair[1].view) || loses(history, pair[0], pair[1], at));
    if is_excused {
        return Ok(());
    }
    Err(format!(
        "{after} failed at moment {at}, and since moment {since} each view was formed with what the leader before had, which leads it"
    ))
}

/// Judges a failed prediction, of a record or an empty position, where positions are given in
/// advance.
fn holds_with_its_shard(
    history: &History,
    speculation: &Speculation,
    failed: usize,
    after: Position,
) -> Finding {
    let slots = &history.slots;
    let told = speculation.told[..failed].iter().rev().find_map(|earlier| match earlier.what {
        Foretelling::Record { position, id, .. } if position == after => Some(id),
        _ => None,
    });
    let predicted = slots.predictions.iter().filter(|prediction| match told {
        Some(id) => prediction.records.contains(&(after, id)),
        None => prediction.empty.iter().any(|span| span.contains(after)),
    });
    let mut is_known = false;
    for prediction in predicted {
        is_known = true;
        let was_passed_over = told.is_some_and(|id| slots.was_passed_over(prediction.view, after, id));
        if was_passed_over || loses_shard(history, prediction.view, prediction.shard) {
            return Ok(());
        }
    }
    let at = speculation.told[failed].at;
    match is_known || told.is_some() {
        true => {
            Err(format!("{after} failed at moment {at}, and the shard that predicted {told:?} there goes on"))
        }
        // No prediction named the position: those of its neighbors implied that it was empty.
        false => Ok(()),
    }
}

/// Whether no process of the shard stays into the next view, or no view follows.
fn loses_shard(history: &History, view: ViewNumber, shard: ShardId) -> bool {
    let Some(old) = history.views.get(&view) else { return true };
    let Some(next) = history.views.range(view.next()..).next().map(|(_, next)| next) else { return true };
    if history.disks_failed {
        return true;
    }
    let goes_on = |member: &&Member| {
        let is_it =
            |(stopped, at): &&(NodeId, Moment)| *stopped == member.node && old.at <= *at && *at <= next.at;
        let is_member = next.view.shard(shard).is_some_and(|later| later.replicas.contains(member));
        is_member && !history.stopped.iter().any(|stopped| is_it(&stopped))
    };
    let replicas = old.view.shard(shard).map_or(&[][..], |members| &members.replicas);
    !replicas.iter().any(|member| goes_on(&member))
}

/// Whether predictions of the view `registered` may fail in the view `next`, before this moment.
fn loses(history: &History, registered: &RegisteredView, next: &RegisteredView, before: Moment) -> bool {
    let (view, next) = (&registered.view, &next.view);
    let stopped = |node: NodeId| {
        let is_it =
            |(stopped, at): &(NodeId, Moment)| *stopped == node && registered.at <= *at && *at <= before;
        history.stopped.iter().any(is_it)
    };
    let leader = view.sequencers.iter().find(|member| member.node == view.leader);
    let leads_on = next.leader == view.leader
        && !stopped(view.leader)
        && leader.is_some_and(|leader| next.names_sequencer(*leader))
        && history.chosen.get(&next.number) == leader;
    let announces_record = matches!(history.config.order.properties().announces, Announced::Record);
    let primaries_go_on = view.shards.iter().all(|members| {
        let primary = members.primary();
        let goes_on = next.shard(members.shard).is_some_and(|later| later.replicas.contains(&primary));
        goes_on && !stopped(primary.node)
    });
    !leads_on || !announces_record && !primaries_go_on
}
