//! Whether another process lives under a node's number: one copied configuration, or one copied
//! directory, is enough.
//!
//! A node number belongs to one data directory. Two processes under one number would take each
//! other's place with every heartbeat, and each log would change its view each time. Where the
//! number was last heard of is known to the register, and to the data directory itself; that
//! somebody is there shows when a connection is answered by the same node of the same cluster in
//! another incarnation.

use std::time::Duration;

use seriatim_host::RegisterPlace;
use seriatim_model::{Endpoint, LogId, NodeId};
use seriatim_net::{ClusterId, Connection, ConnectionOptions, Hello, connect, message_frame, open_message};
use seriatim_protocol::control::{NodeParting, Parting};
use seriatim_protocol::{Message, control};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::driver::{Arrival, Health};

/// How long another process has to answer. One that is stopped does not; it finds out itself, when
/// it goes on.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// For how long the register does not know a node before it asks where else it is said to be.
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
    /// Where this process is reached.
    pub ours: String,
    /// Where the other is.
    pub theirs: String,
    /// This process has a copy of the other's data directory.
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

/// The identity of a process that looks for another one under its number.
#[derive(Clone, Debug)]
pub(crate) struct Itself {
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
    pub(crate) address: String,
    /// Its incarnation, once it has one.
    pub(crate) incarnation: Option<u64>,
}

impl Itself {
    /// Whether another process answers at an address in the name of this node.
    pub(crate) async fn is_also_at(&self, address: &str) -> bool {
        let hello = Hello::client(format!("node {}, looking for another", self.node)).to(self.cluster);
        let options = ConnectionOptions { handshake_for: ANSWERS_WITHIN, ..ConnectionOptions::default() };
        // Any failure means that no node of this cluster is there.
        connect(address, &hello, &options).await.is_ok_and(|connected| {
            let welcome = connected.welcome;
            welcome.node == self.node
                && welcome.cluster == self.cluster
                && self.incarnation.is_none_or(|incarnation| incarnation != welcome.node_incarnation)
        })
    }

    /// The other process, if one answers there.
    pub(crate) async fn rival_at(&self, address: &str, is_copy: bool) -> Option<Rival> {
        let (node, ours) = (self.node, self.address.clone());
        let rival = Rival { node, ours, theirs: address.to_owned(), is_copy };
        self.is_also_at(address).await.then_some(rival)
    }

    /// Where the register says that this node is, if the register is in a node, which answers, and
    /// it is said to be elsewhere.
    pub(crate) async fn elsewhere_by(&self, register: &str) -> Option<String> {
        let control::Message::Listing { nodes, .. } =
            self.asks(register, control::Message::List { request: 1 }).await?
        else {
            return None;
        };
        let known = nodes.into_iter().find(|known| known.node == self.node)?;
        Some(known.address).filter(|address| *address != self.address)
    }

    /// Whether the register says that this node was removed, if the register is in a node, which
    /// answers.
    pub(crate) async fn is_removed_by(&self, register: &str) -> bool {
        let question = control::Message::AskPartings { request: 1 };
        let Some(control::Message::PartingsAre { partings, .. }) = self.asks(register, question).await else {
            return false;
        };
        partings.contains(&NodeParting { node: self.node, parting: Parting::Removed })
    }

    /// The answer of a register in a node.
    async fn asks(&self, register: &str, question: control::Message) -> Option<control::Message> {
        let hello = Hello::client(format!("node {}", self.node)).to(self.cluster);
        let options = ConnectionOptions { handshake_for: ANSWERS_WITHIN, ..ConnectionOptions::default() };
        let connected = connect(register, &hello, &options).await.ok()?;
        timeout(ANSWERS_WITHIN, answer(connected.connection, question)).await.ok()?
    }
}

/// The answer of the register at the other end of a connection.
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

/// Looks for another process under a running node's number whenever there is reason to, until the
/// node ends. A process that was stopped while another took its number finds it so, and so does one
/// whose register did not answer when it started.
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
                // Most joins are over long before.
                match timeout(ASK_AFTER, health.changed()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) => return,
                    Err(_) if itself.is_removed_by(address).await => {
                        // A driver that is gone needs no word.
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
            // A driver that is gone needs no word.
            let _ = driver.send(Arrival::Rival(rival)).await;
            return;
        }
        // Until something changes, or for a while.
        if let Ok(Err(_)) = timeout(ASK_AFTER, health.changed()).await {
            return;
        }
    }
}
