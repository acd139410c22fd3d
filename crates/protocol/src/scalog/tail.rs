//! How a client checks the tail.
//!
//! Every member of the view says how far the cuts reach that it holds. An acknowledged append is in a cut that all
//! members held before it was acknowledged, so the least of the answers is above it. No member answers once it is
//! sealed, and no later view begins before some member is: while all answer, no later view has acknowledged anything.

use std::collections::BTreeMap;

use seriatim_model::{NodeId, Position, Time, ViewNumber};

use super::client::{LogClient, Out, RESEND_FIRST, reply, send};
use super::message::Message;
use crate::deviation::Deviation;
use crate::parts::appending::Reply;

#[derive(Clone, Debug)]
pub(super) struct TailQuestion {
    /// Who wants to know; nobody if it is for the client's next session.
    pub(super) asker: Option<u64>,
    view: ViewNumber,
    answers: BTreeMap<NodeId, Position>,
    pub(super) asked_at: Time,
}

impl LogClient {
    pub(super) fn ask_tail(&mut self, now: Time, asker: Option<u64>, out: &mut Out) {
        self.next_question += 1;
        let view = self.entry.view_number();
        let question = TailQuestion { asker, view, answers: BTreeMap::new(), asked_at: now };
        self.tails.insert(self.next_question, question);
        self.send_tail_question(self.next_question, out);
    }

    /// Asks whoever has not answered.
    fn send_tail_question(&self, request: u64, out: &mut Out) {
        let (Some(view), Some(question)) = (self.view(), self.tails.get(&request)) else { return };
        let members = view.sequencers.iter().map(|member| member.node);
        for node in members.filter(|node| !question.answers.contains_key(node)) {
            out.push(send(node, Message::CheckTail { request, view: view.number }));
        }
    }

    pub(super) fn tail_told(
        &mut self,
        node: NodeId,
        request: u64,
        view: ViewNumber,
        tail: Position,
        out: &mut Out,
    ) {
        let Some(known) = self.entry.view.as_ref().filter(|known| known.number == view) else { return };
        let Some(question) = self.tails.get_mut(&request).filter(|question| question.view == view) else {
            return;
        };
        question.answers.insert(node, tail);
        let trusts = self.config.options.deviates(Deviation::TailFromLeader) && node == known.leader;
        let all = known.sequencers.iter().all(|member| question.answers.contains_key(&member.node));
        let least = question.answers.values().min().copied().filter(|_| all);
        let Some(tail) = Some(tail).filter(|_| trusts).or(least) else { return };
        let question = self.tails.remove(&request).expect("just seen");
        match question.asker {
            Some(token) => out.push(reply(token, Reply::Tail(tail))),
            None => self.open_session(tail, out),
        }
    }

    pub(super) fn repeat_tail_questions(&mut self, now: Time, out: &mut Out) {
        let view = self.entry.view_number();
        let due = |question: &TailQuestion| now >= question.asked_at + RESEND_FIRST || question.view != view;
        let requests: Vec<u64> =
            self.tails.iter().filter(|(_, question)| due(question)).map(|(request, _)| *request).collect();
        if requests.iter().any(|request| self.tails[request].view == view) {
            self.wonder(out);
        }
        for request in requests {
            let question = self.tails.get_mut(&request).expect("just seen");
            if question.view == view {
                // An answer that is late is as good: it is asked under the same number.
                question.asked_at = now;
                self.send_tail_question(request, out);
            } else {
                let asker = question.asker;
                self.tails.remove(&request);
                self.ask_tail(now, asker, out);
            }
        }
    }
}
