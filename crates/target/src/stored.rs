//! The decisions of a target, for an application that stores their results.

use crate::contract::{ApplyError, AttachError, Session};
use crate::proto::{Batch, Stream};

/// The data that a target stores for a pair of player and target id.
///
/// An application reads it, decides with it, and writes the result, all in the transaction that
/// also holds the effects of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The log's id.
    pub log: String,
    /// The position below which all messages are applied.
    pub bound: u64,
    /// The highest epoch that attached.
    pub epoch: u64,
}

impl Stored {
    /// Decides an attach. The result must be stored before the target answers with its bound.
    /// `stored` is `None` if the player attaches for the first time.
    ///
    /// `adopts` replaces the bound of another log. It does not change a bound of this log: a late
    /// or repeated attach would lower the bound, and messages would be applied twice.
    ///
    /// # Errors
    /// [`AttachError::Fenced`] and [`AttachError::OtherStream`]; nothing may change then.
    pub fn attach(stored: Option<Self>, session: &Session, adopts: Option<u64>) -> Result<Self, AttachError> {
        let log = &session.stream.log;
        let bound = match (stored, adopts) {
            (Some(stored), _) if stored.epoch > session.epoch => {
                return Err(AttachError::Fenced { epoch: stored.epoch });
            }
            (Some(stored), _) if stored.log == *log => stored.bound,
            (Some(stored), None) => {
                let stream = Stream { log: stored.log, player: session.stream.player.clone() };
                return Err(AttachError::OtherStream { stream });
            }
            (_, adopts) => adopts.unwrap_or(0),
        };
        Ok(Self { log: log.clone(), bound, epoch: session.epoch })
    }

    /// Decides whether a batch may be applied. The result must be stored in the transaction of the
    /// batch's effects. `stored` is `None` if the data are lost.
    ///
    /// If the application rejects the message at a position, it applies the messages before it, and
    /// stores the result with that position as its bound.
    ///
    /// # Errors
    /// [`ApplyError::Fenced`], [`ApplyError::Moved`], and [`ApplyError::Broken`] if the stored data
    /// are older than the session; nothing may change then.
    pub fn apply(stored: Option<Self>, session: &Session, batch: &Batch) -> Result<Self, ApplyError> {
        match stored {
            Some(stored) if stored.epoch > session.epoch => Err(ApplyError::Fenced { epoch: stored.epoch }),
            Some(stored) if stored.epoch == session.epoch && stored.log == session.stream.log => {
                if stored.bound != batch.after {
                    return Err(ApplyError::Moved { applied: stored.bound });
                }
                Ok(Self { bound: batch.upto, ..stored })
            }
            _ => Err(ApplyError::Broken {
                reason: "the target's bound is older than this session; its data were restored".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(log: &str, epoch: u64) -> Session {
        let stream = Stream { log: log.into(), player: "billing".into() };
        Session { stream, target: "ledger".into(), epoch }
    }

    fn stored(bound: u64, epoch: u64) -> Stored {
        Stored { log: "1".into(), bound, epoch }
    }

    #[test]
    fn an_attach_raises_the_epoch_and_keeps_the_bound() {
        assert_eq!(Stored::attach(None, &session("1", 7), None), Ok(stored(0, 7)));
        for epoch in [7, 9] {
            let attached = Stored::attach(Some(stored(40, 7)), &session("1", epoch), None);
            assert_eq!(attached, Ok(stored(40, epoch)));
        }
        let fenced = Stored::attach(Some(stored(40, 7)), &session("1", 6), Some(0));
        assert_eq!(fenced, Err(AttachError::Fenced { epoch: 7 }));
    }

    #[test]
    fn another_log_is_adopted_only_on_request() {
        let stream = session("1", 7).stream;
        let other = Stored::attach(Some(stored(40, 7)), &session("2", 8), None);
        assert_eq!(other, Err(AttachError::OtherStream { stream }));
        let adopted = Stored { log: "2".into(), bound: 5, epoch: 8 };
        assert_eq!(Stored::attach(Some(stored(40, 7)), &session("2", 8), Some(5)), Ok(adopted.clone()));
        // The same attach arrives once more, after a batch.
        let later = Stored { bound: 6, ..adopted };
        assert_eq!(Stored::attach(Some(later.clone()), &session("2", 8), Some(5)), Ok(later));
    }

    #[test]
    fn a_batch_follows_the_stored_bound_and_epoch() {
        let batch = Batch { after: 40, upto: 45, messages: vec![] };
        let apply = |stored, epoch| Stored::apply(Some(stored), &session("1", epoch), &batch);
        assert_eq!(apply(stored(40, 7), 7), Ok(stored(45, 7)));
        for moved in [39, 45] {
            assert_eq!(apply(stored(moved, 7), 7), Err(ApplyError::Moved { applied: moved }));
        }
        assert_eq!(apply(stored(40, 8), 7), Err(ApplyError::Fenced { epoch: 8 }));
        assert!(matches!(apply(stored(40, 6), 7), Err(ApplyError::Broken { .. })));
        let lost = Stored::apply(None, &session("1", 7), &batch);
        assert!(matches!(lost, Err(ApplyError::Broken { .. })));
        let other = Stored::apply(Some(stored(40, 7)), &session("2", 7), &batch);
        assert!(matches!(other, Err(ApplyError::Broken { .. })));
    }
}
