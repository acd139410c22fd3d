//! A sequencing replica: admits appends, orders them (leader) or follows that order (follower), and
//! hands over its entries when its view ends.

use bytes::Bytes;
use seriatim_model::{
    Address, BoundIds, Durability, Endpoint, IdRun, Input, LogConfig, Machine, Member, Peer, Position,
    RecordId, SessionId, Time, View, ViewNumber,
};

use super::ShardMessage;
use super::forwarding::Forwarding;
use super::log_state::{Cut, Disk, LogState};
use super::memory::JournalRecord;
use super::message::Message;
use super::orderer::Orderer;
use super::view_change::Flush;
use crate::control;
use crate::mutation::{Mutation, Options};
use crate::parts::membership::{Registered, Staged};
use crate::parts::{Admission, Content, Gate, Membership, Shares, sequencing};
use crate::roles::{self, RoleEffect, RoleInput, SequencingRole};
use crate::shard;

/// One sequencing replica of one log.
#[derive(Clone, Debug)]
pub struct Sequencer {
    pub(super) membership: Membership,
    pub(super) options: Options,
    pub(super) gate: Gate,
    pub(super) log: LogState,
    pub(super) flush: Option<Flush>,
    pub(super) orderer: Option<Orderer>,
    pub(super) forwarding: Forwarding,
    /// Earliest next search for sessions to forget, after a search that found none.
    pub(super) expire_not_before: Time,
    /// Number of unknown sessions that each connection has closed.
    pub(super) closers: Shares<Peer>,
    disk: Disk,
    pub(super) work_is_due: bool,
}

impl Machine for Sequencer {
    type Message = roles::Message;
    type Request = std::convert::Infallible;
    type Reply = std::convert::Infallible;

    fn step(&mut self, now: Time, input: RoleInput, out: &mut Vec<RoleEffect>) {
        match input {
            Input::Message { from, message } => match message {
                roles::Message::Erwin(message) => self.receive(now, from, message, out),
                roles::Message::Sequencing(message) => self.asked(from, message, out),
                message @ (roles::Message::Shard(_) | roles::Message::ErwinShard(_)) => {
                    self.shard_answered(now, from, message, out)
                }
                roles::Message::Control(message) => self.controlled(now, from, message, out),
                _ => {}
            },
            Input::Persisted(ticket) => {
                self.gate.persisted(ticket, out);
                self.advance(now, out);
                self.go_on_ending(now, out);
                self.work_is_due |= self.orderer.is_some();
            }
            Input::Disconnected(peer) => self.disconnected(peer),
            Input::DiskFull(full) => self.disk.is_full = full,
            Input::Pressed(pressed) => self.disk.is_pressed = pressed,
            Input::Wake => self.timer(now, out),
            Input::StoreFailed(..) | Input::Read(..) | Input::Found(..) | Input::Mapped(..) => {}
            Input::Measured(..) | Input::Wall(_) => {}
            Input::Suspected(_) | Input::Alive(_) | Input::FullDisk(..) => {}
            Input::Request { request, .. } => match request {},
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.work_is_due {
            return Some(Time::ZERO);
        }
        let flush = self.flush.as_ref().and_then(Flush::deadline);
        let forward = self.follows().then(|| self.forwarding.deadline(self.log.ring())).flatten();
        let orderer = self.orderer.as_ref().and_then(|orderer| orderer.deadline(self.log.ring(), &self.gate));
        [self.membership.deadline(), flush, orderer, forward].into_iter().flatten().min()
    }
}

impl SequencingRole for Sequencer {
    fn config(&self) -> &LogConfig {
        self.log.config()
    }

    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn ordered(&self) -> Position {
        self.log.ordered()
    }

    fn held(&self) -> u64 {
        self.log.held()
    }

    fn snapshot(&self) -> Vec<Bytes> {
        self.whole_state()
    }

    fn step_name(&self) -> Option<&'static str> {
        self.orderer.as_ref().and_then(Orderer::step_name)
    }
}

impl Sequencer {
    /// A replica without memory: takes part in no view until it is staged.
    #[must_use]
    pub fn new(me: Member, config: LogConfig, options: Options) -> Self {
        let waits = config.durability == Durability::Disk && !options.mutates(Mutation::ConfirmBeforeSync);
        Self {
            membership: Membership::new(me, options),
            options,
            gate: Gate::new(waits),
            log: LogState::new(config, options),
            flush: None,
            orderer: None,
            forwarding: Forwarding::default(),
            expire_not_before: Time::ZERO,
            closers: Shares::default(),
            disk: Disk::default(),
            work_is_due: false,
        }
    }

    fn receive(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        match message {
            // Ignores wrong content for this log, from a foreign client.
            Message::Append { view, entries, .. } | Message::Forward { view, entries, .. }
                if self.membership.accepts(view) && !self.takes(&entries) => {}
            Message::Append { view, session, first, lowest, entries } if self.membership.accepts(view) => {
                let run = IdRun { session, first, count: entries.len() as u64 };
                self.make_room_for(now, session, out);
                self.append(now, from, run, lowest, entries, out);
            }
            Message::Locate { view, session, number }
                if self.membership.accepts(view) && self.orderer.is_some() =>
            {
                self.locate(from, RecordId { session, number }, out);
            }
            Message::Close { view, session, successor } if self.membership.accepts(view) => {
                self.close(now, from, session, successor, out);
            }
            Message::Append { .. } | Message::Locate { .. } | Message::Close { .. } => {
                reply(from, self.membership.rejection(), out);
            }
            Message::Forward { view, session, first, entries } if self.membership.accepts(view) => {
                let run = IdRun { session, first, count: entries.len() as u64 };
                if self.log.is_too_old(session) {
                    reply(from, Message::ForwardExpired { view, session, ordered: self.log.ordered() }, out);
                }
                self.make_room_for(now, session, out);
                self.admit(now, run, 0, entries, out);
            }
            Message::ForwardExpired { view, session, ordered } if self.membership.accepts(view) => {
                self.forward_expired(session, ordered, out);
            }
            Message::Truncate { view, from: first, runs } => {
                self.drop_batch(from, view, first, runs, out);
                self.limit_sessions(now, out);
            }
            Message::TruncateAck { view, ordered } if self.membership.accepts(view) => {
                self.dropped(now, from, ordered, out)
            }
            Message::Freeze { view, .. }
            | Message::Frozen { view, .. }
            | Message::End { view, .. }
            | Message::Ended { view, .. }
                if self.membership.accepts(view) =>
            {
                self.end(now, from, message, out);
            }
            _ => {}
        }
    }

    fn asked(&self, from: Address, message: sequencing::Message, out: &mut Vec<RoleEffect>) {
        match message {
            sequencing::Message::CheckTail { request, view } if self.membership.accepts(view) => {
                let (count, held) = (self.log.tail(), self.log.held());
                self.tell_floor(from, count, out);
                reply(from, Message::Tail { request, view, count, held, seen: self.log.seen().0 }, out);
            }
            sequencing::Message::CheckTail { .. } => reply(from, self.membership.rejection(), out),
            sequencing::Message::Status { request } => reply(from, self.status(request), out),
            _ => {}
        }
    }

    pub(super) fn follows(&self) -> bool {
        self.membership.is_open() && self.orderer.is_none()
    }

    fn locate(&mut self, asker: Address, id: RecordId, out: &mut Vec<RoleEffect>) {
        let RecordId { session, number } = id;
        if self.log.is_too_old(session) {
            return reply(asker, Message::Expired { session }, out);
        }
        let end = self.log.sessions().end_of(session);
        if end.is_some_and(|end| number >= end) {
            return self.tell_end(asker, session, out);
        }
        let stable = self.orderer.as_ref().map_or(Position::ZERO, Orderer::stable);
        if end.is_some() && !self.log.sessions().is_bound_below(session, stable) {
            // A view change may still lose the number, and the session's end. The client retries.
            return;
        }
        let is_bound = number < self.log.sessions().next(session).unwrap_or(0)
            && self.log.ring().first_number(session).is_none_or(|first| number < first);
        let is_void = !self.log.sessions().voids(IdRun { session, first: number, count: 1 }).is_empty();
        if is_bound && is_void {
            // The answer claims that all numbers below it except the listed no-ops are in the log.
            // So list earlier no-ops, too, if the client still waits for them.
            let lowest = self.log.sessions().lowest(session).unwrap_or(0);
            reply(asker, self.acknowledgement(session, lowest.min(number), number + 1), out);
        } else if is_bound && self.log.sessions().position(session, number).is_none() {
            // The record is in the log, but its position is no longer remembered.
            reply(asker, Message::Stale { session, number }, out);
        } else if let Some(orderer) = &mut self.orderer {
            orderer.ask(asker, session, number, self.log.sessions(), out);
        }
    }

    /// Follower: drops its entries, and pending acknowledgements, of a session that the leader has
    /// forgotten and never admits again. This is safe once this replica has truncated everything
    /// that the leader had bound by then: for the rest, no client ever gets acknowledgements of all
    /// members.
    fn forward_expired(&mut self, session: SessionId, ordered: Position, out: &mut Vec<RoleEffect>) {
        if self.orderer.is_none() && self.log.ordered() >= ordered && self.log.ring().holds(session) {
            self.log.forget(session);
            self.persist(&JournalRecord::Forgotten { session }, out);
        }
    }

    /// Whether `entries` suit this log and view.
    fn takes(&self, entries: &[Content]) -> bool {
        let open = self.membership.view.as_ref().map_or(&[][..], |view| view.open_shards());
        entries.iter().all(|entry| entry.suits(self.log.config().order, open))
    }

    fn status(&self, request: u64) -> sequencing::Message {
        sequencing::Message::StatusIs {
            request,
            view: self.membership.number,
            open: self.is_open(),
            tail: self.log.tail(),
            held: self.log.held(),
            sessions: self.log.sessions().len() as u64,
        }
    }

    fn append(
        &mut self,
        now: Time,
        from: Address,
        run: IdRun,
        lowest: u64,
        mut entries: Vec<Content>,
        out: &mut Vec<RoleEffect>,
    ) {
        let (view, session) = (self.membership.number, run.session);
        match self.log.admission(run) {
            Admission::Expired => reply(from, Message::Expired { session }, out),
            Admission::Stale => self.stale(from, run, out),
            Admission::OutOfOrder { expected } => {
                reply(from, Message::OutOfOrder { view, session, expected }, out);
            }
            Admission::Full => {
                let disk_full = false;
                reply(from, Message::Busy { view, session, next: run.first, disk_full }, out);
            }
            Admission::Admit { skip } => {
                let before = self.gate.issued();
                let is_cut = skip < run.count && self.log.refuses_for_voids(session, lowest);
                if is_cut {
                    entries.truncate(skip as usize);
                }
                let refused = self.admit(now, run.head(entries.len() as u64), lowest, entries, out);
                let refused = refused.or(is_cut.then_some(Cut::NoRoom));
                let next = self.log.sessions().next(session).unwrap_or(0);
                if self.disk.is_full && self.gate.issued() == before && !self.gate.is_open() {
                    // Nothing new was written: the gate acknowledges repeated entries with their
                    // original write.
                    return reply(from, Message::Busy { view, session, next, disk_full: true }, out);
                }
                let acknowledged = self.acknowledgement(session, lowest.min(run.first), next);
                if self.options.mutates(Mutation::FollowerBeforeSync) && self.orderer.is_none() {
                    reply(from, acknowledged, out);
                } else {
                    self.gate.confirm(from, acknowledged, out);
                }
                match refused {
                    Some(Cut::NoRoom) => {
                        reply(from, Message::Busy { view, session, next, disk_full: self.disk.is_full }, out);
                    }
                    Some(Cut::TooLarge) => {
                        let limit = self.log.config().max_record_bytes;
                        reply(from, Message::TooLarge { session, number: next, limit }, out);
                    }
                    None => {}
                }
            }
        }
    }

    /// Answers an append below the client's own `lowest`.
    fn stale(&self, client: Address, run: IdRun, out: &mut Vec<RoleEffect>) {
        let (view, session, voids) = (self.membership.number, run.session, self.log.sessions().voids(run));
        let message = match voids.is_empty() {
            true => Message::Stale { session, number: run.first },
            false => Message::NotAppended { view, session, next: run.end(), voids },
        };
        reply(client, message, out);
    }

    /// Acknowledges the session's numbers below `next`, and lists no-ops from `first` on.
    fn acknowledgement(&self, session: SessionId, first: u64, next: u64) -> Message {
        let view = self.membership.number;
        let asked = IdRun { session, first, count: next.saturating_sub(first) };
        let voids = self.log.sessions().voids(asked);
        match voids.is_empty() {
            true => Message::Acknowledged { view, session, next },
            false => Message::NotAppended { view, session, next, voids },
        }
    }

    /// Holds the new entries of `run` that fit. Returns why it stopped early.
    fn admit(
        &mut self,
        now: Time,
        run: IdRun,
        lowest: u64,
        mut entries: Vec<Content>,
        out: &mut Vec<RoleEffect>,
    ) -> Option<Cut> {
        let Admission::Admit { skip } = self.log.admission(run) else { return None };
        let again: Vec<Content> = entries.drain(..skip as usize).collect();
        if skip > 0 && self.options.mutates(Mutation::JournaledAgain) {
            let (session, first) = (run.session, run.first);
            self.persist(&JournalRecord::Admitted { session, first, lowest, entries: again }, out);
        }
        let first = run.first + skip;
        let cut = self.log.cut(run.session, first, self.disk, &mut entries);
        let next = first + entries.len() as u64;
        let is_noted = cut == Some(Cut::NoRoom) && self.log.notes_refused(run.session);
        if next == first && !is_noted && self.log.sessions().next(run.session).is_none() {
            // Do not remember a new session without entries, unless it lacked room: the batches
            // right behind its first records must find it known.
            return cut;
        }
        let admitted = JournalRecord::Admitted { session: run.session, first, lowest, entries };
        // A higher `lowest` alone is not worth a write.
        let ticket = if next > first { self.persist(&admitted, out) } else { self.gate.issued() };
        let JournalRecord::Admitted { entries, .. } = admitted else { unreachable!("built above") };
        self.log.hold(now, run.session, (first, lowest), entries, ticket);
        self.work_is_due |= self.orderer.is_some();
        cut
    }

    fn drop_batch(
        &mut self,
        leader: Address,
        view: ViewNumber,
        first: Position,
        runs: Vec<BoundIds>,
        out: &mut Vec<RoleEffect>,
    ) {
        let sealed_truncates =
            self.options.mutates(Mutation::SealedTruncates) && view == self.membership.number;
        if !(self.membership.accepts(view) || sealed_truncates) {
            return;
        }
        let end = first + runs.iter().map(|run| run.ids.count).sum::<u64>();
        let unordered = self.options.mutates(Mutation::TruncatesUnordered) && first > self.log.ordered();
        if first == self.log.ordered() || unordered {
            self.log.order(first, &runs, self.orderer.is_none());
            self.persist(&JournalRecord::Dropped { from: first, runs }, out);
        } else if end > self.log.ordered() {
            return;
        }
        self.gate.confirm(leader, Message::TruncateAck { view, ordered: self.log.ordered() }, out);
    }

    fn dropped(&mut self, now: Time, from: Address, ordered: Position, out: &mut Vec<RoleEffect>) {
        let (Some(orderer), Address::Node(node, _)) = (&mut self.orderer, from) else { return };
        orderer.follower_dropped(node, ordered);
        self.advance(now, out);
        self.work_is_due = true;
    }

    fn advance(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if let Some(orderer) = &mut self.orderer {
            orderer.advance(now, &self.gate, self.log.sessions(), out);
        }
    }

    fn shard_answered(
        &mut self,
        now: Time,
        from: Address,
        message: roles::Message,
        out: &mut Vec<RoleEffect>,
    ) {
        let Address::Node(_, Endpoint::Shard(shard)) = from else { return };
        match message {
            roles::Message::Shard(shard::Message::Bound { view, batch, stable, voids })
                if self.membership.accepts(view) =>
            {
                let Some(orderer) = &mut self.orderer else { return };
                orderer.stable_known(shard, stable);
                orderer.bound(shard, batch, &voids);
                self.drop_bound(now, out);
            }
            roles::Message::Shard(shard::Message::StableKnown { view, stable })
                if self.membership.accepts(view) =>
            {
                if let Some(orderer) = &mut self.orderer {
                    orderer.stable_known(shard, stable);
                }
            }
            roles::Message::ErwinShard(ShardMessage::Orphans { view, ids })
                if self.membership.accepts(view) =>
            {
                self.suspected_orphans(now, from, &ids, out);
            }
            roles::Message::Shard(shard::Message::Bound { view, batch, voids, .. }) => {
                self.flush_bound(now, shard, view, (batch, &voids), out);
            }
            _ => {}
        }
    }

    /// Leader: drops batches that every shard holds, in order, as do the followers.
    fn drop_bound(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        while let Some(batch) = self.orderer.as_mut().and_then(|orderer| orderer.take_bound(now)) {
            assert_eq!(batch.from, self.log.ordered(), "batches are bound in order");
            self.log.order(batch.from, &batch.ids, false);
            let ticket =
                self.persist(&JournalRecord::Dropped { from: batch.from, runs: batch.ids.clone() }, out);
            let orderer = self.orderer.as_mut().expect("it gave the batch");
            orderer.dropped(now, batch, ticket, out);
        }
        self.limit_voids(now, out);
        self.advance(now, out);
        self.work_is_due = true;
    }

    fn controlled(&mut self, now: Time, from: Address, message: control::Message, out: &mut Vec<RoleEffect>) {
        match message {
            control::Message::Seal { claim, old, .. } => self.seal(now, from, claim, old, out),
            // Only this incarnation's sealed state of that view may be flushed.
            control::Message::Flush { claim, old, incarnation, view }
                if (old, incarnation) == (self.membership.number, self.membership.me.incarnation) =>
            {
                self.begin_flush(now, from, claim, view, out);
            }
            control::Message::Stage { claim, old, ordered, carried, .. } => {
                self.stage(from, old, Staged { claim, ordered, carried }, out);
            }
            control::Message::Registered { entry } => self.registered(now, entry, out),
            control::Message::Unavailable { why } => self.membership.note_unavailable(why),
            _ => {}
        }
    }

    fn registered(&mut self, now: Time, entry: control::LogEntry, out: &mut Vec<RoleEffect>) {
        let Some(view) = entry.view else { return };
        match self.membership.registered(now, &view) {
            Registered::Starts => {
                self.persist(&JournalRecord::Started { view: view.clone() }, out);
                self.start(&view);
            }
            Registered::Ends => {
                (self.flush, self.orderer) = (None, None);
                self.persist_claim(false, out);
            }
            Registered::Known | Registered::CannotStart => {}
        }
    }

    pub(super) fn start(&mut self, view: &View) {
        self.adopt_staged(view.number, view.start);
        let (me, leads) = (self.membership.me.node, self.membership.start(view));
        self.orderer = leads.then(|| Orderer::new(view, me, self.log.ring().end(), self.options));
        self.flush = None;
        self.work_is_due = self.orderer.is_some();
    }

    pub(super) fn adopt_staged(&mut self, number: ViewNumber, start: Position) {
        let staged = self.membership.adopt(number, start);
        self.orderer = None;
        self.log.adopt(staged.ordered, staged.carried.sessions);
    }

    fn disconnected(&mut self, peer: Peer) {
        if let Some(orderer) = &mut self.orderer {
            orderer.forget(peer);
        }
        self.closers.give_back(peer, self.closers.of(peer));
    }

    fn timer(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        self.work_is_due = false;
        if self.is_open() {
            if let Some(orderer) = &mut self.orderer {
                orderer.pump(now, self.log.ring(), &self.gate, out);
                orderer.resend(now, out);
            }
            self.forward_old(now, out);
        } else {
            self.membership.report(now, out);
            self.continue_flush(now, out);
        }
    }
}

/// Sends without waiting for the journal.
pub(super) fn reply(to: Address, message: impl Into<roles::Message>, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
