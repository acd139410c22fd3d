//! The view register with the catalog: one replica, embedded in a node, for `seriatim dev`.
//!
//! It offers get, compare-and-set on a log's whole entry, and the catalog. State is durable before
//! an answer leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use seriatim_model::storage::JournalEntry;
use seriatim_model::wire::{WireError, decode_one, encode_one, wire_enum};
use seriatim_model::{
    Address, EndedSession, Endpoint, Input, LogConfig, LogEntry, LogId, Machine, NodeId, Peer, Position,
    Time, ViewNumber, limits,
};

use super::audience::Audience;
use super::catalog;
use super::message::{Message, NEWS, NodeAddress, Refusal};
use super::parting::{self, NodeParting, Parting, PartingChange, Partings};
use crate::mutation::{Mutation, Options};
use crate::parts::Gate;
use crate::roles::{self, RoleEffect, RoleInput};

const RETIRE_EVERY: Duration = Duration::from_secs(1);

/// The embedded register.
///
/// Invariants: an entry's version grows with each change; a log id is given once; a deleted log
/// stays in `retiring` until every notified node has forgotten it.
#[derive(Clone, Debug)]
pub struct Register {
    gate: Gate,
    entries: BTreeMap<LogId, LogEntry>,
    names: BTreeMap<String, LogId>,
    audience: Audience,
    /// The `request` that created each log.
    created: BTreeMap<LogId, u64>,
    last_log: LogId,
    retiring: BTreeMap<LogId, BTreeSet<NodeId>>,
    nodes: BTreeMap<NodeId, Place>,
    /// Nodes that ever joined; absent ones may still host roles.
    joined: BTreeSet<NodeId>,
    partings: Partings,
    /// Whether a node was ever drained; then joining nodes receive `partings`.
    has_partings: bool,
    /// Nodes that have not confirmed the latest `partings`.
    unnotified: BTreeSet<NodeId>,
    retire_at: Time,
    me: NodeId,
    incarnation: u64,
    options: Options,
}

#[derive(Clone, Debug)]
struct Place {
    address: String,
    /// Starts at the register's incarnation and grows with each change of the address.
    version: u64,
}

#[derive(Clone, Debug)]
enum JournalRecord {
    Entry(LogEntry),
    Deleted { log: LogId, nodes: Vec<NodeId> },
    Retired { log: LogId, node: NodeId },
    LastLog(LogId),
    Created { entry: LogEntry, request: u64 },
    Joined { nodes: Vec<NodeId> },
    Partings { partings: Vec<NodeParting> },
}

wire_enum! {
    JournalRecord {
        1 => Entry(entry),
        2 => Deleted { log, nodes },
        3 => Retired { log, node },
        4 => LastLog(log),
        5 => Created { entry, request },
        6 => Joined { nodes },
        7 => Partings { partings },
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
            Input::Wake => self.remind(now, out),
            Input::Disconnected(Peer::Node(_) | Peer::Client(_))
            | Input::Message { .. }
            | Input::Suspected(_)
            | Input::Alive(_)
            | Input::StoreFailed(..)
            | Input::Read(..)
            | Input::Found(..)
            | Input::Mapped(..)
            | Input::Measured(..)
            | Input::Wall(_)
            | Input::DiskFull(_)
            | Input::FullDisk(..)
            | Input::Pressed(_) => {}
            Input::Request { request, .. } => match request {},
        }
    }

    fn deadline(&self) -> Option<Time> {
        (!self.retiring.is_empty() || !self.unnotified.is_empty()).then_some(self.retire_at)
    }
}

impl Register {
    /// An empty register on node `me`.
    #[must_use]
    pub fn new(me: NodeId, options: Options) -> Self {
        Self {
            gate: Gate::new(true),
            entries: BTreeMap::new(),
            names: BTreeMap::new(),
            audience: Audience::default(),
            created: BTreeMap::new(),
            last_log: LogId(0),
            retiring: BTreeMap::new(),
            nodes: BTreeMap::new(),
            joined: BTreeSet::new(),
            partings: Partings::new(),
            has_partings: false,
            unnotified: BTreeSet::new(),
            retire_at: Time::ZERO,
            me,
            incarnation: 0,
            options,
        }
    }

    /// Sets a random incarnation.
    #[must_use]
    pub fn in_incarnation(self, incarnation: u64) -> Self {
        Self { incarnation, ..self }
    }

    /// Rebuilds the register from its journal.
    ///
    /// # Errors
    /// If an entry cannot be decoded.
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

    /// A part of the state as journal entries: at most `logs` logs after `after`. Also returns the
    /// last of these logs, or `None` if no more follow. Parts may be taken at different times. All
    /// parts and the entries since the first part replace the journal: each entry states the result
    /// of its change.
    #[must_use]
    pub fn snapshot(&self, after: Option<LogId>, logs: usize) -> (Vec<JournalEntry>, Option<LogId>) {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let looked_at = logs.saturating_add(1);
        let entries = self.entries.range(range).take(looked_at).map(|(log, entry)| {
            let (entry, request) = (entry.clone(), self.created.get(log));
            let created =
                request.map(|request| JournalRecord::Created { entry: entry.clone(), request: *request });
            (*log, created.unwrap_or(JournalRecord::Entry(entry)))
        });
        let retiring = self.retiring.range(range).take(looked_at).map(|(log, nodes)| {
            (*log, JournalRecord::Deleted { log: *log, nodes: nodes.iter().copied().collect() })
        });
        // A log has an entry or is being deleted, never both.
        let mut records: BTreeMap<LogId, JournalRecord> = entries.chain(retiring).collect();
        let rest = records.keys().nth(logs).copied();
        let left = rest.map(|rest| records.split_off(&rest));
        let last = left.and_then(|_| records.keys().next_back().copied());
        let mut records: Vec<JournalRecord> = records.into_values().collect();
        if last.is_none() {
            records.push(JournalRecord::LastLog(self.last_log));
            records.push(JournalRecord::Joined { nodes: self.joined.iter().copied().collect() });
            if self.has_partings {
                records.push(JournalRecord::Partings { partings: parting::listed(&self.partings) });
            }
        }
        (records.iter().map(encode_one).collect(), last)
    }

    /// The drained and removed nodes.
    #[must_use]
    pub fn partings(&self) -> &Partings {
        &self.partings
    }

    /// The entries, in the order of ids.
    pub fn entries(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.values()
    }

    fn receive(&mut self, now: Time, from: Address, message: Message, out: &mut Vec<RoleEffect>) {
        match message {
            Message::Get { log } | Message::Peek { log } => {
                let answer = catalog::current(log, self.entries.get(&log).cloned());
                self.gate.confirm(from, answer, out);
            }
            Message::CompareAndSet { entry } => self.compare_and_set(now, from, entry, out),
            Message::Lookup { request, name } => self.look_up(now, from, request, name, out),
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
                let nodes = self.staying();
                self.reshape(from, request, log, |entry| catalog::with_shard(entry, shard, &nodes), out);
            }
            Message::RemoveShard { request, log, shard } => {
                self.reshape(from, request, log, |entry| catalog::without_shard(entry, shard), out);
            }
            Message::SetRetention { request, log, change } => {
                self.reshape(from, request, log, |entry| catalog::with_retention(entry, change), out);
                self.tell_limits(log, out);
            }
            Message::Pin { request, log, name, position, most_bytes } => {
                let change = |entry: &LogEntry| catalog::with_pin(entry, &name, position, most_bytes);
                self.reshape(from, request, log, change, out);
                self.tell_limits(log, out);
            }
            Message::Unpin { request, log, name } => {
                self.reshape(from, request, log, |entry| Ok(catalog::without_pin(entry, &name)), out);
                self.tell_limits(log, out);
            }
            Message::Part { request, node, change } => {
                let outcome = self.part(now, node, change, out);
                self.gate.confirm(from, catalog::answer(request, outcome.map(|()| LogId(0))), out);
            }
            Message::PartingsKnown { node, partings }
                if parting::gathered(partings.clone()) == self.partings =>
            {
                self.unnotified.remove(&node);
            }
            Message::AskPartings { request } => {
                let partings = parting::listed(&self.partings);
                self.gate.confirm(from, Message::PartingsAre { request, partings }, out);
            }
            Message::EndSession { log, view, ended, since } => {
                self.end_session(from, log, view, (ended, since), out);
            }
            Message::Join { node } => self.join(node, None, out),
            Message::Move { node, version } => self.join(node, Some(version), out),
            Message::Retired { log, node } => self.retired(log, node, out),
            _ => {}
        }
    }

    fn look_up(&mut self, now: Time, from: Address, request: u64, name: String, out: &mut Vec<RoleEffect>) {
        let Some(entry) = self.find(&name).cloned() else {
            let refusal = catalog::not_found(name);
            return self.gate.confirm(from, Message::Refused { request, refusal }, out);
        };
        let (log, waits_for_view) = (entry.id, catalog::waits_for_view(&entry));
        if request == NEWS {
            self.audience.join(now, log, from, entry.view_number());
        }
        self.gate.confirm(from, Message::Found { request, entry, nodes: self.node_list() }, out);
        if waits_for_view {
            self.call_controller(log, out);
        }
    }

    /// Sends the list of nodes to all nodes if it changed, otherwise to the joining node. A message
    /// changes a known address only if it names that address's version: it may be late.
    fn join(&mut self, joining: NodeAddress, replaces: Option<u64>, out: &mut Vec<RoleEffect>) {
        let NodeAddress { node, address } = joining;
        if self.has_partings {
            self.unnotified.insert(node);
            self.tell_partings(node, out);
        }
        if self.partings.get(&node) == Some(&Parting::Removed) {
            self.unnotified.remove(&node);
            return;
        }
        let known = self.nodes.get(&node);
        // The version and its successors must be encodable.
        let version = known.map_or(self.incarnation % limits::MAX_FIRST, |known| known.version);
        let changed = known.is_none_or(|known| known.address != address);
        if known.is_some() && changed && replaces != Some(version) {
            let to = Address::Node(node, Endpoint::Node);
            return self.gate.confirm(to, Message::Elsewhere { version }, out);
        }
        self.nodes.insert(node, Place { address, version: version.wrapping_add(1) });
        if !self.joined.contains(&node) {
            self.change(JournalRecord::Joined { nodes: vec![node] }, out);
        }
        let nodes = self.node_list();
        for listener in nodes.iter().map(|listed| listed.node).filter(|listed| changed || *listed == node) {
            let to = Address::Node(listener, Endpoint::Node);
            self.gate.confirm(to, Message::Cluster { nodes: nodes.clone() }, out);
        }
    }

    fn staying(&self) -> Vec<NodeId> {
        parting::staying(self.nodes.keys().copied(), &self.partings)
    }

    fn part(
        &mut self,
        now: Time,
        node: NodeId,
        change: PartingChange,
        out: &mut Vec<RoleEffect>,
    ) -> Result<(), Refusal> {
        let known: BTreeSet<NodeId> = self.joined.iter().chain(self.nodes.keys()).copied().collect();
        let entries: Vec<&LogEntry> = self.entries.values().collect();
        let cluster = (&known, Some(self.me));
        let Some(wanted) = parting::change(cluster, &entries, &self.partings, node, change)? else {
            return Ok(());
        };
        let mut partings = self.partings.clone();
        match wanted {
            Some(parting) => drop(partings.insert(node, parting)),
            None => drop(partings.remove(&node)),
        }
        // Removed nodes too, since they may still run.
        self.unnotified = self.nodes.keys().copied().collect();
        self.change(JournalRecord::Partings { partings: parting::listed(&partings) }, out);
        self.retire_at = now;
        Ok(())
    }

    /// `remind` retransmits it until the node confirms.
    fn tell_partings(&mut self, node: NodeId, out: &mut Vec<RoleEffect>) {
        let message = Message::Partings { partings: parting::listed(&self.partings) };
        self.gate.confirm(Address::Node(node, Endpoint::Node), message, out);
    }

    fn find(&self, name: &str) -> Option<&LogEntry> {
        self.entries.get(self.names.get(name)?)
    }

    fn node_list(&self) -> Vec<NodeAddress> {
        let node =
            |(node, place): (&NodeId, &Place)| NodeAddress { node: *node, address: place.address.clone() };
        self.nodes.iter().map(node).collect()
    }

    fn may_replace(&self, current: &LogEntry, proposed: &LogEntry) -> bool {
        if self.options.mutates(Mutation::ClaimUnchecked) {
            return proposed.claimed >= current.claimed;
        }
        catalog::succeeds(current, proposed)
    }

    fn compare_and_set(
        &mut self,
        now: Time,
        from: Address,
        mut proposed: LogEntry,
        out: &mut Vec<RoleEffect>,
    ) {
        let log = proposed.id;
        if let Some(current) = self.entries.get(&log).filter(|current| self.may_replace(current, &proposed)) {
            proposed.version = current.version;
            self.change(JournalRecord::Entry(catalog::successor(proposed)), out);
        }
        let answer = catalog::current(log, self.entries.get(&log).cloned());
        self.gate.confirm(from, answer, out);
        self.tell_audience(now, log, out);
    }

    fn tell_audience(&mut self, now: Time, log: LogId, out: &mut Vec<RoleEffect>) {
        let Some(entry) = self.entries.get(&log) else { return };
        for listener in self.audience.hears_of(now, log, entry.view_number()) {
            let (entry, nodes) = (entry.clone(), self.node_list());
            self.gate.confirm(listener, Message::Found { request: NEWS, entry, nodes }, out);
        }
    }

    /// A retransmitted request gets the same answer.
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
        let id = catalog::id_after(self.last_log, self.incarnation);
        assert!(!self.entries.contains_key(&id) && !self.retiring.contains_key(&id), "log {id} was given");
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let entry = parting::place(id, &name, &config, &nodes, &self.partings)?;
        self.change(JournalRecord::Created { entry, request }, out);
        self.call_controller(id, out);
        Ok(id)
    }

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

    /// Sends changed limits to the controller that applies them. The message may be lost: the
    /// controller reads the register before it trims.
    fn tell_limits(&mut self, log: LogId, out: &mut Vec<RoleEffect>) {
        let Some(entry) = self.entries.get(&log) else { return };
        if let Some(node) = catalog::retained_by(entry) {
            let message = Message::Registered { entry: entry.clone() };
            self.gate.confirm(Address::Node(node, Endpoint::Controller), message, out);
        }
    }

    /// A view change under way fails to register, since the version grows, and starts over from
    /// this entry.
    fn end_session(
        &mut self,
        asker: Address,
        log: LogId,
        view: ViewNumber,
        (ended, since): (EndedSession, Position),
        out: &mut Vec<RoleEffect>,
    ) {
        let most = self.options.limits.ended_sessions;
        let current = self.entries.get(&log);
        if let Some(entry) = current.and_then(|entry| catalog::with_ended(entry, view, ended, since, most)) {
            self.change(JournalRecord::Entry(catalog::successor(entry)), out);
        }
        let answer = catalog::current(log, self.entries.get(&log).cloned());
        self.gate.confirm(asker, answer, out);
    }

    /// Asks this node's controller for a view: without one, no replica can report the need. If the
    /// message is lost, the next lookup repeats it.
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
        let nodes = catalog::told_of_deletion(entry, self.known()).into_iter().collect();
        self.change(JournalRecord::Deleted { log, nodes }, out);
        self.retire_at = now;
        for listener in self.audience.remove_log(log) {
            let refusal = catalog::not_found(name.clone());
            self.gate.confirm(listener, Message::Refused { request: NEWS, refusal }, out);
        }
        Ok(log)
    }

    /// Nodes that may host roles of any log.
    fn known(&self) -> Vec<NodeId> {
        if self.options.mutates(Mutation::JoinedForgotten) {
            return self.nodes.keys().copied().collect();
        }
        self.joined.iter().copied().collect()
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
        self.unnotified.clone().into_iter().for_each(|node| self.tell_partings(node, out));
        // Removed nodes were notified once. If that message is lost, a node that still runs joins
        // again and receives it then.
        let removed: BTreeSet<NodeId> = parting::removed(&self.partings).collect();
        self.unnotified.retain(|node| !removed.contains(node));
        for (log, nodes) in &self.retiring {
            for node in nodes {
                let to = Address::Node(*node, Endpoint::Node);
                self.gate.confirm(to, Message::RemoveLog { log: *log }, out);
            }
        }
    }

    fn change(&mut self, record: JournalRecord, out: &mut Vec<RoleEffect>) {
        self.gate.persist(&record, out);
        self.apply(record);
    }

    fn unless_removed(&self, nodes: Vec<NodeId>) -> impl Iterator<Item = NodeId> + use<> {
        let removed: BTreeSet<NodeId> = parting::removed(&self.partings).collect();
        nodes.into_iter().filter(move |node| !removed.contains(node))
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
                let known = self.entries.get(&entry.id).map(|known| known.version);
                assert!(known <= Some(entry.version), "{known:?} was the version of {entry:?}");
                self.names.insert(entry.name.clone(), entry.id);
                self.entries.insert(entry.id, entry);
            }
            JournalRecord::Deleted { log, nodes } => {
                if let Some(entry) = self.entries.remove(&log) {
                    self.names.remove(&entry.name);
                }
                self.created.remove(&log);
                let nodes: BTreeSet<NodeId> = self.unless_removed(nodes).collect();
                if !nodes.is_empty() {
                    self.retiring.insert(log, nodes);
                }
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
            JournalRecord::Joined { nodes } => self.joined.extend(self.unless_removed(nodes)),
            JournalRecord::Partings { partings } => {
                (self.partings, self.has_partings) = (parting::gathered(partings), true);
                for node in parting::removed(&self.partings) {
                    self.nodes.remove(&node);
                    self.joined.remove(&node);
                    self.retiring.values_mut().for_each(|nodes| _ = nodes.remove(&node));
                }
                self.retiring.retain(|_, nodes| !nodes.is_empty());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn created(register: &Register, request: u64, name: u64) -> JournalRecord {
        let config = LogConfig { shards: 1, ..LogConfig::default() };
        let id = catalog::id_after(register.last_log, 0);
        let entry = catalog::place(id, format!("log-{name}"), config, &NODES).unwrap();
        JournalRecord::Created { entry, request }
    }

    fn draw(register: &Register, random: &mut impl FnMut(u64) -> u64, request: u64) -> Option<JournalRecord> {
        let any = random(register.entries.len().max(1) as u64) as usize;
        match random(6) {
            0 | 1 => {
                let name = random(30);
                let is_free = !register.names.contains_key(&format!("log-{name}"));
                is_free.then(|| created(register, request, name))
            }
            2 => {
                let log = *register.entries.keys().nth(any)?;
                Some(JournalRecord::Deleted { log, nodes: NODES.to_vec() })
            }
            5 => {
                let parting = [Parting::Drained { by: None }, Parting::Removed][random(2) as usize];
                let node = NodeId(random(9) as u32);
                let mut partings = register.partings.clone();
                partings.insert(node, parting);
                // A removed node stays removed.
                let is_gone = register.partings.get(&node) == Some(&Parting::Removed);
                (!is_gone).then_some(JournalRecord::Partings { partings: parting::listed(&partings) })
            }
            3 => Some(JournalRecord::Joined { nodes: vec![NodeId(random(9) as u32)] }),
            _ => {
                let (log, nodes) = register.retiring.first_key_value()?;
                Some(JournalRecord::Retired { log: *log, node: *nodes.first()? })
            }
        }
    }

    fn state(register: &Register) -> String {
        let Register { entries, names, created, last_log, retiring, joined, partings, .. } = register;
        format!("{entries:?} {names:?} {created:?} {last_log:?} {retiring:?} {joined:?} {partings:?}")
    }

    #[test]
    fn a_node_that_moved_is_told_a_version_that_it_can_read_whatever_the_registers_life_is() {
        for incarnation in [0, 1, u64::MAX / 3, u64::MAX] {
            let mut register = Register::new(NODES[0], Options::default()).in_incarnation(incarnation);
            let from = Address::Node(NODES[1], Endpoint::Node);
            let mut say = |message: Message| {
                let (message, mut out) = (message.into(), vec![]);
                register.step(Time::ZERO, Input::Message { from, message }, &mut out);
                let persisted = |effect: &RoleEffect| match effect {
                    RoleEffect::Persist { ticket, .. } => Some(*ticket),
                    _ => None,
                };
                for ticket in out.iter().filter_map(persisted).collect::<Vec<_>>() {
                    register.step(Time::ZERO, Input::Persisted(ticket), &mut out);
                }
                out
            };
            let place = |address: &str| NodeAddress { node: NODES[1], address: address.into() };
            say(Message::Join { node: place("here:1") });
            let told = say(Message::Join { node: place("there:1") });
            let version = told.iter().find_map(|effect| match effect {
                RoleEffect::Send {
                    message: roles::Message::Control(Message::Elsewhere { version }), ..
                } => Some(*version),
                _ => None,
            });
            let version = version.expect("it receives the other known address");
            let said = Message::Elsewhere { version };
            assert_eq!(decode_one::<Message>(encode_one(&said)).unwrap(), said);
            let told = say(Message::Move { node: place("there:1"), version });
            let knows = |effect: &RoleEffect| matches!(effect, RoleEffect::Send { message: roles::Message::Control(Message::Cluster { nodes }), .. } if *nodes == [place("there:1")]);
            assert!(told.iter().any(knows), "{told:?}");
        }
    }

    #[test]
    fn parts_that_are_taken_at_different_times_and_what_happened_meanwhile_are_the_whole() {
        for seed in 0..200 {
            let mut state_of_random: u64 = seed;
            let mut random = |below: u64| {
                state_of_random = state_of_random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state_of_random >> 33) % below
            };
            let mut register = Register::new(NODES[0], Options::default());
            for request in 0..60 {
                draw(&register, &mut random, request).into_iter().for_each(|record| register.apply(record));
            }
            let (mut journal, mut since, mut last) = (vec![], vec![], None);
            loop {
                let (part, goes_on) = register.snapshot(last, 1 + seed as usize % 4);
                journal.extend(part);
                for request in 100..100 + random(4) {
                    let Some(record) = draw(&register, &mut random, request) else { continue };
                    since.push(encode_one(&record));
                    register.apply(record);
                }
                last = goes_on;
                if last.is_none() {
                    break;
                }
            }
            let entries = [journal, since].concat();
            let again = Register::recover(NODES[0], Options::default(), entries).unwrap();
            assert_eq!(state(&again), state(&register), "seed {seed}");
        }
    }
}
