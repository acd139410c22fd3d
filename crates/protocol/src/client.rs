//! The client machine of a log, for any ordering.

use seriatim_model::{Input, Machine, NodeId, Order, SessionId, Time};

use crate::control::LogEntry;
use crate::parts::appending::{LogClientConfig, Reply, Request};
use crate::{corfu, cuts, erwin, roles};

/// One client's use of a log: a session for appends, and questions about the tail.
#[derive(Clone, Debug)]
pub enum LogClient {
    /// For logs in Erwin's orders.
    Erwin(Box<erwin::LogClient>),
    /// For Corfu.
    Corfu(Box<corfu::LogClient>),
    /// For logs that are ordered by cuts.
    Cuts(Box<cuts::LogClient>),
}

macro_rules! either {
    ($self:ident, $client:ident => $do:expr) => {
        match $self {
            Self::Erwin($client) => $do,
            Self::Corfu($client) => $do,
            Self::Cuts($client) => $do,
        }
    };
}

impl Machine for LogClient {
    type Message = roles::Message;
    type Request = Request;
    type Reply = Reply;

    fn step(
        &mut self,
        now: Time,
        input: Input<roles::Message, Request>,
        out: &mut Vec<seriatim_model::Effect<roles::Message, Reply>>,
    ) {
        either!(self, client => client.step(now, input, out));
    }

    fn deadline(&self) -> Option<Time> {
        either!(self, client => client.deadline())
    }
}

impl LogClient {
    /// A client of the log in `entry`.
    #[must_use]
    pub fn new(config: LogClientConfig, entry: LogEntry) -> Self {
        match entry.config.order {
            Order::ErwinBb | Order::ErwinSt => Self::Erwin(Box::new(erwin::LogClient::new(config, entry))),
            Order::Corfu => Self::Corfu(Box::new(corfu::LogClient::new(config, entry))),
            Order::Scalog | Order::Belfast => Self::Cuts(Box::new(cuts::LogClient::new(config, entry))),
        }
    }

    /// The session of the appends, once it is open, and the next append's number.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, u64)> {
        either!(self, client => client.session())
    }

    /// The latest register's entry that this client knows.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        either!(self, client => client.entry())
    }

    /// Why no view can be formed, if a node reported a reason.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        either!(self, client => client.unavailable())
    }

    /// Nodes with unanswered submissions. `Some` if the node reported that it has no room; `true`
    /// if its disk is full.
    pub fn waits_for(&self) -> Box<dyn Iterator<Item = (NodeId, Option<bool>)> + '_> {
        either!(self, client => Box::new(client.waits_for()))
    }

    /// Number of unfinished appends.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        either!(self, client => client.in_flight())
    }
}
