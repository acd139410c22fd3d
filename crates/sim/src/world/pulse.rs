//! A node's failure detector in virtual time.

use seriatim_host::{Detector, DiskMark, Liveness, Taken, Via};
use seriatim_model::limits::Limits;
use seriatim_model::{NodeId, Time};
use seriatim_protocol::control::{Ailment, Heartbeat};

/// The detector of one node, when it is to be woken, and what came for it while the process was not
/// scheduled.
///
/// All times are those of the node's own clock, but for when it is woken.
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

    /// The process starts: its detector knows nobody.
    pub(super) fn start(&mut self, incarnation: u64, limits: &Limits, mark: DiskMark) {
        self.detector = Detector::new(incarnation, limits, mark);
        self.beat_at = None;
    }

    /// The process ends, with all that came for it.
    pub(super) fn stop(&mut self) {
        self.unheard.clear();
        self.beat_at = None;
    }

    /// The process goes on after a pause: it is to be woken anew.
    pub(super) fn go_on(&mut self) {
        self.beat_at = None;
    }

    /// A node came to be known.
    pub(super) fn meet(&mut self, clock: Time, other: NodeId, taken: Taken) {
        self.detector.meet(clock, other, taken);
    }

    /// A node is not known any more.
    pub(super) fn forget(&mut self, other: NodeId) {
        self.detector.forget(other);
    }

    /// A heartbeat arrives.
    pub(super) fn hears(&mut self, clock: Time, from: NodeId, via: Via, beat: Heartbeat) -> Vec<Liveness> {
        self.detector.heard(clock, from, via, beat)
    }

    /// A heartbeat arrives that the process takes when it goes on.
    pub(super) fn keeps(&mut self, from: NodeId, via: Via, beat: Heartbeat) {
        self.unheard.push((from, via, beat));
    }

    /// A connection to another node is gone.
    pub(super) fn disconnected(&mut self, other: NodeId, via: Via) -> Vec<Liveness> {
        self.detector.disconnected(other, via).into_iter().collect()
    }

    /// Whether it is to be woken at this time.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.beat_at == Some(now)
    }

    /// It was woken.
    pub(super) fn woken(&mut self) {
        self.beat_at = None;
    }

    /// Takes what was kept, and gives the heartbeats that are due. Suspects those whose answers are
    /// overdue.
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

    /// When it is to be woken, if that is sooner than was planned. `when` says when a time of its
    /// clock is.
    pub(super) fn plan(&mut self, when: impl FnOnce(Time) -> Time) -> Option<Time> {
        let at = when(self.detector.deadline()?);
        let is_sooner = self.beat_at.is_none_or(|planned| at < planned);
        is_sooner.then(|| *self.beat_at.insert(at))
    }
}
