//! Public state of a node: number, roles, problems.

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
    /// This node's number.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// Roles that could not be restored, and later problems, for an operator.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Why the node has stopped, if so. It must be restarted.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether the register seems to know this node.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        self.join_at.is_none()
    }

    /// A node's address, if known.
    #[must_use]
    pub fn address_of(&self, node: NodeId) -> Option<&str> {
        self.others.address_of(node)
    }

    /// The sequencing role of a log, if hosted here.
    #[must_use]
    pub fn sequencer(&self, log: LogId) -> Option<&dyn SequencingRole> {
        match self.roles.get(&RoleKey { log, endpoint: Endpoint::Sequencer })? {
            Role::Sequencer(role) => Some(&**role),
            _ => None,
        }
    }

    /// The replica of a shard, if hosted here.
    #[must_use]
    pub fn replica(&self, log: LogId, shard: ShardId) -> Option<&Replica> {
        match self.roles.get(&RoleKey { log, endpoint: Endpoint::Shard(shard) })? {
            Role::Shard(role, _) => Some(role),
            _ => None,
        }
    }

    /// Whether this is a shard replica with a missing range.
    pub(crate) fn is_copying(&self, key: RoleKey) -> bool {
        matches!(self.roles.get(&key), Some(Role::Shard(role, _)) if role.missing().is_some())
    }

    /// The controller of a log, if hosted here.
    #[must_use]
    pub fn controller(&self, log: LogId) -> Option<&Controller> {
        match self.roles.get(&RoleKey { log, endpoint: Endpoint::Controller })? {
            Role::Controller(role) => Some(role),
            _ => None,
        }
    }

    /// The register, if hosted here.
    #[must_use]
    pub fn register(&self) -> Option<&Register> {
        match self.roles.get(&REGISTER)? {
            Role::Register(role) => Some(role),
            _ => None,
        }
    }
}
