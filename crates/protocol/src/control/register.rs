//! The view register, which also holds the catalog: one replica, embedded in a node, for `seriatim dev`.
//!
//! Its contract is small: get, compare-and-set on a log's whole entry, and a catalog on top. Whatever it
//! answers is durable before it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::storage::JournalEntry;
use seriatim_model::wire::{Encoder, Wire, WireError, decode_one, wire_enum};
use seriatim_model::{Address, Endpoint, Input, LogConfig, LogId, Machine, NodeId, Peer, Time};

use super::catalog;
use super::message::{LogEntry, Message, NodeAddress, Refusal};
use crate::deviation::{Deviation, Options};
use crate::parts::Gate;
use crate::roles::{self, RoleEffect, RoleInput};

/// How often nodes are reminded to forget a deleted log.
const RETIRE_EVERY: Duration = Duration::from_secs(1);

/// The embedded register.
///
/// Invariants: an entry's version grows with each change; a log id is given once; a deleted log is kept
/// in `retiring` until every node that hosted it has forgotten it.
#[derive(Clone, Debug)]
pub struct Register {
    gate: Gate,
    entries: BTreeMap<LogId, LogEntry>,
    /// Which question a log was created by.
    created: BTreeMap<LogId, u64>,
    last_log: LogId,
    retiring: BTreeMap<LogId, BTreeSet<NodeId>>,
    nodes: BTreeMap<NodeId, Place>,
    retire_at: Time,
    me: NodeId,
    /// Tells this life of the register from every other.
    life: u64,
    options: Options,
}

/// Where a node listens.
#[derive(Clone, Debug)]
struct Place {
    address: String,
    /// Counts, from the register's life on, what was said about it.
    version: u64,
}

/// What the register's journal holds.
#[derive(Clone, Debug)]
enum JournalRecord {
    Entry(LogEntry),
    Deleted { log: LogId, nodes: Vec<NodeId> },
    Retired { log: LogId, node: NodeId },
    LastLog(LogId),
    Created { entry: LogEntry, request: u64 },
}

wire_enum! {
    JournalRecord {
        1 => Entry(entry),
        2 => Deleted { log, nodes },
        3 => Retired { log, node },
        4 => LastLog(log),
        5 => Created { entry, request },
    }
}

impl Machine for Register {
    type Message = roles::Message;
    type Request = std::convert::Infallible;
    type Reply = std::convert::Infallible;

    fn step(&mut self, now: Time, input: RoleInput, out: &mut Vec<RoleEffect>) {
        match input {
            Input::Message { from, message: roles::Message::Control(message) } => {
                self.receive(now, from, message, out)
            }
            Input::Persisted(ticket) => self.gate.persisted(ticket, out),
            Input::Timer => self.remind(now, out),
            Input::Disconnected(Peer::Node(_) | Peer::Client(_))
            | Input::Message { .. }
            | Input::Silent(_)
            | Input::Heard(_)
            | Input::StoreFailed(..)
            | Input::Read(..)
            | Input::Found(..)
            | Input::Mapped(..)
            | Input::DiskFull(_)
            | Input::Pressed(_) => {}
            Input::Request { request, .. } => match request {},
        }
    }

    fn deadline(&self) -> Option<Time> {
        (!self.retiring.is_empty()).then_some(self.retire_at)
    }
}

impl Register {
    /// An empty register on node `me`.
    #[must_use]
    pub fn new(me: NodeId, options: Options) -> Self {
        Self {
            gate: Gate::new(true),
            entries: BTreeMap::new(),
            created: BTreeMap::new(),
            last_log: LogId(0),
            retiring: BTreeMap::new(),
            nodes: BTreeMap::new(),
            retire_at: Time::ZERO,
            me,
            life: 0,
            options,
        }
    }

    /// The same register, in a life that is told from every other by a number drawn at random.
    #[must_use]
    pub fn in_life(self, life: u64) -> Self {
        Self { life, ..self }
    }

    /// Rebuilds the register from its journal.
    ///
    /// # Errors
    /// If an entry is not one of ours.
    pub fn recover(
        me: NodeId,
        options: Options,
        entries: impl IntoIterator<Item = JournalEntry>,
    ) -> Result<Self, WireError> {
        let mut register = Self::new(me, options);
        for entry in entries {
            register.apply(decode_one(entry)?);
        }
        Ok(register)
    }

    /// The whole state as journal entries, in place of all entries so far.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Vec<Bytes>> {
        let entries = self.entries.values().cloned().map(|entry| match self.created.get(&entry.id) {
            Some(request) => JournalRecord::Created { entry, request: *request },
            None => JournalRecord::Entry(entry),
        });
        let retiring = self
            .retiring
            .iter()
            .map(|(log, nodes)| JournalRecord::Deleted { log: *log, nodes: nodes.iter().copied().collect() });
        let last = JournalRecord::LastLog(self.last_log);
        let encode = |record: JournalRecord| {
            let mut out = Encoder::new();
            record.encode(&mut out);
            out.finish()
        };
        entries.chain(retiring).chain([last]).map(encode).collect()
    }

    /// The entries, in the order of ids.
    pub fn entries(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.values()
    }

    fn receive(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        match message {
            Message::Get { log } => {
                let answer = catalog::current(log, self.entries.get(&log).cloned());
                self.gate.confirm(from, answer, out);
            }
            Message::CompareAndSet { entry } => self.compare_and_set(from, entry, out),
            Message::Lookup { request, name } => {
                let (answer, waits_for_view) = match self.find(&name) {
                    Some(entry) => {
                        let waits_for_view = catalog::waits_for_view(entry).then_some(entry.id);
                        let (entry, nodes) = (entry.clone(), self.node_list());
                        (Message::Found { request, entry, nodes }, waits_for_view)
                    }
                    None => (Message::Refused { request, refusal: catalog::not_found(name) }, None),
                };
                self.gate.confirm(from, answer, out);
                if let Some(log) = waits_for_view {
                    self.call_controller(log, out);
                }
            }
            Message::List { request } => {
                let entries = catalog::listed(self.entries.values().cloned().collect());
                self.gate.confirm(from, Message::Listing { request, entries, nodes: self.node_list() }, out);
            }
            Message::Create { request, name, config } => {
                let outcome = self.create(request, name, config, out);
                self.gate.confirm(from, catalog::answer(request, outcome), out);
            }
            Message::Delete { request, name, log } => {
                let outcome = self.delete(now, name, log, out);
                self.gate.confirm(from, catalog::answer(request, outcome), out);
            }
            Message::AddShard { request, log, shard } => {
                let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
                self.reshape(from, request, log, |entry| catalog::with_shard(entry, shard, &nodes), out);
            }
            Message::RemoveShard { request, log, shard } => {
                self.reshape(from, request, log, |entry| catalog::without_shard(entry, shard), out);
            }
            Message::Join { node } => self.join(node, None, out),
            Message::Move { node, version } => self.join(node, Some(version), out),
            Message::Retired { log, node } => self.retired(log, node, out),
            _ => {}
        }
    }

    /// Every node is told who is there whenever that changes, and who asks in any case. An address is replaced
    /// only by who knows which: another word may be late.
    fn join(&mut self, joining: NodeAddress, replaces: Option<u64>, out: &mut Vec<RoleEffect>) {
        let NodeAddress { node, address } = joining;
        let known = self.nodes.get(&node);
        let version = known.map_or(self.life, |known| known.version);
        let changed = known.is_none_or(|known| known.address != address);
        if known.is_some() && changed && replaces != Some(version) {
            let to = Address::Node(node, Endpoint::Node);
            return self.gate.confirm(to, Message::Elsewhere { version }, out);
        }
        self.nodes.insert(node, Place { address, version: version.wrapping_add(1) });
        let nodes = self.node_list();
        for listener in nodes.iter().map(|listed| listed.node).filter(|listed| changed || *listed == node) {
            let to = Address::Node(listener, Endpoint::Node);
            self.gate.confirm(to, Message::Cluster { nodes: nodes.clone() }, out);
        }
    }

    fn find(&self, name: &str) -> Option<&LogEntry> {
        self.entries.values().find(|entry| entry.name == name)
    }

    fn node_list(&self) -> Vec<NodeAddress> {
        let node =
            |(node, place): (&NodeId, &Place)| NodeAddress { node: *node, address: place.address.clone() };
        self.nodes.iter().map(node).collect()
    }

    fn may_replace(&self, current: &LogEntry, proposed: &LogEntry) -> bool {
        if self.options.deviates(Deviation::ClaimUnchecked) {
            return proposed.claimed >= current.claimed;
        }
        catalog::succeeds(current, proposed)
    }

    fn compare_and_set(&mut self, from: Address, mut proposed: LogEntry, out: &mut Vec<RoleEffect>) {
        let log = proposed.id;
        if let Some(current) = self.entries.get(&log).filter(|current| self.may_replace(current, &proposed)) {
            proposed.version = current.version;
            self.change(JournalRecord::Entry(catalog::successor(proposed)), out);
        }
        let answer = catalog::current(log, self.entries.get(&log).cloned());
        self.gate.confirm(from, answer, out);
    }

    /// A question that comes again, because its answer was lost, has the same answer.
    fn create(
        &mut self,
        request: u64,
        name: String,
        config: LogConfig,
        out: &mut Vec<RoleEffect>,
    ) -> Result<LogId, Refusal> {
        catalog::check_name(&name)?;
        if let Some(entry) = self.find(&name) {
            let is_repeated = self.created.get(&entry.id) == Some(&request);
            return catalog::created_before(entry, is_repeated, &config);
        }
        let id = catalog::id_after(self.last_log, self.life);
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let entry = catalog::place(id, name, config, &nodes)?;
        self.change(JournalRecord::Created { entry, request }, out);
        self.call_controller(id, out);
        Ok(id)
    }

    /// Changes which shards a log is to have.
    fn reshape(
        &mut self,
        asker: Address,
        request: u64,
        log: LogId,
        change: impl FnOnce(&LogEntry) -> Result<Option<LogEntry>, Refusal>,
        out: &mut Vec<RoleEffect>,
    ) {
        let current = self.entries.get(&log).ok_or_else(|| catalog::gone(log));
        match current.and_then(change) {
            Ok(changed) => {
                if let Some(changed) = changed {
                    self.change(JournalRecord::Entry(catalog::successor(changed)), out);
                }
                self.gate.confirm(asker, Message::Done { request, log }, out);
                self.call_controller(log, out);
            }
            Err(refusal) => self.gate.confirm(asker, Message::Refused { request, refusal }, out),
        }
    }

    /// A log without a view has no replica that could report. Should this be lost, or the node be killed
    /// before there is a view: whoever looks the log up has the controller called again.
    fn call_controller(&mut self, log: LogId, out: &mut Vec<RoleEffect>) {
        let controller = Address::Node(self.me, Endpoint::Controller);
        self.gate.confirm(controller, Message::Get { log }, out);
    }

    fn delete(
        &mut self,
        now: Time,
        name: String,
        log: LogId,
        out: &mut Vec<RoleEffect>,
    ) -> Result<LogId, Refusal> {
        let Some(entry) = self.entries.get(&log) else {
            return catalog::deleted_before(name, log, self.last_log);
        };
        if entry.name != name {
            return Err(catalog::not_found(name));
        }
        let nodes = catalog::hosts(entry).into_iter().collect();
        self.change(JournalRecord::Deleted { log, nodes }, out);
        self.retire_at = now;
        Ok(log)
    }

    fn retired(&mut self, log: LogId, node: NodeId, out: &mut Vec<RoleEffect>) {
        if self.retiring.get(&log).is_some_and(|nodes| nodes.contains(&node)) {
            self.change(JournalRecord::Retired { log, node }, out);
        }
    }

    fn remind(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if now < self.retire_at {
            return;
        }
        self.retire_at = now + RETIRE_EVERY;
        for (log, nodes) in &self.retiring {
            for node in nodes {
                let to = Address::Node(*node, Endpoint::Node);
                self.gate.confirm(to, Message::Retire { log: *log }, out);
            }
        }
    }

    fn change(&mut self, record: JournalRecord, out: &mut Vec<RoleEffect>) {
        self.gate.persist(&record, out);
        self.apply(record);
    }

    fn given(&mut self, log: LogId) {
        if catalog::count(log) > catalog::count(self.last_log) {
            self.last_log = log;
        }
    }

    fn apply(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Entry(entry) => {
                self.given(entry.id);
                self.entries.insert(entry.id, entry);
            }
            JournalRecord::Deleted { log, nodes } => {
                self.entries.remove(&log);
                self.created.remove(&log);
                self.retiring.insert(log, nodes.into_iter().collect());
            }
            JournalRecord::Retired { log, node } => {
                if let Some(nodes) = self.retiring.get_mut(&log) {
                    nodes.remove(&node);
                }
                self.retiring.retain(|_, nodes| !nodes.is_empty());
            }
            JournalRecord::LastLog(log) => self.given(log),
            JournalRecord::Created { entry, request } => {
                self.created.insert(entry.id, request);
                self.apply(JournalRecord::Entry(entry));
            }
        }
    }
}
