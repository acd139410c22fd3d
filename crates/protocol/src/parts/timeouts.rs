//! Timeouts of clients.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Timeout before the first retransmission; doubles up to [`RESEND_MOST`].
pub const RESEND_FIRST: Duration = Duration::from_millis(200);
/// The longest retransmission timeout.
pub const RESEND_MOST: Duration = Duration::from_secs(2);

/// The next timeout after an answer that `took` this long: twice the longest recent answer time,
/// which fades by an eighth with each answer.
#[must_use]
pub fn next_timeout(timeout: Duration, took: Duration) -> Duration {
    next_timeout_within(timeout, took, RESEND_FIRST..=RESEND_MOST)
}

/// [`next_timeout`] within other bounds.
#[must_use]
pub fn next_timeout_within(timeout: Duration, took: Duration, bounds: RangeInclusive<Duration>) -> Duration {
    (timeout - timeout / 8).max(took * 2).clamp(*bounds.start(), *bounds.end())
}

/// Pause before sending again after a connection broke.
pub const RECONNECT_AFTER: Duration = Duration::from_millis(20);

/// The shortest backoff from a full replica; doubles up to [`BUSY_MOST`].
pub const BUSY_FIRST: Duration = Duration::from_millis(1);
/// The longest backoff from a full replica.
pub const BUSY_MOST: Duration = Duration::from_millis(64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_is_remembered_and_forgotten_by_and_by() {
        let slow = next_timeout(RESEND_FIRST, Duration::from_millis(700));
        assert_eq!(slow, Duration::from_millis(1400));
        let next = next_timeout(slow, Duration::from_millis(1));
        assert!(next < slow && next > Duration::from_millis(1200));
        let later = (0..100).fold(next, |timeout, _| next_timeout(timeout, Duration::ZERO));
        assert_eq!(later, RESEND_FIRST);
        assert_eq!(next_timeout(RESEND_MOST, Duration::from_secs(60)), RESEND_MOST);
    }
}
