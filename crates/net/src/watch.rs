//! Detects a connection that carries nothing although an answer is due.
//!
//! A network may drop a connection without a reset: both ends keep it, and nothing arrives. A new
//! connection may work at once.

use std::time::{Duration, Instant};

/// Least and most time from an unanswered message to a probe. Peers answer probes at once, even
/// with a slow disk.
const PROBE_AFTER: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));
/// Time until a probe, as a multiple of the recent response time.
const PROBE_TIMES: u32 = 4;
/// Time from an unanswered probe to a second connection; doubles without success, up to the second
/// value.
const REPLACE_AFTER: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(16));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Send a frame that the peer answers.
    Probe,
    /// Make a second connection; keep the first of the two to carry a message.
    Replace,
}

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// Sending time of the first unanswered message. `None`: no answer is due.
    owed_since: Option<Instant>,
    /// Time of the last probe or second connection since `owed_since`.
    probed_at: Option<Instant>,
    /// Moving average of response times.
    response: Duration,
    replace_after: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        let (owed_since, probed_at) = (None, None);
        Self { owed_since, probed_at, response: Duration::ZERO, replace_after: REPLACE_AFTER.0 }
    }
}

impl Watch {
    pub(crate) fn sends(&mut self, now: Instant, heard_at: Instant) {
        self.hears(heard_at);
        self.owed_since.get_or_insert(now);
    }

    /// The action that is due. `heard_at` is the time of the last arrival.
    pub(crate) fn look(&mut self, now: Instant, heard_at: Instant) -> Due {
        self.hears(heard_at);
        if self.deadline().is_none_or(|at| now < at) {
            return Due::Nothing;
        }
        if self.probed_at.replace(now).is_none() {
            return Due::Probe;
        }
        self.replace_after = (self.replace_after * 2).min(REPLACE_AFTER.1);
        Due::Replace
    }

    /// Time of the next action if nothing arrives.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let since = self.owed_since?;
        let probe_at = since + (self.response * PROBE_TIMES).clamp(PROBE_AFTER.0, PROBE_AFTER.1);
        Some(self.probed_at.map_or(probe_at, |at| at + self.replace_after))
    }

    /// Whether the peer was probed and its answer is still due.
    pub(crate) fn is_silent(&self, heard_at: Instant) -> bool {
        self.probed_at.is_some() && self.owed_since.is_some_and(|since| heard_at < since)
    }

    pub(crate) fn successor(&self) -> Self {
        Self { replace_after: self.replace_after, ..Self::default() }
    }

    fn hears(&mut self, heard_at: Instant) {
        let Some(since) = self.owed_since.filter(|since| heard_at >= *since) else { return };
        let took = heard_at - since;
        self.response = if took > self.response { took } else { (self.response * 7 + took) / 8 };
        *self = Self { response: self.response, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_connection_without_a_question_is_not_probed() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        assert_eq!(watch.deadline(), None);
        watch.sends(start, start - ms(1));
        assert_eq!(watch.look(start + ms(150), start + ms(100)), Due::Nothing);
        assert_eq!(watch.deadline(), None, "it was answered");
    }

    #[test]
    fn a_silent_connection_is_probed_and_then_replaced_ever_more_rarely() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        watch.sends(start, start - ms(1));
        watch.sends(start + ms(190), start - ms(1));
        let mut told = vec![];
        for at in 0..20_000 {
            match watch.look(start + ms(at), start - ms(1)) {
                Due::Nothing => {}
                due => told.push((at, due)),
            }
        }
        let replaced = |at| (at, Due::Replace);
        assert_eq!(told, [(200, Due::Probe), replaced(1700), replaced(4700), replaced(10_700)]);
    }

    #[test]
    fn a_node_that_answers_slowly_is_given_four_times_as_long() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        watch.sends(start, start - ms(1));
        assert_eq!(watch.look(start + ms(190), start + ms(150)), Due::Nothing);
        watch.sends(start + ms(200), start + ms(150));
        assert_eq!(watch.look(start + ms(799), start + ms(150)), Due::Nothing);
        assert_eq!(watch.look(start + ms(800), start + ms(150)), Due::Probe);
        assert!(watch.is_silent(start + ms(150)));
        assert!(!watch.is_silent(start + ms(801)), "the probe was answered");
    }

    #[test]
    fn a_connection_that_was_made_in_vain_is_followed_by_another_one_later() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        watch.sends(start, start - ms(1));
        assert_eq!(watch.look(start + ms(200), start - ms(1)), Due::Probe);
        assert_eq!(watch.look(start + ms(1700), start - ms(1)), Due::Replace);
        let mut next = watch.successor();
        next.sends(start + ms(1700), start - ms(1));
        assert_eq!(next.look(start + ms(1900), start - ms(1)), Due::Probe);
        assert_eq!(next.look(start + ms(4899), start - ms(1)), Due::Nothing);
        assert_eq!(next.look(start + ms(4900), start - ms(1)), Due::Replace);
        // An answer resets `replace_after`.
        next.sends(start + ms(5000), start + ms(4950));
        assert_eq!(next.look(start + ms(6000), start + ms(4950)), Due::Probe);
        assert_eq!(next.look(start + ms(7500), start + ms(4950)), Due::Replace);
    }
}
