//! Costs of recovery from a crash, by role.

use std::time::Duration;

use seriatim_delivery::fetch;
use seriatim_model::{Durability, Endpoint, NodeId, Order, Position, Time, View};
use seriatim_protocol::parts::appending::{AppendSpec, Failure, Reply};

use crate::costs::{APPENDER, READER, prepared, primary};
use crate::lab::{Flight, Lab, REGISTER};
use crate::programs::{Answer, Ask, Program};
use crate::spent::{Pace, Spent};

const NEXT: u64 = 4;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of moments at which a crash is tried, one delay apart: an append has ended by the last.
const MOMENTS: u64 = 14;
/// Tokens of the appends in flight at the crash, which begin one delay apart.
const ON_THEIR_WAY: std::ops::Range<u64> = 2..5;
const AFTER: u64 = 9;

/// Absence of a process that returns.
const AWAY_FOR: Duration = Duration::from_millis(500);
/// Number of appends during and after the return.
const RETURN_APPENDS: u64 = 1000;
const BETWEEN: Duration = Duration::from_micros(1_100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Client,
    /// The leader, or the sequencer.
    Leader,
    Follower,
    Primary,
    Backup,
    /// The node whose controller is about to replace a dead backup.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fates {
    pub(crate) acknowledged: bool,
    /// Appends failed and are not in the log.
    pub(crate) refused: bool,
    /// No client is left to receive the outcome.
    pub(crate) untold: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    pub(crate) fates: Fates,
    /// Until all appends in flight have answers.
    pub(crate) answered: Spent,
    /// Until an append made right after the crash is acknowledged.
    pub(crate) next: Spent,
    /// Until a subscriber has the record of that append.
    pub(crate) delivered: Spent,
    /// Until a read made right after the crash is answered.
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

/// The worst outcome over all moments. `None` if the order has no such role. If `is_noticed`, the
/// victim's process dies; otherwise it falls silent.
pub(crate) fn measure(order: Order, victim: Victim, is_noticed: bool) -> Option<Recovery> {
    let crashes = (0..MOMENTS).flat_map(|moment| [(moment, false), (moment, true)]);
    let recoveries = crashes.map(|(moment, half)| crash(order, victim, is_noticed, moment, half));
    recoveries.reduce(|worst, recovery| Some(worst?.or_worse(recovery?))).flatten()
}

/// Measures a crash at one moment. With `half`, messages of a dying client reach only a part of the
/// receivers.
fn crash(order: Order, victim: Victim, is_noticed: bool, moment: u64, half: bool) -> Option<Recovery> {
    let (mut lab, view) = prepared(Pace::DELAYS, order, Durability::Memory);
    strike(&mut lab, &view, victim, is_noticed, (moment, half), 0)
}

/// Crashes the victim, and makes an append and a read `later` delays afterwards.
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
    // Shifts the crash within a heartbeat interval.
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

/// Longest time of an append while a dead victim returns. `None` if the order has no such role, or
/// the victim does not return.
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

/// Node of a victim; for a client, any node.
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

const SPECULATOR: u64 = 5;

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

/// The client remembers the lost connection.
#[test]
fn a_client_that_was_idle_when_a_process_died_does_not_wait_for_a_retransmission() {
    let victims = [Victim::Leader, Victim::Follower, Victim::Primary, Victim::Backup];
    // Delays after the crash: before, during and after the view change.
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
