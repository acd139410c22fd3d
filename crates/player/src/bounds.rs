//! The bound that a target stores, and the rules by which it changes.

use std::fmt;

use seriatim_delivery::player::{ApplyError, AttachError, Stream};
use seriatim_model::{LogId, Position};

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
    /// The target answers with its bound.
    Answers {
        /// The bound.
        bound: Position,
    },
    /// The target responds. The control log keeps its bound.
    Kept,
    /// The target responds. It keeps no bound, so the control log does.
    AtLeastOnce,
    /// The target responds. Only a session reveals its bound.
    Reachable,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound { epoch, bound } => write!(f, "bound {bound}, last epoch {epoch}"),
            Self::Kept => f.write_str("reachable; the control log keeps the bound"),
            Self::AtLeastOnce => f.write_str("reachable; at least once, and the control log keeps the bound"),
            Self::Answers { bound } => write!(f, "bound {bound}"),
            Self::New { creates } if creates.is_empty() => f.write_str("new, without a bound"),
            Self::Reachable => f.write_str("reachable; a session reveals its bound"),
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

#[cfg(test)]
mod tests {
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
}
