//! The machine of one session, with the callers that wait for it.

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

/// The answer to an appender.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// Gone when the application has looked at it, or never will.
    _untold: Option<Arc<()>>,
}

/// When an append was submitted, and the room that it takes.
pub(crate) type Submitted = (Instant, OwnedSemaphorePermit);

pub(crate) struct Appender {
    pub(crate) machine: LogClient,
    pub(crate) last_token: u64,
    /// By their tokens. Only those of appends have more than an answer to come.
    pub(crate) waiters: BTreeMap<u64, (oneshot::Sender<Answer>, Option<Submitted>)>,
    progress: Arc<Progress>,
    /// Told which shards take records, when the machine learns of others.
    open: Arc<OpenShards>,
    version: u64,
    /// Since when each role owes an answer: it was sent something, and was not heard of since.
    pub(crate) unanswered: BTreeMap<Address, Time>,
    /// Shared with the failures that the application has not looked at since its session was lost.
    pub(crate) untold: Arc<()>,
    pub(crate) lost: Option<SessionId>,
    /// The last clone of the handle was dropped: the appender goes when everything in flight has
    /// its answer.
    pub(crate) closed: bool,
    /// The request that its session ends, and until when that is tried.
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

    /// Whether nothing more is to come of it.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        let is_due = |token: &u64| self.last.is_none_or(|(last, until)| last != *token || now < until);
        self.closed && !self.waiters.keys().any(is_due)
    }

    /// The oldest append that has no answer.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.waiters.iter().find(|(_, (_, append))| append.is_some()).map(|(token, _)| *token)
    }

    /// Tells the handle what the machine has learned. The oldest append was that one, before the
    /// last step.
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

    /// How many appends without an answer were submitted before then.
    pub(crate) fn before(&self, then: Instant) -> usize {
        let submitted = self.waiters.values().filter_map(|(_, append)| append.as_ref());
        submitted.filter(|(submitted, _)| *submitted < then).count()
    }

    /// Whether a role on the node has owed an answer since then.
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
