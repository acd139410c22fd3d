//! The costs of getting over a crash, role by role.

use std::time::Duration;

use seriatim_delivery::fetch;
use seriatim_model::{Durability, Endpoint, NodeId, Order, Position, Time, View};
use seriatim_protocol::parts::appending::{AppendSpec, Failure, Reply};

use crate::costs::{APPENDER, READER, prepared, primary};
use crate::lab::{Flight, Lab, REGISTER};
use crate::programs::{Answer, Ask, Program};
use crate::spent::{Pace, Spent};

/// The client whose append comes right after the crash.
const NEXT: u64 = 4;
/// How long everything may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A crash strikes at so many moments, a delay apart: an append is over by the last.
const MOMENTS: u64 = 14;
/// The appends that are on their way began a delay apart. These are their tokens.
const ON_THEIR_WAY: std::ops::Range<u64> = 2..5;
/// The token of what is asked for right after the crash.
const AFTER: u64 = 9;

/// How long a process is away that returns.
const AWAY_FOR: Duration = Duration::from_millis(500);
/// So many appends are made while it returns, and after it has.
const RETURN_APPENDS: u64 = 1000;
/// Between two of them.
const BETWEEN: Duration = Duration::from_micros(1_100);

/// The process that ends or falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Client,
    /// The leader, or the sequencer.
    Leader,
    Follower,
    Primary,
    Backup,
    /// The node whose controller is about to replace a backup that died.
    Controller,
    Register,
}

impl Victim {
    pub(crate) const ALL: [Self; 7] = [
        Self::Client,
        Self::Leader,
        Self::Follower,
        Self::Primary,
        Self::Backup,
        Self::Controller,
        Self::Register,
    ];
}

/// The fates of the appends that were on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fates {
    pub(crate) acknowledged: bool,
    /// They failed, and are not in the log.
    pub(crate) refused: bool,
    /// Nobody is there to be told.
    pub(crate) untold: bool,
}

/// The fates of appends, and how long things take at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    /// Of the appends that were on their way.
    pub(crate) fates: Fates,
    /// Until the last of these has its answer.
    pub(crate) answered: Spent,
    /// Until an append that is made right after the crash is acknowledged.
    pub(crate) next: Spent,
    /// Until a subscriber has that.
    pub(crate) delivered: Spent,
    /// Until a read of a final position is answered that is made right after the crash.
    pub(crate) read: Spent,
}

impl Recovery {
    fn or_worse(self, other: Self) -> Self {
        Self {
            fates: Fates {
                acknowledged: self.fates.acknowledged || other.fates.acknowledged,
                refused: self.fates.refused || other.fates.refused,
                untold: self.fates.untold || other.fates.untold,
            },
            answered: self.answered.max(other.answered),
            next: self.next.max(other.next),
            delivered: self.delivered.max(other.delivered),
            read: self.read.max(other.read),
        }
    }
}

/// The worst that happens in a log of this order, over the moments at which it can strike; nothing
/// if the order has no such role. If `is_noticed` the victim's process dies, otherwise it falls
/// silent.
pub(crate) fn measure(order: Order, victim: Victim, is_noticed: bool) -> Option<Recovery> {
    let crashes = (0..MOMENTS).flat_map(|moment| [(moment, false), (moment, true)]);
    let recoveries = crashes.map(|(moment, half)| crash(order, victim, is_noticed, moment, half));
    recoveries.reduce(|worst, recovery| Some(worst?.or_worse(recovery?))).flatten()
}

/// A client that dies may have told some of those that it tells at the same time, and not the
/// others: `half` says which.
fn crash(order: Order, victim: Victim, is_noticed: bool, moment: u64, half: bool) -> Option<Recovery> {
    let (mut lab, view) = prepared(Pace::DELAYS, order, Durability::Memory);
    strike(&mut lab, &view, victim, is_noticed, (moment, half), 0)
}

/// The append and the read that follow on a crash are made so many delays `later`.
fn strike(
    lab: &mut Lab,
    view: &View,
    victim: Victim,
    is_noticed: bool,
    (moment, half): (u64, bool),
    later: u64,
) -> Option<Recovery> {
    let node = node_of(victim, view)?;
    let entry = lab.look_up();
    lab.start(NEXT, Program::appender(&entry, 8));
    lab.ask(NEXT, 0, Ask::OpenSession);
    // Heartbeats are at another point of their interval each time.
    lab.wait(Duration::from_millis(100 + moment * 3 + u64::from(half) * 10));
    if victim == Victim::Controller {
        lab.claimant = None;
        lab.stop_node(backup(view), true);
        assert!(lab.wait_until(TIMEOUT, |lab| lab.claimant == Some(node)), "the backup is replaced");
    }
    let mut sent = vec![];
    for tick in 0..=moment {
        lab.wait(Duration::from_nanos(tick.min(1)));
        if let Some(token) = ON_THEIR_WAY.clone().nth(tick as usize) {
            lab.append(APPENDER, token, AppendSpec::default());
            sent.push(token);
            // The client has sent it.
            lab.wait(Duration::ZERO);
        }
    }
    let struck = lab.now;
    if victim == Victim::Client {
        let is_lost = |flight: &Flight| matches!(flight.to, Endpoint::Shard(_)) == half;
        lab.stop_client(APPENDER, is_noticed, is_lost);
    } else {
        lab.stop_node(node, is_noticed);
    }
    lab.wait(Duration::from_nanos(later));
    lab.append(NEXT, AFTER, AppendSpec::default());
    lab.ask(READER, AFTER, Ask::Read(Position::ZERO));
    Some(outcome(lab, victim, struck, &sent))
}

/// How long an append takes at most that is made while the victim, whose process died, returns;
/// nothing if the order has no such role, or nothing of it returns.
pub(crate) fn measure_return(order: Order, victim: Victim) -> Option<Spent> {
    let (mut lab, view) = prepared(Pace::DELAYS, order, Durability::Memory);
    let node = node_of(victim, &view).filter(|_| !matches!(victim, Victim::Client | Victim::Controller))?;
    lab.stop_node(node, true);
    lab.wait(AWAY_FOR);
    lab.start_node(node);
    let mut worst = Spent::default();
    for token in 2..2 + RETURN_APPENDS {
        let began = lab.now;
        lab.append(APPENDER, token, AppendSpec::default());
        assert!(lab.wait_until(TIMEOUT, |lab| lab.told(APPENDER, token).is_some()), "appends go on");
        worst = worst.max(Spent::between(began, lab.now));
        lab.wait(BETWEEN);
    }
    if victim != Victim::Register {
        let entry = lab.look_up();
        let view = entry.view.expect("it has a view");
        let is_back = order.is_lazy() || victim != Victim::Leader;
        let members = view.sequencers.iter().chain(view.shards.iter().flat_map(|shard| &shard.replicas));
        assert!(!is_back || members.into_iter().any(|member| member.node == node), "it has returned");
    }
    Some(worst)
}

/// Where the victim runs; anywhere if it is a client.
fn node_of(victim: Victim, view: &View) -> Option<NodeId> {
    match victim {
        // The first member of a view that is heard is the first to replace another.
        Victim::Leader | Victim::Controller | Victim::Client => Some(view.leader),
        Victim::Follower => {
            view.sequencers.iter().map(|member| member.node).find(|node| *node != view.leader)
        }
        Victim::Primary => Some(primary(view).0),
        Victim::Backup => Some(backup(view)),
        Victim::Register => Some(REGISTER),
    }
}

fn backup(view: &View) -> NodeId {
    view.shards[0].replicas.last().expect("there are three").node
}

fn outcome(lab: &mut Lab, victim: Victim, struck: Time, sent: &[u64]) -> Recovery {
    let awaited = |lab: &Lab| {
        let next = lab.told(NEXT, AFTER).is_some() && lab.handed_over(NEXT, AFTER).is_some();
        let answered = |token: &u64| lab.told(APPENDER, *token).is_some();
        next && lab.told(READER, AFTER).is_some() && (victim == Victim::Client || sent.iter().all(answered))
    };
    assert!(lab.wait_until(TIMEOUT, awaited), "{victim:?}: not everything goes on");
    let mut recovery = Recovery::default();
    for token in sent {
        let told = lab.told(APPENDER, *token);
        match told.map(|told| &told.answer) {
            None => recovery.fates.untold = true,
            Some(Answer::Appending(Reply::Appended { .. })) => recovery.fates.acknowledged = true,
            Some(Answer::Appending(Reply::Failed(Failure::NotAppended(_)))) => recovery.fates.refused = true,
            other => panic!("{other:?}"),
        }
        let answered = told.map_or(struck, |told| told.at);
        recovery.answered = recovery.answered.max(Spent::between(struck, answered));
    }
    let next = lab.told(NEXT, AFTER).expect("it was waited for");
    assert!(matches!(next.answer, Answer::Appending(Reply::Appended { .. })), "{next:?}");
    recovery.next = Spent::between(struck, next.at);
    recovery.delivered = Spent::between(struck, lab.handed_over(NEXT, AFTER).expect("it was waited for"));
    let read = lab.told(READER, AFTER).expect("it was waited for");
    let found =
        |reply: &fetch::Reply| matches!(reply, fetch::Reply::Records { records, .. } if records.len() == 1);
    assert!(matches!(&read.answer, Answer::Read(reply) if found(reply)), "{read:?}");
    recovery.read = Spent::between(struck, read.at);
    recovery
}

/// The client that takes predictions.
const SPECULATOR: u64 = 5;

/// A loss of one process takes back nothing that was told before it was ordered, whichever it is
/// and whenever it strikes.
#[test]
fn where_positions_are_given_in_advance_a_crash_takes_back_nothing() {
    let orders = Order::ALL.into_iter().filter(|order| order.has_quotas());
    let moments = (0..MOMENTS).flat_map(|moment| [(moment, true), (moment, false)]);
    let crashes = moments.flat_map(|(moment, noticed)| Victim::ALL.map(|victim| (moment, noticed, victim)));
    for (order, (moment, is_noticed, victim)) in
        orders.flat_map(|order| crashes.clone().map(move |at| (order, at)))
    {
        let (mut lab, view) = prepared(Pace::DELAYS, order, Durability::Memory);
        let entry = lab.look_up();
        lab.start(SPECULATOR, Program::speculator(&entry, Position::ZERO));
        let recovery = strike(&mut lab, &view, victim, is_noticed, (moment, false), 0);
        assert!(recovery.is_some() && !lab.took_back(), "{victim:?} at {moment}, noticed: {is_noticed}");
    }
}

/// A client that had nothing on its way when it lost a connection finds the new view as soon as one
/// that had: it remembers the loss.
#[test]
fn a_client_that_was_idle_when_a_process_died_does_not_wait_for_a_retransmission() {
    let victims = [Victim::Leader, Victim::Follower, Victim::Primary, Victim::Backup];
    // Before anything is done about the loss, while the view changes, and after it has.
    let laters = [1, 2, 5, 10, 15, 20, 40];
    for (order, victim) in Order::ALL.into_iter().flat_map(|order| victims.map(|victim| (order, victim))) {
        for later in laters {
            let (mut lab, view) = prepared(Pace::DELAYS, order, Durability::Memory);
            let Some(recovery) = strike(&mut lab, &view, victim, true, (0, false), later) else { continue };
            let took = [recovery.next, recovery.read];
            let is_prompt = took.iter().all(|took| *took < Spent::RETRY);
            assert!(is_prompt, "{order}, {victim:?}, {later} later: {took:?}");
        }
    }
}
