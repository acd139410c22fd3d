//! A node as others see it: its number, its roles, and its problems.

use seriatim_model::{Endpoint, LogId, NodeId, ShardId};
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::control::register::Register;
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::shard::Replica;
use seriatim_store::RoleKey;

use crate::host::{Host, REGISTER};
use crate::recovery::Problem;
use crate::role::Role;

impl Host {
    /// Which node this is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// The problems that are for an operator: roles that could not be brought back, and those that
    /// came up since.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Why the node cannot go on, if it cannot: it obeys no controller any more and has to be
    /// started again.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether the register knows this node, as far as can be told.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        self.join_at.is_none()
    }

    /// Where a node listens, as far as is known.
    #[must_use]
    pub fn address_of(&self, node: NodeId) -> Option<&str> {
        self.others.address_of(node)
    }

    /// The sequencing role of a log, if it is hosted here.
    #[must_use]
    pub fn sequencer(&self, log: LogId) -> Option<&dyn SequencingRole> {
        match self.roles.get(&RoleKey { log, endpoint: Endpoint::Sequencer })? {
            Role::Sequencer(role) => Some(&**role),
            _ => None,
        }
    }

    /// The replica of one of a log's shards, if it is hosted here.
    #[must_use]
    pub fn replica(&self, log: LogId, shard: ShardId) -> Option<&Replica> {
        match self.roles.get(&RoleKey { log, endpoint: Endpoint::Shard(shard) })? {
            Role::Shard(role, _) => Some(role),
            _ => None,
        }
    }

    /// Whether this is a replica of a shard that gets records from others.
    pub(crate) fn is_copying(&self, key: RoleKey) -> bool {
        matches!(self.roles.get(&key), Some(Role::Shard(role, _)) if role.missing().is_some())
    }

    /// The controller of a log, if it is hosted here.
    #[must_use]
    pub fn controller(&self, log: LogId) -> Option<&Controller> {
        match self.roles.get(&RoleKey { log, endpoint: Endpoint::Controller })? {
            Role::Controller(role) => Some(role),
            _ => None,
        }
    }

    /// The register, if it is hosted here.
    #[must_use]
    pub fn register(&self) -> Option<&Register> {
        match self.roles.get(&REGISTER)? {
            Role::Register(role) => Some(role),
            _ => None,
        }
    }
}
