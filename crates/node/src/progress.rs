//! Progress and duration of journal writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Each write contributes an eighth to the moving average: it follows the last few dozen writes.
const WEIGHT: u64 = 8;

/// Progress of journal writes. Any thread can read it without waiting.
#[derive(Clone, Debug)]
pub(crate) struct JournalProgress(Arc<Writes>);

#[derive(Debug)]
struct Writes {
    base: Instant,
    /// Start of the current write in nanoseconds after `base`; 0 if there is none.
    began: AtomicU64,
    /// Average duration in nanoseconds. Only the writing thread changes it.
    average: AtomicU64,
}

impl JournalProgress {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Writes { base: Instant::now(), began: AtomicU64::new(0), average: AtomicU64::new(0) }))
    }

    pub(crate) fn during<T>(&self, write: impl FnOnce() -> T) -> T {
        let Writes { began, average, .. } = &*self.0;
        let begin = self.now().max(1);
        began.store(begin, Ordering::Relaxed);
        let outcome = write();
        began.store(0, Ordering::Relaxed);
        let (took, before) = (self.now().saturating_sub(begin), average.load(Ordering::Relaxed));
        let next = if before == 0 { took } else { before - before / WEIGHT + took / WEIGHT };
        average.store(next, Ordering::Relaxed);
        outcome
    }

    /// Duration of the current write; zero if there is none. A long duration is the first sign of a
    /// stalled disk.
    pub(crate) fn under_way_for(&self) -> Duration {
        match self.0.began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_nanos(self.now().saturating_sub(began)),
        }
    }

    /// Moving average of write durations, sync included; zero before the first.
    pub(crate) fn write_time(&self) -> Duration {
        Duration::from_nanos(self.0.average.load(Ordering::Relaxed))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_shows_until_it_returns() {
        let progress = JournalProgress::new();
        assert_eq!((progress.under_way_for(), progress.write_time()), (Duration::ZERO, Duration::ZERO));
        let began = Instant::now();
        progress.during(|| {
            while progress.under_way_for() < Duration::from_millis(2) {
                std::thread::yield_now();
            }
            assert!(progress.under_way_for() <= began.elapsed() + Duration::from_millis(1));
        });
        assert_eq!(progress.under_way_for(), Duration::ZERO);
        assert!(progress.write_time() >= Duration::from_millis(2));
    }

    #[test]
    fn the_average_follows_what_writes_take() {
        let progress = JournalProgress::new();
        progress.0.average.store(1 << 40, Ordering::Relaxed);
        for _ in 0..100 {
            progress.during(|| ());
        }
        assert!(progress.write_time() < Duration::from_nanos(1 << 30));
    }
}
