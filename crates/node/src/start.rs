//! Starting one node, whatever the cluster that it is part of.

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

/// The kind of disk that a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskKind {
    /// The data directory.
    #[default]
    Real,
    /// The data directory, with everything that is not synced held in memory: killing the process
    /// then loses what a power cut would. For tests.
    Volatile,
}

/// Options that a node runs with, whichever node it is.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// The kind of disk that it has.
    pub disk: DiskKind,
    /// How many bytes its files may take, if there is a bound besides that of their file system.
    pub max_disk_bytes: Option<u64>,
    /// Bounds.
    pub limits: Limits,
    /// Sizes of its journal.
    pub journal: JournalOptions,
    /// Bounds of what it accepts, and of each of its connections.
    pub listening: ListenOptions,
}

/// The thing that a start waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Awaits {
    /// The register, to be found, or to know the node; and what is in the way, if that is known.
    Register(Option<String>),
    /// A port or a directory that another process holds.
    Held(String),
    /// A node's files, to be read.
    Files(NodeId),
    /// The register, to know this node of a cluster in one process.
    Node(NodeId),
    /// Nothing that takes long.
    #[default]
    Nothing,
}

/// Why a cluster, or a node of one, cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its data directory belongs to something else.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its data directory cannot be taken.
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    /// Its address cannot be taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The address that it would give to others stands for all addresses of a machine.
    #[error(
        "other nodes cannot reach {0}, which is not the address of one machine: set 'advertise' to the address or name at which \
         they reach this node"
    )]
    NoAddress(String),
    /// Its register is not to be had.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Its register in etcd is not to be had.
    #[error(transparent)]
    Etcd(#[from] OpenError),
    /// Another process has its number.
    #[error(transparent)]
    Rival(#[from] Rival),
    /// It, or one of its nodes, cannot run.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// A node's identity.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) cluster: u128,
    pub(crate) node: NodeId,
    /// Where others reach it.
    pub(crate) address: String,
    pub(crate) register: RegisterPlace,
}

/// Takes the directory of a node's files.
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

/// Starts a node on its files, with the register in etcd if that is where it is. It reads its files
/// first.
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

/// An address that clients on this machine can connect to.
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
