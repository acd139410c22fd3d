//! A client's state for one replica: slow, full or gone, and the bytes in flight.

use std::time::Duration;

use seriatim_model::Time;

use super::Window;
use super::lookup::LOOKUP_FIRST;
use super::timeouts::{BUSY_FIRST, BUSY_MOST, RECONNECT_AFTER, RESEND_FIRST, RESEND_MOST, next_timeout};

/// When a client sends to a replica, when it retransmits, and how much.
///
/// A full replica halves the window and starts a pause: half of the time between two answers,
/// doubled each time. A replica that rejects the view starts a pause, during which the client asks
/// the register. A silent replica leads to retransmission after a measured timeout that doubles.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Start of `timeout`: when the oldest unanswered message was sent, or the latest refusal or
    /// progress.
    heard_at: Time,
    timeout: Duration,
    retry_at: Time,
    pause: Duration,
    /// Time of the last acknowledgement, or of the start of the wait for it.
    took_at: Time,
    /// Recent average time between acknowledgements.
    pace: Duration,
    busy: Option<bool>,
    /// The number from which the replica last requested a resend.
    went_back_to: Option<u64>,
    window: Window,
}

impl Conversation {
    /// A conversation that starts now, with messages of `batch_bytes` of records.
    #[must_use]
    pub fn new(now: Time, batch_bytes: usize) -> Self {
        Self {
            heard_at: now,
            timeout: RESEND_FIRST,
            retry_at: Time::ZERO,
            pause: Duration::ZERO,
            took_at: now,
            pace: Duration::ZERO,
            busy: None,
            went_back_to: None,
            window: Window::new(batch_bytes),
        }
    }

    /// Whether the replica was full at its last answer: `Some(true)` if its disk was, `Some(false)`
    /// if it lacked other room, `None` if it was not full.
    #[must_use]
    pub fn busy(&self) -> Option<bool> {
        self.busy
    }

    /// The end of the pause; `None` if there is none.
    #[must_use]
    pub fn resumes_at(&self) -> Option<Time> {
        (self.retry_at > Time::ZERO).then_some(self.retry_at)
    }

    /// When to retransmit; not before the pause ends.
    #[must_use]
    pub fn resend_at(&self) -> Time {
        (self.heard_at + self.timeout).max(self.retry_at)
    }

    /// Whether the client pauses at `now`. Forgets a pause that has ended.
    pub fn pauses(&mut self, now: Time) -> bool {
        let pauses = now < self.retry_at;
        if !pauses {
            self.retry_at = Time::ZERO;
        }
        pauses
    }

    /// Whether the timeout has expired, so that messages in flight may be lost. Doubles the
    /// timeout.
    pub fn times_out(&mut self, now: Time) -> bool {
        let has_timed_out = now >= self.heard_at + self.timeout;
        if has_timed_out {
            self.heard_at = now;
            self.went_back_to = None;
            self.timeout = (self.timeout * 2).min(RESEND_MOST);
        }
        has_timed_out
    }

    /// Starts the timeout for the first message in flight.
    pub fn begins(&mut self, now: Time) {
        (self.heard_at, self.took_at) = (now, now);
    }

    /// See [`Window::room`].
    #[must_use]
    pub fn room(&self, in_flight: usize) -> Option<usize> {
        self.window.room(in_flight)
    }

    /// See [`Window::bytes`].
    #[must_use]
    pub fn window(&self) -> usize {
        self.window.bytes()
    }

    /// The replica acknowledged these bytes.
    pub fn takes(&mut self, now: Time, bytes: usize) {
        self.window.acknowledged(bytes);
        if now > self.took_at {
            self.pace = (self.pace * 3 + (now - self.took_at).min(BUSY_MOST)) / 4;
            self.took_at = now;
        }
        (self.pause, self.busy) = (Duration::ZERO, None);
    }

    /// The oldest message in flight was answered: restarts the timeout. An answer to a later
    /// message does not, since the oldest may be lost.
    pub fn advances(&mut self, now: Time) {
        self.timeout = next_timeout(self.timeout, now - self.heard_at);
        self.heard_at = now;
    }

    /// The replica requests a resend from `number`. Returns whether the request is new: after a
    /// loss, the replica repeats it for each later message that arrives.
    pub fn goes_back_to(&mut self, number: u64) -> bool {
        self.went_back_to.replace(number) != Some(number)
    }

    /// The replica was full. More refusals during the pause do not lengthen it.
    pub fn refused(&mut self, now: Time, disk_full: bool, jitter: f64) {
        self.heard_at = now;
        // A full disk stays the reason until the next acknowledgement.
        self.busy = Some(disk_full || self.busy == Some(true));
        self.slows(now, jitter);
    }

    /// Starts a pause and halves the window, although the replica refused nothing. Its timeout
    /// continues.
    pub fn slows(&mut self, now: Time, jitter: f64) {
        if self.backs_off(now, (self.pace / 2).max(BUSY_FIRST), jitter) {
            self.window.refused();
        }
    }

    /// The replica is not in the view yet, or no longer.
    pub fn fenced(&mut self, now: Time) {
        if self.backs_off(now, LOOKUP_FIRST, 1.0) {
            self.window.fenced();
        }
    }

    /// Starts a pause twice as long as the last one, unless the client pauses already. Returns
    /// whether it starts.
    fn backs_off(&mut self, now: Time, least: Duration, jitter: f64) -> bool {
        let begins = !self.pauses(now);
        if begins {
            self.pause = (self.pause * 2).clamp(least, BUSY_MOST);
            self.retry_at = now + self.pause.mul_f64(jitter);
        }
        begins
    }

    /// The connection broke.
    pub fn disconnected(&mut self, now: Time) {
        self.went_back_to = None;
        self.retry_at = now + RECONNECT_AFTER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn refusals_of_one_window_are_one_refusal() {
        let mut once = Conversation::new(Time::ZERO, 1 << 20);
        once.refused(after(1), false, 1.0);
        let mut often = once.clone();
        (0..9).for_each(|_| often.refused(after(1), false, 1.0));
        assert_eq!(often.resumes_at(), once.resumes_at());
        assert_eq!(often.pause, BUSY_FIRST);
        assert!((0..64 << 20).step_by(1 << 18).all(|bytes| often.room(bytes) == once.room(bytes)));
        often.refused(after(1) + BUSY_FIRST, false, 1.0);
        assert_eq!(often.pause, 2 * BUSY_FIRST);
    }

    #[test]
    fn a_pause_begins_with_half_of_the_time_between_two_answers() {
        let mut conversation = Conversation::new(Time::ZERO, 1 << 20);
        conversation.begins(after(1000));
        (1..=20).for_each(|count| conversation.takes(after(1000 + 20 * count), 1));
        // Records acknowledged at the same time count as one answer.
        conversation.takes(after(1400), 1);
        conversation.refused(after(1400), false, 1.0);
        let pause = conversation.resumes_at().unwrap() - after(1400);
        assert!((9..=10).contains(&pause.as_millis()), "{pause:?}");
        conversation.refused(after(1411), false, 1.0);
        assert!(conversation.resumes_at().unwrap() - after(1411) > pause);
        // Idle time does not count.
        (0..40).for_each(|count| {
            conversation.begins(after(5000 * (1 + count)));
            conversation.takes(after(5000 * (1 + count) + 1), 1);
        });
        conversation.refused(after(900_000), false, 1.0);
        assert_eq!(conversation.resumes_at(), Some(after(900_000) + BUSY_FIRST));
    }

    #[test]
    fn a_gap_is_news_once_unless_what_filled_it_may_be_lost() {
        let mut conversation = Conversation::new(Time::ZERO, 1 << 20);
        assert!(conversation.goes_back_to(6) && !conversation.goes_back_to(6));
        assert!(conversation.goes_back_to(8) && !conversation.goes_back_to(8));
        conversation.disconnected(after(1));
        assert!(conversation.goes_back_to(8) && !conversation.goes_back_to(8));
        assert!(conversation.times_out(after(60_000)));
        assert!(conversation.goes_back_to(8));
    }

    #[test]
    fn a_conversation_that_slows_down_has_heard_nothing() {
        let mut conversation = Conversation::new(Time::ZERO, 1 << 20);
        let times_out_at = conversation.resend_at();
        conversation.slows(after(1), 1.0);
        assert_eq!((conversation.resend_at(), conversation.busy()), (times_out_at, None));
        assert_eq!(conversation.resumes_at(), Some(after(1) + BUSY_FIRST));
        conversation.refused(after(9), false, 1.0);
        assert!(conversation.resend_at() > times_out_at);
    }

    #[test]
    fn a_disk_that_was_full_stays_the_reason_until_something_is_taken() {
        let mut conversation = Conversation::new(Time::ZERO, 1 << 20);
        conversation.refused(after(1), true, 1.0);
        conversation.refused(after(2), false, 1.0);
        assert_eq!(conversation.busy(), Some(true));
        conversation.takes(after(2), 1);
        assert_eq!(conversation.busy(), None);
    }
}
