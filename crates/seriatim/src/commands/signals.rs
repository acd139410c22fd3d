//! Being told to stop, and signals that end no command.

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{Failure, Outcome};

/// From here on a write beyond the limit of file sizes (`ulimit -f`) is an error of that write.
/// Without this the operating system ends the process, which says nothing. To be called within a
/// runtime.
///
/// # Errors
/// If the operating system refuses it.
pub(super) fn survive_file_size_limit() -> Outcome {
    let caught = signal(SignalKind::from_raw(Number::XFSZ.as_raw()));
    caught.map(drop).map_err(|cause| Failure::new(format!("cannot start: {cause}")))
}

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
