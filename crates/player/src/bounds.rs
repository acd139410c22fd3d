//! The bound that a target stores, and the rules by which it changes.

use std::fmt;

use seriatim_delivery::player::{ApplyError, AttachError, Batch, Stream};
use seriatim_model::{LogId, Position};

/// Creates the table of the bounds, in SQLite and in PostgreSQL.
pub(crate) const DDL: &str = "create table if not exists seriatim_bounds (\
    player text not null, target text not null, stream text not null, \
    epoch bigint not null, bound bigint not null, primary key (player, target))";

/// The result of a target's check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The target stores a bound of the player.
    Bound {
        /// The highest epoch that attached.
        epoch: u64,
        /// The bound.
        bound: Position,
    },
    /// The target stores no bound of the player yet.
    New {
        /// The object that the first run creates; empty if it exists.
        creates: String,
    },
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound { epoch, bound } => write!(f, "bound {bound}, last epoch {epoch}"),
            Self::New { creates } if creates.is_empty() => f.write_str("new, without a bound"),
            Self::New { creates } => write!(f, "new; the first run creates {creates}"),
        }
    }
}

/// Judges the state that a check of the target `id` found. `creates` names the objects that the
/// first run creates.
pub(crate) fn checked(
    stored: Option<Stored>,
    stream: &Stream,
    id: &str,
    creates: String,
) -> Result<Checked, String> {
    match stored {
        None => Ok(Checked::New { creates }),
        Some(stored) if stored.stream == *stream => {
            Ok(Checked::Bound { epoch: stored.epoch, bound: stored.bound })
        }
        Some(stored) => Err(format!(
            "it stores the bound {} of another log, with the id {}; to replace that bound, run \
             `seriatim player adopt {} {id} POSITION`",
            stored.bound, stored.stream.log, stream.player
        )),
    }
}

/// The row, or file, that a target stores together with its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) stream: Stream,
    /// The highest epoch that attached.
    pub(crate) epoch: u64,
    pub(crate) bound: Position,
}

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

/// The stream and the epoch of an attached player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) stream: Stream,
    pub(crate) epoch: u64,
}

impl Session {
    /// Returns the state that an attach leaves in a target with the state `stored`.
    ///
    /// `adopts` replaces the bound of another stream. It does not change a bound of this stream, so
    /// a repeated attach does not apply messages twice. A new target starts at `adopts` or at zero.
    pub(crate) fn attach(
        &self,
        stored: Option<Stored>,
        adopts: Option<Position>,
    ) -> Result<Stored, AttachError> {
        let at = |bound| Stored { stream: self.stream.clone(), epoch: self.epoch, bound };
        match stored {
            None => Ok(at(adopts.unwrap_or(Position::ZERO))),
            Some(stored) if stored.stream != self.stream => {
                adopts.map(at).ok_or(AttachError::OtherStream { stream: stored.stream })
            }
            Some(stored) if stored.epoch > self.epoch => Err(AttachError::Fenced { epoch: stored.epoch }),
            Some(stored) => Ok(at(stored.bound)),
        }
    }

    /// Checks that a target with the state `stored` may apply a batch that begins at `after`.
    pub(crate) fn admit(&self, stored: Option<&Stored>, after: Position) -> Result<(), ApplyError> {
        let Some(stored) = stored else {
            return Err(ApplyError::Broken { reason: "the target's bound was deleted".into() });
        };
        if stored.stream != self.stream {
            return Err(ApplyError::Broken { reason: format!("the target now serves {}", stored.stream) });
        }
        if stored.epoch > self.epoch {
            return Err(ApplyError::Fenced { epoch: stored.epoch });
        }
        // A restored target has an older epoch: the next attach sets it again.
        if stored.epoch < self.epoch || stored.bound != after {
            return Err(ApplyError::Moved { applied: stored.bound });
        }
        Ok(())
    }
}

/// Reads a stream from the text that `Stream` displays.
pub(crate) fn parse_stream(text: &str) -> Option<Stream> {
    let (log, player) = text.split_once('/')?;
    Some(Stream { log: LogId(log.parse().ok()?), player: player.into() })
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
    use bytes::Bytes;
    use seriatim_delivery::player::Message;

    use super::*;

    fn stream(log: u64) -> Stream {
        Stream { log: LogId(log), player: "billing".into() }
    }

    fn session(epoch: u64) -> Session {
        Session { stream: stream(7), epoch }
    }

    fn stored(log: u64, epoch: u64, bound: u64) -> Stored {
        Stored { stream: stream(log), epoch, bound: Position(bound) }
    }

    #[test]
    fn an_attach_keeps_the_bound_and_raises_the_epoch() {
        assert_eq!(session(2).attach(None, None), Ok(stored(7, 2, 0)));
        assert_eq!(session(2).attach(None, Some(Position(5))), Ok(stored(7, 2, 5)));
        assert_eq!(session(2).attach(Some(stored(7, 1, 9)), None), Ok(stored(7, 2, 9)));
        assert_eq!(session(2).attach(Some(stored(7, 2, 9)), None), Ok(stored(7, 2, 9)));
        assert_eq!(session(1).attach(Some(stored(7, 2, 9)), None), Err(AttachError::Fenced { epoch: 2 }));
    }

    #[test]
    fn only_the_bound_of_another_stream_is_replaced() {
        let other = Err(AttachError::OtherStream { stream: stream(6) });
        assert_eq!(session(2).attach(Some(stored(6, 9, 9)), None), other);
        assert_eq!(session(2).attach(Some(stored(6, 9, 9)), Some(Position(4))), Ok(stored(7, 2, 4)));
        assert_eq!(session(2).attach(Some(stored(7, 2, 9)), Some(Position(4))), Ok(stored(7, 2, 9)));
    }

    #[test]
    fn a_batch_needs_the_bound_and_the_epoch() {
        let admit = |stored: Stored| session(2).admit(Some(&stored), Position(9));
        assert_eq!(admit(stored(7, 2, 9)), Ok(()));
        assert_eq!(admit(stored(7, 2, 8)), Err(ApplyError::Moved { applied: Position(8) }));
        assert_eq!(admit(stored(7, 1, 9)), Err(ApplyError::Moved { applied: Position(9) }));
        assert_eq!(admit(stored(7, 3, 9)), Err(ApplyError::Fenced { epoch: 3 }));
        assert!(matches!(admit(stored(6, 2, 9)), Err(ApplyError::Broken { .. })));
        assert!(matches!(session(2).admit(None, Position(9)), Err(ApplyError::Broken { .. })));
    }

    #[test]
    fn a_stream_is_read_as_it_is_displayed() {
        assert_eq!(parse_stream(&stream(7).to_string()), Some(stream(7)));
        assert_eq!(parse_stream("x/billing"), None);
        assert_eq!(parse_stream("7"), None);
    }

    #[test]
    fn singles_join_without_a_gap() {
        let message = |position| Message {
            position: Position(position),
            appended_ms: 0,
            key: None,
            parts: vec![Bytes::from_static(b"x")],
        };
        let batch = Batch { after: Position(3), upto: Position(9), messages: vec![message(5), message(7)] };
        let bounds: Vec<_> =
            singles(&batch).iter().map(|s| (s.after.0, s.upto.0, s.messages.len())).collect();
        assert_eq!(bounds, [(3, 5, 0), (5, 7, 1), (7, 9, 1)]);
    }
}
