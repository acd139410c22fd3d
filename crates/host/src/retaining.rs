//! The node's part in retention: clocks, and sizes of stores.

use seriatim_model::retention::StoreUse;
use seriatim_model::{Address, Endpoint, Input, LogId, ShardId, Ticket, Time};
use seriatim_protocol::Message;
use seriatim_protocol::control;
use seriatim_store::RoleKey;

use crate::host::Host;
use crate::role::Role;

impl Host {
    /// Notes the wall clock, in milliseconds since 1970. It may be wrong or jump.
    pub fn note_wall(&mut self, wall_ms: u64) {
        self.wall_ms = Some(wall_ms);
    }

    /// Room that a replica's store takes on disk, if hosted here.
    #[must_use]
    pub fn store_use(&self, log: LogId, shard: ShardId) -> Option<StoreUse> {
        match self.roles.get(&RoleKey { log, endpoint: Endpoint::Shard(shard) })? {
            Role::Shard(_, store) => Some(store.measure()),
            _ => None,
        }
    }

    pub(crate) fn tell_wall(&mut self, now: Time, key: RoleKey) {
        if let (Endpoint::Controller, Some(wall_ms)) = (key.endpoint, self.wall_ms) {
            self.step(now, key, Input::Wall(wall_ms));
        }
    }

    /// Passes a registered view from the leader to the controller beside it, which may have missed
    /// the view.
    pub(crate) fn introduce_leader(&mut self, key: RoleKey, from: Address, message: &Message) {
        let Message::Control(control::Message::Registered { entry }) = message else { return };
        let leads = entry.view.as_ref().is_some_and(|view| view.leader == self.config.node);
        if key.endpoint == Endpoint::Sequencer && leads && self.wall_ms.is_some() {
            let controller = RoleKey { log: key.log, endpoint: Endpoint::Controller };
            self.local.push_back((controller, Input::Message { from, message: message.clone() }));
        }
    }

    pub(crate) fn measure(&mut self, key: RoleKey, ticket: Ticket) {
        if let Some(Role::Shard(_, store)) = self.roles.get(&key) {
            let (usage, going, ids) = (store.measure(), store.going_bytes(), store.held_ids());
            self.local.push_back((key, Input::Measured(ticket, usage, going, ids)));
        }
    }
}
