//! The view register outside of all nodes, in etcd.
//!
//! Every node asks etcd for its own roles and clients. [`open`] reads the cluster's id, or draws it
//! for the first node; a [`Node`](crate::Node) starts with the returned register. The rules are
//! those of the register embedded in a node: [`seriatim_protocol::control::catalog`].
//!
//! - `keys`: stored values.
//! - `entries`, `partings`: changes, as compare-and-set transactions.
//! - `desk`, `batches`: combine concurrent questions.
//! - `news`: passes etcd's notifications to askers that wait for a view.
//! - `etcd_worker`: a node's task.

mod batches;
mod desk;
mod entries;
mod etcd_worker;
mod keys;
mod news;
mod partings;

use std::sync::Arc;

use seriatim_etcd::{Client, EndpointError, RequestError};
use seriatim_model::NodeId;
use seriatim_model::config::is_log_name;
use tokio::sync::watch;

pub use entries::EtcdError;
pub use etcd_worker::OutsideRegister;
pub use keys::ValueError;

use entries::Entries;
use etcd_worker::Outage;
use keys::Keys;

/// Location of a cluster's register in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Members of etcd, `http://host:port` or `host:port`.
    pub endpoints: Vec<String>,
    /// The cluster's name, unique in this etcd.
    pub cluster: String,
}

/// Why a node cannot use the register in etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The cluster's name is not valid.
    #[error(
        "'{name}' cannot name a cluster: use up to 128 letters, digits, '-', '_' and '.', not starting with '-' or '.'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// An endpoint is not valid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// etcd does not answer, or its values cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The node belongs to a cluster, but etcd has none of that name.
    #[error(
        "etcd knows no cluster '{name}', and this node belongs to cluster {known:032x}: correct the cluster's name or the endpoints"
    )]
    NoSuchCluster {
        /// The name.
        name: String,
        /// The node's cluster.
        known: u128,
    },
    /// The node belongs to another cluster.
    #[error(
        "the cluster '{name}' in etcd is {found:032x}, and this node belongs to cluster {known:032x}: correct the cluster's name, or give the node another data directory"
    )]
    OtherCluster {
        /// The name.
        name: String,
        /// The cluster of that name.
        found: u128,
        /// The node's cluster.
        known: u128,
    },
}

/// The register of one cluster, in etcd.
#[derive(Debug)]
pub struct EtcdRegister {
    entries: Entries,
    cluster: Cluster,
    outage: Arc<Outage>,
}

#[derive(Clone, Debug)]
struct Cluster {
    name: String,
    id: u128,
    /// Whether etcd has confirmed the cluster's id. Questions wait for that.
    is_confirmed: bool,
}

/// Connects to etcd and reads the cluster's id; the first node draws it. `known` is this node's
/// cluster from an earlier run: with it, the node does not wait for an unreachable etcd.
///
/// # Errors
/// If the options are wrong, the node belongs to another cluster, or etcd does not answer a new
/// node.
pub async fn open(options: &EtcdOptions, known: Option<u128>) -> Result<EtcdRegister, OpenError> {
    let name = options.cluster.clone();
    // The rule for log names excludes `/`, the separator of keys.
    if !is_log_name(&name) {
        return Err(OpenError::Name { name });
    }
    let entries = Entries { client: Client::new(&options.endpoints)?, keys: Keys::new(&name) };
    let (found, outage) = match (entries.cluster().await, known) {
        (Err(EtcdError::Etcd(error @ RequestError::Unreachable { .. })), Some(_)) => {
            (None, Some(error.to_string()))
        }
        (Ok(None), None) => (Some(entries.draw_cluster().await?), None),
        (found, None) => (found?, None),
        (found, Some(known)) => (Some(check(&name, found?, known)?), None),
    };
    let id = found.or(known).expect("only a node that knows its cluster starts without an answer");
    let cluster = Cluster { name, id, is_confirmed: found.is_some() };
    Ok(EtcdRegister { entries, cluster, outage: Arc::new(watch::Sender::new(outage)) })
}

fn check(name: &str, found: Option<u128>, known: u128) -> Result<u128, OpenError> {
    let name = || name.to_owned();
    match found {
        None => Err(OpenError::NoSuchCluster { name: name(), known }),
        Some(found) if found != known => Err(OpenError::OtherCluster { name: name(), found, known }),
        Some(found) => Ok(found),
    }
}

impl EtcdRegister {
    /// The cluster's id.
    #[must_use]
    pub fn cluster_id(&self) -> u128 {
        self.cluster.id
    }

    /// A node's last address, if etcd knows it and answers.
    pub(crate) async fn address_of(&self, node: NodeId) -> Option<String> {
        self.entries.address(node).await.ok().flatten()
    }

    /// The last failure of etcd, for the operator. `None` after a success.
    #[must_use]
    pub fn outage(&self) -> watch::Receiver<Option<String>> {
        self.outage.subscribe()
    }

    /// Begins to answer the questions of node `me`. Call it within a tokio runtime.
    #[must_use]
    pub fn attend(self, me: NodeId) -> OutsideRegister {
        OutsideRegister::start(self.entries, self.cluster, me, &self.outage)
    }
}
