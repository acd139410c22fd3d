//! The view register, which also holds the catalog: one replica, embedded in a node, for `seriatim dev`.
//!
//! Its contract is small: get, compare-and-set on a log's whole entry, and a catalog on top. Whatever it
//! answers is durable before it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::config::check_log_name;
use seriatim_model::storage::JournalEntry;
use seriatim_model::wire::{Encoder, Wire, WireError, decode_one, wire_enum};
use seriatim_model::{
    Address, Endpoint, Input, LogConfig, LogId, Machine, NodeId, Peer, Time, ViewHistory, ViewNumber,
};

use super::message::{LogEntry, Message, NodeAddress, Refusal};
use crate::parts::Gate;
use crate::roles::{self, RoleEffect, RoleInput};

/// How often nodes are reminded to forget a deleted log.
const RETIRE_EVERY: Duration = Duration::from_secs(1);

/// The embedded register.
///
/// Invariants: an entry's version grows with each change; a log id is given once; a deleted log is kept
/// in `retiring` until every node that hosted it has forgotten it.
#[derive(Debug)]
pub struct Register {
    gate: Gate,
    entries: BTreeMap<LogId, LogEntry>,
    last_log: LogId,
    retiring: BTreeMap<LogId, BTreeSet<NodeId>>,
    nodes: BTreeMap<NodeId, String>,
    retire_at: Time,
    me: NodeId,
}

/// What the register's journal holds.
#[derive(Debug)]
enum JournalRecord {
    Entry(LogEntry),
    Deleted { log: LogId, nodes: Vec<NodeId> },
    Retired { log: LogId, node: NodeId },
    LastLog(LogId),
}

wire_enum! {
    JournalRecord {
        1 => Entry(entry),
        2 => Deleted { log, nodes },
        3 => Retired { log, node },
        4 => LastLog(log),
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
            | Input::StoreFailed(..)
            | Input::Read(..)
            | Input::DiskFull(_) => {}
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
    pub fn new(me: NodeId) -> Self {
        Self {
            gate: Gate::new(true),
            entries: BTreeMap::new(),
            last_log: LogId(0),
            retiring: BTreeMap::new(),
            nodes: BTreeMap::new(),
            retire_at: Time::ZERO,
            me,
        }
    }

    /// Rebuilds the register from its journal.
    ///
    /// # Errors
    /// If an entry is not one of ours.
    pub fn recover(me: NodeId, entries: impl IntoIterator<Item = JournalEntry>) -> Result<Self, WireError> {
        let mut register = Self::new(me);
        for entry in entries {
            register.apply(decode_one(entry)?);
        }
        Ok(register)
    }

    /// The whole state as journal entries, in place of all entries so far.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Vec<Bytes>> {
        let entries = self.entries.values().cloned().map(JournalRecord::Entry);
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
                let answer = match self.entries.get(&log) {
                    Some(entry) => Message::Current { entry: entry.clone() },
                    None => Message::Gone { log },
                };
                self.gate.confirm(from, answer, out);
            }
            Message::CompareAndSet { entry } => self.compare_and_set(from, entry, out),
            Message::Lookup { request, name } => {
                let (answer, waits_for_view) = match self.find(&name) {
                    Some(entry) => {
                        let waits_for_view = entry.view.is_none().then_some(entry.id);
                        let (entry, nodes) = (entry.clone(), self.node_list());
                        (Message::Found { request, entry, nodes }, waits_for_view)
                    }
                    None => (Message::Refused { request, refusal: not_found(name) }, None),
                };
                self.gate.confirm(from, answer, out);
                if let Some(log) = waits_for_view {
                    self.call_controller(log, out);
                }
            }
            Message::List { request } => {
                let mut entries: Vec<_> = self.entries.values().cloned().collect();
                entries.sort_by(|a, b| a.name.cmp(&b.name));
                self.gate.confirm(from, Message::Listing { request, entries, nodes: self.node_list() }, out);
            }
            Message::Create { request, name, config } => {
                let answer = match self.create(name, config, out) {
                    Ok(log) => Message::Done { request, log },
                    Err(refusal) => Message::Refused { request, refusal },
                };
                self.gate.confirm(from, answer, out);
            }
            Message::Delete { request, name } => {
                let answer = match self.delete(now, name, out) {
                    Ok(log) => Message::Done { request, log },
                    Err(refusal) => Message::Refused { request, refusal },
                };
                self.gate.confirm(from, answer, out);
            }
            Message::Join { node } => self.join(node, out),
            Message::Retired { log, node } => self.retired(log, node, out),
            _ => {}
        }
    }

    /// Every node is told who is there whenever that changes, and who asks in any case.
    fn join(&mut self, node: NodeAddress, out: &mut Vec<RoleEffect>) {
        let known = self.nodes.insert(node.node, node.address.clone());
        let nodes = self.node_list();
        let changed = known.as_ref() != Some(&node.address);
        for listener in
            nodes.iter().map(|listed| listed.node).filter(|listed| changed || *listed == node.node)
        {
            let to = Address::Node(listener, Endpoint::Node);
            self.gate.confirm(to, Message::Cluster { nodes: nodes.clone() }, out);
        }
    }

    fn find(&self, name: &str) -> Option<&LogEntry> {
        self.entries.values().find(|entry| entry.name == name)
    }

    fn node_list(&self) -> Vec<NodeAddress> {
        let node =
            |(node, address): (&NodeId, &String)| NodeAddress { node: *node, address: address.clone() };
        self.nodes.iter().map(node).collect()
    }

    fn compare_and_set(&mut self, from: Address, mut entry: LogEntry, out: &mut Vec<RoleEffect>) {
        let answer = match self.entries.get(&entry.id) {
            None => Message::Gone { log: entry.id },
            Some(current) if current.version != entry.version => Message::Current { entry: current.clone() },
            Some(_) => {
                entry.version += 1;
                self.change(JournalRecord::Entry(entry.clone()), out);
                Message::Current { entry }
            }
        };
        self.gate.confirm(from, answer, out);
    }

    fn create(
        &mut self,
        name: String,
        config: LogConfig,
        out: &mut Vec<RoleEffect>,
    ) -> Result<LogId, Refusal> {
        check_log_name(&name).map_err(|reason| Refusal::Impossible { reason })?;
        if self.find(&name).is_some() {
            return Err(Refusal::Exists { name });
        }
        config.check(self.nodes.len() as u32).map_err(|reason| Refusal::Impossible { reason })?;
        let id = LogId(self.last_log.0 + 1);
        let entry = self.place(id, name, config);
        self.change(JournalRecord::Entry(entry), out);
        self.call_controller(id, out);
        Ok(id)
    }

    /// A log without a view has no replica that could report. Should this be lost, or the node be killed
    /// before there is a view: whoever looks the log up has the controller called again.
    fn call_controller(&mut self, log: LogId, out: &mut Vec<RoleEffect>) {
        let controller = Address::Node(self.me, Endpoint::Controller);
        self.gate.confirm(controller, Message::Get { log }, out);
    }

    /// Spreads a log's replicas over the nodes, starting at another node for each log.
    fn place(&self, id: LogId, name: String, config: LogConfig) -> LogEntry {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let pick = |index: u64| nodes[(index % nodes.len() as u64) as usize];
        let shard = |shard: u64| (0..u64::from(config.replicas)).map(|r| pick(id.0 + shard + r)).collect();
        LogEntry {
            id,
            name,
            sequencers: (0..u64::from(config.sequencers)).map(|s| pick(id.0 - 1 + s)).collect(),
            shards: (0..u64::from(config.shards)).map(shard).collect(),
            version: 0,
            claimed: ViewNumber::NONE,
            claimant: 0,
            view: None,
            history: ViewHistory::default(),
            unavailable: None,
            config,
        }
    }

    fn delete(&mut self, now: Time, name: String, out: &mut Vec<RoleEffect>) -> Result<LogId, Refusal> {
        let Some(entry) = self.find(&name) else { return Err(not_found(name)) };
        let log = entry.id;
        let nodes: BTreeSet<NodeId> =
            entry.sequencers.iter().chain(entry.shards.iter().flatten()).copied().collect();
        self.change(JournalRecord::Deleted { log, nodes: nodes.into_iter().collect() }, out);
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

    fn apply(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Entry(entry) => {
                self.last_log = self.last_log.max(entry.id);
                self.entries.insert(entry.id, entry);
            }
            JournalRecord::Deleted { log, nodes } => {
                self.entries.remove(&log);
                self.retiring.insert(log, nodes.into_iter().collect());
            }
            JournalRecord::Retired { log, node } => {
                if let Some(nodes) = self.retiring.get_mut(&log) {
                    nodes.remove(&node);
                }
                self.retiring.retain(|_, nodes| !nodes.is_empty());
            }
            JournalRecord::LastLog(log) => self.last_log = self.last_log.max(log),
        }
    }
}

/// What to say about a name that no log has. One that no log could have is not repeated at any length.
fn not_found(name: String) -> Refusal {
    match check_log_name(&name) {
        Ok(()) => Refusal::NoSuchLog { name },
        Err(reason) => Refusal::Impossible { reason },
    }
}
