//! How a client checks the tail (Corfu §3.1).
//!
//! The sequencer does not know whether its view is over, and a later one may have granted more. But
//! a later view is registered only after a replica of each shard of the previous view was fenced.
//! So if all replicas of a shard confirm the view after the question, every append acknowledged
//! before it has a position granted by this sequencer or an earlier one.

use std::collections::BTreeSet;

use seriatim_model::{Address, Endpoint, NodeId, Position, ShardId, Time, View, ViewNumber};

use super::ShardMessage;
use super::client::{LogClient, Out, send};
use crate::mutation::{Mutation, Options};
use crate::parts::appending::{ClientEffect, Reply, reply};
use crate::parts::sequencing::Message::CheckTail;

#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    tail: Option<Position>,
    /// Replicas that have not confirmed the view.
    missing: BTreeSet<NodeId>,
}

impl Answers {
    fn awaited(view: Option<&View>, request: u64, options: Options) -> Self {
        let trusts = options.mutates(Mutation::TailFromLeader);
        let witnesses = view.and_then(|view| view.shard(witness(view, request))).filter(|_| !trusts);
        let replicas = witnesses.iter().flat_map(|members| &members.replicas);
        Self { tail: None, missing: replicas.map(|member| member.node).collect() }
    }
}

impl LogClient {
    pub(super) fn ask_tail(&mut self, now: Time, asker: Option<u64>, out: &mut Out) {
        let (view, options) = (self.log.view(), self.config.options);
        let awaited = |request| Answers::awaited(view, request, options);
        let request = self.tails.ask(now, asker, self.log.view_number(), awaited);
        self.send_tail_question(request, out);
    }

    fn send_tail_question(&self, request: u64, out: &mut Out) {
        let (Some(view), Some(answers)) = (self.log.view(), self.tails.answers(request)) else { return };
        if answers.tail.is_none() {
            out.push(send(view.leader, CheckTail { request, view: view.number }));
        }
        for node in &answers.missing {
            out.push(confirm(*node, witness(view, request), request, view.number));
        }
    }

    pub(super) fn tail_answered(&mut self, request: u64, view: ViewNumber, tail: Position, out: &mut Out) {
        if let Some(answers) = self.tails.answers_in(request, view) {
            answers.tail = Some(tail);
            self.answer_tail(request, view, out);
        }
    }

    pub(super) fn tail_confirmed(&mut self, node: NodeId, request: u64, view: ViewNumber, out: &mut Out) {
        if let Some(answers) = self.tails.answers_in(request, view) {
            answers.missing.remove(&node);
            self.answer_tail(request, view, out);
        }
    }

    fn answer_tail(&mut self, request: u64, view: ViewNumber, out: &mut Out) {
        let answers = self.tails.answers(request).filter(|answers| answers.missing.is_empty());
        if let Some(tail) = answers.and_then(|answers| answers.tail) {
            match self.tails.answered(request) {
                Some(token) => out.push(reply(token, Reply::Tail(tail))),
                None => self.open_session(view, tail),
            }
        }
    }

    pub(super) fn repeat_tail_questions(&mut self, now: Time, out: &mut Out) {
        let (view, options) = (self.log.view(), self.config.options);
        let awaited = |request| Answers::awaited(view, request, options);
        let again = self.tails.again(now, self.log.view_number(), awaited);
        if again.has_timed_out {
            self.log.wonder(out);
        }
        for request in again.requests {
            self.send_tail_question(request, out);
        }
    }
}

/// The shard whose replicas confirm the view: an open one, which later views need.
fn witness(view: &View, request: u64) -> ShardId {
    let open = view.open_shards();
    open[request as usize % open.len()]
}

fn confirm(node: NodeId, shard: ShardId, request: u64, view: ViewNumber) -> ClientEffect {
    let to = Address::Node(node, Endpoint::Shard(shard));
    ClientEffect::Send { to, message: ShardMessage::Confirm { request, view }.into() }
}
