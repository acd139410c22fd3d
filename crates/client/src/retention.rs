//! The limits of a log, the room that it takes on disks, and which position it had reached when.

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

/// The room that a log takes on disks, by the word of its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogUse {
    /// How many bytes of files each node has of it, without what waits in the node's journal.
    pub nodes: BTreeMap<NodeId, u64>,
    /// The nodes of which a replica did not answer within a second: what they have is not, or not
    /// all, counted.
    pub silent: Vec<NodeId>,
    /// The bytes of all nodes.
    pub bytes: u64,
    /// How many bytes of files with nothing but trimmed records each node has yet to delete; no
    /// node that has none. Nodes of earlier builds do not say.
    pub going: BTreeMap<NodeId, u64>,
    /// The bytes of one replica of each shard, the one that has least: what a limit of bytes is
    /// about. Others may have some records twice for a while, after a restart.
    pub once: u64,
    /// The first position that is kept.
    pub first: Position,
    /// How far it is final, as far as the replicas that answered know.
    pub stable: Position,
}

impl LogUse {
    /// The use of a log whose replicas gave these answers, or none.
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
    /// Changes what a log keeps at most. The log trims what is beyond its limits soon, for good; it
    /// takes a minute at most until the node that does this knows them. Returns the log's entry.
    ///
    /// # Errors
    /// If there is no such log, if no log can have these limits, or no node answers in time.
    pub async fn set_retention(&self, name: &str, change: RetentionChange) -> Result<LogEntry, ControlError> {
        let log = self.lookup(name).await?.id;
        self.change_catalog(move |request| control::Message::SetRetention { request, log, change }).await?;
        self.lookup(name).await
    }

    /// Asks the replicas of a log what they take on their disks.
    pub async fn log_use(&self, entry: &LogEntry) -> LogUse {
        LogUse::told_by(self.survey(entry).await)
    }

    /// Asks every replica of the latest view; nothing for one that does not answer within a second.
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
    /// Where what was appended at `time` or later begins, by the clocks of the nodes that led the
    /// log: every record below the answer was final before. Since it was noted only now and then
    /// how far the log was, some records from shortly before may follow at the answer: about a
    /// second of them, and of times long ago up to an eighth of how long ago they are. The first
    /// position that is kept if nothing is known of that time.
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
