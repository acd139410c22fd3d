//! A client's knowledge of a replica that it sends to: whether it is slow, full or gone, and how
//! much may be on its way to it.

use std::time::Duration;

use seriatim_model::Time;

use super::Window;
use super::lookup::LOOKUP_FIRST;
use super::timeouts::{BUSY_FIRST, BUSY_MOST, RECONNECT_AFTER, RESEND_FIRST, RESEND_MOST, next_timeout};

/// The pace of one client towards one replica: when it may send, when it sends again, and how much
/// at a time.
///
/// Three things slow it down, and each has its own remedy. With a replica that has no room, the
/// client halves the window, and waits: half of the time between two answers at first, and twice as
/// long each time. With one that refuses the view, it waits while it asks the register. With one
/// that does not answer, it retransmits after a measured timeout that doubles.
///
/// An acknowledgement ends the pause, and replaces what the replica said of its room.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// When the oldest of what is on its way was sent, or progress was last heard of.
    heard_at: Time,
    timeout: Duration,
    retry_at: Time,
    pause: Duration,
    /// When the replica last took something, or the wait for that began.
    took_at: Time,
    /// How long the replica has lately needed until it took something again.
    pace: Duration,
    /// Whether the replica had no room when it was last heard of, and if so, whether because of its
    /// disk.
    busy: Option<bool>,
    /// The number that what was sent last began with, where the replica had said that it took
    /// nothing from there on.
    went_back_to: Option<u64>,
    window: Window,
}

impl Conversation {
    /// A conversation that begins now, in messages of so many bytes of records.
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

    /// Whether the replica had no room when it was last heard of, and if so, whether because of its
    /// disk.
    #[must_use]
    pub fn busy(&self) -> Option<bool> {
        self.busy
    }

    /// When a pause ends, if there is one.
    #[must_use]
    pub fn resumes_at(&self) -> Option<Time> {
        (self.retry_at > Time::ZERO).then_some(self.retry_at)
    }

    /// When something is sent again, if nothing is heard. A replica that is given a pause is not
    /// bothered before it is over.
    #[must_use]
    pub fn resend_at(&self) -> Time {
        (self.heard_at + self.timeout).max(self.retry_at)
    }

    /// Whether a pause is not over yet; one that is over is forgotten.
    pub fn pauses(&mut self, now: Time) -> bool {
        let pauses = now < self.retry_at;
        if !pauses {
            self.retry_at = Time::ZERO;
        }
        pauses
    }

    /// Whether nothing was heard for too long, so that what is on its way is in doubt; then the
    /// next wait is longer.
    pub fn times_out(&mut self, now: Time) -> bool {
        let has_timed_out = now >= self.heard_at + self.timeout;
        if has_timed_out {
            self.heard_at = now;
            self.went_back_to = None;
            self.timeout = (self.timeout * 2).min(RESEND_MOST);
        }
        has_timed_out
    }

    /// Something is sent while nothing was on its way: the wait for an answer starts now.
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

    /// The replica took so many bytes.
    pub fn takes(&mut self, now: Time, bytes: usize) {
        self.window.acknowledged(bytes);
        if now > self.took_at {
            self.pace = (self.pace * 3 + (now - self.took_at).min(BUSY_MOST)) / 4;
            self.took_at = now;
        }
        (self.pause, self.busy) = (Duration::ZERO, None);
    }

    /// The oldest of what was on its way was answered: one that is lost is not made up for by those
    /// that come after it.
    pub fn advances(&mut self, now: Time) {
        self.timeout = next_timeout(self.timeout, now - self.heard_at);
        self.heard_at = now;
    }

    /// The replica takes nothing of what was sent from this number on. Says whether that is news: a
    /// replica that misses one message answers so to each that was on its way behind it, and what
    /// is sent next comes after them all. If it were sent anew for each of them, each of these
    /// would be answered so, too.
    pub fn goes_back_to(&mut self, number: u64) -> bool {
        self.went_back_to.replace(number) != Some(number)
    }

    /// The replica had no room. Several messages that were on their way at once are refused at
    /// once, and that counts once.
    pub fn refused(&mut self, now: Time, disk_full: bool, jitter: f64) {
        self.heard_at = now;
        // A disk that was full stays the reason until something is held again.
        self.busy = Some(disk_full || self.busy == Some(true));
        self.slows(now, jitter);
    }

    /// The client is to send less, and later. That is no answer of the replica: the timeout of one
    /// that is silent goes on.
    pub fn slows(&mut self, now: Time, jitter: f64) {
        if self.backs_off(now, (self.pace / 2).max(BUSY_FIRST), jitter) {
            self.window.refused();
        }
    }

    /// The replica is not in the view yet, or not any more.
    pub fn fenced(&mut self, now: Time) {
        if self.backs_off(now, LOOKUP_FIRST, 1.0) {
            self.window.fenced();
        }
    }

    /// A pause of twice the last one, unless one is not over. Says whether it begins.
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
        // After the pause it is news.
        often.refused(after(1) + BUSY_FIRST, false, 1.0);
        assert_eq!(often.pause, 2 * BUSY_FIRST);
    }

    #[test]
    fn a_pause_begins_with_half_of_the_time_between_two_answers() {
        let mut conversation = Conversation::new(Time::ZERO, 1 << 20);
        conversation.begins(after(1000));
        (1..=20).for_each(|count| conversation.takes(after(1000 + 20 * count), 1));
        // Several records that are answered at once are one answer.
        conversation.takes(after(1400), 1);
        conversation.refused(after(1400), false, 1.0);
        let pause = conversation.resumes_at().unwrap() - after(1400);
        assert!((9..=10).contains(&pause.as_millis()), "{pause:?}");
        conversation.refused(after(1411), false, 1.0);
        assert!(conversation.resumes_at().unwrap() - after(1411) > pause);
        // Time in which nothing was on its way says nothing of the disk.
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
