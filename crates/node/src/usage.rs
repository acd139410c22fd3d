//! The bytes that a node's files take: counted when somebody asks, by a thread that may wait for
//! the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seriatim_host::Usage;
use seriatim_store::Disk;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::driver::Arrival;

/// How long a look may take: who asks has an answer within a second, also on a disk that stands
/// still.
const LOOKS_FOR: Duration = Duration::from_millis(400);

/// Looks at the disk.
#[derive(Debug)]
pub(crate) struct Meter {
    disk: Arc<dyn Disk>,
    driver: mpsc::Sender<Arrival>,
    /// A look is under way, which may not end.
    is_busy: Arc<AtomicBool>,
}

impl Meter {
    pub(crate) fn new(disk: Arc<dyn Disk>, driver: mpsc::Sender<Arrival>) -> Self {
        Self { disk, driver, is_busy: Arc::default() }
    }

    /// Takes a look; the driver is told of what was seen, or that it takes too long, once for each
    /// call.
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
            // A driver that is gone answers nobody.
            let _ = driver.send(Arrival::Usage(usage)).await;
        });
    }
}
