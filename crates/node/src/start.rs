//! Options and start of a node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use rand::random;
use seriatim_host::{HostConfig, RegisterPlace};
use seriatim_model::NodeId;
use seriatim_model::limits::Limits;
use seriatim_net::{BindError, ListenOptions, Listener};
use seriatim_protocol::Options;
use seriatim_store::{BoundedDisk, Disk, JournalOptions, Secret, ShardOptions, VolatileDisk};

use crate::disk::{DataDirectoryError, RealDisk};
use crate::identity::IdentityError;
use crate::node::{Node, NodeError};
use crate::register::{EtcdRegister, OpenError};
use crate::rival::Rival;
use crate::serve::RegisterError;

/// Kind of a node's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskKind {
    /// The data directory.
    #[default]
    Real,
    /// The data directory, with unsynced data held in memory: killing the process loses it, as a
    /// power failure would. For tests.
    Volatile,
}

/// Options of any node.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// Kind of its disk.
    pub disk: DiskKind,
    /// Most bytes of its files. `None`: only the file system limits them.
    pub max_disk_bytes: Option<u64>,
    /// Limits.
    pub limits: Limits,
    /// Sizes of its journal.
    pub journal: JournalOptions,
    /// Limits of its listener and of each connection.
    pub listening: ListenOptions,
}

/// Reason why a start waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Awaits {
    /// The register, to answer or to know the node; with the obstacle, if known.
    Register(Option<String>),
    /// A port or a directory that another process holds.
    Held(String),
    /// Reading a node's files.
    Files(NodeId),
    /// The register, to know this node of a cluster in one process.
    Node(NodeId),
    /// Nothing slow.
    #[default]
    Nothing,
}

/// Why a cluster or a node cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its data directory has another owner.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its data directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    /// Its address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Its address for others is the unspecified address.
    #[error(
        "other nodes cannot reach {0}, which is not the address of one machine: set 'advertise' to the address or name at which \
         they reach this node"
    )]
    NoAddress(String),
    /// Its register cannot be used.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Its register in etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] OpenError),
    /// Another process has its number.
    #[error(transparent)]
    Rival(#[from] Rival),
    /// One of its nodes cannot run.
    #[error(transparent)]
    Node(#[from] NodeError),
}

#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) cluster: u128,
    pub(crate) node: NodeId,
    pub(crate) address: String,
    pub(crate) register: RegisterPlace,
}

pub(crate) fn open_disk(
    directory: &Path,
    options: &NodeOptions,
) -> Result<Arc<dyn Disk>, DataDirectoryError> {
    let real = RealDisk::open(directory)?;
    Ok(match (options.max_disk_bytes, options.disk) {
        (None, DiskKind::Real) => Arc::new(real),
        (None, DiskKind::Volatile) => Arc::new(VolatileDisk::new(real)),
        (Some(most), kind) => {
            let failed = |source| DataDirectoryError::io(directory, source);
            let lengths = real.lengths().map_err(failed)?;
            let bounded = BoundedDisk::new(real, most, lengths);
            match kind {
                DiskKind::Real => Arc::new(bounded),
                DiskKind::Volatile => Arc::new(VolatileDisk::new(bounded)),
            }
        }
    })
}

/// Starts a node, which reads its files first. `etcd` is set if the register is there.
pub(crate) fn start_node(
    membership: Membership,
    options: &NodeOptions,
    disk: Arc<dyn Disk>,
    listener: Listener,
    etcd: Option<EtcdRegister>,
) -> Result<Node, NodeError> {
    let Membership { cluster, node, address, register } = membership;
    let config = HostConfig {
        cluster,
        node,
        address,
        register,
        seed: random(),
        secret: Secret::new(random()),
        options: Options { limits: options.limits, ..Options::default() },
        journal: options.journal,
        shard_options: ShardOptions::default(),
    };
    tokio::task::block_in_place(|| Node::start(config, disk, listener, options.listening.clone(), etcd))
}

/// Replaces the unspecified address with loopback.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    address
}
