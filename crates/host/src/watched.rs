//! A host and its failure detector on one clock, for tests without threads.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use seriatim_model::{Endpoint, LogId, Peer, Time};
use seriatim_protocol::{Message, control};
use seriatim_store::Disk;

use crate::detector::{Detector, Via};
use crate::host::{Event, Host, HostConfig, Outgoing};
use crate::liveness::Unmet;
use crate::recovery::HostError;

/// A host with its detector. A server runs them on different threads.
#[derive(Debug)]
pub struct Watched {
    host: Host,
    detector: Detector,
}

impl Watched {
    /// Opens a host and starts its detector.
    ///
    /// # Errors
    /// As [`Host::open`].
    pub fn open(config: HostConfig, disk: Arc<dyn Disk>) -> Result<Self, HostError> {
        let (incarnation, limits) = (config.seed, config.options.limits);
        let host = Host::open(config, disk)?;
        let detector = Detector::new(incarnation, &limits, host.mark());
        Ok(Self { host, detector })
    }

    /// Handles an event. `via` is the connection, if any.
    pub fn handle(&mut self, now: Time, via: Via, event: Event) {
        let changes = match &event {
            Event::Message {
                peer: Peer::Node(node),
                message: Message::Control(control::Message::Heartbeat(beat)),
                ..
            } => self.detector.heard(now, *node, via, *beat),
            Event::Disconnected(Peer::Node(node)) => {
                self.detector.disconnected(*node, via).into_iter().collect()
            }
            _ => vec![],
        };
        self.host.handle(now, event);
        changes.into_iter().for_each(|change| self.host.handle(now, Event::Liveness(change)));
    }

    /// Performs due work (see [`Host::finish_turn`]), serves all readers, and returns the messages
    /// to send, heartbeats included.
    pub fn finish_turn(&mut self, now: Time) -> Vec<Outgoing> {
        self.host.finish_turn(now);
        while self.host.serve_reader(now).is_some() {}
        for Unmet { node, taken, .. } in self.host.take_unmet() {
            self.detector.meet(now, node, taken);
        }
        for node in self.host.take_forgotten() {
            self.detector.forget(node);
        }
        let (beats, changes) = self.detector.beat(now);
        changes.into_iter().for_each(|change| self.host.handle(now, Event::Liveness(change)));
        let beat = |(node, beat)| Outgoing {
            peer: Peer::Node(node),
            log: LogId(0),
            from: Endpoint::Node,
            to: Endpoint::Node,
            message: control::Message::Heartbeat(beat).into(),
        };
        self.host.take_sends().into_iter().chain(beats.into_iter().map(beat)).collect()
    }

    /// Latest time of the next [`Watched::finish_turn`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        [self.host.deadline(), self.detector.deadline()].into_iter().flatten().min()
    }
}

impl Deref for Watched {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for Watched {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}
