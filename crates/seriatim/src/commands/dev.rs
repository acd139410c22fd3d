//! `seriatim dev`: a whole cluster in one process.

use std::io::Write;

use seriatim_node::{Dev, DevOptions, DiskKind};
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::DevArguments;
use crate::output::{Failure, Outcome, note};

pub(crate) async fn run(arguments: DevArguments) -> Outcome {
    let mut options = DevOptions::new(arguments.data, arguments.listen);
    options.nodes = arguments.nodes;
    if arguments.volatile_disk {
        options.disk = DiskKind::Volatile;
    }
    if let Some(records) = arguments.ring_records {
        options.limits.ring_records = records;
    }
    // Signals count from here on: a cluster that is told to stop while it starts stops when it has.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut dev = tokio::spawn(Dev::start(options)).await??;
    for warning in dev.warnings() {
        note(format_args!("warning: {warning}"));
    }
    // A script waits for this line; if nobody reads it, the cluster serves all the same.
    let _ = writeln!(std::io::stdout(), "ready {}", dev.address());
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        failure = dev.failed() => return Err(Failure::new(failure.to_string())),
    }
    tokio::select! {
        stopped = dev.stop() => Ok(stopped?),
        _ = interrupt.recv() => Err(Failure::new("interrupted again: stopped at once, as if killed")),
    }
}
