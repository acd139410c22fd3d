//! Every message, with drawn numbers. A missing message or field is a compile error.

use seriatim_protocol::parts::sequencing;
use seriatim_protocol::{Message, control, corfu, cuts, erwin, shard};

use crate::draw::{Draw, Drawn};

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) make: fn(&mut Draw) -> Message,
}

macro_rules! kinds {
    ($list:ident of $of:ident :: $messages:ident { $($variant:ident { $($field:tt),* })* }) => {
        fn $list() -> Vec<Kind> {
            use $of::$messages as Of;
            // The compiler reports a variant that is missing below.
            let _ = |message: &Of| match message {
                $(Of::$variant { .. } => {})*
            };
            vec![$(Kind {
                name: concat!(stringify!($of), "::", stringify!($messages), "::", stringify!($variant)),
                make: |_draw| Message::from(Of::$variant { $($field: Drawn::drawn(_draw)),* }),
            }),*]
        }
    };
}

pub(crate) fn all() -> Vec<Kind> {
    let _ = |message: &Message| match message {
        Message::Control(_)
        | Message::Shard(_)
        | Message::Erwin(_)
        | Message::Corfu(_)
        | Message::Cuts(_)
        | Message::Sequencing(_)
        | Message::ErwinShard(_)
        | Message::CorfuShard(_)
        | Message::CutsShard(_) => {}
    };
    [
        of_control(),
        of_shard(),
        of_erwin(),
        of_corfu(),
        of_cuts(),
        of_sequencing(),
        of_erwin_shard(),
        of_corfu_shard(),
        of_cuts_shard(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

kinds! {
    of_control of control::Message {
        Get { log }
        Peek { log }
        Current { entry }
        Gone { log }
        CompareAndSet { entry }
        Lookup { request, name }
        Found { request, entry, nodes }
        List { request }
        Listing { request, entries, nodes }
        Create { request, name, config }
        Done { request, log }
        Refused { request, refusal }
        Join { node }
        Cluster { nodes }
        Heartbeat { 0 }
        Probe {}
        Probed {}
        Report { view, cannot_start, incarnation }
        Registered { entry }
        Unavailable { why }
        RemoveLog { log }
        Retired { log, node }
        Delete { request, name, log }
        Unanswered { why }
        Elsewhere { version }
        Move { node, version }
        AddShard { request, log, shard }
        RemoveShard { request, log, shard }
        SetRetention { request, log, change }
        Pin { request, log, name, position, most_bytes }
        Unpin { request, log, name }
        EndSession { log, view, ended, since }
        Seal { claim, old, config }
        Sealed { claim, incarnation, state }
        Preempted { claim }
        Flush { claim, old, incarnation, view }
        Flushed { claim, first, end, carried }
        Stage { claim, old, config, ordered, carried }
        Staged { claim, incarnation }
        Flushing { claim, bound }
        Ahead { claim, view }
        Dismiss { log, role, view }
        Recover { request, accepts }
        Recovered { request, done, lost, text }
        LastChange { request }
        LastChangeIs { request, view, steps }
        AskCondition { request }
        ConditionIs { request, condition }
        AskKnown { request }
        KnownIs { request, entries, nodes }
        Underway { claim }
        Part { request, node, change }
        AskPartings { request }
        PartingsAre { request, partings }
        Partings { partings }
        PartingsKnown { node, partings }
    }
}

kinds! {
    of_shard of shard::Message {
        Bind { view, batch, backups, stable, runs }
        Bound { view, batch, stable, voids }
        Stable { view, stable }
        StableKnown { view, stable }
        Fenced { claim, incarnation, held }
        Fence { claim, entry }
        Replicate { view, batch, incarnation, stable, runs }
        Replicated { view, batch }
        Read { request, from, end, max_records, wait_ms }
        Records { request, records, upto }
        ReadFailed { request, error }
        Subscribe { request, from, credit }
        Deliver { request, view, from, records, upto }
        Credit { request, bytes }
        Cancel { request }
        Trim { request, view, position }
        Trimmed { request, first }
        Status { request }
        StatusIs { request, view, stable, trim }
        Busy { view, ids, disk_full }
        MappedRecords { request, records, owned, upto }
        Map { request, from, end }
        Mapped { request, view, stable, owned }
        Flush { claim, incarnation, first, end, placement, backups }
        Flushed { claim, upto }
        FlushFailed { claim }
        Survey { 0 }
        Surveyed { 0 }
        Retain { 0 }
        AskWhole { view }
        Whole { view }
        RecordsWith { request, records, empty, upto }
        DeliverWith { request, view, from, records, empty, upto }
        SubscribeWith { request, from, credit, speculative, filter }
        Predict { request, view, from, records, empty, upto }
        Holds { request, view, from, upto, void }
    }
}

kinds! {
    of_erwin of erwin::Message {
        Append { view, session, first, lowest, entries }
        Acknowledged { view, session, next }
        OutOfOrder { view, session, expected }
        Busy { view, session, next, disk_full }
        Expired { session }
        Stale { session, number }
        TooLarge { session, number, limit }
        Locate { view, session, number }
        Located { session, number, position }
        Tail { request, view, count, held, seen }
        Forward { view, session, first, entries }
        Truncate { view, from, runs }
        TruncateAck { view, ordered }
        ForwardExpired { view, session, ordered }
        Floor { view, floor }
        End { view, session, at, successor }
        Ended { view, session, at, successor }
        NotEnded { view, session }
        NotAppended { view, session, next, voids }
        Close { view, session, successor }
        Freeze { view, session }
        Frozen { view, session, next }
    }
}

kinds! {
    of_corfu of corfu::Message {
        Next { view, session, take, ungranted, first, count, fill_timeout_ms, since }
        Given { view, session, take, first, spans }
        OutOfOrder { view, session, take, expected }
        Close { view, session }
        Closed { view, session, below }
        Expired { view, session }
        Unwritten { view, session, take, spans }
        Writing { view, session, left }
    }
}

kinds! {
    of_cuts of cuts::Message {
        Cut { view, bound, cut }
        Held { view, end }
        Locate { view, session, first, count }
        Located { view, session, next, places }
        Expired { session }
        Close { view, session, successor }
        Ended { view, session, at, successor }
    }
}

kinds! {
    of_sequencing of sequencing::Message {
        Rejected { view, why }
        CheckTail { request, view }
        Tail { request, view, tail }
        Status { request }
        StatusIs { request, view, open, tail, held, sessions }
        StatusWith { request, view, open, tail, held, sessions, windows }
    }
}

kinds! {
    of_erwin_shard of erwin::ShardMessage {
        Put { view, session, first, records }
        Stored { view, ids }
        NotAppended { view, ids }
        Order { view, batch, backups, stable, runs }
        ReplicateOrder { view, batch, incarnation, stable, runs, replicas }
        FetchRecords { view, batch, ids }
        FetchedRecords { view, batch, records, missing, voids }
        Orphans { view, ids }
        Undecided { view, session, first, end }
    }
}

kinds! {
    of_corfu_shard of corfu::ShardMessage {
        Write { view, runs }
        Written { view, spans, others }
        Unreadable { view, spans }
        Retry { view, spans, disk_full }
        Pressed { view }
        Seek { view, session, from, end }
        Sought { view, session, from, upto, trim, found }
        FillRequest { view, written, overdue }
        Fill { view, spans }
        Filled { view, run }
        Vacant { claim, old, spans }
        Offer { claim, upto, runs }
        Confirm { request, view }
        Confirmed { request, view }
    }
}

kinds! {
    of_cuts_shard of cuts::ShardMessage {
        Submit { view, session, lowest, first, records }
        Appended { view, ids, first }
        OutOfOrder { view, session, expected }
        LocalAppend { view, incarnation, index, names, records }
        LocalAck { view, length, asks }
        Report { view, length, from, names }
        CutAck { view, end, length }
        Cover { view, of, batch, backups, length, runs }
        ReplicateCover { view, of, batch, incarnation, length, runs }
        AskRest { view, of }
        RestIs { view, rest }
        Closing { view, batch, backups, runs }
        ReplicateClosing { view, batch, incarnation, runs }
        Fix { view, length }
        Windows { view, windows }
        WindowsKnown { view, number }
        LocalStored { view, length }
        Owe { view }
        Owed { view, of, first, runs }
    }
}
