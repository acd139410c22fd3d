//! Notices to an operator: lost and returning nodes, views, and logs that cannot continue.
//!
//! A lost node affects all its logs, so within a second only the first notices about logs are shown
//! and the others are counted. Unchanged states are not repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::retention::Limit;
use seriatim_model::storage::{MissingRange, ReadFailure, ReadOutcome};
use seriatim_model::{Endpoint, LogId, NodeId, Position, Retention, Time, View, ViewNumber, limits};
use seriatim_protocol::control::{self, Ailment, LogEntry, Trimmed};
use seriatim_protocol::roles::{Message, RoleEffect};
use seriatim_protocol::shard;
use seriatim_store::RoleKey;

use crate::detector::Cause;
use crate::filling::Share;
use crate::host::Host;
use crate::progress::Turn;
use crate::reasons::reason;
use crate::repeats::{Kind, Repeats};
use crate::role::Role;
use crate::wording::{Because, Lasting, broken_pin, described, missing, nodes_of, role_in_short, state};

/// Window in which notices about logs are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Most notices per minute about the loss or return of one node.
const LOSSES: u32 = 5;

/// Most notices per minute about one log's views.
const VIEWS: u32 = 10;

/// Most notices per minute about one log's trims by its limits.
const TRIMS: u32 = 1;

/// Duration from which a journal write is reported as slow.
const SLOW_AFTER: Duration = Duration::from_secs(1);

/// One line for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether the state became worse.
    pub is_warning: bool,
    /// Name of the log, if any.
    pub log: Option<String>,
    /// What happened, why, and its consequence.
    pub text: String,
}

/// Invariant: at most twice [`limits::NOTICES`] wait. A window adds at most [`limits::NOTICES`]
/// about logs.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    waiting: Vec<Notice>,
    /// Suspected nodes, and when each was heard last.
    lost: BTreeMap<NodeId, (Time, Cause)>,
    full: BTreeSet<NodeId>,
    /// Replicas here that are catching up, and since when.
    catching_up: BTreeMap<RoleKey, Time>,
    /// Duration of the reported slow journal write.
    slow: Option<Duration>,
    repeats: Repeats,
    logs: BTreeMap<LogId, Told>,
    /// Start of the window, and its notices about logs.
    window: Option<(Time, usize)>,
    withheld: u64,
}

#[derive(Debug, Default)]
struct Told {
    view: ViewNumber,
    obstacle: Option<String>,
    /// Reported trim point.
    trim: Position,
    /// Reported broken pins.
    broken: BTreeSet<String>,
    /// Whether the stall of the log was reported.
    stands: bool,
    /// The view that a controller here replaces.
    before: Option<View>,
    /// The nodes that the view excludes: since when, and why, if known.
    away: BTreeMap<NodeId, (Time, Option<String>)>,
}

impl Notices {
    fn lost(&mut self, now: Time, node: NodeId, cause: Cause, has_register: bool) {
        let silent = match cause {
            Cause::Silent(silent) | Cause::Unreached(silent) => silent,
            Cause::Closed | Cause::Restarted | Cause::Unwell(_) => Duration::ZERO,
        };
        // A second cause of suspicion does not restart the absence.
        let since = self.lost.get(&node).map_or(now.before(silent), |(since, _)| *since);
        if self.lost.insert(node, (since, cause)).is_none() {
            let means = if has_register {
                "; it holds the register: until it returns, no log can change members or be created"
            } else {
                ""
            };
            let text = format!("node {node} is {}: {}{means}", state(cause), Because(cause));
            let notice = Notice { is_warning: true, log: None, text };
            self.counted(now, Kind(format!("lost {node}")), LOSSES, notice);
        }
    }

    fn back(&mut self, now: Time, node: NodeId) {
        if let Some((since, _)) = self.lost.remove(&node) {
            let text = format!("node {node} is back after {}", Lasting(now.since(since)));
            let notice = Notice { is_warning: false, log: None, text };
            self.counted(now, Kind(format!("back {node}")), LOSSES, notice);
        }
    }

    fn counted(&mut self, now: Time, kind: Kind, most: u32, notice: Notice) {
        if let Some(notice) = self.repeats.admit(now, kind, most, notice) {
            self.about_nodes(notice);
        }
    }

    fn because(&self, node: NodeId) -> Option<String> {
        self.cause(node).map(|cause| Because(cause).to_string())
    }

    fn cause(&self, node: NodeId) -> Option<Cause> {
        let lost = self.lost.get(&node).map(|(_, cause)| *cause);
        lost.or_else(|| self.full.contains(&node).then_some(Cause::Unwell(Ailment::DiskFull)))
    }

    fn writes(&mut self, now: Time, under_way: Duration) {
        let notice = match self.slow {
            None if under_way >= SLOW_AFTER => {
                self.slow = Some(under_way);
                let text = format!(
                    "slow disk: a journal write has taken {} so far; appends on this node wait for it",
                    Lasting(under_way)
                );
                Notice { is_warning: true, log: None, text }
            }
            Some(longest) if under_way < longest => {
                self.slow = None;
                let text = format!("the slow journal write has ended after {}", Lasting(longest));
                Notice { is_warning: false, log: None, text }
            }
            Some(_) => {
                self.slow = Some(under_way);
                return;
            }
            None => return,
        };
        self.counted(now, Kind(format!("slow disk {}", notice.is_warning)), LOSSES, notice);
    }

    /// Reports that a replica catches up, or has caught up. A standby copies its missing positions
    /// only if the member that it replaces stays away.
    fn missing(
        &mut self,
        now: Time,
        (key, stands_by): (RoleKey, bool),
        log: Option<&str>,
        missing: Option<MissingRange>,
    ) {
        let role = role_in_short(key.endpoint);
        let text = match missing.filter(|missing| missing.from < missing.end) {
            Some(MissingRange { from, end }) => {
                if self.catching_up.contains_key(&key) {
                    return;
                }
                self.catching_up.insert(key, now);
                // A retiring replica does not know its end yet.
                let positions = match end {
                    Position(u64::MAX) => format!("positions from {from} on"),
                    end => format!("positions {from} to {end}"),
                };
                match stands_by {
                    true => format!(
                        "{role}: this replica stands in for a node that is away; it takes new records, and copies \
                         {positions} only if that node stays away"
                    ),
                    false => format!("{role}: catching up, copies {positions} from other replicas"),
                }
            }
            None => {
                let Some(since) = self.catching_up.remove(&key) else { return };
                format!("{role}: caught up in {}", Lasting(now.since(since)))
            }
        };
        self.about_logs(now, Notice { is_warning: false, log: log.map(str::to_owned), text });
    }

    fn note_damaged(&mut self, now: Time, key: RoleKey, log: Option<&str>, position: Position) {
        let text = format!(
            "{}: the record at position {position} is damaged on this node's disk; it is read from another replica and \
             repaired; check the disk",
            role_in_short(key.endpoint)
        );
        let kind = Kind(format!("damaged {key:?}"));
        let notice = Notice { is_warning: true, log: log.map(str::to_owned), text };
        self.counted(now, kind, 1, notice);
    }

    fn refused(&mut self, now: Time, address: &str, cause: &str) {
        let text = format!("a connection from {address} was refused: {cause}");
        let notice = Notice { is_warning: true, log: None, text };
        self.counted(now, Kind(format!("refused {cause}")), 1, notice);
    }

    /// `wanted`: free bytes that end the full state; `None` if there is room again.
    fn disk_is(&mut self, wanted: Option<u64>, free: Option<u64>) {
        let left = free
            .map_or("its free space is not known".to_owned(), |bytes| format!("{} MiB free", bytes >> 20));
        let text = match wanted {
            Some(wanted) => format!(
                "disk full: {left}, appends on this node resume at {} MiB; logs continue without this node where their other \
                 replicas suffice; make room: trim logs ('seriatim trim'), delete other files, or use a larger disk",
                wanted.div_ceil(1 << 20)
            ),
            None => format!("the disk has room again: {left}, appends on this node resume"),
        };
        self.about_nodes(Notice { is_warning: wanted.is_some(), log: None, text });
    }

    fn disk_fills(&mut self, share: Share, gets_worse: bool) {
        let Share { percent, free, full_in } = share;
        let left = format!("{percent} % of the disk is free, {} MiB", free >> 20);
        let text = match (gets_worse, full_in) {
            (true, None) => format!("{left}: make room before it is full"),
            (true, Some(full_in)) => {
                format!("{left}: make room, it will be full in {} at the present rate", Lasting(full_in))
            }
            (false, _) => format!("{left}: the warning is over"),
        };
        self.about_nodes(Notice { is_warning: gets_worse, log: None, text });
    }

    /// Reports a view that was registered from here.
    fn registered(&mut self, now: Time, entry: &LogEntry, took: Duration) {
        let Some(view) = entry.view.as_ref().filter(|view| view.number == entry.claimed) else { return };
        let told = self.logs.entry(entry.id).or_default();
        if told.view >= view.number {
            return;
        }
        let before = told.before.take();
        let mut away = std::mem::take(&mut told.away);
        let broken = std::mem::take(&mut told.broken);
        *told = Told { view: view.number, trim: told.trim, broken, stands: told.stands, ..Told::default() };
        let why = match &before {
            Some(before) => reason(before, entry, view, |node| self.because(node)),
            None if view.start == Position::ZERO => "first view".to_owned(),
            None => "this node knew no earlier view".to_owned(),
        };
        // A change after a loss counts from the first loss, even if its controller waited.
        let gone = before
            .iter()
            .flat_map(|before| nodes_of(before).difference(&nodes_of(view)).copied().collect::<Vec<_>>());
        let losses = gone.filter_map(|node| Some(now.since(self.lost.get(&node)?.0)));
        let took = losses.fold(took, Duration::max);
        let lost = |node| (self.lost.get(&node).map_or(now, |(since, _)| *since), self.because(node));
        let missing = missing(entry, view).into_iter();
        let away = missing.map(|node| (node, away.remove(&node).unwrap_or_else(|| lost(node)))).collect();
        self.logs.entry(entry.id).or_default().away = away;
        let text = described(entry, view, &why, took);
        let notice = Notice { is_warning: false, log: Some(entry.name.clone()), text };
        let kind = Kind(format!("view {}", entry.id));
        if let Some(notice) = self.repeats.admit(now, kind, VIEWS, notice) {
            self.about_logs(now, notice);
        }
    }

    fn replaces(&mut self, entry: &LogEntry) {
        if entry.view_number() < entry.claimed {
            self.logs.entry(entry.id).or_default().before.clone_from(&entry.view);
        }
    }

    fn note_unavailable(&mut self, now: Time, entry: &LogEntry, why: &str) {
        let told = self.logs.entry(entry.id).or_default();
        if told.obstacle.as_deref() == Some(why) {
            return;
        }
        told.obstacle = Some(why.to_owned());
        let text = format!("unavailable: {why}");
        let notice = Notice { is_warning: true, log: Some(entry.name.clone()), text };
        let kind = Kind(format!("unavailable {}", entry.id));
        if let Some(notice) = self.repeats.admit(now, kind, VIEWS, notice) {
            self.about_logs(now, notice);
        }
    }

    fn retained(&mut self, now: Time, entry: &LogEntry, trimmed: Trimmed) {
        let told = self.logs.entry(entry.id).or_default();
        if trimmed.position <= told.trim {
            return;
        }
        told.trim = trimmed.position;
        let Retention { age_ms, bytes, records } = entry.config.retention;
        let limit = match trimmed.limit {
            Limit::Age => format!("{} s", age_ms.unwrap_or_default() as f64 / 1e3),
            Limit::Bytes => format!("{} bytes", bytes.unwrap_or_default()),
            Limit::Records => format!("{} records", records.unwrap_or_default()),
        };
        let Trimmed { position, bytes, .. } = trimmed;
        let text = format!("trimmed to position {position} by the limit of {limit}: frees {bytes} bytes");
        let notice = Notice { is_warning: false, log: Some(entry.name.clone()), text };
        if let Some(notice) = self.repeats.admit(now, Kind(format!("retained {}", entry.id)), TRIMS, notice) {
            self.about_logs(now, notice);
        }
    }

    /// Reports pins that limits have broken since the last call.
    fn pinned(&mut self, now: Time, entry: &LogEntry) {
        let broken = entry.pins.iter().filter(|pin| pin.is_broken);
        let names = broken.clone().map(|pin| pin.name.clone()).collect();
        let known = std::mem::replace(&mut self.logs.entry(entry.id).or_default().broken, names);
        for pin in broken.filter(|pin| !known.contains(&pin.name)) {
            let log = Some(entry.name.clone());
            let notice = Notice { is_warning: true, log, text: broken_pin(entry, pin) };
            if let Some(notice) = self.repeats.admit(now, Kind(format!("pin {}", entry.id)), VIEWS, notice) {
                self.about_logs(now, notice);
            }
        }
    }

    fn turns(&mut self, now: Time, entry: &LogEntry, turn: Turn, why: &str) {
        let told = self.logs.entry(entry.id).or_default();
        let stood = std::mem::replace(&mut told.stands, matches!(turn, Turn::Stands(..)));
        let (is_warning, text) = match turn {
            Turn::GetsOn(_) if !stood => return,
            Turn::Stands(lasting, is_open) => {
                let what = if is_open { "no append became readable" } else { "no active view" };
                (true, format!("unavailable: {what} for {}, appends are blocked; {why}", Lasting(lasting)))
            }
            Turn::GetsOn(lasting) => (false, format!("available again after {}", Lasting(lasting))),
        };
        let notice = Notice { is_warning, log: Some(entry.name.clone()), text };
        let kind = Kind(format!("stands {} {is_warning}", entry.id));
        if let Some(notice) = self.repeats.admit(now, kind, VIEWS, notice) {
            self.about_logs(now, notice);
        }
    }

    /// Causes known here that may block the log.
    fn obstacle(&self, entry: &LogEntry, register: NodeId) -> String {
        if let Some(why) = &entry.unavailable {
            return why.clone();
        }
        let members = entry.sequencers.iter().chain(entry.shards.iter().flatten());
        let nodes: BTreeSet<NodeId> = members.copied().filter(|node| *node != register).collect();
        let members = nodes.into_iter().filter_map(|node| {
            let cause = self.cause(node)?;
            Some(format!("node {node} is {}: {}", state(cause), Because(cause)))
        });
        let because: Vec<String> = self.register_is_away(register).into_iter().chain(members).collect();
        match because.is_empty() {
            true => "no node of the log is known to be down: the register may be unreachable".to_owned(),
            false => because.join("; "),
        }
    }

    /// Why the register cannot be used; `None` if its node is not lost.
    pub(crate) fn register_is_away(&self, register: NodeId) -> Option<String> {
        let (_, cause) = self.lost.get(&register)?;
        Some(format!("the register (node {register}) is {}: {}", state(*cause), Because(*cause)))
    }

    /// Nodes that a view formed here excludes: since when, and why, if known.
    pub(crate) fn left_out(
        &self,
        log: LogId,
        view: ViewNumber,
    ) -> impl Iterator<Item = (NodeId, Time, Option<&str>)> {
        let told = self.logs.get(&log).filter(|told| told.view == view);
        let away = told.into_iter().flat_map(|told| &told.away);
        away.map(|(node, (since, why))| (*node, *since, why.as_deref()))
    }

    pub(crate) fn forget(&mut self, log: LogId) {
        self.logs.remove(&log);
        self.catching_up.retain(|key, _| key.log != log);
    }

    fn about_nodes(&mut self, notice: Notice) {
        // A driver such as the simulator may never take notices.
        if self.waiting.len() < 2 * limits::NOTICES {
            self.add(notice);
        }
    }

    fn add(&mut self, notice: Notice) {
        self.waiting.push(notice);
        assert!(self.waiting.len() <= 2 * limits::NOTICES, "notices that wait are bounded");
    }

    fn about_logs(&mut self, now: Time, notice: Notice) {
        self.close_window(now);
        let (_, count) = self.window.get_or_insert((now, 0));
        if *count < limits::NOTICES && self.waiting.len() < 2 * limits::NOTICES {
            *count += 1;
            self.add(notice);
        } else {
            self.withheld += 1;
        }
    }

    pub(crate) fn close_window(&mut self, now: Time) {
        self.repeats.close(now).into_iter().for_each(|notice| self.about_nodes(notice));
        if self.window.is_none_or(|(began, _)| now < began + WINDOW) {
            return;
        }
        self.window = None;
        let withheld = std::mem::take(&mut self.withheld);
        if withheld > 0 {
            let text = format!("{withheld} more notices about logs in this second are not shown");
            self.about_nodes(Notice { is_warning: false, log: None, text });
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let window = self.window.filter(|_| self.withheld > 0).map(|(began, _)| began + WINDOW);
        [window, self.repeats.deadline()].into_iter().flatten().min()
    }
}

impl Host {
    /// Removes and returns the waiting notices.
    pub fn take_notices(&mut self, now: Time) -> Vec<Notice> {
        self.notices.close_window(now);
        std::mem::take(&mut self.notices.waiting)
    }

    /// Name of a log with a controller here.
    #[must_use]
    pub fn log_name(&self, log: LogId) -> Option<&str> {
        self.controller(log)?.entry().map(|entry| entry.name.as_str())
    }

    pub(crate) fn notice_lost(&mut self, now: Time, node: NodeId, cause: Cause) {
        let has_register = node == self.register_node();
        self.notices.lost(now, node, cause, has_register);
    }

    pub(crate) fn notice_back(&mut self, now: Time, node: NodeId) {
        self.notices.back(now, node);
    }

    pub(crate) fn notice_full(&mut self, node: NodeId, is_full: bool) {
        match is_full {
            true => _ = self.notices.full.insert(node),
            false => _ = self.notices.full.remove(&node),
        }
    }

    /// Reports how long the current journal write has taken.
    pub fn notice_writes(&mut self, now: Time, under_way: Duration) {
        self.notices.writes(now, under_way);
    }

    pub(crate) fn notice_missing(&mut self, now: Time, key: RoleKey, missing: Option<MissingRange>) {
        let log = self.log_name(key.log).map(str::to_owned);
        let Endpoint::Shard(shard) = key.endpoint else { return };
        let Some(replica) = self.replica(key.log, shard) else { return };
        // A replica outside the view copies nothing, and may not be needed.
        if missing.is_none() || replica.gets_records() {
            let stands_by = replica.stands_by();
            self.notices.missing(now, (key, stands_by), log.as_deref(), missing);
        }
    }

    pub(crate) fn notice_damage(&mut self, now: Time, key: RoleKey, outcome: &ReadOutcome) {
        if let Err(ReadFailure::Damaged(position)) = outcome {
            let log = self.log_name(key.log).map(str::to_owned);
            self.notices.note_damaged(now, key, log.as_deref(), *position);
        }
    }

    pub(crate) fn notice_dismissed(&mut self, now: Time, key: RoleKey) {
        let text = format!(
            "{}: removing the local replica, the log no longer needs it",
            role_in_short(key.endpoint)
        );
        let log = self.log_name(key.log).map(str::to_owned);
        self.notices.about_logs(now, Notice { is_warning: false, log, text });
    }

    /// Reports a rejected connection.
    pub fn notice_refused(&mut self, now: Time, address: &str, cause: &str) {
        self.notices.refused(now, address, cause);
    }

    pub(crate) fn notice_filling(&mut self, share: Share, gets_worse: bool) {
        self.notices.disk_fills(share, gets_worse);
    }

    pub(crate) fn notice_room(&mut self, now: Time) {
        let wanted = self.has_full_disk().then(|| self.wanted_bytes(now));
        self.notices.disk_is(wanted, self.free_bytes());
    }

    /// Reports a stall or its end, unless the log's view excludes this node.
    pub(crate) fn notice_turn(&mut self, now: Time, log: LogId, turn: Turn) {
        let (register, node) = (self.register_node(), self.config.node);
        let Some(entry) = self.controller(log).and_then(|controller| controller.entry()) else { return };
        let has_part = |view: &View| view.sequencers.iter().any(|member| member.node == node);
        if entry.view.as_ref().is_none_or(has_part) {
            let entry = entry.clone();
            let why = self.notices.obstacle(&entry, register);
            self.notices.turns(now, &entry, turn, &why);
        }
    }

    fn notice_retained(&mut self, now: Time, key: RoleKey) {
        let Some(Role::Controller(controller)) = self.roles.get(&key) else { return };
        let Some(entry) = controller.entry() else { return };
        self.notices.pinned(now, entry);
        if let Some(trimmed) = controller.last_retained() {
            self.notices.retained(now, entry, trimmed);
        }
    }

    pub(crate) fn notice_effect(&mut self, now: Time, key: RoleKey, effect: &RoleEffect) {
        let RoleEffect::Send { message, .. } = effect else { return };
        let message = match message {
            Message::Control(message) => message,
            Message::Shard(shard::Message::Retain(_)) => return self.notice_retained(now, key),
            _ => return,
        };
        match message {
            control::Message::Registered { entry } if entry.claimant_node() == self.config.node => {
                let Some(Role::Controller(controller)) = self.roles.get(&key) else { return };
                // A restarted controller repeats the registration of an earlier view.
                let Some(took) = controller.last_change_took() else { return };
                self.notices.registered(now, entry, took);
            }
            control::Message::Recovered { done: true, lost: true, text, .. } => {
                let text = format!("an operator accepted a loss, and the log continues: {text}");
                let log = self.log_name(key.log).map(str::to_owned);
                self.notices.about_logs(now, Notice { is_warning: true, log, text });
            }
            control::Message::CompareAndSet { entry } => {
                self.notices.replaces(entry);
                if let Some(why) = &entry.unavailable {
                    self.notices.note_unavailable(now, entry, why);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::Pin;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn about(log: u64) -> LogEntry {
        LogEntry {
            id: LogId(log),
            name: format!("log-{log}"),
            config: Default::default(),
            sequencers: vec![NodeId(1), NodeId(2)],
            shards: vec![vec![NodeId(1), NodeId(3)]],
            leaving: vec![],
            version: 1,
            claimed: ViewNumber(1),
            claimant: 0,
            view: None,
            history: Default::default(),
            unavailable: None,
            ended: control::EndedSessions::default(),
            pins: vec![],
        }
    }

    fn texts(notices: &mut Notices, now: Time) -> Vec<String> {
        notices.close_window(now);
        notices.waiting.drain(..).map(|notice| notice.text).collect()
    }

    #[test]
    fn a_log_that_was_trimmed_to_its_limits_is_told_of_and_counted() {
        let mut notices = Notices::default();
        let mut entry = about(1);
        entry.config.retention.bytes = Some(100_000);
        let trimmed = |position| Trimmed { position: Position(position), limit: Limit::Bytes, bytes: 4321 };
        // Each replica receives its own trim.
        for position in [7, 7, 7, 9] {
            notices.retained(Time(1), &entry, trimmed(position));
        }
        let told = "trimmed to position 7 by the limit of 100000 bytes: frees 4321 bytes";
        assert_eq!(texts(&mut notices, Time(2) + SECOND), [told]);
    }

    #[test]
    fn a_broken_pin_is_reported_once() {
        let mut notices = Notices::default();
        let pin =
            |is_broken| Pin { name: "billing".into(), position: Position(7), most_bytes: 100_000, is_broken };
        let with = |pins| LogEntry { pins, ..about(1) };
        for broken in [false, true, true] {
            notices.pinned(Time(1), &with(vec![pin(broken)]));
        }
        let told = "the pin 'billing' is broken: the records from position 7 on took more than 100000 bytes; the limits of \
                    the log trim them; set the pin again, or remove it with 'seriatim log unpin log-1 billing'";
        assert_eq!(texts(&mut notices, Time(2) + SECOND), [told]);
        // Set again, and broken again.
        for pins in [vec![pin(false)], vec![pin(true)]] {
            notices.pinned(Time(3) + SECOND, &with(pins));
        }
        assert_eq!(texts(&mut notices, Time(5) + 2 * SECOND), [told]);
    }

    #[test]
    fn a_log_that_stands_is_told_of_with_what_is_known_of_its_nodes() {
        let mut notices = Notices::default();
        let (entry, register) = (about(1), NodeId(7));
        let stands = Turn::Stands(5 * SECOND, false);
        let why = notices.obstacle(&entry, register);
        notices.turns(Time(1), &entry, stands, &why);
        notices.lost(Time(1), register, Cause::Closed, true);
        notices.lost(Time(1), NodeId(3), Cause::Silent(SECOND), false);
        let why = notices.obstacle(&entry, register);
        notices.turns(Time(1), &entry, Turn::Stands(6 * SECOND, true), &why);
        notices.turns(Time(2), &entry, Turn::GetsOn(36 * SECOND), &why);
        let told = texts(&mut notices, Time(2) + SECOND);
        let about_log: Vec<&String> = told.iter().filter(|text| text.contains("vailable")).collect();
        let expected = [
            "unavailable: no active view for 5.0 s, appends are blocked; no node of the log is known to be down: the register \
             may be unreachable",
            "unavailable: no append became readable for 6.0 s, appends are blocked; the register (node 7) is down: its \
             connection closed; node 3 is unreachable: no heartbeat for 1000 ms",
            "available again after 36 s",
        ];
        assert_eq!(about_log, expected);
    }

    #[test]
    fn a_node_is_lost_once_and_back_once() {
        let mut notices = Notices::default();
        notices.lost(Time(1), NodeId(3), Cause::Closed, false);
        notices.lost(Time(2), NodeId(3), Cause::Silent(SECOND), false);
        notices.back(Time(1) + SECOND, NodeId(3));
        notices.back(Time(1) + SECOND, NodeId(3));
        let expected = ["node 3 is down: its connection closed", "node 3 is back after 1.0 s"];
        assert_eq!(texts(&mut notices, Time(2) + SECOND), expected);
    }

    #[test]
    fn an_absence_begins_when_the_node_was_heard_last() {
        let mut notices = Notices::default();
        let silent = Duration::from_millis(107);
        let lost = Time::ZERO + SECOND;
        notices.lost(lost, NodeId(3), Cause::Silent(silent), false);
        notices.back(lost + Duration::from_millis(1), NodeId(3));
        let expected = ["node 3 is unreachable: no heartbeat for 107 ms", "node 3 is back after 108 ms"];
        assert_eq!(texts(&mut notices, lost + SECOND), expected);
    }

    #[test]
    fn why_a_log_is_unavailable_is_told_when_it_changes() {
        let mut notices = Notices::default();
        let entry = about(1);
        for why in ["one", "one", "two", "one"] {
            notices.note_unavailable(Time(1), &entry, why);
        }
        assert_eq!(
            texts(&mut notices, Time(1)),
            ["unavailable: one", "unavailable: two", "unavailable: one"]
        );
    }

    #[test]
    fn what_happens_to_many_logs_at_once_is_counted() {
        let mut notices = Notices::default();
        for log in 0..1000 {
            notices.note_unavailable(Time(1), &about(log), "its nodes are away");
        }
        assert_eq!(texts(&mut notices, Time(2)).len(), limits::NOTICES);
        assert_eq!(notices.deadline(), Some(Time(1) + SECOND));
        let told = texts(&mut notices, Time(1) + SECOND);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with(&(1000 - limits::NOTICES).to_string()), "{told:?}");
        notices.note_unavailable(Time(1) + SECOND, &about(0), "something else");
        assert_eq!(texts(&mut notices, Time(1) + SECOND), ["unavailable: something else"]);
    }

    #[test]
    fn what_comes_again_within_a_minute_is_counted() {
        let mut notices = Notices::default();
        for round in 0..20 {
            let now = Time::ZERO + SECOND * round;
            notices.lost(now, NodeId(3), Cause::Closed, true);
            notices.back(now, NodeId(3));
        }
        let told = texts(&mut notices, Time::ZERO + SECOND * 20);
        assert_eq!(told.len(), 2 * LOSSES as usize, "{told:?}");
        assert!(told[0].contains("until it returns, no log can change members"), "{told:?}");
        assert_eq!(notices.deadline(), Some(Time::ZERO + SECOND * 60));
        let told = texts(&mut notices, Time::ZERO + SECOND * 60);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|told| told.contains("(15 more times within a minute")), "{told:?}");
        assert_eq!(notices.deadline(), None);
    }

    #[test]
    fn a_slow_write_is_told_of_when_it_is_slow_and_when_it_has_ended() {
        let mut notices = Notices::default();
        let mut writes = |millis| notices.writes(Time(1), Duration::from_millis(millis));
        [0, 3, 999, 0, 1200, 1400, 9000, 2, 0].into_iter().for_each(&mut writes);
        let told = texts(&mut notices, Time(1));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("has taken 1.2 s so far") && told[1].contains("after 9.0 s"), "{told:?}");
    }

    #[test]
    fn copying_is_told_of_once_and_its_end() {
        let mut notices = Notices::default();
        let key = RoleKey { log: LogId(1), endpoint: Endpoint::Shard(seriatim_model::ShardId(0)) };
        let missing = |from, end| Some(MissingRange { from: Position(from), end: Position(end) });
        for missing in [None, missing(0, 90), missing(30, 90), missing(90, 90), None] {
            notices.missing(Time(1), (key, false), Some("l"), missing);
        }
        notices.missing(Time(1), (key, true), Some("l"), missing(0, 90));
        let told = texts(&mut notices, Time(1));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[2].contains("stands in for a node that is away"), "{told:?}");
        notices.missing(Time(1), (key, true), Some("l"), None);
        assert!(told[0].contains("catching up, copies positions 0 to 90 from"), "{told:?}");
        assert!(told[1].contains("caught up in "), "{told:?}");
        assert!(notices.catching_up.is_empty());
    }

    #[test]
    fn a_view_is_told_with_what_led_to_it() {
        let mut notices = Notices::default();
        let member =
            |node| seriatim_model::Member { node: NodeId(node), incarnation: seriatim_model::Incarnation(1) };
        let view = |number, nodes: &[u32]| View {
            number: ViewNumber(number),
            sequencers: nodes.iter().copied().map(member).collect(),
            leader: NodeId(1),
            shards: vec![],
            retired: vec![],
            placement: seriatim_model::Placement::new(vec![seriatim_model::ShardId(0)], 1),
            first: Position::ZERO,
            start: Position(number),
        };
        let entry = |claimed, view| LogEntry { view, claimed: ViewNumber(claimed), ..about(1) };
        let took = Duration::from_micros(4200);
        notices.registered(Time(1), &entry(1, Some(view(1, &[1, 2]))), took);
        notices.lost(Time(1), NodeId(2), Cause::Closed, false);
        notices.replaces(&entry(2, Some(view(1, &[1, 2]))));
        notices.registered(Time(1), &entry(2, Some(view(2, &[1]))), took);
        let told = texts(&mut notices, Time(1));
        let why = "view 2 starts at position 2 without node 2: node 2 left out (its connection closed); ";
        assert!(told.len() == 3 && told[2].starts_with(why), "{told:?}");
        assert!(told[2].ends_with("; took 4.2 ms"), "{told:?}");
        // The controller acted late, or again.
        let later = Time(1) + 36 * SECOND;
        notices.replaces(&entry(3, Some(view(2, &[1, 2]))));
        notices.registered(later, &entry(3, Some(view(3, &[1]))), took);
        let told = texts(&mut notices, later);
        assert!(told.len() == 1 && told[0].ends_with("; took 36 s"), "{told:?}");
    }

    #[test]
    fn a_claim_is_no_view() {
        let mut notices = Notices::default();
        // A claim is registered with the previous view, which another node formed and reported.
        let view = View {
            number: ViewNumber(1),
            sequencers: vec![],
            leader: NodeId(1),
            shards: vec![],
            retired: vec![],
            placement: seriatim_model::Placement::new(vec![seriatim_model::ShardId(0)], 1),
            first: Position::ZERO,
            start: Position::ZERO,
        };
        let entry = LogEntry { view: Some(view), claimed: ViewNumber(2), ..about(1) };
        notices.registered(Time(1), &entry, Duration::ZERO);
        assert_eq!(texts(&mut notices, Time(1)), [""; 0]);
    }

    #[test]
    fn notices_that_nobody_takes_are_bounded() {
        let mut notices = Notices::default();
        for round in 0..1000 {
            notices.lost(Time(round), NodeId(3), Cause::Closed, false);
            notices.back(Time(round), NodeId(3));
        }
        assert!(notices.waiting.len() <= 2 * limits::NOTICES);
    }
}
