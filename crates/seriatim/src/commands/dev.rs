//! `seriatim dev`: a whole cluster in one process.

use seriatim_node::{Dev, DevOptions, DiskKind, StartError};

use super::signals::{AT_ONCE, Signals};
use crate::arguments::DevArguments;
use crate::config::check_disk_bytes;
use crate::output::{Failure, Outcome, print_line, tell_events, tell_warnings};

pub(crate) async fn run(arguments: DevArguments) -> Outcome {
    let events = tell_events(&arguments.events);
    let mut options = DevOptions::new(arguments.data, arguments.listen);
    options.nodes = arguments.nodes;
    if let Some(most) = arguments.max_disk_bytes {
        check_disk_bytes(most).map_err(Failure::new)?;
    }
    options.run.max_disk_bytes = arguments.max_disk_bytes;
    if arguments.volatile_disk {
        options.run.disk = DiskKind::Volatile;
    }
    if let Some(records) = arguments.ring_records {
        options.run.limits.ring_records = records;
    }
    // Signals count from here on: a cluster that is told to stop while it starts stops when it has.
    let mut signals = Signals::new()?;
    let mut dev = tokio::spawn(Dev::start(options)).await?.map_err(explained)?;
    dev.warnings().for_each(tell_warnings);
    // A script waits for this line; if nobody reads it, the cluster serves all the same.
    print_line(format_args!("ready {}", dev.address()));
    tokio::select! {
        () = signals.told() => {}
        failure = dev.failed() => return Err(Failure::new(failure.to_string())),
    }
    events.end();
    tokio::select! {
        stopped = dev.stop() => Ok(stopped?),
        () = signals.interrupted() => Err(Failure::new(AT_ONCE)),
    }
}

/// With the option that helps.
fn explained(cause: StartError) -> Failure {
    let with = match &cause {
        StartError::Bind(_) => " with --listen",
        StartError::Directory(_) => " with --data",
        _ => "",
    };
    Failure::new(format!("{cause}{with}"))
}
