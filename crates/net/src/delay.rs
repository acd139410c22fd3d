//! Delays sent frames, so that a benchmark on one machine behaves as on distant machines.
//!
//! Frames travel independently, so a delay takes no bandwidth. Frames of one connection keep their
//! order. Handshakes are not delayed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::timer::Timer;

/// Delays the frames that one end sends. Clones share one thread.
#[derive(Clone, Debug)]
pub struct DelayLine {
    one_way: Length,
    timer: Timer,
}

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
    /// Starts a delay line.
    ///
    /// # Errors
    /// If the operating system provides no thread.
    pub fn start(one_way: Duration) -> io::Result<Self> {
        Ok(Self { one_way: Length::new(one_way), timer: Timer::start()? })
    }

    /// Changes the delay of later frames, which do not overtake earlier ones of their connection.
    pub fn set(&self, one_way: Duration) {
        self.one_way.0.store(nanos(one_way), Ordering::Relaxed);
    }

    /// Arrival of a frame sent at `sent`.
    #[must_use]
    pub fn arrival(&self, sent: Instant) -> Instant {
        sent + self.one_way.get()
    }

    pub(crate) fn way<T>(&self) -> Way<T> {
        Way { one_way: self.one_way.clone(), travelling: VecDeque::new() }
    }

    /// The timer for arrivals.
    #[must_use]
    pub fn timer(&self) -> &Timer {
        &self.timer
    }
}

#[derive(Debug)]
pub(crate) struct Way<T> {
    one_way: Length,
    travelling: VecDeque<(Instant, T)>,
}

impl<T> Way<T> {
    pub(crate) fn send(&mut self, now: Instant, sent: T) {
        self.travelling.push_back((now + self.one_way.get(), sent));
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.travelling.front().map(|(at, _)| *at)
    }

    pub(crate) fn arrived(&mut self, now: Instant) -> Option<T> {
        if self.next_at()? > now {
            return None;
        }
        self.travelling.pop_front().map(|(_, sent)| sent)
    }

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
