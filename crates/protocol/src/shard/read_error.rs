//! Rejections of readers' requests.

use seriatim_model::Position;
use seriatim_model::wire::wire_enum;

/// Why a replica rejected a read or a trim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The position is below the trim point.
    #[error("positions below {first} are trimmed; the first one is {first}")]
    Trimmed {
        /// The first readable position.
        first: Position,
    },
    /// The record is damaged on this replica.
    #[error("the record at position {position} is damaged on the replica that was asked")]
    Damaged {
        /// The damaged position.
        position: Position,
    },
    /// The replica's disk failed.
    #[error("the disk of the replica that was asked failed: {reason}")]
    Disk {
        /// The operating system's message.
        reason: String,
    },
    /// Too many waiting readers.
    #[error("the replica serves too many readers; try again later")]
    Busy,
    /// The trim exceeds the stable bound; retry later.
    #[error("position {stable} is the first that is not final yet; only final positions can be trimmed")]
    NotStable {
        /// The stable bound.
        stable: Position,
    },
    /// An operator accepted the loss. No replica serves these records any more.
    #[error("the record at position {position} is lost, as an operator accepted")]
    Lost {
        /// The lost position.
        position: Position,
        /// The shard's positions below it are lost too.
        end: Position,
    },
    /// The replica is catching up and lacks this position.
    #[error("the replica that was asked does not hold position {position} yet")]
    Missing {
        /// The missing position.
        position: Position,
        /// Number of positions that the replica lacks. Falls while catch-up makes progress.
        lacking: u64,
    },
}

wire_enum! {
    ReadError {
        1 => Trimmed { first },
        2 => Damaged { position },
        3 => Disk { reason },
        4 => Busy {},
        5 => NotStable { stable },
        6 => Missing { position, lacking },
        7 => Lost { position, end },
    }
}
