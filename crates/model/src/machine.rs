//! The interface between a protocol and the world.
//!
//! A machine never waits, reads a clock, draws a random number or touches a device. It receives
//! inputs and returns effects. A server performs the effects with sockets and files, the simulator
//! from a seed. The machine cannot tell which.

use bytes::Bytes;

use crate::position::Position;
use crate::record::{IdRun, Record, RecordId};
use crate::retention::StoreUse;
use crate::storage::{Owned, ReadOutcome, ReadRange, StorageCommand, StorageFailure};
use crate::time::Time;
use crate::view::{NodeId, ShardId};
use crate::wire::wire_enum;

/// One role of one protocol: a sequencing replica, a shard replica, a client. Deterministic: the
/// same inputs at the same times give the same effects.
pub trait Machine {
    /// Messages between machines.
    type Message;
    /// Requests of the application; an empty type if the machine takes none.
    type Request;
    /// Answers to requests.
    type Reply;

    /// Handles an input and appends the effects. `now` never decreases.
    fn step(
        &mut self,
        now: Time,
        input: Input<Self::Message, Self::Request>,
        out: &mut Vec<Effect<Self::Message, Self::Reply>>,
    );

    /// Latest time at which the machine needs an [`Input::Wake`]; `None` if it needs none.
    fn deadline(&self) -> Option<Time>;
}

/// Number of a role's write. A role numbers its writes from 1; they become durable in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A client's connection to a node, numbered by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A machine of a log on a node or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// The view register with the catalog.
    Register,
    /// The controller of the log's views.
    Controller,
    /// The sequencing replica of the log.
    Sequencer,
    /// The replica of one of the log's shards.
    Shard(ShardId),
    /// A machine of a client. The client chooses the number.
    Client(u64),
    /// The node itself, which hosts the roles.
    Node,
}

wire_enum! {
    Endpoint { 1 => Register {}, 2 => Controller {}, 3 => Sequencer {}, 4 => Shard(shard), 5 => Client(number), 6 => Node {} }
}

/// Sender or receiver of a message, within one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A role on a node.
    Node(NodeId, Endpoint),
    /// A machine of a client, behind a connection to this node.
    Client(ConnectionId, u64),
}

/// An event for a machine.
#[derive(Clone, Debug)]
pub enum Input<M, Q> {
    /// A message, maybe late, repeated, or out of order with other senders' messages.
    Message {
        /// The sender.
        from: Address,
        /// The message itself.
        message: M,
    },
    /// A connection closed. Messages sent over it may be lost.
    Disconnected(Peer),
    /// A connection to the node closed, or its heartbeats are missing.
    Suspected(NodeId),
    /// A suspected node answers again.
    Alive(NodeId),
    /// All writes up to this ticket are durable.
    Persisted(Ticket),
    /// The storage command failed, without visible effect.
    StoreFailed(Ticket, StorageFailure),
    /// The outcome of a read.
    Read(Ticket, ReadOutcome),
    /// Answer to [`Effect::Find`]: the records that exist undamaged.
    Found(Ticket, Vec<(RecordId, Record)>),
    /// Answer to [`Effect::Map`]: owners of the positions from the requested start up to the
    /// requested end or the last known position.
    Mapped(Ticket, Vec<Owned>),
    /// The storage command with this ticket failed, and later reads show none of it.
    Measured(Ticket, StoreUse, u64, Vec<IdRun>),
    /// The node's wall clock, in milliseconds since 1970. It may be wrong or jump.
    Wall(u64),
    /// The node's disk is full (true) or has room again (false).
    DiskFull(bool),
    /// A node's self-reported disk state: full (true) or not (false).
    FullDisk(NodeId, bool),
    /// Whether too much waits for the node's disk, mostly of this log. Appends are then answered
    /// `Busy`.
    Pressed(bool),
    /// Answer to [`Effect::Find`]: the requested records that exist undamaged.
    Request {
        /// Token of the request and its reply.
        token: u64,
        /// The request itself.
        request: Q,
    },
    /// The deadline passed.
    Wake,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A node of the cluster.
    Node(NodeId),
    /// A client.
    Client(ConnectionId),
}

impl Address {
    /// The other end of the connection to this address.
    #[must_use]
    pub fn peer(self) -> Peer {
        match self {
            Self::Node(node, _) => Peer::Node(node),
            Self::Client(connection, _) => Peer::Client(connection),
        }
    }
}

/// An action for the world to perform.
#[derive(Clone, Debug)]
pub enum Effect<M, R> {
    /// Send a message.
    Send {
        /// The receiver.
        to: Address,
        /// The message itself.
        message: M,
    },
    /// Add an entry to the role's journal, from which a restart rebuilds the role.
    Persist {
        /// Comes back in [`Input::Persisted`].
        ticket: Ticket,
        /// The encoded entry.
        entry: Vec<Bytes>,
    },
    /// Change the shard's record store, visible to later reads.
    Store {
        /// Comes back in [`Input::Persisted`] or [`Input::StoreFailed`].
        ticket: Ticket,
        /// The change.
        command: StorageCommand,
    },
    /// Read from the shard's record store.
    Read {
        /// Comes back in [`Input::Read`].
        ticket: Ticket,
        /// The range to read.
        range: ReadRange,
        /// Whether a client waits. Such reads may run after all other work.
        is_for_client: bool,
    },
    /// Look up records put without final position.
    Find {
        /// Comes back in [`Input::Found`].
        ticket: Ticket,
        /// Their ids.
        ids: Vec<IdRun>,
    },
    /// Look up the valid owners of `from..end`.
    Map {
        /// Comes back in [`Input::Mapped`].
        ticket: Ticket,
        /// The first position.
        from: Position,
        /// The position after the last.
        end: Position,
    },
    /// Measure the record store's room on disk.
    Measure {
        /// Comes back in [`Input::Measured`].
        ticket: Ticket,
    },
    /// Answer a request of the application.
    Reply {
        /// The request's token.
        token: u64,
        /// The answer.
        reply: R,
    },
}
