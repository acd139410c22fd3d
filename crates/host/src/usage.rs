//! The bytes that a node's files take, told apart by logs.

use std::collections::BTreeMap;

use seriatim_model::LogId;
use seriatim_store::ShardStore;

/// How many bytes a node's files take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of them.
    pub bytes: u64,
    /// The bytes of each log's replicas.
    pub logs: BTreeMap<LogId, u64>,
}

impl Usage {
    /// The bytes that files of these lengths take. Their names are those that a
    /// [`Disk`](seriatim_store::Disk) gives them.
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
