//! Bytes of a node's files, by log.

use std::collections::BTreeMap;

use seriatim_model::LogId;
use seriatim_store::ShardStore;

/// Bytes of a node's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All files.
    pub bytes: u64,
    /// Files of each log's replicas.
    pub logs: BTreeMap<LogId, u64>,
}

impl Usage {
    /// Sums files by the names that a [`Disk`](seriatim_store::Disk) gives them.
    #[must_use]
    pub fn of(lengths: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut usage = Self::default();
        for (name, len) in lengths {
            usage.bytes += len;
            if let Some(log) = ShardStore::log_of(&name) {
                *usage.logs.entry(log).or_default() += len;
            }
        }
        usage
    }
}
