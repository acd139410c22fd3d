//! One node of a cluster of several processes.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rand::random;
use seriatim_etcd::{RequestError, pause};
use seriatim_host::RegisterPlace;
use seriatim_model::NodeId;
use seriatim_net::{ClusterId, ConnectError, ConnectionOptions, HandshakeError, Hello, connect};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::disk::DataDirectoryError;
use crate::identity::{NodeIdentity, last_address, note_address};
use crate::node::{Node, NodeError};
use crate::occupied;
use crate::register::{EtcdError, EtcdOptions, EtcdRegister, OpenError, open};
use crate::rival::Itself;
use crate::start::{Awaits, Membership, NodeOptions, StartError, start_node};

/// Pause before a node asks the register's node again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Longest wait for etcd to report this node's last address.
const ASKS_FOR: Duration = Duration::from_secs(2);

/// Place of the cluster's view register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterOptions {
    /// In etcd: it outlives any node.
    Etcd(EtcdOptions),
    /// In this node. If its data directory is lost, the cluster is lost.
    Embedded,
    /// In another node.
    Node {
        /// Register's node.
        node: NodeId,
        /// Node address, `host:port`.
        address: String,
    },
}

impl RegisterOptions {
    /// Identifies the register, even if its address changes.
    fn place(&self) -> String {
        match self {
            Self::Etcd(EtcdOptions { cluster, .. }) => format!("in etcd as '{cluster}'"),
            Self::Embedded => "on this node".into(),
            Self::Node { node, .. } => format!("on node {node}"),
        }
    }
}

/// Options of a node.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Node number, from 1.
    pub node: NodeId,
    /// Listening address, `host:port`; port 0 takes a free port.
    pub listen: String,
    /// Address for nodes and clients, `host:port`. `None`: the listening address.
    pub advertise: Option<String>,
    /// Data directory.
    pub data: PathBuf,
    /// Place of the register.
    pub register: RegisterOptions,
    /// Further options.
    pub run: NodeOptions,
}

/// Why a node has no register.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Another node answers at the register's address.
    #[error(
        "node {found} answers at {address}, where the configuration expects the register's node {wanted}"
    )]
    OtherNode {
        /// The address.
        address: String,
        /// The node that answers.
        found: NodeId,
        /// The expected node.
        wanted: NodeId,
    },
    /// The node at the register's address refuses the connection.
    #[error("cannot connect to the register's node at {address}: {cause}")]
    Refused {
        /// The address.
        address: String,
        /// The cause.
        cause: HandshakeError,
    },
}

/// Starts a node. It serves at once; [`Node::joined`] waits until the register knows it.
///
/// A node that does not know its cluster yet waits for the register without a time limit. `awaits`
/// reports the reason.
///
/// # Errors
/// If its directory, its address or its register cannot be used.
pub async fn serve(options: ServeOptions, awaits: &watch::Sender<Awaits>) -> Result<Node, StartError> {
    // Bind the port first: a failed start must leave no new data directory.
    let listener = occupied::bind(&options.listen, awaits).await?;
    let address = advertised(options.advertise.as_deref(), listener.address())?;
    DataDirectoryError::check(&options.data)?;
    let (node, place) = (options.node, options.register.place());
    let known = NodeIdentity::read(&options.data, node, &place)?.map(|known| known.cluster());
    let Found { cluster, register, etcd } = register_of(&options, &address, known, awaits).await?;
    let itself = Itself { cluster: ClusterId(cluster), node, address: address.clone(), incarnation: None };
    refuse_rivals(&itself, &options, etcd.as_ref()).await?;
    let disk = occupied::open_disk(&options.data, &options.run, awaits).await?;
    NodeIdentity::claim(&options.data, cluster, node, &place)?;
    note_address(&options.data, &address);
    awaits.send_replace(Awaits::Files(node));
    let membership = Membership { cluster, node, address, register };
    let started = start_node(membership, &options.run, disk, listener, etcd)?;
    awaits.send_replace(Awaits::Register(None));
    Ok(started)
}

fn advertised(setting: Option<&str>, listens: SocketAddr) -> Result<String, StartError> {
    let address = setting.map_or_else(|| listens.to_string(), str::to_owned);
    if names_no_machine(&address) { Err(StartError::NoAddress(address)) } else { Ok(address) }
}

/// Whether the address has an unspecified host (0.0.0.0 or ::).
fn names_no_machine(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_unspecified())
}

/// Fails if a rival answers at this node's last addresses, as its directory and the register know
/// them. If the register does not answer, the running node asks again.
async fn refuse_rivals(
    itself: &Itself,
    options: &ServeOptions,
    etcd: Option<&EtcdRegister>,
) -> Result<(), StartError> {
    let own = |address: &String| *address != itself.address;
    let by_directory = last_address(&options.data).filter(own);
    if let Some(address) = &by_directory
        && let Some(rival) = itself.rival_at(address, true).await
    {
        return Err(rival.into());
    }
    let is_removed = match &options.register {
        RegisterOptions::Node { address, .. } => itself.is_removed_by(address).await,
        _ => false,
    };
    if is_removed {
        return Err(NodeError::Removed(itself.node.0).into());
    }
    let by_register = match (&options.register, etcd) {
        (RegisterOptions::Node { address, .. }, _) => itself.elsewhere_by(address).await,
        (_, Some(etcd)) => timeout(ASKS_FOR, etcd.address_of(itself.node)).await.ok().flatten(),
        _ => None,
    };
    if let Some(address) = by_register.filter(own).filter(|address| by_directory.as_ref() != Some(address))
        && let Some(rival) = itself.rival_at(&address, false).await
    {
        return Err(rival.into());
    }
    Ok(())
}

struct Found {
    cluster: u128,
    register: RegisterPlace,
    /// `Some` if the register is in etcd.
    etcd: Option<EtcdRegister>,
}

async fn register_of(
    options: &ServeOptions,
    own_address: &str,
    known: Option<u128>,
    awaits: &watch::Sender<Awaits>,
) -> Result<Found, StartError> {
    match &options.register {
        RegisterOptions::Embedded => {
            let register = RegisterPlace::Node { node: options.node, address: own_address.to_owned() };
            Ok(Found { cluster: known.unwrap_or_else(random), register, etcd: None })
        }
        RegisterOptions::Node { node, address } => {
            let cluster = learn_cluster(options.node, (*node, address), known, awaits).await?;
            let register = RegisterPlace::Node { node: *node, address: address.clone() };
            Ok(Found { cluster, register, etcd: None })
        }
        RegisterOptions::Etcd(etcd) => {
            let etcd = open_with_retries(etcd, known, awaits).await?;
            let cluster = etcd.cluster_id();
            Ok(Found { cluster, register: RegisterPlace::Outside, etcd: Some(etcd) })
        }
    }
}

/// Opens the register in etcd. Only a node that does not know its cluster waits until etcd answers.
async fn open_with_retries(
    options: &EtcdOptions,
    known: Option<u128>,
    awaits: &watch::Sender<Awaits>,
) -> Result<EtcdRegister, OpenError> {
    loop {
        match open(options, known).await {
            Err(OpenError::Etcd(EtcdError::Etcd(error @ RequestError::Unreachable { .. }))) => {
                awaits.send_replace(Awaits::Register(Some(error.to_string())));
                pause().await;
            }
            opened => {
                awaits.send_replace(Awaits::Register(None));
                return opened;
            }
        }
    }
}

/// Asks the register's node for the id of its cluster. A node that knows its cluster asks once, to
/// detect a wrong configuration, and starts even without an answer.
async fn learn_cluster(
    own: NodeId,
    (node, address): (NodeId, &String),
    known: Option<u128>,
    awaits: &watch::Sender<Awaits>,
) -> Result<u128, RegisterError> {
    let mut hello = Hello::client(format!("node {own}"));
    hello.cluster = known.map(ClusterId);
    let mut again = tokio::time::interval(ASK_AGAIN);
    loop {
        again.tick().await;
        match connect(address, &hello, &ConnectionOptions::default()).await {
            Ok(connected) if connected.welcome.node != node => {
                let (address, found) = (address.clone(), connected.welcome.node);
                return Err(RegisterError::OtherNode { address, found, wanted: node });
            }
            Ok(connected) => {
                awaits.send_replace(Awaits::Register(None));
                return Ok(connected.welcome.cluster.0);
            }
            Err(ConnectError::Handshake { source, .. }) if is_final(&source) => {
                return Err(RegisterError::Refused { address: address.clone(), cause: source });
            }
            Err(cause) => {
                if let Some(known) = known {
                    return Ok(known);
                }
                awaits.send_replace(Awaits::Register(Some(cause.to_string())));
            }
        }
    }
}

/// Whether a retry fails in the same way.
fn is_final(cause: &HandshakeError) -> bool {
    use seriatim_net::RefusalCode::{VersionUnsupported, WrongCluster};
    match cause {
        HandshakeError::Refused(refusal) => matches!(refusal.code, WrongCluster | VersionUnsupported),
        HandshakeError::WrongCluster { .. } | HandshakeError::VersionUnsupported { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_names_no_machine_is_refused() {
        let listens = |address: &str| address.parse::<SocketAddr>().unwrap();
        for wrong in ["0.0.0.0:7700", "[::]:7700", "[::ffff:0.0.0.0]:7700"] {
            for refused in
                [advertised(Some(wrong), listens("127.0.0.1:7700")), advertised(None, listens(wrong))]
            {
                let said = refused.expect_err(wrong).to_string();
                assert!(said.starts_with(&format!("other nodes cannot reach {wrong}, ")), "{said}");
            }
        }
        for (setting, address) in [
            (None, "10.0.0.1:7700"),
            (Some("10.0.0.2:7700"), "10.0.0.2:7700"),
            (Some("[::1]:7700"), "[::1]:7700"),
            (Some("node-1.example:7700"), "node-1.example:7700"),
        ] {
            let listening = if setting.is_some() { "0.0.0.0:7700" } else { address };
            assert_eq!(advertised(setting, listens(listening)).unwrap(), address);
        }
    }
}
