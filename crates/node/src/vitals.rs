//! State of a node's driver (its main loop), for the heartbeat thread.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use seriatim_protocol::control::Ailment;

use crate::progress::JournalProgress;

/// Duration of a journal write or driver step after which the node reports itself unable to serve.
/// Logs wait for the end of shorter stalls, and exclude the node after longer ones.
const STALLED_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The driver has not yet been asked to stop.
    Runs,
    /// The stopping driver waits for disk jobs.
    Writes,
    /// The stopping driver syncs buffered data, and writes the last entries.
    Closes,
    Ended,
}

const STAGES: [Stage; 4] = [Stage::Runs, Stage::Writes, Stage::Closes, Stage::Ended];

/// Values that the driver stores and other threads read, all without locks.
#[derive(Debug)]
pub(crate) struct Vitals {
    started: Instant,
    journal: JournalProgress,
    /// Start of the driver's current step in nanoseconds after `started`; 0 if there is none.
    stepping: AtomicU64,
    /// Number of suspicions of other nodes that proved wrong.
    wrong_suspicions: AtomicU64,
    has_full_disk: AtomicBool,
    /// Index into [`STAGES`].
    stage: AtomicU8,
}

impl Vitals {
    pub(crate) fn new(journal: JournalProgress) -> Self {
        Self {
            started: Instant::now(),
            journal,
            stepping: AtomicU64::new(0),
            wrong_suspicions: AtomicU64::new(0),
            has_full_disk: AtomicBool::new(false),
            stage: AtomicU8::new(0),
        }
    }

    /// Notes that a driver step begins (true) or has ended (false).
    pub(crate) fn steps(&self, goes_on: bool) {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        self.stepping.store(if goes_on { nanos } else { 0 }, Ordering::Relaxed);
    }

    pub(crate) fn was_wrong(&self, times: u64) {
        self.wrong_suspicions.store(times, Ordering::Relaxed);
    }

    pub(crate) fn disk_is(&self, is_full: bool) {
        self.has_full_disk.store(is_full, Ordering::Relaxed);
    }

    pub(crate) fn stops(&self, stage: Stage) {
        let number = STAGES.iter().position(|known| *known == stage).expect("each stage is listed");
        self.stage.store(u8::try_from(number).expect("there are few"), Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> Stage {
        STAGES[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    pub(crate) fn writes_for(&self) -> Duration {
        self.journal.under_way_for()
    }

    pub(crate) fn wrong_suspicions(&self) -> u64 {
        self.wrong_suspicions.load(Ordering::Relaxed)
    }

    pub(crate) fn steps_for(&self) -> Duration {
        match self.stepping.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.started.elapsed().saturating_sub(Duration::from_nanos(since)),
        }
    }

    /// Why the node cannot serve, or takes no records; `None` if healthy.
    pub(crate) fn ailment(&self) -> Option<Ailment> {
        if self.steps_for() >= STALLED_AFTER {
            Some(Ailment::Stuck)
        } else if self.journal.under_way_for() >= STALLED_AFTER {
            Some(Ailment::DiskStalled)
        } else if self.has_full_disk.load(Ordering::Relaxed) {
            Some(Ailment::DiskFull)
        } else {
            None
        }
    }
}
