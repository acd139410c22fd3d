//! Waits until a log's entry meets a condition.

use std::convert::Infallible;
use std::time::Duration;

use seriatim_model::{Address, Effect, Endpoint, Input, LogEntry, Machine, NodeId, ShardId, Time};

use super::message::{Message, Refusal};
use super::poll::ASK_AGAIN;
use crate::roles;

/// The pause between an answer and the next question.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A condition on a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It has a view.
    HasView,
    /// A shard takes records.
    Takes(ShardId),
    /// A shard takes no new records.
    TakesNoMore(ShardId),
}

impl Awaited {
    /// Whether an entry meets the condition.
    #[must_use]
    pub fn is_met(self, entry: &LogEntry) -> bool {
        let takes = |shard| entry.view.as_ref().map(|view| view.open_shards().contains(&shard));
        match self {
            Self::HasView => entry.view.is_some(),
            Self::Takes(shard) => takes(shard) == Some(true),
            Self::TakesNoMore(shard) => takes(shard) == Some(false),
        }
    }
}

/// Asks the register for a log's entry until the entry meets a condition, or the log does not
/// exist. To stop waiting, the caller drops the machine.
#[derive(Debug)]
pub struct Awaiting {
    /// The node that hosts the register.
    control: NodeId,
    name: String,
    goal: Awaited,
    /// Equal for retransmissions.
    request: u64,
    /// `None` when the wait is over.
    ask_at: Option<Time>,
}

type Out = Vec<Effect<roles::Message, Result<LogEntry, Refusal>>>;

impl Machine for Awaiting {
    type Message = roles::Message;
    type Request = Infallible;
    type Reply = Result<LogEntry, Refusal>;

    fn step(&mut self, now: Time, input: Input<roles::Message, Infallible>, out: &mut Out) {
        let Some(ask_at) = self.ask_at else { return };
        match input {
            Input::Message { message: roles::Message::Control(message), .. } => {
                self.answered(now, message, out);
            }
            Input::Wake if now >= ask_at => self.ask(now, out),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.ask_at
    }
}

impl Awaiting {
    /// Waits until the log `name` meets `goal`; node `control` hosts the register.
    #[must_use]
    pub fn new(now: Time, control: NodeId, name: String, goal: Awaited) -> Self {
        Self { control, name, goal, request: 1, ask_at: Some(now) }
    }

    fn ask(&mut self, now: Time, out: &mut Out) {
        self.ask_at = Some(now + ASK_AGAIN);
        let message = Message::Lookup { request: self.request, name: self.name.clone() };
        out.push(Effect::Send {
            to: Address::Node(self.control, Endpoint::Register),
            message: message.into(),
        });
    }

    fn answered(&mut self, now: Time, message: Message, out: &mut Out) {
        match message {
            Message::Found { request, entry, .. } if request == self.request => {
                if self.goal.is_met(&entry) {
                    self.end(Ok(entry), out);
                } else {
                    self.request += 1;
                    self.ask_at = Some(now + LOOK_EVERY);
                }
            }
            Message::Refused { request, refusal } if request == self.request => self.end(Err(refusal), out),
            _ => {}
        }
    }

    fn end(&mut self, outcome: Result<LogEntry, Refusal>, out: &mut Out) {
        self.ask_at = None;
        out.push(Effect::Reply { token: 0, reply: outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn awaiting(goal: Awaited) -> Awaiting {
        Awaiting::new(Time::ZERO, NodeId(1), "orders".into(), goal)
    }

    /// Returns the numbers of its questions, and the outcome.
    fn step(
        awaiting: &mut Awaiting,
        ms: u64,
        input: Input<roles::Message, Infallible>,
    ) -> (Vec<u64>, Vec<Result<LogEntry, Refusal>>) {
        let (mut out, mut asked, mut outcomes) = (vec![], vec![], vec![]);
        awaiting.step(Time::ZERO + Duration::from_millis(ms), input, &mut out);
        for effect in out {
            match effect {
                Effect::Send {
                    message: roles::Message::Control(Message::Lookup { request, name }), ..
                } => {
                    assert_eq!(name, "orders");
                    asked.push(request);
                }
                Effect::Reply { reply, .. } => outcomes.push(reply),
                other => panic!("{other:?}"),
            }
        }
        (asked, outcomes)
    }

    fn told(message: Message) -> Input<roles::Message, Infallible> {
        Input::Message { from: Address::Node(NodeId(1), Endpoint::Register), message: message.into() }
    }

    #[test]
    fn the_register_is_asked_until_the_log_is_so() {
        let mut awaiting = awaiting(Awaited::HasView);
        assert_eq!(step(&mut awaiting, 0, Input::Wake).0, [1]);
        assert_eq!(step(&mut awaiting, 300, Input::Wake).0, [1], "a question without an answer is the same");
        let without = Message::Found { request: 1, entry: testing::entry(None), nodes: vec![] };
        assert_eq!(step(&mut awaiting, 400, told(without.clone())), (vec![], vec![]));
        assert_eq!(step(&mut awaiting, 405, Input::Wake).0, [2]);
        // The second answer to a retransmitted question.
        assert_eq!(step(&mut awaiting, 406, told(without)), (vec![], vec![]));
        assert_eq!(awaiting.deadline(), Some(Time::ZERO + Duration::from_millis(705)));
        let entry = testing::entry(Some(testing::view()));
        let found = Message::Found { request: 2, entry: entry.clone(), nodes: vec![] };
        assert_eq!(step(&mut awaiting, 407, told(found)).1, [Ok(entry)]);
        assert_eq!(awaiting.deadline(), None);
    }

    #[test]
    fn a_log_that_is_not_there_is_not_waited_for() {
        let mut awaiting = awaiting(Awaited::HasView);
        step(&mut awaiting, 0, Input::Wake);
        let refusal = Refusal::NoSuchLog { name: "orders".into() };
        let refused = Message::Refused { request: 1, refusal: refusal.clone() };
        assert_eq!(step(&mut awaiting, 1, told(refused)).1, [Err(refusal)]);
    }

    #[test]
    fn without_a_view_no_shard_takes_records_and_none_has_ceased_to() {
        let (entry, none) = (testing::entry(Some(testing::view())), testing::entry(None));
        let is_met = |goal: Awaited| (goal.is_met(&entry), goal.is_met(&none));
        assert_eq!(is_met(Awaited::Takes(ShardId(1))), (true, false));
        assert_eq!(is_met(Awaited::TakesNoMore(ShardId(1))), (false, false));
        assert_eq!(is_met(Awaited::Takes(ShardId(2))), (false, false));
        assert_eq!(is_met(Awaited::TakesNoMore(ShardId(2))), (true, false));
    }
}
