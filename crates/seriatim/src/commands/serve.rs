//! `seriatim serve`: one node of a cluster.

use std::time::Duration;

use seriatim_node::{Awaits, DiskKind, EtcdOptions, Misdirected, Node, RegisterOptions, StartError};
use tokio::sync::watch;

use super::open_files;
use super::signals::Signals;
use super::starting::explain_late;
use super::stopping::{Bound, stop_within};
use crate::arguments::ServeArguments;
use crate::config;
use crate::output::{Failure, Outcome, Reports, tell_warnings};

pub(crate) async fn run(arguments: ServeArguments) -> Outcome {
    open_files::suffice_for(1)?;
    let reports = Reports::start(&arguments.events)?;
    reports.end(run_node(&arguments, &reports).await)
}

/// Runs the node until it stops or fails.
async fn run_node(arguments: &ServeArguments, reports: &Reports) -> Outcome {
    let bound = arguments.stop.bound();
    let mut options = config::read(&arguments.config)?;
    if arguments.volatile_disk {
        options.run.disk = DiskKind::Volatile;
    }
    let mut signals = Signals::new()?;
    let register = described(&options.register);
    let (awaits, awaited) = watch::channel(Awaits::Register(None));
    let starting = tokio::spawn(async move {
        let started = seriatim_node::serve(options, &awaits).await;
        // Keeping the sender keeps the explanations until the node has joined.
        (started, awaits)
    });
    let mut explained = Box::pin(explain_late(register, awaited));
    let (started, _awaits) = tokio::select! {
        // A node that has not started has nothing to lose.
        () = signals.told() => return Ok(()),
        () = &mut explained => unreachable!("it has no end"),
        started = starting => started?,
    };
    let mut node = started.map_err(|cause| failed(arguments, &cause))?;
    tell_warnings(node.warnings());
    if let Some(outage) = node.register_outage() {
        tokio::spawn(log_outages(outage));
    }
    let found = tokio::select! {
        () = signals.told() => return stop(node, bound, signals).await,
        found = find_itself(&node) => found,
    };
    if let Err(misdirected) = found {
        stop(node, bound, signals).await?;
        let config = arguments.config.display();
        return Err(Failure::new(format!("{config}: {misdirected} (setting 'advertise')")));
    }
    tokio::select! {
        () = signals.told() => return stop(node, bound, signals).await,
        () = explained => unreachable!("it has no end"),
        has_joined = node.joined() => if !has_joined {
            return Err(Failure::new(node.failed().await.to_string()));
        },
    }
    // Scripts wait for this line.
    reports.line(format_args!("ready {}", node.advertised()));
    tokio::select! {
        () = signals.told() => {}
        failure = node.failed() => return Err(Failure::new(failure.to_string())),
    }
    stop(node, bound, signals).await
}

/// Connects to the advertised address. Warns if no node answers: other nodes may reach it
/// nevertheless.
async fn find_itself(node: &Node) -> Result<(), Misdirected> {
    if let Some(cause) = node.reach_itself().await? {
        tracing::warn!(
            "this node does not reach itself at {}, its advertised address: {cause}. If other nodes do not reach it there \
             either, correct 'advertise'",
            node.advertised()
        );
    }
    Ok(())
}

async fn stop(node: Node, bound: Duration, signals: Signals) -> Outcome {
    let stopping = vec![node.stopping()];
    stop_within(Bound::from_now(bound), stopping, node.stop(), signals).await
}

/// Reports the beginning and the end of a register outage.
async fn log_outages(mut outage: watch::Receiver<Option<String>>) {
    let mut was_told = false;
    loop {
        let now = outage.borrow_and_update().clone();
        match &now {
            Some(cause) if !was_told => tracing::warn!("the register cannot be used: {cause}"),
            None if was_told => tracing::info!("the register answers again"),
            _ => {}
        }
        was_told = now.is_some();
        if outage.changed().await.is_err() {
            return;
        }
    }
}

fn described(register: &RegisterOptions) -> String {
    match register {
        RegisterOptions::Embedded => "on this node".into(),
        RegisterOptions::Node { node, address } => format!("on node {node} at {address}"),
        RegisterOptions::Etcd(EtcdOptions { endpoints, .. }) => {
            format!("in etcd at {}", endpoints.join(", "))
        }
    }
}

/// Adds the setting that helps.
fn failed(arguments: &ServeArguments, cause: &StartError) -> Failure {
    let setting = match cause {
        StartError::Bind(_) => " (setting 'listen')",
        StartError::Directory(_) | StartError::Identity(_) => " (setting 'data')",
        StartError::Register(_) | StartError::Etcd(_) => " (section [register])",
        StartError::Rival(_) => " (settings 'id' and 'data')",
        StartError::NoAddress(_) | StartError::Node(_) => "",
    };
    Failure::new(format!("{}: {cause}{setting}", arguments.config.display()))
}
