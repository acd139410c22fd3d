//! Bounds that the control log keeps, for targets that cannot store one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use seriatim_client::Position;
use seriatim_model::LogId;
use tokio::time::Instant;

use crate::bounds::{Session, Stored};
use crate::control::{ControlLog, Event};
use crate::{ApplyError, AttachError, Stream};

/// Least time between two records of one target.
const RECORD_EVERY: Duration = Duration::from_millis(20);

/// The bound of a target, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundRecord {
    /// The target's id.
    pub target: String,
    /// Epoch of the player that recorded it.
    pub epoch: u64,
    /// Id of the log that the player reads.
    pub log: u64,
    /// Everything below is applied.
    pub bound: u64,
    /// Where a target of kind `log` continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bookmark: Option<Bookmark>,
}

/// A place in a session of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookmark {
    /// Id of the log.
    pub log: u64,
    /// The session.
    pub session: String,
    /// Number of the next append.
    pub number: u64,
}

/// The last recorded bound of each target, with the record's position in the control log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds(BTreeMap<String, (u64, BoundRecord)>);

impl Bounds {
    /// Keeps a record, unless a later one of the same target is known.
    pub(crate) fn keep(&mut self, at: u64, record: BoundRecord) {
        if self.0.get(&record.target).is_none_or(|(known, _)| *known < at) {
            self.0.insert(record.target.clone(), (at, record));
        }
    }

    pub(crate) fn get(&self, target: &str) -> Option<&BoundRecord> {
        self.0.get(target).map(|(_, record)| record)
    }

    pub(crate) fn all(&self) -> Vec<(u64, BoundRecord)> {
        self.0.values().cloned().collect()
    }
}

/// Records the bound of one target.
#[derive(Debug)]
pub(crate) struct Keeper {
    control: ControlLog,
    target: String,
    last: Option<BoundRecord>,
    /// All records of the control log below are known, and no claim among them deposes the player.
    read: Position,
    record_at: Instant,
}

/// Why a bound is not recorded.
#[derive(Debug)]
pub(crate) enum NotKept {
    /// A later player has claimed the stream.
    Fenced { epoch: u64 },
    /// The control log takes no record, or cannot be read.
    Broken { reason: String },
}

impl From<NotKept> for AttachError {
    fn from(why: NotKept) -> Self {
        match why {
            NotKept::Fenced { epoch } => Self::Fenced { epoch },
            NotKept::Broken { reason } => Self::Broken { reason },
        }
    }
}

impl From<NotKept> for ApplyError {
    fn from(why: NotKept) -> Self {
        match why {
            NotKept::Fenced { epoch } => Self::Fenced { epoch },
            NotKept::Broken { reason } => Self::Broken { reason },
        }
    }
}

impl Keeper {
    /// The keeper of a player whose claim is below `read`. `bounds` are those of the control log
    /// below that position.
    pub(crate) fn new(control: ControlLog, target: &str, bounds: &Bounds, read: Position) -> Self {
        let last = bounds.get(target).cloned();
        Self { control, target: target.into(), last, read, record_at: Instant::now() }
    }

    /// Whether the last record is of this stream.
    pub(crate) fn is_of(&self, stream: &Stream) -> bool {
        self.last.as_ref().is_some_and(|record| record.log == stream.log.0)
    }

    /// Where the last record says that a target of kind `log` continues.
    pub(crate) fn bookmark(&self) -> Option<&Bookmark> {
        self.last.as_ref()?.bookmark.as_ref()
    }

    /// The state that a session begins with; see [`Session::attach`].
    pub(crate) fn attach(&self, session: &Session, adopts: Option<Position>) -> Result<Stored, AttachError> {
        let stored = self.last.as_ref().map(|record| Stored {
            stream: Stream { log: LogId(record.log), player: session.stream.player.clone() },
            epoch: record.epoch,
            bound: Position(record.bound),
        });
        session.attach(stored, adopts)
    }

    /// The record of a target with this state.
    pub(crate) fn record(&self, stored: &Stored) -> BoundRecord {
        let Stored { stream, epoch, bound } = stored;
        BoundRecord {
            target: self.target.clone(),
            epoch: *epoch,
            log: stream.log.0,
            bound: bound.0,
            bookmark: None,
        }
    }

    /// Appends the first record of a session. Checks that no later player claimed before it, so a
    /// later player knows this record.
    pub(crate) async fn begin(&mut self, record: BoundRecord) -> Result<(), NotKept> {
        let broken = |cause: crate::control::ControlLogError| NotKept::Broken { reason: cause.to_string() };
        let own = record.epoch;
        let at = self.control.append(&Event::Bound(record.clone())).await.map_err(broken)?;
        for (position, event) in self.control.history(self.read, at).await.map_err(broken)? {
            let epoch = match event {
                Event::Claim { base, .. } => base + position.0 + 1,
                Event::Status(status) => status.epoch,
                _ => continue,
            };
            if epoch > own {
                return Err(NotKept::Fenced { epoch });
            }
        }
        self.read = at.next();
        self.last = Some(record);
        Ok(())
    }

    /// Whether the next record has no wait.
    #[cfg(feature = "http")]
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.record_at
    }

    /// Appends a record, at most one in [`RECORD_EVERY`].
    pub(crate) async fn keep(&mut self, record: BoundRecord) -> Result<(), NotKept> {
        tokio::time::sleep_until(self.record_at).await;
        let appended = self.control.append(&Event::Bound(record.clone())).await;
        appended.map_err(|cause| NotKept::Broken { reason: cause.to_string() })?;
        self.record_at = Instant::now() + RECORD_EVERY;
        self.last = Some(record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_record_of_a_target_counts() {
        let record = |target: &str, bound| BoundRecord {
            target: target.into(),
            epoch: 3,
            log: 7,
            bound,
            bookmark: None,
        };
        let mut bounds = Bounds::default();
        bounds.keep(10, record("a", 5));
        bounds.keep(12, record("b", 8));
        // An adopted bound may be lower; a status repeats an earlier record.
        bounds.keep(14, record("a", 2));
        bounds.keep(10, record("a", 5));
        assert_eq!(bounds.get("a"), Some(&record("a", 2)));
        assert_eq!(bounds.get("c"), None);
        assert_eq!(bounds.all(), [(14, record("a", 2)), (12, record("b", 8))]);
    }
}
