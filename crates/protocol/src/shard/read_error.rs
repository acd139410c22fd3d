//! Why a replica does not answer a reader with what was asked for.

use seriatim_model::Position;
use seriatim_model::wire::wire_enum;

/// Why a read or a trim was not answered with what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The position lies below the trim point.
    #[error("positions below {first} are trimmed; the first one is {first}")]
    Trimmed {
        /// The first position that can still be read.
        first: Position,
    },
    /// The record is damaged on this replica.
    #[error("the record at position {position} is damaged on the replica that was asked")]
    Damaged {
        /// Where.
        position: Position,
    },
    /// The disk of the replica failed.
    #[error("the disk of the replica that was asked failed: {reason}")]
    Disk {
        /// The operating system's message.
        reason: String,
    },
    /// The replica serves too many waiting readers.
    #[error("the replica serves too many readers; try again later")]
    Busy,
    /// The trim point asked for is not stable yet; ask again when it is.
    #[error("position {stable} is the first that is not final yet; only final positions can be trimmed")]
    NotStable {
        /// The stable bound.
        stable: Position,
    },
    /// An operator accepted that what the shard held here is lost. No replica gives it out any
    /// more.
    #[error("the record at position {position} is lost, as an operator accepted")]
    Lost {
        /// Where.
        position: Position,
        /// The shard's other positions below it are lost, too.
        end: Position,
    },
    /// The replica is being copied to, and has not got this position yet.
    #[error("the replica that was asked does not hold position {position} yet")]
    Missing {
        /// Where.
        position: Position,
        /// How many positions it has not got, this one perhaps among them: fewer from time to time,
        /// as long as it gets on.
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
