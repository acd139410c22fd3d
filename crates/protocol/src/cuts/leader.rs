//! The leader of the ordering layer: it hears what the shards have, decides the next cut, and commits it. Each of the
//! three is a part of its own.

use std::collections::VecDeque;

use seriatim_model::{Address, Endpoint, LogConfig, NodeId, Peer, ShardId, Ticket, Time, View};

use super::ShardMessage;
use super::committing::Commits;
use super::cut::Cut;
use super::ending::Closing;
use super::free::FreeCuts;
use super::reports::Reports;
use super::shard::Submitted;
use crate::mutation::Options;
use crate::parts::{Gate, Sessions, Shares};
use crate::roles::RoleEffect;

/// A leader's knowledge, in its view, of the shards and of its followers.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    view: View,
    /// The write that the view started, until it is durable. A leader that makes cuts before might begin anew after a
    /// crash, and give the same positions to others.
    starting: Option<Ticket>,
    reports: Reports,
    free: FreeCuts,
    pub(super) commits: Commits,
    /// The clients that want sessions to end.
    pub(super) closings: Vec<Closing>,
    /// How many sessions that nobody knew each of them closed.
    pub(super) closers: Shares<Peer>,
}

impl Leader {
    pub(super) fn new(
        view: &View,
        me: NodeId,
        started: Ticket,
        config: &LogConfig,
        options: Options,
    ) -> Self {
        Self {
            starting: Some(started),
            reports: Reports::new(&view.shards, options),
            free: FreeCuts::new(config, view.open_shards()[0], options),
            commits: Commits::new(view, me, options),
            closings: vec![],
            closers: Shares::default(),
            view: view.clone(),
        }
    }

    /// Asks the replicas of the shards to report again: this member did not take their reports before it led.
    pub(super) fn ask_for_reports(&self, out: &mut Vec<RoleEffect>) {
        self.reports.replicas().for_each(|replica| self.say_decided(replica, 0, out));
    }

    /// Tells a replica how much of its local log is decided.
    fn say_decided(&self, (shard, node): (ShardId, NodeId), length: u64, out: &mut Vec<RoleEffect>) {
        let message = ShardMessage::CutAck { view: self.view.number, end: self.commits.end(), length };
        let to = Address::Node(node, Endpoint::Shard(shard));
        out.push(RoleEffect::Send { to, message: message.into() });
    }

    /// A replica of a shard reports. One that does so for the first time may have missed what was sent before.
    pub(super) fn reported(
        &mut self,
        from: (ShardId, NodeId),
        length: u64,
        names: (u64, Vec<Submitted>),
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(heard) = self.reports.note(from, length, names) else { return };
        if heard.enters {
            self.commits.send_again(from.0, out);
        }
        if let Some(decided) = heard.is_told {
            self.say_decided(from, decided, out);
        }
    }

    /// When the next cut is due, if there is anything to order.
    fn due_at(&self) -> Option<Time> {
        if self.starting.is_some() {
            return None;
        }
        self.free.due_at(&self.reports, &self.closings, self.commits.under_way())
    }

    /// Makes the next cut, if it is due. `sessions` say what is ordered already.
    pub(super) fn make_cut(&mut self, now: Time, sessions: &mut Sessions) -> Option<Cut> {
        if self.due_at().is_none_or(|at| now < at) {
            return None;
        }
        self.free.make(now, self.commits.end(), &mut self.reports, &mut self.closings, sessions)
    }

    /// Takes note of what is durable here.
    pub(super) fn persisted(&mut self, gate: &Gate) {
        self.starting = self.starting.filter(|started| !gate.is_durable(*started));
    }

    /// Commits what all members hold, and tells the shards.
    pub(super) fn commit(&mut self, now: Time, gate: &Gate, out: &mut Vec<RoleEffect>) {
        self.persisted(gate);
        self.commits.commit(now, gate, out);
    }

    /// Sends again what was not answered in time. `cuts` are those that the member holds.
    pub(super) fn resend(&mut self, now: Time, cuts: &VecDeque<Cut>, out: &mut Vec<RoleEffect>) {
        self.commits.resend(now, cuts, out);
    }

    /// When a cut is due, or something is to be sent again.
    pub(super) fn deadline(&self) -> Option<Time> {
        [self.due_at(), self.commits.deadline()].into_iter().flatten().min()
    }
}
