//! Scheduled arrivals, independent of the completion of earlier ones.

use std::io;
use std::iter::Peekable;
use std::time::{Duration, Instant};

use seriatim_net::Timer;

/// Delay until the schedule starts, so that all tasks are ready.
const START_AFTER: Duration = Duration::from_millis(50);

/// Scheduled starts of one client's appends. Latency counts from them, so that a stall is charged
/// to every append that it delays.
pub(super) struct Pace {
    timer: Timer,
    schedule: Peekable<Schedule>,
}

/// One client's share of the schedule: every `step`-th arrival.
struct Schedule {
    start: Instant,
    rate: u64,
    next: u64,
    step: usize,
    total: u64,
}

impl Iterator for Schedule {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let number = self.next;
        self.next += self.step as u64;
        (number < self.total).then(|| self.start + Duration::from_secs_f64(number as f64 / self.rate as f64))
    }
}

impl Pace {
    /// Spreads `rate` arrivals per second evenly over the clients.
    pub(super) fn split(rate: u64, clients: usize, duration: Duration) -> io::Result<Vec<Self>> {
        Self::split_from(Self::soon(), rate, clients, duration)
    }

    pub(super) fn soon() -> Instant {
        Instant::now() + START_AFTER
    }

    pub(super) fn split_from(
        start: Instant,
        rate: u64,
        clients: usize,
        duration: Duration,
    ) -> io::Result<Vec<Self>> {
        let timer = Timer::start()?;
        let total = (rate as f64 * duration.as_secs_f64()) as u64;
        let schedule = |client| Schedule { start, rate, next: client, step: clients, total };
        let pace = |client| Self { timer: timer.clone(), schedule: schedule(client).peekable() };
        Ok((0..clients as u64).map(pace).collect())
    }

    pub(super) fn new(rate: u64, duration: Duration) -> io::Result<Self> {
        Ok(Self::split(rate, 1, duration)?.swap_remove(0))
    }

    /// Waits for the next arrival. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Instant> {
        let at = *self.schedule.peek()?;
        self.timer.until(at).await;
        self.schedule.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_and_together_keep_the_rate() {
        let start = Instant::now();
        let of = |client| Schedule { start, rate: 1000, next: client, step: 3, total: 7 };
        let at = |client| of(client).map(|at| (at - start).as_millis()).collect::<Vec<_>>();
        assert_eq!([at(0), at(1), at(2)], [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
    }

    #[tokio::test]
    async fn who_is_late_gets_what_was_missed_at_once() {
        let start = Instant::now() - Duration::from_secs(1);
        let schedule = Schedule { start, rate: 1000, next: 0, step: 1, total: 10 }.peekable();
        let mut pace = Pace { timer: Timer::start().unwrap(), schedule };
        for number in 0..10 {
            assert_eq!(pace.next().await, Some(start + Duration::from_millis(number)));
        }
        assert_eq!(pace.next().await, None);
    }
}
