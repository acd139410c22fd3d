//! Surveys by clients: the usage of a log's replicas, and positions by time.

use std::convert::Infallible;

use seriatim_model::{
    Address, Effect, Endpoint, Input, LogEntry, LogId, Machine, NodeId, Position, Time, TimeIndex, View,
};

use super::message::{Message, Refusal};
use super::poll::{ASK_AGAIN, Answers, Poll};
use crate::roles;
use crate::shard::{self, Survey, Surveyed};

/// A survey's questions to all shard replicas, for a [`Poll`].
pub fn questions(view: &View, survey: Survey) -> impl Iterator<Item = (Address, roles::Message)> {
    let replicas = view.shards.iter().flat_map(|members| {
        let shard = Endpoint::Shard(members.shard);
        members.replicas.iter().map(move |member| Address::Node(member.node, shard))
    });
    replicas.map(move |to| (to, shard::Message::Survey(survey).into()))
}

/// The survey in a replica's answer.
#[must_use]
pub fn surveyed(answer: roles::Message) -> Option<Surveyed> {
    match answer {
        roles::Message::Shard(shard::Message::Surveyed(answer)) => Some(answer),
        _ => None,
    }
}

/// Finds the position that a log had reached at a time. It asks the register for the view, then all
/// replicas, and starts over if none answers. One answer suffices; others only refine it.
///
/// Ends with an answer, or when the log is gone. To stop it, the caller drops the machine.
#[derive(Debug)]
pub struct TimeSearch {
    /// The node that hosts the register.
    control: NodeId,
    log: (LogId, String),
    wall_ms: u64,
    /// Equal for retransmissions.
    request: u64,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// When to retransmit.
    LooksUp(Time),
    Polls(Poll),
    Over,
}

type Out = Vec<Effect<roles::Message, Option<Position>>>;

impl Machine for TimeSearch {
    type Message = roles::Message;
    type Request = Infallible;
    /// `None` if the log is gone.
    type Reply = Option<Position>;

    fn step(&mut self, now: Time, input: Input<roles::Message, Infallible>, out: &mut Out) {
        match (&mut self.phase, input) {
            (Phase::LooksUp(_), Input::Message { message: roles::Message::Control(message), .. }) => {
                self.looked_up(now, message, out);
            }
            (Phase::LooksUp(at), Input::Wake) if now >= *at => self.look_up(now, out),
            (Phase::Polls(_), input) => self.poll(now, input, out),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        match &self.phase {
            Phase::LooksUp(at) => Some(*at),
            Phase::Polls(poll) => poll.deadline(),
            Phase::Over => None,
        }
    }
}

impl TimeSearch {
    /// Searches `log` (id and name) for the time `wall_ms`, in milliseconds since 1970. Node
    /// `control` hosts the register.
    #[must_use]
    pub fn new(now: Time, control: NodeId, log: (LogId, String), wall_ms: u64) -> Self {
        Self { control, log, wall_ms, request: 1, phase: Phase::LooksUp(now) }
    }

    fn look_up(&mut self, now: Time, out: &mut Out) {
        self.phase = Phase::LooksUp(now + ASK_AGAIN);
        let message = Message::Lookup { request: self.request, name: self.log.1.clone() };
        out.push(Effect::Send {
            to: Address::Node(self.control, Endpoint::Register),
            message: message.into(),
        });
    }

    fn looked_up(&mut self, now: Time, message: Message, out: &mut Out) {
        match message {
            Message::Found { request, entry, .. } if request == self.request => self.found(now, entry, out),
            Message::Refused { request, refusal: Refusal::NoSuchLog { .. } } if request == self.request => {
                self.end(None, out);
            }
            _ => {}
        }
    }

    fn found(&mut self, now: Time, entry: LogEntry, out: &mut Out) {
        if entry.id != self.log.0 {
            // Another log of that name.
            return self.end(None, out);
        }
        // Without a view, the timer asks again.
        let Some(view) = entry.view else { return };
        let survey = Survey { request: self.request, times: true, usage: false };
        self.phase = Phase::Polls(Poll::new(now, questions(&view, survey)));
        self.poll(now, Input::Wake, out);
    }

    fn poll(&mut self, now: Time, input: Input<roles::Message, Infallible>, out: &mut Out) {
        let Phase::Polls(poll) = &mut self.phase else { return };
        let mut effects = vec![];
        poll.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => out.push(Effect::Send { to, message }),
                Effect::Reply { reply, .. } => match self.judge(reply) {
                    Some(position) => self.end(Some(position), out),
                    None => {
                        self.request += 1;
                        self.look_up(now, out);
                    }
                },
                // A client has no disk.
                _ => {}
            }
        }
    }

    /// The position that the answers show, at least the trim point; `None` if no replica answered.
    fn judge(&self, answers: Answers) -> Option<Position> {
        let answers: Vec<Surveyed> = answers.into_values().flatten().filter_map(surveyed).collect();
        let first = answers.iter().map(|answer| answer.trim).max()?;
        let mut times = TimeIndex::default();
        answers.iter().flat_map(|answer| &answer.times).for_each(|known| times.merge(known));
        Some(times.position_at(self.wall_ms).max(first))
    }

    fn end(&mut self, outcome: Option<Position>, out: &mut Out) {
        self.phase = Phase::Over;
        out.push(Effect::Reply { token: 0, reply: outcome });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim_model::{ShardId, ViewNumber};

    use super::super::testing;
    use super::*;

    /// One shard, on nodes 10 and 20.
    fn entry(id: LogId, has_view: bool) -> LogEntry {
        let mut view = testing::view();
        view.shards.truncate(1);
        LogEntry { id, ..testing::entry(has_view.then_some(view)) }
    }

    const LOG: LogId = LogId(9);

    fn search() -> TimeSearch {
        TimeSearch::new(Time::ZERO, NodeId(1), (LOG, "orders".into()), 5)
    }

    /// Returns the asked nodes and the outcome.
    fn step(
        search: &mut TimeSearch,
        ms: u64,
        input: Input<roles::Message, Infallible>,
    ) -> (Vec<u32>, Vec<Option<Position>>) {
        let (mut out, mut asked, mut outcomes) = (vec![], vec![], vec![]);
        search.step(Time::ZERO + Duration::from_millis(ms), input, &mut out);
        for effect in out {
            match effect {
                Effect::Send { to: Address::Node(node, _), .. } => asked.push(node.0),
                Effect::Reply { reply, .. } => outcomes.push(reply),
                other => panic!("{other:?}"),
            }
        }
        (asked, outcomes)
    }

    fn found(request: u64, entry: LogEntry) -> Input<roles::Message, Infallible> {
        let message = Message::Found { request, entry, nodes: vec![] };
        Input::Message { from: Address::Node(NodeId(1), Endpoint::Register), message: message.into() }
    }

    fn told(node: u32, trim: u64) -> Input<roles::Message, Infallible> {
        let answer = Surveyed {
            request: 1,
            view: ViewNumber(3),
            stable: Position(9),
            trim: Position(trim),
            digest: 0,
            time_ms: 0,
            times: None,
            usage: None,
        };
        let from = Address::Node(NodeId(node), Endpoint::Shard(ShardId(0)));
        Input::Message { from, message: shard::Message::Surveyed(answer).into() }
    }

    #[test]
    fn what_is_trimmed_is_not_looked_for() {
        let mut search = search();
        assert_eq!(step(&mut search, 0, Input::Wake).0, [1]);
        assert_eq!(step(&mut search, 1, found(1, entry(LOG, true))).0, [10, 20]);
        step(&mut search, 2, told(10, 4));
        assert_eq!(step(&mut search, 3, told(20, 6)).1, [Some(Position(6))]);
        assert_eq!(search.deadline(), None);
    }

    #[test]
    fn one_replica_is_enough_and_without_any_the_register_is_asked_again() {
        let mut search = search();
        step(&mut search, 0, Input::Wake);
        step(&mut search, 1, found(1, entry(LOG, true)));
        assert_eq!(step(&mut search, 1001, Input::Wake), (vec![1], vec![]));
        // The answer to the first question.
        assert_eq!(step(&mut search, 1002, found(1, entry(LOG, true))), (vec![], vec![]));
        assert_eq!(step(&mut search, 1003, found(2, entry(LOG, true))).0, [10, 20]);
        step(&mut search, 1004, told(20, 6));
        assert_eq!(step(&mut search, 2003, Input::Wake).1, [Some(Position(6))]);
    }

    #[test]
    fn a_log_without_a_view_is_waited_for_and_one_that_is_gone_is_not() {
        let mut waiting = search();
        step(&mut waiting, 0, Input::Wake);
        assert_eq!(step(&mut waiting, 1, found(1, entry(LOG, false))), (vec![], vec![]));
        assert_eq!(step(&mut waiting, 300, Input::Wake).0, [1]);
        let mut searching = search();
        step(&mut searching, 0, Input::Wake);
        assert_eq!(step(&mut searching, 1, found(1, entry(LogId(10), true))), (vec![], vec![None]));
        let mut searching = search();
        step(&mut searching, 0, Input::Wake);
        let refusal = Refusal::NoSuchLog { name: "orders".into() };
        let refused = Message::Refused { request: 1, refusal };
        let from = Address::Node(NodeId(1), Endpoint::Register);
        let input = Input::Message { from, message: refused.into() };
        assert_eq!(step(&mut searching, 1, input), (vec![], vec![None]));
    }
}
