//! The sessions of one log handle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rand::random;
use seriatim_model::{Position, Record, RecordId, SessionId, ShardId, View};
use seriatim_protocol::Options;
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::ShardChoice;
use seriatim_protocol::parts::appending::LogClientConfig;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::engine::Command;
use crate::progress::Progress;

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) handle: u64,
    pub(crate) progress: Arc<Progress>,
}

/// Open shards of the newest log entry that any session of the handle has learned.
#[derive(Debug)]
pub(crate) struct OpenShards {
    of_version: Mutex<(u64, Arc<[ShardId]>)>,
}

impl OpenShards {
    pub(crate) fn new(entry: &LogEntry) -> Self {
        Self { of_version: Mutex::new((entry.version, open_shards(entry))) }
    }

    pub(crate) fn learn(&self, entry: &LogEntry) {
        let mut known = self.of_version.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 < entry.version {
            *known = (entry.version, open_shards(entry));
        }
    }

    fn get(&self) -> Arc<[ShardId]> {
        Arc::clone(&self.of_version.lock().unwrap_or_else(PoisonError::into_inner).1)
    }
}

fn open_shards(entry: &LogEntry) -> Arc<[ShardId]> {
    entry.view.as_ref().map(View::open_shards).unwrap_or_default().into()
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) resume: Option<(SessionId, u64)>,
    pub(crate) open: Arc<OpenShards>,
    /// Latest progress over all sessions of the handle.
    pub(crate) progress: Arc<Progress>,
}

impl Shared {
    /// Opens a session on a log. None: the client stopped.
    pub(crate) async fn session(&self, client: &Client, entry: &LogEntry) -> Option<Session> {
        let config = LogClientConfig {
            control: client.inner.control,
            random: random(),
            resume: self.resume,
            options: Options::default(),
        };
        let (waiter, opened) = oneshot::channel();
        let progress = Arc::new(Progress::of(Arc::clone(&self.progress)));
        let command = Command::Open {
            config: Box::new(config),
            entry: Box::new(entry.clone()),
            progress: Arc::clone(&progress),
            open: Arc::clone(&self.open),
            handle: waiter,
        };
        client.inner.commands.send(command).await.ok()?;
        Some(Session { handle: opened.await.ok()?, progress })
    }
}

/// One session per chosen shard, for unordered appends: a single session waits for all its
/// acknowledgements before it appends to another shard.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    sessions: tokio::sync::Mutex<BTreeMap<ShardId, Session>>,
}

impl Lanes {
    /// The session for a record that chooses its shard. None: the record chooses none, no shard is
    /// open, or the client stopped.
    pub(crate) async fn session(
        &self,
        (client, entry): (&Client, &LogEntry),
        shared: &Shared,
        (choice, record): (ShardChoice, &Record),
    ) -> Option<Session> {
        let open = shared.open.get();
        if choice.is_in_turn(record) || open.is_empty() {
            return None;
        }
        // `choice.of` uses the id only for records that choose no shard, and these returned above.
        let any = RecordId { session: SessionId::new(Position::ZERO, 0), number: 0 };
        let shard = choice.of(any, record, entry.config.stripe, &open);
        let mut sessions = self.sessions.lock().await;
        if let Some(session) = sessions.get(&shard) {
            return Some(session.clone());
        }
        let session = shared.session(client, entry).await?;
        sessions.insert(shard, session.clone());
        Some(session)
    }

    pub(crate) async fn all(&self) -> Vec<Session> {
        self.sessions.lock().await.values().cloned().collect()
    }

    /// Handles of all sessions, once no user is left.
    pub(crate) fn handles(&mut self) -> impl Iterator<Item = u64> {
        self.sessions.get_mut().values().map(|session| session.handle)
    }
}
