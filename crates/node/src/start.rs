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
    /// Kind of disk.
    pub disk: DiskKind,
    /// Most bytes of files. `None`: only the file system limits them.
    pub max_disk_bytes: Option<u64>,
    /// Limits.
    pub limits: Limits,
    /// Journal sizes.
    pub journal: JournalOptions,
    /// Limits of the listener and of each connection.
    pub listening: ListenOptions,
}

/// Reason why a start waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Awaits {
    /// The register, which must answer or learn of the node; with the obstacle, if known.
    Register(Option<String>),
    /// A port or a directory that another process holds. The text names it.
    Held(String),
    /// Reading a node's files.
    Files(NodeId),
    /// The register, which must learn of this node of a cluster in one process.
    Node(NodeId),
    /// Nothing that takes long.
    #[default]
    Nothing,
}

/// Why a cluster or a node cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory has another owner.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The data directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    /// The listening address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The advertised address is the unspecified address.
    #[error(
        "other nodes cannot reach {0}, which is not the address of one machine: set 'advertise' to the address or name at which \
         they reach this node"
    )]
    NoAddress(String),
    /// The register cannot be used.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The register in etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] OpenError),
    /// Another process uses the node's number.
    #[error(transparent)]
    Rival(#[from] Rival),
    /// A node of the cluster cannot run.
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

/// Starts a node, which reads its files first. `etcd` is `Some` if the register is in etcd.
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
