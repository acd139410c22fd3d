//! The operator's side of a recovery: finds and asks a controller of the log.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use seriatim_model::{Address, Effect, Endpoint, Input, LogEntry, Machine, NodeId, Time};

use super::message::Message;
use super::poll::{ANSWER_WITHIN, ASK_AGAIN};
use crate::mutation::{Mutation, Options};
use crate::roles;

/// The answer to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Whether the log has a view.
    pub done: bool,
    /// Whether continuing loses something.
    pub lost: bool,
    /// Certain positions and possible losses, or the obstacle.
    pub text: String,
}

/// Asks for the loss if a log continues without records that no replica holds, or accepts it.
///
/// Any assigned node may have the log's controller. The machine asks them in turn: first whether
/// they have one, for [`ANSWER_WITHIN`]; then the question itself, for `timeout`. Late answers of
/// earlier nodes count too, since each controller reads the register first.
#[derive(Debug)]
pub struct Recovery {
    request: u64,
    accepts: bool,
    timeout: Duration,
    left: VecDeque<NodeId>,
    turn: Option<Turn>,
    /// Nodes that received the question itself.
    asked: BTreeSet<NodeId>,
    options: Options,
}

#[derive(Debug)]
struct Turn {
    node: NodeId,
    /// Whether it has a controller of the log.
    has_controller: bool,
    ask_at: Time,
    until: Time,
}

type Out = Vec<Effect<roles::Message, Option<Recovered>>>;

impl Machine for Recovery {
    type Message = roles::Message;
    type Request = Infallible;
    /// `None` if no node answered.
    type Reply = Option<Recovered>;

    fn step(&mut self, now: Time, input: Input<roles::Message, Infallible>, out: &mut Out) {
        if self.is_over() {
            return;
        }
        match input {
            Input::Message {
                from: Address::Node(node, Endpoint::Controller),
                message: roles::Message::Control(message),
            } => self.answered(now, node, message, out),
            Input::Wake => self.timer(now, out),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.turn.as_ref().map(|turn| turn.ask_at.min(turn.until))
    }
}

impl Recovery {
    /// Asks about the log of `entry`; `accepts` accepts the loss. Each controller has `timeout` to
    /// answer. `request` is unique for the asker.
    #[must_use]
    pub fn new(
        now: Time,
        entry: &LogEntry,
        (request, accepts): (u64, bool),
        timeout: Duration,
        options: Options,
    ) -> Self {
        let mut nodes = BTreeSet::new();
        let hosts = entry.sequencers.iter().chain(entry.shards.iter().flatten());
        let left = hosts.copied().filter(|node| nodes.insert(*node)).collect();
        let mut recovery =
            Self { request, accepts, timeout, left, turn: None, asked: BTreeSet::new(), options };
        recovery.turn = recovery.next(now);
        recovery
    }

    fn is_over(&self) -> bool {
        self.turn.is_none()
    }

    fn next(&mut self, now: Time) -> Option<Turn> {
        let node = self.left.pop_front()?;
        Some(Turn { node, has_controller: false, ask_at: now, until: now + ANSWER_WITHIN })
    }

    fn answered(&mut self, now: Time, from: NodeId, message: Message, out: &mut Out) {
        let Some(turn) = &mut self.turn else { return };
        match message {
            Message::Recovered { request, done, lost, text }
                if request == self.request && self.asked.contains(&from) =>
            {
                self.end(Some(Recovered { done, lost, text }), out);
            }
            Message::LastChangeIs { request, .. }
                if request == self.request && from == turn.node && !turn.has_controller =>
            {
                (turn.has_controller, turn.ask_at, turn.until) = (true, now, now + self.timeout);
                self.ask(now, out);
            }
            // A duplicate or late answer.
            _ => {}
        }
    }

    fn timer(&mut self, now: Time, out: &mut Out) {
        if self.turn.as_ref().is_some_and(|turn| now >= turn.until) {
            self.turn = self.next(now);
            if self.turn.is_none() {
                return self.end(None, out);
            }
        }
        self.ask(now, out);
    }

    fn ask(&mut self, now: Time, out: &mut Out) {
        let Some(turn) = self.turn.as_mut().filter(|turn| now >= turn.ask_at) else { return };
        turn.ask_at = now + ASK_AGAIN;
        let request = self.request;
        let message = if turn.has_controller {
            self.asked.insert(turn.node);
            let accepts = self.accepts || self.options.mutates(Mutation::RecoveryAcceptsUnasked);
            Message::Recover { request, accepts }
        } else {
            Message::LastChange { request }
        };
        out.push(Effect::Send {
            to: Address::Node(turn.node, Endpoint::Controller),
            message: message.into(),
        });
    }

    fn end(&mut self, outcome: Option<Recovered>, out: &mut Out) {
        (self.turn, self.left) = (None, VecDeque::new());
        out.push(Effect::Reply { token: 0, reply: outcome });
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::ViewNumber;

    use super::super::testing;
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn after(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn recovery(accepts: bool) -> Recovery {
        Recovery::new(after(0), &testing::entry(None), (5, accepts), TIMEOUT, Options::default())
    }

    /// Returns the asked nodes with the questions, and the outcome.
    fn step(
        recovery: &mut Recovery,
        at: u64,
        input: Input<roles::Message, Infallible>,
    ) -> (Vec<(u32, Message)>, Vec<Option<Recovered>>) {
        let (mut out, mut asked, mut outcomes) = (vec![], vec![], vec![]);
        recovery.step(after(at), input, &mut out);
        for effect in out {
            match effect {
                Effect::Send {
                    to: Address::Node(node, Endpoint::Controller),
                    message: roles::Message::Control(message),
                } => asked.push((node.0, message)),
                Effect::Reply { reply, .. } => outcomes.push(reply),
                other => panic!("{other:?}"),
            }
        }
        (asked, outcomes)
    }

    fn from(node: u32, message: Message) -> Input<roles::Message, Infallible> {
        Input::Message { from: Address::Node(NodeId(node), Endpoint::Controller), message: message.into() }
    }

    fn is_there(request: u64) -> Message {
        Message::LastChangeIs { request, view: ViewNumber(1), steps: vec![] }
    }

    fn recovered(request: u64, text: &str) -> Message {
        Message::Recovered { request, done: false, lost: true, text: text.into() }
    }

    const FIRST: Message = Message::LastChange { request: 5 };

    #[test]
    fn the_first_node_that_has_a_controller_is_asked() {
        let mut recovery = recovery(true);
        let mut asked = vec![];
        while asked.last().is_none_or(|(_, node)| *node == 1) {
            let at = recovery.deadline().expect("it goes on").0 / 1_000_000;
            let (to, outcomes) = step(&mut recovery, at, Input::Wake);
            assert!(outcomes.is_empty() && to.iter().all(|(_, message)| *message == FIRST));
            asked.extend(to.iter().map(|(node, _)| (at, *node)));
        }
        assert_eq!(asked, [(0, 1), (300, 1), (600, 1), (900, 1), (1000, 2)]);
        // A late answer, and one to another question.
        assert_eq!(step(&mut recovery, 1001, from(1, is_there(5))), (vec![], vec![]));
        assert_eq!(step(&mut recovery, 1001, from(2, is_there(4))), (vec![], vec![]));
        let question = [(2, Message::Recover { request: 5, accepts: true })];
        assert_eq!(step(&mut recovery, 1002, from(2, is_there(5))).0, question);
        assert_eq!(step(&mut recovery, 1302, Input::Wake).0, question);
        assert_eq!(step(&mut recovery, 1303, from(2, recovered(4, "before"))), (vec![], vec![]));
        assert_eq!(step(&mut recovery, 1303, from(1, recovered(5, "unasked"))), (vec![], vec![]));
        let (_, outcomes) = step(&mut recovery, 1304, from(2, recovered(5, "position 7")));
        let told = Recovered { done: false, lost: true, text: "position 7".into() };
        assert_eq!((outcomes, recovery.deadline()), (vec![Some(told)], None));
    }

    #[test]
    fn a_node_that_was_asked_may_answer_while_the_next_one_is() {
        let mut recovery = recovery(false);
        step(&mut recovery, 0, Input::Wake);
        step(&mut recovery, 1, from(1, is_there(5)));
        step(&mut recovery, 10_001, Input::Wake);
        let (asked, _) = step(&mut recovery, 10_301, Input::Wake);
        assert_eq!(asked, [(2, FIRST)]);
        let (_, outcomes) = step(&mut recovery, 10_302, from(1, recovered(5, "position 7")));
        assert!(outcomes[0].as_ref().is_some_and(|told| told.text == "position 7"));
    }

    #[test]
    fn each_node_is_asked_in_one_turn_and_there_may_be_nobody() {
        let mut recovery = recovery(false);
        let (mut asked, mut outcomes) = (vec![], vec![]);
        while let Some(at) = recovery.deadline() {
            let (to, ends) = step(&mut recovery, at.0 / 1_000_000, Input::Wake);
            asked.extend(to.into_iter().map(|(node, _)| node));
            outcomes.extend(ends);
        }
        asked.dedup();
        assert_eq!((asked, outcomes), (vec![1, 2, 3], vec![None]));
    }
}
