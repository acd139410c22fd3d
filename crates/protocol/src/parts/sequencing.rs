//! The sequencing messages that all orderings share: status, tail, and rejection.

use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{Endpoint, Position, ShardId, ViewNumber};

use crate::roles::{self, Family, SequencingStatus};

/// Messages of the ordering role.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Role to sender: rejects a message, because the role is in another view or in none.
    Rejected {
        /// The latest known registered view.
        view: ViewNumber,
        /// Why there is no view, if known.
        why: Option<String>,
    },
    /// Client to role: asks for the tail.
    CheckTail {
        /// Number of the question, which the answer repeats.
        request: u64,
        /// The client's view.
        view: ViewNumber,
    },
    /// Role to client: answers `CheckTail`, even if the role's view is over without its knowledge.
    /// Orderings without a single tail have their own answer.
    Tail {
        /// Number of the question.
        request: u64,
        /// The role's view.
        view: ViewNumber,
        /// A bound above all assigned or held positions.
        tail: Position,
    },
    /// Any sender to role: asks for its status.
    Status {
        /// Number of the question, which the answer repeats.
        request: u64,
    },
    /// Role to sender: answers `Status`.
    StatusIs {
        /// Number of the question.
        request: u64,
        /// The role's view.
        view: ViewNumber,
        /// Whether the role takes part in that view.
        open: bool,
        /// A bound above all known positions.
        tail: Position,
        /// Positions below `tail` that may not be on the shards yet.
        held: u64,
        /// Number of remembered sessions.
        sessions: u64,
    },
    /// Leader of a log with quotas to sender: answers `Status`.
    StatusWith {
        /// Number of the question.
        request: u64,
        /// The role's view.
        view: ViewNumber,
        /// Whether the role takes part in that view.
        open: bool,
        /// A bound above all known positions.
        tail: Position,
        /// Positions below `tail` that may not be on the shards yet.
        held: u64,
        /// Number of remembered sessions.
        sessions: u64,
        /// Progress of the windows.
        windows: WindowStatus,
    },
}

/// The leader's status of windows, which are runs of cuts with quotas fixed in advance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowStatus {
    /// The current window's number in its view, from 0.
    pub number: u32,
    /// Number of cuts of the current window.
    pub cuts: u32,
    /// Number of these cuts that the leader has made.
    pub made: u32,
    /// Shards with turns, and their quotas: positions per turn. Empty: the window is free, and its
    /// cuts take all available records.
    pub quotas: Vec<(ShardId, u32)>,
    /// Shards without turns.
    pub lenders: Vec<ShardId>,
    /// Number of requests to a shard to complete turns for which other shards waited.
    pub lag_fixes: u64,
    /// Number of positions that the cuts assigned.
    pub positions: u64,
    /// Number of these positions without a record.
    pub empty: u64,
}

wire_struct! {
    WindowStatus {
        number,
        cuts,
        made,
        quotas,
        lenders,
        lag_fixes as number,
        positions as number,
        empty as number,
    }
}

impl Message {
    /// The answer of a node that does not host the role: the sender should look up the role again.
    #[must_use]
    pub(crate) fn not_here() -> Self {
        Self::Rejected { view: ViewNumber::NONE, why: None }
    }

    #[must_use]
    pub(crate) fn status(&self) -> Option<SequencingStatus> {
        let (open, tail, sessions, windows) = match *self {
            Self::StatusIs { open, tail, sessions, .. } => (open, tail, sessions, None),
            Self::StatusWith { open, tail, sessions, ref windows, .. } => {
                (open, tail, sessions, Some(windows))
            }
            _ => return None,
        };
        Some(SequencingStatus { open, tail, sessions, windows: windows.cloned() })
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
        6 => StatusWith { request, view, open, tail, held as number, sessions as number, windows },
    }
}
