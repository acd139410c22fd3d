//! The part of the sequencing messages that every ordering has: anyone may ask a role that orders
//! how it is, and how long the log is, and it says when it takes part in no such view.

use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{Endpoint, Position, ShardId, ViewNumber};

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
    /// Role to client: so long, as far as it knows. It does not know whether its view is over. An
    /// ordering in which one number does not answer the question has an answer of its own.
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
    /// Leader of a log whose shards have quotas to anyone: the same, and how these are.
    StatusWith {
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
        /// How far it is with windows.
        windows: WindowStatus,
    },
}

/// How quotas are in a log whose shards have any, by the word of its leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowStatus {
    /// Which window of its view it is, from 0.
    pub number: u32,
    /// How many cuts it has.
    pub cuts: u32,
    /// How many of them are made.
    pub made: u32,
    /// The quotas of the shards that have turns in it. None: the window is free.
    pub quotas: Vec<(ShardId, u32)>,
    /// The shards that have no turns in it.
    pub lenders: Vec<ShardId>,
    /// How often the leader asked a shard for its turns, because others waited for them.
    pub lag_fixes: u64,
    /// How many positions the leader gave out.
    pub positions: u64,
    /// How many of them have no record.
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
    /// The rejection by a node that does not host the role: the asker should look again where it
    /// is.
    #[must_use]
    pub(crate) fn not_here() -> Self {
        Self::Rejected { view: ViewNumber::NONE, why: None }
    }

    /// The account that the role gives of itself, if it is that.
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
