//! store

pub mod disk;
mod error;
mod format;
pub mod journal;
pub mod shard;

pub use disk::{Disk, MemoryDisk, RealDisk, VolatileDisk, sync_files};
pub use error::OpenError;
pub use journal::{
    CheckpointId, Journal, JournalIdentity, JournalOptions, JournalWrite, Lsn, Recovered, RoleKey,
};
pub use shard::{OpenMode, ShardOptions, ShardStore, StoreError};
