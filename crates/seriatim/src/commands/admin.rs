//! `seriatim admin …`: decisions of an operator.

pub(super) mod drain;

use seriatim_client::{Client, NodeId, PartingChange};

use crate::arguments::AdminCommand;
use crate::output::{Failure, Outcome, print_line};

pub(crate) async fn run(client: &Client, command: AdminCommand) -> Outcome {
    match command {
        AdminCommand::Recover { name, accept_loss } => recover(client, &name, accept_loss).await,
        AdminCommand::Drain { node, cancel: true, .. } => stay(client, NodeId(node)).await,
        AdminCommand::Drain { node, no_wait, .. } => drain::run(client, NodeId(node), None, no_wait).await,
        AdminCommand::Replace { node, by, no_wait } => {
            drain::run(client, NodeId(node), Some(NodeId(by)), no_wait).await
        }
        AdminCommand::Remove { node } => remove(client, NodeId(node)).await,
    }
}

async fn stay(client: &Client, node: NodeId) -> Outcome {
    client.part(node, PartingChange::Stay).await?;
    print_line(format_args!("node {node} is not draining: it can receive roles"));
    Ok(())
}

/// Removes a stopped node from the cluster.
async fn remove(client: &Client, node: NodeId) -> Outcome {
    // The answer has the node's address.
    client.list().await?;
    if client.condition(node).await.is_some() {
        return Err(Failure::new(format!(
            "node {node} is up: drain it first (seriatim admin drain {node}), then stop it"
        )));
    }
    client.part(node, PartingChange::Remove).await?;
    print_line(format_args!("node {node} is removed; its number is not used again"));
    Ok(())
}

/// Reports the loss that would let an unavailable log continue, or accepts it.
async fn recover(client: &Client, name: &str, accept_loss: bool) -> Outcome {
    let recovery = client.recover(name, accept_loss).await?;
    let text = recovery.text;
    if recovery.done {
        print_line(text);
    } else if accept_loss {
        return Err(Failure::new(format!("the log '{name}' does not continue: {text}")));
    } else if recovery.lost {
        print_line(text);
        print_line(format_args!(
            "to continue without these records: seriatim admin recover {name} --accept-loss"
        ));
    } else {
        print_line(format_args!("nothing is known to be lost: {text}"));
    }
    Ok(())
}
