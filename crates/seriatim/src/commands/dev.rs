//! `seriatim dev`: a whole cluster in one process.

use seriatim_node::{Awaits, Dev, DevOptions, DiskKind, StartError};
use tokio::sync::watch;

use super::open_files;
use super::signals::Signals;
use super::starting::explain_late;
use super::stopping::{Bound, stop_within};
use crate::arguments::DevArguments;
use crate::config::{self, check_disk_bytes};
use crate::output::{Failure, Outcome, Reports, tell_warnings};

/// Nodes of a new cluster.
const USUAL_NODES: u32 = 3;

pub(crate) async fn run(arguments: DevArguments) -> Outcome {
    open_files::suffice_for(arguments.nodes.unwrap_or(USUAL_NODES))?;
    let reports = Reports::start(&arguments.events)?;
    reports.end(run_cluster(arguments, &reports).await)
}

/// Runs the cluster until it stops or fails.
async fn run_cluster(arguments: DevArguments, reports: &Reports) -> Outcome {
    let bound = arguments.stop.bound();
    let options = options(arguments)?;
    // A signal during the start stops the cluster after the start.
    let mut signals = Signals::new()?;
    let (awaits, awaited) = watch::channel(Awaits::Nothing);
    let mut starting = tokio::spawn(async move { Dev::start_told(options, &awaits).await });
    let explained = tokio::spawn(explain_late("of this cluster".into(), awaited.clone()));
    let started = tokio::select! {
        started = &mut starting => started,
        () = signals.told() => {
            tracing::info!("asked to stop during the start: the server shuts down when it has started");
            let bound = Bound::from_now(bound);
            let started = bound.start(starting, &awaited, &mut signals).await?;
            explained.abort();
            return stop(started?.map_err(with_option)?, reports, bound, signals).await;
        }
    };
    let mut dev = started?.map_err(with_option)?;
    explained.abort();
    dev.warnings().for_each(tell_warnings);
    // Scripts wait for this line.
    reports.line(format_args!("ready {}", dev.address()));
    tokio::select! {
        () = signals.told() => {}
        failure = dev.failed() => return Err(Failure::new(failure.to_string())),
    }
    stop(dev, reports, Bound::from_now(bound), signals).await
}

async fn stop(dev: Dev, reports: &Reports, bound: Bound, signals: Signals) -> Outcome {
    let stopping = dev.stopping();
    reports.end_events();
    stop_within(bound, stopping, dev.stop(), signals).await
}

fn options(arguments: DevArguments) -> Result<DevOptions, Failure> {
    let mut options = DevOptions::new(arguments.data, arguments.listen);
    options.nodes = arguments.nodes;
    if let Some(most) = arguments.max_disk_bytes {
        check_disk_bytes(most).map_err(Failure::new)?;
    }
    options.run.max_disk_bytes = arguments.max_disk_bytes;
    if arguments.volatile_disk {
        options.run.disk = DiskKind::Volatile;
    }
    options.run.limits = config::limits(&arguments.limits, options.run.limits).map_err(Failure::new)?;
    if let Some(records) = arguments.ring_records {
        options.run.limits.ring_records = records;
    }
    Ok(options)
}

/// The failure, whose text names the option that avoids it.
fn with_option(cause: StartError) -> Failure {
    let with = match &cause {
        StartError::Bind(_) => " with --listen",
        StartError::Directory(_) => " with --data",
        _ => "",
    };
    Failure::new(format!("{cause}{with}"))
}
