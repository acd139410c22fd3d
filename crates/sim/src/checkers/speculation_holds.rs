//! A prediction of an ordering that orders later fails only with the view's leader: not if its process goes on to lead the next view, and,
//! where clients put records on the shards themselves, the primaries' go on as well. A process that comes back with its memory is the
//! same member, and does not know what it had bound.

use seriatim_model::{Announced, NodeId, Position};

use super::Finding;
use crate::history::{Foretelling, History, Moment, RegisteredView};

pub(super) fn check(history: &History) -> Finding {
    if !history.config.order.is_lazy() || history.accepted.is_some() {
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
            // The record that failed was told in this view, or by a primary of the one before that had not heard of it.
            let earlier = speculation.told[..index].iter().rev();
            let since = earlier.filter_map(|earlier| match earlier.what {
                Foretelling::Record { position, .. } if position >= after => Some(earlier.at),
                _ => None,
            });
            let since = since.min().unwrap_or(told.at);
            holds(history, (since, told.at), after)?;
        }
    }
    Ok(())
}

fn holds(history: &History, (since, at): (Moment, Moment), after: Position) -> Finding {
    let known: Vec<&RegisteredView> =
        history.views.values().filter(|registered| registered.at <= at).collect();
    let before = history.views.values().filter(|registered| registered.at <= since).count();
    let from = before.saturating_sub(2);
    let is_excused = known[from..].windows(2).any(|pair| loses(history, pair[0], pair[1], at));
    if is_excused {
        return Ok(());
    }
    Err(format!(
        "{after} failed at moment {at}, and since moment {since} the leader of each view went on to lead the next"
    ))
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
        && leader.is_some_and(|leader| next.names_sequencer(*leader));
    let announces_record = matches!(history.config.order.properties().announces, Announced::Record);
    let primaries_go_on = view.shards.iter().all(|members| {
        let primary = members.primary();
        let goes_on = next.shard(members.shard).is_some_and(|later| later.replicas.contains(&primary));
        goes_on && !stopped(primary.node)
    });
    !leads_on || !announces_record && !primaries_go_on
}
