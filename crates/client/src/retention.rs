//! A log's limits, its disk usage, and its position at a given time.

use std::collections::BTreeMap;
use std::time::SystemTime;

use seriatim_model::{Address, Endpoint, NodeId, Position, RetentionChange, ShardId};
use seriatim_protocol::Message;
use seriatim_protocol::control::survey::{self, TimeSearch};
use seriatim_protocol::control::{self, LogEntry, Poll};
use seriatim_protocol::shard::{Survey, Surveyed};

use crate::client::{Client, REQUEST};
use crate::error::{ControlError, ReadError};
use crate::log::Log;

/// Disk usage of a log as its replicas report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogUse {
    /// Bytes of the log's files on each node, without its records in the node's journal.
    pub nodes: BTreeMap<NodeId, u64>,
    /// Nodes that did not answer within a second; their usage is missing or incomplete.
    pub silent: Vec<NodeId>,
    /// Bytes on all nodes.
    pub bytes: u64,
    /// Bytes per node of files with only trimmed records, to be deleted. A node without an entry
    /// has no such files, or is of an earlier build and does not report them.
    pub going: BTreeMap<NodeId, u64>,
    /// Bytes that a byte limit bounds: for each shard its smallest replica, summed. Other replicas
    /// may hold some records twice after a restart.
    pub once: u64,
    /// First kept position.
    pub first: Position,
    /// Highest stable bound of the replicas that answered.
    pub stable: Position,
}

impl LogUse {
    fn told_by(answers: Vec<((ShardId, NodeId), Option<Surveyed>)>) -> Self {
        let mut found = Self::default();
        let mut shards: BTreeMap<ShardId, u64> = BTreeMap::new();
        for ((shard, node), answer) in answers {
            let Some(answer) = answer else {
                found.silent.push(node);
                continue;
            };
            let usage = answer.usage.unwrap_or_default();
            let bytes = usage.bytes;
            let kept = usage.kept_bytes(Position::ZERO);
            if !usage.extents.is_empty() && kept < bytes {
                *found.going.entry(node).or_default() += bytes - kept;
            }
            *found.nodes.entry(node).or_default() += bytes;
            found.bytes += bytes;
            let least = shards.entry(shard).or_insert(bytes);
            *least = bytes.min(*least);
            found.first = found.first.max(answer.trim);
            found.stable = found.stable.max(answer.stable);
        }
        found.once = shards.values().sum();
        found.silent.sort_unstable();
        found.silent.dedup();
        found
    }
}

impl Client {
    /// Changes a log's limits and returns its entry. Records beyond the limits are trimmed
    /// permanently. The trimming node learns new limits within a minute.
    ///
    /// # Errors
    /// If the log does not exist, the limits are invalid, or no node answers in time.
    pub async fn set_retention(&self, name: &str, change: RetentionChange) -> Result<LogEntry, ControlError> {
        let log = self.lookup(name).await?.id;
        self.change_catalog(move |request| control::Message::SetRetention { request, log, change }).await?;
        self.lookup(name).await
    }

    /// Asks the replicas of a log for their disk usage.
    pub async fn log_use(&self, entry: &LogEntry) -> LogUse {
        LogUse::told_by(self.survey(entry).await)
    }

    async fn survey(&self, entry: &LogEntry) -> Vec<((ShardId, NodeId), Option<Surveyed>)> {
        let Some(view) = entry.view.clone() else { return vec![] };
        let survey = Survey { request: REQUEST, times: false, usage: true };
        let polled = self.run(entry.id, move |now, _| Poll::new(now, survey::questions(&view, survey)));
        let answers = polled.await.unwrap_or_default();
        let told = |(from, answer): (Address, Option<Message>)| match from {
            Address::Node(node, Endpoint::Shard(shard)) => {
                Some(((shard, node), answer.and_then(survey::surveyed)))
            }
            _ => None,
        };
        answers.into_iter().filter_map(told).collect()
    }
}

impl Log {
    /// A position at or before the first record appended at `time` or later, by the clocks of the
    /// log's leaders: every record below it was final before `time`. Leaders mark times sparsely,
    /// so after the position up to a second of earlier records may follow, or for old times records
    /// of an eighth of the age. Without any mark: the first kept position.
    ///
    /// # Errors
    /// If no replica answers in time.
    pub async fn position_at(&self, time: SystemTime) -> Result<Position, ReadError> {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let (client, deadline) = (self.client(), self.deadline());
        let (control, log) = (client.inner.control, (self.entry().id, self.name().to_owned()));
        let searching = client.run(log.0, move |now, _| TimeSearch::new(now, control, log, wall_ms));
        match tokio::time::timeout(deadline, searching).await {
            Ok(Some(Some(position))) => Ok(position),
            Ok(Some(None)) => Err(ReadError::Deleted(self.name().to_owned())),
            Ok(None) => Err(ReadError::Stopped),
            Err(_) => Err(self.read_too_late(deadline).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::ViewNumber;
    use seriatim_model::retention::StoreUse;

    use super::*;

    #[test]
    fn a_limit_is_about_the_replica_that_has_least() {
        let answer = |shard, node, bytes| {
            let answer = Surveyed {
                request: 1,
                view: ViewNumber(1),
                stable: Position(9),
                trim: Position(2),
                digest: 0,
                time_ms: 0,
                times: None,
                usage: Some(StoreUse { bytes, extents: vec![] }),
            };
            ((ShardId(shard), NodeId(node)), Some(answer))
        };
        let silent = ((ShardId(1), NodeId(3)), None);
        let told = LogUse::told_by(vec![answer(0, 1, 30), answer(0, 2, 50), answer(1, 1, 4), silent]);
        assert_eq!((told.bytes, told.once), (84, 34));
        assert_eq!((told.nodes, told.silent), ([(NodeId(1), 34), (NodeId(2), 50)].into(), vec![NodeId(3)]));
        assert_eq!((told.first, told.stable), (Position(2), Position(9)));
    }
}
