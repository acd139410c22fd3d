//! Judges nodes and logs by the reports of nodes about themselves and each other, and by the
//! progress of logs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indicatif::HumanDuration;
use seriatim_client::{Ailment, Condition, LeftOut, LogEntry, LogStatus, NodeId, Parting, parting};
use seriatim_model::{RetiredShard, ShardId, limits::CONDITION_LOGS};

use super::super::admin::drain;
use super::Cluster;

/// Stall after which a log is reported. Nodes check once a second.
const STANDS_AFTER: Duration = Duration::from_secs(3);

/// A journal is slow if its writes take this many times the usual time of the cluster.
const SLOW: u64 = 10;

/// A state in one word, whether it is well, and the reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) state: &'static str,
    pub(super) is_well: bool,
    pub(super) reasons: Vec<String>,
}

impl Health {
    fn well(state: &'static str) -> Self {
        Self { state, is_well: true, reasons: vec![] }
    }

    fn unwell(state: &'static str, reasons: Vec<String>) -> Self {
        Self { state, is_well: false, reasons }
    }
}

#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) has_register: bool,
    pub(super) nodes: Vec<Health>,
    pub(super) logs: Vec<LogHealth>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogHealth {
    pub(super) health: Health,
    /// Age of the oldest acknowledged append that is not stable. None if there is no such append,
    /// or no node reports it.
    pub(super) lag: Option<Duration>,
    /// Bytes of the log's files on all reporting nodes.
    pub(super) bytes: Option<u64>,
}

impl Judgement {
    pub(super) fn is_well(&self) -> bool {
        let logs = self.logs.iter().map(|log| &log.health);
        self.has_register && self.nodes.iter().chain(logs).all(|health| health.is_well)
    }
}

pub(super) fn judge(cluster: &Cluster) -> Judgement {
    let usual_us = usual_write(cluster.nodes.iter().filter_map(|(_, condition)| condition.as_ref()));
    let suspected = suspicions(cluster);
    let able = able(cluster);
    let nodes: Vec<Health> = cluster
        .nodes
        .iter()
        .map(|(node, condition)| {
            let by = suspected.get(&node.node).map(Vec::as_slice).unwrap_or_default();
            let health = judge_node(condition.as_ref(), by, usual_us);
            match cluster.partings.get(&node.node) {
                Some(Parting::Drained { by }) => {
                    let left = logs_of(cluster, node.node);
                    let obstacle = |entry| drain::obstacle(entry, node.node, *by, &able);
                    let obstacles: Vec<String> = left.iter().copied().filter_map(obstacle).collect();
                    judge_drained(health, left.len(), &obstacles)
                }
                Some(Parting::Removed) | None => health,
            }
        })
        .collect();
    let ailing: BTreeMap<NodeId, &'static str> = std::iter::zip(&cluster.nodes, &nodes)
        .filter(|(_, health)| !health.is_well && health.state != "draining")
        .map(|((node, _), health)| (node.node, health.state))
        .collect();
    let logs = cluster.logs.iter().map(|log| judge_log(cluster, log, &ailing)).collect();
    Judgement { has_register: cluster.has_register, nodes, logs }
}

/// The suspected nodes, each with the nodes that suspect it.
fn suspicions(cluster: &Cluster) -> BTreeMap<NodeId, Vec<NodeId>> {
    let mut suspected: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for (by, condition) in &cluster.nodes {
        for node in condition.iter().flat_map(|condition| &condition.suspects) {
            suspected.entry(*node).or_default().push(by.node);
        }
    }
    suspected
}

/// Usual time of a journal write, in microseconds: the lower median.
fn usual_write<'a>(conditions: impl Iterator<Item = &'a Condition>) -> u64 {
    let mut times: Vec<u64> =
        conditions.map(|condition| condition.journal_write_us).filter(|us| *us > 0).collect();
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

fn judge_node(condition: Option<&Condition>, suspected_by: &[NodeId], usual_us: u64) -> Health {
    let Some(condition) = condition else { return Health::unwell("down", vec!["not responding".into()]) };
    let mut reasons = vec![];
    let mut state = None;
    match condition.ailment {
        Some(Ailment::DiskStalled) => {
            state = Some("stalled");
            reasons.push("a disk write does not end: check the disk".to_owned());
        }
        Some(Ailment::Stuck) => {
            state = Some("stalled");
            reasons.push("it makes no progress: a single step does not end".to_owned());
        }
        Some(Ailment::DiskFull | Ailment::Unheard) | None => {}
    }
    if condition.has_full_disk {
        let left = condition.free_bytes.map_or(String::new(), |bytes| format!("{} MiB free, ", bytes >> 20));
        let wanted = condition.wanted_bytes;
        let until = wanted.map(|bytes| format!("appends here resume at {} MiB", bytes.div_ceil(1 << 20)));
        let until = until.unwrap_or_else(|| "appends here are blocked".to_owned());
        reasons.push(format!("disk full: {left}{until}; make room"));
        state = state.or(Some("full"));
    }
    if let Some(percent) = condition.free_percent.filter(|_| !condition.has_full_disk) {
        let left = condition.free_bytes.map_or(String::new(), |bytes| format!(", {} MiB", bytes >> 20));
        let until = condition.full_in_s.map_or(String::new(), |seconds| {
            let time = HumanDuration(Duration::from_secs(seconds));
            format!(", it will be full in about {time} at the present rate")
        });
        reasons.push(format!("{percent} % of its disk is free{left}: make room{until}"));
    }
    if !suspected_by.is_empty() {
        reasons.push(format!("suspected by {}", named(suspected_by)));
        state = state.or(Some("suspected"));
    }
    if !condition.suspects.is_empty() {
        reasons.push(format!("suspects {}", named(&condition.suspects)));
    }
    if usual_us > 0 && condition.journal_write_us >= SLOW * usual_us {
        let (took, usual) = (condition.journal_write_us / 1000, usual_us as f64 / 1000.0);
        reasons.push(format!("disk is slow: journal writes take {took} ms (normally {usual:.1} ms)"));
    }
    match state {
        Some(state) => Health::unwell(state, reasons),
        None => Health { reasons, ..Health::well("up") },
    }
}

fn logs_of(cluster: &Cluster, node: NodeId) -> Vec<&LogEntry> {
    cluster.logs.iter().map(|log| &log.entry).filter(|entry| !parting::is_rid_of(entry, node)).collect()
}

/// The responding nodes that stay and have room.
fn able(cluster: &Cluster) -> BTreeSet<NodeId> {
    let stays = |node: &NodeId| !cluster.partings.contains_key(node);
    let has_room = |condition: &Condition| !condition.has_full_disk;
    let able = cluster.nodes.iter().filter(|(_, condition)| condition.as_ref().is_some_and(has_room));
    able.map(|(node, _)| node.node).filter(stays).collect()
}

/// Judges a draining node. A fully drained node is well even if it is down; an obstacle is not.
fn judge_drained(mut health: Health, left: usize, obstacles: &[String]) -> Health {
    if left > 0 {
        let logs = if left == 1 { "1 log".to_owned() } else { format!("{left} logs") };
        health.reasons.insert(0, format!("{logs} left to move"));
        if !obstacles.is_empty() {
            health.reasons.insert(1, format!("it cannot be drained yet: {}", drain::in_short(obstacles)));
            health.is_well = false;
        }
    } else {
        health.reasons.insert(0, "fully drained: stop it, then run 'seriatim admin remove'".to_owned());
        health.is_well = true;
    }
    if health.state == "up" {
        health.state = "draining";
    }
    health
}

fn named(nodes: &[NodeId]) -> String {
    let plural = if nodes.len() == 1 { "" } else { "s" };
    let numbers = nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("node{plural} {numbers}")
}

/// The condition of each node. None for a node that does not respond.
type Conditions<'a> = BTreeMap<NodeId, Option<&'a Condition>>;

fn judge_log(cluster: &Cluster, log: &LogStatus, ailing: &BTreeMap<NodeId, &'static str>) -> LogHealth {
    let members: BTreeSet<NodeId> =
        log.entry.view.iter().flat_map(|view| &view.sequencers).map(|member| member.node).collect();
    let (mut stands, mut lag, mut bytes) = (Duration::ZERO, Duration::ZERO, None);
    for (node, condition) in &cluster.nodes {
        let told = condition.iter().flat_map(|condition| &condition.logs);
        for told in told.filter(|told| told.log == log.entry.id) {
            bytes = told.bytes.map(|more| bytes.unwrap_or(0) + more).or(bytes);
            // A node outside of the view stalls, and no append waits for it.
            if told.sequences && members.contains(&node.node) {
                stands = stands.max(Duration::from_millis(told.stands_ms));
                lag = lag.max(Duration::from_millis(told.lag_ms));
            }
        }
    }
    let mut health = judge_progress(&log.entry, log.open, stands, ailing);
    let told: Conditions<'_> =
        cluster.nodes.iter().map(|(node, condition)| (node.node, condition.as_ref())).collect();
    let copies = [incomplete(&told, &log.entry), retired(&told, &log.entry, ailing)].concat();
    if !copies.is_empty() && matches!(health.state, "ok" | "reduced") {
        health = Health::unwell("reduced", [health.reasons, copies].concat());
    }
    if health.state == "reduced" {
        health.reasons.extend(left_out(&told, &log.entry, ailing));
    }
    LogHealth { health, lag: (!lag.is_zero()).then_some(lag), bytes }
}

/// Why and until when the view leaves nodes out, as its founder reports.
fn left_out(told: &Conditions<'_>, entry: &LogEntry, ailing: &BTreeMap<NodeId, &'static str>) -> Vec<String> {
    let all = told.values().flatten().flat_map(|condition| &condition.left_out);
    let of_log = all.filter(|left_out| left_out.log == entry.id);
    of_log.map(|left_out| left_out_in_words(left_out, ailing.get(&left_out.node).copied())).collect()
}

fn left_out_in_words(left_out: &LeftOut, state: Option<&str>) -> String {
    let LeftOut { node, ago_ms, why, back_in_ms, .. } = left_out;
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    let until = match (state, back_in_ms) {
        (Some("full"), _) => "it is taken back when its disk has room".to_owned(),
        (Some("down"), _) | (_, None) => "it is taken back when it answers".to_owned(),
        (_, Some(0)) => "it is being taken back".to_owned(),
        (_, Some(millis)) => format!("it is taken back within {} s", millis.div_ceil(1000)),
    };
    format!("node {node} was left out {} s ago{why}; {until}", ago_ms / 1000)
}

/// Shard replicas of the view that are catching up.
fn incomplete(told: &Conditions<'_>, entry: &LogEntry) -> Vec<String> {
    let mut reasons = vec![];
    for members in entry.view.iter().flat_map(|view| &view.shards) {
        let nodes = members.replicas.iter().map(|member| member.node);
        let nodes: Vec<NodeId> = nodes.filter(|node| lacks_some(told, entry, members.shard, *node)).collect();
        if !nodes.is_empty() {
            let (shard, verb) = (members.shard, if nodes.len() == 1 { "is" } else { "are" });
            reasons.push(format!("shard {shard}: {} {verb} catching up", named(&nodes)));
        }
    }
    reasons
}

/// Retired shards with fewer whole copies than the log's number of replicas.
fn retired(told: &Conditions<'_>, entry: &LogEntry, ailing: &BTreeMap<NodeId, &'static str>) -> Vec<String> {
    let shards = entry.view.iter().flat_map(|view| &view.retired);
    shards.filter_map(|retired| copies_of(told, entry, retired, ailing)).collect()
}

/// The shortage of whole copies of a retired shard. None if there are enough.
fn copies_of(
    told: &Conditions<'_>,
    entry: &LogEntry,
    retired: &RetiredShard,
    ailing: &BTreeMap<NodeId, &'static str>,
) -> Option<String> {
    let (shard, name, wanted) = (retired.shard, &entry.name, entry.config.replicas as usize);
    let meant: Vec<NodeId> = retired.nodes().collect();
    let on = |node| replica_on(told, entry, shard, node);
    let whole: Vec<NodeId> =
        told.keys().copied().filter(|node| on(*node).is_whole(meant.contains(node))).collect();
    if whole.len() >= wanted {
        return None;
    }
    if !whole.is_empty() {
        let others = meant.iter().filter(|node| !whole.contains(node));
        let others = others.map(|node| format!(", node {node} {}", on(*node).in_words()));
        let (count, nodes, others) = (whole.len(), named(&whole), others.collect::<String>());
        return Some(format!(
            "shard {shard} is retired: {count} of {wanted} whole copies, on {nodes}{others}"
        ));
    }
    let there: Vec<NodeId> = meant.iter().filter(|node| !ailing.contains_key(node)).copied().collect();
    Some(match &there[..] {
        [] => {
            let (nodes, until) = (without(&meant, &[], ailing), retired.until);
            format!("shard {shard} is retired{nodes}: reads of its positions below {until} are blocked")
        }
        there => format!(
            "shard {shard} is retired, and {} {} only a part of it: reads of the rest are blocked; 'seriatim admin recover \
             {name}' shows the rest",
            named(there),
            if there.len() == 1 { "holds" } else { "hold" }
        ),
    })
}

/// State of a shard's replica, as its node reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicaOn {
    Unknown,
    /// The node reports no replicas: an earlier build, or a node with many logs.
    Untold,
    None,
    /// It lacks a part of the shard.
    Incomplete,
    Whole,
}

impl ReplicaOn {
    /// Whether the copy counts as whole. A node that reports no replicas counts if it is `meant` to
    /// have one.
    fn is_whole(self, meant: bool) -> bool {
        self == Self::Whole || self == Self::Untold && meant
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::Unknown => "is not responding",
            Self::None => "has no copy",
            Self::Incomplete => "lacks a part",
            Self::Untold | Self::Whole => "has everything",
        }
    }
}

fn lacks_some(told: &Conditions<'_>, entry: &LogEntry, shard: ShardId, node: NodeId) -> bool {
    matches!(replica_on(told, entry, shard, node), ReplicaOn::None | ReplicaOn::Incomplete)
}

fn replica_on(told: &Conditions<'_>, entry: &LogEntry, shard: ShardId, node: NodeId) -> ReplicaOn {
    let Some(Some(condition)) = told.get(&node) else { return ReplicaOn::Unknown };
    let is_told = !condition.version.is_empty() && condition.logs.len() < CONDITION_LOGS;
    let of_log = condition.logs.iter().find(|told| told.log == entry.id);
    let is_there = of_log.is_some_and(|told| told.shards.contains(&shard));
    let mut lacking = condition.incomplete.iter();
    match (lacking.any(|told| (told.log, told.shard) == (entry.id, shard)), is_there) {
        (true, _) => ReplicaOn::Incomplete,
        (false, true) => ReplicaOn::Whole,
        (false, false) if is_told => ReplicaOn::None,
        (false, false) => ReplicaOn::Untold,
    }
}

fn judge_progress(
    entry: &LogEntry,
    open: usize,
    stands: Duration,
    ailing: &BTreeMap<NodeId, &'static str>,
) -> Health {
    let seconds = stands.as_secs();
    if let Some(why) = &entry.unavailable {
        return Health::unwell("unavailable", vec![why.clone()]);
    }
    let Some(view) = entry.view.as_ref().filter(|view| open >= view.sequencers.len()) else {
        let for_long = if seconds > 0 { format!(" for {seconds} s") } else { String::new() };
        let reason = format!("no active view{for_long}, appends are blocked");
        return Health::unwell("changing view", vec![reason]);
    };
    let full = |node: &NodeId| ailing.get(node) == Some(&"full");
    let nodes: Vec<NodeId> = view.sequencers.iter().map(|member| member.node).filter(full).collect();
    let with_room = view.sequencers.len() - nodes.len();
    if !nodes.is_empty() && (with_room as u32) < entry.config.min_sequencers.min(entry.config.sequencers) {
        let (disks, are) = if nodes.len() == 1 { ("disk", "is") } else { ("disks", "are") };
        let reason = format!("appends are blocked, the {disks} of {} {are} full", named(&nodes));
        return Health::unwell("full", vec![reason]);
    }
    if stands >= STANDS_AFTER {
        let reason = format!("no progress for {seconds} s, although records wait");
        return Health::unwell("stalled", vec![reason]);
    }
    match missing(entry, open, ailing) {
        reasons if reasons.is_empty() => Health::well("ok"),
        reasons => Health::unwell("reduced", reasons),
    }
}

/// The nodes of `meant` that are not `there`, each with its state if it is ailing.
fn without(meant: &[NodeId], there: &[NodeId], ailing: &BTreeMap<NodeId, &'static str>) -> String {
    let away = meant.iter().filter(|node| !there.contains(node));
    let away: Vec<String> = away
        .map(|node| match ailing.get(node) {
            Some(state) => format!("{node} ({state})"),
            None => node.to_string(),
        })
        .collect();
    if away.is_empty() { String::new() } else { format!(", without node {}", away.join(", ")) }
}

/// The missing replicas of a log, with their nodes.
fn missing(entry: &LogEntry, open: usize, ailing: &BTreeMap<NodeId, &'static str>) -> Vec<String> {
    let Some(view) = &entry.view else { return vec![] };
    let config = &entry.config;
    let mut reasons = vec![];
    if open < config.sequencers as usize {
        let there: Vec<NodeId> = view.sequencers.iter().map(|member| member.node).collect();
        let without = without(&entry.sequencers, &there, ailing);
        reasons.push(format!("{open} of {} sequencing replicas{without}", config.sequencers));
    }
    for members in &view.shards {
        let there: Vec<NodeId> = members.replicas.iter().map(|member| member.node).collect();
        if there.len() < config.replicas as usize {
            let meant = entry.shards.get(members.shard.0 as usize).map(Vec::as_slice).unwrap_or_default();
            let (shard, without) = (members.shard, without(meant, &there, ailing));
            reasons.push(format!("shard {shard}: {} of {} replicas{without}", there.len(), config.replicas));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use seriatim_client::{LogCondition, LogConfig, ReplicaOf};

    use super::*;

    fn takes(journal_write_us: u64) -> Condition {
        Condition { journal_write_us, ..Condition::default() }
    }

    #[test]
    fn a_disk_that_is_ten_times_slower_than_the_others_shows() {
        let all = [takes(9000), takes(700), takes(800)];
        let usual = usual_write(all.iter());
        assert_eq!(usual, 800);
        let slow = judge_node(Some(&all[0]), &[], usual);
        let text = "disk is slow: journal writes take 9 ms (normally 0.8 ms)";
        assert_eq!((slow.state, slow.is_well, &slow.reasons[..]), ("up", true, &[text.to_owned()][..]));
        assert_eq!(judge_node(Some(&all[1]), &[], usual), Health::well("up"));
        assert_eq!(usual_write([takes(0)].iter()), 0, "nothing was written yet");
    }

    /// A log with three sequencing replicas and one shard of two, and these nodes in its view.
    fn log(nodes: &[u32]) -> LogEntry {
        use seriatim_model::{Incarnation, Member, Placement, ShardId, ShardMembers, View, ViewNumber};
        let member = |node: &u32| Member { node: NodeId(*node), incarnation: Incarnation(1) };
        let sequencers: Vec<Member> = nodes.iter().map(member).collect();
        let replicas = sequencers.iter().take(2).copied().collect();
        let view = View {
            number: ViewNumber(1),
            leader: NodeId(1),
            shards: vec![ShardMembers { shard: ShardId(0), begins: Default::default(), replicas }],
            sequencers,
            retired: vec![],
            placement: Placement::new(vec![ShardId(0)], 1),
            first: Default::default(),
            start: Default::default(),
        };
        LogEntry {
            id: seriatim_model::LogId(1),
            name: "l".into(),
            config: LogConfig { sequencers: 3, replicas: 2, ..LogConfig::default() },
            sequencers: vec![NodeId(1), NodeId(2), NodeId(3)],
            shards: vec![vec![NodeId(1), NodeId(2)]],
            leaving: vec![],
            version: 1,
            claimed: ViewNumber(1),
            claimant: 0,
            view: Some(view),
            history: Default::default(),
            unavailable: None,
            ended: Default::default(),
            pins: vec![],
        }
    }

    #[test]
    fn a_log_is_well_only_if_it_gets_on_with_all_its_replicas() {
        let (whole, none) = (log(&[1, 2, 3]), BTreeMap::new());
        let second = Duration::from_secs(1);
        let judge = |entry: &LogEntry, open, seconds, ailing| {
            let health = judge_progress(entry, open, second * seconds, ailing);
            assert_eq!(health.is_well, health.reasons.is_empty(), "{health:?}");
            (health.state, health.reasons.join("; "))
        };
        assert_eq!(judge(&whole, 3, 0, &none), ("ok", String::new()));
        assert_eq!(judge(&whole, 3, 2, &none).0, "ok", "a moment is nothing");
        let text = "no progress for 12 s, although records wait";
        assert_eq!(judge(&whole, 3, 12, &none), ("stalled", text.into()));
        let (state, why) = judge(&whole, 2, 7, &none);
        assert!(state == "changing view" && why.contains("for 7 s"), "{state}: {why}");
        let unavailable = LogEntry { unavailable: Some("why".into()), ..whole.clone() };
        assert_eq!(judge(&unavailable, 3, 0, &none), ("unavailable", "why".into()));
        assert_eq!(judge(&LogEntry { view: None, ..whole.clone() }, 0, 0, &none).0, "changing view");
    }

    #[test]
    fn a_log_says_what_it_does_without_and_where_it_waits_for_room() {
        let away = BTreeMap::from([(NodeId(2), "down")]);
        let health = judge_progress(&log(&[1, 3]), 2, Duration::ZERO, &away);
        let why = "2 of 3 sequencing replicas, without node 2 (down)";
        assert_eq!((health.state, &health.reasons[..]), ("reduced", &[why.to_owned()][..]));
        let health = judge_progress(&log(&[1]), 1, Duration::ZERO, &away);
        assert_eq!(health.reasons[1], "shard 0: 1 of 2 replicas, without node 2 (down)");
        let full = BTreeMap::from([(NodeId(1), "full"), (NodeId(2), "full")]);
        let health = judge_progress(&log(&[1, 2, 3]), 3, Duration::ZERO, &full);
        assert_eq!(
            (health.state, &health.reasons[0][..]),
            ("full", "appends are blocked, the disks of nodes 1, 2 are full")
        );
        let one = BTreeMap::from([(NodeId(1), "full")]);
        assert!(judge_progress(&log(&[1, 2, 3]), 3, Duration::ZERO, &one).is_well, "two have room");
    }

    /// A node whose replica of shard 1 is whole or not. None: it has no replica.
    fn with_replica(is_whole: Option<bool>) -> Condition {
        let (log, shard) = (seriatim_model::LogId(1), ShardId(1));
        let shards = is_whole.map(|_| shard).into_iter().collect();
        Condition {
            version: "1".into(),
            logs: vec![LogCondition { log, shards, ..LogCondition::default() }],
            incomplete: if is_whole == Some(false) { vec![ReplicaOf { log, shard }] } else { vec![] },
            ..Condition::default()
        }
    }

    #[test]
    fn one_whole_copy_of_a_retired_shard_of_two_is_not_well() {
        let mut entry = log(&[1, 2, 3]);
        let view = entry.view.as_mut().expect("it has one");
        let mut last = view.clone();
        last.shards[0].shard = ShardId(1);
        let until = seriatim_model::Position(5);
        view.retired = vec![RetiredShard::new(ShardId(1), last, until)];
        let judge = |nodes: [Option<bool>; 3], down: &[u32]| {
            let nodes = nodes.map(with_replica);
            let is_up = |node: u32| !down.contains(&node);
            let told =
                (1..).zip(&nodes).map(|(node, told)| (NodeId(node), Some(told).filter(|_| is_up(node))));
            let ailing = down.iter().map(|node| (NodeId(*node), "down")).collect();
            retired(&told.collect(), &entry, &ailing).join("; ")
        };
        let (whole, part) = (Some(true), Some(false));
        let one = |what: &str| format!("shard 1 is retired: 1 of 2 whole copies, on node 1, node 2 {what}");
        assert_eq!(judge([whole, whole, None], &[]), "");
        assert_eq!(judge([whole, part, None], &[]), one("lacks a part"));
        assert_eq!(judge([whole, None, None], &[]), one("has no copy"));
        assert_eq!(judge([whole, whole, None], &[2]), one("is not responding"));
        assert_eq!(judge([whole, part, whole], &[]), "", "a copy counts wherever it is");
        assert!(judge([None, part, None], &[]).contains("nodes 1, 2 hold only a part of it"));
        assert!(
            judge([whole, part, None], &[1, 2]).contains("without node 1 (down), 2 (down): reads of its")
        );
    }

    #[test]
    fn a_node_that_is_left_out_has_a_reason_and_an_expected_end() {
        let left_out = LeftOut {
            node: NodeId(8),
            ago_ms: 40_200,
            why: "no heartbeat for 107 ms".into(),
            back_in_ms: Some(14_100),
            ..LeftOut::default()
        };
        let told = "node 8 was left out 40 s ago (no heartbeat for 107 ms); it is taken back";
        assert_eq!(left_out_in_words(&left_out, None), format!("{told} within 15 s"));
        assert_eq!(left_out_in_words(&left_out, Some("down")), format!("{told} when it answers"));
        assert_eq!(left_out_in_words(&left_out, Some("full")), format!("{told} when its disk has room"));
        let unknown = LeftOut { why: String::new(), back_in_ms: Some(0), ..left_out };
        let text = "node 8 was left out 40 s ago; it is being taken back";
        assert_eq!(left_out_in_words(&unknown, None), text);
    }

    #[test]
    fn little_room_is_told_of_before_the_disk_is_full() {
        let little = Condition {
            free_percent: Some(12),
            free_bytes: Some(40 << 20),
            full_in_s: Some(180),
            ..Condition::default()
        };
        let health = judge_node(Some(&little), &[], 0);
        let text = "12 % of its disk is free, 40 MiB: make room, it will be full in about 3 minutes at the present rate";
        assert_eq!((health.state, health.is_well, &health.reasons[0][..]), ("up", true, text));
    }

    #[test]
    fn a_drain_that_cannot_go_on_is_not_well_and_tells_the_reason() {
        let up = || judge_node(Some(&takes(0)), &[], 0);
        let goes_on = judge_drained(up(), 2, &[]);
        assert_eq!((goes_on.state, goes_on.is_well, goes_on.reasons.len()), ("draining", true, 1));
        let blocked = judge_drained(up(), 1, &["log 'x' needs 3 nodes".to_owned()]);
        assert_eq!((blocked.state, blocked.is_well), ("draining", false));
        assert_eq!(blocked.reasons[1], "it cannot be drained yet: log 'x' needs 3 nodes");
        assert!(judge_drained(up(), 0, &[]).is_well);
    }

    #[test]
    fn the_worst_of_a_node_is_its_state_and_all_of_it_is_told() {
        assert_eq!(judge_node(None, &[], 0), Health::unwell("down", vec!["not responding".into()]));
        let full = Condition { has_full_disk: true, free_bytes: Some(3 << 20), ..Condition::default() };
        let told = "disk full: 3 MiB free, appends here";
        let blocked = format!("{told} are blocked; make room");
        assert_eq!(judge_node(Some(&full), &[], 0), Health::unwell("full", vec![blocked]));
        let tells = Condition { wanted_bytes: Some((97 << 20) + 1), ..full.clone() };
        assert_eq!(judge_node(Some(&tells), &[], 0).reasons, [format!("{told} resume at 98 MiB; make room")]);
        let stalled = Condition { ailment: Some(Ailment::DiskStalled), ..full };
        let health = judge_node(Some(&stalled), &[NodeId(1), NodeId(2)], 0);
        assert_eq!((health.state, health.reasons.len()), ("stalled", 3));
        assert_eq!(health.reasons[2], "suspected by nodes 1, 2");
        let suspects = Condition { suspects: vec![NodeId(2), NodeId(3)], ..Condition::default() };
        let health = judge_node(Some(&suspects), &[], 0);
        assert!(health.is_well && health.reasons == ["suspects nodes 2, 3"], "{health:?}");
    }
}
