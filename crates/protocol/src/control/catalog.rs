//! The rules of the view register and its catalog. Each implementation applies them: a role of a
//! node ([`Register`](super::register::Register)), or etcd.

use std::collections::BTreeSet;

use seriatim_model::config::{check_log_name, is_log_name};
use seriatim_model::{
    EndedSession, EndedSessions, LogConfig, LogEntry, LogId, NodeId, Pin, Position, RetentionChange,
    RetiredShard, ShardId, ViewHistory, ViewNumber, limits,
};

use super::message::{Message, Refusal};
use super::shard_set;

/// The low bits of an id count the cluster's logs.
const COUNT_BITS: u32 = 24;
/// The bits above are random. An id has 53 bits at most, which JSON readers keep exactly.
const RANDOM_BITS: u32 = 29;

/// The id of the log after `last`. A register that was set back repeats counts, but not random
/// bits, so ids stay unique.
#[must_use]
pub fn id_after(last: LogId, random: u64) -> LogId {
    let drawn = random & ((1 << RANDOM_BITS) - 1);
    LogId(drawn << COUNT_BITS | (count(last) + 1))
}

/// Number of logs created up to this one.
#[must_use]
pub fn count(log: LogId) -> u64 {
    log.0 & ((1 << COUNT_BITS) - 1)
}

/// Checks the name of a new log.
///
/// # Errors
/// If it is invalid.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    check_log_name(name).map_err(|reason| Refusal::Impossible { reason })
}

/// The answer if a new log's name exists: the log's id, as before, if the request `is_repeated`.
///
/// # Errors
/// If another request created the log.
pub fn created_before(entry: &LogEntry, is_repeated: bool, config: &LogConfig) -> Result<LogId, Refusal> {
    // The limits may have changed since.
    let asked = LogConfig { retention: entry.config.retention, ..config.clone() };
    if is_repeated && entry.config == asked.fitted() {
        return Ok(entry.id);
    }
    Err(Refusal::Exists { name: entry.name.clone() })
}

/// The entry of a new log with replicas on `nodes`; each log starts at another node.
///
/// # Errors
/// If these nodes cannot hold it.
pub fn place(id: LogId, name: String, config: LogConfig, nodes: &[NodeId]) -> Result<LogEntry, Refusal> {
    let config = config.fitted();
    config.check(nodes.len() as u32).map_err(|reason| Refusal::Impossible { reason })?;
    let sequencers = (0..u64::from(config.sequencers)).map(|s| pick(nodes, count(id) - 1 + s));
    Ok(LogEntry {
        id,
        name,
        sequencers: sequencers.collect(),
        shards: (0..config.shards).map(|shard| replicas_of(id, ShardId(shard), &config, nodes)).collect(),
        leaving: vec![],
        version: 0,
        claimed: ViewNumber::NONE,
        claimant: 0,
        view: None,
        history: ViewHistory::default(),
        unavailable: None,
        ended: EndedSessions::default(),
        pins: vec![],
        config,
    })
}

fn replicas_of(id: LogId, shard: ShardId, config: &LogConfig, nodes: &[NodeId]) -> Vec<NodeId> {
    let first = count(id) + u64::from(shard.0);
    (0..u64::from(config.replicas)).map(|replica| pick(nodes, first + replica)).collect()
}

fn pick(nodes: &[NodeId], index: u64) -> NodeId {
    nodes[(index % nodes.len() as u64) as usize]
}

/// The entry with the additional shard, on some of `nodes`; `None` if it exists.
///
/// # Errors
/// If `shard` is not the next number, or no shard can be added.
pub fn with_shard(entry: &LogEntry, shard: ShardId, nodes: &[NodeId]) -> Result<Option<LogEntry>, Refusal> {
    let impossible = |reason| Err(Refusal::Impossible { reason });
    let count = entry.shards.len() as u32;
    if shard.0 < count {
        return Ok(None);
    }
    if shard.0 > count {
        return impossible(format!("the next shard of '{}' is {count}, not {shard}", entry.name));
    }
    if count >= limits::MAX_SHARDS {
        return impossible(format!("'{}' has had {count} shards, the most that a log can have", entry.name));
    }
    entry.config.check(nodes.len() as u32).map_err(|reason| Refusal::Impossible { reason })?;
    let mut entry = entry.clone();
    entry.shards.push(replicas_of(entry.id, shard, &entry.config, nodes));
    Ok(Some(entry))
}

/// The entry with a closed `shard`; `None` if it is closed already.
///
/// # Errors
/// If `shard` does not exist, or is the last open one.
pub fn without_shard(entry: &LogEntry, shard: ShardId) -> Result<Option<LogEntry>, Refusal> {
    let name = &entry.name;
    let Some(nodes) = entry.shards.get(shard.0 as usize) else {
        return Err(Refusal::Impossible { reason: format!("'{name}' has no shard {shard}") });
    };
    if nodes.is_empty() || entry.leaving.contains(&shard) || shard_set::is_retired(entry, shard) {
        return Ok(None);
    }
    let takes_part = |other: &ShardId| entry.view.as_ref().is_none_or(|view| view.shard(*other).is_some());
    let mut others =
        shard_set::shards(entry).filter(|other| *other != shard && !entry.leaving.contains(other));
    if !others.any(|other| takes_part(&other)) {
        let reason =
            format!("no other shard of '{name}' takes records: add one before you remove shard {shard}");
        return Err(Refusal::Impossible { reason });
    }
    let mut entry = entry.clone();
    entry.leaving.push(shard);
    entry.leaving.sort_unstable();
    Ok(Some(entry))
}

/// The entry with changed limits; `None` if they are equal.
///
/// # Errors
/// If the limits are invalid.
pub fn with_retention(entry: &LogEntry, change: RetentionChange) -> Result<Option<LogEntry>, Refusal> {
    let retention = change.applied_to(entry.config.retention);
    retention.check().map_err(|reason| Refusal::Impossible { reason })?;
    if retention == entry.config.retention {
        return Ok(None);
    }
    let config = LogConfig { retention, ..entry.config.clone() };
    Ok(Some(LogEntry { config, ..entry.clone() }))
}

/// The entry with a new pin, or with a pin that moved up or has another `most_bytes`; `None` if
/// nothing changes. A broken pin is set like a new one.
///
/// # Errors
/// If the name or the bytes are invalid, the log has [`limits::MAX_PINS`] other pins, or the pin is
/// intact and lies higher: a reader that raised it needs nothing below, and the log may be trimmed
/// there.
pub fn with_pin(
    entry: &LogEntry,
    name: &str,
    position: Position,
    most_bytes: Option<u64>,
) -> Result<Option<LogEntry>, Refusal> {
    let impossible = |reason| Err(Refusal::Impossible { reason });
    check_pin(name, most_bytes)?;
    let log = &entry.name;
    let place = entry.pins.binary_search_by(|pin| pin.name.as_str().cmp(name));
    if place.is_err() && entry.pins.len() >= limits::MAX_PINS {
        return impossible(format!(
            "'{log}' has {} pins, the most that a log can have: remove one of them first",
            limits::MAX_PINS
        ));
    }
    let known = place.ok().map(|at| &entry.pins[at]);
    if let Some(higher) = known.filter(|pin| !pin.is_broken && pin.position > position) {
        return impossible(format!(
            "the pin '{name}' of '{log}' is at {}, and a pin moves only up: remove it before you set it at {position}",
            higher.position
        ));
    }
    let most_bytes = most_bytes.or(known.map(|pin| pin.most_bytes)).unwrap_or(limits::PIN_BYTES);
    let pin = Pin { name: name.to_owned(), position, most_bytes, is_broken: false };
    if known == Some(&pin) {
        return Ok(None);
    }
    let mut entry = entry.clone();
    match place {
        Ok(at) => entry.pins[at] = pin,
        Err(at) => entry.pins.insert(at, pin),
    }
    Ok(Some(entry))
}

/// Checks the arguments of a pin.
///
/// # Errors
/// The wrong argument and its range.
pub fn check_pin(name: &str, most_bytes: Option<u64>) -> Result<(), Refusal> {
    if !is_log_name(name) {
        let shown: String = name.chars().take(limits::MAX_NAME_BYTES).collect();
        let reason = format!(
            "'{shown}' cannot name a pin: use up to {} letters, digits, '-', '_' and '.', not starting with '-' or '.'",
            limits::MAX_NAME_BYTES
        );
        return Err(Refusal::Impossible { reason });
    }
    let (least, most) = (limits::RETAIN_BYTES.start() >> 10, limits::RETAIN_BYTES.end() >> 50);
    if let Some(bytes) = most_bytes.filter(|bytes| !limits::RETAIN_BYTES.contains(bytes)) {
        let reason = format!("a pin keeps {least} KiB to {most} PiB, not {bytes} bytes");
        return Err(Refusal::Impossible { reason });
    }
    Ok(())
}

/// The entry without the pin; `None` if the log has no such pin.
#[must_use]
pub fn without_pin(entry: &LogEntry, name: &str) -> Option<LogEntry> {
    entry.pins.iter().any(|pin| pin.name == name).then(|| {
        let mut entry = entry.clone();
        entry.pins.retain(|pin| pin.name != name);
        entry
    })
}

/// The node that applies a log's limits.
#[must_use]
pub fn retained_by(entry: &LogEntry) -> Option<NodeId> {
    entry.view.as_ref().map(|view| view.leader)
}

/// The entry with the end of a session in `view`, among at most `most` ends. `None` if another
/// client ended the session, its end may have been forgotten, or the view is over: the entry shows
/// which.
#[must_use]
pub fn with_ended(
    entry: &LogEntry,
    view: ViewNumber,
    ended: EndedSession,
    since: Position,
    most: usize,
) -> Option<LogEntry> {
    // In other orderings the ordering role remembers ends.
    let is_kept_here = !entry.config.order.properties().remembers_sessions;
    if !is_kept_here || entry.view_number() != view || view == ViewNumber::NONE {
        return None;
    }
    let mut entry = entry.clone();
    entry.ended.add(ended, since, most).then_some(entry)
}

/// Whether the log needs a view that a controller may not know of: its first, or one with other
/// shards.
#[must_use]
pub fn waits_for_view(entry: &LogEntry) -> bool {
    entry.view.is_none() || shard_set::due(entry, usize::MAX).is_some()
}

/// The nodes that may host a role of a log.
#[must_use]
pub fn hosts(entry: &LogEntry) -> BTreeSet<NodeId> {
    entry.shards.iter().flatten().copied().chain(needed(entry)).collect()
}

/// The nodes that a log needs: members, copies of retired shards, and assigned nodes of other
/// shards.
#[must_use]
pub fn needed(entry: &LogEntry) -> BTreeSet<NodeId> {
    let retired = entry.view.iter().flat_map(|view| view.retired.iter().map(RetiredShard::copies));
    retired
        .flat_map(|members| &members.replicas)
        .map(|member| member.node)
        .chain(taking_part(entry))
        .collect()
}

/// The nodes of [`needed`] without copies of retired shards.
#[must_use]
pub fn taking_part(entry: &LogEntry) -> BTreeSet<NodeId> {
    let of_shards = shard_set::shards(entry).flat_map(|shard| &entry.shards[shard.0 as usize]);
    let meant = entry.sequencers.iter().chain(of_shards).copied();
    // A spare may stand in for an assigned node.
    let members = entry.view.iter().flat_map(|view| {
        view.sequencers.iter().chain(view.shards.iter().flat_map(|members| &members.replicas))
    });
    meant.chain(members.map(|member| member.node)).collect()
}

/// Answers a get or a compare-and-set with the present entry.
#[must_use]
pub fn current(log: LogId, entry: Option<LogEntry>) -> Message {
    match entry {
        Some(entry) => Message::Current { entry },
        None => Message::Gone { log },
    }
}

/// Whether `proposed` derives from the current version.
#[must_use]
pub fn succeeds(current: &LogEntry, proposed: &LogEntry) -> bool {
    current.version == proposed.version
}

/// The next version, after a successful compare-and-set.
#[must_use]
pub fn successor(mut proposed: LogEntry) -> LogEntry {
    proposed.version += 1;
    proposed
}

/// Answers a change of the catalog.
#[must_use]
pub fn answer(request: u64, outcome: Result<LogId, Refusal>) -> Message {
    match outcome {
        Ok(log) => Message::Done { request, log },
        Err(refusal) => Message::Refused { request, refusal },
    }
}

/// The entries in the order of names.
#[must_use]
pub fn listed(mut entries: Vec<LogEntry>) -> Vec<LogEntry> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

/// The answer to the deletion of an unknown log; `last` is the latest id. If the log once existed,
/// the question is a retransmission, or another client was faster: it counts as done.
///
/// # Errors
/// If there never was such a log.
pub fn deleted_before(name: String, log: LogId, last: LogId) -> Result<LogId, Refusal> {
    check_name(&name)?;
    if (1..=count(last)).contains(&count(log)) { Ok(log) } else { Err(Refusal::NoSuchLog { name }) }
}

/// Rejects a request for a deleted log.
#[must_use]
pub fn gone(log: LogId) -> Refusal {
    Refusal::Impossible { reason: format!("log {log} was deleted") }
}

/// Rejects an unknown name; repeats only a part of an invalid name.
#[must_use]
pub fn not_found(name: String) -> Refusal {
    match check_name(&name) {
        Ok(()) => Refusal::NoSuchLog { name },
        Err(refusal) => refusal,
    }
}

/// The nodes to notify of a deletion: all hosts and all known nodes. A spare of an unregistered
/// view may have a replica that no entry names, and a notified node ignores late messages that
/// would create one.
#[must_use]
pub fn told_of_deletion(entry: &LogEntry, known: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
    hosts(entry).into_iter().chain(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u32) -> Vec<NodeId> {
        (1..=count).map(NodeId).collect()
    }

    #[test]
    fn replicas_start_at_another_node_for_each_log() {
        let config = LogConfig { sequencers: 2, shards: 1, replicas: 2, ..LogConfig::default() };
        let entry = place(LogId(1), "a".into(), config.clone(), &nodes(3)).unwrap();
        assert_eq!(entry.sequencers, [NodeId(1), NodeId(2)]);
        assert_eq!(entry.shards, [[NodeId(2), NodeId(3)]]);
        assert_eq!(hosts(&entry).len(), 3);
        assert_eq!(told_of_deletion(&entry, nodes(4)), nodes(4).into_iter().collect());
        let entry = place(LogId(2), "b".into(), config, &nodes(3)).unwrap();
        assert_eq!(entry.sequencers, [NodeId(2), NodeId(3)]);
        assert_eq!(entry.shards, [[NodeId(3), NodeId(1)]]);
    }

    #[test]
    fn an_id_is_not_given_again_by_a_register_that_was_set_back() {
        let last = id_after(LogId(0), 0);
        assert_eq!(last, LogId(1));
        let (lost, next) = (id_after(last, u64::MAX), id_after(last, 7 << 40 | 7));
        assert_eq!((count(lost), count(next)), (2, 2));
        assert_ne!(lost, next);
        assert!(lost.0 < 1 << 53);
        // Random bits do not affect the placement.
        let placed = |id| place(id, "a".into(), LogConfig::default(), &nodes(5)).unwrap();
        assert_eq!(placed(lost).shards, placed(LogId(2)).shards);
        assert_eq!(placed(lost).sequencers, placed(LogId(2)).sequencers);
    }

    #[test]
    fn what_the_nodes_cannot_hold_is_refused() {
        for too_few in [vec![], nodes(2)] {
            let refused = place(LogId(1), "a".into(), LogConfig::default(), &too_few);
            assert!(matches!(refused, Err(Refusal::Impossible { .. })));
        }
    }

    #[test]
    fn a_creation_that_comes_again_is_known() {
        let config = LogConfig::default();
        let entry = place(LogId(1), "a".into(), config.clone(), &nodes(3)).unwrap();
        assert_eq!(created_before(&entry, true, &config), Ok(LogId(1)));
        let exists = Err(Refusal::Exists { name: "a".into() });
        assert_eq!(created_before(&entry, false, &config), exists);
        assert_eq!(created_before(&entry, true, &LogConfig { shards: 1, ..config }), exists);
    }

    #[test]
    fn a_deletion_that_comes_again_is_done() {
        let deleted = |name: &str, log| deleted_before(name.into(), LogId(log), LogId(2));
        assert_eq!(deleted("a", 2), Ok(LogId(2)));
        for never in [0, 3] {
            assert_eq!(deleted("a", never), Err(Refusal::NoSuchLog { name: "a".into() }));
        }
        assert!(matches!(deleted("a/b", 2), Err(Refusal::Impossible { .. })));
    }

    #[test]
    fn shards_are_added_in_turn_and_only_once() {
        let config = LogConfig { replicas: 2, ..LogConfig::default() };
        let entry = place(LogId(1), "a".into(), config, &nodes(3)).unwrap();
        let more = with_shard(&entry, ShardId(2), &nodes(4)).unwrap().unwrap();
        assert_eq!(more.shards[2], [NodeId(4), NodeId(1)]);
        assert_eq!(with_shard(&more, ShardId(2), &nodes(4)), Ok(None));
        for (shard, nodes) in [(ShardId(4), nodes(4)), (ShardId(3), nodes(1))] {
            assert!(matches!(with_shard(&more, shard, &nodes), Err(Refusal::Impossible { .. })));
        }
    }

    #[test]
    fn somebody_always_takes_records() {
        let entry = place(LogId(1), "a".into(), LogConfig::default(), &nodes(3)).unwrap();
        let less = without_shard(&entry, ShardId(0)).unwrap().unwrap();
        assert_eq!(less.leaving, [ShardId(0)]);
        assert_eq!(without_shard(&less, ShardId(0)), Ok(None));
        for shard in [ShardId(1), ShardId(2)] {
            assert!(matches!(without_shard(&less, shard), Err(Refusal::Impossible { .. })));
        }
    }

    #[test]
    fn a_pin_moves_up_and_a_broken_one_anywhere() {
        let plain = place(LogId(1), "a".into(), LogConfig::default(), &nodes(3)).unwrap();
        let set =
            |entry: &LogEntry, name: &str, position, bytes| with_pin(entry, name, Position(position), bytes);
        let entry = set(&plain, "q", 10, None).unwrap().unwrap();
        let entry = set(&entry, "p", 5, Some(1 << 20)).unwrap().unwrap();
        let pin = |name: &str, position, most_bytes| Pin {
            name: name.into(),
            position: Position(position),
            most_bytes,
            is_broken: false,
        };
        assert_eq!(entry.pins, [pin("p", 5, 1 << 20), pin("q", 10, limits::PIN_BYTES)]);
        assert_eq!(set(&entry, "p", 5, None), Ok(None), "it comes again");
        let mut raised = set(&entry, "p", 8, None).unwrap().unwrap();
        assert_eq!(raised.pins[0], pin("p", 8, 1 << 20), "its limit stays");
        let refused = set(&raised, "p", 7, None).unwrap_err().to_string();
        assert!(refused.contains("is at 8, and a pin moves only up"), "{refused}");
        raised.pins[0].is_broken = true;
        assert_eq!(set(&raised, "p", 7, None).unwrap().unwrap().pins[0], pin("p", 7, 1 << 20));
        assert_eq!(without_pin(&raised, "p").unwrap().pins, [pin("q", 10, limits::PIN_BYTES)]);
        assert_eq!(without_pin(&raised, "r"), None);
    }

    #[test]
    fn pins_that_no_log_can_have_are_refused_in_words() {
        let mut entry = place(LogId(1), "a".into(), LogConfig::default(), &nodes(3)).unwrap();
        for (name, bytes, words) in [
            ("", None, "'' cannot name a pin"),
            ("a/b", None, "'a/b' cannot name a pin"),
            ("p", Some(10), "a pin keeps 64 KiB to 256 PiB, not 10 bytes"),
            ("p", Some(u64::MAX), "a pin keeps 64 KiB to 256 PiB"),
        ] {
            let refused = with_pin(&entry, name, Position(1), bytes).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
        for number in 0..limits::MAX_PINS {
            entry = with_pin(&entry, &format!("p{number}"), Position(1), None).unwrap().unwrap();
        }
        let refused = with_pin(&entry, "q", Position(1), None).unwrap_err().to_string();
        assert!(refused.contains("'a' has 64 pins"), "{refused}");
        assert!(with_pin(&entry, "p0", Position(2), None).unwrap().is_some(), "others still move");
    }

    #[test]
    fn a_proposal_derived_from_another_version_fails() {
        let entry = place(LogId(1), "a".into(), LogConfig::default(), &nodes(3)).unwrap();
        let next = successor(entry.clone());
        assert!(succeeds(&entry, &entry) && !succeeds(&next, &entry));
    }

    #[test]
    fn a_name_that_cannot_be_is_not_looked_for() {
        assert_eq!(not_found("a".into()), Refusal::NoSuchLog { name: "a".into() });
        assert!(matches!(not_found("a/b".into()), Refusal::Impossible { .. }));
    }
}
