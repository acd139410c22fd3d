//! Promises of replicas to controllers, and whether they are kept.
//!
//! An answer to a seal or a fence promises to obey no older view in this incarnation of the
//! replica, also after a restart with the same incarnation. Answers to others promise nothing.

use std::collections::BTreeMap;

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, Incarnation, NodeId, ViewNumber};
use seriatim_protocol::{Message, control, shard};

use super::scene::Scene;
use super::truth::Nodes;

/// Highest claim accepted by each incarnation.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    given: BTreeMap<(NodeId, Endpoint, Incarnation), ViewNumber>,
}

impl Promises {
    pub(super) fn heard(&mut self, scene: &mut Scene, nodes: &Nodes, id: NodeId, outgoing: &Outgoing) {
        let role = nodes[&id].incarnation_and_claim(scene.log, outgoing.from);
        let broken = role.and_then(|(incarnation, _)| self.say(id, incarnation, outgoing));
        scene.history.broken_promises.extend(broken);
    }

    pub(super) fn started(&self, scene: &mut Scene, nodes: &Nodes, id: NodeId) {
        let shards = scene.history.shards().map(Endpoint::Shard);
        let roles: Vec<Endpoint> = shards.chain([Endpoint::Sequencer]).collect();
        for role in roles {
            let known = nodes[&id].incarnation_and_claim(scene.log, role);
            let broken = known.and_then(|known| self.remember(id, role, known));
            scene.history.broken_promises.extend(broken);
        }
    }

    fn of(&self, node: NodeId, role: Endpoint, incarnation: Incarnation) -> ViewNumber {
        self.given.get(&(node, role, incarnation)).copied().unwrap_or(ViewNumber::NONE)
    }

    /// Returns a text if the message breaks an earlier promise.
    fn say(&mut self, node: NodeId, incarnation: Incarnation, outgoing: &Outgoing) -> Option<String> {
        let confirmed = match &outgoing.message {
            Message::Control(
                control::Message::Sealed { claim, .. } | control::Message::Staged { claim, .. },
            )
            | Message::Shard(shard::Message::Fenced { claim, .. })
                if outgoing.to == Endpoint::Controller =>
            {
                let known = self.given.entry((node, outgoing.from, incarnation)).or_default();
                *known = (*known).max(*claim);
                return None;
            }
            message => message.confirms()?,
        };
        let promised = self.of(node, outgoing.from, incarnation);
        let Outgoing { from, message, .. } = outgoing;
        (confirmed < promised).then(|| {
            format!("node {node}, {from:?}, promised to obey nobody below {promised}, and says: {message:?}")
        })
    }

    /// Returns a text if the replica forgot a promise in a restart.
    fn remember(
        &self,
        node: NodeId,
        role: Endpoint,
        (incarnation, claim): (Incarnation, ViewNumber),
    ) -> Option<String> {
        let promised = self.of(node, role, incarnation);
        (claim < promised).then(|| {
            format!("node {node}, {role:?}, promised {promised}, and remembers {claim} after a restart")
        })
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{LogId, Peer, Position, ShardId};

    use super::*;

    const NODE: NodeId = NodeId(2);
    const SHARD: Endpoint = Endpoint::Shard(ShardId(0));

    fn says(to: Endpoint, message: Message) -> Outgoing {
        Outgoing { log: LogId(1), from: SHARD, peer: Peer::Node(NodeId(1)), to, message }
    }

    fn sealed(to: Endpoint, claim: u64) -> Outgoing {
        let (claim, incarnation) = (ViewNumber(claim), Incarnation(1));
        says(to, control::Message::Sealed { claim, incarnation, state: None }.into())
    }

    fn confirmed(view: u64) -> Outgoing {
        let message = shard::Message::Replicated { view: ViewNumber(view), batch: Position::ZERO };
        says(Endpoint::Client(1), message.into())
    }

    #[test]
    fn a_life_that_promised_a_claim_confirms_nothing_below() {
        let (mut promises, incarnation) = (Promises::default(), Incarnation(1));
        assert_eq!(promises.say(NODE, incarnation, &confirmed(3)), None);
        promises.say(NODE, incarnation, &sealed(Endpoint::Controller, 5));
        promises.say(NODE, incarnation, &sealed(Endpoint::Client(1), 9));
        assert_eq!(promises.say(NODE, incarnation, &confirmed(5)), None, "clients are only told");
        assert!(promises.say(NODE, incarnation, &confirmed(4)).is_some());
        assert_eq!(
            promises.say(NODE, Incarnation(2), &confirmed(4)),
            None,
            "another incarnation promised nothing"
        );
    }

    #[test]
    fn a_restart_does_not_forget_a_promise() {
        let mut promises = Promises::default();
        promises.say(NODE, Incarnation(1), &sealed(Endpoint::Controller, 5));
        let remember = |incarnation, claim| {
            promises.remember(NODE, SHARD, (Incarnation(incarnation), ViewNumber(claim)))
        };
        assert!(remember(1, 4).is_some());
        assert!(remember(1, 5).is_none() && remember(2, 0).is_none());
    }
}
