//! The leader of the ordering layer: it collects reports, decides the next cut, and commits it.

use std::collections::VecDeque;

use seriatim_model::{Address, Endpoint, LogConfig, NodeId, Peer, ShardId, Ticket, Time, View};

use super::ShardMessage;
use super::committing::Commits;
use super::cut::Cut;
use super::ending::Closing;
use super::fixed::Fix;
use super::free::FreeCuts;
use super::reports::Reports;
use super::shard::Submitted;
use super::window::Windows;
use super::windowed::WindowedCuts;
use crate::mutation::Options;
use crate::parts::sequencing::WindowStatus;
use crate::parts::{Gate, Sessions, Shares};
use crate::roles::RoleEffect;

#[derive(Clone, Debug)]
pub(super) struct Leader {
    view: View,
    /// The write of the view's start, until it is durable. A leader that made cuts before that
    /// could begin again after a crash and give their positions to other records.
    starting: Option<Ticket>,
    reports: Reports,
    deciding: Deciding,
    pub(super) commits: Commits,
    pub(super) closings: Vec<Closing>,
    /// How many unknown sessions each client closed.
    pub(super) closers: Shares<Peer>,
    counts: Counts,
}

/// Counts since this member leads, for its status.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    lag_fixes: u64,
    positions: u64,
    empty: u64,
}

#[derive(Clone, Debug)]
enum Deciding {
    /// Cuts without quotas.
    Free(FreeCuts),
    /// Cuts with quotas. Positions are fixed in advance, except in free windows.
    Windowed(Box<WindowedCuts>),
}

impl Leader {
    pub(super) fn new(
        view: &View,
        me: NodeId,
        started: Ticket,
        (config, windows): (&LogConfig, Option<&Windows>),
        options: Options,
    ) -> Self {
        let deciding = match windows {
            None => Deciding::Free(FreeCuts::new(config, view.open_shards()[0], options)),
            Some(windows) => {
                Deciding::Windowed(Box::new(WindowedCuts::new(view, config, windows.clone(), options)))
            }
        };
        Self {
            starting: Some(started),
            reports: Reports::new(&view.shards, options),
            deciding,
            commits: Commits::new(view, me, options),
            closings: vec![],
            closers: Shares::default(),
            counts: Counts::default(),
            view: view.clone(),
        }
    }

    /// Asks all replicas for reports: before it led, this member ignored them.
    pub(super) fn ask_for_reports(&self, out: &mut Vec<RoleEffect>) {
        self.reports.replicas().for_each(|replica| self.send_cut_ack(replica, 0, out));
    }

    fn send_cut_ack(&self, (shard, node): (ShardId, NodeId), length: u64, out: &mut Vec<RoleEffect>) {
        let message = ShardMessage::CutAck { view: self.view.number, end: self.commits.end(), length };
        let to = Address::Node(node, Endpoint::Shard(shard));
        out.push(RoleEffect::Send { to, message: message.into() });
    }

    /// A first report shows that the replica has entered the view. It may have missed earlier cuts.
    pub(super) fn reported(
        &mut self,
        now: Time,
        from: (ShardId, NodeId),
        length: u64,
        names: (u64, Vec<Submitted>),
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(heard) = self.reports.note(now, from, length, names) else { return };
        if let Deciding::Windowed(cuts) = &mut self.deciding {
            cuts.reported(now, &self.reports);
        }
        if heard.enters {
            self.commits.send_again(from.0, out);
        }
        if let Some(decided) = heard.ack {
            self.send_cut_ack(from, decided, out);
        }
    }

    fn due_at(&self) -> Option<Time> {
        if self.starting.is_some() {
            return None;
        }
        let under_way = self.commits.under_way();
        match &self.deciding {
            Deciding::Free(cuts) => cuts.due_at(&self.reports, &self.closings, under_way),
            Deciding::Windowed(cuts) => cuts.due_at(&self.reports, &self.closings, under_way),
        }
    }

    pub(super) fn make_cut(&mut self, now: Time, sessions: &mut Sessions) -> Option<Cut> {
        if self.due_at().is_none_or(|at| now < at) {
            return None;
        }
        let (from, reports, closings) = (self.commits.end(), &mut self.reports, &mut self.closings);
        let cut = match &mut self.deciding {
            Deciding::Free(cuts) => cuts.make(now, from, reports, closings, sessions, None),
            Deciding::Windowed(cuts) => cuts.make(now, from, reports, closings, sessions),
        }?;
        self.counts.positions += cut.end().since(cut.from);
        self.counts.empty += cut.empty_positions();
        Some(cut)
    }

    /// State of the windows. `None`: the log has no quotas.
    pub(super) fn window_status(&self) -> Option<WindowStatus> {
        let Deciding::Windowed(cuts) = &self.deciding else { return None };
        let (windows, Counts { lag_fixes, positions, empty }) = (cuts.windows(), self.counts);
        let Windows { now, made, .. } = windows;
        Some(WindowStatus {
            number: now.number,
            cuts: now.cuts,
            made: *made,
            quotas: now.shares.iter().map(|share| (share.shard, share.quota)).collect(),
            lenders: now.lenders.iter().map(|lender| lender.shard).collect(),
            lag_fixes,
            positions,
            empty,
        })
    }

    pub(super) fn ask_and_tell(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let Deciding::Windowed(cuts) = &mut self.deciding else { return };
        if self.starting.is_some() {
            return;
        }
        for Fix { shard, length } in cuts.fix(now, &self.reports, &self.closings) {
            self.counts.lag_fixes += 1;
            let message = ShardMessage::Fix { view: self.view.number, length };
            let primary = self.reports.primary(shard);
            out.push(RoleEffect::Send {
                to: Address::Node(primary, Endpoint::Shard(shard)),
                message: message.into(),
            });
        }
        cuts.tell(now, self.commits.known_committed(), &self.view, out);
    }

    pub(super) fn windows_known(&mut self, from: (ShardId, NodeId), number: u32) {
        if let Deciding::Windowed(cuts) = &mut self.deciding {
            cuts.note_known(from, number);
        }
    }

    pub(super) fn persisted(&mut self, gate: &Gate) {
        self.starting = self.starting.filter(|started| !gate.is_durable(*started));
    }

    pub(super) fn commit(&mut self, now: Time, gate: &Gate, out: &mut Vec<RoleEffect>) {
        self.persisted(gate);
        self.commits.commit(now, gate, out);
    }

    pub(super) fn resend(&mut self, now: Time, cuts: &VecDeque<Cut>, out: &mut Vec<RoleEffect>) {
        self.commits.resend(now, cuts, out);
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let asks_or_tells = match &self.deciding {
            Deciding::Windowed(cuts) if self.starting.is_none() => {
                cuts.deadline(self.commits.known_committed(), &self.reports, &self.closings)
            }
            _ => None,
        };
        [self.due_at(), self.commits.deadline(), asks_or_tells].into_iter().flatten().min()
    }
}
