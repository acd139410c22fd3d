//! How a client checks the tail (Corfu §3.1).
//!
//! The sequencer does not know whether its view is over, and another may have given out more. But no later view is
//! registered before some replica of each shard, that was a member of the view before, was fenced. So while all
//! replicas of a shard say, after the question was asked, that this is the view, every append that was acknowledged
//! before has a position that this sequencer, or one before it, had given out.

use std::collections::BTreeSet;

use seriatim_model::{Address, Endpoint, NodeId, Position, ShardId, Time, View, ViewNumber};

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
        let mut missing = BTreeSet::new();
        if let Some(known) = self.view() {
            let trusts = self.config.options.deviates(Deviation::TailFromLeader);
            let witnesses = known.shard(witness(known, request)).filter(|_| !trusts);
            missing.extend(witnesses.iter().flat_map(|members| &members.replicas).map(|member| member.node));
        }
        self.tails.insert(request, TailQuestion { asker, view, tail: None, missing, asked_at: now });
        self.send_tail_question(request, out);
    }

    /// Asks whoever has not answered.
    fn send_tail_question(&self, request: u64, out: &mut Out) {
        let (Some(view), Some(question)) = (self.view(), self.tails.get(&request)) else { return };
        if question.tail.is_none() {
            out.push(send(view.leader, Message::CheckTail { request, view: view.number }));
        }
        for node in &question.missing {
            out.push(confirm(*node, witness(view, request), request, view.number));
        }
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

/// The shard whose replicas are asked whether the view is over: not always the same, but one of which later views have to
/// have an answer.
fn witness(view: &View, request: u64) -> ShardId {
    let open = view.open_shards();
    open[request as usize % open.len()]
}

fn confirm(node: NodeId, shard: ShardId, request: u64, view: ViewNumber) -> ClientEffect {
    let to = Address::Node(node, Endpoint::Shard(shard));
    ClientEffect::Send { to, message: shard::Message::Confirm { request, view }.into() }
}
