//! How a client checks the tail.
//!
//! Every member of the view reports the end of the cuts that it holds. All members held the cut of
//! an acknowledged append before the acknowledgement, so the minimum is above its position. No
//! sealed member answers, and no later view begins before a member is sealed: while all answer, no
//! later view has acknowledged an append.

use std::collections::BTreeMap;

use seriatim_model::{NodeId, Position, Time, ViewNumber};

use super::client::{LogClient, Out, send};
use crate::mutation::Mutation;
use crate::parts::appending::{Reply, reply};
use crate::parts::sequencing::Message::CheckTail;

impl LogClient {
    /// Asks for the tail, for `asker` or for the client's next session.
    pub(super) fn ask_tail(&mut self, now: Time, asker: Option<u64>, out: &mut Out) {
        let request = self.tails.ask(now, asker, self.log.view_number(), |_| BTreeMap::new());
        self.send_tail_question(request, out);
    }

    fn send_tail_question(&self, request: u64, out: &mut Out) {
        let (Some(view), Some(answers)) = (self.log.view(), self.tails.answers(request)) else { return };
        let members = view.sequencers.iter().map(|member| member.node);
        for node in members.filter(|node| !answers.contains_key(node)) {
            out.push(send(node, CheckTail { request, view: view.number }));
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
        let Some(known) = self.log.view().filter(|known| known.number == view) else { return };
        let Some(answers) = self.tails.answers_in(request, view) else { return };
        answers.insert(node, tail);
        let trusts = self.config.options.mutates(Mutation::TailFromLeader) && node == known.leader;
        let all = known.sequencers.iter().all(|member| answers.contains_key(&member.node));
        let least = answers.values().min().copied().filter(|_| all);
        let Some(tail) = Some(tail).filter(|_| trusts).or(least) else { return };
        match self.tails.answered(request) {
            Some(token) => out.push(reply(token, Reply::Tail(tail))),
            None => self.open_session(tail, out),
        }
    }

    pub(super) fn repeat_tail_questions(&mut self, now: Time, out: &mut Out) {
        let again = self.tails.again(now, self.log.view_number(), |_| BTreeMap::new());
        if again.has_timed_out {
            self.log.wonder(out);
        }
        for request in again.requests {
            self.send_tail_question(request, out);
        }
    }
}
