//! Follows a range of keys, across lost connections and compacted revisions.

use std::time::Duration;

use tonic::Streaming;

use crate::client::{Client, revision};
use crate::error::{Failure, RequestError};
use crate::generated::etcdserverpb::WatchResponse;
use crate::generated::mvccpb;
use crate::range::{KeyValue, Range};

/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// An update of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// The whole range: at the start, and after changes were lost.
    Whole(Vec<KeyValue>),
    /// The changes since the last update, in order.
    Changed(Vec<Change>),
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value was put.
    Put(KeyValue),
    /// A key was deleted.
    Deleted {
        /// The key.
        key: String,
    },
}

/// Follows a range: first the whole, then every change exactly once.
#[derive(Debug)]
pub struct Follower {
    client: Client,
    range: Range,
    /// The range that [`Update::Whole`] reads.
    read: Range,
    /// Changes up to here were delivered; `None` before the first read.
    revision: Option<i64>,
    stream: Option<Streaming<WatchResponse>>,
    has_failed: bool,
}

impl Follower {
    pub(crate) fn new(client: Client, range: Range, read: Range) -> Self {
        Self { client, range, read, revision: None, stream: None, has_failed: false }
    }

    /// Waits for the next update.
    ///
    /// # Errors
    /// If etcd does not answer. The next call resumes, after a pause.
    pub async fn next(&mut self) -> Result<Update, RequestError> {
        if self.has_failed {
            pause().await;
        }
        let outcome = self.advance().await;
        self.has_failed = outcome.is_err();
        outcome
    }

    async fn advance(&mut self) -> Result<Update, RequestError> {
        loop {
            let Some(told) = self.revision else {
                let snapshot = self.client.get(&self.read).await?;
                self.revision = Some(snapshot.revision);
                return Ok(Update::Whole(snapshot.found));
            };
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => self.client.watch(&self.range, told + 1).await?,
            };
            let response = match stream.message().await {
                Ok(Some(response)) => response,
                Ok(None) => return Err(self.broken("it ended the watch")),
                Err(status) => {
                    let failure = Failure::told(self.client.endpoint(), &status);
                    return Err(RequestError::Unreachable { failures: vec![failure] });
                }
            };
            // etcd has compacted the changes after `told`, or was set back.
            if response.compact_revision > 0 || response.created && revision(response.header) < told {
                self.revision = None;
            } else if response.canceled {
                return Err(self.broken(&response.cancel_reason));
            } else {
                self.stream = Some(stream);
                if let Some(last) = response.events.last().and_then(|event| event.kv.as_ref()) {
                    self.revision = Some(last.mod_revision);
                    return Ok(Update::Changed(response.events.into_iter().filter_map(change).collect()));
                }
            }
        }
    }

    fn broken(&self, cause: &str) -> RequestError {
        let failure = Failure { endpoint: self.client.endpoint().to_owned(), cause: cause.to_owned() };
        RequestError::Unreachable { failures: vec![failure] }
    }
}

/// Waits for the pause after a failure.
pub async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

fn change(event: mvccpb::Event) -> Option<Change> {
    let is_deleted = event.r#type() == mvccpb::event::EventType::Delete;
    let stored = KeyValue::new(event.kv?)?;
    Some(if is_deleted { Change::Deleted { key: stored.key } } else { Change::Put(stored) })
}
