//! How long an append may take: while those before it in its session get on, its time does not run.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// When a session got on last: the oldest of its appends in flight had its answer. Written by the
/// client's task, and read by all that waits.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Instant,
    /// In nanoseconds since it began.
    advanced: AtomicU64,
    /// That of all sessions of the handle.
    whole: Option<Arc<Self>>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { began: Instant::now(), advanced: AtomicU64::new(0), whole: None }
    }
}

impl Progress {
    /// That of a session, which is a part of a whole.
    pub(crate) fn of(whole: Arc<Self>) -> Self {
        Self { whole: Some(whole), ..Self::default() }
    }

    /// The session gets on, now.
    pub(crate) fn advance(&self) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.advanced.fetch_max(nanos, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.advance();
        }
    }

    /// When it got on last, or began.
    pub(crate) fn advanced_at(&self) -> Instant {
        self.began + Duration::from_nanos(self.advanced.load(Ordering::Relaxed))
    }
}

/// The answer to something that comes after what is in flight; none if there is no answer `within`
/// so long after it was asked for or there was progress, whatever was later.
pub(crate) async fn answer_within<T>(
    within: Duration,
    progress: &Progress,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    let mut due = Instant::now() + within;
    loop {
        if let Ok(answer) = timeout_at(due, answer.as_mut()).await {
            return Some(answer);
        }
        due = Some(progress.advanced_at() + within).filter(|later| *later > due)?;
    }
}
