//! Which other nodes answer: heartbeats, one per pair of nodes, whatever they host.
//!
//! A heartbeat carries a count and repeats the latest count heard from the other side. A node counts as
//! *heard* while its answers advance, so a link that works in one direction only is no link. After a
//! silence only an answer to something that was sent later counts: what a dead process had sent before
//! may still arrive.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{Address, Endpoint, Input, LogId, NodeId, Time};
use seriatim_protocol::control::{self, Heartbeat, NodeAddress};
use seriatim_store::RoleKey;

use crate::host::Host;

/// A clock that jumps by so many intervals was stopped: then it is not the others that were silent.
const PAUSED_AFTER: u32 = 3;

/// What became of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It does not answer any more.
    Silent(NodeId),
    /// It answers again, or for the first time.
    Heard(NodeId),
}

/// The other nodes, and since when they answer or not.
#[derive(Debug)]
pub(crate) struct Detector {
    /// This life of the node.
    life: u64,
    every: Duration,
    /// How long a node may be silent.
    patience: Duration,
    count: u64,
    beat_at: Time,
    others: BTreeMap<NodeId, Other>,
}

#[derive(Debug)]
struct Other {
    life: u64,
    count: u64,
    /// The highest of our counts that it repeated.
    answered: u64,
    answered_at: Time,
    /// If it is silent: only an answer to a later count is one.
    silent_since: Option<u64>,
}

impl Detector {
    /// Knows no other node yet. `missed` heartbeats in a row make a node silent.
    pub(crate) fn new(life: u64, every: Duration, missed: u32) -> Self {
        Self { life, every, patience: every * missed, count: 0, beat_at: Time::ZERO, others: BTreeMap::new() }
    }

    /// Another node is there, as far as is known.
    pub(crate) fn add(&mut self, now: Time, node: NodeId) {
        let other = Other { life: 0, count: 0, answered: 0, answered_at: now, silent_since: None };
        self.others.entry(node).or_insert(other);
    }

    /// The nodes that do not answer.
    pub(crate) fn silent(&self) -> impl Iterator<Item = NodeId> {
        self.others.iter().filter(|(_, other)| other.silent_since.is_some()).map(|(node, _)| *node)
    }

    /// When the next heartbeats are due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (!self.others.is_empty()).then_some(self.beat_at)
    }

    /// Sends heartbeats, if they are due. Returns them, and who fell silent.
    pub(crate) fn beat(&mut self, now: Time) -> (Vec<(NodeId, Heartbeat)>, Vec<Change>) {
        if self.others.is_empty() || now < self.beat_at {
            return (vec![], vec![]);
        }
        let was_paused = now >= self.beat_at + self.every * PAUSED_AFTER;
        self.beat_at = now + self.every;
        self.count += 1;
        let mut changes = vec![];
        let mut beats = vec![];
        for (node, other) in &mut self.others {
            if was_paused {
                other.answered_at = now;
            }
            if other.silent_since.is_none() && now >= other.answered_at + self.patience {
                other.silent_since = Some(self.count);
                changes.push(Change::Silent(*node));
            }
            let beat = Heartbeat {
                life: self.life,
                count: self.count,
                heard_life: other.life,
                heard_count: other.count,
            };
            beats.push((*node, beat));
        }
        (beats, changes)
    }

    /// A heartbeat arrived.
    pub(crate) fn heard(&mut self, now: Time, node: NodeId, beat: Heartbeat) -> Vec<Change> {
        let Some(other) = self.others.get_mut(&node) else { return vec![] };
        let mut changes = vec![];
        let restarted = other.life != 0 && beat.life != other.life;
        if restarted && other.silent_since.is_none() {
            other.silent_since = Some(self.count);
            changes.push(Change::Silent(node));
        }
        (other.life, other.count) = (beat.life, beat.count);
        if beat.heard_life == self.life && beat.heard_count > other.answered {
            let is_new = other.answered == 0 && other.silent_since.is_none();
            other.answered = beat.heard_count;
            other.answered_at = now;
            if is_new || other.silent_since.is_some_and(|since| beat.heard_count > since) {
                other.silent_since = None;
                changes.push(Change::Heard(node));
            }
        }
        changes
    }

    /// A connection to a node is gone: it counts as silent until it answers again.
    pub(crate) fn disconnected(&mut self, node: NodeId) -> Option<Change> {
        let other = self.others.get_mut(&node).filter(|other| other.silent_since.is_none())?;
        other.silent_since = Some(self.count);
        Some(Change::Silent(node))
    }
}

impl Host {
    /// The nodes that do not answer.
    pub fn silent(&self) -> impl Iterator<Item = NodeId> {
        self.detector.silent()
    }

    /// Takes note of all nodes that are known.
    pub(crate) fn meet(&mut self, now: Time) {
        for node in self.nodes.keys().filter(|node| **node != self.config.node) {
            self.detector.add(now, *node);
        }
        for key in self.controllers() {
            self.introduce(now, key);
        }
    }

    /// Tells a controller what it has to know of the other nodes.
    pub(crate) fn introduce(&mut self, now: Time, key: RoleKey) {
        let address =
            |(node, address): (&NodeId, &String)| NodeAddress { node: *node, address: address.clone() };
        let message = control::Message::Cluster { nodes: self.nodes.iter().map(address).collect() };
        let from = Address::Node(self.config.node, Endpoint::Node);
        self.step(now, key, Input::Message { from, message: message.into() });
        for node in self.detector.silent().collect::<Vec<_>>() {
            self.step(now, key, Input::Silent(node));
        }
    }

    pub(crate) fn beat(&mut self, now: Time) {
        let (beats, changes) = self.detector.beat(now);
        let own = RoleKey { log: LogId(0), endpoint: Endpoint::Node };
        for (node, beat) in beats {
            self.send(own, Address::Node(node, Endpoint::Node), control::Message::Heartbeat(beat).into());
        }
        self.announce(now, changes);
    }

    /// Tells the controllers what became of a node.
    pub(crate) fn announce(&mut self, now: Time, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            let (Change::Silent(node) | Change::Heard(node)) = change;
            if node == self.register_node() {
                // A register that restarted knows only the nodes that told it since.
                self.join_at = Some(now);
            }
            for key in self.controllers() {
                let input = match change {
                    Change::Silent(node) => Input::Silent(node),
                    Change::Heard(node) => Input::Heard(node),
                };
                self.step(now, key, input);
            }
        }
    }

    fn controllers(&self) -> Vec<RoleKey> {
        let is_controller = |key: &&RoleKey| key.endpoint == Endpoint::Controller;
        self.roles.keys().filter(is_controller).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(20);
    const OTHER: NodeId = NodeId(2);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn detector() -> Detector {
        let mut detector = Detector::new(7, EVERY, 5);
        detector.add(at(0), OTHER);
        detector
    }

    fn answer(detector: &Detector, count: u64) -> Heartbeat {
        Heartbeat { life: 9, count, heard_life: 7, heard_count: detector.count }
    }

    /// Beats until `end`, and says when somebody fell silent.
    fn beat_until(detector: &mut Detector, from: u64, end: u64) -> Option<u64> {
        (from..end).step_by(20).find(|ms| !detector.beat(at(*ms)).1.is_empty())
    }

    #[test]
    fn a_node_that_never_answers_is_silent_after_the_bound() {
        assert_eq!(beat_until(&mut detector(), 0, 400), Some(100));
    }

    #[test]
    fn a_node_that_is_heard_but_does_not_hear_is_silent() {
        let mut detector = detector();
        for ms in (0..100).step_by(20) {
            detector.beat(at(ms));
            let deaf = Heartbeat { life: 9, count: ms, heard_life: 0, heard_count: 0 };
            assert!(detector.heard(at(ms), OTHER, deaf).is_empty());
        }
        assert_eq!(beat_until(&mut detector, 100, 400), Some(100));
    }

    #[test]
    fn what_was_sent_before_the_silence_does_not_end_it() {
        let mut detector = detector();
        detector.beat(at(0));
        let late = answer(&detector, 1);
        assert_eq!(detector.disconnected(OTHER), Some(Change::Silent(OTHER)));
        assert_eq!(detector.disconnected(OTHER), None);
        assert!(detector.heard(at(5), OTHER, late).is_empty());
        detector.beat(at(20));
        let fresh = answer(&detector, 2);
        assert_eq!(detector.heard(at(21), OTHER, fresh), [Change::Heard(OTHER)]);
    }

    #[test]
    fn who_was_paused_itself_suspects_nobody() {
        let mut detector = detector();
        detector.beat(at(0));
        let fresh = answer(&detector, 1);
        detector.heard(at(1), OTHER, fresh);
        assert_eq!(beat_until(&mut detector, 5000, 5090), None);
        assert_eq!(beat_until(&mut detector, 5100, 5400), Some(5100));
    }

    #[test]
    fn a_restart_is_noticed_even_if_nobody_saw_the_connection_close() {
        let mut detector = detector();
        detector.beat(at(0));
        let fresh = answer(&detector, 1);
        detector.heard(at(1), OTHER, fresh);
        detector.beat(at(20));
        let reborn = Heartbeat { life: 10, count: 1, heard_life: 0, heard_count: 0 };
        assert_eq!(detector.heard(at(21), OTHER, reborn), [Change::Silent(OTHER)]);
    }
}
