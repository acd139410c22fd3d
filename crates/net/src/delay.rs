//! A longer way, for benchmarks: what is sent arrives later, as between machines that are further
//! apart.
//!
//! Each frame travels by itself: a second one that was sent right behind the first arrives right
//! behind it, so a delay takes no bandwidth. Frames of one connection keep their order. Greetings
//! are not delayed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::timer::Timer;

/// How much later arrives what is sent. Each end of a connection delays what it sends itself.
/// Clones share one thread.
#[derive(Clone, Debug)]
pub struct DelayLine {
    one_way: Length,
    timer: Timer,
}

/// The length of a way in nanoseconds, which may change at any time.
#[derive(Clone, Debug)]
struct Length(Arc<AtomicU64>);

impl Length {
    fn new(one_way: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(nanos(one_way))))
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

fn nanos(one_way: Duration) -> u64 {
    u64::try_from(one_way.as_nanos()).unwrap_or(u64::MAX)
}

impl DelayLine {
    /// A way of this length.
    ///
    /// # Errors
    /// If the operating system refuses the thread that keeps the time.
    pub fn start(one_way: Duration) -> io::Result<Self> {
        Ok(Self { one_way: Length::new(one_way), timer: Timer::start()? })
    }

    /// From now on the way has this length. What was sent before arrives as it would have, and what
    /// is sent behind it on the same connection no sooner.
    pub fn set(&self, one_way: Duration) {
        self.one_way.0.store(nanos(one_way), Ordering::Relaxed);
    }

    /// When something arrives that is sent at this instant.
    #[must_use]
    pub fn arrival(&self, sent: Instant) -> Instant {
        sent + self.one_way.get()
    }

    /// Nothing is on the way yet.
    pub(crate) fn way<T>(&self) -> Way<T> {
        Way { one_way: self.one_way.clone(), travelling: VecDeque::new() }
    }

    /// The timer that tells when something arrives.
    #[must_use]
    pub fn timer(&self) -> &Timer {
        &self.timer
    }
}

/// The items that were sent in one direction and have not arrived yet, in order.
#[derive(Debug)]
pub(crate) struct Way<T> {
    one_way: Length,
    travelling: VecDeque<(Instant, T)>,
}

impl<T> Way<T> {
    /// Sends something.
    pub(crate) fn send(&mut self, now: Instant, sent: T) {
        self.travelling.push_back((now + self.one_way.get(), sent));
    }

    /// When the next one arrives.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.travelling.front().map(|(at, _)| *at)
    }

    /// The next one, if it has arrived.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<T> {
        if self.next_at()? > now {
            return None;
        }
        self.travelling.pop_front().map(|(_, sent)| sent)
    }

    /// Loses everything that is on the way.
    pub(crate) fn lose(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.travelling).into_iter().map(|(_, sent)| sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_WAY: Duration = Duration::from_micros(500);

    fn way() -> Way<u32> {
        Way { one_way: Length::new(ONE_WAY), travelling: VecDeque::new() }
    }

    #[test]
    fn nothing_arrives_early_and_everything_in_order() {
        let (mut way, start) = (way(), Instant::now());
        let at = |us| start + Duration::from_micros(us);
        assert_eq!(way.next_at(), None);
        way.send(at(0), 1);
        way.send(at(100), 2);
        assert_eq!((way.next_at(), way.arrived(at(499))), (Some(at(500)), None));
        assert_eq!((way.arrived(at(500)), way.arrived(at(500))), (Some(1), None));
        assert_eq!((way.next_at(), way.arrived(at(599))), (Some(at(600)), None));
        way.send(at(600), 3);
        assert_eq!((way.arrived(at(5000)), way.arrived(at(5000))), (Some(2), Some(3)));
        assert_eq!((way.arrived(at(5000)), way.next_at()), (None, None));
    }

    #[test]
    fn what_is_sent_at_once_arrives_at_once() {
        let (mut way, now) = (way(), Instant::now());
        (0..1000).for_each(|number| way.send(now, number));
        let arrived: Vec<u32> = std::iter::from_fn(|| way.arrived(now + ONE_WAY)).collect();
        assert_eq!(arrived, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_way_that_gets_shorter_lets_nothing_overtake() {
        let line = DelayLine::start(ONE_WAY).unwrap();
        let (mut way, now) = (line.way(), Instant::now());
        way.send(now, 1);
        line.set(Duration::ZERO);
        way.send(now, 2);
        assert_eq!((way.arrived(now), way.next_at()), (None, Some(now + ONE_WAY)));
        assert_eq!((way.arrived(now + ONE_WAY), way.arrived(now + ONE_WAY)), (Some(1), Some(2)));
        way.send(now, 3);
        assert_eq!((line.arrival(now), way.arrived(now)), (now, Some(3)));
    }

    #[test]
    fn what_is_lost_does_not_arrive() {
        let (mut way, now) = (way(), Instant::now());
        way.send(now, 1);
        assert_eq!(way.lose().collect::<Vec<_>>(), [1]);
        assert_eq!((way.next_at(), way.arrived(now + ONE_WAY)), (None, None));
    }
}
