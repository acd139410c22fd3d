//! Roles that each client connection addressed, to notify them of its end.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{ConnectionId, Input, Peer, Time};
use seriatim_protocol::Message;
use seriatim_store::RoleKey;

use crate::host::Host;

/// Invariant: no set is empty.
#[derive(Debug, Default)]
pub(crate) struct Visitors {
    roles: BTreeMap<ConnectionId, BTreeSet<RoleKey>>,
}

impl Visitors {
    pub(crate) fn note(&mut self, connection: ConnectionId, key: RoleKey) {
        self.roles.entry(connection).or_default().insert(key);
    }

    fn leave(&mut self, connection: ConnectionId) -> BTreeSet<RoleKey> {
        let roles = self.roles.remove(&connection);
        assert!(roles.as_ref().is_none_or(|roles| !roles.is_empty()), "{connection:?} spoke to a role");
        roles.unwrap_or_default()
    }
}

impl Host {
    /// Notifies roles of a closed connection, on which messages may be lost: for a node all roles,
    /// for a client the roles that it addressed.
    pub(crate) fn disconnected(&mut self, now: Time, peer: Peer) {
        self.register_proxy.forget(peer);
        let keys = match peer {
            Peer::Node(_) => self.roles.keys().copied().collect(),
            Peer::Client(connection) => self.visitors.leave(connection),
        };
        for key in keys {
            self.step(now, key, Input::<Message, _>::Disconnected(peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Endpoint, LogId};

    use super::*;

    #[test]
    fn a_connection_that_leaves_names_the_roles_it_spoke_to_once() {
        let key = |log| RoleKey { log: LogId(log), endpoint: Endpoint::Sequencer };
        let mut visitors = Visitors::default();
        visitors.note(ConnectionId(1), key(1));
        visitors.note(ConnectionId(1), key(1));
        visitors.note(ConnectionId(1), key(2));
        visitors.note(ConnectionId(2), key(3));
        assert_eq!(visitors.leave(ConnectionId(1)), BTreeSet::from([key(1), key(2)]));
        assert_eq!(visitors.leave(ConnectionId(1)), BTreeSet::new());
        assert_eq!(visitors.roles.len(), 1);
    }
}
