//! The record store of shard replicas and the journal of a node.
//!
//! Nothing here waits, asks the clock, draws a random number or starts a thread. Everything is done
//! to a
//! [`Disk`]: files in a server, one in memory that tears, loses and rots in the simulator.
//!
//! # What is where
//!
//! | module | holds |
//! |---|---|
//! | [`disk`] | the trait; [`MemoryDisk`] (faulty on request), [`VolatileDisk`] (a killed process loses what it did not sync), [`BoundedDisk`] |
//! | [`journal`] | the node's one journal: group commit, recovery, checkpoints, recycled files |
//! | [`shard`] | one [`ShardStore`] per shard replica: segments, binding logs, index, reads, trim |
//! | `format` | headers and frames that all files share |
//!
//! ```text
//! lock                                    held by the process that uses the directory
//! journal-begun                           empty: a start that finds no journal beside it refuses
//! (a reserve of 34 MiB, without a name)   room for what is written behind
//! journal/0001 …                          prewritten files, used again and again
//! logs/<log, 16 hex digits>/shard-<n>/
//!     seg-00000001.records                records in arrival order, without positions
//!     seg-00000001.bindings               (view, positions) or ids → bytes of a segment; what else is remembered
//!     seg-00000001.packed                 the same bindings rewritten, in their place once they are final
//!     trim                                the trim point, the oldest segment, up to where packed logs count
//! ```
//!
//! # How they work together
//!
//! At durability `disk` the host executes each command of a shard replica on its [`ShardStore`]
//! (buffered), appends the same command to the [`Journal`], and tells the replica that it is
//! persisted when the journal is. So an append costs one sync, whatever the number of logs and
//! shards. A command that finds everything there, because it was executed before, is not appended
//! again ([`Kept`]). At a checkpoint the stores name their dirty files, a few stores at a time, and
//! the journal gets their snapshots; once all of these files are synced, it may forget. After a
//! crash each store goes back to its checkpoint, and the journal's later commands are executed
//! again. At durability `memory` there is no journal for a shard's commands.
//!
//! # What holds
//!
//! - **Invariant: files are appended to, never edited**, except for the trim point, which is
//!   overwritten within one sector so that a full disk can be trimmed.
//! - **Invariant: nothing is believed without a checksum.** Below what was durable, each bit of a
//!   file is covered: by its header's, frame's, batch's or footer's checksum, at start or at the
//!   read that meets it. What was durable and is unreadable is an error that names file and offset
//!   ([`OpenError`]), never skipped. The one exception cannot be told apart: a damaged last batch
//!   of the journal looks like a torn one and is cut off.
//! - **Invariant: no byte that a client sent is believed to be the store's own.** Recovery and
//!   reads look for nothing inside of payloads; where they cannot tell what is one, a batch of the
//!   journal has a salt that no client knows.
//! - **Invariant: what recovery accepted is durable, and what it cut off cannot come back**, before
//!   anything new is written (`journal/recovery.rs`).
//! - **Invariant: a segment is deleted only when all positions it ever held are below a trim point
//!   that is durable, and no record in it still waits for its position to be final.**
//! - A failed sync is final. A full disk is not: the command or the write has no effect and can be
//!   repeated.
//!
//! # Formats
//!
//! Version 6; older files are read, and those that changed since get no more entries. Each file
//! starts with magic, version, whose it is, critical flags (refused if unknown) and ignorable
//! flags; see `format.rs`, `journal/batch.rs`, `shard/segment.rs`, `shard/binding.rs`,
//! `shard/packed.rs`, `shard/rewriting.rs`. Values are encoded by [`seriatim_model::wire`].
//! `golden/` holds files of each version, and `tests/golden.rs` says how to add the next.

pub mod disk;
mod error;
mod format;
pub mod journal;
pub mod shard;

pub use disk::{BoundedDisk, BytesBehind, Disk, MemoryDisk, VolatileDisk, sync_files};
pub use error::OpenError;
pub use journal::{
    Advance, CheckpointId, Journal, JournalIdentity, JournalOptions, JournalWrite, Lsn, Preparation,
    Recovered, RoleKey, Secret,
};
pub use shard::{Kept, OpenMode, Removal, ShardOptions, ShardStore, StoreError};
