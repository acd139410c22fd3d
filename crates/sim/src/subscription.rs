//! The reader of the client library: its subscriber, and an application that takes what it is given.

use seriatim_delivery::subscriber::{Event, Request};
use seriatim_delivery::{Failure, Subscriber};
use seriatim_model::{Address, Effect, Input, Machine, NodeId, Peer, Position, Time};
use seriatim_protocol::Message;
use seriatim_protocol::control::LogEntry;

use crate::excuses::Excuse;
use crate::history::History;
use crate::plan::Plan;
use crate::random::Random;

/// A subscription to the whole log.
#[derive(Debug)]
pub struct Subscription {
    machine: Subscriber,
    random: Random,
    /// The position that must come next.
    next: Position,
    /// How many records the application still wants.
    wants: u64,
    has_ended: bool,
}

impl Subscription {
    /// Subscribes from the beginning of the log, with so many bytes on their way.
    #[must_use]
    pub fn new(control: NodeId, entry: &LogEntry, random: Random, window: u64, plan: &Plan) -> Self {
        let range = (Position::ZERO, None);
        let machine = Subscriber::new(control, entry.clone(), range, window, plan.options);
        Self { machine, random, next: Position::ZERO, wants: 0, has_ended: false }
    }

    /// Everything below it was delivered, or is trimmed.
    #[must_use]
    pub fn next(&self) -> Position {
        self.machine.next()
    }

    /// Whether it came to what was lost, and ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// When [`Subscription::wake`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.wants {
            _ if self.has_ended => None,
            0 => Some(Time::ZERO),
            _ => self.machine.deadline(),
        }
    }

    /// The application wants more, and the machine does what is due.
    pub fn wake(&mut self, now: Time, history: &mut History, out: &mut Vec<(Address, Message)>) {
        if self.wants == 0 {
            self.wants = self.random.between(1, 40);
            let request = Request::Want { records: self.wants, bytes: 1 << 20 };
            self.step(now, Input::Request { token: 1, request }, history, out);
        }
        if self.machine.deadline().is_some_and(|at| now >= at) {
            self.step(now, Input::Wake, history, out);
        }
    }

    /// A message arrived.
    pub fn receive(
        &mut self,
        now: Time,
        from: Address,
        message: Message,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        self.step(now, Input::Message { from, message }, history, out);
    }

    /// The connection to a node is gone.
    pub fn disconnected(
        &mut self,
        now: Time,
        node: NodeId,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        self.step(now, Input::Disconnected(Peer::Node(node)), history, out);
    }

    fn step(
        &mut self,
        now: Time,
        input: Input<Message, Request>,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        let mut effects = vec![];
        self.machine.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => out.push((to, message)),
                Effect::Reply { reply, .. } => self.told(reply, history),
                other => unreachable!("a subscriber has no disk: {other:?}"),
            }
        }
    }

    fn told(&mut self, event: Event, history: &mut History) {
        match event {
            Event::Deliver { records, .. } => {
                self.wants = self.wants.saturating_sub(records.len() as u64);
                let upto = records.last().map_or(self.next, |last| last.position.next());
                history.deliver(self.next, upto, &records);
                self.next = upto;
            }
            Event::Trimmed { first } => self.next = first,
            Event::Failed(Failure::Lost { position, shard, .. }) if position >= self.next => {
                history.was_told_lost(shard, position);
                self.has_ended = true;
            }
            Event::Failed(Failure::Missing { .. })
                if history.excuse(Excuse::Missing, history.lost_too_much) =>
            {
                self.has_ended = true;
            }
            Event::Failed(Failure::Missing { position, shard } | Failure::Damaged { position, shard }) => {
                let told = format!("a subscription at {} ended: {event:?}", self.next);
                history.withheld.push((shard, position, told));
                self.has_ended = true;
            }
            other => history.problems.push(format!("a subscription at {} ended: {other:?}", self.next)),
        }
    }
}
