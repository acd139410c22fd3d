//! The operator in the world: its questions, and the answers beside the true state.

use std::time::Duration;

use seriatim_model::{Address, Endpoint, Incarnation, Input, ShardId, Time, View};
use seriatim_protocol::control::{Known, Status};
use seriatim_protocol::shard::Replica;

use super::CONTROL;
use super::clients::Clients;
use super::cluster::Cluster;
use super::frames::{frame, open};
use super::limits::BEGAN_MS;
use super::scene::{Flight, Happening};
use crate::network::Party;
use crate::operator::{Asked, FirstAsked, Operator, Outcome, Sends, Told};

/// Calm time before the operator asks about retired shards.
const CALM_FOR: Duration = Duration::from_secs(1);

pub(super) const OPERATOR: u32 = 10_002;

pub(super) fn looks(operator: &mut Operator, cluster: &mut Cluster, clients: &mut Clients) {
    if cluster.scene.now < operator.look_at {
        return;
    }
    begin_questions(operator, cluster);
    recovers(operator, cluster, clients);
    let mut sends = vec![];
    let outcomes = operator.wake(cluster.scene.now, cluster.scene.plan.options, &mut sends);
    take_outcomes(operator, cluster, sends, outcomes);
}

/// Asks for lost records if the log reports a loss, or if a shard is retired in calm; then accepts
/// the loss.
fn recovers(operator: &mut Operator, cluster: &mut Cluster, clients: &mut Clients) {
    let Some(entry) = cluster.entry().cloned() else { return };
    let says_so = entry.unavailable.as_ref().is_some_and(|why| why.contains("admin recover"));
    let is_calm = cluster.scene.history.calm_since.is_some_and(|since| cluster.scene.now >= since + CALM_FOR);
    let misses_shard = is_calm && entry.view.as_ref().is_some_and(|view| !view.retired.is_empty());
    let needs_somebody = says_so || misses_shard && !operator.found_all;
    if operator.is_recovering() || !needs_somebody {
        return;
    }
    if operator.told.is_some() && cluster.scene.history.accepted.is_none() {
        cluster.excuse_spoiled();
        // Clients trim no more: after a loss, the log may lack records that they have read.
        clients.trim_no_more();
        let accepted = operator.accept(&mut cluster.scene.history);
        cluster.scene.tell(format_args!("the operator accepts to lose {accepted:?}"));
    }
    let scene = &cluster.scene;
    operator.recover(scene.now, &entry, scene.history.calm_since.is_some(), scene.plan.options);
}

pub(super) fn hears(operator: &mut Operator, cluster: &mut Cluster, flight: &Flight) {
    let (_, sender, to, message) = open(flight.frame.clone()).expect("what was encoded is decoded");
    let (Party::Node(node), Endpoint::Client(machine)) = (flight.from, to) else { return };
    let input = Input::Message { from: Address::Node(node, sender), message };
    let mut sends = vec![];
    let scene = &cluster.scene;
    let outcome = operator.step(machine, scene.now, input, scene.plan.options, &mut sends);
    take_outcomes(operator, cluster, sends, outcome);
}

fn take_outcomes(
    operator: &mut Operator,
    cluster: &mut Cluster,
    sends: Sends,
    outcomes: impl IntoIterator<Item = Outcome>,
) {
    cluster.scene.schedule(operator.look_at, Happening::OperatorLooks);
    for (machine, node, to, message) in sends {
        let bytes = frame(cluster.scene.log, Endpoint::Client(machine), to, &message);
        cluster.transmit(Party::Client(OPERATOR), Party::Node(node), bytes);
    }
    for outcome in outcomes {
        let told = match outcome {
            Outcome::Status(asked, status) => judged(cluster, &asked, status),
            Outcome::Recovered(told, is_calm) => operator.hears(told, is_calm, &mut cluster.scene.history),
            Outcome::Sought(sought) => Told::Sought(sought),
            Outcome::Takes(shard, view) => Told::Takes(shard, view),
            Outcome::Known(first, known) => known_beside_truth(cluster, first, known),
        };
        cluster.scene.coverage.accepted_losses = u64::from(operator.goes_on);
        cluster.scene.coverage.statuses += u64::from(matches!(told, Told::Status { .. }));
        cluster.scene.coverage.inventories += u64::from(matches!(told, Told::Known { .. }));
        cluster.scene.tell(format_args!("the operator is told: {told:?}"));
        cluster.scene.history.told.push(told);
    }
}

fn begin_questions(operator: &mut Operator, cluster: &mut Cluster) {
    let Some(entry) = cluster.entry().cloned() else { return };
    if let Some(view) = entry.view.clone().filter(|_| !operator.is_polling()) {
        let asked = asked(cluster, view);
        operator.poll(cluster.scene.now, asked);
    }
    if cluster.scene.plan.asks_nodes {
        let scene = &cluster.scene;
        operator.ask_nodes(scene.now, CONTROL, first_asked(cluster), scene.plan.options);
    }
    let scene = &mut cluster.scene;
    if !scene.plan.reshapes.is_empty() {
        operator.wait_for(scene.now, CONTROL, &entry.name, ShardId(scene.plan.config.shards));
    }
    if scene.plan.clocks.is_some() {
        let now_ms = (scene.now - Time::ZERO).as_millis() as u64;
        let ms = now_ms.saturating_sub(scene.random.between(0, 3000));
        operator.seek(scene.now, CONTROL, &entry, (BEGAN_MS + ms, ms));
    }
}

fn asked(cluster: &Cluster, view: View) -> Asked {
    let there = primaries(cluster, &view).map(|(shard, who, _)| (shard, who)).collect();
    let absent = absent_primaries(cluster, &view).collect();
    Asked { view, there, absent }
}

/// A status with the true state at its arrival.
fn judged(cluster: &Cluster, asked: &Asked, status: Status) -> Told {
    let Asked { view, there, absent } = asked;
    let same = primaries(cluster, view).filter(|(shard, who, _)| there.get(shard) == Some(who));
    let still =
        absent_primaries(cluster, view).filter(|(shard, incarnation)| absent.get(shard) == Some(incarnation));
    Told::Status {
        status,
        sequencers: view.sequencers.len(),
        stable: same.map(|(shard, _, role)| (shard, role.stable())).collect(),
        absent: still.map(|(shard, _)| shard).collect(),
    }
}

fn first_asked(cluster: &Cluster) -> FirstAsked {
    let node = cluster.node(CONTROL);
    let entry = node.host.as_ref().and_then(|host| host.controller(cluster.scene.log)?.entry());
    FirstAsked { version: entry.map(|entry| entry.version), incarnation: node.incarnation }
}

/// The nodes' knowledge with the true state at its arrival.
fn known_beside_truth(cluster: &Cluster, first: FirstAsked, known: Known) -> Told {
    let log = cluster.scene.log;
    let is_same = cluster.node(CONTROL).incarnation == first.incarnation;
    Told::Known {
        entries: known.entries.into_iter().filter(|entry| entry.id == log).collect(),
        least: first.version.filter(|_| is_same),
        most: cluster.entry().map(|entry| entry.version),
    }
}

/// Running primaries, with incarnation and their node's number of starts and ends.
fn primaries<'a>(
    cluster: &'a Cluster,
    view: &'a View,
) -> impl Iterator<Item = (ShardId, (Incarnation, u64), &'a Replica)> {
    view.shards.iter().filter_map(|members| {
        let node = cluster.node(members.primary().node);
        let role = node.replica(cluster.scene.log, members.shard)?;
        Some((members.shard, (role.memory().incarnation, node.incarnation), role))
    })
}

/// Primaries that are down, with their node's number of starts and ends.
fn absent_primaries<'a>(cluster: &'a Cluster, view: &'a View) -> impl Iterator<Item = (ShardId, u64)> + 'a {
    view.shards.iter().filter_map(|members| {
        let node = cluster.node(members.primary().node);
        node.host.is_none().then_some((members.shard, node.incarnation))
    })
}
