//! Finds a rival: another process with this node's number, such as one started from a copied
//! configuration or data directory.
//!
//! A node number belongs to one data directory. Two processes with one number would replace each
//! other at every heartbeat, and each log would change its view each time. The register and the
//! data directory know the number's last address. A rival answers there as the same node of the
//! same cluster in another incarnation.

use std::time::Duration;

use seriatim_host::RegisterPlace;
use seriatim_model::{Endpoint, LogId, NodeId};
use seriatim_net::{ClusterId, Connection, ConnectionOptions, Hello, connect, message_frame, open_message};
use seriatim_protocol::control::{NodeParting, Parting};
use seriatim_protocol::{Message, control};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::driver::{Arrival, Health};

/// Longest wait for another process's answer. A suspended process does not answer, but finds this
/// one when it resumes.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// If the register does not know this node after this time, the node asks the register for its
/// registered address.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// Two processes have the number of one node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node {node} already runs at {theirs}, and this process would be node {node} at {ours}: a node number belongs to one \
     data directory. {}",
    advice(*.is_copy)
)]
pub struct Rival {
    /// The node.
    pub node: NodeId,
    /// Address of this process.
    pub ours: String,
    /// Address of the other process.
    pub theirs: String,
    /// Whether this data directory is a copy of the other process's.
    pub is_copy: bool,
}

fn advice(is_copy: bool) -> &'static str {
    if is_copy {
        "Its data directory is a copy of the other's: start it only when the other is gone, or give this node a number and \
         an empty directory of its own"
    } else {
        "Give this one a number and a directory of its own, or stop the other first"
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Itself {
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
    pub(crate) address: String,
    /// This run's number; `None` before it is drawn.
    pub(crate) incarnation: Option<u64>,
}

impl Itself {
    /// Whether another process answers at `address` as this node.
    pub(crate) async fn is_also_at(&self, address: &str) -> bool {
        let hello = Hello::client(format!("node {}, looking for another", self.node)).to(self.cluster);
        let options = ConnectionOptions { handshake_for: ANSWERS_WITHIN, ..ConnectionOptions::default() };
        // Any failure means that no node of this cluster answers.
        connect(address, &hello, &options).await.is_ok_and(|connected| {
            let welcome = connected.welcome;
            welcome.node == self.node
                && welcome.cluster == self.cluster
                && self.incarnation.is_none_or(|incarnation| incarnation != welcome.node_incarnation)
        })
    }

    pub(crate) async fn rival_at(&self, address: &str, is_copy: bool) -> Option<Rival> {
        let (node, ours) = (self.node, self.address.clone());
        let rival = Rival { node, ours, theirs: address.to_owned(), is_copy };
        self.is_also_at(address).await.then_some(rival)
    }

    /// This node's registered address, if the register's node at `register` reports another than
    /// ours.
    pub(crate) async fn elsewhere_by(&self, register: &str) -> Option<String> {
        let control::Message::Listing { nodes, .. } =
            self.asks(register, control::Message::List { request: 1 }).await?
        else {
            return None;
        };
        let known = nodes.into_iter().find(|known| known.node == self.node)?;
        Some(known.address).filter(|address| *address != self.address)
    }

    /// Whether the register's node answers that this node was removed.
    pub(crate) async fn is_removed_by(&self, register: &str) -> bool {
        let question = control::Message::AskPartings { request: 1 };
        let Some(control::Message::PartingsAre { partings, .. }) = self.asks(register, question).await else {
            return false;
        };
        partings.contains(&NodeParting { node: self.node, parting: Parting::Removed })
    }

    async fn asks(&self, register: &str, question: control::Message) -> Option<control::Message> {
        let hello = Hello::client(format!("node {}", self.node)).to(self.cluster);
        let options = ConnectionOptions { handshake_for: ANSWERS_WITHIN, ..ConnectionOptions::default() };
        let connected = connect(register, &hello, &options).await.ok()?;
        timeout(ANSWERS_WITHIN, answer(connected.connection, question)).await.ok()?
    }
}

async fn answer(connection: Connection, question: control::Message) -> Option<control::Message> {
    let Connection { mut receiver, sender } = connection;
    let question = Message::from(question);
    let frame = message_frame(LogId(0), Endpoint::Client(1), Endpoint::Register, &question).ok()?;
    sender.send(frame).ok()?;
    while let Some(frames) = receiver.receive().await.ok()? {
        for frame in frames {
            if let Ok((_, _, _, Message::Control(answer))) = open_message::<Message>(frame) {
                return Some(answer);
            }
        }
    }
    None
}

/// Checks for a rival whenever the node's health gives a reason. Finds a process that took the
/// number while this process was suspended, or while the register did not answer.
pub(crate) async fn watch(
    itself: Itself,
    register: RegisterPlace,
    mut health: watch::Receiver<Health>,
    driver: mpsc::Sender<Arrival>,
) {
    loop {
        let has_reason = |health: &Health| !health.has_joined || health.elsewhere.is_some();
        let Ok(health_now) = health.wait_for(has_reason).await.map(|health| health.clone()) else { return };
        let elsewhere = match (health_now.elsewhere, &register) {
            (Some(address), _) => Some(address),
            (None, RegisterPlace::Node { node, address }) if *node != itself.node => {
                match timeout(ASK_AFTER, health.changed()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) => return,
                    Err(_) if itself.is_removed_by(address).await => {
                        let _ = driver.send(Arrival::Removed).await;
                        return;
                    }
                    Err(_) => itself.elsewhere_by(address).await,
                }
            }
            _ => None,
        };
        if let Some(address) = &elsewhere
            && let Some(rival) = itself.rival_at(address, false).await
        {
            let _ = driver.send(Arrival::Rival(rival)).await;
            return;
        }
        if let Ok(Err(_)) = timeout(ASK_AFTER, health.changed()).await {
            return;
        }
    }
}
