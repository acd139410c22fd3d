//! How a node's driver is doing, for the thread that answers for the node.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use seriatim_protocol::control::Ailment;

use crate::progress::JournalProgress;

/// For how long a journal write or a step of the driver may take before the node says of itself
/// that it cannot serve. A disk that stands still for a moment delays its logs; one that does not
/// come back is to be done without.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// How far a node is with an orderly end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The driver has not heard yet that it is to stop, if it is.
    Runs,
    /// The end waits for what is under way with the disk.
    Writes,
    /// All that is held is synced, and the last entries are written.
    Closes,
    /// It is over.
    Ended,
}

const STAGES: [Stage; 4] = [Stage::Runs, Stage::Writes, Stage::Closes, Stage::Ended];

/// Facts that the driver notes, at the cost of a store, and others read.
#[derive(Debug)]
pub(crate) struct Vitals {
    started: Instant,
    journal: JournalProgress,
    /// Since when the driver's present step has been, in nanoseconds after the start; 0 if there is
    /// none.
    stepping: AtomicU64,
    /// How many suspicions of other nodes turned out wrong.
    wrong_suspicions: AtomicU64,
    /// The disk has no room for records.
    has_full_disk: AtomicBool,
    /// Which of [`STAGES`].
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

    /// The driver begins a step, or waits for something to do.
    pub(crate) fn steps(&self, goes_on: bool) {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        self.stepping.store(if goes_on { nanos } else { 0 }, Ordering::Relaxed);
    }

    /// So many suspicions of other nodes turned out wrong so far.
    pub(crate) fn was_wrong(&self, times: u64) {
        self.wrong_suspicions.store(times, Ordering::Relaxed);
    }

    /// The disk has no room for records, or has enough.
    pub(crate) fn disk_is(&self, is_full: bool) {
        self.has_full_disk.store(is_full, Ordering::Relaxed);
    }

    /// An orderly end is so far.
    pub(crate) fn stops(&self, stage: Stage) {
        let number = STAGES.iter().position(|known| *known == stage).expect("each stage is listed");
        self.stage.store(u8::try_from(number).expect("there are few"), Ordering::Relaxed);
    }

    pub(crate) fn stage(&self) -> Stage {
        STAGES[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    /// For how long the journal write under way has been.
    pub(crate) fn writes_for(&self) -> Duration {
        self.journal.under_way_for()
    }

    pub(crate) fn wrong_suspicions(&self) -> u64 {
        self.wrong_suspicions.load(Ordering::Relaxed)
    }

    /// For how long the driver's present step has been.
    pub(crate) fn steps_for(&self) -> Duration {
        match self.stepping.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.started.elapsed().saturating_sub(Duration::from_nanos(since)),
        }
    }

    /// Why the node cannot serve at present, if it cannot, or takes no records.
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
