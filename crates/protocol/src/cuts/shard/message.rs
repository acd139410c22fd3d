//! The messages of the shards of a log that is ordered by cuts.

use seriatim_model::storage::Ordered;
use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{Endpoint, IdRun, Incarnation, Member, Position, Record, SessionId, ViewNumber};

use crate::cuts::window::Window;
use crate::roles::{self, Family};
use crate::shard;

/// Names of records in a shard's local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The names. Never none.
    pub ids: IdRun,
    /// The lowest number of the session that its client still waited for.
    pub lowest: u64,
}

wire_struct! { Submitted { ids, lowest as number } }

impl Submitted {
    /// The first `count` of them.
    pub(crate) fn head(self, count: u64) -> Self {
        Self { ids: self.ids.head(count), ..self }
    }

    /// All but the first `count` of them.
    pub(crate) fn tail(self, count: u64) -> Self {
        Self { ids: self.ids.tail(count), ..self }
    }
}

/// The records of a view that a fenced replica has durably and that no cut is known to cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Of a replica whose process took part in the view: it knows in which order they came.
    LocalLog {
        /// The index of the first record.
        from: u64,
        /// The names of the records, in order.
        names: Vec<Submitted>,
    },
    /// Of one that has restarted since: the records without a position that it holds by their ids,
    /// which may be more.
    Held {
        /// Their ids.
        names: Vec<IdRun>,
    },
}

wire_enum! {
    Rest {
        1 => LocalLog { from as number, names },
        2 => Held { names },
    }
}

/// Messages about the local logs of shards, and the cuts that order them.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Client to primary: append these to the shard's local log. They get their positions with a
    /// cut.
    Submit {
        /// The view that the client believes in.
        view: ViewNumber,
        /// Its session.
        session: SessionId,
        /// The lowest number that the client still waits for: what is below has a position.
        lowest: u64,
        /// The number of the first record.
        first: u64,
        /// The records, with consecutive numbers.
        records: Vec<Record>,
    },
    /// Primary to client: these have the positions from `first` on, for good.
    Appended {
        /// The view that this counts in.
        view: ViewNumber,
        /// Which.
        ids: IdRun,
        /// The position of the first.
        first: Position,
    },
    /// Primary to client: numbers are missing; submit from `expected`.
    OutOfOrder {
        /// The primary's view.
        view: ViewNumber,
        /// The session.
        session: SessionId,
        /// The number to submit from.
        expected: u64,
    },
    /// Primary to backup: this comes next in the local log.
    LocalAppend {
        /// The view, from whose start on indexes count.
        view: ViewNumber,
        /// Which incarnation of the backup is meant.
        incarnation: Incarnation,
        /// The index of the first record.
        index: u64,
        /// The names under which they were submitted.
        names: Submitted,
        /// The records.
        records: Vec<Record>,
    },
    /// Backup to primary: everything below this index has come.
    LocalAck {
        /// The view.
        view: ViewNumber,
        /// The index.
        length: u64,
        /// Whether something is missing from there on.
        asks: bool,
    },
    /// Backup to primary, where records are foretold: everything below this index is here as
    /// durably as the log promises.
    LocalStored {
        /// The view.
        view: ViewNumber,
        /// The index.
        length: u64,
    },
    /// Replica to leader: so long is the local log here, as durably as the log promises.
    Report {
        /// The view.
        view: ViewNumber,
        /// Its length.
        length: u64,
        /// The index from which on `names` tell whose records they are. Only the primary tells.
        from: u64,
        /// The names of the records from there on, in order.
        names: Vec<Submitted>,
    },
    /// Leader to replica: what lies below this index of the local log has a position or will never
    /// get one.
    CutAck {
        /// The view.
        view: ViewNumber,
        /// Where the cuts end that decided it.
        end: Position,
        /// The index.
        length: u64,
    },
    /// Leader to primary: others wait for this shard's turns. It fills its local log up to this
    /// length, and reports.
    Fix {
        /// The view.
        view: ViewNumber,
        /// The length.
        length: u64,
    },
    /// Leader to replica: the windows that follow those which it knows.
    Windows {
        /// The view.
        view: ViewNumber,
        /// The windows, in order.
        windows: Vec<Window>,
    },
    /// Replica to leader: it knows the windows up to this one.
    WindowsKnown {
        /// The view.
        view: ViewNumber,
        /// The number of the last one.
        number: u32,
    },
    /// Sequencing layer to primary: a committed cut. The positions from `batch` on belong to these
    /// names, one after another. Every shard is told of all of them.
    Cover {
        /// The view that says so: that of the cut, or a claim that follows it.
        view: ViewNumber,
        /// The view that the cut was made in. Its positions are versions of that one.
        of: ViewNumber,
        /// The first position.
        batch: Position,
        /// The backups that must hold it too.
        backups: Vec<Member>,
        /// How much of the shard's local log this and earlier cuts decide about.
        length: u64,
        /// The names.
        runs: Vec<Ordered>,
    },
    /// Primary to backup: the same.
    ReplicateCover {
        /// The view that says so.
        view: ViewNumber,
        /// The view that the cut was made in.
        of: ViewNumber,
        /// The first position.
        batch: Position,
        /// Which incarnation of the backup is meant.
        incarnation: Incarnation,
        /// How much of the local log is decided about.
        length: u64,
        /// The names.
        runs: Vec<Ordered>,
    },
    /// Chosen member of the ordering layer to fenced replica: what of its local log does no cut
    /// cover?
    AskRest {
        /// The claim.
        view: ViewNumber,
        /// The view that ends.
        of: ViewNumber,
    },
    /// Replica to that member: this. Nothing, if it was no member of that view.
    RestIs {
        /// The claim.
        view: ViewNumber,
        /// The rest.
        rest: Option<Rest>,
    },
    /// Chosen member to primary: a part of the closing cut. The positions from `batch` on belong to
    /// these names, one after another, if the claim becomes a view. Every shard is told of all of
    /// them.
    Closing {
        /// The claim.
        view: ViewNumber,
        /// The first position.
        batch: Position,
        /// The backups that must hold it too.
        backups: Vec<Member>,
        /// The names.
        runs: Vec<Ordered>,
    },
    /// Primary to backup: the same.
    ReplicateClosing {
        /// The claim.
        view: ViewNumber,
        /// The first position.
        batch: Position,
        /// Which incarnation of the backup is meant.
        incarnation: Incarnation,
        /// The names.
        runs: Vec<Ordered>,
    },
    /// Replica of a retired shard to leader: what has it missed?
    Owe {
        /// The view, which does without the shard.
        view: ViewNumber,
    },
    /// Leader to that replica: this. It may have some of it.
    Owed {
        /// The view.
        view: ViewNumber,
        /// The last view of the shard. The positions are versions of that one.
        of: ViewNumber,
        /// The first position.
        first: Position,
        /// The names, up to where the shard has no positions any more. Those of other shards are
        /// only counted.
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
