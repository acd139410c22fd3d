//! Counts the bytes of a node's files on request, on a thread that may wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seriatim_host::Usage;
use seriatim_store::Disk;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::driver::Arrival;

/// Longest duration of a count: a client has its answer within a second, even with a stalled disk.
const LOOKS_FOR: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub(crate) struct Meter {
    disk: Arc<dyn Disk>,
    driver: mpsc::Sender<Arrival>,
    /// Whether a count is running. On a stalled disk it may never end.
    is_busy: Arc<AtomicBool>,
}

impl Meter {
    pub(crate) fn new(disk: Arc<dyn Disk>, driver: mpsc::Sender<Arrival>) -> Self {
        Self { disk, driver, is_busy: Arc::default() }
    }

    /// Starts a count. The driver receives one result per call: `None` if another count runs, or
    /// this one takes too long.
    pub(crate) fn look(&self) {
        let (disk, driver, is_busy) = (self.disk.clone(), self.driver.clone(), self.is_busy.clone());
        tokio::spawn(async move {
            let usage = match is_busy.swap(true, Ordering::Relaxed) {
                true => None,
                false => {
                    let looking = tokio::task::spawn_blocking(move || {
                        let used = disk.used();
                        is_busy.store(false, Ordering::Relaxed);
                        used.ok().flatten().map(Usage::of)
                    });
                    timeout(LOOKS_FOR, looking).await.ok().and_then(Result::ok).flatten()
                }
            };
            let _ = driver.send(Arrival::Usage(usage)).await;
        });
    }
}
