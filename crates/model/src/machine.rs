//! The one interface between a protocol and the world.
//!
//! A machine never waits, asks the clock, draws a random number or touches a device. It is told
//! what happened and answers with what is to be done. A server performs the effects with sockets
//! and files; the simulator performs them from a seed. Neither is visible to the machine.

use bytes::Bytes;

use crate::position::Position;
use crate::record::{IdRun, Record, RecordId};
use crate::retention::StoreUse;
use crate::storage::{Owned, ReadOutcome, ReadRange, StorageCommand, StorageFailure};
use crate::time::Time;
use crate::view::{NodeId, ShardId};
use crate::wire::wire_enum;

/// One role of one protocol: a sequencing replica, a shard replica, a client.
///
/// Deterministic: the same inputs at the same times give the same effects.
pub trait Machine {
    /// The messages that it exchanges with other machines.
    type Message;
    /// The requests of the application that holds it; an empty type for a role that has none.
    type Request;
    /// Its answer to a request.
    type Reply;

    /// Takes one input at `now` and appends the effects. `now` never decreases from call to call.
    fn step(
        &mut self,
        now: Time,
        input: Input<Self::Message, Self::Request>,
        out: &mut Vec<Effect<Self::Message, Self::Reply>>,
    );

    /// When it wants an [`Input::Wake`] at the latest, if nothing else happens before.
    fn deadline(&self) -> Option<Time>;
}

/// Numbers the writes of one role, from 1, in the order in which they leave. They become durable in
/// that order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A connection of a client to a node, numbered by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Which machine of a log is meant on a node or a connection.
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
    /// A machine of a client, numbered by the client.
    Client(u64),
    /// The node itself, which hosts the roles.
    Node,
}

wire_enum! {
    Endpoint { 1 => Register {}, 2 => Controller {}, 3 => Sequencer {}, 4 => Shard(shard), 5 => Client(number), 6 => Node {} }
}

/// Where a message comes from or goes to. The log is that of the machine that sees the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A role on a node.
    Node(NodeId, Endpoint),
    /// A machine of a client, behind a connection to the node that hosts the machine that sees
    /// this.
    Client(ConnectionId, u64),
}

/// An event that a machine is told of.
#[derive(Clone, Debug)]
pub enum Input<M, Q> {
    /// A message arrived. It may be late, repeated, or out of order with those of other senders.
    Message {
        /// The sender.
        from: Address,
        /// The message itself.
        message: M,
    },
    /// The connection to a node, or of a client, is gone; what was sent over it may be lost.
    Disconnected(Peer),
    /// A node does not answer any more: a connection to it closed, or its heartbeats are missing.
    Suspected(NodeId),
    /// A node that was suspected answers again.
    Alive(NodeId),
    /// All writes up to this ticket are durable.
    Persisted(Ticket),
    /// The storage command with this ticket was not carried out. Nothing of it will be visible.
    StoreFailed(Ticket, StorageFailure),
    /// A read came back.
    Read(Ticket, ReadOutcome),
    /// Records that were looked for by name: those that are there and whole.
    Found(Ticket, Vec<(RecordId, Record)>),
    /// Which shards hold the positions from the one that was asked for on, as far as the store
    /// knows and no further than was asked.
    Mapped(Ticket, Vec<Owned>),
    /// The room that the shard's record store takes on its disk, how many bytes of that are trimmed
    /// and going to be deleted, and names of records that it holds without a final position, a few
    /// of them.
    Measured(Ticket, StoreUse, u64, Vec<IdRun>),
    /// The time by the node's clock on the wall, in milliseconds since 1970. It may be wrong, and
    /// be set at any time.
    Wall(u64),
    /// The node's disk ran out of room (true) or has room again (false).
    DiskFull(bool),
    /// By its own word, the disk of a node, this one or another, has no room for records (true), or
    /// has enough again (false).
    FullDisk(NodeId, bool),
    /// More waits for the node's disk than should, of this role's log above all: what a client
    /// brings is answered `Busy` (true), or admitted again (false).
    Pressed(bool),
    /// The application asks for something.
    Request {
        /// Names the request; its reply carries the same token.
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
    /// The other end of the connection that leads to this address.
    #[must_use]
    pub fn peer(self) -> Peer {
        match self {
            Self::Node(node, _) => Peer::Node(node),
            Self::Client(connection, _) => Peer::Client(connection),
        }
    }
}

/// An action that a machine asks for.
#[derive(Clone, Debug)]
pub enum Effect<M, R> {
    /// Send a message.
    Send {
        /// To whom.
        to: Address,
        /// The message itself.
        message: M,
    },
    /// Add an entry to the role's journal. After a restart the role is rebuilt from its entries.
    Persist {
        /// Comes back in [`Input::Persisted`].
        ticket: Ticket,
        /// The entry's bytes.
        entry: Vec<Bytes>,
    },
    /// Change the shard's record store. Visible to reads that leave later.
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
        /// Whether a client waits for the records. Such reads may be done after everything else
        /// that the node has to do.
        is_for_client: bool,
    },
    /// Look for records that were put and have no final position yet.
    Find {
        /// Comes back in [`Input::Found`].
        ticket: Ticket,
        /// Their names.
        ids: Vec<IdRun>,
    },
    /// Look up which shards hold the positions in `from..end`, by the valid versions.
    Map {
        /// Comes back in [`Input::Mapped`].
        ticket: Ticket,
        /// The first position.
        from: Position,
        /// The position after the last.
        end: Position,
    },
    /// Look how much the shard's record store takes on its disk.
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
