//! What makes a data directory the data directory of a certain cluster.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The newest format that this program writes and reads.
const FORMAT: u32 = 1;
/// The largest number of nodes that one process hosts.
const MAX_NODES: u32 = 64;
const FILE: &str = "cluster.toml";

/// The cluster whose data is in a directory: its `cluster.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterIdentity {
    format: u32,
    cluster: String,
    /// How many nodes it has.
    pub nodes: u32,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The operating system refuses.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it says.
        cause: io::Error,
    },
    /// It is not what this program writes.
    #[error(
        "{path} is not a description of a Seriatim cluster ({cause}); give another directory with --data"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
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
}

impl ClusterIdentity {
    /// Reads the identity in `directory`, or makes one for a cluster of `nodes` nodes if there is none.
    ///
    /// # Errors
    /// If the directory holds something else, or cannot be written.
    pub fn open(directory: &Path, nodes: Option<u32>, random: u128) -> Result<Self, IdentityError> {
        if let Some(wanted) = nodes.filter(|wanted| !(1..=MAX_NODES).contains(wanted)) {
            return Err(IdentityError::NoSuchSize { wanted });
        }
        let path = directory.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let found = Self::parse(&path, &text)?;
                match nodes {
                    Some(wanted) if wanted != found.nodes => {
                        Err(IdentityError::Nodes { path: directory.to_owned(), found: found.nodes, wanted })
                    }
                    _ => Ok(found),
                }
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                let new =
                    Self { format: FORMAT, cluster: format!("{random:032x}"), nodes: nodes.unwrap_or(3) };
                new.write(directory, &path).map_err(|cause| IdentityError::Io { path, cause })?;
                Ok(new)
            }
            Err(cause) => Err(IdentityError::Io { path, cause }),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, IdentityError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let malformed = |cause: String| IdentityError::Malformed { path: path.to_owned(), cause };
        let Format { format } =
            toml::from_str(text).map_err(|cause| malformed(cause.message().to_owned()))?;
        if format > FORMAT {
            return Err(IdentityError::Newer { path: path.to_owned(), found: format });
        }
        let identity: Self = toml::from_str(text).map_err(|cause| malformed(cause.message().to_owned()))?;
        if u128::from_str_radix(&identity.cluster, 16).is_err() || !(1..=MAX_NODES).contains(&identity.nodes)
        {
            return Err(malformed("its cluster or its number of nodes is no such thing".into()));
        }
        Ok(identity)
    }

    /// Written beside and then renamed, so that it is there whole or not at all.
    fn write(&self, directory: &Path, path: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        let text = toml::to_string(self).map_err(io::Error::other)?;
        let beside = directory.join(format!("{FILE}.new"));
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        File::open(directory)?.sync_all()
    }

    /// The cluster's id.
    #[must_use]
    pub fn cluster(&self) -> u128 {
        u128::from_str_radix(&self.cluster, 16).expect("it was checked when it was read")
    }
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
        fs::write(dir.path().join(FILE), "format = 2\nfuture = true\n").unwrap();
        let newer = ClusterIdentity::open(dir.path(), None, 8);
        assert!(matches!(newer, Err(IdentityError::Newer { found: 2, .. })));
        fs::write(dir.path().join(FILE), "hello").unwrap();
        assert!(matches!(ClusterIdentity::open(dir.path(), None, 8), Err(IdentityError::Malformed { .. })));
    }
}
