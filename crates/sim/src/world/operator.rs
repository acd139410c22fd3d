//! The operator of the log, in the world: when it asks, and what it is told.

use seriatim_model::{Address, Endpoint, Input, ShardId, Time, View};
use seriatim_protocol::control::Status;
use seriatim_protocol::shard::Replica;

use super::limits::BEGAN_MS;
use super::nodes::{frame, open};
use super::{CONTROL, Flight, Happening, World};
use crate::network::Party;
use crate::operator::{Asked, Outcome, Sends, Told};

/// The operator, as a client.
pub(super) const OPERATOR: u32 = 10_002;

impl World {
    /// The operator looks how far the log is, and whether it needs anybody.
    pub(super) fn operator_looks(&mut self) {
        if self.now < self.operator.look_at {
            return;
        }
        begin_questions(self);
        self.operator_recovers();
        let mut sends = vec![];
        let outcomes = self.operator.wake(self.now, self.plan.options, &mut sends);
        self.after_operator(sends, outcomes);
    }

    /// Asks what is lost if the log says so; once nothing goes wrong any more, the operator accepts what it was told.
    fn operator_recovers(&mut self) {
        let Some(entry) = self.entry().cloned() else { return };
        let needs_somebody = entry.unavailable.as_ref().is_some_and(|why| why.contains("admin recover"));
        if self.operator.is_recovering() || !needs_somebody {
            return;
        }
        if self.operator.told.is_some() && self.history.accepted.is_none() {
            self.excuse_spoiled();
            // Records that were read before say nothing of what is there after.
            self.clients.values_mut().for_each(|client| client.trimmer = None);
            let accepted = self.operator.accept(&mut self.history);
            self.trace.line(self.now, format_args!("the operator accepts to lose {accepted:?}"));
        }
        let is_calm = self.history.calm_since.is_some();
        self.operator.recover(self.now, &entry, is_calm, self.plan.options);
    }

    /// The operator is answered.
    pub(super) fn operator_hears(&mut self, flight: &Flight) {
        let (_, sender, to, message) = open(flight.frame.clone()).expect("what was encoded is decoded");
        let (Party::Node(node), Endpoint::Client(machine)) = (flight.from, to) else { return };
        let input = Input::Message { from: Address::Node(node, sender), message };
        let mut sends = vec![];
        let outcomes = self.operator.step(machine, self.now, input, self.plan.options, &mut sends);
        self.after_operator(sends, outcomes);
    }

    fn after_operator(&mut self, sends: Sends, outcomes: Vec<Outcome>) {
        self.schedule(self.operator.look_at, Happening::OperatorLooks);
        for (machine, node, to, message) in sends {
            let bytes = frame(self.log, Endpoint::Client(machine), to, &message);
            self.transmit(Party::Client(OPERATOR), Party::Node(node), bytes);
        }
        for outcome in outcomes {
            let told = match outcome {
                Outcome::Status(asked, status) => judged(self, &asked, status),
                Outcome::Recovered(told, is_calm) => self.operator.hears(told, is_calm, &mut self.history),
                Outcome::Sought(sought) => Told::Sought(sought),
                Outcome::Takes(shard, view) => Told::Takes(shard, view),
            };
            self.coverage.accepted_losses = u64::from(self.operator.goes_on);
            self.coverage.statuses += u64::from(matches!(told, Told::Status { .. }));
            self.trace.line(self.now, format_args!("the operator is told: {told:?}"));
            self.history.told.push(told);
        }
    }
}

/// Asks how far the log is, and where a time begins, unless that is asked already.
fn begin_questions(world: &mut World) {
    let Some(entry) = world.entry().cloned() else { return };
    if let Some(view) = entry.view.clone().filter(|_| !world.operator.is_polling()) {
        let asked = asked(world, view);
        world.operator.poll(world.now, asked);
    }
    if !world.plan.reshapes.is_empty() {
        world.operator.wait_for(world.now, CONTROL, &entry.name, ShardId(world.plan.config.shards));
    }
    if world.plan.clocks.is_some() {
        let now_ms = (world.now - Time::ZERO).as_millis() as u64;
        let ms = now_ms.saturating_sub(world.random.between(0, 3000));
        world.operator.seek(world.now, CONTROL, &entry, (BEGAN_MS + ms, ms));
    }
}

/// The replicas of a view that are asked now.
fn asked(world: &World, view: View) -> Asked {
    let there = primaries(world, &view).map(|(shard, role)| (shard, role.memory().incarnation)).collect();
    let absent = absent_primaries(world, &view).collect();
    Asked { view, there, absent }
}

/// A status that is told now, beside the truth.
fn judged(world: &World, asked: &Asked, status: Status) -> Told {
    let Asked { view, there, absent } = asked;
    let same =
        primaries(world, view).filter(|(shard, role)| there.get(shard) == Some(&role.memory().incarnation));
    let still = absent_primaries(world, view).filter(|(shard, life)| absent.get(shard) == Some(life));
    Told::Status {
        status,
        sequencers: view.sequencers.len(),
        stable: same.map(|(shard, role)| (shard, role.stable())).collect(),
        absent: still.map(|(shard, _)| shard).collect(),
    }
}

/// The primaries of a view that are there.
fn primaries<'a>(world: &'a World, view: &'a View) -> impl Iterator<Item = (ShardId, &'a Replica)> {
    view.shards.iter().filter_map(|members| {
        let role = world.nodes[&members.primary().node].replica(world.log, members.shard)?;
        Some((members.shard, role))
    })
}

/// The primaries of a view whose process does not run, with how often it was started and ended.
fn absent_primaries<'a>(world: &'a World, view: &'a View) -> impl Iterator<Item = (ShardId, u64)> + 'a {
    view.shards.iter().filter_map(|members| {
        let node = &world.nodes[&members.primary().node];
        node.host.is_none().then_some((members.shard, node.life))
    })
}
