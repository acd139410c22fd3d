//! A replica of a shard: primary or backup, depending on the batch.
//!
//! A `Bind` names the backups of its receiver, a `Replicate` names the backup's incarnation. Both
//! carry the view, so backups refuse a deposed primary, and every role refuses a replica that lost
//! its memory.
//!
//! A replica combines a [`Core`] with the [`DataPath`] of its log's ordering.

use seriatim_model::storage::{HardState, MissingRange};
use seriatim_model::{Address, Endpoint, Input, Machine, Peer, Position, Ticket, Time, TimeIndex};

use super::core::{Core, Write, send};
use super::message::{Held, Message};
use super::path::DataPath;
use super::{leftovers, repair, survey};
use crate::control::message::Message as Control;
use crate::mutation::Mutation;
use crate::roles::{self, RoleEffect, RoleInput};

/// One replica of one shard of one log.
#[derive(Clone, Debug)]
pub struct Replica {
    core: Core,
    path: Box<dyn DataPath>,
}

impl Machine for Replica {
    type Message = roles::Message;
    type Request = std::convert::Infallible;
    type Reply = std::convert::Infallible;

    fn step(&mut self, now: Time, input: RoleInput, out: &mut Vec<RoleEffect>) {
        let (core, path) = (&mut self.core, self.path.as_mut());
        match input {
            Input::Message { from, message: roles::Message::Shard(message) } => {
                self.receive(now, from, message, out)
            }
            Input::Message { message: roles::Message::Control(Control::Registered { entry }), .. } => {
                core.registered(path, now, &entry, out);
            }
            Input::Message {
                message: roles::Message::Control(_) | roles::Message::Sequencing(_), ..
            } => {}
            Input::Message { from, message } => path.receive(core, now, from, message, out),
            Input::Found(ticket, records) => path.found(core, ticket, records, out),
            Input::Mapped(ticket, owned) => core.readers.mapped(ticket, owned, &core.bounds(path), out),
            Input::Pressed(pressed) => core.pressed = pressed,
            Input::Measured(ticket, usage, going, ids) => {
                leftovers::measured(core, path, ticket, ids, out);
                survey::measured(core, now, ticket, (usage, going), out);
            }
            Input::DiskFull(_) | Input::FullDisk(..) | Input::Wall(_) => {}
            Input::Suspected(_) | Input::Alive(_) => {}
            Input::Persisted(ticket) => {
                core.persisted(path, ticket, out);
                path.stored(core, ticket, out);
            }
            Input::StoreFailed(ticket, _) => core.store_failed(path, now, ticket, out),
            Input::Read(ticket, outcome) => {
                let outcome = core.readers.read(ticket, outcome, &core.bounds(path), out);
                if let Some((question, outcome)) = core.take_read(now, outcome) {
                    path.looked_up(core, question, outcome, out);
                }
            }
            Input::Disconnected(peer) => self.disconnected(now, peer),
            Input::Wake => self.timer(now, out),
            Input::Request { request, .. } => match request {},
        }
        let Core { trim, stable, options, .. } = &self.core;
        let is_final = trim <= stable || options.mutates(Mutation::RetainedUnstable);
        assert!(is_final, "trimmed to {trim}, and what lies below {stable} is final");
    }

    fn deadline(&self) -> Option<Time> {
        [self.core.deadline(), self.path.deadline(&self.core)].into_iter().flatten().min()
    }
}

impl Replica {
    pub(crate) fn of(core: Core, path: Box<dyn DataPath>) -> Self {
        Self { core, path }
    }

    /// The hard state, which a new replica must write first.
    #[must_use]
    pub fn memory(&self) -> &HardState {
        &self.core.memory
    }

    /// The stable bound that it knows.
    #[must_use]
    pub fn stable(&self) -> Position {
        self.core.stable
    }

    /// Bound below which this replica has written the shard's positions.
    #[must_use]
    pub fn written_below(&self) -> Position {
        self.path.written_below(&self.core)
    }

    /// The positions to copy.
    #[must_use]
    pub fn missing(&self) -> Option<MissingRange> {
        self.core.missing
    }

    /// Whether the replica copies records, as a member of a view or a copy of a retired shard.
    #[must_use]
    pub fn gets_records(&self) -> bool {
        repair::gets_records(&self.core)
    }

    /// Whether the replica stands in for an absent member and copies nothing yet.
    #[must_use]
    pub fn stands_by(&self) -> bool {
        self.core.catch_up.stands_by()
    }

    /// Number of held records without positions.
    #[must_use]
    pub fn unplaced(&self) -> u64 {
        self.path.unplaced()
    }

    /// Whether a reader or the replica itself waits for this read.
    #[must_use]
    pub fn awaits_read(&self, ticket: Ticket) -> bool {
        self.core.readers.awaits(ticket)
    }

    /// Whether the replica takes part in a view.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.core.is_open()
    }

    /// Whether it takes part in a view, or its shard is retired, and it misses nothing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let core = &self.core;
        let has_all = match core.retired {
            None => core.is_open(),
            Some(_) => core.kept().is_some_and(|kept| core.stable >= kept.ends),
        };
        has_all && core.missing.is_none()
    }

    /// The state that it reports to a view change.
    #[must_use]
    pub fn held(&self) -> Held {
        self.core.held()
    }

    /// The marks that it knows.
    #[must_use]
    pub fn times(&self) -> &TimeIndex {
        self.core.times()
    }

    /// Whether the replica obeys a claim above its view, so that its writes serve a view change.
    #[must_use]
    pub fn is_between_views(&self) -> bool {
        self.core.memory.claim != self.core.view_number()
    }

    /// Whether later replicas of the shard may still need its records.
    #[must_use]
    pub fn is_needed(&self, now: Time) -> bool {
        now < self.core.needed_until && !self.core.options.mutates(Mutation::NeededRemoved)
    }

    fn receive(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        let (core, path) = (&mut self.core, self.path.as_mut());
        match message {
            Message::Bind { view, batch, backups, stable, runs } => {
                if core.accepts(from, view, out) {
                    // Learns the bound first, so that the batch carries it to the backups.
                    core.learn_stable(path, view, stable, out);
                    core.bind(path, from, (view, batch), &backups, runs, out);
                }
            }
            Message::Replicate { view, batch, incarnation, stable, runs } => {
                let deposed = core.options.mutates(Mutation::DeposedPrimaryObeyed);
                if incarnation == core.memory.incarnation && (deposed || core.accepts(from, view, out)) {
                    if !core.replicated_again(from, (view, batch), out) {
                        core.hold_records(path, Write::Backup(from, view, batch), view, runs, out);
                    }
                    core.learn_stable(path, view, stable, out);
                }
            }
            Message::Replicated { view, batch } => core.replicated(from, view, batch, out),
            Message::Stable { view, stable } => {
                if core.accepts(from, view, out) && core.learn_stable(path, view, stable, out) {
                    core.pass_on_stable(view, out);
                    if let Address::Node(_, Endpoint::Sequencer) = from {
                        send(from, Message::StableKnown { view, stable: core.stable }, out);
                    }
                }
            }
            Message::StableKnown { view, stable } => core.inform_backup(from, view, stable, out),
            Message::Fence { claim, entry } => core.fence(path, now, from, claim, &entry, out),
            Message::Records { request, records, upto } => {
                core.got(path, now, (from, request), (records, vec![]), upto, out);
            }
            Message::MappedRecords { request, records, owned, upto } => {
                core.got(path, now, (from, request), (records, owned), upto, out);
            }
            Message::ReadFailed { request, error } => {
                repair::not_got(core, path, now, (from, request), error, out)
            }
            Message::Status { request } => {
                let (view, stable, trim) = (core.view_number(), core.stable, core.trim);
                send(from, Message::StatusIs { request, view, stable, trim }, out);
            }
            Message::AskWhole { view } => core.asked_whether_whole(from, view, out),
            Message::Survey(survey) => core.surveyed(now, from, survey, out),
            Message::Retain(retain) => core.retain(from, retain, out),
            Message::Trim { request, view, position } => {
                core.told_to_trim(path, from, (request, view), position, out);
            }
            Message::Read { .. }
            | Message::Map { .. }
            | Message::Subscribe { .. }
            | Message::SubscribeWith { .. }
            | Message::Credit { .. }
            | Message::Cancel { .. } => core.serve_reader(path, now, from, message, out),
            message => {
                if let Message::Fenced { incarnation, .. } = &message {
                    core.catch_up.former.hosts(from, *incarnation);
                }
                path.receive(core, now, from, message.into(), out);
            }
        }
    }

    fn disconnected(&mut self, now: Time, peer: Peer) {
        self.core.readers.forget(peer);
        self.path.disconnected(now, peer);
    }

    fn timer(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let (core, path) = (&mut self.core, self.path.as_mut());
        core.report(now, out);
        path.timer(core, now, out);
        core.readers.expire(now, out);
        core.copy(path, now, out);
        core.scrub(now, out);
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::storage::{Run, StorageFailure};
    use seriatim_model::{
        Durability, Incarnation, LogConfig, LogEntry, LogId, Member, NodeId, Order, Placement, Record,
        RecordId, SessionId, ShardId, ShardMembers, Ticket, View, ViewHistory, ViewNumber,
    };

    use super::*;
    use crate::control::catalog;
    use crate::mutation::Options;

    const CLAIM: ViewNumber = ViewNumber(1);
    const ME: Member = Member { node: NodeId(1), incarnation: Incarnation(1) };

    fn alone() -> Replica {
        let order = Order::ALL.into_iter().find(|order| !order.properties().keeps_order);
        let order = order.expect("in some log the shards say how far it goes");
        let durability = Durability::Disk;
        let config =
            LogConfig { order, durability, sequencers: 1, shards: 1, replicas: 1, ..LogConfig::default() };
        let entry = catalog::place(LogId(1), "log".into(), config.clone(), &[ME.node]).expect("it can");
        let shard = ShardMembers { shard: ShardId(0), begins: Position::ZERO, replicas: vec![ME] };
        let view = View {
            number: CLAIM,
            sequencers: vec![ME],
            leader: ME.node,
            shards: vec![shard],
            retired: vec![],
            placement: Placement::new(vec![ShardId(0)], 1),
            first: Position::ZERO,
            start: Position::ZERO,
        };
        let mut history = ViewHistory::default();
        history.push(CLAIM, Position::ZERO);
        let mut replica = Replica::new(ME, ShardId(0), config, Options::default());
        let fence = Message::Fence { claim: CLAIM, entry: entry.clone() };
        told(&mut replica, fence);
        let entry = LogEntry { view: Some(view), history, ..entry };
        told(&mut replica, Control::Registered { entry });
        replica.step(Time::ZERO, Input::Persisted(replica.core.gate.issued()), &mut vec![]);
        assert!(replica.is_open());
        replica
    }

    fn told(replica: &mut Replica, message: impl Into<roles::Message>) -> Ticket {
        let from = Address::Node(ME.node, Endpoint::Sequencer);
        replica.step(Time::ZERO, Input::Message { from, message: message.into() }, &mut vec![]);
        replica.core.gate.issued()
    }

    /// A view change relies on the reported end.
    #[test]
    fn what_was_not_written_is_not_where_a_view_ends() {
        let mut replica = alone();
        let named = (RecordId { session: SessionId(1), number: 0 }, Record::new(b"record", 0));
        let runs = vec![Run { first: Position::ZERO, records: vec![named] }];
        let (batch, stable) = (Position::ZERO, Position::ZERO);
        let bind = Message::Bind { view: CLAIM, batch, backups: vec![], stable, runs };
        let write = told(&mut replica, bind.clone());
        assert_eq!(replica.held().end, Position::ZERO, "it is on its way");
        replica.step(Time::ZERO, Input::StoreFailed(write, StorageFailure::Full), &mut vec![]);
        assert_eq!(replica.held().end, Position::ZERO, "there was no room for it");
        let write = told(&mut replica, bind);
        replica.step(Time::ZERO, Input::Persisted(write), &mut vec![]);
        assert_eq!(replica.held().end, Position(1));
    }
}
