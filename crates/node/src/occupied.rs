//! Waits for ports and data directories that another process holds. A killed process holds them for
//! some milliseconds, and its successor may start at once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use seriatim_net::{BindError, Listener};
use seriatim_store::Disk;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::disk::DataDirectoryError;
use crate::start::{self, Awaits, NodeOptions};

/// Longest wait for a port or a directory.
const FREE_WITHIN: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(20);

/// As [`Listener::bind`], but waits while another process holds the port. `awaits` reports the
/// reason.
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

/// As [`start::open_disk`], but waits while another process holds the directory. `awaits` reports
/// the reason.
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

struct Wait<'a> {
    until: Instant,
    awaits: &'a watch::Sender<Awaits>,
    /// The report of the start before this wait replaced it. `None` if the first attempt succeeded.
    before: Option<Awaits>,
}

impl<'a> Wait<'a> {
    fn new(awaits: &'a watch::Sender<Awaits>) -> Self {
        Self { until: Instant::now() + FREE_WITHIN, awaits, before: None }
    }

    fn may_go_on(&self) -> bool {
        Instant::now() < self.until
    }

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
