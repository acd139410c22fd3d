//! The messages of the register, the controllers, the roles and the clients about views.

use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{
    EndedSession, Endpoint, Incarnation, LogConfig, LogEntry, LogId, NodeId, Position, RetentionChange,
    ShardId, View, ViewNumber,
};

use super::condition::Condition;
use super::parting::{NodeParting, PartingChange};
use crate::parts::Carried;
use crate::roles::{self, Family};

/// The number of a lookup that is about news: the register answers at once with what it knows,
/// under the same number, and for a while with every newer view as soon as it is registered.
/// Another number names a question whose answer was true at some moment after it was asked.
pub const NEWS: u64 = 0;

/// Why the register did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No log has that name.
    #[error("there is no log '{name}'")]
    NoSuchLog {
        /// The name asked for.
        name: String,
    },
    /// A log has that name.
    #[error("a log '{name}' exists already")]
    Exists {
        /// The name asked for.
        name: String,
    },
    /// The choices for the log cannot be met.
    #[error("{reason}")]
    Impossible {
        /// The mistake, and what would be right.
        reason: String,
    },
}

wire_enum! { Refusal { 1 => NoSuchLog { name }, 2 => Exists { name }, 3 => Impossible { reason } } }

/// A node and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The node.
    pub node: NodeId,
    /// `host:port`.
    pub address: String,
}

wire_struct! { NodeAddress { node, address } }

/// A node is there, and hears. See the node's detector of silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// This incarnation of the sender.
    pub incarnation: u64,
    /// Counts its heartbeats.
    pub count: u64,
    /// The incarnation of the receiver that the sender heard last.
    pub heard_incarnation: u64,
    /// The count that it heard last.
    pub heard_count: u64,
    /// How often the sender found that it had been stopped for longer than others tolerate.
    pub pauses: u64,
    /// Why the sender cannot serve at present, if it cannot.
    pub ailment: Option<Ailment>,
    /// How many messages of the receiver the sender has taken over other connections than those of
    /// heartbeats.
    pub taken: u64,
    /// Which disk the sender has: a number that was drawn when its journal began.
    pub disk: u64,
    /// The last entry of its journal that is durable.
    pub durable: u64,
    /// The last entry that earlier incarnations of the receiver showed of the disk that it has, as
    /// far as the sender knows.
    pub remembered: u64,
}

wire_struct! {
    Heartbeat {
        incarnation, count, heard_incarnation, heard_count, pauses, ailment, taken, disk, durable, remembered
    }
}

/// Why a node that is there cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// A write of its journal does not end.
    DiskStalled,
    /// It does not get through a single step.
    Stuck,
    /// Its messages do not reach the receiver of this, heartbeats apart.
    Unheard,
    /// Its disk has no room for records. It can do everything else. A node of an earlier build does
    /// not understand the heartbeats that say so, and does without their sender as without a lost
    /// one.
    DiskFull,
}

wire_enum! { Ailment { 1 => DiskStalled {}, 2 => Stuck {}, 3 => Unheard {}, 4 => DiskFull {} } }

/// When a step of a view change was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// Its name.
    pub step: String,
    /// How long ago, in microseconds.
    pub micros_ago: u64,
}

wire_struct! { StepTime { step, micros_ago } }

/// The state that a sealed replica brings to a view change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedState {
    /// Its `ordered`.
    pub ordered: Position,
    /// How many entries it holds.
    pub held: u64,
}

wire_struct! { SealedState { ordered, held as number } }

/// Control messages. `request` numbers are the asker's; answers repeat them.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Controller to register: the entry of this log, please. Register to controller: this log is
    /// new, and waits for its first view.
    Get {
        /// The log.
        log: LogId,
    },
    /// Controller to register: the same, where no view is to be changed. Views take turns, and this
    /// does not.
    Peek {
        /// The log.
        log: LogId,
    },
    /// Register to controller: the entry as it is now; also the answer to a compare-and-set, won or
    /// lost, and to the end of a session.
    Current {
        /// The entry.
        entry: LogEntry,
    },
    /// Register to controller: no such log; it never existed or was deleted.
    Gone {
        /// The log.
        log: LogId,
    },
    /// Controller to register: replace the entry, if its version is still `entry.version`.
    CompareAndSet {
        /// The new entry, with the version that it was derived from.
        entry: LogEntry,
    },

    /// Client to register: the entry of the log with this name.
    Lookup {
        /// Names the question, or is [`NEWS`].
        request: u64,
        /// The log's name.
        name: String,
    },
    /// Register to client: the entry, and where the nodes are.
    Found {
        /// The question answered.
        request: u64,
        /// The entry.
        entry: LogEntry,
        /// Where the nodes are.
        nodes: Vec<NodeAddress>,
    },
    /// Client to register: all entries.
    List {
        /// Names the question.
        request: u64,
    },
    /// Register to client: all entries, and where the nodes are.
    Listing {
        /// The question answered.
        request: u64,
        /// The entries, in the order of names.
        entries: Vec<LogEntry>,
        /// Where the nodes are.
        nodes: Vec<NodeAddress>,
    },
    /// Client to register: create a log.
    Create {
        /// Names the question. Drawn at random: a client that has no answer asks again under the
        /// same number, and the log is created once.
        request: u64,
        /// Its name.
        name: String,
        /// The promises that it shall make.
        config: LogConfig,
    },
    /// Client to register: delete this log, and no other that may have its name by then. If it is
    /// deleted already, that is done: a client that has no answer asks again.
    Delete {
        /// Names the question.
        request: u64,
        /// Its name.
        name: String,
        /// Which log.
        log: LogId,
    },
    /// Client to register: this log is to have one more shard, of this number. If it has one
    /// already, that is done: a client that has no answer asks again.
    AddShard {
        /// Names the question.
        request: u64,
        /// The log.
        log: LogId,
        /// The number of the new shard: as many as there were ever.
        shard: ShardId,
    },
    /// Client to register: this shard is to take no new records. What it holds stays until it is
    /// trimmed.
    RemoveShard {
        /// Names the question.
        request: u64,
        /// The log.
        log: LogId,
        /// The shard.
        shard: ShardId,
    },
    /// Client to register: this is to become of what the log keeps at most. If it is so already,
    /// that is done.
    SetRetention {
        /// Names the question.
        request: u64,
        /// The log.
        log: LogId,
        /// Which limits change.
        change: RetentionChange,
    },
    /// Client to register: this session of the log has ended, as this view has it, unless another
    /// run was faster. The answer is the entry as it is then.
    EndSession {
        /// The log.
        log: LogId,
        /// The view in which nothing more of the session is given a position.
        view: ViewNumber,
        /// The end.
        ended: EndedSession,
        /// Where the session's last record is; if it has none, where it was opened.
        since: Position,
    },
    /// Register to client: done, durably.
    Done {
        /// The question answered.
        request: u64,
        /// The log.
        log: LogId,
    },
    /// Register to client: not done.
    Refused {
        /// The question answered.
        request: u64,
        /// Why.
        refusal: Refusal,
    },

    /// Controller to controllers: the attempt at the view that was claimed makes progress.
    Underway {
        /// The claim.
        claim: ViewNumber,
    },
    /// Register to client, or a node that passes the client's questions on to it: the register
    /// cannot be used at present. The client asks again.
    Unanswered {
        /// The reason, for an operator to read.
        why: String,
    },

    /// Node to register: I am here. Another address is not replaced by this: it may be late, and
    /// tell of an older incarnation.
    Join {
        /// The node, and where it listens.
        node: NodeAddress,
    },
    /// Register to node: you are known at another address.
    Elsewhere {
        /// Names the last news that the register had about the node.
        version: u64,
    },
    /// Node to register: I am here, and not where you knew me to be, unless you have newer news of
    /// me.
    Move {
        /// The node, and where it listens.
        node: NodeAddress,
        /// The version that is replaced.
        version: u64,
    },
    /// Node to node: I am here, and this is what I heard of you.
    Heartbeat(Heartbeat),
    /// Node to node: something to be taken, where there was nothing else to say for a while. See
    /// [`Heartbeat::taken`].
    Probe,
    /// Node to node: a probe was taken.
    Probed,
    /// Register to node, node to controller: the nodes that joined so far.
    Cluster {
        /// The nodes.
        nodes: Vec<NodeAddress>,
    },

    /// Role to controller: I do not take part in a view, and should.
    Report {
        /// The view that it was last part of.
        view: ViewNumber,
        /// A registered view that it was shown and cannot start, because it is not prepared for it.
        cannot_start: ViewNumber,
        /// This incarnation of the replica.
        incarnation: Incarnation,
    },
    /// To a role: this is registered.
    Registered {
        /// The register's entry.
        entry: LogEntry,
    },
    /// To a role: no view can be formed at present, and why.
    Unavailable {
        /// The reason, for an operator to read.
        why: String,
    },
    /// Register to node: the log was deleted; forget its roles.
    RemoveLog {
        /// The log.
        log: LogId,
    },
    /// Controller to replica: obey no lower claim any more.
    Seal {
        /// The claim.
        claim: ViewNumber,
        /// The view that was registered when it was claimed.
        old: ViewNumber,
        /// The log's promises, for a replica that is new.
        config: LogConfig,
    },
    /// The chosen replica to the controller: not yet, but it goes on.
    Flushing {
        /// The claim.
        claim: ViewNumber,
        /// How far it is.
        bound: Position,
    },
    /// Replica to controller: sealed.
    Sealed {
        /// The claim.
        claim: ViewNumber,
        /// This incarnation of the replica.
        incarnation: Incarnation,
        /// The state that it holds of the old view, if it was part of it.
        state: Option<SealedState>,
    },
    /// Replica to controller: a higher claim was seen.
    Preempted {
        /// The highest claim seen.
        claim: ViewNumber,
    },
    /// Replica to controller: it knows a registered view that is later than the one that the claim
    /// replaces, so the register was set back. It does not obey the claim.
    Ahead {
        /// The claim.
        claim: ViewNumber,
        /// The view that was registered.
        view: ViewNumber,
    },
    /// Controller to the chosen replica: bind what you hold, under the new view.
    Flush {
        /// The claim, which the entries are tagged with.
        claim: ViewNumber,
        /// The view whose state was sealed.
        old: ViewNumber,
        /// The incarnation of the replica that was sealed.
        incarnation: Incarnation,
        /// The new view as far as it is known: its shards and placement.
        view: View,
    },
    /// The chosen replica to the controller: all of it is on the shards.
    Flushed {
        /// The claim.
        claim: ViewNumber,
        /// Where the flush started.
        first: Position,
        /// Where it ended.
        end: Position,
        /// The knowledge that the next view begins with.
        carried: Carried,
    },
    /// Controller to every replica that is to be a member: be prepared to start like this.
    Stage {
        /// The claim.
        claim: ViewNumber,
        /// The view that is registered until then.
        old: ViewNumber,
        /// The log's promises, for a replica that is new.
        config: LogConfig,
        /// `ordered` at the start.
        ordered: Position,
        /// The knowledge at the start.
        carried: Carried,
    },
    /// Replica to controller: prepared, and durable so.
    Staged {
        /// The claim.
        claim: ViewNumber,
        /// This incarnation of the replica.
        incarnation: Incarnation,
    },
    /// Controller to node: the log does not need this role any more, if it obeys no claim above
    /// that view.
    Dismiss {
        /// The log.
        log: LogId,
        /// Which role.
        role: Endpoint,
        /// The view that is registered without it.
        view: ViewNumber,
    },
    /// Operator to controller: what would be lost if the log went on without the records that no
    /// replica holds any more? Or: go on.
    Recover {
        /// Names the question.
        request: u64,
        /// Whether to go on.
        accepts: bool,
    },
    /// Controller to operator: the answer.
    Recovered {
        /// The question answered.
        request: u64,
        /// Whether a view was registered.
        done: bool,
        /// Whether going on would lose something.
        lost: bool,
        /// The facts that are certain and those that are not, or the obstacle.
        text: String,
    },
    /// To a controller: when were the steps of the last view change done?
    LastChange {
        /// Names the question.
        request: u64,
    },
    /// The answer.
    LastChangeIs {
        /// The question answered.
        request: u64,
        /// The view that this controller registered last.
        view: ViewNumber,
        /// The steps, in order.
        steps: Vec<StepTime>,
    },
    /// Client to node: how are you?
    AskCondition {
        /// Names the question.
        request: u64,
    },
    /// The answer.
    ConditionIs {
        /// The question answered.
        request: u64,
        /// How the node is.
        condition: Condition,
    },
    /// Client to node, when the register does not answer: which logs and nodes do you know of?
    AskKnown {
        /// Names the question.
        request: u64,
    },
    /// The answer.
    KnownIs {
        /// The question answered.
        request: u64,
        /// The entries of the logs as the node's controllers know them, in the order of ids; they
        /// may be old.
        entries: Vec<LogEntry>,
        /// The nodes that it knows, itself included.
        nodes: Vec<NodeAddress>,
    },
    /// Client to register: this is to become of a node. If it is so already, that is done.
    Part {
        /// Names the question.
        request: u64,
        /// The node.
        node: NodeId,
        /// The operator's order for it.
        change: PartingChange,
    },
    /// Client to register: which nodes do not stay?
    AskPartings {
        /// Names the question.
        request: u64,
    },
    /// Register to client: these.
    PartingsAre {
        /// The question answered.
        request: u64,
        /// The planned outcome for each node that does not stay, in the order of nodes.
        partings: Vec<NodeParting>,
    },
    /// Register to node, node to controller: these nodes do not stay, and all others do. Nodes of
    /// earlier builds do not understand it; it is sent from when the first is drained.
    Partings {
        /// The planned outcome for each node that does not stay, in the order of nodes.
        partings: Vec<NodeParting>,
    },
    /// Node to register: it knows these partings. Until it says so the register tells it again.
    PartingsKnown {
        /// Which node.
        node: NodeId,
        /// The planned outcomes that it knows.
        partings: Vec<NodeParting>,
    },
    /// Node to register: the log's roles are forgotten here.
    Retired {
        /// The log.
        log: LogId,
        /// The node.
        node: NodeId,
    },
}

// 10 was a deletion by name alone.
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
            // The node lost its disk, and with it a role that the log counts on.
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
    }
}

impl Message {
    /// The log that the message is about, where its sender may work for several.
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
