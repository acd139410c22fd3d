//! Errors of opening a journal or a shard store.

use std::io;

use rustix::io::Errno;

/// Why a journal or a shard store could not be opened. A failed open changes nothing, except that
/// it may cut files back to their valid part.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Durable bytes of the file have changed. The node must copy the contents from a peer.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file's name.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The fault.
        what: &'static str,
    },
    /// The file was written by another cluster, node, log or shard.
    #[error("{file} belongs to {found}, not to {expected}")]
    Foreign {
        /// The file's name.
        file: String,
        /// The owner named in the file.
        found: String,
        /// The expected owner.
        expected: String,
    },
    /// A newer program wrote the file.
    #[error("{file} has format version {found}; this program knows versions up to {known}")]
    Version {
        /// The file's name.
        file: String,
        /// The file's version.
        found: u16,
        /// The newest readable version.
        known: u16,
    },
    /// The file uses an unknown critical feature.
    #[error("{file} uses features that this program does not know (critical flags {flags:#06x})")]
    Features {
        /// The file's name.
        file: String,
        /// Its critical flags.
        flags: u16,
    },
    /// The disk had a journal, and its files are missing.
    #[error(
        "the disk had a journal, and no file is left in the directory 'journal'; put the files back, or start the node with an \
         empty data directory, to which the other nodes copy"
    )]
    NoJournal,
    /// The disk failed.
    #[error("{file}: {source}{}", advice(source))]
    Io {
        /// The file's name.
        file: String,
        /// The disk's error.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether the cause is outside of the files' contents, such as lack of room, permissions or a
    /// read error: once it is fixed, an open can succeed.
    #[must_use]
    pub fn is_of_the_surroundings(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        let errno = Errno::from_io_error(source);
        matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO))
            || matches!(
                source.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::FileTooLarge
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::Interrupted
            )
    }

    pub(crate) fn damaged(file: &str, offset: u64, what: &'static str) -> Self {
        Self::Damaged { file: file.to_owned(), offset, what }
    }

    pub(crate) fn io(file: &str) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { file: file.to_owned(), source }
    }
}

/// The remedy that the message appends, where the system's error text names none.
fn advice(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::IO) => {
            "; the disk cannot read it: start again; if that does not help, replace the disk, or, if the file belongs to \
             a shard, move the shard's directory away: the node copies its records from other replicas"
        }
        _ => write_advice(source),
    }
}

pub(crate) fn write_advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::FileTooLarge => {
            "; this process may not write files of that size: raise the limit, with 'ulimit -f unlimited' in a shell or \
             LimitFSIZE=infinity in a unit of systemd"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreError;
    use crate::journal::WriteFailure;

    #[test]
    fn what_an_operator_can_mend_is_told_from_damage() {
        let is_of_the_surroundings = |errno: Errno| OpenError::io("f")(errno.into()).is_of_the_surroundings();
        for errno in [
            Errno::NOSPC,
            Errno::FBIG,
            Errno::ACCESS,
            Errno::PERM,
            Errno::MFILE,
            Errno::NFILE,
            Errno::ROFS,
            Errno::IO,
        ] {
            assert!(is_of_the_surroundings(errno), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::ISDIR] {
            assert!(!is_of_the_surroundings(errno), "{errno}");
        }
        assert!(!OpenError::damaged("f", 0, "it is").is_of_the_surroundings());
    }

    #[test]
    fn a_limit_of_file_sizes_is_named() {
        let failure = WriteFailure::Failed { file: "f".into(), source: Errno::FBIG.into() };
        let behind = io::Error::new(io::ErrorKind::FileTooLarge, "File too large, and lost");
        for said in [
            failure.to_string(),
            OpenError::io("f")(Errno::FBIG.into()).to_string(),
            OpenError::io("f")(behind).to_string(),
            StoreError::Failed { file: "f".into(), source: Errno::FBIG.into() }.to_string(),
        ] {
            assert!(
                said.starts_with("f: File too large") && said.contains("'ulimit -f unlimited'"),
                "{said}"
            );
        }
        let failure = WriteFailure::Failed { file: "f".into(), source: Errno::IO.into() };
        assert!(failure.to_string().ends_with("(os error 5)"), "{failure}");
    }
}
