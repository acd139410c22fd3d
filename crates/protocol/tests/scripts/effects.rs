//! Writes effects, without the fields that no script is about.

use std::collections::BTreeSet;

use seriatim_model::TimeIndex;
use seriatim_model::storage::{Ordered, Run, StorageCommand, Stored};
use seriatim_model::{
    BoundIds, Endpoint, IdRun, Incarnation, NodeId, Record, RecordId, SessionId, ShardId, ShardMembers, View,
    ViewNumber,
};
use seriatim_protocol::control::{self, LogEntry, NodeAddress, Refusal};
use seriatim_protocol::erwin::client::{Failure, Reply};
use seriatim_protocol::parts::{Content, sequencing};
use seriatim_protocol::shard::{self, ReadError};
use seriatim_protocol::{Message, erwin};

use crate::words::{self, id, list, session, unless};
use crate::{chains, cuts};

pub(crate) fn message(message: &Message) -> String {
    match message {
        Message::Erwin(message) => sequencing(message),
        Message::Corfu(message) => chains::sequencing(message),
        Message::Cuts(message) => cuts::sequencing(message),
        Message::Sequencing(message) => any_sequencing(message),
        Message::Shard(message) => shard(message),
        Message::ErwinShard(message) => by_id(message),
        Message::CorfuShard(message) => chains::shard(message),
        Message::CutsShard(message) => cuts::shard(message),
        Message::Control(message) => view_change(message).unwrap_or_else(|| catalog(message)),
    }
}

fn sequencing(message: &erwin::Message) -> String {
    use erwin::Message::*;
    match message {
        Append { view, session, first, lowest, entries, .. } => {
            let lowest = unless(0, "lowest", *lowest);
            format!("append v{view}{}{lowest}", following(*session, *first, entries))
        }
        NotAppended { view, session: of, next, voids, .. } => {
            format!("not-appended v{view} {} next={next}{}", session(*of), ids(voids))
        }
        Acknowledged { view, session: of, next, .. } => {
            format!("acknowledged v{view} {} next={next}", session(*of))
        }
        OutOfOrder { view, session: of, expected, .. } => {
            format!("out-of-order v{view} {} expected={expected}", session(*of))
        }
        Busy { view, session: of, next, disk_full, .. } => {
            let why = if *disk_full { " disk-full" } else { "" };
            format!("busy v{view} {} next={next}{why}", session(*of))
        }
        Expired { session: of, .. } => format!("expired {}", session(*of)),
        Stale { session, number, .. } => format!("stale {}", id(*session, *number)),
        TooLarge { session, number, limit, .. } => {
            format!("too-large {} limit={limit}", id(*session, *number))
        }
        Locate { view, session, number, .. } => format!("locate v{view} {}", id(*session, *number)),
        Located { session, number, position, .. } => {
            format!("located {} at={position}", id(*session, *number))
        }
        Close { view, session: of, successor } => {
            format!("close v{view} {}{}", session(*of), in_which(*successor))
        }
        Freeze { view, session: of } => format!("freeze v{view} {}", session(*of)),
        Frozen { view, session: of, next } => format!("frozen v{view} {}", id(*of, *next)),
        End { view, session: of, at, successor } => {
            format!("end v{view} {}{}", id(*of, *at), in_which(*successor))
        }
        Ended { view, session: of, at, successor } => {
            format!("ended v{view} {}{}", id(*of, *at), in_which(*successor))
        }
        NotEnded { view, session: of } => format!("not-ended v{view} {}", session(*of)),
        Tail { request, view, count, .. } => format!("tail v{view} request={request} count={count}"),
        Forward { view, session, first, entries, .. } => {
            format!("forward v{view}{}", following(*session, *first, entries))
        }
        Floor { view, floor } => format!("floor v{view} at={floor}"),
        ForwardExpired { view, session: of, ordered } => {
            format!("forward-expired v{view} {} ordered={ordered}", session(*of))
        }
        Truncate { view, from, runs, .. } => format!("truncate v{view} from={from}{}", bound(runs)),
        TruncateAck { view, ordered, .. } => format!("truncate-ack v{view} ordered={ordered}"),
    }
}

fn any_sequencing(message: &sequencing::Message) -> String {
    use sequencing::Message::*;
    match message {
        Rejected { view, why } => {
            format!("rejected v{view}{}", if why.is_some() { " unavailable" } else { "" })
        }
        CheckTail { request, view } => format!("check-tail v{view} request={request}"),
        Tail { request, view, tail } => format!("tail v{view} request={request} tail={tail}"),
        Status { request } => format!("status request={request}"),
        StatusIs { view, open, tail, held, sessions, .. } => {
            let state = if *open { "open" } else { "not-open" };
            format!("status-is v{view} {state} tail={tail} held={held} sessions={sessions}")
        }
        StatusWith { view, open, tail, held, sessions, windows, .. } => {
            let state = if *open { "open" } else { "not-open" };
            let sequencing::WindowStatus { number, cuts, made, quotas, lenders, lag_fixes, positions, empty } =
                windows;
            let quotas: String = quotas.iter().map(|(shard, quota)| format!(" s{shard}:{quota}")).collect();
            let lenders: String = lenders.iter().map(|shard| format!(" lends=s{shard}")).collect();
            format!(
                "status-with v{view} {state} tail={tail} held={held} sessions={sessions} w{number} {made}/{cuts}{quotas}{lenders} \
                 fixes={lag_fixes} empty={empty}/{positions}"
            )
        }
    }
}

pub(crate) fn following(session: SessionId, first: u64, entries: &[Content]) -> String {
    let shown = |(number, entry): (u64, &Content)| match entry {
        Content::Record(record) => format!(" {}", words::record(session, number, record)),
        Content::Put { shard, bytes: 0 } => format!(" s{shard}:{}", id(session, number)),
        Content::Put { shard, bytes } => format!(" s{shard}:{}[{bytes}]", id(session, number)),
    };
    (first..).zip(entries).map(shown).collect()
}

pub(crate) fn ids(runs: &[IdRun]) -> String {
    let numbers = |run: &IdRun| run.first..run.first + run.count;
    let each = |run: &IdRun| numbers(run).map(|n| format!(" {}", id(run.session, n))).collect::<String>();
    runs.iter().map(each).collect()
}

fn bound(runs: &[BoundIds]) -> String {
    let each = |run: &BoundIds| match run.is_void {
        true => ids(&[run.ids]).replace(' ', " !"),
        false => ids(&[run.ids]),
    };
    runs.iter().map(each).collect()
}

/// Ids with their shards; `!` marks no-ops.
pub(crate) fn ordered(runs: &[Ordered]) -> String {
    let each = |run: &Ordered| {
        if run.shard == ShardId::NOBODY {
            return format!(" {}", words::empty(run.ids));
        }
        let ids = bound(&[BoundIds { ids: run.ids, is_void: run.is_void }]);
        format!(" s{}:{}", run.shard, ids.trim_start().replace(' ', ","))
    };
    runs.iter().map(each).collect()
}

/// ` incarnation=2`; empty for the first.
fn later(incarnation: Incarnation) -> String {
    unless(1, "incarnation", incarnation.0)
}

/// ` name=a0,a1`; empty without ids.
fn ids_in(name: &str, runs: &[IdRun]) -> String {
    unless(String::new(), name, ids(runs).trim_start().replace(' ', ","))
}

fn named(records: &[(RecordId, Record)]) -> String {
    records.iter().map(|(id, record)| format!(" {}", words::record(id.session, id.number, record))).collect()
}

fn by_id(message: &erwin::ShardMessage) -> String {
    use erwin::ShardMessage::*;
    match message {
        Put { view, session: of, first, records } => {
            format!("put v{view}{}", following(*of, *first, &contents(records)))
        }
        Stored { view, ids: of } => format!("stored v{view}{}", ids(&[*of])),
        NotAppended { view, ids: of } => format!("not-appended v{view}{}", ids(&[*of])),
        Order { view, batch, backups, stable, runs } => {
            let backups = unless(String::new(), "backups", list(backups, "+", words::member));
            let stable = unless(0, "stable", stable.0);
            format!("order v{view} batch={batch}{backups}{stable}{}", ordered(runs))
        }
        ReplicateOrder { view, batch, incarnation, stable, runs, replicas } => {
            let (incarnation, stable) = (later(*incarnation), unless(0, "stable", stable.0));
            let replicas = list(replicas, "+", ToString::to_string);
            let ids = ordered(runs);
            format!("replicate-order v{view} batch={batch} replicas={replicas}{incarnation}{stable}{ids}")
        }
        FetchRecords { view, batch, ids: of } => format!("fetch-records v{view} batch={batch}{}", ids(of)),
        FetchedRecords { view, batch, records, missing, voids } => {
            let (missing, voids) = (ids_in("missing", missing), ids_in("voids", voids));
            format!("fetched-records v{view} batch={batch}{}{missing}{voids}", named(records))
        }
        Orphans { view, ids: sessions } => format!("orphans v{view}{}", ids(sessions)),
        Undecided { view, session: of, first, end } => {
            let (first, end) = (unless(u64::MAX, "first", *first), unless(u64::MAX, "end", *end));
            format!("undecided v{view} {}{first}{end}", session(*of))
        }
    }
}

fn contents(records: &[Record]) -> Vec<Content> {
    records.iter().cloned().map(Content::Record).collect()
}

fn predictions(message: &shard::Message) -> String {
    use shard::Message::*;
    match message {
        SubscribeWith { request, from, speculative, .. } => {
            format!("subscribe-with request={request} from={from} speculative={speculative}")
        }
        Predict { request, view, from, records, empty, upto } => {
            let (records, empty) = (stored(records), chains::spans(empty));
            format!("predict request={request} view={view} from={from}{records} empty={empty} upto={upto}")
        }
        Holds { request, view, from, upto, void } => {
            let from = unless(0, "from", from.0);
            let void = if void.is_empty() { String::new() } else { format!(" void={}", chains::spans(void)) };
            format!("holds request={request} view={view}{from} upto={upto}{void}")
        }
        _ => unreachable!("not of predictions"),
    }
}

fn shard(message: &shard::Message) -> String {
    use shard::Message::*;
    if let Some(line) = chains::flush(message) {
        return line;
    }
    match message {
        Busy { view, ids: of, disk_full } => {
            let why = if *disk_full { " disk-full" } else { "" };
            format!("busy v{view}{}{why}", ids(&[*of]))
        }
        MappedRecords { request, records, owned, upto } => {
            let owned = words::owned(owned);
            format!("mapped-records request={request}{} owned={owned} upto={upto}", stored(records))
        }
        Mapped { request, view, stable, owned } => {
            let owned = words::owned(owned);
            format!("mapped request={request} view=v{view} stable={stable} owned={owned}")
        }
        Bind { view, batch, backups, stable, runs: of, .. } => {
            let backups = list(backups, "+", words::member);
            let backups = unless(String::new(), "backups", backups);
            format!("bind v{view} batch={batch}{backups}{}{}", unless(0, "stable", stable.0), runs(of))
        }
        Bound { view, batch, stable, voids } => {
            let (stable, voids) = (unless(0, "stable", stable.0), ids_in("voids", voids));
            format!("bound v{view} batch={batch}{stable}{voids}")
        }
        Stable { view, stable, .. } => format!("stable v{view} at={stable}"),
        StableKnown { view, stable, .. } => format!("stable-known v{view} at={stable}"),
        Fenced { claim, incarnation, held } => {
            let missing = held.missing.map(|missing| format!(" missing={}..{}", missing.from, missing.end));
            let rest = missing.unwrap_or_default() + &unless(0, "trim", held.trim.0);
            let rest = rest + &unless(0, "end", held.end.0);
            format!("fenced v{claim}{} member-of=v{}{rest}", later(*incarnation), held.view)
        }
        Fence { claim, .. } => format!("fence v{claim}"),
        Replicate { view, batch, incarnation, stable, runs: of, .. } => {
            let (incarnation, stable) = (later(*incarnation), unless(0, "stable", stable.0));
            format!("replicate v{view} batch={batch}{incarnation}{stable}{}", runs(of))
        }
        Replicated { view, batch, .. } => format!("replicated v{view} batch={batch}"),
        Read { request, from, end, .. } => format!("read request={request} from={from} end={end}"),
        Records { request, records, upto, .. } => {
            format!("records request={request}{} upto={upto}", stored(records))
        }
        ReadFailed { request, error, .. } => format!("read-failed request={request} {}", read_error(error)),
        Subscribe { request, from, credit, .. } => {
            format!("subscribe request={request} from={from} credit={credit}")
        }
        Deliver { request, from, records, upto, .. } => {
            format!("deliver request={request} from={from}{} upto={upto}", stored(records))
        }
        SubscribeWith { .. } | Predict { .. } | Holds { .. } => predictions(message),
        Credit { request, bytes, .. } => format!("credit request={request} bytes={bytes}"),
        Cancel { request, .. } => format!("cancel request={request}"),
        Trim { request, position, .. } => format!("trim request={request} at={position}"),
        Trimmed { request, first, .. } => format!("trimmed request={request} first={first}"),
        Status { request, .. } => format!("status request={request}"),
        StatusIs { view, stable, trim, .. } => format!("status-is v{view} stable={stable} trim={trim}"),
        RecordsWith { .. } | DeliverWith { .. } => with_empty(message),
        Survey(_) | Retain(_) | Surveyed(_) => retaining(message),
        _ => unreachable!("the others are seen above"),
    }
}

fn with_empty(message: &shard::Message) -> String {
    use shard::Message::*;
    match message {
        RecordsWith { request, records, empty, upto } => {
            let empty = chains::spans(empty);
            format!("records-with request={request}{} empty={empty} upto={upto}", stored(records))
        }
        DeliverWith { request, from, records, empty, upto, .. } => {
            let (records, empty) = (stored(records), chains::spans(empty));
            format!("deliver-with request={request} from={from}{records} empty={empty} upto={upto}")
        }
        _ => unreachable!("the others tell of none"),
    }
}

fn retaining(message: &shard::Message) -> String {
    use shard::Message::*;
    match message {
        Survey(shard::Survey { request, .. }) => format!("survey request={request}"),
        Retain(shard::Retain { request, trim, .. }) => format!("retain request={request} trim={trim}"),
        Surveyed(answer) => {
            let shard::Surveyed { request, view, stable, trim, time_ms, times, usage, .. } = answer;
            let mut line =
                format!("surveyed request={request} v{view} stable={stable} trim={trim} now={time_ms}");
            if let Some(times) = times {
                line += &format!(" marks={}", marks(times));
            }
            if let Some(usage) = usage {
                line += &format!(" bytes={} parts={}", usage.bytes, usage.extents.len());
            }
            line
        }
        _ => unreachable!("they are of limits"),
    }
}

pub(crate) fn runs(runs: &[Run]) -> String {
    let records = runs.iter().flat_map(|run| (run.first.0..).zip(&run.records));
    let show = |(position, (id, record)): (u64, &(seriatim_model::RecordId, Record))| {
        format!(" {position}:{}", words::record(id.session, id.number, record))
    };
    records.map(show).collect()
}

fn stored(records: &[Stored]) -> String {
    let show = |at: &Stored| words::record(at.id.session, at.id.number, &at.record);
    records.iter().map(|at| format!(" {}:{}", at.position, show(at))).collect()
}

fn read_error(error: &ReadError) -> String {
    match error {
        ReadError::Trimmed { first, .. } => format!("trimmed first={first}"),
        ReadError::Damaged { position, .. } => format!("damaged at={position}"),
        ReadError::Disk { .. } => "disk".into(),
        ReadError::Busy => "busy".into(),
        ReadError::NotStable { stable, .. } => format!("not-stable stable={stable}"),
        ReadError::Missing { position, lacking } => format!("missing at={position} lacking={lacking}"),
        ReadError::Lost { position, end } => format!("lost at={position} end={end}"),
    }
}

/// Returns `None` for messages of the catalog.
fn view_change(message: &control::Message) -> Option<String> {
    use control::Message::*;
    Some(match message {
        Get { .. } => "get".into(),
        Current { entry: of, .. } => format!("current {}", entry(of)),
        CompareAndSet { entry: of, .. } => format!("compare-and-set {}", change(of)),
        Report { view, cannot_start, .. } => {
            let cannot = format!(" cannot-start=v{cannot_start}");
            format!("report v{view}{}", if *cannot_start == ViewNumber::NONE { "" } else { &cannot })
        }
        Registered { entry: of, .. } => format!("registered {}", entry(of)),
        Unavailable { why } => format!("unavailable{}", awaited(why)),
        Seal { claim, old, .. } => format!("seal v{claim} old=v{old}"),
        Sealed { claim, incarnation, state, .. } => {
            let incarnation = later(*incarnation);
            let state = state.as_ref().map(|state| format!(" ordered={} held={}", state.ordered, state.held));
            format!("sealed v{claim}{incarnation}{}", state.unwrap_or(" nothing".into()))
        }
        Preempted { claim, .. } => format!("preempted v{claim}"),
        Ahead { claim, view } => format!("ahead v{claim} view=v{view}"),
        Flush { claim, view, .. } => format!("flush v{claim} shards={}", words::shards(&view.shards)),
        Flushed { first, end, claim, carried, .. } => {
            format!(
                "flushed v{claim} first={first} end={end} sessions={}",
                words::sessions(&carried.sessions)
            )
        }
        Stage { claim, ordered, carried, .. } => {
            format!("stage v{claim} ordered={ordered} sessions={}", words::sessions(&carried.sessions))
        }
        Underway { claim } => format!("underway v{claim}"),
        Probe => "probe".to_owned(),
        Flushing { claim, bound } => format!("flushing v{claim} bound={bound}"),
        Dismiss { role: Endpoint::Shard(shard), view, .. } => format!("dismiss shard{shard} view=v{view}"),
        Dismiss { view, .. } => format!("dismiss sequencer view=v{view}"),
        Recovered { done, lost, text, .. } => format!("recovered done={done} lost={lost} {text}"),
        LastChangeIs { view, steps, .. } => {
            format!("last-change-is v{view}{}", list(steps, "", |s| format!(" {}", s.step)))
        }
        Staged { claim, incarnation, .. } => format!("staged v{claim}{}", later(*incarnation)),
        _ => return None,
    })
}

fn catalog(message: &control::Message) -> String {
    use control::Message::*;
    match message {
        Gone { log, .. } => format!("gone log={log}"),
        Lookup { name, .. } => format!("lookup {name}"),
        Found { entry: of, .. } => format!("found {} {}", of.name, entry(of)),
        List { .. } => "list".into(),
        Listing { entries, .. } => format!("listing {}", list(entries, " ", |entry| entry.name.clone())),
        Create { name, .. } => format!("create {name}"),
        Delete { name, log, .. } => format!("delete {name} log={log}"),
        Done { request, log, .. } => format!("done request={request} log={log}"),
        Refused { request, refusal, .. } => {
            let why = match refusal {
                Refusal::NoSuchLog { .. } => "no-such-log",
                Refusal::Exists { .. } => "exists",
                Refusal::Impossible { .. } => "impossible",
            };
            format!("refused request={request} {why}")
        }
        Join { node, .. } => format!("join {}", node.node),
        Cluster { nodes, .. } => {
            let usual = |node: &NodeAddress| node.address == format!("node{}:7700", node.node);
            let place = |node: &NodeAddress| {
                if usual(node) { node.node.to_string() } else { format!("{}@{}", node.node, node.address) }
            };
            format!("cluster {}", list(nodes, ",", place))
        }
        Elsewhere { version } => format!("elsewhere version={version}"),
        RemoveLog { log, .. } => format!("remove log={log}"),
        Retired { log, node, .. } => format!("retired log={log} node={node}"),
        _ => unreachable!("the others are of view changes"),
    }
}

fn entry(entry: &LogEntry) -> String {
    let placed = list(&entry.shards, ",", |nodes| list(nodes, "+", ToString::to_string));
    let sequencers = list(&entry.sequencers, ",", ToString::to_string);
    let joining = entry.view.iter().flat_map(|view| {
        let placed =
            (0..).map(seriatim_model::ShardId).zip(&entry.shards).filter(|(_, nodes)| !nodes.is_empty());
        placed.map(|(shard, _)| shard).filter(|shard| view.shard(*shard).is_none())
    });
    let joining: String = joining.map(|shard| format!(" joining={shard}")).collect();
    let leaving: String = entry.leaving.iter().map(|shard| format!(" leaving={shard}")).collect();
    let view = match &entry.view {
        Some(view) => format!("view=v{}{joining}{leaving}", view.number),
        None => format!("no view, sequencers={sequencers} shards={placed}"),
    };
    let claimed = if entry.claimed == entry.view_number() {
        String::new()
    } else {
        format!(" claimed=v{}", entry.claimed)
    };
    let unavailable = if entry.unavailable.is_some() { " unavailable" } else { "" };
    format!("version={} {view}{claimed}{unavailable}", entry.version)
}

/// A controller's write to the register.
fn change(entry: &LogEntry) -> String {
    let (version, claimed, history) = (entry.version, entry.claimed, words::history(&entry.history));
    if let Some(why) = &entry.unavailable {
        return format!("version={version} claims v{claimed}, unavailable{}", awaited(why));
    }
    match &entry.view {
        Some(view) if view.number == claimed => {
            let assigned = assigned(entry, view);
            format!("version={version} registers {} history={history}{assigned}", words::view(view))
        }
        _ => format!("version={version} claims v{claimed}"),
    }
}

/// Assigned nodes of the shards, if the view names others.
fn assigned(entry: &LogEntry, view: &View) -> String {
    let named = |members: &ShardMembers| members.replicas.iter().map(|member| member.node).collect();
    let named: Vec<BTreeSet<NodeId>> = view.shards.iter().map(named).collect();
    let meant: Vec<BTreeSet<NodeId>> =
        entry.shards.iter().map(|nodes| nodes.iter().copied().collect()).collect();
    let shards = list(&entry.shards, ",", |nodes| list(nodes, "+", ToString::to_string));
    if named == meant { String::new() } else { format!(" assigned={shards}") }
}

/// The node numbers in a sentence for people, whose wording may change.
fn awaited(why: &str) -> String {
    let named = why.split("node ").skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let named: Vec<&str> = named.flatten().filter(|digits| !digits.is_empty()).collect();
    if named.is_empty() { String::new() } else { format!(" names={}", named.join(",")) }
}

pub(crate) fn command(command: &StorageCommand) -> String {
    match command {
        StorageCommand::Bind { view, runs: of } | StorageCommand::Rebind { view, runs: of, .. } => {
            format!("bind v{view}{}", runs(of))
        }
        StorageCommand::Remember(memory) => {
            let view = memory.view.as_ref().map_or(ViewNumber::NONE, |view| view.number);
            let history = unless(String::new(), "history", words::history(&memory.history));
            format!("remember claim=v{} view=v{view}{history}", memory.claim)
        }
        StorageCommand::RememberMissing { memory, missing } => {
            let missing =
                missing.map_or("nothing".to_owned(), |missing| format!("{}..{}", missing.from, missing.end));
            format!("{} missing={missing}", self::command(&StorageCommand::Remember(memory.clone())))
        }
        StorageCommand::Stable(position) => format!("stable at={position}"),
        StorageCommand::Trim(position) => format!("trim at={position}"),
        StorageCommand::Put(records) => format!("put{}", named(records)),
        StorageCommand::Order { view, first, runs } => {
            format!("order v{view} first={first}{}", ordered(runs))
        }
        StorageCommand::Map { view, first, owned } => {
            let owned = words::owned(owned);
            format!("map v{view} first={first} owned={owned}")
        }
        StorageCommand::Discard(of) => format!("discard{}", ids(&[*of])),
        StorageCommand::Mark { times, whole, .. } => {
            let all = if *whole { " all" } else { "" };
            format!("mark{all} {}", marks(times))
        }
    }
}

/// Marks and the time: `5@50,7@70 time=90`.
pub(crate) fn marks(times: &TimeIndex) -> String {
    let marks: Vec<_> =
        times.marks().iter().map(|mark| format!("{}@{}", mark.position, mark.time_ms)).collect();
    format!("{} time={}", marks.join(","), times.time_ms())
}

fn in_which(successor: Option<SessionId>) -> String {
    successor.map(|of| format!(" successor={}", session(of))).unwrap_or_default()
}

pub(crate) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Appended { id: of, position, again } => {
            let at = position.map(|position| format!(" at={position}"));
            let again = unless(0, "again", *again);
            format!("appended {}{}{again}", id(of.session, of.number), at.unwrap_or_default())
        }
        Reply::Tail(tail) => format!("tail={tail}"),
        Reply::Ended(ended) => {
            let ended = ended.map(|(of, at)| format!(" {} at={at}", session(of)));
            format!("ended{}", ended.unwrap_or_default())
        }
        Reply::Session { session: of, next } => format!("session {} next={next}", session(*of)),
        Reply::Failed(failure) => format!(
            "failed {}",
            match failure {
                Failure::SessionExpired(_) => "session-expired",
                Failure::TooLarge { .. } => "too-large",
                Failure::Stale(_) => "stale",
                Failure::NotAppended(_) => "not-appended",
                Failure::NoSuchShard { .. } => "no-such-shard",
                Failure::NoChoice(_) => "no-choice",
                Failure::Deleted(_) => "deleted",
            }
        ),
    }
}
