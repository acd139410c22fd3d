//! Messages of shards in logs ordered by cuts.

#![expect(missing_docs, reason = "the message has a comment; the names of its fields suffice")]

use seriatim_model::storage::Ordered;
use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{Endpoint, IdRun, Incarnation, Member, Position, Record, SessionId, ViewNumber};

use crate::cuts::window::Window;
use crate::roles::{self, Family};
use crate::shard;

/// Consecutive ids of records in a shard's local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Never empty.
    pub ids: IdRun,
    /// The lowest number of the session that its client still waited for.
    pub lowest: u64,
}

wire_struct! { Submitted { ids, lowest as number } }

impl Submitted {
    pub(crate) fn head(self, count: u64) -> Self {
        Self { ids: self.ids.head(count), ..self }
    }

    pub(crate) fn tail(self, count: u64) -> Self {
        Self { ids: self.ids.tail(count), ..self }
    }
}

/// Durable records of an ended view that no cut known to this fenced replica covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// From a process that took part in the view and knows the order: the ids from index `from` on.
    LocalLog { from: u64, names: Vec<Submitted> },
    /// From a process that restarted since: all its records without a position, perhaps of other
    /// views, too.
    Held { names: Vec<IdRun> },
}

wire_enum! {
    Rest {
        1 => LocalLog { from as number, names },
        2 => Held { names },
    }
}

/// Messages about local logs and the cuts that order them.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to primary: appends records. The primary replies `Appended` when a committed cut
    /// covers them.
    Submit {
        view: ViewNumber,
        session: SessionId,
        /// The lowest number that the client still waits for. All lower ones have positions.
        lowest: u64,
        first: u64,
        records: Vec<Record>,
    },
    /// Primary to client: the records have final positions from `first` on.
    Appended { view: ViewNumber, ids: IdRun, first: Position },
    /// Primary to client: numbers are missing. The client submits again from `expected`.
    OutOfOrder { view: ViewNumber, session: SessionId, expected: u64 },
    /// Primary to backup: the next indexes of the local log; padding if there are no records. The
    /// backup replies `LocalAck`.
    LocalAppend {
        /// Indexes count from this view's start.
        view: ViewNumber,
        incarnation: Incarnation,
        index: u64,
        names: Submitted,
        records: Vec<Record>,
    },
    /// Backup to primary: it has received everything below `length`.
    LocalAck {
        view: ViewNumber,
        length: u64,
        /// Whether the primary must send again from `length`.
        asks: bool,
    },
    /// Backup to primary, with quotas: everything below `length` is as durable as the log promises.
    LocalStored { view: ViewNumber, length: u64 },
    /// Replica to leader: durable length of its local log.
    Report {
        view: ViewNumber,
        length: u64,
        /// Index of the first of `names`. Only the primary sends names.
        from: u64,
        names: Vec<Submitted>,
    },
    /// Leader to replica: records below `length` have a position or never get one.
    CutAck {
        view: ViewNumber,
        /// End of the cuts that decided `length`.
        end: Position,
        length: u64,
    },
    /// Leader to primary: other shards wait. The primary fills its local log up to `length` and
    /// reports.
    Fix { view: ViewNumber, length: u64 },
    /// Leader to replica: further windows. It replies `WindowsKnown`.
    Windows { view: ViewNumber, windows: Vec<Window> },
    /// Replica to leader: it knows all windows up to `number`.
    WindowsKnown { view: ViewNumber, number: u32 },
    /// Ordering layer to primary: a committed cut. The positions from `batch` on belong to `runs`,
    /// in order. Every shard receives all runs. The primary replies `Bound`.
    Cover {
        /// The sending view: that of the cut, or a claim that follows it.
        view: ViewNumber,
        /// The view that made the cut. The positions are versions of that view.
        of: ViewNumber,
        batch: Position,
        backups: Vec<Member>,
        /// Decided length of the shard's local log.
        length: u64,
        runs: Vec<Ordered>,
    },
    /// Primary to backup: the same cut. The backup replies `Replicated`.
    ReplicateCover {
        view: ViewNumber,
        of: ViewNumber,
        batch: Position,
        incarnation: Incarnation,
        length: u64,
        runs: Vec<Ordered>,
    },
    /// Chosen member of the ordering layer to fenced replica, for claim `view`: asks for records
    /// that no cut covers. The replica replies `RestIs`.
    AskRest { view: ViewNumber, of: ViewNumber },
    /// Reply to `AskRest`. Without a rest: the replica was no member of that view.
    RestIs { view: ViewNumber, rest: Option<Rest> },
    /// Chosen member to primary: a part of the closing cut. If the claim becomes a view, it counts
    /// like a cut. The primary replies `Bound`.
    Closing { view: ViewNumber, batch: Position, backups: Vec<Member>, runs: Vec<Ordered> },
    /// Primary to backup: the same part. The backup replies `Replicated`.
    ReplicateClosing { view: ViewNumber, batch: Position, incarnation: Incarnation, runs: Vec<Ordered> },
    /// Replica of a retired shard to leader: asks for the cuts that it missed. The leader replies
    /// `Owed`.
    Owe { view: ViewNumber },
    /// Reply to `Owe`: the missed cuts. The replica may have some of them.
    Owed {
        view: ViewNumber,
        /// The last view of the shard, whose versions the positions are.
        of: ViewNumber,
        first: Position,
        /// Runs up to the shard's last position. Runs of other shards carry only a count.
        runs: Vec<Ordered>,
    },
}

impl Family for Message {
    fn is_from_client_to(&self, to: Endpoint) -> bool {
        matches!(to, Endpoint::Shard(_)) && matches!(self, Self::Submit { .. })
    }

    fn not_hosted(&self) -> Option<roles::Message> {
        let waits = matches!(self, Self::Submit { .. });
        waits.then(|| shard::Message::not_here().into())
    }

    fn confirms(&self) -> Option<ViewNumber> {
        match *self {
            Self::Appended { view, .. } => Some(view),
            _ => None,
        }
    }

    fn unplaced(&self) -> Option<shard::Unplaced> {
        let Self::Report { view, length, from, names } = self else { return None };
        let names = names.iter().map(|names| names.ids).collect();
        Some(shard::Unplaced { view: *view, length: *length, from: *from, names })
    }

    fn placed(&self) -> Option<shard::Placed> {
        match self {
            Self::Windows { view, windows } => {
                let windows = windows.iter().map(Window::told).collect();
                Some(shard::Placed::Windows { view: *view, windows })
            }
            Self::Cover { of, batch, runs, .. } | Self::ReplicateCover { of, batch, runs, .. } => {
                Some(shard::Placed::Cut { view: *of, first: *batch, runs: runs.clone() })
            }
            Self::Closing { view, batch, runs, .. } | Self::ReplicateClosing { view, batch, runs, .. } => {
                Some(shard::Placed::Closing { claim: *view, first: *batch, runs: runs.clone() })
            }
            _ => None,
        }
    }
}

wire_enum! {
    Message {
        1 => Submit { view, session, lowest as number, first as first, records },
        2 => Appended { view, ids, first },
        3 => OutOfOrder { view, session, expected as number },
        4 => LocalAppend { view, incarnation, index as number, names, records },
        5 => LocalAck { view, length as number, asks },
        6 => Report { view, length as number, from as number, names },
        7 => CutAck { view, end, length as number },
        8 => Cover { view, of, batch, backups, length as number, runs },
        9 => ReplicateCover { view, of, batch, incarnation, length as number, runs },
        10 => AskRest { view, of },
        11 => RestIs { view, rest },
        12 => Closing { view, batch, backups, runs },
        13 => ReplicateClosing { view, batch, incarnation, runs },
        14 => Fix { view, length as number },
        15 => Windows { view, windows },
        16 => WindowsKnown { view, number },
        17 => LocalStored { view, length as number },
        18 => Owe { view },
        19 => Owed { view, of, first, runs },
    }
}
