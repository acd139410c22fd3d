//! The view register outside of all nodes: etcd.
//!
//! Every node asks etcd by itself, on behalf of its roles and its clients. [`open`] reads which
//! cluster it is, or draws that for the first node; with the register that it gives, a
//! [`Node`](crate::Node) is started. `keys` says what is kept, `entries` how it changes: in
//! transactions that compare. The rules are those of the register embedded in a node:
//! [`seriatim_protocol::control::catalog`]. What many ask at the same time is asked of etcd at once
//! (`desk`, `batches`), and who waits for a view is told of it by what etcd says on its own
//! (`news`).

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

/// Where a cluster's register is in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Where etcd is reached: `http://host:port` or `host:port`, for as many of its members as
    /// there are.
    pub endpoints: Vec<String>,
    /// The cluster's name, which tells it from others in the same etcd.
    pub cluster: String,
}

/// Why the register in etcd cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The name is none for a cluster.
    #[error(
        "'{name}' cannot name a cluster: use up to 128 letters, digits, '-', '_' and '.', not starting with '-' or '.'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// An endpoint is none.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// etcd does not answer, or what it has cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The node belongs to a cluster, and etcd knows none of that name.
    #[error(
        "etcd knows no cluster '{name}', and this node belongs to cluster {known:032x}: correct the cluster's name or the endpoints"
    )]
    NoSuchCluster {
        /// The name.
        name: String,
        /// The cluster that the node belongs to.
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
        /// The cluster that the node belongs to.
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

/// Which cluster a register is of.
#[derive(Clone, Debug)]
struct Cluster {
    name: String,
    id: u128,
    /// Whether etcd says so too. Until it does, nothing is asked of it.
    is_confirmed: bool,
}

/// Connects to etcd and reads the cluster's id; the first node to come draws it. `known` is the
/// cluster that this node belongs to, if it has been part of one: then it need not wait for an etcd
/// that does not answer.
///
/// # Errors
/// If the options are wrong, the node belongs to another cluster, or etcd does not answer a new
/// node.
pub async fn open(options: &EtcdOptions, known: Option<u128>) -> Result<EtcdRegister, OpenError> {
    let name = options.cluster.clone();
    // The rule for a log's name keeps any separator of keys out.
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

/// Whether the cluster that etcd has is the one that the node belongs to.
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

    /// Where a node was last, if etcd knows and answers.
    pub(crate) async fn address_of(&self, node: NodeId) -> Option<String> {
        self.entries.address(node).await.ok().flatten()
    }

    /// The last thing that went wrong in talking to etcd, unless it went right since: for an
    /// operator to see.
    #[must_use]
    pub fn outage(&self) -> watch::Receiver<Option<String>> {
        self.outage.subscribe()
    }

    /// Starts answering the questions of node `me`. To be called within a tokio runtime.
    #[must_use]
    pub fn attend(self, me: NodeId) -> OutsideRegister {
        OutsideRegister::start(self.entries, self.cluster, me, &self.outage)
    }
}
