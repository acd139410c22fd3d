//! The machine of a client that appends to a log, whatever its ordering.

use seriatim_model::{Input, Machine, NodeId, Order, SessionId, Time};

use crate::control::LogEntry;
use crate::parts::appending::{LogClientConfig, Reply, Request};
use crate::{corfu, cuts, erwin, roles};

/// One log, as one client uses it: a session for its appends, and questions about the tail.
#[derive(Clone, Debug)]
pub enum LogClient {
    /// Of a log that is ordered lazily.
    Erwin(Box<erwin::LogClient>),
    /// Of a log that is ordered first.
    Corfu(Box<corfu::LogClient>),
    /// Of a log that is ordered by cuts.
    Cuts(Box<cuts::LogClient>),
}

/// Does the same with whichever it is.
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
    /// A client of the log that `entry` describes.
    #[must_use]
    pub fn new(config: LogClientConfig, entry: LogEntry) -> Self {
        match entry.config.order {
            Order::ErwinBb | Order::ErwinSt => Self::Erwin(Box::new(erwin::LogClient::new(config, entry))),
            Order::Corfu => Self::Corfu(Box::new(corfu::LogClient::new(config, entry))),
            Order::Scalog | Order::Belfast => Self::Cuts(Box::new(cuts::LogClient::new(config, entry))),
        }
    }

    /// The session that appends go to, once one is open, and the number of the next append.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, u64)> {
        either!(self, client => client.session())
    }

    /// The register's entry, as far as this client knows.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        either!(self, client => client.entry())
    }

    /// Why no view can be formed, if anybody said so.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        either!(self, client => client.unavailable())
    }

    /// The nodes that have not answered for everything that was submitted, and whether they said
    /// that they have no room, and if so, because their disk is full.
    pub fn waits_for(&self) -> Box<dyn Iterator<Item = (NodeId, Option<bool>)> + '_> {
        either!(self, client => Box::new(client.waits_for()))
    }

    /// How many appends wait for something.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        either!(self, client => client.in_flight())
    }
}
