//! Replaced files.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The place of an open file on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    device: u64,
    inode: u64,
}

impl Place {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Checks that `path` leads to this place. Otherwise another program has replaced the file.
    pub(super) fn check(self, path: &Path) -> Result<(), String> {
        let found =
            std::fs::metadata(path).map_err(|error| format!("cannot find {}: {error}", path.display()))?;
        if Self::of(&found) == self {
            return Ok(());
        }
        Err(format!("another program replaced {}; the player opens it again", path.display()))
    }
}
