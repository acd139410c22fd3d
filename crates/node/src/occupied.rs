//! Ports and data directories that another process holds. A process that was killed holds them for
//! some milliseconds, and a supervisor or a user starts its successor at once: a start waits for
//! them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use seriatim_net::{BindError, Listener};
use seriatim_store::Disk;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::disk::DataDirectoryError;
use crate::start::{self, Awaits, NodeOptions};

/// How long a start waits for a port or a directory that another process holds.
const FREE_WITHIN: Duration = Duration::from_secs(5);
/// How often it tries to take it.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Binds an address, as [`Listener::bind`]. While another process holds the port, the start waits,
/// and `awaits` has the reason.
pub(crate) async fn bind(address: &str, awaits: &watch::Sender<Awaits>) -> Result<Listener, BindError> {
    let mut wait = Wait::new(awaits);
    loop {
        match Listener::bind(address).await {
            Err(BindError::InUse(at)) if wait.may_go_on() => {
                wait.again(format!("port {} on {}", at.port(), at.ip())).await;
            }
            outcome => return outcome,
        }
    }
}

/// Opens the directory of a node's files, as [`start::open_disk`]. While another process holds the
/// directory, the start waits, and `awaits` has the reason.
pub(crate) async fn open_disk(
    directory: &Path,
    options: &NodeOptions,
    awaits: &watch::Sender<Awaits>,
) -> Result<Arc<dyn Disk>, DataDirectoryError> {
    let mut wait = Wait::new(awaits);
    loop {
        match start::open_disk(directory, options) {
            Err(DataDirectoryError::InUse(_)) if wait.may_go_on() => {
                wait.again(format!("the data directory {}", directory.display())).await;
            }
            outcome => return outcome,
        }
    }
}

/// A wait for something that another process holds.
struct Wait<'a> {
    until: Instant,
    awaits: &'a watch::Sender<Awaits>,
    /// The wait that the start had reported before. `None`: the port or the directory was free at
    /// the first try.
    before: Option<Awaits>,
}

impl<'a> Wait<'a> {
    fn new(awaits: &'a watch::Sender<Awaits>) -> Self {
        Self { until: Instant::now() + FREE_WITHIN, awaits, before: None }
    }

    fn may_go_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// Rests until the next try.
    async fn again(&mut self, what: String) {
        if self.before.is_none() {
            self.before = Some(self.awaits.send_replace(Awaits::Held(what)));
        }
        sleep(TRY_EVERY).await;
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.awaits.send_replace(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_port_is_waited_for_until_it_is_free_and_no_longer_than_the_limit() {
        let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = holder.local_addr().unwrap();
        let began = Instant::now();
        let (awaits, awaited) = watch::channel(Awaits::Nothing);
        let refused = bind(&address.to_string(), &awaits).await.unwrap_err();
        assert!(matches!(refused, BindError::InUse(at) if at == address), "{refused}");
        assert!(began.elapsed() >= FREE_WITHIN);
        let waiting = tokio::spawn(async move { bind(&address.to_string(), &awaits).await });
        let mut told = awaited.clone();
        let holds = |awaits: &Awaits| matches!(awaits, Awaits::Held(what) if what.starts_with("port "));
        told.wait_for(holds).await.unwrap();
        drop(holder);
        assert_eq!(waiting.await.unwrap().unwrap().address(), address);
        assert_eq!(*awaited.borrow(), Awaits::Nothing);
    }
}
