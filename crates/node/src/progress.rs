//! Whether a node's disk moves, and how long it usually takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The moving average takes in an eighth of the newest: it follows what the last few dozen took.
const WEIGHT: u64 = 8;

/// How a node's disk does. Any thread may ask at any time, without waiting for anything.
#[derive(Clone, Debug)]
pub struct DiskProgress {
    journal: Arc<Outstanding>,
    files: Arc<Outstanding>,
}

impl DiskProgress {
    pub(crate) fn new() -> Self {
        let base = Instant::now();
        Self { journal: Arc::new(Outstanding::new(base)), files: Arc::new(Outstanding::new(base)) }
    }

    pub(crate) fn journal(&self) -> Arc<Outstanding> {
        self.journal.clone()
    }

    pub(crate) fn files(&self) -> Arc<Outstanding> {
        self.files.clone()
    }

    /// Since when the oldest journal write, or sync of a file, is under way that has not returned; nothing if none is.
    /// A disk that stands still shows here, and nowhere earlier.
    #[must_use]
    pub fn outstanding_since(&self) -> Option<Instant> {
        [self.journal.since(), self.files.since()].into_iter().flatten().min()
    }

    /// How long a journal write, its sync included, took lately: a moving average; zero before the first.
    #[must_use]
    pub fn write_time(&self) -> Duration {
        Duration::from_nanos(self.journal.average.load(Ordering::Relaxed))
    }
}

/// What one thread waits for.
#[derive(Debug)]
pub(crate) struct Outstanding {
    base: Instant,
    /// When it began, in nanoseconds after `base`; 0 if nothing is under way.
    began: AtomicU64,
    /// How long one takes, in nanoseconds. Only the thread itself writes it.
    average: AtomicU64,
}

impl Outstanding {
    fn new(base: Instant) -> Self {
        Self { base, began: AtomicU64::new(0), average: AtomicU64::new(0) }
    }

    /// Performs something that waits for the disk, on the one thread that this is about.
    pub(crate) fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = self.now().max(1);
        self.began.store(began, Ordering::Relaxed);
        let outcome = wait();
        self.began.store(0, Ordering::Relaxed);
        let (took, average) = (self.now().saturating_sub(began), self.average.load(Ordering::Relaxed));
        let next = if average == 0 { took } else { average - average / WEIGHT + took / WEIGHT };
        self.average.store(next, Ordering::Relaxed);
        outcome
    }

    fn since(&self) -> Option<Instant> {
        let began = self.began.load(Ordering::Relaxed);
        (began != 0).then(|| self.base + Duration::from_nanos(began))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_shows_until_it_returns() {
        let progress = DiskProgress::new();
        assert_eq!((progress.outstanding_since(), progress.write_time()), (None, Duration::ZERO));
        let before = Instant::now();
        progress.files().during(|| {
            let first = progress.outstanding_since().unwrap();
            assert!(first >= before && first <= Instant::now());
            progress.journal().during(|| assert_eq!(progress.outstanding_since(), Some(first)));
        });
        assert_eq!(progress.outstanding_since(), None);
        assert!(progress.write_time() > Duration::ZERO);
    }

    #[test]
    fn the_average_follows_what_writes_take() {
        let outstanding = Outstanding::new(Instant::now());
        outstanding.average.store(1 << 40, Ordering::Relaxed);
        for _ in 0..100 {
            outstanding.during(|| ());
        }
        assert!(outstanding.average.load(Ordering::Relaxed) < 1 << 30);
    }
}
