//! The record store of shard replicas and the journal of a node.
//!
//! This crate never waits, reads the clock, draws random numbers or starts threads. Its state is on
//! a [`Disk`]: files in a server, memory with injected faults in the simulator.
//!
//! # Modules
//!
//! | module | holds |
//! |---|---|
//! | [`disk`] | the trait, [`MemoryDisk`] (injects faults), [`VolatileDisk`], [`BoundedDisk`] |
//! | [`journal`] | the node's journal: group commit, recovery, checkpoints, recycled files |
//! | [`shard`] | one [`ShardStore`] per shard replica: segments, binding logs, index, reads, trim |
//! | `error` | why files cannot be opened |
//! | `format` | headers and frames of all files |
//!
//! ```text
//! lock                                    held by the process
//! journal-begun                           empty; with it, a start without journal files refuses
//! (an unnamed reserve of 34 MiB)          room for deferred writes
//! journal/0001 …                          prewritten files, recycled
//! logs/<log, 16 hex digits>/shard-<n>/
//!     seg-00000001.records                records in arrival order, without positions
//!     seg-00000001.bindings               (view, positions) or ids → segment bytes; hard state
//!     seg-00000001.packed                 final bindings, rewritten
//!     trim                                trim point, oldest segment, end of the packed logs
//! ```
//!
//! # Data flow
//!
//! At durability `disk` the host executes each command of a shard replica on its [`ShardStore`]
//! (buffered), appends it to the [`Journal`], and reports it persisted when the journal is durable.
//! So an append costs one sync for any number of logs and shards. A repeated command without effect
//! is not appended again ([`Kept`]).
//!
//! At a checkpoint, a few stores at a time report their dirty files and add snapshots to the
//! journal. Once these files are synced, the journal may drop older entries. After a crash each
//! store returns to its checkpoint, and the host executes the journal's later commands again. At
//! durability `memory` shard commands are not journaled.
//!
//! # Invariants
//!
//! - **Invariant: files are appended to, never edited**, except the trim point, which is
//!   overwritten within one sector so that a full disk can be trimmed.
//! - **Invariant: nothing is believed without a checksum.** A checksum covers each durable bit, and
//!   is checked at the start or when the bit is read. Unreadable durable bytes are an error
//!   ([`OpenError`]), never skipped. One exception: a damaged last batch of the journal looks torn
//!   and is cut off.
//! - **Invariant: client bytes are never taken for the store's own.** Recovery and reads do not
//!   search payloads; a secret salt marks the journal's batches.
//! - **Invariant: recovered state is durable, and cut-off bytes cannot come back**, before the next
//!   write (`journal/recovery.rs`).
//! - **Invariant: a segment is deleted only when all its positions are below a durable trim point
//!   and none of its records still waits for its final position.**
//! - A failed sync is final. On a full disk a command or write has no effect and can be repeated.
//!
//! # Formats
//!
//! Version 6. Older files are readable; files of an older layout get no more entries. For the
//! layouts see `format.rs`, `journal/batch.rs`, `shard/segment.rs`, `shard/binding.rs`,
//! `shard/packed.rs`, `shard/rewriting.rs`. [`seriatim_model::wire`] encodes values. `golden/`
//! holds files of each version; `tests/golden.rs` explains how to add the next.

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
