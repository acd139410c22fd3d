//! The parts that targets with SQL share: the table of the bounds, and values.

use seriatim_model::Position;

use crate::Message;
use crate::bounds::{Stored, parse_stream};

/// Creates the table of the bounds, in SQLite and in PostgreSQL.
pub const DDL: &str = "create table if not exists seriatim_bounds (\
    player text not null, target text not null, stream text not null, \
    epoch bigint not null, bound bigint not null, primary key (player, target))";

impl Stored {
    /// Reads a row of the table `seriatim_bounds`.
    pub(crate) fn from_row(stream: &str, epoch: i64, bound: i64) -> Result<Self, String> {
        let stored = || {
            let stream = parse_stream(stream)?;
            let (epoch, bound) = (u64::try_from(epoch).ok()?, u64::try_from(bound).ok()?);
            Some(Self { stream, epoch, bound: Position(bound) })
        };
        stored().ok_or_else(|| {
            format!(
                "the table seriatim_bounds has the row '{stream}', {epoch}, {bound}, which no player writes"
            )
        })
    }
}

/// A position or an epoch as SQL's signed number. Both are at most 2^60 + 1.
pub(crate) fn integer(number: u64) -> i64 {
    i64::try_from(number).expect("positions and epochs are far below 2^63")
}

/// The part `index` of a message as text.
pub(crate) fn text_of(message: &Message, index: usize) -> Result<&str, String> {
    std::str::from_utf8(&message.parts[index])
        .map_err(|error| format!("part {index} is not UTF-8 text ({error}); a statement can use $payload"))
}

/// The time of a message as SQL's signed number.
pub(crate) fn time_ms(message: &Message) -> Result<i64, String> {
    i64::try_from(message.appended_ms)
        .map_err(|_| format!("the time {} does not fit into a number of SQL", message.appended_ms))
}
