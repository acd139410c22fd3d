//! A node's failure detector in virtual time.

use seriatim_host::{Detector, DiskMark, Liveness, Taken, Via};
use seriatim_model::limits::Limits;
use seriatim_model::{NodeId, Time};
use seriatim_protocol::control::{Ailment, Heartbeat};

/// A node's detector, its next wakeup, and heartbeats that arrived while the process was paused.
///
/// Times are of the node's own clock, except wakeups.
#[derive(Debug)]
pub(super) struct Pulse {
    detector: Detector,
    beat_at: Option<Time>,
    unheard: Vec<(NodeId, Via, Heartbeat)>,
}

impl Pulse {
    pub(super) fn new(limits: &Limits) -> Self {
        let detector = Detector::new(0, limits, DiskMark::default());
        Self { detector, beat_at: None, unheard: vec![] }
    }

    /// Starts a new detector, which knows no node yet.
    pub(super) fn start(&mut self, incarnation: u64, limits: &Limits, mark: DiskMark) {
        self.detector = Detector::new(incarnation, limits, mark);
        self.beat_at = None;
    }

    pub(super) fn stop(&mut self) {
        self.unheard.clear();
        self.beat_at = None;
    }

    pub(super) fn go_on(&mut self) {
        self.beat_at = None;
    }

    pub(super) fn meet(&mut self, clock: Time, other: NodeId, taken: Taken) {
        self.detector.meet(clock, other, taken);
    }

    pub(super) fn forget(&mut self, other: NodeId) {
        self.detector.forget(other);
    }

    pub(super) fn hears(&mut self, clock: Time, from: NodeId, via: Via, beat: Heartbeat) -> Vec<Liveness> {
        self.detector.heard(clock, from, via, beat)
    }

    /// Keeps a heartbeat until the process resumes.
    pub(super) fn keeps(&mut self, from: NodeId, via: Via, beat: Heartbeat) {
        self.unheard.push((from, via, beat));
    }

    pub(super) fn disconnected(&mut self, other: NodeId, via: Via) -> Vec<Liveness> {
        self.detector.disconnected(other, via).into_iter().collect()
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.beat_at == Some(now)
    }

    pub(super) fn woken(&mut self) {
        self.beat_at = None;
    }

    /// Handles kept heartbeats, and suspects nodes with overdue answers. Returns changes of
    /// liveness, and heartbeats to send.
    pub(super) fn beat(
        &mut self,
        clock: Time,
        ailment: Option<Ailment>,
    ) -> (Vec<Liveness>, Vec<(NodeId, Heartbeat)>) {
        let mut changes = vec![];
        for (from, via, beat) in std::mem::take(&mut self.unheard) {
            changes.extend(self.detector.heard(clock, from, via, beat));
        }
        self.detector.feel(ailment);
        let (beats, silent) = self.detector.beat(clock);
        changes.extend(silent);
        (changes, beats)
    }

    /// Plans and returns a new wakeup, if it is earlier than the planned one. `when` converts from
    /// the node's clock.
    pub(super) fn plan(&mut self, when: impl FnOnce(Time) -> Time) -> Option<Time> {
        let at = when(self.detector.deadline()?);
        let is_sooner = self.beat_at.is_none_or(|planned| at < planned);
        is_sooner.then(|| *self.beat_at.insert(at))
    }
}
