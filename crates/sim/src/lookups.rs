//! Tests the client library's fetch with random reads and one sequential read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_delivery::fetch::{Reply, Request};
use seriatim_delivery::{Failure, Fetch};
use seriatim_model::{Address, Effect, Endpoint, Input, Machine, NodeId, Peer, Position, Time};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::{Message, Options, shard};

use crate::excuses::Excuse;
use crate::history::{History, MapTold};
use crate::operator::Acceptance;
use crate::random::Random;

/// Time for shards to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);
/// Number of concurrent reads.
const AT_ONCE: usize = 4;
/// Token of the sequential read.
const SCAN: u64 = 0;
/// First number of the map questions that this test sends itself, beside those of the machine.
const OWN: u64 = 1 << 40;

/// Reads at random positions.
#[derive(Debug)]
pub struct Lookups {
    machine: Fetch,
    random: Random,
    /// Next position of the sequential read.
    next: Position,
    /// Highest known trim point.
    trimmed: Position,
    /// Starts of unanswered reads, by token.
    running: BTreeMap<u64, Position>,
    /// Positions requested from shards.
    asked: BTreeSet<Position>,
    /// Starts of unanswered map questions.
    maps: BTreeMap<u64, Position>,
    last_token: u64,
    last_own_map: u64,
    read_at: Time,
    has_ended: bool,
}

type Sends = Vec<(Address, Message)>;

impl Lookups {
    /// Reads the log of `entry`.
    #[must_use]
    pub fn new(control: NodeId, entry: LogEntry, options: Options, random: Random) -> Self {
        Self {
            machine: Fetch::new(control, entry, options),
            random,
            next: Position::ZERO,
            trimmed: Position::ZERO,
            running: BTreeMap::new(),
            asked: BTreeSet::new(),
            maps: BTreeMap::new(),
            last_token: SCAN,
            last_own_map: OWN,
            read_at: Time::ZERO,
            has_ended: false,
        }
    }

    /// Bound of the positions that were read or trimmed.
    #[must_use]
    pub fn next(&self) -> Position {
        self.next
    }

    /// Whether it reached a lost record and ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Latest time for [`Lookups::wake`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let read_at = (!self.has_ended).then_some(self.read_at);
        [self.machine.deadline(), read_at].into_iter().flatten().min()
    }

    /// Starts new reads, and wakes the machine.
    pub fn wake(&mut self, now: Time, history: &mut History, out: &mut Sends) {
        if !self.has_ended && now >= self.read_at {
            self.read_at = now + self.random.micros(500, 20_000);
            if !self.running.contains_key(&SCAN) {
                let (from, max) = (self.next, self.random.between(1, 40));
                self.read(now, SCAN, from, max, history, out);
            }
            if self.running.len() < AT_ONCE {
                self.last_token += 1;
                let (from, max) = (self.somewhere(), self.random.pick(&[1, 1, 3, 20]));
                self.read(now, self.last_token, from, max, history, out);
            }
            if self.random.percent(10) {
                self.ask_for_map(out);
            }
        }
        if self.machine.deadline().is_some_and(|at| now >= at) {
            self.step(now, Input::Wake, history, out);
        }
    }

    /// A random position, already read or slightly beyond.
    fn somewhere(&mut self) -> Position {
        Position(self.random.between(self.trimmed.0, self.next.0.max(self.trimmed.0) + 3))
    }

    fn read(
        &mut self,
        now: Time,
        token: u64,
        from: Position,
        max: u64,
        history: &mut History,
        out: &mut Sends,
    ) {
        self.running.insert(token, from);
        let wait = self.random.millis(0, 100);
        let request = Request::Read { from, max: max as u32, wait, answer_within: ANSWER_WITHIN };
        self.step(now, Input::Request { token, request }, history, out);
    }

    /// Asks a random replica for the map (the shards of positions).
    fn ask_for_map(&mut self, out: &mut Sends) {
        let (from, end) = (self.somewhere(), Position(u64::MAX));
        let Some(view) = &self.machine.entry().view else { return };
        let members = self.random.pick(&view.shards);
        let to = Address::Node(self.random.pick(&members.replicas).node, Endpoint::Shard(members.shard));
        self.last_own_map += 1;
        let request = self.last_own_map;
        self.maps.insert(request, from);
        out.push((to, shard::Message::Map { request, from, end }.into()));
    }

    /// Takes a message.
    pub fn receive(
        &mut self,
        now: Time,
        from: Address,
        message: Message,
        history: &mut History,
        out: &mut Sends,
    ) {
        if let Message::Shard(shard::Message::Mapped { request, owned, .. }) = &message
            && let Some(first) = self.maps.remove(request)
        {
            let at = history.tick();
            history.maps.push(MapTold { at, from: first, owned: owned.clone() });
        }
        self.step(now, Input::Message { from, message }, history, out);
    }

    /// The connection to a node is closed.
    pub fn disconnected(&mut self, now: Time, node: NodeId, history: &mut History, out: &mut Sends) {
        self.step(now, Input::Disconnected(Peer::Node(node)), history, out);
    }

    fn step(&mut self, now: Time, input: Input<Message, Request>, history: &mut History, out: &mut Sends) {
        let mut effects = vec![];
        self.machine.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    match &message {
                        Message::Shard(shard::Message::Map { request, from, .. }) => {
                            self.maps.insert(*request, *from);
                        }
                        Message::Shard(shard::Message::Read { from, .. }) => _ = self.asked.insert(*from),
                        _ => {}
                    }
                    out.push((to, message));
                }
                Effect::Reply { token, reply } => self.answered(token, reply, history),
                other => unreachable!("a fetch has no disk: {other:?}"),
            }
        }
    }

    fn answered(&mut self, token: u64, reply: Reply, history: &mut History) {
        let from = self.running.remove(&token).expect("only what was asked is answered");
        let read_on = match reply {
            Reply::Records { records, next } => {
                if records.is_empty() && from < next && next < Position::MAX && !self.asked.contains(&next) {
                    // Without a look at `next`, the application would conclude that the log has no
                    // record there yet.
                    let problem = format!("a read from {from} on ended at {next}, and did not look there");
                    history.problems.push(problem);
                }
                history.deliver(from, next, &records);
                next
            }
            Reply::Failed(Failure::Trimmed { first }) => {
                self.trimmed = self.trimmed.max(first);
                first
            }
            Reply::Failed(Failure::Lost { position, shard, end }) => {
                history.was_told_lost(shard, position);
                history.skip(None, position, end);
                end
            }
            Reply::Failed(failure) => {
                self.failed(failure, history);
                from
            }
        };
        if token == SCAN {
            self.next = self.next.max(read_on);
        }
        let least = self.running.values().min().copied().unwrap_or(Position::MAX);
        self.asked = self.asked.split_off(&least);
    }

    fn failed(&mut self, failure: Failure, history: &mut History) {
        match failure {
            Failure::Missing { .. } if history.excuse(Excuse::Missing, history.lost_too_much) => {
                self.has_ended = true;
            }
            // Shards may learn of an accepted loss at different times.
            Failure::Gap { position, .. }
                if history.excuse(Excuse::Gap, is_being_lost(history.accepted.as_ref(), position)) => {}
            Failure::Gap { .. } | Failure::Disordered { .. } => history.holes.push(failure.to_string()),
            Failure::Deleted(_) => history.problems.push(failure.to_string()),
            _ => {}
        }
    }
}

fn is_being_lost(accepted: Option<&Acceptance>, position: Position) -> bool {
    accepted.is_some_and(|loss| position >= loss.certain)
}
