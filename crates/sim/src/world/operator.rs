//! The operator: asks what is lost when the log says that it lost something, and accepts it.

use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{Endpoint, NodeId, Position, ShardId};
use seriatim_protocol::{Message, control};

use super::clients::Clients;
use super::cluster::Cluster;
use super::frames::{frame, open};
use super::scene::{Happening, Scene};
use crate::history::{Acceptance, Gap};
use crate::network::Party;

/// The operator, as a client.
pub(super) const OPERATOR: u32 = 10_002;
/// How often the operator looks.
const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// After how many looks without an answer the operator asks again.
const PATIENCE: u32 = 20;

/// The operator's knowledge.
#[derive(Debug, Default)]
pub(super) struct Operator {
    request: u64,
    /// For how many more looks an answer is awaited.
    awaits: u32,
    /// The records that would be lost, as far as the operator was told.
    told: Option<(Position, Vec<Gap>)>,
}

impl Operator {
    /// The operator looks whether the log needs anybody, once nothing goes wrong any more.
    pub(super) fn looks(&mut self, cluster: &mut Cluster, clients: &mut Clients) {
        cluster.scene.schedule(cluster.scene.now + LOOKS_EVERY, Happening::OperatorLooks);
        let says_so = cluster.entry().and_then(|entry| entry.unavailable.as_deref());
        let needs_somebody = says_so.is_some_and(|why| why.contains("admin recover"));
        if cluster.scene.history.calm_since.is_none() || !needs_somebody {
            return;
        }
        self.awaits = self.awaits.saturating_sub(1);
        if self.awaits > 0 {
            return;
        }
        let has_controller = |id: &NodeId| {
            cluster.node(*id).host.as_ref().is_some_and(|host| host.controller(cluster.scene.log).is_some())
        };
        let nodes: Vec<NodeId> = cluster.ids().into_iter().filter(has_controller).collect();
        if nodes.is_empty() {
            return;
        }
        let node = cluster.scene.random.pick(&nodes);
        self.awaits = PATIENCE;
        self.request += 1;
        let request = self.request;
        let accepts = self.told.is_some();
        if let (Some((certain, gaps)), None) = (self.told.clone(), &cluster.scene.history.accepted) {
            cluster.excuse_spoiled();
            let at = cluster.scene.history.tick();
            cluster.scene.tell(format_args!("the operator accepts to lose {certain}.. and {gaps:?}"));
            // Records that were read before say nothing of what is there after.
            clients.trim_no_more();
            cluster.scene.history.accepted = Some(Acceptance { at, certain, gaps, done: None });
        }
        let message = control::Message::Recover { request, accepts };
        let bytes = frame(cluster.scene.log, Endpoint::Client(0), Endpoint::Controller, &message.into());
        cluster.transmit(Party::Client(OPERATOR), Party::Node(node), bytes);
    }

    /// The operator is answered.
    pub(super) fn hears(&mut self, scene: &mut Scene, bytes: &Bytes) {
        let (_, _, _, message) = open(bytes.clone()).expect("what was encoded is decoded");
        let Message::Control(control::Message::Recovered { request, done, lost, text }) = message else {
            return;
        };
        if request != self.request {
            return;
        }
        scene.tell(format_args!("the operator is told: done {done}, lost {lost}, {text}"));
        self.awaits = 1;
        let moment = scene.history.tick();
        if let Some(accepted) = scene.history.accepted.as_mut().filter(|_| done) {
            accepted.done = Some(moment);
            scene.coverage.accepted_losses += 1;
        } else if lost && scene.history.accepted.is_none() {
            let told = bounds_in(&text);
            if told.is_none() {
                scene.note_problem(format!("the operator was told no certain bound: {text}"));
            }
            self.told = told;
        }
    }
}

/// The certain bound, and the gaps below it, in what an operator is told.
fn bounds_in(text: &str) -> Option<(Position, Vec<Gap>)> {
    let mut words = text.split_whitespace().map(|word| word.trim_end_matches([',', ';']));
    let mut numbers = |after: &str| -> Option<u64> {
        words.by_ref().find(|word| *word == after)?;
        words.next()?.parse().ok()
    };
    let certain = Position(numbers("below")?);
    let mut gaps = vec![];
    while let Some(shard) = numbers("shard") {
        let (from, end) = (numbers("from")?, numbers("to")?);
        gaps.push((ShardId(u32::try_from(shard).ok()?), Position(from), Position(end)));
    }
    Some((certain, gaps))
}
