//! A poll of several roles, for a client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use seriatim_model::{Address, Effect, Input, Machine, Time};

use crate::roles::Message;

/// The pause before retransmission: a lost connection loses the question.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(300);
/// How long roles have to answer; later they count as silent.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The answer of each role; `None` if it did not answer in time.
pub type Answers = BTreeMap<Address, Option<Message>>;

/// Sends each role its own question, and returns the answers when all roles have answered or after
/// [`ANSWER_WITHIN`].
///
/// Retransmission may cause two answers of a role; the first counts.
#[derive(Clone, Debug)]
pub struct Poll {
    questions: BTreeMap<Address, Message>,
    answers: Answers,
    ask_at: Time,
    until: Time,
    is_over: bool,
}

impl Machine for Poll {
    type Message = Message;
    type Request = Infallible;
    type Reply = Answers;

    fn step(
        &mut self,
        now: Time,
        input: Input<Message, Infallible>,
        out: &mut Vec<Effect<Message, Self::Reply>>,
    ) {
        if self.is_over {
            return;
        }
        match input {
            Input::Message { from, message } => {
                if let Some(answer) = self.answers.get_mut(&from) {
                    answer.get_or_insert(message);
                }
            }
            Input::Wake if (self.ask_at..self.until).contains(&now) => self.ask(now, out),
            _ => {}
        }
        if now >= self.until || self.answers.values().all(Option::is_some) {
            self.is_over = true;
            out.push(Effect::Reply { token: 0, reply: std::mem::take(&mut self.answers) });
        }
    }

    fn deadline(&self) -> Option<Time> {
        (!self.is_over).then_some(self.ask_at.min(self.until))
    }
}

impl Poll {
    /// The caller passes only answers to these questions to this machine.
    #[must_use]
    pub fn new(now: Time, questions: impl IntoIterator<Item = (Address, Message)>) -> Self {
        let questions: BTreeMap<Address, Message> = questions.into_iter().collect();
        let answers = questions.keys().map(|to| (*to, None)).collect();
        Self { questions, answers, ask_at: now, until: now + ANSWER_WITHIN, is_over: false }
    }

    fn ask(&mut self, now: Time, out: &mut Vec<Effect<Message, Answers>>) {
        self.ask_at = now + ASK_AGAIN;
        let is_unanswered = |to: &Address| self.answers.get(to).is_some_and(Option::is_none);
        let unanswered = self.questions.iter().filter(|(to, _)| is_unanswered(to));
        out.extend(unanswered.map(|(to, question)| Effect::Send { to: *to, message: question.clone() }));
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Endpoint, NodeId};

    use super::*;

    fn after(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn role(node: u32) -> Address {
        Address::Node(NodeId(node), Endpoint::Sequencer)
    }

    fn step(poll: &mut Poll, at: u64, input: Input<Message, Infallible>) -> (Vec<Address>, Vec<Answers>) {
        let (mut out, mut asked, mut replies) = (vec![], vec![], vec![]);
        poll.step(after(at), input, &mut out);
        for effect in out {
            match effect {
                Effect::Send { to, .. } => asked.push(to),
                Effect::Reply { reply, .. } => replies.push(reply),
                _ => {}
            }
        }
        (asked, replies)
    }

    fn answer(node: u32, request: u64) -> Input<Message, Infallible> {
        Input::Message { from: role(node), message: Message::ask_status(request) }
    }

    fn poll(nodes: &[u32]) -> Poll {
        Poll::new(after(0), nodes.iter().map(|node| (role(*node), Message::ask_status(1))))
    }

    #[test]
    fn a_role_that_does_not_answer_is_asked_again_and_left_out_in_the_end() {
        let mut poll = poll(&[1, 2]);
        assert_eq!(step(&mut poll, 0, Input::Wake).0, [role(1), role(2)]);
        assert_eq!(step(&mut poll, 5, answer(2, 7)), (vec![], vec![]));
        let mut asked = vec![];
        let mut told = vec![];
        while let Some(at) = poll.deadline() {
            let (to, replies) = step(&mut poll, at.0 / 1_000_000, Input::Wake);
            asked.extend(to.iter().map(|_| at.0 / 1_000_000));
            told.extend(replies);
            assert!(to.iter().all(|to| *to == role(1)));
        }
        assert_eq!(asked, [300, 600, 900]);
        let expected = Answers::from([(role(1), None), (role(2), Some(Message::ask_status(7)))]);
        assert_eq!(told, [expected]);
    }

    #[test]
    fn the_first_answer_of_each_counts_and_nobody_else_is_heard() {
        let mut poll = poll(&[1, 2]);
        step(&mut poll, 0, Input::Wake);
        assert_eq!(step(&mut poll, 1, answer(3, 9)), (vec![], vec![]));
        step(&mut poll, 2, answer(1, 5));
        assert_eq!(step(&mut poll, 3, answer(1, 6)), (vec![], vec![]));
        let (_, told) = step(&mut poll, 4, answer(2, 8));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0][&role(1)], Some(Message::ask_status(5)));
        assert_eq!(poll.deadline(), None);
        assert_eq!(step(&mut poll, 5, answer(2, 8)), (vec![], vec![]));
    }

    #[test]
    fn without_questions_there_is_an_answer_at_once() {
        let mut poll = poll(&[]);
        assert_eq!(step(&mut poll, 0, Input::Wake).1, [Answers::new()]);
    }
}
