//! Being told to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM, from the moment that this is made.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits until the process is told to stop.
    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits until somebody at a terminal has no patience.
    pub(super) async fn interrupted(&mut self) {
        self.interrupt.recv().await;
    }
}

/// Waits until the process is told to stop; until this is first polled, being told ends it at once.
pub(super) async fn told() -> std::io::Result<()> {
    Signals::new()?.told().await;
    Ok(())
}

/// The message when an orderly end was interrupted.
pub(super) const AT_ONCE: &str = "interrupted again: stopped at once, as if killed";
