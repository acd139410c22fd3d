//! The identity of a data directory: that of a certain cluster, or of one node of a cluster.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use seriatim_model::NodeId;

/// The newest format that this program writes and reads.
const FORMAT: u32 = 1;
/// The largest number of nodes that one process hosts.
const MAX_NODES: u32 = 64;
/// Describes a cluster in one process.
const CLUSTER_FILE: &str = "cluster.toml";
/// Describes one node of a cluster.
const NODE_FILE: &str = "node.toml";
/// Where the node was reached in its last incarnation, `host:port`: whoever copies the directory
/// copies this, too.
const ADDRESS_FILE: &str = "address";
/// The longest address that is read back, in bytes.
const MAX_ADDRESS_BYTES: usize = 1024;

/// The cluster whose data is in a directory: its `cluster.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterIdentity {
    format: u32,
    cluster: String,
    /// How many nodes it has.
    pub nodes: u32,
}

/// The one node whose data is in a directory: its `node.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeIdentity {
    format: u32,
    cluster: String,
    node: u32,
    /// Where the cluster's register is, in words. A register does not move.
    register: String,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The operating system refuses.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// It is not what this program writes.
    #[error("{path} is not a description of a Seriatim cluster ({cause}); give another data directory")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The fault that was found in it.
        cause: String,
    },
    /// It was written by a newer program.
    #[error("{path} has format {found}, and this program knows formats up to {FORMAT}: use a newer seriatim")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// There is no cluster of so many nodes.
    #[error("a cluster in one process has 1 to {MAX_NODES} nodes, not {wanted}; choose with --nodes")]
    NoSuchSize {
        /// How many were asked for.
        wanted: u32,
    },
    /// The cluster has another number of nodes.
    #[error(
        "the cluster in {path} has {found} nodes, not {wanted}; leave out --nodes, or give another directory with --data"
    )]
    Nodes {
        /// The directory.
        path: PathBuf,
        /// How many it has.
        found: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// The directory belongs to the other kind of cluster.
    #[error("{path} holds {found}, not {wanted}; give another data directory")]
    OtherKind {
        /// The directory.
        path: PathBuf,
        /// The kind that it holds.
        found: &'static str,
        /// The kind that was to be started.
        wanted: &'static str,
    },
    /// The directory belongs to another node.
    #[error(
        "{path} holds the data of node {found}, not of node {wanted}; each node has a directory of its own"
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// The node that it belongs to.
        found: u32,
        /// The node that wants it.
        wanted: u32,
    },
    /// The directory belongs to another cluster.
    #[error(
        "{path} belongs to cluster {found}, and the register to cluster {wanted}; give another data directory, or another register"
    )]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Its cluster.
        found: String,
        /// The register's cluster.
        wanted: String,
    },
    /// The register is said to be somewhere else than before.
    #[error(
        "the node in {path} has its register {found}, not {wanted}: a register does not move; correct the configuration"
    )]
    OtherRegister {
        /// The directory.
        path: PathBuf,
        /// Where it was.
        found: String,
        /// Where it is said to be.
        wanted: String,
    },
}

const ONE_PROCESS: &str = "a whole cluster in one process";
const ONE_NODE: &str = "one node of a cluster";

impl ClusterIdentity {
    /// Reads the identity in `directory`, or makes one for a cluster of `nodes` nodes if there is
    /// none.
    ///
    /// # Errors
    /// If the directory holds something else, or cannot be written.
    pub fn open(directory: &Path, nodes: Option<u32>, random: u128) -> Result<Self, IdentityError> {
        if let Some(wanted) = nodes.filter(|wanted| !(1..=MAX_NODES).contains(wanted)) {
            return Err(IdentityError::NoSuchSize { wanted });
        }
        if directory.join(NODE_FILE).exists() {
            let path = directory.to_owned();
            return Err(IdentityError::OtherKind { path, found: ONE_NODE, wanted: ONE_PROCESS });
        }
        let nodes_of_new = nodes.unwrap_or(3);
        let new = Self { format: FORMAT, cluster: format!("{random:032x}"), nodes: nodes_of_new };
        let found = match Self::read(directory)? {
            Some(found) => found,
            None => write(directory, CLUSTER_FILE, &new)?,
        };
        match nodes {
            Some(wanted) if wanted != found.nodes => {
                Err(IdentityError::Nodes { path: directory.to_owned(), found: found.nodes, wanted })
            }
            _ => Ok(found),
        }
    }

    fn read(directory: &Path) -> Result<Option<Self>, IdentityError> {
        let is_sound = |found: &Self| is_cluster(&found.cluster) && (1..=MAX_NODES).contains(&found.nodes);
        read(directory, CLUSTER_FILE, is_sound)
    }

    /// The cluster's id.
    #[must_use]
    pub fn cluster(&self) -> u128 {
        number_of(&self.cluster)
    }
}

impl NodeIdentity {
    /// Reads the identity in `directory`, if there is one: it must be that of `node`, whose
    /// register is where `register` says.
    ///
    /// # Errors
    /// If the directory holds something else.
    pub fn read(directory: &Path, node: NodeId, register: &str) -> Result<Option<Self>, IdentityError> {
        let path = || directory.to_owned();
        if directory.join(CLUSTER_FILE).exists() {
            return Err(IdentityError::OtherKind { path: path(), found: ONE_PROCESS, wanted: ONE_NODE });
        }
        let is_sound = |found: &Self| is_cluster(&found.cluster) && found.node > 0;
        let Some(found) = read(directory, NODE_FILE, is_sound)? else { return Ok(None) };
        if found.node != node.0 {
            return Err(IdentityError::OtherNode { path: path(), found: found.node, wanted: node.0 });
        }
        if found.register != register {
            let wanted = register.to_owned();
            return Err(IdentityError::OtherRegister { path: path(), found: found.register, wanted });
        }
        Ok(Some(found))
    }

    /// Makes the directory that of `node` of `cluster`, unless it is that already.
    ///
    /// # Errors
    /// If the directory holds something else, or cannot be written.
    pub fn claim(
        directory: &Path,
        cluster: u128,
        node: NodeId,
        register: &str,
    ) -> Result<Self, IdentityError> {
        let wanted = format!("{cluster:032x}");
        let new = Self { format: FORMAT, cluster: wanted, node: node.0, register: register.to_owned() };
        let written = match Self::read(directory, node, register)? {
            Some(found) => found,
            None => write(directory, NODE_FILE, &new)?,
        };
        if written.cluster() == cluster {
            return Ok(written);
        }
        let (path, found) = (directory.to_owned(), written.cluster);
        Err(IdentityError::OtherCluster { path, found, wanted: new.cluster })
    }

    /// The id of the node's cluster.
    #[must_use]
    pub fn cluster(&self) -> u128 {
        number_of(&self.cluster)
    }
}

/// Where the node whose data is in `directory` was reached in its last incarnation, if that is
/// known.
pub(crate) fn last_address(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(ADDRESS_FILE)).ok()?;
    let is_address =
        |text: &str| text.len() <= MAX_ADDRESS_BYTES && text.contains(':') && !text.contains('\n');
    Some(text.trim_end().to_owned()).filter(|text| is_address(text))
}

/// Notes where the node whose data is in `directory` is reached in this incarnation.
pub(crate) fn note_address(directory: &Path, address: &str) {
    if last_address(directory).as_deref() != Some(address) {
        // Without it, as on a full disk, the register alone is asked.
        let _ = fs::write(directory.join(ADDRESS_FILE), format!("{address}\n"));
    }
}

fn is_cluster(text: &str) -> bool {
    u128::from_str_radix(text, 16).is_ok()
}

fn number_of(cluster: &str) -> u128 {
    u128::from_str_radix(cluster, 16).expect("it was checked when it was read")
}

/// The contents of a file of `directory`, if there is one.
fn read<T: DeserializeOwned>(
    directory: &Path,
    file: &str,
    is_sound: impl Fn(&T) -> bool,
) -> Result<Option<T>, IdentityError> {
    let path = directory.join(file);
    match fs::read_to_string(&path) {
        Ok(text) => parse(&path, &text, is_sound).map(Some),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(IdentityError::Io { path, cause }),
    }
}

fn parse<T: DeserializeOwned>(
    path: &Path,
    text: &str,
    is_sound: impl Fn(&T) -> bool,
) -> Result<T, IdentityError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let malformed = |cause: &str| IdentityError::Malformed { path: path.to_owned(), cause: cause.to_owned() };
    let Format { format } = toml::from_str(text).map_err(|cause| malformed(cause.message()))?;
    if format > FORMAT {
        return Err(IdentityError::Newer { path: path.to_owned(), found: format });
    }
    let identity: T = toml::from_str(text).map_err(|cause| malformed(cause.message()))?;
    if is_sound(&identity) {
        return Ok(identity);
    }
    Err(malformed("its cluster or its number of nodes is not valid"))
}

/// Written beside and then given its name, so that it is there whole or not at all.
fn write<T: Serialize + Clone>(directory: &Path, file: &str, identity: &T) -> Result<T, IdentityError> {
    let path = directory.join(file);
    let written = || {
        fs::create_dir_all(directory)?;
        let text = toml::to_string(identity).map_err(io::Error::other)?;
        let beside = directory.join(format!("{file}.new"));
        let mut new = File::create(&beside)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&beside, &path)?;
        File::open(directory)?.sync_all()
    };
    written().map_err(|cause| IdentityError::Io { path: path.clone(), cause })?;
    Ok(identity.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let new = ClusterIdentity::open(dir.path(), None, 7).unwrap();
        assert_eq!((new.cluster(), new.nodes), (7, 3));
        assert_eq!(ClusterIdentity::open(dir.path(), Some(3), 8).unwrap(), new);
        let other = ClusterIdentity::open(dir.path(), Some(1), 8);
        assert!(matches!(other, Err(IdentityError::Nodes { found: 3, wanted: 1, .. })));
        fs::write(dir.path().join(CLUSTER_FILE), "format = 2\nfuture = true\n").unwrap();
        let newer = ClusterIdentity::open(dir.path(), None, 8);
        assert!(matches!(newer, Err(IdentityError::Newer { found: 2, .. })));
        fs::write(dir.path().join(CLUSTER_FILE), "hello").unwrap();
        assert!(matches!(ClusterIdentity::open(dir.path(), None, 8), Err(IdentityError::Malformed { .. })));
    }

    #[test]
    fn a_directory_belongs_to_one_node_of_one_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let read = |node, register| NodeIdentity::read(dir.path(), NodeId(node), register);
        assert_eq!(read(2, "on node 1").unwrap(), None);
        let claimed = NodeIdentity::claim(dir.path(), 7, NodeId(2), "on node 1").unwrap();
        assert_eq!(read(2, "on node 1").unwrap(), Some(claimed.clone()));
        assert_eq!(NodeIdentity::claim(dir.path(), 7, NodeId(2), "on node 1").unwrap(), claimed);
        assert!(matches!(read(3, "on node 1"), Err(IdentityError::OtherNode { found: 2, wanted: 3, .. })));
        assert!(matches!(read(2, "in etcd"), Err(IdentityError::OtherRegister { .. })));
        let other = NodeIdentity::claim(dir.path(), 8, NodeId(2), "on node 1");
        assert!(matches!(other, Err(IdentityError::OtherCluster { .. })));
        let whole = ClusterIdentity::open(dir.path(), None, 8);
        assert!(matches!(whole, Err(IdentityError::OtherKind { .. })));
    }

    #[test]
    fn a_cluster_in_one_process_is_not_one_node() {
        let dir = tempfile::tempdir().unwrap();
        ClusterIdentity::open(dir.path(), None, 7).unwrap();
        let one = NodeIdentity::read(dir.path(), NodeId(1), "on this node");
        assert!(matches!(one, Err(IdentityError::OtherKind { .. })));
    }
}
