//! Wakes the node at a deadline when no event arrives.

use std::time::{Duration, Instant};

use seriatim_net::Timer;

/// A deadline that is nearer needs a thread: the runtime's timers are precise to 1 ms, and a log
/// may be ordered ten times in that time.
const NEAR: Duration = Duration::from_millis(2);

/// Waits until `at`, with the precision of the runtime's timers; forever if `None`. Cancel safe.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// A precise timer. Its thread starts at first need: most logs need none.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    timer: Option<Timer>,
}

impl Alarm {
    /// Waits until `at`; forever if `None`. Cancel safe.
    pub(crate) async fn until(&mut self, at: Option<Instant>) {
        let Some(at) = at else { return std::future::pending().await };
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left < NEAR && self.timer.is_none() {
            // Without the thread the alarm is only less precise.
            self.timer = Timer::start().ok();
        }
        match self.timer.as_ref().filter(|_| left < NEAR) {
            Some(timer) => timer.until(at).await,
            None => tokio::time::sleep_until(at.into()).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn near_instants_are_met_more_precisely_than_the_runtime_can() {
        let mut alarm = Alarm::default();
        alarm.until(Some(Instant::now() + Duration::from_millis(3))).await;
        assert!(alarm.timer.is_none(), "no thread is needed for that");
        let best = {
            let mut best = Duration::MAX;
            for _ in 0..200 {
                let at = Instant::now() + Duration::from_micros(100);
                alarm.until(Some(at)).await;
                assert!(Instant::now() >= at);
                best = best.min(at.elapsed());
            }
            best
        };
        assert!(best < Duration::from_micros(500), "it is late by {best:?} at best");
    }
}
