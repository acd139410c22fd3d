//! Whether a connection over which an answer is owed still carries anything.
//!
//! A network may drop a connection without a reset: both ends believe that it stands, and nothing
//! arrives. A new connection to the same node may work at once.

use std::time::{Duration, Instant};

/// A connection is probed this long after the first message that nothing came after: at the
/// earliest and at the latest. The peer answers a probe at once, also where its disk is slow.
const PROBE_AFTER: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));
/// The time until a probe, as a multiple of the recent response time.
const PROBE_TIMES: u32 = 4;
/// How long a probe may stay unanswered before another connection is made beside this one; doubled
/// with each connection that was made in vain, up to the second.
const REPLACE_AFTER: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(16));

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Send something that the peer answers.
    Probe,
    /// Make a second connection, and keep the first of the two that carries a message.
    Replace,
}

/// The silence of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// When the first message was sent after which nothing arrived; None if no answer is owed.
    owed_since: Option<Instant>,
    /// When the peer was probed, or another connection was tried, for the last time since then.
    probed_at: Option<Instant>,
    /// How long answers lately took: a moving average.
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
    /// A message is sent; something arrived at `heard_at` last.
    pub(crate) fn sends(&mut self, now: Instant, heard_at: Instant) {
        self.hears(heard_at);
        self.owed_since.get_or_insert(now);
    }

    /// Returns the next action. The last message arrived at `heard_at`.
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

    /// When something is due, if nothing arrives until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let since = self.owed_since?;
        let probe_at = since + (self.response * PROBE_TIMES).clamp(PROBE_AFTER.0, PROBE_AFTER.1);
        Some(self.probed_at.map_or(probe_at, |at| at + self.replace_after))
    }

    /// Whether nothing has arrived since the peer was probed.
    pub(crate) fn is_silent(&self, heard_at: Instant) -> bool {
        self.probed_at.is_some() && self.owed_since.is_some_and(|since| heard_at < since)
    }

    /// The watch of the connection that takes the place of this one.
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
        // An answer ends that.
        next.sends(start + ms(5000), start + ms(4950));
        assert_eq!(next.look(start + ms(6000), start + ms(4950)), Due::Probe);
        assert_eq!(next.look(start + ms(7500), start + ms(4950)), Due::Replace);
    }
}
