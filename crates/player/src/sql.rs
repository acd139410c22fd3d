//! The parts that targets with SQL share: the table of the bounds, values, rejected messages.

use seriatim_model::Position;

use crate::bounds::{Stored, parse_stream};
use crate::{ApplyError, Batch, Message};

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

/// Why a transaction failed.
pub(crate) enum Failure {
    /// The target refused the messages, and no retry can succeed. Nothing changed.
    Rejected(String),
    Other(ApplyError),
}

impl Failure {
    pub(crate) fn broken(reason: String) -> Self {
        Self::Other(ApplyError::Broken { reason })
    }

    /// The answer to `single`, a batch of at most one message.
    pub(crate) fn answer(self, single: &Batch) -> ApplyError {
        match (self, single.messages.first()) {
            (Self::Other(error), _) => error,
            (Self::Rejected(reason), Some(message)) => {
                ApplyError::Rejected { position: message.position, reason }
            }
            (Self::Rejected(reason), None) => ApplyError::Broken { reason },
        }
    }
}

/// Splits a batch into batches of one message each, to find the message that a target rejects.
///
/// Each one ends at the position of the next message, so the bound in front of a rejected message
/// is the message's position. An empty batch precedes a first message above the batch's begin.
pub(crate) fn singles(batch: &Batch) -> Vec<Batch> {
    let mut after = batch.after;
    let mut singles = Vec::new();
    if let Some(first) = batch.messages.first().filter(|first| first.position > after) {
        singles.push(Batch { after, upto: first.position, messages: Vec::new() });
        after = first.position;
    }
    for (index, message) in batch.messages.iter().enumerate() {
        let upto = batch.messages.get(index + 1).map_or(batch.upto, |next| next.position);
        singles.push(Batch { after, upto, messages: vec![message.clone()] });
        after = upto;
    }
    singles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::suite::batch;

    #[test]
    fn singles_join_without_a_gap() {
        let singles = singles(&batch(3, 9, [5, 7]));
        let bounds: Vec<_> = singles.iter().map(|s| (s.after.0, s.upto.0, s.messages.len())).collect();
        assert_eq!(bounds, [(3, 5, 0), (5, 7, 1), (7, 9, 1)]);
    }
}
