//! Why a reader receives no more records.

use seriatim_model::{NodeId, Position, ShardId};

/// Why a read or subscription ended. Temporary failures are retried instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The position is trimmed permanently.
    #[error("positions below {first} are trimmed; the first one is {first}")]
    Trimmed {
        /// The first readable position.
        first: Position,
    },
    /// A shard skipped a position that it owns, or served it twice. This is a defect; no record
    /// after the position was delivered.
    #[error("shard {shard} skipped position {position}, which was due; report this")]
    Gap {
        /// The expected position.
        position: Position,
        /// The shard that owns it.
        shard: ShardId,
    },
    /// A shard sent records out of order. This is a defect.
    #[error("shard {shard} sent position {position} out of order; report this")]
    Disordered {
        /// The misplaced position.
        position: Position,
        /// The shard that sent it.
        shard: ShardId,
    },
    /// The record is damaged on every replica of its shard.
    #[error("the record at position {position} is damaged on every replica of shard {shard}")]
    Damaged {
        /// Position of the damaged record.
        position: Position,
        /// Its shard.
        shard: ShardId,
    },
    /// The record is lost permanently, and an operator accepted the loss.
    #[error(
        "records of shard {shard} from position {position} to {end} are lost, as an operator accepted; continue reading from {end}"
    )]
    Lost {
        /// Position of the lost record.
        position: Position,
        /// Its shard.
        shard: ShardId,
        /// Position at which to resume: no record exists from `position` to here.
        end: Position,
    },
    /// After a loss that an operator accepted, the log continues below the reader's position: new
    /// records get the positions from `start` on, and the records that the reader received there
    /// are lost.
    #[error(
        "the log continues at position {start} after a loss that an operator accepted, and this reader is at position {position}: records read from {start} on are lost, and other records get their positions; read again from {start}"
    )]
    Reassigned {
        /// The reader's next position.
        position: Position,
        /// Position at which the log continues and the reader must resume.
        start: Position,
    },
    /// No replica of the shard served the record, and the last one asked lacks it.
    #[error("no replica of shard {shard} has position {position}")]
    Missing {
        /// Position of the record.
        position: Position,
        /// Its shard.
        shard: ShardId,
    },
    /// Every replica of a shard fails to read its disk.
    #[error("no replica of shard {shard} can read its disk: {reason}")]
    Disk {
        /// The shard.
        shard: ShardId,
        /// The operating system's error on the last replica asked.
        reason: String,
    },
    /// The chosen shards have left the log, so no more records follow.
    #[error("no more records from {}: {} left the log; choose other shards", listed(.0), if .0.len() == 1 { "it has" } else { "they have" })]
    ShardsLeft(Vec<ShardId>),
    /// The chosen shards are retired and all their records were delivered, so no more follow.
    #[error("no more records from {}: {} retired, and all its records were delivered; choose other shards", listed(.0), if .0.len() == 1 { "it is" } else { "they are" })]
    ShardsRetired(Vec<ShardId>),
    /// The log was deleted.
    #[error("the log '{0}' was deleted")]
    Deleted(String),
    /// The deadline passed without an answer from the shard that holds the position.
    #[error("shard {shard} on node {node} is not responding{}", because(.why))]
    Unanswered {
        /// The shard.
        shard: ShardId,
        /// The last node asked.
        node: NodeId,
        /// Why no view can be formed, if that is the cause.
        why: Option<String>,
    },
    /// The deadline passed and the log had no view.
    #[error("the log has no active view{}", because(.why))]
    NoView {
        /// Why no view can be formed, if known.
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
