//! The times of transactions at the targets.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::stamp::stamp_of;

/// A transaction at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) target: usize,
    /// When the append should have begun.
    pub(super) scheduled: Instant,
    /// When the machine first received the record.
    pub(super) dispatched: Instant,
    /// When the target's handler began.
    pub(super) applied: Instant,
}

/// Samples of all targets.
#[derive(Debug)]
pub(super) struct Samples {
    /// Stamps count from this time.
    began: Instant,
    times: Mutex<Times>,
    changed: Notify,
}

#[derive(Debug)]
struct Times {
    /// Time of the first dispatch of each position.
    dispatched: HashMap<u64, Instant>,
    /// Number of messages that each target received.
    arrived: Vec<u64>,
    samples: Vec<Sample>,
}

impl Samples {
    pub(super) fn new(targets: u32, began: Instant) -> Self {
        let arrived = vec![0; targets as usize];
        let times = Times { dispatched: HashMap::new(), arrived, samples: vec![] };
        Self { began, times: Mutex::new(times), changed: Notify::new() }
    }

    /// The machine receives the record at a position now.
    pub(super) fn dispatched(&self, position: u64) {
        let now = Instant::now();
        self.lock().dispatched.entry(position).or_insert(now);
    }

    /// A target received messages at the time `applied`: their positions and first parts.
    pub(super) fn arrived<'a>(
        &self,
        target: usize,
        messages: impl Iterator<Item = (u64, &'a [u8])>,
        applied: Instant,
    ) {
        let mut times = self.lock();
        for (position, part) in messages {
            times.arrived[target] += 1;
            if let Some(scheduled) = stamp_of(part, self.began) {
                let dispatched = times.dispatched[&position];
                times.samples.push(Sample { target, scheduled, dispatched, applied });
            }
        }
        self.changed.notify_waiters();
    }

    /// Waits until each target has received at least this number of messages.
    pub(super) async fn reach(&self, wanted: &[u64]) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().arrived.iter().zip(wanted).all(|(arrived, wanted)| arrived >= wanted) {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn take(&self) -> Vec<Sample> {
        std::mem::take(&mut self.lock().samples)
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stamp::{WARM_UP, stamped};

    #[tokio::test]
    async fn samples_have_their_schedule_and_warm_ups_only_count() {
        let began = Instant::now();
        let samples = Samples::new(2, began);
        samples.dispatched(4);
        samples.dispatched(5);
        let (early, late) = (stamped(8, 1_000), stamped(8, WARM_UP));
        let applied = began + Duration::from_secs(2);
        samples.arrived(1, [(4, &early[..]), (5, &late[..])].into_iter(), applied);
        samples.reach(&[0, 2]).await;
        let [sample] = samples.take()[..] else { panic!("one sample") };
        assert_eq!((sample.target, sample.applied), (1, applied));
        assert_eq!(sample.scheduled, began + Duration::from_micros(1));
        assert!(sample.dispatched >= began);
    }
}
