//! The messages of registers, controllers, roles and clients about views.

#![expect(missing_docs, reason = "the message has a comment; the names of its fields suffice")]

use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{
    EndedSession, Endpoint, Incarnation, LogConfig, LogEntry, LogId, NodeId, Position, RetentionChange,
    ShardId, View, ViewNumber,
};

use super::condition::Condition;
use super::parting::{NodeParting, PartingChange};
use crate::parts::Carried;
use crate::roles::{self, Family};

/// The `request` of a [`Lookup`](Message::Lookup) that subscribes to news: the register answers at
/// once, and for a few seconds sends `Found` again for each newer view. News may be older than the
/// question. The answer to any other `request` was true at some moment after the question.
pub const NEWS: u64 = 0;

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no log '{name}'")]
    NoSuchLog { name: String },
    #[error("a log '{name}' exists already")]
    Exists { name: String },
    /// The request cannot be met.
    #[error("{reason}")]
    Impossible {
        /// The mistake and the remedy.
        reason: String,
    },
}

wire_enum! { Refusal { 1 => NoSuchLog { name }, 2 => Exists { name }, 3 => Impossible { reason } } }

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    pub node: NodeId,
    /// `host:port`.
    pub address: String,
}

wire_struct! { NodeAddress { node, address } }

/// Node to node: the sender is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub incarnation: u64,
    pub count: u64,
    /// The receiver's incarnation, as in its latest heartbeat.
    pub heard_incarnation: u64,
    /// The `count` of that heartbeat.
    pub heard_count: u64,
    /// Number of times that the sender's process paused for longer than other nodes tolerate.
    pub pauses: u64,
    pub ailment: Option<Ailment>,
    /// Number of the receiver's messages that reached the sender, except over heartbeat
    /// connections.
    pub taken: u64,
    /// Random number of the sender's disk, drawn when its journal began.
    pub disk: u64,
    /// The last durable entry of the sender's journal.
    pub durable: u64,
    /// The receiver's last durable entry, as its earlier incarnations reported it for its present
    /// disk.
    pub remembered: u64,
}

wire_struct! {
    Heartbeat {
        incarnation, count, heard_incarnation, heard_count, pauses, ailment, taken, disk, durable, remembered
    }
}

/// Why a live node cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// A journal write hangs.
    DiskStalled,
    /// One step of its machines takes too long.
    Stuck,
    /// Its messages except heartbeats do not reach the receiver of this heartbeat.
    Unheard,
    /// Its disk has no room for records; all else works. Earlier builds cannot decode this variant
    /// and treat the sender as lost.
    DiskFull,
}

wire_enum! { Ailment { 1 => DiskStalled {}, 2 => Stuck {}, 3 => Unheard {}, 4 => DiskFull {} } }

/// When a step of a view change was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTime {
    pub step: String,
    pub micros_ago: u64,
}

wire_struct! { StepTime { step, micros_ago } }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedState {
    pub ordered: Position,
    /// Number of entries beyond `ordered`.
    pub held: u64,
}

wire_struct! { SealedState { ordered, held as number } }

/// Control messages. Each answer repeats the asker's `request`.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Controller to register: asks for the entry. Register to controller: a new or changed log
    /// needs a view.
    Get { log: LogId },
    /// Controller to register: asks for the entry, without a view change. The controller's host
    /// delays only `Get`, so that view changes take turns.
    Peek { log: LogId },
    /// Register to controller: the current entry. Also answers `CompareAndSet`, won or lost, and
    /// `EndSession`.
    Current { entry: LogEntry },
    /// Register to controller: the log was deleted or never existed.
    Gone { log: LogId },
    /// Controller to register: replaces the entry if its `version` is still current.
    CompareAndSet { entry: LogEntry },

    /// Client to register: asks for a log by name.
    Lookup {
        /// A number, or [`NEWS`].
        request: u64,
        name: String,
    },
    /// Answers `Lookup`.
    Found { request: u64, entry: LogEntry, nodes: Vec<NodeAddress> },
    /// Client to register: asks for all logs.
    List { request: u64 },
    /// Answers `List`, in the order of names.
    Listing { request: u64, entries: Vec<LogEntry>, nodes: Vec<NodeAddress> },
    /// Client to register: creates a log.
    Create {
        /// Random; equal for retransmissions, so the log is created once.
        request: u64,
        name: String,
        config: LogConfig,
    },
    /// Client to register: deletes the log with this id, not a newer one of that name. Idempotent.
    Delete { request: u64, name: String, log: LogId },
    /// Client to register: adds this shard. Idempotent.
    AddShard {
        request: u64,
        log: LogId,
        /// The shard's number: one above the last.
        shard: ShardId,
    },
    /// Client to register: closes a shard to new records. Its records stay until trimmed.
    RemoveShard { request: u64, log: LogId, shard: ShardId },
    /// Client to register: changes the log's limits. Idempotent.
    SetRetention { request: u64, log: LogId, change: RetentionChange },
    /// Client to register: sets a pin, or moves it up. Idempotent.
    Pin {
        request: u64,
        log: LogId,
        name: String,
        position: Position,
        /// `None`: as before; for a new pin the default.
        most_bytes: Option<u64>,
    },
    /// Client to register: removes a pin. Idempotent.
    Unpin { request: u64, log: LogId, name: String },
    /// Client to register: the session ended in `view`, unless another run ended it first. Answered
    /// by `Current`.
    EndSession {
        log: LogId,
        /// The session gets no further positions in this view.
        view: ViewNumber,
        ended: EndedSession,
        /// Position of the session's last record, or of its opening.
        since: Position,
    },
    /// Register to client: done, durably.
    Done { request: u64, log: LogId },
    /// Register to client: not done.
    Refused { request: u64, refusal: Refusal },

    /// Controller to controllers: the attempt makes progress.
    Underway { claim: ViewNumber },
    /// Register, or a node that forwards to it, to client: unavailable. The client retries.
    Unanswered { why: String },

    /// Node to register: the node's address. Replaces no other known address, since the message may
    /// be a late one of an older incarnation.
    Join { node: NodeAddress },
    /// Register to node: the register knows another address of this node. The node answers with
    /// `Move`.
    Elsewhere {
        /// Version of that address.
        version: u64,
    },
    /// Node to register: replaces the address if `version` is still current.
    Move { node: NodeAddress, version: u64 },
    /// Node to node: see [`Heartbeat`].
    Heartbeat(Heartbeat),
    /// Node to node: sent if no other message was, so that [`Heartbeat::taken`] can grow.
    Probe,
    /// Answers `Probe`.
    Probed,
    /// Register to node, node to controller: the joined nodes.
    Cluster { nodes: Vec<NodeAddress> },

    /// Role to controller: the role is in no view, and should be in one.
    Report {
        /// The role's last view as a member.
        view: ViewNumber,
        /// A registered view for which the role is not staged; zero if none.
        cannot_start: ViewNumber,
        incarnation: Incarnation,
    },
    /// To roles and controllers: the registered entry.
    Registered { entry: LogEntry },
    /// To a role: no view can be formed.
    Unavailable { why: String },
    /// Register to node: forget a deleted log.
    RemoveLog { log: LogId },
    /// Controller to sequencing replica: change nothing more in the old view, and reject lower
    /// claims.
    Seal {
        claim: ViewNumber,
        /// The registered view when the controller made the claim.
        old: ViewNumber,
        /// Used if the node has no such replica yet.
        config: LogConfig,
    },
    /// Chosen replica to controller: the flush makes progress.
    Flushing {
        claim: ViewNumber,
        /// The replica's entries below this position are on the shards.
        bound: Position,
    },
    /// Answers `Seal`.
    Sealed {
        claim: ViewNumber,
        incarnation: Incarnation,
        /// `None` unless the replica has the state of the old view.
        state: Option<SealedState>,
    },
    /// Replica to controller: it knows this higher claim.
    Preempted { claim: ViewNumber },
    /// Replica to controller: rejects the claim. The replica knows a registered view that the claim
    /// ignores, so the register was set back.
    Ahead { claim: ViewNumber, view: ViewNumber },
    /// Controller to chosen replica: write your entries to the new view's shards.
    Flush {
        claim: ViewNumber,
        /// The sealed view.
        old: ViewNumber,
        /// The replica's incarnation when it was sealed.
        incarnation: Incarnation,
        /// The new view, as known before the flush.
        view: View,
    },
    /// Answers `Flush`.
    Flushed {
        claim: ViewNumber,
        first: Position,
        /// Exclusive.
        end: Position,
        carried: Carried,
    },
    /// Controller to prospective member: prepare this starting state beside the present one.
    Stage {
        claim: ViewNumber,
        /// The registered view.
        old: ViewNumber,
        /// Used if the node has no such replica yet.
        config: LogConfig,
        ordered: Position,
        carried: Carried,
    },
    /// Answers `Stage`, durably.
    Staged { claim: ViewNumber, incarnation: Incarnation },
    /// Controller to node: drop this role, unless it obeys a claim above `view`.
    Dismiss { log: LogId, role: Endpoint, view: ViewNumber },
    /// Operator to controller: asks for the loss if the log continues without records that no
    /// replica holds; or accepts it.
    Recover { request: u64, accepts: bool },
    /// Answers `Recover`.
    Recovered {
        request: u64,
        /// Whether the log has a view.
        done: bool,
        /// Whether continuing loses something.
        lost: bool,
        /// For a person: the certain and the uncertain positions, or why no view can be formed.
        text: String,
    },
    /// To a controller: asks for the times of its last view change.
    LastChange { request: u64 },
    /// Answers `LastChange`.
    LastChangeIs { request: u64, view: ViewNumber, steps: Vec<StepTime> },
    /// Client to node: asks for its condition.
    AskCondition { request: u64 },
    /// Answers `AskCondition`.
    ConditionIs { request: u64, condition: Condition },
    /// Client to node, if the register is silent: asks for known logs and nodes.
    AskKnown { request: u64 },
    /// Answers `AskKnown`.
    KnownIs {
        request: u64,
        /// In the order of ids; perhaps outdated.
        entries: Vec<LogEntry>,
        /// Includes the node itself.
        nodes: Vec<NodeAddress>,
    },
    /// Client to register: drains, keeps or removes a node. Idempotent.
    Part { request: u64, node: NodeId, change: PartingChange },
    /// Client to register: asks for drained and removed nodes.
    AskPartings { request: u64 },
    /// Answers `AskPartings`, in the order of nodes.
    PartingsAre { request: u64, partings: Vec<NodeParting> },
    /// Register to node, node to controller: the drained and removed nodes; all others stay. Sent
    /// after the first drain, since earlier builds cannot decode it.
    Partings { partings: Vec<NodeParting> },
    /// Node to register: answers `Partings`, which is retransmitted until then.
    PartingsKnown { node: NodeId, partings: Vec<NodeParting> },
    /// Node to register: answers `RemoveLog`.
    Retired { log: LogId, node: NodeId },
}

// In `wire_enum!` below, number 10 is unused: it was a deletion by name alone.
impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        match to {
            Endpoint::Register => matches!(
                self,
                Self::Lookup { .. }
                    | Self::List { .. }
                    | Self::Create { .. }
                    | Self::Delete { .. }
                    | Self::AddShard { .. }
                    | Self::RemoveShard { .. }
                    | Self::SetRetention { .. }
                    | Self::Pin { .. }
                    | Self::Unpin { .. }
                    | Self::Part { .. }
                    | Self::AskPartings { .. }
                    | Self::EndSession { .. }
            ),
            Endpoint::Node => matches!(self, Self::AskCondition { .. } | Self::AskKnown { .. }),
            Endpoint::Controller => matches!(self, Self::Recover { .. } | Self::LastChange { .. }),
            _ => false,
        }
    }

    fn not_hosted(&self) -> Option<roles::Message> {
        match self {
            // The view names a role that the node does not host: the node lost its disk.
            Self::Registered { entry } => {
                let (view, cannot_start) = (ViewNumber::NONE, entry.view_number());
                Some(Self::Report { view, cannot_start, incarnation: Incarnation(0) }.into())
            }
            _ => None,
        }
    }
}

wire_enum! {
    Message {
        1 => Get { log },
        2 => Current { entry },
        3 => Gone { log },
        4 => CompareAndSet { entry },
        5 => Lookup { request, name },
        6 => Found { request, entry, nodes },
        7 => List { request },
        8 => Listing { request, entries, nodes },
        9 => Create { request, name, config },
        11 => Done { request, log },
        12 => Refused { request, refusal },
        13 => Join { node },
        14 => Cluster { nodes },
        15 => Heartbeat(beat),
        16 => Report { view, cannot_start, incarnation },
        17 => Registered { entry },
        18 => Unavailable { why },
        19 => RemoveLog { log },
        20 => Retired { log, node },
        21 => Delete { request, name, log },
        22 => Unanswered { why },
        23 => Elsewhere { version as number },
        24 => Move { node, version as number },
        25 => AddShard { request, log, shard },
        26 => RemoveShard { request, log, shard },
        27 => EndSession { log, view, ended, since },
        30 => Seal { claim, old, config },
        31 => Sealed { claim, incarnation, state },
        32 => Preempted { claim },
        33 => Flush { claim, old, incarnation, view },
        34 => Flushed { claim, first, end, carried },
        35 => Stage { claim, old, config, ordered, carried },
        36 => Staged { claim, incarnation },
        37 => Flushing { claim, bound },
        38 => Ahead { claim, view },
        40 => Dismiss { log, role, view },
        41 => Recover { request, accepts },
        42 => Recovered { request, done, lost, text },
        43 => LastChange { request },
        44 => LastChangeIs { request, view, steps },
        45 => AskCondition { request },
        46 => ConditionIs { request, condition },
        47 => Underway { claim },
        48 => Probe {},
        49 => SetRetention { request, log, change },
        50 => Peek { log },
        51 => AskKnown { request },
        52 => KnownIs { request, entries, nodes },
        53 => Part { request, node, change },
        54 => AskPartings { request },
        55 => PartingsAre { request, partings },
        56 => Partings { partings },
        57 => PartingsKnown { node, partings },
        58 => Probed {},
        59 => Pin { request, log, name, position, most_bytes },
        60 => Unpin { request, log, name },
    }
}

impl Message {
    /// The log that a message is about, if the sender works for several logs.
    #[must_use]
    pub fn log(&self) -> Option<LogId> {
        match self {
            Self::Get { log } | Self::Peek { log } | Self::Gone { log } => Some(*log),
            Self::Current { entry } | Self::CompareAndSet { entry } | Self::Registered { entry } => {
                Some(entry.id)
            }
            _ => None,
        }
    }
}
