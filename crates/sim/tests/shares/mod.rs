//! One day's share of a long list of runs, on all processors.
//!
//! `cargo test` takes a quarter of each list, another each day; `SERIATIM_ALL_SEEDS=1`, as in
//! `.ci/run`, takes all.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const ALL: &str = "SERIATIM_ALL_SEEDS";
const SHARES: u64 = 4;
const DAY_S: u64 = 24 * 60 * 60;

/// Runs today's share in parallel. Results have no particular order.
pub(crate) fn run_share<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    let wants_all = std::env::var(ALL).is_ok_and(|value| !value.is_empty() && value != "0");
    run_part(items, (!wants_all).then_some(now.as_secs() / DAY_S), run)
}

/// Runs a day's share; `None`: all items.
fn run_part<T: Sync, R: Send>(items: &[T], day: Option<u64>, run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let is_in = |index: u64| day.is_none_or(|day| index % SHARES == day % SHARES);
    let share: Vec<&T> = (0..).zip(items).filter(|(index, _)| is_in(*index)).map(|(_, item)| item).collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let work = || {
        while let Some(item) = share.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = run(item);
            results.lock().expect("no thread panicked").push(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    results.into_inner().expect("no thread panicked")
}

#[test]
fn four_days_take_everything_once() {
    let items: Vec<u64> = (0..103).collect();
    let mut taken: Vec<u64> =
        (20_000..20_000 + SHARES).flat_map(|day| run_part(&items, Some(day), |item| *item)).collect();
    taken.sort_unstable();
    assert_eq!(taken, items);
    assert_eq!(run_part(&items, None, |_| ()).len(), items.len());
}
