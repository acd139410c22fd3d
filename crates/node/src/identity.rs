//! Identity files in a data directory: of a whole cluster in one process, or of one node of a
//! cluster.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use seriatim_model::NodeId;

/// Newest known format.
const FORMAT: u32 = 1;
/// Most nodes in one process.
const MAX_NODES: u32 = 64;
const CLUSTER_FILE: &str = "cluster.toml";
const NODE_FILE: &str = "node.toml";
/// The node's address in its last incarnation, `host:port`. A copy of the directory has it too.
const ADDRESS_FILE: &str = "address";
/// Longest stored address, in bytes.
const MAX_ADDRESS_BYTES: usize = 1024;

/// `cluster.toml`: the cluster of this directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterIdentity {
    format: u32,
    cluster: String,
    /// Number of nodes.
    pub nodes: u32,
}

/// `node.toml`: the node of this directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeIdentity {
    format: u32,
    cluster: String,
    node: u32,
    /// The register's place, in words. A register does not move.
    register: String,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The operating system refused.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// Another program wrote the file.
    #[error("{path} is not a description of a Seriatim cluster ({cause}); give another data directory")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The fault.
        cause: String,
    },
    /// A newer program wrote the file.
    #[error("{path} has format {found}, and this program knows formats up to {FORMAT}: use a newer seriatim")]
    Newer {
        /// The file.
        path: PathBuf,
        /// File format.
        found: u32,
    },
    /// The requested number of nodes is out of range.
    #[error("a cluster in one process has 1 to {MAX_NODES} nodes, not {wanted}; choose with --nodes")]
    NoSuchSize {
        /// The requested number.
        wanted: u32,
    },
    /// The cluster has another number of nodes.
    #[error(
        "the cluster in {path} has {found} nodes, not {wanted}; leave out --nodes, or give another directory with --data"
    )]
    Nodes {
        /// The directory.
        path: PathBuf,
        /// Existing number.
        found: u32,
        /// The requested number.
        wanted: u32,
    },
    /// The directory belongs to a single node instead of a cluster in one process, or the reverse.
    #[error("{path} holds {found}, not {wanted}; give another data directory")]
    OtherKind {
        /// The directory.
        path: PathBuf,
        /// The kind found.
        found: &'static str,
        /// The kind requested.
        wanted: &'static str,
    },
    /// The directory belongs to another node.
    #[error(
        "{path} holds the data of node {found}, not of node {wanted}; each node has a directory of its own"
    )]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// Owning node.
        found: u32,
        /// The requested node.
        wanted: u32,
    },
    /// The directory belongs to another cluster.
    #[error(
        "{path} belongs to cluster {found}, and the register to cluster {wanted}; give another data directory, or another register"
    )]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Owning cluster.
        found: String,
        /// The register's cluster.
        wanted: String,
    },
    /// The configured place of the register differs from the earlier one.
    #[error(
        "the node in {path} has its register {found}, not {wanted}: a register does not move; correct the configuration"
    )]
    OtherRegister {
        /// The directory.
        path: PathBuf,
        /// The earlier place.
        found: String,
        /// The configured place.
        wanted: String,
    },
}

const ONE_PROCESS: &str = "a whole cluster in one process";
const ONE_NODE: &str = "one node of a cluster";

impl ClusterIdentity {
    /// Reads the identity in `directory`. If absent, makes one for `nodes` nodes, or for 3.
    ///
    /// # Errors
    /// If the directory has other contents, or cannot be written.
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
    /// Reads the identity in `directory`. `None` if absent.
    ///
    /// # Errors
    /// If it is not that of `node` with its register at `register`.
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

    /// Claims the directory for `node` of `cluster`. Idempotent.
    ///
    /// # Errors
    /// If it belongs to another node or cluster, or cannot be written.
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

    /// The cluster's id.
    #[must_use]
    pub fn cluster(&self) -> u128 {
        number_of(&self.cluster)
    }
}

/// Address of the node in its last incarnation; `None` if unknown.
pub(crate) fn last_address(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(ADDRESS_FILE)).ok()?;
    let is_address =
        |text: &str| text.len() <= MAX_ADDRESS_BYTES && text.contains(':') && !text.contains('\n');
    Some(text.trim_end().to_owned()).filter(|text| is_address(text))
}

pub(crate) fn note_address(directory: &Path, address: &str) {
    if last_address(directory).as_deref() != Some(address) {
        // If this fails, as on a full disk, the next start looks for rivals by the register alone.
        let _ = fs::write(directory.join(ADDRESS_FILE), format!("{address}\n"));
    }
}

fn is_cluster(text: &str) -> bool {
    u128::from_str_radix(text, 16).is_ok()
}

fn number_of(cluster: &str) -> u128 {
    u128::from_str_radix(cluster, 16).expect("it was checked when it was read")
}

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

/// Writes beside the file and renames it: the file is whole or absent.
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
