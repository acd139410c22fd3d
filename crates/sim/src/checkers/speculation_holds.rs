//! A prediction of an ordering that orders later fails only with the view's leader: not if its
//! process goes on to lead the next view, and, where clients put records on the shards themselves,
//! the primaries' go on as well. A process that comes back with its memory is the same member, and
//! does not know what it had bound. A leader that is cut off while its view is sealed goes on
//! without what it had bound: another member is chosen, and if that is not there for the new view,
//! the old leader may lead it. One that chose shards is also told that a record fails if the next
//! view gives its position to another shard.
//!
//! Where positions are given in advance it fails only with all of its shard: not if the process of
//! one of its replicas goes on into the next view. But a name that a cut passes over keeps its
//! position, without a record.

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
            // A prediction below a trim point can never be told right: nothing more comes of it.
            let next = speculation.told.get(index + 1).map(|next| &next.what);
            if matches!(next, Some(Foretelling::Trimmed(first)) if *first > after) {
                continue;
            }
            // The record that failed was told in this view, or by a primary of the one before that
            // had not heard of it.
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
    // A record that was predicted stays at its position, and another shard may have that in the
    // next view.
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

/// Judges a failure where positions are given in advance: of what was predicted at its position, or
/// in vain to be empty.
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
        // It was said to be empty by what was told of the positions around it.
        false => Ok(()),
    }
}

/// Whether no process of a shard's replicas of a view goes on into the next, or there is none.
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

/// Whether what was predicted in a view may fail in the next, before a moment.
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
