//! Arrivals on a schedule, whatever happens to those before.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

/// How many arrivals may wait to be taken: a stall of this many is still counted in full.
const BACKLOG: usize = 1 << 16;

/// The arrivals of one client: the instants at which it should have begun an append. Latency counts from
/// them, so that a stall is charged to every append that it delays.
pub(super) struct Pace {
    arrivals: mpsc::Receiver<Instant>,
}

impl Pace {
    /// Spreads `rate` arrivals a second evenly over the clients. A thread of its own keeps the time: the
    /// runtime's timers are a millisecond coarse.
    pub(super) fn split(rate: u64, clients: usize, duration: Duration) -> Vec<Self> {
        let (senders, paces): (Vec<_>, Vec<_>) = (0..clients)
            .map(|_| {
                let (sender, arrivals) = mpsc::channel(BACKLOG);
                (sender, Self { arrivals })
            })
            .unzip();
        let total = (rate as f64 * duration.as_secs_f64()) as u64;
        let start = Instant::now() + Duration::from_millis(50);
        std::thread::spawn(move || {
            for number in 0..total {
                let at = start + Duration::from_secs_f64(number as f64 / rate as f64);
                if let Some(left) = at.checked_duration_since(Instant::now()) {
                    std::thread::sleep(left);
                }
                // Waits if the backlog is full; the instant counts all the same.
                if senders[number as usize % senders.len()].blocking_send(at).is_err() {
                    return;
                }
            }
        });
        paces
    }

    /// The next arrival, when its time has come.
    pub(super) async fn next(&mut self) -> Option<Instant> {
        self.arrivals.recv().await
    }
}
