//! Waits for an instant more precisely than the runtime's timers, whose precision is 1 ms. A
//! separate thread keeps the time.
//!
//! To wake a thread and then a task takes 20 to 100 us, more after idle time. [`Timer::exactly`]
//! wakes the task early by the usual delay and spins for the rest.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Most time by which tasks are woken early, and so the longest spin.
const MAX_LEAD_NS: u64 = 100_000;
/// Change of the lead in one adaptation.
const LEAD_STEP_NS: u64 = 500;

/// Wakes tasks at instants. Clones share one thread, which ends with the last.
#[derive(Clone, Debug)]
pub struct Timer {
    guard: Arc<Guard>,
}

#[derive(Debug)]
struct Guard {
    alarms: Arc<Alarms>,
    lead: Lead,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.alarms.state().stopped = true;
        self.alarms.changed.notify_one();
    }
}

impl Timer {
    /// Starts the timer's thread.
    ///
    /// # Errors
    /// If the operating system provides none.
    pub fn start() -> io::Result<Self> {
        let alarms = Arc::new(Alarms::default());
        let shared = Arc::clone(&alarms);
        thread::Builder::new().name("timer".to_owned()).spawn(move || shared.keep())?;
        Ok(Self { guard: Arc::new(Guard { alarms, lead: Lead::default() }) })
    }

    /// Waits at least until `at`, plus the time to wake a task. Cancel safe.
    pub async fn until(&self, at: Instant) {
        poll_fn(|context| {
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            self.guard.alarms.add(at, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits at least until `at`, usually a few microseconds longer; spins for a moment. Cancel
    /// safe.
    pub async fn exactly(&self, at: Instant) {
        let lead = &self.guard.lead;
        let left = at.saturating_duration_since(Instant::now());
        // Spins for at most half of a short wait.
        self.until(at - lead.get().min(left / 2)).await;
        if !left.is_zero() && lead.get() <= left / 2 {
            lead.adapt(Instant::now() >= at);
        }
        while Instant::now() < at {
            std::hint::spin_loop();
        }
    }
}

/// How early to wake a task: adapted until as many are early as late.
#[derive(Debug, Default)]
struct Lead {
    ns: AtomicU64,
}

impl Lead {
    fn get(&self) -> Duration {
        Duration::from_nanos(self.ns.load(Ordering::Relaxed))
    }

    fn adapt(&self, was_late: bool) {
        let ns = self.ns.load(Ordering::Relaxed);
        let better = if was_late { ns + LEAD_STEP_NS } else { ns.saturating_sub(LEAD_STEP_NS) };
        // Of two concurrent adaptations one is lost.
        self.ns.store(better.min(MAX_LEAD_NS), Ordering::Relaxed);
    }
}

/// Tasks to wake. A task that stopped waiting is woken without effect.
#[derive(Debug, Default)]
struct Alarms {
    state: Mutex<State>,
    /// Signals a new earliest alarm, or the end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Keyed by instant and number: several may share an instant.
    waiting: BTreeMap<(Instant, u64), Waker>,
    added: u64,
    stopped: bool,
}

impl State {
    fn first(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    fn take_due(&mut self, now: Instant) -> Vec<Waker> {
        let mut due = vec![];
        while self.first().is_some_and(|at| at <= now) {
            due.extend(self.waiting.pop_first().map(|(_, waker)| waker));
        }
        due
    }
}

impl Alarms {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    fn add(&self, at: Instant, waker: Waker) {
        let mut state = self.state();
        let is_first = state.first().is_none_or(|first| at < first);
        state.added += 1;
        let key = (at, state.added);
        state.waiting.insert(key, waker);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    fn keep(&self) {
        sleep_precisely();
        let mut state = self.state();
        while !state.stopped {
            let due = state.take_due(Instant::now());
            if !due.is_empty() {
                drop(state);
                due.into_iter().for_each(Waker::wake);
                state = self.state();
                continue;
            }
            let left = state.first().map(|at| at.saturating_duration_since(Instant::now()));
            const POISONED: &str = "nothing panics while it holds this lock";
            state = match left {
                Some(left) => self.changed.wait_timeout(state, left).expect(POISONED).0,
                None => self.changed.wait(state).expect(POISONED),
            };
        }
    }
}

/// Asks the kernel for exact wake-ups: by default they may be 50 us late, to save power.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    {
        // A refusal only costs precision.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn nobody_is_woken_early_and_everybody_in_the_end() {
        let timer = Timer::start().unwrap();
        let start = Instant::now();
        // The latest first, so that each further one becomes the earliest alarm.
        let waits = (0..20_u32).rev().map(|number| {
            let (timer, at) = (timer.clone(), start + number * Duration::from_micros(500));
            tokio::spawn(async move {
                timer.until(at).await;
                Instant::now() >= at
            })
        });
        for wait in waits.collect::<Vec<_>>() {
            assert!(wait.await.unwrap());
        }
        assert_eq!(timer.guard.alarms.state().first(), None);
    }

    #[tokio::test]
    async fn who_is_woken_ahead_is_not_early_either() {
        let timer = Timer::start().unwrap();
        timer.guard.lead.ns.store(MAX_LEAD_NS, Ordering::Relaxed);
        for us in [0, 50, 300, 1000, 0, 300] {
            let at = Instant::now() + Duration::from_micros(us);
            timer.exactly(at).await;
            assert!(Instant::now() >= at);
        }
    }

    #[test]
    fn the_lead_becomes_what_a_wake_up_takes_and_no_more_than_its_bound() {
        let lead = Lead::default();
        let takes = Duration::from_micros(40);
        (0..1000).for_each(|_| lead.adapt(lead.get() < takes));
        assert!(lead.get().abs_diff(takes) <= Duration::from_nanos(LEAD_STEP_NS));
        (0..1000).for_each(|_| lead.adapt(true));
        assert_eq!(lead.get(), Duration::from_nanos(MAX_LEAD_NS));
        (0..1000).for_each(|_| lead.adapt(false));
        assert_eq!(lead.get(), Duration::ZERO);
    }

    #[tokio::test]
    async fn its_thread_ends_with_it() {
        let timer = Timer::start().unwrap();
        let alarms = Arc::clone(&timer.guard.alarms);
        let clone = timer.clone();
        drop(timer);
        clone.until(Instant::now() + Duration::from_millis(1)).await;
        drop(clone);
        while Arc::strong_count(&alarms) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
