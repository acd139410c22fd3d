//! Detects whether this node's messages, heartbeats apart, reach another node.
//!
//! Heartbeats are small and have connections of their own, so a path that drops large packets lets
//! them through while every shared log stalls. Each heartbeat therefore carries the number of
//! messages taken from the other node. If it stops growing, a probe leaves on the normal path. If
//! nothing arrives for longer than usual, the path is broken.

use std::time::Duration;

use seriatim_model::Time;
use seriatim_model::limits::Limits;

use crate::rhythm::Rhythm;

#[derive(Debug)]
pub(crate) struct Lane {
    probe_after: Duration,
    /// Messages that the other node reports as taken.
    taken: u64,
    /// When that number last grew, or the path restarted.
    moved_at: Time,
    /// Time of the first unanswered probe, and of the next one.
    probing: Option<(Time, Time)>,
    /// Answer times of probes.
    rhythm: Rhythm,
    /// Since when the path is mute.
    mute_since: Option<Time>,
}

impl Lane {
    pub(crate) fn new(now: Time, limits: &Limits) -> Self {
        Self {
            probe_after: limits.probe_after,
            taken: 0,
            moved_at: now,
            probing: None,
            rhythm: Rhythm::new(limits.unheard_for),
            mute_since: None,
        }
    }

    pub(crate) fn hears(&mut self, now: Time, taken: u64) {
        if taken == self.taken {
            return;
        }
        self.taken = taken;
        if let Some((since, _)) = self.probing {
            self.rhythm.gap(now, now - since);
        }
        self.starts_over(now);
    }

    /// Restarts the measurement: the other node is or was down.
    pub(crate) fn starts_over(&mut self, now: Time) {
        (self.moved_at, self.probing) = (now, None);
        if self.mute_since.take().is_some_and(|since| self.rhythm.is_momentary(now - since)) {
            self.rhythm.suspected_wrongly(now);
        }
    }

    /// Whether a probe is due. Counts it as sent.
    pub(crate) fn probe_is_due(&mut self, now: Time) -> bool {
        let (since, at) = self.probing.unwrap_or((now, self.moved_at + self.probe_after));
        if now < at {
            return false;
        }
        self.probing = Some((since, now + self.probe_after));
        true
    }

    /// When the path becomes mute, returns once for how long nothing has arrived. `answered_at` is
    /// the last heartbeat answer; without later ones nothing is known of the path.
    pub(crate) fn falls_mute(&mut self, now: Time, answered_at: Time) -> Option<Duration> {
        let (since, _) = self.probing?;
        if self.is_mute() || answered_at.since(since) < self.rhythm.timeout() {
            return None;
        }
        self.mute_since = Some(now);
        Some(now - self.moved_at)
    }

    pub(crate) fn is_mute(&self) -> bool {
        self.mute_since.is_some()
    }

    /// Excuses the time in which the observer was late.
    pub(crate) fn excuse(&mut self, now: Time, late: Duration) {
        if let Some((since, _)) = &mut self.probing {
            *since = (*since + late).min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn lane() -> Lane {
        Lane::new(at(0), &Limits::default())
    }

    /// Checks every 20 ms. Returns when probes left, and when the path became mute.
    fn look(lane: &mut Lane, from: u64, end: u64) -> (Vec<u64>, Option<u64>) {
        let mut probes = vec![];
        for ms in (from..end).step_by(20) {
            if lane.falls_mute(at(ms), at(ms)).is_some() {
                return (probes, Some(ms));
            }
            if lane.probe_is_due(at(ms)) {
                probes.push(ms);
            }
        }
        (probes, None)
    }

    #[test]
    fn a_way_that_carries_is_not_probed() {
        let mut lane = lane();
        for ms in (0..20_000).step_by(100) {
            lane.hears(at(ms), ms + 1);
            assert_eq!(look(&mut lane, ms, ms + 100), (vec![], None));
        }
    }

    #[test]
    fn an_idle_way_is_probed_now_and_then() {
        let mut lane = lane();
        for second in 1..20 {
            let (probes, mute) = look(&mut lane, (second - 1) * 1100, second * 1100);
            assert_eq!((probes.len(), mute), (1, None), "{second}");
            lane.hears(at(second * 1100), second);
        }
    }

    #[test]
    fn what_does_not_answer_heartbeats_either_is_not_called_mute() {
        let mut lane = lane();
        assert!(lane.probe_is_due(at(1000)));
        assert_eq!(lane.falls_mute(at(60_000), at(900)), None);
        assert_eq!(lane.falls_mute(at(60_000), at(5900)), None);
        assert!(lane.falls_mute(at(60_000), at(6000)).is_some());
    }

    #[test]
    fn unanswered_probes_say_that_nothing_arrives() {
        let mut lane = lane();
        assert_eq!(look(&mut lane, 0, 20_000), (vec![1000, 2000, 3000, 4000, 5000], Some(6000)));
        assert!(lane.is_mute());
        assert!(lane.probe_is_due(at(6000)), "a probe detects that the path carries messages again");
        lane.hears(at(6100), 1);
        assert!(!lane.is_mute());
    }

    #[test]
    fn a_way_that_was_only_slow_has_longer_the_next_time() {
        let mut lane = lane();
        look(&mut lane, 0, 20_000);
        lane.hears(at(6100), 1);
        let (_, mute) = look(&mut lane, 6100, 60_000);
        assert!(mute.unwrap() - 7100 >= 10_000, "{mute:?}");
    }

    #[test]
    fn an_observer_that_was_not_scheduled_does_not_count_that_time() {
        let mut lane = lane();
        look(&mut lane, 0, 3000);
        lane.excuse(at(9000), Duration::from_secs(6));
        assert_eq!(look(&mut lane, 9000, 30_000).1, Some(12_000));
    }

    #[test]
    fn a_node_that_was_gone_is_not_judged_by_what_was_before() {
        let mut lane = lane();
        look(&mut lane, 0, 5000);
        lane.starts_over(at(5000));
        assert_eq!(look(&mut lane, 5000, 30_000).1, Some(11_000));
    }
}
