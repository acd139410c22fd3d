//! Trim of a whole log: every replica of one view must confirm.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use seriatim_model::{
    Address, Effect, Endpoint, Input, Machine, NodeId, Peer, Position, Time, View, ViewNumber,
};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::Backoff;
use seriatim_protocol::roles::Message;
use seriatim_protocol::shard;
use seriatim_protocol::{Mutation, Options};

use crate::failure::Failure;
use crate::source::{Directory, Learned};

/// First pause before retransmission; doubles up to [`AGAIN_MOST`].
const AGAIN_FIRST: Duration = Duration::from_millis(10);
const AGAIN_MOST: Duration = Duration::from_secs(1);
/// After this pause, ask the register: a newer view may exclude the slow replica.
const DOUBTFUL: Duration = Duration::from_millis(160);

/// Deletes everything below a position on every replica of a log, permanently.
///
/// Joining replicas learn the trim point from the previous view's members, so it suffices that all
/// replicas of one view confirm; a newer view restarts the trim. A replica that does not know the
/// position as final rejects the request and gets it again. The trim ends when all have confirmed
/// or the log is deleted. It has no deadline: to stop it, the caller drops the machine.
#[derive(Debug)]
pub struct Trim {
    directory: Directory,
    options: Options,
    position: Position,
    /// View whose replicas are asked, number of the request, and replicas that have not confirmed.
    view: ViewNumber,
    request: u64,
    awaited: BTreeMap<Address, Backoff>,
    is_over: bool,
}

/// Outcome of a trim.
pub type Outcome = Result<(), Failure>;

type Out = Vec<Effect<Message, Outcome>>;

impl Machine for Trim {
    type Message = Message;
    type Request = Infallible;
    type Reply = Outcome;

    fn step(&mut self, now: Time, input: Input<Message, Infallible>, out: &mut Out) {
        if self.is_over {
            return;
        }
        match input {
            Input::Message { from, message: Message::Shard(message) } => {
                self.answered(now, from, &message, out)
            }
            Input::Message { message: Message::Control(message), .. } => {
                match self.directory.receive(message) {
                    Learned::NewView { .. } => self.begin(now),
                    Learned::Deleted => {
                        let name = self.directory.entry().name.clone();
                        self.end(Err(Failure::Deleted(name)), out);
                    }
                    Learned::Same(_) | Learned::Nothing => {}
                }
            }
            Input::Disconnected(Peer::Node(node)) => self.lost(now, node),
            Input::Wake => {
                self.tell(now, out);
                self.directory.timer(now, out);
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        let told = self.awaited.values().map(Backoff::at).min();
        told.into_iter().chain(self.directory.deadline()).min().filter(|_| !self.is_over)
    }
}

impl Trim {
    /// Trims the log of `entry` below `position`. Asks the register through node `control`.
    #[must_use]
    pub fn new(now: Time, control: NodeId, entry: LogEntry, position: Position, options: Options) -> Self {
        let directory = Directory::new(control, entry);
        let (awaited, view) = (BTreeMap::new(), ViewNumber::NONE);
        let mut trim = Self { directory, options, position, view, request: 0, awaited, is_over: false };
        trim.begin(now);
        trim
    }

    /// The first kept position.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    fn begin(&mut self, now: Time) {
        let Some(view) = self.directory.view() else { return };
        assert!(view.number > self.view, "a newer view begins a new round");
        self.awaited = replicas(view).map(|to| (to, Backoff::new(now, AGAIN_FIRST, AGAIN_MOST))).collect();
        self.view = view.number;
        self.request += 1;
    }

    fn tell(&mut self, now: Time, out: &mut Out) {
        let (request, view, position) = (self.request, self.view, self.position);
        let mut is_doubtful = false;
        for (to, telling) in self.awaited.iter_mut().filter(|(_, telling)| telling.is_due(now)) {
            is_doubtful |= telling.pause() >= DOUBTFUL;
            telling.tried(now);
            let message = shard::Message::Trim { request, view, position };
            out.push(Effect::Send { to: *to, message: message.into() });
        }
        if is_doubtful {
            self.directory.ask(now);
        }
    }

    fn answered(&mut self, now: Time, from: Address, message: &shard::Message, out: &mut Out) {
        match message {
            shard::Message::Trimmed { request, first }
                if *request == self.request && *first >= self.position =>
            {
                self.awaited.remove(&from);
                if self.awaited.is_empty() || self.options.mutates(Mutation::TrimHalfConfirmed) {
                    self.end(Ok(()), out);
                }
            }
            // The replica is in another view, or in none.
            shard::Message::Fenced { .. } if self.awaited.contains_key(&from) => self.directory.ask(now),
            // The position is not final at the replica yet, or the answer belongs to an earlier
            // request.
            _ => {}
        }
    }

    /// The connection to `node` broke: the request may be lost, or a view without the node may
    /// follow.
    fn lost(&mut self, now: Time, node: NodeId) {
        let of_node = |to: &Address| matches!(to, Address::Node(of, _) if *of == node);
        if self.awaited.keys().any(of_node) {
            self.directory.ask(now);
        }
    }

    fn end(&mut self, outcome: Outcome, out: &mut Out) {
        self.is_over = true;
        out.push(Effect::Reply { token: 0, reply: outcome });
    }
}

fn replicas(view: &View) -> impl Iterator<Item = Address> {
    view.shards.iter().flat_map(|members| {
        let shard = Endpoint::Shard(members.shard);
        members.replicas.iter().map(move |member| Address::Node(member.node, shard))
    })
}

#[cfg(test)]
mod tests {
    use seriatim_protocol::control;
    use seriatim_protocol::shard::ReadError;

    use super::*;
    use crate::testing::{CONTROL, entry, from_register, from_shard, lookups, replies, to_shards};

    fn after(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn step(trim: &mut Trim, now: Time, input: Input<Message, Infallible>) -> Out {
        let mut out = vec![];
        trim.step(now, input, &mut out);
        out
    }

    /// The requests that one timer sends: node, shard, view, number.
    fn told(trim: &mut Trim, now: Time) -> Vec<(u32, u32, u64, u64)> {
        let out = step(trim, now, Input::Wake);
        let of = |(node, shard, message)| match message {
            shard::Message::Trim { request, view, position: Position(7) } => (node, shard, view.0, request),
            other => panic!("{other:?}"),
        };
        to_shards(&out).into_iter().map(of).collect()
    }

    fn trimmed(request: u64, first: u64) -> shard::Message {
        shard::Message::Trimmed { request, first: Position(first) }
    }

    fn found(view: u64) -> control::Message {
        control::Message::Registered { entry: entry(view, 2, 1) }
    }

    #[test]
    fn every_replica_of_the_view_has_to_confirm() {
        let mut trim = Trim::new(after(0), CONTROL, entry(1, 2, 1), Position(7), Options::default());
        assert_eq!(told(&mut trim, after(0)), [(10, 0, 1, 1), (11, 1, 1, 1), (100, 0, 1, 1), (101, 1, 1, 1)]);
        for (node, shard) in [(10, 0), (100, 0), (101, 1)] {
            // Answers to another request, or of a lower trim, do not count.
            for early in [trimmed(2, 7), trimmed(1, 6)] {
                assert!(step(&mut trim, after(1), from_shard(node, shard, early)).is_empty());
            }
            assert!(step(&mut trim, after(1), from_shard(node, shard, trimmed(1, 8))).is_empty());
        }
        assert_eq!(told(&mut trim, after(10)), [(11, 1, 1, 1)], "it did not answer");
        let out = step(&mut trim, after(11), from_shard(11, 1, trimmed(1, 7)));
        assert_eq!((replies(&out), trim.deadline()), (vec![Ok(())], None));
    }

    #[test]
    fn a_newer_view_is_told_as_a_whole() {
        let mut trim = Trim::new(after(0), CONTROL, entry(1, 2, 1), Position(7), Options::default());
        told(&mut trim, after(0));
        for (node, shard) in [(10, 0), (11, 1), (100, 0)] {
            step(&mut trim, after(1), from_shard(node, shard, trimmed(1, 7)));
        }
        step(&mut trim, after(2), from_register(found(2)));
        assert_eq!(told(&mut trim, after(2)), [(20, 0, 2, 2), (21, 1, 2, 2), (100, 0, 2, 2), (101, 1, 2, 2)]);
        let late = step(&mut trim, after(3), from_shard(101, 1, trimmed(1, 7)));
        assert!(late.is_empty(), "as of the view before");
        // The same view again sends no requests.
        step(&mut trim, after(3), from_register(found(2)));
        assert_eq!(told(&mut trim, after(3)), []);
    }

    #[test]
    fn a_replica_that_does_not_confirm_is_told_less_often_and_the_register_is_asked() {
        let mut trim = Trim::new(after(0), CONTROL, entry(1, 1, 1), Position(7), Options::default());
        told(&mut trim, after(0));
        step(&mut trim, after(1), from_shard(100, 0, trimmed(1, 7)));
        let refused =
            shard::Message::ReadFailed { request: 1, error: ReadError::NotStable { stable: Position(3) } };
        let (mut times, mut asked) = (vec![], 0);
        while let Some(at) = trim.deadline().filter(|at| *at < after(10_000)) {
            let out = step(&mut trim, at, Input::Wake);
            times.extend(to_shards(&out).iter().map(|_| at.0 / 1_000_000));
            asked += lookups(&out).len();
            step(&mut trim, at, from_shard(10, 0, refused.clone()));
            let known = control::Message::Found { request: 0, entry: entry(1, 1, 1), nodes: vec![] };
            step(&mut trim, at, from_register(known));
        }
        assert_eq!(times[..8], [10, 30, 70, 150, 310, 630, 1270, 2270]);
        assert_eq!((times.len(), asked), (15, 12), "once each time from 150 ms on");
    }

    #[test]
    fn a_replica_without_a_view_and_a_lost_connection_make_it_look_for_a_newer_one() {
        let fenced = shard::Message::Fenced {
            claim: ViewNumber(2),
            incarnation: seriatim_model::Incarnation(7),
            held: shard::Held {
                view: ViewNumber(1),
                stable: Position(9),
                missing: None,
                trim: Position::ZERO,
                end: Position(9),
                knows: ViewNumber(1),
            },
        };
        for input in [from_shard(10, 0, fenced), Input::Disconnected(Peer::Node(NodeId(10)))] {
            let mut trim = Trim::new(after(0), CONTROL, entry(1, 1, 1), Position(7), Options::default());
            told(&mut trim, after(0));
            step(&mut trim, after(1), input);
            assert_eq!(lookups(&step(&mut trim, after(1), Input::Wake)).len(), 1);
        }
    }

    #[test]
    fn a_log_without_a_view_is_waited_for_and_a_deleted_one_is_not() {
        let mut trim = Trim::new(after(0), CONTROL, entry(0, 1, 1), Position(7), Options::default());
        assert_eq!(lookups(&step(&mut trim, after(0), Input::Wake)).len(), 1);
        step(&mut trim, after(1), from_register(found(1)));
        assert_eq!(told(&mut trim, after(1)).len(), 4);
        let refusal = control::Refusal::NoSuchLog { name: "orders".into() };
        let out = step(&mut trim, after(2), from_register(control::Message::Refused { request: 0, refusal }));
        assert_eq!(replies(&out), [Err(Failure::Deleted("orders".into()))]);
    }
}
