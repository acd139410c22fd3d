//! Signals that stop a command, and SIGXFSZ, which must not.

use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::{Failure, Outcome};

/// Turns a write beyond the limit of file sizes (`ulimit -f`) into an error of that write.
/// Otherwise the operating system ends the process without a message. Needs a runtime.
pub(super) fn survive_file_size_limit() -> Outcome {
    let caught = signal(SignalKind::from_raw(Number::XFSZ.as_raw()));
    caught.map(drop).map_err(|cause| Failure::new(format!("cannot start: {cause}")))
}

/// SIGINT and SIGTERM from the creation of this value on.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    pub(super) async fn told(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    pub(super) async fn interrupted(&mut self) {
        self.interrupt.recv().await;
    }
}

/// Waits for either signal. Before the first poll a signal ends the process.
pub(super) async fn told() -> std::io::Result<()> {
    Signals::new()?.told().await;
    Ok(())
}

pub(super) const AT_ONCE: &str = "interrupted again: stopped at once, as if killed";
