//! How a client checks the tail (Corfu §3.1).
//!
//! The sequencer does not know whether its view is over, and another may have given out more. But no later view is
//! registered before some replica of each shard, that was a member of the view before, was fenced. So while all
//! replicas of a shard say, after the question was asked, that this is the view, every append that was acknowledged
//! before has a position that this sequencer, or one before it, had given out.

use std::collections::BTreeSet;

use seriatim_model::{Address, Endpoint, NodeId, Position, ShardId, Time, ViewNumber};

use super::client::{ClientEffect, LogClient, Out, RESEND_FIRST, reply, send};
use super::message::Message;
use crate::deviation::Deviation;
use crate::parts::appending::Reply;
use crate::shard;

#[derive(Clone, Debug)]
pub(super) struct TailQuestion {
    pub(super) asker: Option<u64>,
    view: ViewNumber,
    /// What the sequencer said.
    tail: Option<Position>,
    /// The replicas that have not said that this is the view.
    missing: BTreeSet<NodeId>,
    pub(super) asked_at: Time,
}

impl LogClient {
    pub(super) fn ask_tail(&mut self, now: Time, asker: Option<u64>, out: &mut Out) {
        self.next_question += 1;
        let request = self.next_question;
        let view = self.entry.view_number();
        let mut question = TailQuestion { asker, view, tail: None, missing: BTreeSet::new(), asked_at: now };
        if let Some(known) = self.view() {
            out.push(send(known.leader, Message::CheckTail { request, view }));
            // Not always the same shard.
            let members = &known.shards[request as usize % known.shards.len()];
            let trusts = self.config.options.deviates(Deviation::TailFromLeader);
            for member in members.replicas.iter().filter(|_| !trusts) {
                question.missing.insert(member.node);
                out.push(confirm(member.node, members.shard, request, view));
            }
        }
        self.tails.insert(request, question);
    }

    pub(super) fn tail_told(&mut self, request: u64, view: ViewNumber, tail: Position, out: &mut Out) {
        if let Some(question) = self.tails.get_mut(&request).filter(|question| question.view == view) {
            question.tail = Some(tail);
            self.answer_tail(request, out);
        }
    }

    pub(super) fn tail_confirmed(&mut self, node: NodeId, request: u64, view: ViewNumber, out: &mut Out) {
        if let Some(question) = self.tails.get_mut(&request).filter(|question| question.view == view) {
            question.missing.remove(&node);
            self.answer_tail(request, out);
        }
    }

    fn answer_tail(&mut self, request: u64, out: &mut Out) {
        let Some(question) = self.tails.get(&request).filter(|question| question.missing.is_empty()) else {
            return;
        };
        if let (Some(tail), asker) = (question.tail, question.asker) {
            self.tails.remove(&request);
            out.extend(asker.map(|token| reply(token, Reply::Tail(tail))));
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
            let question = self.tails.remove(&request).expect("just seen");
            self.ask_tail(now, question.asker, out);
        }
    }
}

fn confirm(node: NodeId, shard: ShardId, request: u64, view: ViewNumber) -> ClientEffect {
    let to = Address::Node(node, Endpoint::Shard(shard));
    ClientEffect::Send { to, message: shard::Message::Confirm { request, view }.into() }
}
