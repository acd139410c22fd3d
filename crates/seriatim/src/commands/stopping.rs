//! Orderly shutdown with a time limit.

use std::time::Duration;

use seriatim_node::{Awaits, Stopping};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use super::signals::{AT_ONCE, Signals};
use super::starting;
use crate::output::{Failure, LAST_LINES, Outcome, TO_THE_END};

const SAY_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    most: Duration,
    at: Instant,
}

impl Bound {
    /// The shutdown takes at most `most` from now on, including the last lines of the server.
    ///
    /// # Panics
    /// If `most` is not longer than [`LAST_LINES`].
    pub(super) fn from_now(most: Duration) -> Self {
        assert!(most > LAST_LINES, "an end that takes at most {most:?} has no time for its last lines");
        Self { most, at: Instant::now() + most - LAST_LINES }
    }

    pub(super) async fn start<T>(
        self,
        starting: JoinHandle<T>,
        awaited: &watch::Receiver<Awaits>,
        signals: &mut Signals,
    ) -> Result<Result<T, JoinError>, Failure> {
        tokio::select! {
            started = starting => Ok(started),
            () = tokio::time::sleep_until(self.at) => {
                let waits_for = starting::in_words("of this cluster", &awaited.borrow());
                Err(self.exceeded(&waits_for))
            }
            () = signals.interrupted() => Err(Failure::new(AT_ONCE)),
        }
    }

    fn exceeded(self, waits_for: &str) -> Failure {
        let seconds = self.most.as_secs();
        Failure::new(format!(
            "not stopped within {seconds} s, and ended as if killed; it waited for {waits_for}"
        ))
    }
}

/// Waits for the shutdown and reports its progress. At the deadline the process ends as if killed.
pub(super) async fn stop_within<E: std::error::Error>(
    bound: Bound,
    stopping: Vec<Stopping>,
    ending: impl Future<Output = Result<(), E>>,
    mut signals: Signals,
) -> Outcome {
    let waits_for = || stopping.iter().filter_map(Stopping::waits_for).collect::<Vec<_>>().join("; ");
    tracing::info!(target: TO_THE_END, "shutting down: flushing writes in progress");
    let mut told = String::new();
    let tells = async {
        loop {
            tokio::time::sleep(SAY_EVERY).await;
            let now = waits_for();
            // The text contains the elapsed time, so it changes at each tick.
            if now != told {
                tracing::warn!(target: TO_THE_END, "still shutting down: waiting for {now}");
                told = now;
            }
        }
    };
    tokio::select! {
        ended = ending => Ok(ended?),
        () = tells => unreachable!("it has no end"),
        () = tokio::time::sleep_until(bound.at) => Err(bound.exceeded(&waits_for())),
        () = signals.interrupted() => Err(Failure::new(AT_ONCE)),
    }
}
