//! Reads the messages that a script delivers.

use seriatim_model::storage::{MissingRange, Run, Stored};
use seriatim_model::{
    Address, Endpoint, Filter, IdRun, Incarnation, LogConfig, LogId, Member, NodeId, Position, Record,
    RecordId, SessionId, ShardId, TimeIndex, TimeMark, ViewNumber,
};
use seriatim_protocol::control::{self, LogEntry, NodeAddress, Refusal, SealedState};
use seriatim_protocol::parts::sessions::runs_of;
use seriatim_protocol::parts::{Content, sequencing};
use seriatim_protocol::shard::{Held, ReadError};
use seriatim_protocol::{Message, erwin, shard};

use crate::words::{Parsed, Words, read_member, read_view};
use crate::{chains, cuts};

/// Reads a message of this kind from the remaining words. `entry` is the register's entry.
pub(crate) fn read(
    kind: &str,
    words: &mut Words,
    (from, incarnation): (Address, Incarnation),
    entry: &LogEntry,
) -> Parsed<Message> {
    if let Address::Node(_, Endpoint::Shard(_)) = from
        && let Some(message) = refusal(kind, words)?
    {
        return Ok(message);
    }
    if let Some(message) = chains::read(kind, words, entry)? {
        return Ok(message);
    }
    if let Some(message) = cuts::read(kind, words, entry)? {
        return Ok(message);
    }
    if let Some(message) = any_sequencing(kind, words, entry)? {
        return Ok(message.into());
    }
    if let Some(message) = sequencing(kind, words)? {
        return Ok(message.into());
    }
    if let Some(message) = shard(kind, words, incarnation, entry)? {
        return Ok(message.into());
    }
    if let Some(message) = maps(kind, words)? {
        return Ok(message.into());
    }
    if let Some(message) = by_id(kind, words)? {
        return Ok(message.into());
    }
    if let Some(message) = retaining(kind, words, entry)? {
        return Ok(message.into());
    }
    if let Some(message) = view_change(kind, words, incarnation, entry)? {
        return Ok(message.into());
    }
    let message = catalog(kind, words, entry)?.ok_or(format!("no message is called '{kind}'"))?;
    Ok(message.into())
}

fn consecutive(words: &mut Words) -> Parsed<(SessionId, u64, Vec<Content>)> {
    let entries = words.entries();
    let (first, _) = entries.first().ok_or("a record is missing")?;
    let (session, number) = (first.session, first.number);
    let in_order = (number..).zip(&entries).all(|(n, (id, _))| *id == RecordId { session, number: n });
    if !in_order {
        return Err("the records of one message are consecutive ones of one session".into());
    }
    Ok((session, number, entries.into_iter().map(|(_, entry)| entry).collect()))
}

/// The session, the first number, and the records.
pub(crate) fn consecutive_records(words: &mut Words) -> Parsed<(SessionId, u64, Vec<Record>)> {
    let records = words.records();
    let ids = runs_of(records.iter().map(|(id, _)| *id));
    let [IdRun { session, first, .. }] = ids[..] else {
        return Err("the records of one message are consecutive ones of one session".into());
    };
    Ok((session, first, records.into_iter().map(|(_, record)| record).collect()))
}

fn run(words: &mut Words) -> Parsed<IdRun> {
    match words.ids()[..] {
        [run] => Ok(run),
        _ => Err("the ids of one answer are consecutive ones of one session".into()),
    }
}

fn retaining(kind: &str, words: &mut Words, entry: &LogEntry) -> Parsed<Option<shard::Message>> {
    use shard::Message::*;
    Ok(Some(match kind {
        "survey" => {
            let (times, usage) = (words.has("times"), words.has("usage"));
            Survey(shard::Survey { request: words.number("request")?, times, usage })
        }
        "surveyed" => Surveyed(shard::Surveyed {
            request: words.number("request")?,
            view: words.view().unwrap_or(ViewNumber::NONE),
            stable: words.position("stable")?,
            trim: words.position("trim")?,
            digest: 0,
            time_ms: 0,
            times: None,
            usage: None,
        }),
        "retain" => {
            let mut times = TimeIndex::default();
            if let Some(position) = words.value("mark")?.map(Position) {
                let (time_ms, wall_ms) = (words.number("time")?, words.number("wall")?);
                times.add(TimeMark { position, time_ms, wall_ms });
            }
            times.reaches(words.number("now")?);
            let (view, whole) = (words.view().unwrap_or(entry.view_number()), words.has("whole"));
            let (request, trim) = (words.number("request")?, words.position("trim")?);
            Retain(shard::Retain {
                request,
                view,
                trim,
                times,
                whole,
                segment_bytes: words.value("segments")?,
            })
        }
        _ => return Ok(None),
    }))
}

fn any_sequencing(kind: &str, words: &mut Words, entry: &LogEntry) -> Parsed<Option<sequencing::Message>> {
    use sequencing::Message::*;
    Ok(Some(match kind {
        "rejected" => {
            let why = words.has("unavailable").then(|| "no view can be formed".to_owned());
            Rejected { view: words.view()?, why }
        }
        "check-tail" => CheckTail { request: words.number("request")?, view: words.view()? },
        // These orderings report the tail as a position, not as a count.
        "tail" if !entry.config.order.is_lazy() => {
            let (request, view) = (words.number("request")?, words.view()?);
            Tail { request, view, tail: words.position("tail")? }
        }
        "sequencing-status" => Status { request: words.number("request")? },
        _ => return Ok(None),
    }))
}

fn sequencing(kind: &str, words: &mut Words) -> Parsed<Option<erwin::Message>> {
    use erwin::Message::*;
    let message = match kind {
        "append" => {
            let (view, lowest) = (words.view()?, words.number("lowest")?);
            let (session, first, entries) = consecutive(words)?;
            Append { view, session, first, lowest, entries }
        }
        "acknowledged" => {
            Acknowledged { view: words.view()?, session: words.session()?, next: words.number("next")? }
        }
        "not-appended" => {
            let (view, session, next) = (words.view()?, words.session()?, words.number("next")?);
            NotAppended { view, session, next, voids: words.ids() }
        }
        "out-of-order" => {
            OutOfOrder { view: words.view()?, session: words.session()?, expected: words.number("expected")? }
        }
        "busy" => {
            let (view, session, next) = (words.view()?, words.session()?, words.number("next")?);
            Busy { view, session, next, disk_full: words.has("disk-full") }
        }
        "expired" => Expired { session: words.session()? },
        "stale" => {
            let (RecordId { session, number }, _) = words.record()?;
            Stale { session, number }
        }
        "too-large" => {
            let (RecordId { session, number }, _) = words.record()?;
            TooLarge { session, number, limit: words.number("limit")? as u32 }
        }
        "locate" => {
            let (RecordId { session, number }, _) = words.record()?;
            Locate { view: words.view()?, session, number }
        }
        "located" => {
            let (RecordId { session, number }, _) = words.record()?;
            Located { session, number, position: words.position("at")? }
        }
        "tail" => {
            let (request, view) = (words.number("request")?, words.view()?);
            Tail { request, view, count: words.position("count")?, held: 0, seen: 0 }
        }
        "forward" => {
            let view = words.view()?;
            let (session, first, entries) = consecutive(words)?;
            Forward { view, session, first, entries }
        }
        "floor" => Floor { view: words.view()?, floor: words.position("at")? },
        "forward-expired" => ForwardExpired {
            view: words.view()?,
            session: words.session()?,
            ordered: words.position("ordered")?,
        },
        "truncate" => {
            let (view, from) = (words.view()?, words.position("from")?);
            Truncate { view, from, runs: words.bound() }
        }
        "truncate-ack" => TruncateAck { view: words.view()?, ordered: words.position("ordered")? },
        _ => return ending(kind, words),
    };
    Ok(Some(message))
}

fn ending(kind: &str, words: &mut Words) -> Parsed<Option<erwin::Message>> {
    use erwin::Message::*;
    let message = match kind {
        "close" => {
            let successor = words.session_in("successor")?;
            Close { view: words.view()?, session: words.session()?, successor }
        }
        "not-ended" => NotEnded { view: words.view()?, session: words.session()? },
        "freeze" => Freeze { view: words.view()?, session: words.session()? },
        "frozen" | "end" | "ended" => {
            let successor = words.session_in("successor")?;
            let (RecordId { session, number: at }, _) = words.record()?;
            let view = words.view()?;
            match kind {
                "frozen" => Frozen { view, session, next: at },
                "end" => End { view, session, at, successor },
                _ => Ended { view, session, at, successor },
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(message))
}

/// `missing=3..7`.
fn lacking(words: &mut Words) -> Parsed<Option<MissingRange>> {
    let Some(text) = words.value::<String>("missing")? else { return Ok(None) };
    let (from, end) = text.split_once("..").ok_or("missing what?")?;
    let position = |text: &str| text.parse().map(Position).map_err(|_| "missing what?".to_owned());
    Ok(Some(MissingRange { from: position(from)?, end: position(end)? }))
}

fn shard(
    kind: &str,
    words: &mut Words,
    incarnation: Incarnation,
    entry: &LogEntry,
) -> Parsed<Option<shard::Message>> {
    use shard::Message::*;
    let message = match kind {
        "bind" => {
            let backups = backups(words)?;
            let (view, batch) = (words.view()?, words.position("batch")?);
            Bind { view, batch, backups, stable: words.position("stable")?, runs: runs(words) }
        }
        "replicate" => Replicate {
            view: words.view()?,
            batch: words.position("batch")?,
            incarnation: Incarnation(words.value("incarnation")?.unwrap_or(1)),
            stable: words.position("stable")?,
            runs: runs(words),
        },
        "bound" => {
            let (view, batch) = (words.view()?, words.position("batch")?);
            Bound { view, batch, stable: words.position("stable")?, voids: words.ids_in("voids")? }
        }
        "replicated" => Replicated { view: words.view()?, batch: words.position("batch")? },
        "stable" => Stable { view: words.view()?, stable: words.position("at")? },
        "stable-known" => StableKnown { view: words.view()?, stable: words.position("at")? },
        "fence" => Fence { claim: words.view()?, entry: entry.clone() },
        "fenced" => {
            let view = words.value::<String>("member-of")?.map(|word| Words::new(&word).view());
            let view = view.transpose()?.unwrap_or(entry.view_number());
            let (stable, missing) = (words.position("stable")?, lacking(words)?);
            let (trim, end) = (words.position("trim")?, words.position("end")?);
            let held = Held { view, stable, missing, trim, end, knows: entry.view_number() };
            Fenced { claim: words.view()?, incarnation, held }
        }
        "read" => Read {
            request: words.number("request")?,
            from: words.position("from")?,
            end: words.position("end")?,
            max_records: words.value("max")?.unwrap_or(100),
            wait_ms: words.number("wait-ms")? as u32,
        },
        "subscribe" => {
            let (request, from) = (words.number("request")?, words.position("from")?);
            Subscribe { request, from, credit: words.number("credit")? }
        }
        "subscribe-with" => {
            let (request, from) = (words.number("request")?, words.position("from")?);
            let filter = words.value::<String>("key")?.map(Filter::key_prefix);
            let speculative = words.has("speculative");
            SubscribeWith { request, from, credit: words.number("credit")?, speculative, filter }
        }
        "credit" => Credit { request: words.number("request")?, bytes: words.number("bytes")? },
        "cancel" => Cancel { request: words.number("request")? },
        "trim" => {
            // The default is the registered view.
            let view = words.view().unwrap_or(entry.view_number());
            Trim { request: words.number("request")?, view, position: words.position("at")? }
        }
        "records" => {
            let (request, upto) = (words.number("request")?, words.position("upto")?);
            Records { request, records: read_stored(words), upto }
        }
        "read-failed" => ReadFailed { request: words.number("request")?, error: read_error(words)? },
        "shard-status" => Status { request: words.number("request")? },
        _ => return Ok(None),
    };
    Ok(Some(message))
}

/// A shard's refusal; sequencing replicas use other messages.
fn refusal(kind: &str, words: &mut Words) -> Parsed<Option<Message>> {
    Ok(Some(match kind {
        "not-appended" => {
            let view = words.view()?;
            erwin::ShardMessage::NotAppended { view, ids: run(words)? }.into()
        }
        "busy" => {
            let (view, disk_full) = (words.view()?, words.has("disk-full"));
            shard::Message::Busy { view, ids: run(words)?, disk_full }.into()
        }
        _ => return Ok(None),
    }))
}

fn by_id(kind: &str, words: &mut Words) -> Parsed<Option<erwin::ShardMessage>> {
    use erwin::ShardMessage::*;
    let message = match kind {
        "put" => {
            let (view, (session, first, records)) = (words.view()?, consecutive_records(words)?);
            Put { view, session, first, records }
        }
        "stored" => Stored { view: words.view()?, ids: run(words)? },
        "order" => {
            let backups = backups(words)?;
            let (view, batch) = (words.view()?, words.position("batch")?);
            Order { view, batch, backups, stable: words.position("stable")?, runs: words.ordered() }
        }
        "replicate-order" => {
            let replicas = words.value::<String>("replicas")?.unwrap_or_default();
            let replicas = replicas.split('+').filter(|word| !word.is_empty());
            let replicas = replicas.map(|word| Ok(read_member(word)?.node)).collect::<Parsed<_>>()?;
            ReplicateOrder {
                view: words.view()?,
                batch: words.position("batch")?,
                incarnation: Incarnation(words.value("incarnation")?.unwrap_or(1)),
                stable: words.position("stable")?,
                runs: words.ordered(),
                replicas,
            }
        }
        "fetch-records" => {
            FetchRecords { view: words.view()?, batch: words.position("batch")?, ids: words.ids() }
        }
        "fetched-records" => {
            let (view, batch) = (words.view()?, words.position("batch")?);
            let (missing, voids) = (words.ids_in("missing")?, words.ids_in("voids")?);
            FetchedRecords { view, batch, records: words.records(), missing, voids }
        }
        "orphans" => Orphans { view: words.view()?, ids: words.ids() },
        "undecided" => {
            let (view, session) = (words.view()?, words.session()?);
            let first = words.value("first")?.unwrap_or(u64::MAX);
            Undecided { view, session, first, end: words.value("end")?.unwrap_or(u64::MAX) }
        }
        _ => return Ok(None),
    };
    Ok(Some(message))
}

/// `backups=5+6`; may be missing.
pub(crate) fn backups(words: &mut Words) -> Parsed<Vec<Member>> {
    let backups = words.value::<String>("backups")?.unwrap_or_default();
    backups.split('+').filter(|word| !word.is_empty()).map(read_member).collect()
}

/// `trimmed first=3`, `missing at=3` and the like.
fn read_error(words: &mut Words) -> Parsed<ReadError> {
    Ok(match words.next()?.as_str() {
        "trimmed" => ReadError::Trimmed { first: words.position("first")? },
        "damaged" => ReadError::Damaged { position: words.position("at")? },
        "missing" => {
            ReadError::Missing { position: words.position("at")?, lacking: words.number("lacking")? }
        }
        "lost" => ReadError::Lost { position: words.position("at")?, end: words.position("end")? },
        "busy" => ReadError::Busy,
        other => return Err(format!("no read fails with '{other}'")),
    })
}

pub(crate) fn runs(words: &mut Words) -> Vec<Run> {
    let mut runs: Vec<Run> = vec![];
    for (position, id, record) in words.stored() {
        match runs.last_mut().filter(|run| run.end() == position) {
            Some(run) => run.records.push((id, record)),
            None => runs.push(Run { first: position, records: vec![(id, record)] }),
        }
    }
    runs
}

pub(crate) fn read_stored(words: &mut Words) -> Vec<Stored> {
    let found = words.stored().into_iter();
    found.map(|(position, id, record)| Stored { position, id, record }).collect()
}

/// The view in `name=v1`; view 0 if the word is missing.
fn view_in(words: &mut Words, name: &str) -> Parsed<ViewNumber> {
    let word = words.value::<String>(name)?.unwrap_or("v0".into());
    Words::new(&word).view()
}

fn stage(words: &mut Words, entry: &LogEntry) -> Parsed<control::Message> {
    // The default is the registered view.
    let old = Some(view_in(words, "old")?).filter(|old| *old != ViewNumber::NONE);
    let (claim, ordered) = (words.view()?, words.position("ordered")?);
    let registered = Some(entry.view_number()).filter(|view| *view < claim);
    let old = old.or(registered).unwrap_or(ViewNumber::NONE);
    let (config, carried) = (entry.config.clone(), words.sessions(ordered)?.into());
    Ok(control::Message::Stage { claim, old, config, ordered, carried })
}

fn view_change(
    kind: &str,
    words: &mut Words,
    incarnation: Incarnation,
    entry: &LogEntry,
) -> Parsed<Option<control::Message>> {
    use control::Message::*;
    let message = match kind {
        "get" => Get { log: entry.id },
        "gone" => Gone { log: entry.id },
        "current" => Current { entry: entry.clone() },
        "compare-and-set" => {
            let version = words.value("version")?.unwrap_or(entry.version);
            let claimed = words.view()?;
            CompareAndSet { entry: LogEntry { version, claimed, ..entry.clone() } }
        }
        "registered" => Registered { entry: entry.clone() },
        "report" => {
            let cannot_start = view_in(words, "cannot-start")?;
            Report { view: words.view()?, cannot_start, incarnation }
        }
        "unavailable" => Unavailable { why: "no view can be formed".into() },
        "seal" => {
            let old = view_in(words, "old")?;
            Seal { claim: words.view()?, old, config: entry.config.clone() }
        }
        "sealed" => {
            let ordered = words.value("ordered")?.map(Position);
            let held = words.number("held")?;
            let state = ordered.map(|ordered| SealedState { ordered, held });
            if state.is_none() && !words.has("nothing") {
                return Err("sealed with what state? or 'nothing'?".into());
            }
            Sealed { claim: words.view()?, incarnation, state }
        }
        "preempted" => Preempted { claim: words.view()? },
        "ahead" => {
            let view = view_in(words, "view")?;
            Ahead { claim: words.view()?, view }
        }
        "flush" => {
            // The default is view 1, and incarnation 1 of the replica.
            let old = Some(view_in(words, "old")?).filter(|old| *old != ViewNumber::NONE);
            let incarnation = Incarnation(words.value("incarnation")?.unwrap_or(1));
            let view = read_view(words, entry)?;
            Flush { claim: view.number, old: old.unwrap_or(ViewNumber(1)), incarnation, view }
        }
        "flushed" => {
            let (claim, end) = (words.view()?, words.position("end")?);
            Flushed { claim, first: words.position("first")?, end, carried: words.sessions(end)?.into() }
        }
        "stage" => stage(words, entry)?,
        "flushing" => Flushing { claim: words.view()?, bound: words.position("bound")? },
        "underway" => Underway { claim: words.view()? },
        "probe" => Probe,
        "recover" => Recover { request: words.number("request")?, accepts: words.has("accepts-loss") },
        "last-change" => LastChange { request: words.number("request")? },
        "staged" => Staged { claim: words.view()?, incarnation },
        _ => return Ok(None),
    };
    Ok(Some(message))
}

fn catalog(kind: &str, words: &mut Words, entry: &LogEntry) -> Parsed<Option<control::Message>> {
    use control::Message::*;
    let request = words.number("request")?;
    let message = match kind {
        "join" | "move" => {
            let address = words.value("at")?;
            let version = words.value("version")?;
            let node = NodeId(words.next()?.parse().map_err(|_| "which node joins?")?);
            let node = NodeAddress { node, address: address.unwrap_or_else(|| format!("node{node}:7700")) };
            version.map_or(Join { node: node.clone() }, |version| Move { node, version })
        }
        "cluster" => {
            let nodes = words.value::<String>("nodes")?.ok_or("which nodes?")?;
            let nodes =
                nodes.split(',').map(|word| Ok(read_member(word)?.node)).collect::<Parsed<Vec<_>>>()?;
            let address = |node: NodeId| NodeAddress { node, address: format!("node{node}:7700") };
            Cluster { nodes: nodes.into_iter().map(address).collect() }
        }
        "create" => {
            let config = LogConfig {
                sequencers: words.value("sequencers")?.unwrap_or(1),
                shards: words.value("shards")?.unwrap_or(1),
                replicas: words.value("replicas")?.unwrap_or(1),
                ..LogConfig::default()
            };
            Create { request, name: words.next()?, config }
        }
        "delete" => Delete { request, name: words.next()?, log: LogId(words.number("log")?) },
        "add-shard" => {
            let shard = ShardId(words.value("shard")?.ok_or("which shard?")?);
            AddShard { request, log: LogId(words.number("log")?), shard }
        }
        "remove-shard" => {
            let shard = ShardId(words.value("shard")?.ok_or("which shard?")?);
            RemoveShard { request, log: LogId(words.number("log")?), shard }
        }
        "lookup" => Lookup { request, name: words.next()? },
        "list" => List { request },
        "get-log" => Get { log: LogId(words.number("log")?) },
        "retired" => Retired {
            log: LogId(words.number("log")?),
            node: NodeId(words.value("node")?.ok_or("which node?")?),
        },
        "found" => Found { request, entry: entry.clone(), nodes: vec![] },
        "no-such-log" => Refused { request, refusal: Refusal::NoSuchLog { name: entry.name.clone() } },
        _ => return Ok(None),
    };
    Ok(Some(message))
}

fn maps(kind: &str, words: &mut Words) -> Parsed<Option<shard::Message>> {
    use shard::Message::*;
    Ok(Some(match kind {
        "mapped-records" => {
            let (request, upto) = (words.number("request")?, words.position("upto")?);
            MappedRecords { request, records: read_stored(words), owned: words.owned()?, upto }
        }
        "map" => Map {
            request: words.number("request")?,
            from: words.position("from")?,
            end: words.position("end")?,
        },
        _ => return Ok(None),
    }))
}
