//! The control plane: it decides which roles take part in which view.
//!
//! The *register* ([`register::Register`]) keeps one entry per log: its configuration, nodes,
//! highest claim and latest view. Each compare-and-set replaces a whole entry. Each implementation
//! of the register (a role of a node, or etcd) applies the rules in [`catalog`]. The *controller*
//! of a log ([`controller::Controller`]) drives a view change through the register (LazyLog §4.5,
//! docs/design/views.md "View change"); it needs no durable state. The handover (`handover.rs`) of
//! the log's ordering decides which positions of the ending view remain, which replicas write
//! (flush) them to the shards, and where the next view begins.
//!
//! ```text
//!  controller      register     sequencers          shard replicas
//!      |--- get ------>|             |                     |
//!      |--- claim v -->|             |                     |      1 claim (compare-and-set)
//!      |--- Seal v ----|------------>|  frozen             |      2 seal
//!      |<--------------|--- Sealed --|                     |      3 choose one
//!      |--- Fence v ---|-------------|-------------------->|      4 fence
//!      |--- Flush v ---|------------>|--- Bind v --------->|      5 flush, by the chosen one
//!      |<--------------|-- Flushed --|<--- Bound ----------|
//!      |--- Stage v ---|------------>|  beside its old     |      6 stage
//!      |<--------------|--- Staged --|  state              |
//!      |-- register v->|             |                     |      7 register (compare-and-set)
//!      |--- Registered |------------>|-------------------->|      8 start
//! ```
//!
//! In Corfu the sequencer holds no records, so no role is sealed, and the shards flush themselves:
//!
//! ```text
//!  controller      register     sequencer           shard replicas
//!      |--- Fence v ---|-------------|-------------------->|      4 fence
//!      |--- Flush v ---|-------------|-------------------->|      5 flush, one replica per shard
//!      |<--------------|-------------|------- Flushed -----|
//!      |--- Stage v ---|------------>|                     |      6 stage, then as above
//! ```
//!
//! A role without the latest view sends a `Report` and receives the entry: any copy of the
//! registered entry suffices to start the view.

mod attempt;
pub mod audience;
mod awaiting;
pub mod catalog;
pub mod condition;
pub mod controller;
mod data_loss;
mod evidence;
mod flush;
mod handover;
mod inventory;
mod members;
pub mod message;
mod operator;
mod pace;
pub mod parting;
pub mod poll;
mod recovery;
pub mod register;
mod rejoin_backoff;
mod retaining;
mod retiring;
mod room;
mod selection;
mod shard_set;
pub(crate) mod stale_register;
mod status;
pub mod survey;
#[cfg(test)]
pub(crate) mod testing;
mod timings;

pub use seriatim_model::{EndedSession, EndedSessions, LogEntry};

pub use awaiting::{Awaited, Awaiting};
pub use condition::{Condition, LeftOut, LogCondition, ReplicaOf};
pub(crate) use evidence::Evidence;
pub(crate) use flush::{Flush, FlushRange};
pub(crate) use handover::Handover;
pub use handover::placed_from;
pub use inventory::{Inventory, Known};
pub use message::{Ailment, Heartbeat, Message, NodeAddress, Refusal, SealedState, StepTime};
pub use parting::{NodeParting, Parting, PartingChange, Partings};
pub use poll::Poll;
pub use recovery::{Recovered, Recovery};
pub use retaining::Trimmed;
pub use status::Status;

use seriatim_model::Address;

use crate::roles::{self, RoleEffect};

fn send(to: Address, message: impl Into<roles::Message>, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
