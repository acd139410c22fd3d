//! Why a reader gets nothing more.

use seriatim_model::{NodeId, Position, ShardId};

/// Why a read or a subscription ended. What can pass by itself is tried again instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The position lies below the trim point: it is gone for good.
    #[error("positions below {first} are trimmed; the first one is {first}")]
    Trimmed {
        /// The first position that can still be read.
        first: Position,
    },
    /// A shard skipped a position that it holds, or gave it out twice. It must not happen; nothing
    /// after the position was delivered.
    #[error("shard {shard} skipped position {position}, which was due; report this")]
    Gap {
        /// The position that should have come next.
        position: Position,
        /// The shard that should have given it out.
        shard: ShardId,
    },
    /// A shard gave out records in an order that is none. It must not happen.
    #[error("shard {shard} sent position {position} out of order; report this")]
    Disordered {
        /// The position that was out of place.
        position: Position,
        /// The shard that gave it out.
        shard: ShardId,
    },
    /// The record is damaged on every replica of its shard.
    #[error("the record at position {position} is damaged on every replica of shard {shard}")]
    Damaged {
        /// Where.
        position: Position,
        /// The shard that holds it.
        shard: ShardId,
    },
    /// The shard lost the record, and an operator accepted that. It does not come back.
    #[error(
        "records of shard {shard} from position {position} to {end} are lost, as an operator accepted; continue reading from {end}"
    )]
    Lost {
        /// Where.
        position: Position,
        /// The shard that held it.
        shard: ShardId,
        /// Where to read on: the shard lost all that it had before, and no other has a record
        /// there.
        end: Position,
    },
    /// The log continues below the reader's position after a loss that an operator accepted. Other
    /// records get the positions from `start` on, and records that the reader has from there on are
    /// lost.
    #[error(
        "the log continues at position {start} after a loss that an operator accepted, and this reader is at position {position}: records read from {start} on are lost, and other records get their positions; read again from {start}"
    )]
    Reassigned {
        /// The position that the reader waits for.
        position: Position,
        /// The position at which the log continues, and at which a reader has to begin again.
        start: Position,
    },
    /// No replica of the shard gave the record out, and the last one that was asked lacks it.
    #[error("no replica of shard {shard} has position {position}")]
    Missing {
        /// Where.
        position: Position,
        /// The shard that should hold it.
        shard: ShardId,
    },
    /// The disks of all replicas of a shard fail.
    #[error("no replica of shard {shard} can read its disk: {reason}")]
    Disk {
        /// The shard.
        shard: ShardId,
        /// The operating system's message to the last one.
        reason: String,
    },
    /// The shards whose records were chosen have left the log, and so nothing more will come of
    /// them.
    #[error("no more records from {}: {} left the log; choose other shards", listed(.0), if .0.len() == 1 { "it has" } else { "they have" })]
    ShardsLeft(Vec<ShardId>),
    /// The shards whose records were chosen are retired, and all that they had was handed over:
    /// nothing more will come of them.
    #[error("no more records from {}: {} retired, and all its records were delivered; choose other shards", listed(.0), if .0.len() == 1 { "it is" } else { "they are" })]
    ShardsRetired(Vec<ShardId>),
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
    /// The deadline passed and the shard that holds the position did not answer.
    #[error("shard {shard} on node {node} is not responding{}", because(.why))]
    Unanswered {
        /// The shard.
        shard: ShardId,
        /// The node that was asked last.
        node: NodeId,
        /// Why no view can be formed, if that is so.
        why: Option<String>,
    },
    /// The deadline passed and the log had no view.
    #[error("the log has no active view{}", because(.why))]
    NoView {
        /// Why no view can be formed, if that is known.
        why: Option<String>,
    },
}

fn listed(shards: &[ShardId]) -> String {
    let numbers: Vec<String> = shards.iter().map(ToString::to_string).collect();
    let shards = if numbers.len() == 1 { "shard" } else { "shards" };
    format!("{shards} {}", numbers.join(", "))
}

fn because(why: &Option<String>) -> String {
    why.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
}
