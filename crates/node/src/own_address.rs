//! Checks whether the address that a node gives to other nodes and clients leads to that node.

use std::time::Duration;

use seriatim_model::NodeId;
use seriatim_net::{ConnectError, ConnectionOptions, HandshakeError, Hello, RefusalCode, Welcome, connect};
use tokio::time::timeout;

use crate::rival::Itself;

/// Longest wait for the node's own answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Another process answers at the address that a node gives to others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node {node} advertises the address {address}, where {found} answers: advertise an address at which other nodes reach this node"
)]
pub struct Misdirected {
    /// The node.
    pub node: NodeId,
    /// Address that the node gives to others.
    pub address: String,
    /// The process that answers there.
    pub found: String,
}

impl Itself {
    /// See [`Node::reach_itself`](crate::Node::reach_itself).
    ///
    /// # Errors
    /// If another process answers.
    pub(crate) async fn reach_itself(&self) -> Result<Option<String>, Misdirected> {
        let hello = Hello::client(format!("node {}, looking for itself", self.node)).to(self.cluster);
        let options = ConnectionOptions { handshake_for: ANSWERS_WITHIN, ..ConnectionOptions::default() };
        let connected = timeout(ANSWERS_WITHIN, connect(&self.address, &hello, &options)).await;
        let found = match connected {
            Ok(Ok(connected)) => match self.other_than_itself(&connected.welcome) {
                None => return Ok(None),
                Some(found) => found,
            },
            Ok(Err(ConnectError::Handshake { source, .. })) if is_of_another_cluster(&source) => {
                "a node of another cluster".into()
            }
            Ok(Err(ConnectError::Handshake { source, .. })) => return Ok(Some(source.to_string())),
            Ok(Err(ConnectError::Unreachable { source, .. })) => return Ok(Some(source.to_string())),
            Err(_) => return Ok(Some(format!("no answer within {} s", ANSWERS_WITHIN.as_secs()))),
        };
        Err(Misdirected { node: self.node, address: self.address.clone(), found })
    }

    /// The process that answered; `None` if it is this one.
    fn other_than_itself(&self, welcome: &Welcome) -> Option<String> {
        if welcome.node != self.node {
            return Some(format!("node {}", welcome.node));
        }
        let is_itself = self.incarnation == Some(welcome.node_incarnation);
        (!is_itself).then(|| format!("another process as node {}", welcome.node))
    }
}

fn is_of_another_cluster(cause: &HandshakeError) -> bool {
    match cause {
        HandshakeError::Refused(refusal) => refusal.code == RefusalCode::WrongCluster,
        HandshakeError::WrongCluster { .. } => true,
        _ => false,
    }
}
