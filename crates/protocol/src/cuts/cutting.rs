//! How the leader makes cuts of what the replicas of the shards report, and commits them (Scalog §3.3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use seriatim_model::{
    Address, Endpoint, IdRun, LogConfig, NodeId, Peer, Position, ShardId, Ticket, Time, View, limits,
};

use super::ShardMessage;
use super::cut::{Cut, End};
use super::ending::{self, Closing};
use super::message::Message;
use super::pushing::Pusher;
use super::shard::Submitted;
use crate::mutation::{Mutation, Options};
use crate::parts::{Admission, Gate, Sessions, Shares};
use crate::roles::RoleEffect;

/// A leader's knowledge, in its view, of the shards and of its followers.
///
/// Invariant: `committed <= own <= end`; cuts are pushed when they are committed, in order.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    view: View,
    options: Options,
    interval: Duration,
    session_idle_positions: u64,
    shards: BTreeMap<ShardId, Reports>,
    /// The write that the view started, until it is durable. A leader that makes cuts before might begin anew after a
    /// crash, and give the same positions to others.
    starting: Option<Ticket>,
    /// When the last cut was made, and whether there was more than it could take.
    cut_at: Option<Time>,
    is_behind: bool,
    /// Where the last cut ended.
    end: Position,
    /// How far the followers hold them.
    followers: BTreeMap<NodeId, Follower>,
    /// How far they are durable here, and those that are not yet.
    own: Position,
    own_pending: VecDeque<(Ticket, Position)>,
    /// The cuts that are not committed.
    uncommitted: VecDeque<Cut>,
    committed: Position,
    pub(super) pusher: Pusher,
    /// The clients that want sessions to end.
    pub(super) closings: Vec<Closing>,
    /// How many sessions that nobody knew each of them closed.
    pub(super) closers: Shares<Peer>,
}

#[derive(Clone, Copy, Debug)]
struct Follower {
    held: Position,
    /// When it is told again what it does not hold.
    again_at: Time,
    /// Whether it is known to have entered the view. Before, it takes nothing.
    is_there: bool,
}

/// The reports of a shard's replicas.
#[derive(Clone, Debug, Default)]
struct Reports {
    lengths: BTreeMap<NodeId, u64>,
    /// The replicas that are known to have entered the view. Before, they take nothing.
    there: BTreeSet<NodeId>,
    primary: NodeId,
    /// The names of the local log from `decided` on, up to index `named`.
    names: VecDeque<Submitted>,
    named: u64,
    decided: u64,
}

impl Reports {
    /// How much all replicas have, as far as it is known whose it is.
    fn length(&self, options: Options) -> u64 {
        let unreplicated = options.mutates(Mutation::CutUnreplicated);
        let lengths = self.lengths.values().copied();
        let length = if unreplicated { lengths.max() } else { lengths.min() };
        length.unwrap_or(0).min(self.named)
    }

    /// The primary tells whose records follow from an index on. What is known is passed over.
    fn tell(&mut self, from: u64, names: Vec<Submitted>) {
        let mut index = from;
        for told in names {
            if index == self.named {
                self.named += told.ids.count;
                self.names.push_back(told);
            }
            index += told.ids.count;
        }
    }
}

impl Leader {
    pub(super) fn new(
        view: &View,
        me: NodeId,
        started: Ticket,
        config: &LogConfig,
        options: Options,
    ) -> Self {
        let reports = |members: &seriatim_model::ShardMembers| {
            let lengths = members.replicas.iter().map(|member| (member.node, 0)).collect();
            let primary = members.primary().node;
            (members.shard, Reports { lengths, primary, ..Reports::default() })
        };
        let follower = Follower { held: view.start, again_at: Time::ZERO, is_there: false };
        let others = view.sequencers.iter().map(|member| member.node).filter(|node| *node != me);
        Self {
            options,
            interval: config.interval(),
            session_idle_positions: config.session_idle_positions,
            shards: view.shards.iter().map(reports).collect(),
            starting: Some(started),
            cut_at: None,
            is_behind: false,
            end: view.start,
            followers: others.map(|node| (node, follower)).collect(),
            own: view.start,
            own_pending: VecDeque::new(),
            uncommitted: VecDeque::new(),
            committed: view.start,
            pusher: Pusher::within(view.number, &view.shards, view.start),
            closings: vec![],
            closers: Shares::default(),
            view: view.clone(),
        }
    }

    /// Asks the replicas of the shards to report again: this member did not take their reports before it led.
    pub(super) fn ask_for_reports(&self, out: &mut Vec<RoleEffect>) {
        for (shard, reports) in &self.shards {
            for node in reports.lengths.keys() {
                self.say_decided((*shard, *node), 0, out);
            }
        }
    }

    /// Tells a replica how much of its local log is decided.
    fn say_decided(&self, (shard, node): (ShardId, NodeId), length: u64, out: &mut Vec<RoleEffect>) {
        let message = ShardMessage::CutAck { view: self.view.number, end: self.end, length };
        let to = Address::Node(node, Endpoint::Shard(shard));
        out.push(RoleEffect::Send { to, message: message.into() });
    }

    /// Positions below are in committed cuts.
    pub(super) fn committed(&self) -> Position {
        self.committed
    }

    /// The step that is waited for: a cut to be held, or to be on the shards.
    pub(super) fn step_name(&self) -> Option<&'static str> {
        if !self.uncommitted.is_empty() {
            Some("bind")
        } else if self.pusher.len() > 0 {
            Some("drop")
        } else {
            None
        }
    }

    /// A replica of a shard reports. One that says again what is decided is told so; one that reports for the first time
    /// may have missed what was sent before.
    pub(super) fn reported(
        &mut self,
        from: (ShardId, NodeId),
        length: u64,
        names: (u64, Vec<Submitted>),
        out: &mut Vec<RoleEffect>,
    ) {
        let (shard, node) = from;
        let Some(reports) = self.shards.get_mut(&shard) else { return };
        let Some(known) = reports.lengths.get_mut(&node) else { return };
        let misses_names = node == reports.primary && names.0 > reports.named;
        let says_again = reports.decided > 0 && length <= reports.decided;
        let decided = reports.decided;
        *known = length.max(*known);
        if node == reports.primary {
            reports.tell(names.0, names.1);
        }
        if reports.there.insert(node) {
            self.pusher.send_again(shard, out);
        }
        if says_again || misses_names {
            self.say_decided(from, decided, out);
        }
    }

    /// When the next cut is due, if there is anything to order.
    fn due_at(&self) -> Option<Time> {
        let is_new = |reports: &Reports| reports.length(self.options) > reports.decided;
        let has_room = self.uncommitted.len() + self.pusher.len() < limits::CUT_WINDOW;
        let pause = if self.is_behind { Duration::ZERO } else { self.interval };
        let ends = self.closings.iter().any(|closing| !closing.is_cut);
        (self.starting.is_none() && has_room && (ends || self.shards.values().any(is_new)))
            .then(|| self.cut_at.map_or(Time::ZERO, |at| at + pause))
    }

    /// Makes the next cut, if it is due. `sessions` say what is ordered already.
    pub(super) fn make_cut(&mut self, now: Time, sessions: &mut Sessions) -> Option<Cut> {
        if self.due_at().is_none_or(|at| now < at) {
            return None;
        }
        self.cut_at = Some(now);
        self.is_behind = false;
        let mut cut = Cut { from: self.end, lengths: vec![], names: vec![], ends: vec![] };
        // Each shard has its part of a cut, however much others bring.
        let most = (self.options.limits.batch_records / self.shards.len().max(1)).max(1);
        for (shard, reports) in &mut self.shards {
            let (length, mut taken) = (reports.length(self.options), 0);
            while let Some(told) = reports.names.front().copied()
                && reports.decided + told.ids.count <= length
            {
                if taken == most {
                    self.is_behind = true;
                    break;
                }
                taken += 1;
                reports.names.pop_front();
                reports.decided += told.ids.count;
                let twice = self.options.mutates(Mutation::SubmittedTwice);
                let (idle, most) = (self.session_idle_positions, self.options.limits.max_sessions);
                let new =
                    if twice { Some(told.ids) } else { new_of(told, sessions, cut.end(), (idle, most)) };
                if let Some(ids) = new {
                    let position = cut.end();
                    cut.names.push((*shard, Submitted { ids, ..told }));
                    sessions.bind(ids, position);
                    sessions.admit(ids.session, ids.end(), told.lowest, position);
                }
            }
            cut.lengths.push((*shard, reports.decided));
        }
        self.end_sessions(&mut cut, sessions);
        // If all of it was ordered before, or never will be, whoever reports again is told.
        (cut.end() > cut.from).then_some(cut)
    }

    /// Ends those sessions that are to end, behind what the cut orders of them.
    fn end_sessions(&mut self, cut: &mut Cut, sessions: &mut Sessions) {
        let shard = self.view.open_shards()[0];
        for closing in self.closings.iter_mut().filter(|closing| !closing.is_cut) {
            closing.is_cut = true;
            let Closing { session, successor, .. } = *closing;
            let has_expired = sessions.has_expired(session, cut.end(), self.session_idle_positions);
            if let Some(at) = ending::end_of(closing, sessions).filter(|_| !has_expired) {
                sessions.end_in_log(session, at, successor, cut.end());
                cut.ends.push(End { session, at, successor, shard });
            }
        }
        if self.options.mutates(Mutation::EndedOrdered) {
            sessions.forget_ends();
        }
    }

    /// The cut left for this member's own journal with `ticket`; the followers are told.
    pub(super) fn hold(&mut self, now: Time, cut: Cut, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        self.end = cut.end();
        self.own_pending.push_back((ticket, self.end));
        let bound = self.pusher.bound();
        for (node, follower) in &mut self.followers {
            if follower.held == cut.from {
                follower.again_at = now + limits::RESEND_AFTER;
            }
            send_cut(*node, self.view.number, bound, &cut, out);
        }
        self.uncommitted.push_back(cut);
    }

    /// A follower holds all cuts up to `end`. One that says so for the first time may have missed what was sent before.
    pub(super) fn note_held(&mut self, now: Time, node: NodeId, end: Position) {
        let Some(follower) = self.followers.get_mut(&node) else { return };
        if !follower.is_there {
            (follower.is_there, follower.again_at) = (true, now);
        }
        if end > follower.held {
            (follower.held, follower.again_at) = (end, now + limits::RESEND_AFTER);
        }
    }

    /// Takes note of what is durable here.
    pub(super) fn persisted(&mut self, gate: &Gate) {
        self.starting = self.starting.filter(|started| !gate.is_durable(*started));
        while let Some((ticket, end)) =
            self.own_pending.front().copied().filter(|(ticket, _)| gate.is_durable(*ticket))
        {
            debug_assert!(ticket <= gate.issued(), "only what left is durable");
            self.own_pending.pop_front();
            self.own = end;
        }
    }

    /// Commits what all members hold, and tells the shards.
    pub(super) fn commit(&mut self, now: Time, gate: &Gate, out: &mut Vec<RoleEffect>) {
        self.persisted(gate);
        let followers = self.followers.values().map(|follower| follower.held);
        let uncommitted = self.options.mutates(Mutation::CutUncommitted);
        let held = if uncommitted { self.end } else { followers.fold(self.own, Position::min) };
        self.committed = self.committed.max(held);
        let in_order = self.own <= self.end && (uncommitted || self.committed <= self.own);
        assert!(in_order, "committed {}, durable {}, cut {}", self.committed, self.own, self.end);
        while self.uncommitted.front().is_some_and(|cut| cut.end() <= self.committed) {
            let cut = self.uncommitted.pop_front().expect("the front was just seen");
            self.pusher.push(now, cut, out);
        }
    }

    /// Sends again what was not answered in time. `cuts` are those that the member holds.
    pub(super) fn resend(&mut self, now: Time, cuts: &VecDeque<Cut>, out: &mut Vec<RoleEffect>) {
        self.pusher.resend(now, out);
        let (view, bound, end) = (self.view.number, self.pusher.bound(), self.end);
        for (node, follower) in &mut self.followers {
            if follower.held < end && now >= follower.again_at {
                follower.again_at = now + limits::RESEND_AFTER;
                for cut in cuts.iter().filter(|cut| cut.from >= follower.held) {
                    send_cut(*node, view, bound, cut, out);
                }
            }
        }
    }

    /// When a cut is due, or something is to be sent again.
    pub(super) fn deadline(&self) -> Option<Time> {
        let behind = self.followers.values().filter(|follower| follower.held < self.end);
        let again = behind.map(|follower| follower.again_at).min();
        [self.due_at(), again, self.pusher.deadline()].into_iter().flatten().min()
    }
}

/// The names that go on where their session is.
fn new_of(
    told: Submitted,
    sessions: &Sessions,
    ordered: Position,
    (idle, most): (u64, usize),
) -> Option<IdRun> {
    if sessions.is_too_many_ahead(told.ids.session, ordered, most) {
        return None;
    }
    match sessions.admission(told.ids, ordered, idle) {
        Admission::Admit { skip } => {
            let new = told.ids.tail(skip);
            // Its first numbers may be ordered, and the rest be refused since the session ended.
            Some(new.head(sessions.room(new.session, new.first).min(new.count)))
        }
        _ => None,
    }
    .filter(|new| new.count > 0)
}

fn send_cut(
    node: NodeId,
    view: seriatim_model::ViewNumber,
    bound: Position,
    cut: &Cut,
    out: &mut Vec<RoleEffect>,
) {
    let to = Address::Node(node, Endpoint::Sequencer);
    let message = Message::Cut { view, bound, cut: cut.clone() };
    out.push(RoleEffect::Send { to, message: message.into() });
}
