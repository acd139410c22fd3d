//! `seriatim status`: the health of nodes and logs.

mod health;
mod presentation;

use std::time::Duration;

use seriatim_client::{Client, Condition, LogEntry, LogStatus, NodeStatus, Partings};
use tokio::time::{Instant, timeout};

use super::connect;
use crate::arguments::StatusArguments;
use crate::output::{Failure, Outcome, print_line};

/// Time for the register to answer before the nodes are asked.
const REGISTER_WITHIN: Duration = Duration::from_secs(2);
/// Interval between looks of `--wait`.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The cluster at one moment.
#[derive(Debug)]
struct Cluster {
    has_register: bool,
    nodes: Vec<(NodeStatus, Option<Condition>)>,
    logs: Vec<LogStatus>,
    /// Nodes that drain or were removed.
    partings: Partings,
}

/// Prints the status once, or repeatedly.
///
/// # Errors
/// If something is wrong. The error has no text: the exit status tells it.
pub(crate) async fn run(server: &str, arguments: StatusArguments) -> Outcome {
    let waits_until = arguments.wait.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut connected = None;
    loop {
        let looked = match &connected {
            Some(client) => look(client).await,
            None => match connect(server).await {
                Ok(client) => look(connected.insert(client)).await,
                Err(failure) => Err(failure),
            },
        };
        let cluster = match looked {
            // The node to connect to may still start.
            Err(_) if may_wait(waits_until) => {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            looked => looked?,
        };
        let judgement = health::judge(&cluster);
        if !judgement.is_well() && may_wait(waits_until) {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        if arguments.json {
            print_line(presentation::as_json(&cluster, &judgement));
        } else {
            presentation::print(&cluster, &judgement, arguments.watch.is_some());
        }
        match arguments.watch {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None if judgement.is_well() => return Ok(()),
            None => return Err(Failure::Unwell),
        }
    }
}

fn may_wait(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

async fn look(client: &Client) -> Result<Cluster, Failure> {
    let (entries, nodes, has_register) = match timeout(REGISTER_WITHIN, client.list()).await {
        Ok(Ok((entries, nodes))) => (entries, nodes, true),
        Ok(Err(_)) | Err(_) => match client.known().await {
            Some((entries, nodes)) => (entries, nodes, false),
            None => return Err(Failure::new("neither the register nor the node that was asked answers")),
        },
    };
    let asked = entries.into_iter().map(|entry: LogEntry| {
        let client = client.clone();
        tokio::spawn(async move { client.status(entry).await })
    });
    let asked: Vec<_> = asked.collect();
    let nodes = conditions(client, nodes).await?;
    let mut logs = vec![];
    for log in asked {
        logs.push(log.await?);
    }
    // A register of an earlier build does not know this request.
    let partings = match has_register {
        true => timeout(REGISTER_WITHIN, client.partings()).await.ok().and_then(Result::ok),
        false => None,
    };
    Ok(Cluster { has_register, nodes, logs, partings: partings.unwrap_or_default() })
}

/// All nodes, each with its condition if it responds.
async fn conditions(
    client: &Client,
    nodes: Vec<NodeStatus>,
) -> Result<Vec<(NodeStatus, Option<Condition>)>, Failure> {
    let asked = nodes.into_iter().map(|node| {
        let client = client.clone();
        tokio::spawn(async move {
            let condition = client.condition(node.node).await;
            (node, condition)
        })
    });
    let mut nodes = vec![];
    for node in asked.collect::<Vec<_>>() {
        nodes.push(node.await?);
    }
    Ok(nodes)
}
