//! The promises that replicas gave to controllers, and whether they keep them.
//!
//! An answer to a seal or a fence promises to obey no older view any more, in all of this life of the
//! replica: also after a restart, if it comes back as the same. Others than controllers are only told.

use std::collections::BTreeMap;

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, Incarnation, NodeId, ViewNumber};
use seriatim_protocol::{Message, control, shard};

use super::World;

/// The highest claim that each life of a replica of the tested log said yes to.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    given: BTreeMap<(NodeId, Endpoint, Incarnation), ViewNumber>,
}

impl Promises {
    /// The highest claim that a life promised to obey.
    fn of(&self, node: NodeId, role: Endpoint, life: Incarnation) -> ViewNumber {
        self.given.get(&(node, role, life)).copied().unwrap_or(ViewNumber::NONE)
    }
}

impl World {
    /// Notes what a message promises, and whether it breaks what was promised before.
    pub(super) fn observe_promise(&mut self, id: NodeId, outgoing: &Outgoing) {
        let Some((life, _)) = self.life_and_claim(id, outgoing.from) else { return };
        let confirmed = match &outgoing.message {
            Message::Control(
                control::Message::Sealed { claim, .. } | control::Message::Staged { claim, .. },
            )
            | Message::Shard(shard::Message::Fenced { claim, .. })
                if outgoing.to == Endpoint::Controller =>
            {
                let known = self.promises.given.entry((id, outgoing.from, life)).or_default();
                *known = (*known).max(*claim);
                return;
            }
            message => match message.confirms() {
                Some(view) => view,
                None => return,
            },
        };
        let promised = self.promises.of(id, outgoing.from, life);
        if confirmed < promised {
            self.history.broken_promises.push(format!(
                "node {id}, {:?}, promised to obey nobody below {promised}, and says: {:?}",
                outgoing.from, outgoing.message
            ));
        }
    }

    /// Whether the roles of a node that just started remember what they promised.
    pub(super) fn observe_start(&mut self, id: NodeId) {
        let shards = self.history.shards().map(Endpoint::Shard);
        for role in shards.chain([Endpoint::Sequencer]) {
            let Some((life, claim)) = self.life_and_claim(id, role) else { continue };
            let promised = self.promises.of(id, role, life);
            if claim < promised {
                let broken = format!(
                    "node {id}, {role:?}, promised {promised}, and remembers {claim} after a restart"
                );
                self.history.broken_promises.push(broken);
            }
        }
    }

    fn life_and_claim(&self, id: NodeId, role: Endpoint) -> Option<(Incarnation, ViewNumber)> {
        let host = self.nodes[&id].host.as_ref()?;
        match role {
            Endpoint::Sequencer => {
                host.sequencer(self.log).map(|replica| (replica.member().incarnation, replica.claim()))
            }
            Endpoint::Shard(shard) => {
                let memory = host.replica(self.log, shard)?.memory();
                Some((memory.incarnation, memory.claim))
            }
            _ => None,
        }
    }
}
