//! The part of the sequencing messages that every ordering has: anyone may ask a role that orders how it is, and how long
//! the log is, and it says when it takes part in no such view.

use seriatim_model::wire::wire_enum;
use seriatim_model::{Endpoint, Position, ViewNumber};

use crate::roles::{self, Family, SequencingStatus};

/// Messages between anyone and the role that orders.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Role to anyone: not in that view, or not at all at present.
    Rejected {
        /// The latest registered view that it knows.
        view: ViewNumber,
        /// Why there is no view, if the replica knows.
        why: Option<String>,
    },
    /// Client to role: how long is the log?
    CheckTail {
        /// Names the question.
        request: u64,
        /// The view that the client believes in.
        view: ViewNumber,
    },
    /// Role to client: so long, as far as it knows. It does not know whether its view is over. An ordering in which one
    /// number does not answer the question has an answer of its own.
    Tail {
        /// The question answered.
        request: u64,
        /// Its view.
        view: ViewNumber,
        /// A bound above all positions that it gave out, or holds.
        tail: Position,
    },
    /// Anyone to role: how are you?
    Status {
        /// Names the question.
        request: u64,
    },
    /// Role to anyone: like this.
    StatusIs {
        /// The question answered.
        request: u64,
        /// The view that it takes part in.
        view: ViewNumber,
        /// Whether it takes part.
        open: bool,
        /// A bound above all positions that it knows of.
        tail: Position,
        /// How many of those below may not be on the shards yet.
        held: u64,
        /// How many sessions it remembers.
        sessions: u64,
    },
}

impl Message {
    /// The rejection by a node that does not host the role: the asker should look again where it is.
    #[must_use]
    pub(crate) fn not_here() -> Self {
        Self::Rejected { view: ViewNumber::NONE, why: None }
    }

    /// The account that the role gives of itself, if it is that.
    #[must_use]
    pub(crate) fn status(&self) -> Option<SequencingStatus> {
        match *self {
            Self::StatusIs { open, tail, sessions, .. } => Some(SequencingStatus { open, tail, sessions }),
            _ => None,
        }
    }
}

impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        to == Endpoint::Sequencer && matches!(self, Self::CheckTail { .. } | Self::Status { .. })
    }

    fn not_hosted(&self) -> Option<roles::Message> {
        let answer = match *self {
            Self::CheckTail { .. } => Self::not_here(),
            Self::Status { request } => {
                let (view, tail) = (ViewNumber::NONE, Position::ZERO);
                Self::StatusIs { request, view, open: false, tail, held: 0, sessions: 0 }
            }
            _ => return None,
        };
        Some(answer.into())
    }

    fn deed(&self) -> Option<(ViewNumber, &'static str)> {
        match *self {
            Self::Tail { view, .. } => Some((view, "told the tail")),
            _ => None,
        }
    }
}

wire_enum! {
    Message {
        1 => Rejected { view, why },
        2 => CheckTail { request, view },
        3 => Tail { request, view, tail },
        4 => Status { request },
        5 => StatusIs { request, view, open, tail, held as number, sessions as number },
    }
}
