//! A cluster of fake nodes over loopback TCP that follow the test's script, without the protocol's
//! safety.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use seriatim_client::{LogConfig, LogEntry, NodeId, Position, RecordId, SessionId};
use seriatim_model::limits::Limits;
use seriatim_model::storage::Stored;
use seriatim_model::{
    Endpoint, Incarnation, LogId, Member, Order, Placement, Record, ShardId, ShardMembers, Span, View,
    ViewHistory, ViewNumber,
};
use seriatim_net::{Accepted, ClusterId, Identity, ListenOptions, Listener, message_frame, open_message};
use seriatim_protocol::control::{self, NodeAddress, Refusal};
use seriatim_protocol::parts::{Content, sequencing};
use seriatim_protocol::{Message, erwin, shard};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a fake sequencing replica does with an append instead of storing and acknowledging it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Busy,
    Disconnect,
    Silence,
    /// Stores the records, and disconnects instead of acknowledging.
    HoldAndDisconnect,
    Forget,
}

/// Nodes 1 to n, each with a sequencing replica. Node 1 leads; its records are the log.
pub(crate) struct Cluster {
    state: Arc<Mutex<State>>,
    addresses: Vec<String>,
    servers: BTreeMap<NodeId, JoinHandle<()>>,
    connections: watch::Receiver<i64>,
}

pub(crate) struct State {
    pub entry: Option<LogEntry>,
    pub nodes: Vec<NodeAddress>,
    pub replicas: BTreeMap<NodeId, Replica>,
    /// Nodes that received a register question, one entry per question.
    pub lookups: Vec<NodeId>,
    /// Nodes that never answer register questions.
    pub deaf: BTreeSet<NodeId>,
    /// Number of register questions that the nodes will handle without answering.
    pub lost_answers: usize,
    pub created_by: Option<u64>,
    /// Nodes that received a read, one entry per read.
    pub reads: Vec<NodeId>,
    pub trim: Position,
    /// Number of empty positions before the first record, and after the last.
    pub empty: (u64, u64),
}

#[derive(Default)]
pub(crate) struct Replica {
    pub held: Vec<(RecordId, Record)>,
    pub next: BTreeMap<SessionId, u64>,
    pub faults: VecDeque<Fault>,
    pub is_slow: bool,
}

enum Reaction {
    Answer(Vec<Message>),
    Ignore,
    Disconnect,
}

impl From<erwin::Message> for Reaction {
    fn from(message: erwin::Message) -> Self {
        Self::Answer(vec![message.into()])
    }
}

impl From<sequencing::Message> for Reaction {
    fn from(message: sequencing::Message) -> Self {
        Self::Answer(vec![message.into()])
    }
}

impl From<shard::Message> for Reaction {
    fn from(message: shard::Message) -> Self {
        Self::Answer(vec![message.into()])
    }
}

impl From<control::Message> for Reaction {
    fn from(message: control::Message) -> Self {
        Self::Answer(vec![message.into()])
    }
}

/// A view with sequencing replicas on `nodes`, and its only shard on the first.
pub(crate) fn view(number: u64, nodes: &[u32]) -> View {
    let member = |node: &u32| Member { node: NodeId(*node), incarnation: Incarnation(1) };
    View {
        number: ViewNumber(number),
        sequencers: nodes.iter().map(member).collect(),
        leader: NodeId(nodes[0]),
        shards: vec![ShardMembers {
            shard: ShardId(0),
            begins: Position::ZERO,
            replicas: vec![member(&nodes[0])],
        }],
        retired: vec![],
        placement: Placement::new(vec![ShardId(0)], 64),
        first: Position(0),
        start: Position(0),
    }
}

fn log_entry(nodes: Vec<u32>) -> LogEntry {
    LogEntry {
        id: LogId(7),
        name: "orders".into(),
        // The replicas here take whole records.
        config: LogConfig { order: Order::ErwinBb, ..LogConfig::default() },
        sequencers: vec![],
        shards: vec![],
        leaving: vec![],
        version: 1,
        claimed: ViewNumber(1),
        claimant: 0,
        view: Some(view(1, &nodes)),
        history: ViewHistory::default(),
        unavailable: None,
        ended: control::EndedSessions::default(),
        pins: vec![],
    }
}

impl Cluster {
    pub(crate) async fn start(count: u32) -> Self {
        let numbers: Vec<u32> = (1..=count).collect();
        let entry = log_entry(numbers.clone());
        let state = Arc::new(Mutex::new(State {
            entry: Some(entry),
            nodes: vec![],
            replicas: numbers.iter().map(|node| (NodeId(*node), Replica::default())).collect(),
            lookups: vec![],
            deaf: BTreeSet::new(),
            lost_answers: 0,
            created_by: None,
            reads: vec![],
            trim: Position(0),
            empty: (0, 0),
        }));
        let (count, connections) = watch::channel(0);
        let mut cluster = Self { state, addresses: vec![], servers: BTreeMap::new(), connections };
        for node in numbers {
            let listener = Listener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.address().to_string();
            cluster.state().nodes.push(NodeAddress { node: NodeId(node), address: address.clone() });
            cluster.addresses.push(address);
            let server = serve(listener, NodeId(node), Arc::clone(&cluster.state), count.clone());
            cluster.servers.insert(NodeId(node), tokio::spawn(server));
        }
        cluster
    }

    pub(crate) fn address(&self, node: u32) -> &str {
        &self.addresses[node as usize - 1]
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test thread panicked")
    }

    /// Sets the faults of the next appends at `node`, one per append.
    pub(crate) fn faults(&self, node: u32, faults: impl IntoIterator<Item = Fault>) {
        self.state().replicas.get_mut(&NodeId(node)).expect("it exists").faults.extend(faults);
    }

    pub(crate) fn register(&self, number: u64, nodes: &[u32]) {
        let mut state = self.state();
        let entry = state.entry.as_mut().expect("the log exists");
        (entry.version, entry.view) = (number, Some(view(number, nodes)));
    }

    /// Record numbers on `node`, in order of arrival.
    pub(crate) fn held(&self, node: u32) -> Vec<u64> {
        self.state().replicas[&NodeId(node)].held.iter().map(|(id, _)| id.number).collect()
    }

    pub(crate) async fn stop(&mut self, node: u32) {
        let server = self.servers.remove(&NodeId(node)).expect("it runs");
        server.abort();
        let _ = server.await;
    }

    pub(crate) async fn all_gone(&mut self) {
        self.connections.wait_for(|count| *count == 0).await.expect("the cluster runs");
    }
}

async fn serve(listener: Listener, node: NodeId, state: Arc<Mutex<State>>, count: watch::Sender<i64>) {
    let identity = Identity::new(ClusterId(5), node, 1, &Limits::default());
    let mut incoming = listener.serve(identity, ListenOptions::default());
    let mut clients = tokio::task::JoinSet::new();
    loop {
        let accepted = incoming.next().await;
        let (state, count) = (Arc::clone(&state), count.clone());
        clients.spawn(async move {
            count.send_modify(|count| *count += 1);
            talk(accepted, node, &state).await;
            count.send_modify(|count| *count -= 1);
        });
    }
}

async fn talk(accepted: Accepted, node: NodeId, state: &Mutex<State>) {
    let mut connection = accepted.connection.attach().expect("there are descriptors");
    while let Ok(Some(frames)) = connection.receiver.receive().await {
        for frame in frames {
            let (log, from, to, message) = open_message::<Message>(frame).expect("a client speaks well");
            let reaction = state.lock().expect("no test thread panicked").react(node, to, message);
            match reaction {
                Reaction::Answer(answers) => {
                    for answer in answers {
                        let chunks = message_frame(log, to, from, &answer).expect("it fits");
                        let _ = connection.sender.send(chunks);
                    }
                }
                Reaction::Ignore => {}
                Reaction::Disconnect => return,
            }
        }
    }
}

impl State {
    fn react(&mut self, node: NodeId, to: Endpoint, message: Message) -> Reaction {
        match (to, message) {
            (Endpoint::Register, Message::Control(message)) => {
                self.lookups.push(node);
                if self.deaf.contains(&node) {
                    return Reaction::Ignore;
                }
                let answer = self.register(message);
                match self.lost_answers.checked_sub(1) {
                    Some(left) => {
                        self.lost_answers = left;
                        Reaction::Ignore
                    }
                    None => answer,
                }
            }
            (Endpoint::Sequencer, Message::Erwin(message)) => self.sequence(node, message),
            (Endpoint::Sequencer, Message::Sequencing(message)) => self.asked(node, message),
            (Endpoint::Shard(_), Message::Shard(message)) => {
                self.reads.push(node);
                self.shard(message)
            }
            (to, message) => panic!("{message:?} to {to:?}"),
        }
    }

    fn register(&mut self, message: control::Message) -> Reaction {
        let nodes = self.nodes.clone();
        match message {
            control::Message::Lookup { request, name } => match &self.entry {
                Some(entry) if entry.name == name => {
                    control::Message::Found { request, entry: entry.clone(), nodes }.into()
                }
                _ => control::Message::Refused { request, refusal: Refusal::NoSuchLog { name } }.into(),
            },
            control::Message::List { request } => {
                let entries = self.entry.iter().cloned().collect();
                control::Message::Listing { request, entries, nodes }.into()
            }
            control::Message::Create { request, name, config } => match &self.entry {
                Some(entry) if self.created_by != Some(request) => {
                    let name = entry.name.clone();
                    control::Message::Refused { request, refusal: Refusal::Exists { name } }.into()
                }
                Some(entry) => control::Message::Done { request, log: entry.id }.into(),
                None => {
                    let log = LogId(8);
                    let entry = LogEntry { id: log, name, config, ..log_entry(vec![1]) };
                    (self.entry, self.created_by) = (Some(entry), Some(request));
                    control::Message::Done { request, log }.into()
                }
            },
            control::Message::Delete { request, log, .. } => {
                self.entry.take_if(|entry| entry.id == log);
                control::Message::Done { request, log }.into()
            }
            other => panic!("{other:?}"),
        }
    }

    /// The registered view, and whether this node is a sequencing replica in it.
    fn registered(&self, node: NodeId) -> (ViewNumber, bool) {
        let view = self.entry.as_ref().and_then(|entry| entry.view.as_ref());
        let is_member = view.is_some_and(|view| view.sequencers.iter().any(|member| member.node == node));
        (view.map_or(ViewNumber::NONE, |view| view.number), is_member)
    }

    fn sequence(&mut self, node: NodeId, message: erwin::Message) -> Reaction {
        let (current, is_member) = self.registered(node);
        let replica = self.replicas.get_mut(&node).expect("every node has one");
        match message {
            erwin::Message::Append { view, .. } | erwin::Message::Locate { view, .. }
                if view != current || !is_member =>
            {
                sequencing::Message::Rejected { view: current, why: None }.into()
            }
            erwin::Message::Append { view, session, first, entries, .. } => {
                let record = |entry| match entry {
                    Content::Record(record) => record,
                    Content::Put { .. } => panic!("these logs are of another order"),
                };
                replica.append(view, session, first, entries.into_iter().map(record).collect())
            }
            erwin::Message::Locate { session, number, .. } => {
                let id = RecordId { session, number };
                match replica.held.iter().position(|(held, _)| *held == id) {
                    Some(index) => {
                        erwin::Message::Located { session, number, position: Position(index as u64) }.into()
                    }
                    None => Reaction::Ignore,
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn asked(&mut self, node: NodeId, message: sequencing::Message) -> Reaction {
        let (current, is_member) = self.registered(node);
        let held = self.replicas[&node].held.len() as u64;
        match message {
            sequencing::Message::CheckTail { view, .. } if view != current || !is_member => {
                sequencing::Message::Rejected { view: current, why: None }.into()
            }
            sequencing::Message::CheckTail { request, view } => {
                erwin::Message::Tail { request, view, count: Position(held), held, seen: held }.into()
            }
            sequencing::Message::Status { request } => {
                let (view, tail) = (current, Position(held));
                sequencing::Message::StatusIs { request, view, open: true, tail, held: 0, sessions: 1 }.into()
            }
            other => panic!("{other:?}"),
        }
    }

    fn shard(&mut self, message: shard::Message) -> Reaction {
        let leader =
            self.entry.as_ref().and_then(|entry| entry.view.as_ref()).map_or(NodeId(1), |view| view.leader);
        let held = &self.replicas[&leader].held;
        let (before, behind) = self.empty;
        let (first, last) = (Position(before), Position(before + held.len() as u64));
        let end = last + behind;
        let records = |from: Position, end: Position| -> Vec<Stored> {
            let stored = |(position, (id, record)): (u64, &(RecordId, Record))| Stored {
                position: Position(position),
                id: *id,
                record: record.clone(),
            };
            let positions = (first.0..).zip(held);
            positions.filter(|(position, _)| (from.0..end.0).contains(position)).map(stored).collect()
        };
        let empty = |from: Position, upto: Position| -> Vec<Span> {
            let parts = [(Position::ZERO, first), (last, end)];
            let touched = parts.into_iter().filter(|(start, stop)| *start < upto && from < *stop);
            touched.filter_map(|(start, stop)| Span::between(start.max(from), stop)).collect()
        };
        match message {
            shard::Message::Read { request, from, .. } if from < self.trim => {
                let error = shard::ReadError::Trimmed { first: self.trim };
                shard::Message::ReadFailed { request, error }.into()
            }
            shard::Message::Read { request, from, end: stop, wait_ms, .. } => {
                let upto = end.min(stop).max(from);
                if upto == from && wait_ms > 0 {
                    return Reaction::Ignore;
                }
                let (records, empty) = (records(from, upto), empty(from, upto));
                let upto = empty.last().map_or(upto, |last| last.end().max(upto));
                match empty.is_empty() {
                    true => shard::Message::Records { request, records, upto }.into(),
                    false => shard::Message::RecordsWith { request, records, empty, upto }.into(),
                }
            }
            shard::Message::Subscribe { request, from, .. } => {
                let (upto, view) = (end.max(from), ViewNumber(1));
                let (records, empty) = (records(from, upto), empty(from, upto));
                match empty.is_empty() {
                    true => shard::Message::Deliver { request, view, from, records, upto }.into(),
                    false => shard::Message::DeliverWith { request, view, from, records, empty, upto }.into(),
                }
            }
            shard::Message::Trim { request, position, .. } => {
                self.trim = self.trim.max(position);
                shard::Message::Trimmed { request, first: self.trim }.into()
            }
            shard::Message::Status { request } => {
                let (view, stable, trim) = (ViewNumber(1), end, self.trim);
                shard::Message::StatusIs { request, view, stable, trim }.into()
            }
            shard::Message::Credit { .. } | shard::Message::Cancel { .. } => Reaction::Ignore,
            other => panic!("{other:?}"),
        }
    }
}

impl Replica {
    fn append(&mut self, view: ViewNumber, session: SessionId, first: u64, records: Vec<Record>) -> Reaction {
        let next = self.next.entry(session).or_insert(first);
        let fault = self.faults.pop_front();
        match fault {
            Some(Fault::Busy) => {
                return erwin::Message::Busy { view, session, next: *next, disk_full: false }.into();
            }
            Some(Fault::Disconnect) => return Reaction::Disconnect,
            Some(Fault::Silence) => return Reaction::Ignore,
            Some(Fault::Forget) => return erwin::Message::Expired { session }.into(),
            Some(Fault::HoldAndDisconnect) | None => {}
        }
        if first > *next {
            return erwin::Message::OutOfOrder { view, session, expected: *next }.into();
        }
        let end = if self.is_slow { *next + 1 } else { u64::MAX };
        let is_short = first + records.len() as u64 > end;
        for (number, record) in (first..end).zip(records) {
            if number == *next {
                self.held.push((RecordId { session, number }, record));
                *next += 1;
            }
        }
        let next = *next;
        let mut answers = vec![erwin::Message::Acknowledged { view, session, next }.into()];
        if is_short {
            answers.push(erwin::Message::Busy { view, session, next, disk_full: false }.into());
        }
        match fault {
            Some(_) => Reaction::Disconnect,
            None => Reaction::Answer(answers),
        }
    }
}
