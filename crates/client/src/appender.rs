//! The machine of one session, with its waiting callers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use seriatim_model::{Address, NodeId, SessionId, Time};
use seriatim_protocol::LogClient;
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::appending::{Failure, LogClientConfig, Reply};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::progress::Progress;
use crate::sessions::OpenShards;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// Present in a failure of an expired session. Dropped when the application receives or
    /// discards the failure.
    _untold: Option<Arc<()>>,
}

pub(crate) type Submitted = (Instant, OwnedSemaphorePermit);

pub(crate) struct Appender {
    pub(crate) machine: LogClient,
    pub(crate) last_token: u64,
    /// Waiting callers by request token. Only appends have a [`Submitted`].
    pub(crate) waiters: BTreeMap<u64, (oneshot::Sender<Answer>, Option<Submitted>)>,
    progress: Arc<Progress>,
    /// Open shards of the log, for the handle. Updated from each newer log entry.
    open: Arc<OpenShards>,
    version: u64,
    /// For each role that owes an answer: send time of the first message since its last answer.
    pub(crate) unanswered: BTreeMap<Address, Time>,
    /// Each unreceived failure of the expired session holds a clone.
    pub(crate) untold: Arc<()>,
    pub(crate) lost: Option<SessionId>,
    /// The last clone was dropped; the appender ends with the last answer.
    pub(crate) closed: bool,
    /// Token of the request to end the session, and the time limit for its answer.
    pub(crate) last: Option<(u64, Time)>,
}

impl Appender {
    pub(crate) fn new(
        config: LogClientConfig,
        entry: LogEntry,
        progress: Arc<Progress>,
        open: Arc<OpenShards>,
    ) -> Self {
        Self {
            version: entry.version,
            machine: LogClient::new(config, entry),
            last_token: 0,
            waiters: BTreeMap::new(),
            progress,
            open,
            unanswered: BTreeMap::new(),
            untold: Arc::new(()),
            lost: None,
            closed: false,
            last: None,
        }
    }

    /// Whether the appender expects no further answer.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        let is_due = |token: &u64| self.last.is_none_or(|(last, until)| last != *token || now < until);
        self.closed && !self.waiters.keys().any(is_due)
    }

    pub(crate) fn oldest(&self) -> Option<u64> {
        self.waiters.iter().find(|(_, (_, append))| append.is_some()).map(|(token, _)| *token)
    }

    /// Publishes progress and open shards. `oldest`: the oldest unanswered append before the
    /// replies.
    pub(crate) fn share(&mut self, oldest: Option<u64>) {
        if self.oldest() != oldest {
            self.progress.advance();
        }
        let entry = self.machine.entry();
        if self.version != entry.version {
            self.version = entry.version;
            self.open.learn(entry);
        }
    }

    /// Number of unanswered appends submitted before `then`.
    pub(crate) fn before(&self, then: Instant) -> usize {
        let submitted = self.waiters.values().filter_map(|(_, append)| append.as_ref());
        submitted.filter(|(submitted, _)| *submitted < then).count()
    }

    /// Whether a role on the node has owed an answer since `then`.
    pub(crate) fn owes(&self, node: NodeId, then: Time) -> bool {
        let roles = self.unanswered.iter().filter(|(_, since)| **since <= then);
        roles.into_iter().any(|(role, _)| matches!(role, Address::Node(at, _) if *at == node))
    }

    pub(crate) fn answer(&mut self, reply: Reply) -> Answer {
        let Reply::Failed(Failure::SessionExpired(session)) = reply else {
            return Answer { reply, _untold: None };
        };
        self.lost = Some(session);
        Answer { reply, _untold: Some(Arc::clone(&self.untold)) }
    }
}
