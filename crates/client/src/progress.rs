//! Deadlines of appends: each answer to a session's oldest append restarts them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// Time of a session's last progress: the answer to its oldest append in flight. The client's task
/// writes it; all waiting callers read it.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Instant,
    /// Nanoseconds since `began`.
    advanced: AtomicU64,
    /// Progress over all sessions of the same handle.
    whole: Option<Arc<Self>>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { began: Instant::now(), advanced: AtomicU64::new(0), whole: None }
    }
}

impl Progress {
    /// Progress of a session that also counts for `whole`.
    pub(crate) fn of(whole: Arc<Self>) -> Self {
        Self { whole: Some(whole), ..Self::default() }
    }

    pub(crate) fn advance(&self) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.advanced.fetch_max(nanos, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.advance();
        }
    }

    /// Time of the last progress, or of creation if there was none.
    pub(crate) fn advanced_at(&self) -> Instant {
        self.began + Duration::from_nanos(self.advanced.load(Ordering::Relaxed))
    }
}

/// Waits for an answer that may queue behind appends in flight. None: for the duration `within`,
/// neither the answer arrived nor the session made progress.
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
