//! Whether a node's journal gets written, and how long that usually takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The moving average takes in an eighth of the newest: it follows what the last few dozen took.
const WEIGHT: u64 = 8;

/// How the writes of a node's journal do. Any thread may ask at any time, without waiting for
/// anything.
#[derive(Clone, Debug)]
pub(crate) struct JournalProgress(Arc<Writes>);

#[derive(Debug)]
struct Writes {
    base: Instant,
    /// When the one under way began, in nanoseconds after `base`; 0 if there is none.
    began: AtomicU64,
    /// How long one takes, in nanoseconds. Only the writing thread itself changes it.
    average: AtomicU64,
}

impl JournalProgress {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Writes { base: Instant::now(), began: AtomicU64::new(0), average: AtomicU64::new(0) }))
    }

    /// Performs a write, on the one thread that does.
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

    /// For how long the write under way has been; zero if there is none. A disk that stands still
    /// shows here, and nowhere earlier.
    pub(crate) fn under_way_for(&self) -> Duration {
        match self.0.began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_nanos(self.now().saturating_sub(began)),
        }
    }

    /// How long a write, its sync included, took lately: a moving average; zero before the first.
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
