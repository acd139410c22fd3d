//! Failure detection by heartbeats, one stream per pair of nodes.
//!
//! A heartbeat carries a count and repeats the latest count of the other side. A node is *alive*
//! while its answers advance, so a link must work in both directions. Causes of suspicion:
//!
//! * **A closed connection** over which the present incarnation was last heard; for a node never
//!   heard, its latest connection.
//! * **Silence** longer than this link's usual answer time. The bound is at least a few intervals
//!   and doubles after a wrong suspicion. An observer that was not scheduled excuses that time. A
//!   node whose other messages arrive may only lack a processor for its heartbeats, so its silence
//!   is tolerated longer, up to a bound, because such messages do not prove that ours arrive. From
//!   half of the timeout on, this node sends probes.
//! * **A self-report** that the node's disk or driver stalls. A full disk is reported too, but is
//!   no cause.
//! * **A path that carries only heartbeats** (`lane.rs`). The node that detects it reports it, so
//!   both suspect each other.
//!
//! Nodes also report their journal's progress, and remind a returning node of its earlier
//! incarnations' reports (`mark.rs`). A disk that holds less was set back.
//!
//! A suspicion ends when the node answers a count sent later; messages of a dead process may still
//! arrive.
//!
//! A server runs the detector on a thread of its own, outside of [`Host`](crate::Host), so that a
//! busy node is not suspected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seriatim_model::limits::Limits;
use seriatim_model::{NodeId, Time};
use seriatim_protocol::control::{Ailment, Heartbeat};

use crate::lane::Lane;
use crate::mark::{DiskMark, Shown};
use crate::rhythm::Rhythm;

/// Extra time for an overdue node: its heartbeat may have arrived but not been processed.
const GRACE: Duration = Duration::from_millis(5);

/// Why a node is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its connection closed.
    Closed,
    /// It did not answer for this long.
    Silent(Duration),
    /// It returned as another incarnation.
    Restarted,
    /// It reports this itself.
    Unwell(Ailment),
    /// Only heartbeats reached it, for this long.
    Unreached(Duration),
}

/// A finding about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It is suspected.
    Suspected(NodeId, Cause),
    /// It answers again, or for the first time.
    Alive(NodeId),
    /// An unknown node sends heartbeats.
    Unknown(NodeId),
    /// No evidence that our messages arrive there or that the node works: the host must send a
    /// probe.
    Unproven(NodeId),
    /// It has reported the last journal entry of this node that it remembers.
    Told(NodeId),
    /// It remembers a later journal entry of this node than the disk held at the start.
    SetBack(NodeId),
    /// Self-reported: its disk has no room for records (true), or enough again (false).
    FullDisk(NodeId, bool),
}

/// Count of another node's messages that the host has received. The host writes it, the detector
/// reads it.
#[derive(Clone, Debug, Default)]
pub struct Taken(Arc<AtomicU64>);

impl Taken {
    /// Counts one message.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection for heartbeats. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via(pub u64);

/// The other nodes, and whether they are alive.
#[derive(Debug)]
pub struct Detector {
    incarnation: u64,
    limits: Limits,
    count: u64,
    beat_at: Time,
    /// Number of times that this node was not scheduled in time.
    pauses: u64,
    ailment: Option<Ailment>,
    mark: DiskMark,
    others: BTreeMap<NodeId, Other>,
    wrong: u64,
}

#[derive(Debug)]
struct Other {
    incarnation: u64,
    count: u64,
    pauses: u64,
    /// Connection over which the present incarnation was heard last.
    via: Option<Via>,
    /// Its latest connection, until its first heartbeat.
    greeted: Option<Via>,
    /// Highest of our counts that it repeated.
    answered: u64,
    answered_at: Time,
    rhythm: Rhythm,
    /// See [`Limits::silence_at_work`].
    times_at_work: u32,
    taken: Taken,
    /// Count of its messages, and when it last grew.
    work: (u64, Time),
    lane: Lane,
    /// When the overdue node becomes suspected.
    overdue: Option<Time>,
    /// Time of the last probe sent because answers are missing; `None` after an answer.
    asked_at: Option<Time>,
    suspicion: Option<Suspicion>,
    shown: Shown,
    /// Whether it reported its memory of our disk.
    has_told: bool,
    /// Whether it reports its disk as full.
    has_full_disk: bool,
}

#[derive(Debug)]
struct Suspicion {
    /// Our heartbeat count at that time. Only an answer to a later count ends the suspicion.
    since: u64,
    cause: Cause,
    /// Incarnation and self-reported pauses of the suspected node.
    of: (u64, u64),
}

impl Detector {
    /// A detector for a node's `incarnation`.
    #[must_use]
    pub fn new(incarnation: u64, limits: &Limits, mark: DiskMark) -> Self {
        Self {
            incarnation,
            limits: *limits,
            count: 0,
            beat_at: Time::ZERO,
            pauses: 0,
            ailment: None,
            mark,
            others: BTreeMap::new(),
            wrong: 0,
        }
    }

    /// Adds another node. `taken` counts its messages.
    pub fn meet(&mut self, now: Time, node: NodeId, taken: Taken) {
        let limits = &self.limits;
        let other = self.others.entry(node).or_insert_with(|| Other::new(now, limits));
        other.taken = taken;
    }

    /// Removes another node permanently.
    pub fn forget(&mut self, node: NodeId) {
        self.others.remove(&node);
    }

    /// Suspected nodes.
    pub fn suspected(&self) -> impl Iterator<Item = NodeId> {
        self.others.iter().filter(|(_, other)| other.suspicion.is_some()).map(|(node, _)| *node)
    }

    /// Number of suspicions that were wrong: the node ran without a pause.
    #[must_use]
    pub fn wrong_suspicions(&self) -> u64 {
        self.wrong
    }

    /// Sets what this node reports. `None`: it can serve.
    pub fn feel(&mut self, ailment: Option<Ailment>) {
        self.ailment = ailment;
    }

    /// Latest time of the next [`Detector::beat`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let overdue = self.others.values().filter_map(Other::deadline).min();
        (!self.others.is_empty()).then(|| overdue.map_or(self.beat_at, |at| at.min(self.beat_at)))
    }

    /// Returns due heartbeats and new suspicions. The caller first passes all arrived heartbeats to
    /// [`Detector::heard`].
    pub fn beat(&mut self, now: Time) -> (Vec<(NodeId, Heartbeat)>, Vec<Liveness>) {
        if self.deadline().is_none_or(|due| now < due) {
            return (vec![], vec![]);
        }
        self.excuse_lateness(now);
        self.others.values_mut().for_each(|other| other.note_work(now));
        let mut changes = vec![];
        for (node, other) in &mut self.others {
            if let Some(cause) = other.find_silent(now, self.limits.heartbeat_every) {
                other.suspect(self.count, cause);
                changes.push(Liveness::Suspected(*node, cause));
            }
            if other.probe_is_due(now) | other.ask_is_due(now) {
                changes.push(Liveness::Unproven(*node));
            }
        }
        if now < self.beat_at {
            return (vec![], changes);
        }
        self.beat_at = now + self.limits.heartbeat_every;
        self.count += 1;
        let (incarnation, count, pauses, ailment) = (self.incarnation, self.count, self.pauses, self.ailment);
        let grave = ailment.filter(|ailment| *ailment != Ailment::DiskFull);
        let (disk, durable) = self.mark.read();
        let beat = |(node, other): (&NodeId, &Other)| {
            let heard = (other.incarnation, other.count);
            let beat = Heartbeat {
                incarnation,
                count,
                heard_incarnation: heard.0,
                heard_count: heard.1,
                pauses,
                ailment: grave.or(other.lane.is_mute().then_some(Ailment::Unheard)).or(ailment),
                taken: other.taken.count(),
                disk,
                durable,
                remembered: other.shown.before_last(),
            };
            (*node, beat)
        };
        (self.others.iter().map(beat).collect(), changes)
    }

    fn excuse_lateness(&mut self, now: Time) {
        let Some(due) = self.deadline() else { return };
        let late = now - due;
        if late < self.limits.heartbeat_every {
            return;
        }
        if late >= least_timeout(&self.limits) {
            self.pauses += 1;
        }
        for other in self.others.values_mut() {
            other.answered_at = (other.answered_at + late).min(now);
            other.overdue = None;
            other.lane.excuse(now, late);
        }
    }

    /// Handles a heartbeat.
    pub fn heard(&mut self, now: Time, node: NodeId, via: Via, beat: Heartbeat) -> Vec<Liveness> {
        let Some(other) = self.others.get_mut(&node) else { return vec![Liveness::Unknown(node)] };
        let mut changes = vec![];
        if other.incarnation != beat.incarnation {
            if other.incarnation != 0 && other.suspicion.is_none() {
                other.suspect(self.count, Cause::Restarted);
                changes.push(Liveness::Suspected(node, Cause::Restarted));
            }
            other.rhythm = Rhythm::new(least_timeout(&self.limits));
            other.lane.starts_over(now);
        }
        (other.incarnation, other.count, other.pauses) = (beat.incarnation, beat.count, beat.pauses);
        (other.via, other.greeted) = (Some(via), None);
        other.lane.hears(now, beat.taken);
        other.shown.note(beat.disk, beat.incarnation, beat.durable);
        if beat.heard_incarnation == self.incarnation {
            if self.mark.is_behind(beat.remembered) {
                changes.push(Liveness::SetBack(node));
            }
            if !std::mem::replace(&mut other.has_told, true) {
                changes.push(Liveness::Told(node));
            }
        }
        let has_full_disk = beat.ailment == Some(Ailment::DiskFull);
        if (has_full_disk || beat.ailment.is_none()) && other.has_full_disk != has_full_disk {
            other.has_full_disk = has_full_disk;
            changes.push(Liveness::FullDisk(node, has_full_disk));
        }
        if let Some(ailment) = beat.ailment.filter(|_| !has_full_disk) {
            if other.suspicion.is_none() {
                other.suspect(self.count, Cause::Unwell(ailment));
                changes.push(Liveness::Suspected(node, Cause::Unwell(ailment)));
            }
            return changes;
        }
        if beat.heard_incarnation == self.incarnation && beat.heard_count > other.answered {
            let is_new = other.answered == 0 && other.suspicion.is_none();
            let ends = |suspicion: &Suspicion| beat.heard_count > suspicion.since;
            if other.suspicion.as_ref().is_some_and(ends) && !other.lane.is_mute() {
                self.wrong += u64::from(other.clear(now));
                changes.push(Liveness::Alive(node));
            } else if is_new {
                changes.push(Liveness::Alive(node));
            }
            other.answers(now, beat.heard_count);
        }
        changes
    }

    /// Notes a new connection for heartbeats. Until the first heartbeat, the latest one stands for
    /// the incarnation.
    pub fn connected(&mut self, node: NodeId, via: Via) {
        if let Some(other) = self.others.get_mut(&node).filter(|other| other.incarnation == 0) {
            other.greeted = Some(via);
        }
    }

    /// Suspects the node if its present incarnation was last heard over this connection or, if
    /// never heard, this was its latest.
    pub fn disconnected(&mut self, node: NodeId, via: Via) -> Option<Liveness> {
        let other = self.others.get_mut(&node)?;
        if other.via.or(other.greeted) != Some(via) {
            return None;
        }
        (other.via, other.greeted) = (None, None);
        if other.suspicion.is_some() {
            return None;
        }
        other.suspect(self.count, Cause::Closed);
        Some(Liveness::Suspected(node, Cause::Closed))
    }
}

fn least_timeout(limits: &Limits) -> Duration {
    limits.heartbeat_every * limits.heartbeats_missed
}

impl Other {
    fn new(now: Time, limits: &Limits) -> Self {
        Self {
            incarnation: 0,
            count: 0,
            pauses: 0,
            via: None,
            greeted: None,
            answered: 0,
            answered_at: now,
            rhythm: Rhythm::new(least_timeout(limits)),
            times_at_work: limits.silence_at_work,
            taken: Taken::default(),
            work: (0, Time::ZERO),
            lane: Lane::new(now, limits),
            overdue: None,
            asked_at: None,
            suspicion: None,
            shown: Shown::default(),
            has_told: false,
            has_full_disk: false,
        }
    }

    fn note_work(&mut self, now: Time) {
        let count = self.taken.count();
        if count != self.work.0 {
            self.work = (count, now);
        }
    }

    fn deadline(&self) -> Option<Time> {
        let timeout = self.rhythm.timeout();
        let at_work = (self.work.1 + timeout / 4 * 3).min(self.answered_at + timeout * self.times_at_work);
        let times_out_at = at_work.max(self.answered_at + timeout);
        self.suspicion.is_none().then(|| self.overdue.unwrap_or(times_out_at))
    }

    fn suspect(&mut self, count: u64, cause: Cause) {
        self.overdue = None;
        self.suspicion = Some(Suspicion { since: count, cause, of: (self.incarnation, self.pauses) });
    }

    /// Whether a probe of the path is due. Counts it as sent.
    fn probe_is_due(&mut self, now: Time) -> bool {
        // Judge the path only of a node that is otherwise alive: a node that is down takes no
        // messages either.
        let is_judged = self.suspicion.is_none() || self.lane.is_mute();
        if !is_judged {
            self.lane.starts_over(now);
        }
        is_judged && self.lane.probe_is_due(now)
    }

    /// Whether a probe is due because answers are missing. Counts it as sent.
    fn ask_is_due(&mut self, now: Time) -> bool {
        let quarter = self.rhythm.timeout() / 4;
        let ask_at = self.asked_at.map_or(self.answered_at + quarter * 2, |at| at + quarter);
        let is_quiet = self.suspicion.is_none() && now >= ask_at;
        if is_quiet {
            self.asked_at = Some(now);
        }
        is_quiet
    }

    /// Returns a cause for suspicion if the node was overdue long enough or only heartbeats reach
    /// it.
    fn find_silent(&mut self, now: Time, every: Duration) -> Option<Cause> {
        if self.suspicion.is_none()
            && let Some(lasting) = self.lane.falls_mute(now, self.answered_at)
        {
            return Some(Cause::Unreached(lasting));
        }
        if self.deadline().is_none_or(|due| now < due) {
            return None;
        }
        if self.overdue.is_none() {
            self.overdue = Some(now + GRACE.min(every));
            return None;
        }
        Some(Cause::Silent(now - self.answered_at))
    }

    fn answers(&mut self, now: Time, count: u64) {
        if self.answered != 0 && self.suspicion.is_none() {
            self.rhythm.gap(now, now - self.answered_at);
        }
        self.answered = count;
        self.answered_at = now;
        (self.overdue, self.asked_at) = (None, None);
    }

    /// Returns whether the suspicion was wrong: the node had been heard, was briefly silent, and
    /// neither paused nor restarted.
    fn clear(&mut self, now: Time) -> bool {
        let Some(Suspicion { cause: Cause::Silent(_), of, .. }) = self.suspicion.take() else { return false };
        let was_there = self.answered != 0 && of == (self.incarnation, self.pauses);
        let is_wrong = was_there && self.rhythm.is_momentary(now - self.answered_at);
        if is_wrong {
            self.rhythm.suspected_wrongly(now);
        }
        is_wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: NodeId = NodeId(2);
    const VIA: Via = Via(1);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn detector() -> Detector {
        let mut detector = Detector::new(7, &Limits::default(), DiskMark::default());
        detector.meet(at(0), OTHER, Taken::default());
        detector
    }

    fn answer(detector: &Detector) -> Heartbeat {
        let count = detector.count;
        Heartbeat {
            incarnation: 9,
            count,
            heard_incarnation: 7,
            heard_count: count,
            pauses: 0,
            ailment: None,
            taken: count / 10,
            disk: 3,
            durable: 0,
            remembered: 0,
        }
    }

    fn hear(detector: &mut Detector, ms: u64, beat: Heartbeat) -> Vec<Liveness> {
        detector.heard(at(ms), OTHER, VIA, beat)
    }

    /// Beats when due in `from..end`. Returns when and why the other was suspected.
    fn suspected(detector: &mut Detector, from: u64, end: u64) -> Option<(u64, Cause)> {
        (from..end).find_map(|ms| match detector.beat(at(ms)).1[..] {
            [Liveness::Suspected(OTHER, cause)] => Some((ms, cause)),
            _ => None,
        })
    }

    fn answer_until(detector: &mut Detector, end: u64) {
        for ms in (0..end).step_by(20) {
            detector.beat(at(ms));
            let beat = answer(detector);
            hear(detector, ms, beat);
        }
    }

    fn silent_for(ms: u64) -> Cause {
        Cause::Silent(Duration::from_millis(ms))
    }

    #[test]
    fn a_node_that_never_answers_is_suspected_after_the_bound() {
        assert_eq!(suspected(&mut detector(), 0, 400), Some((105, silent_for(105))));
    }

    #[test]
    fn a_node_that_is_heard_but_does_not_hear_is_suspected() {
        let mut detector = detector();
        for ms in (0..100).step_by(20) {
            detector.beat(at(ms));
            let deaf = Heartbeat { count: ms, heard_incarnation: 0, heard_count: 0, ..answer(&detector) };
            assert!(hear(&mut detector, ms, deaf).is_empty());
        }
        assert_eq!(suspected(&mut detector, 100, 400), Some((105, silent_for(105))));
    }

    #[test]
    fn a_node_that_stops_is_suspected_within_115_ms_of_its_last_answer() {
        let mut detector = detector();
        answer_until(&mut detector, 1000);
        let (ms, _) = suspected(&mut detector, 981, 1400).unwrap();
        assert!(ms <= 980 + 115, "{ms}");
    }

    /// A node whose messages arrive every 10 ms until `end`, without heartbeats.
    fn works_until(end: u64) -> Option<(u64, Cause)> {
        let (mut detector, taken) = (detector(), Taken::default());
        detector.meet(at(0), OTHER, taken.clone());
        answer_until(&mut detector, 1000);
        (981..2000).find_map(|ms| {
            if ms < end && ms % 10 == 0 {
                taken.note();
            }
            suspected(&mut detector, ms, ms + 1)
        })
    }

    #[test]
    fn the_silence_of_a_node_that_is_at_work_is_borne_for_longer_but_not_for_ever() {
        assert_eq!(works_until(2000), Some((1285, silent_for(305))));
        assert_eq!(works_until(1150), Some((1220, silent_for(240))), "its last message was seen at 1140");
        // A complete stop is found as fast as otherwise.
        assert_eq!(works_until(981), Some((1085, silent_for(105))));
        assert_eq!(works_until(1020), Some((1100, silent_for(120))), "90 ms after its last message");
    }

    #[test]
    fn an_answer_that_arrived_as_the_timeout_ended_counts() {
        let mut detector = detector();
        answer_until(&mut detector, 1000);
        assert_eq!(suspected(&mut detector, 981, 1083), None);
        let beat = answer(&detector);
        hear(&mut detector, 1083, beat);
        assert_eq!(suspected(&mut detector, 1084, 1150), None);
    }

    #[test]
    fn what_was_sent_before_the_suspicion_does_not_end_it() {
        let mut detector = detector();
        detector.beat(at(0));
        let first = answer(&detector);
        hear(&mut detector, 1, first);
        detector.beat(at(20));
        let late = answer(&detector);
        assert_eq!(detector.disconnected(OTHER, VIA), Some(Liveness::Suspected(OTHER, Cause::Closed)));
        assert_eq!(detector.disconnected(OTHER, VIA), None);
        assert!(hear(&mut detector, 25, late).is_empty());
        detector.beat(at(40));
        let fresh = answer(&detector);
        assert_eq!(hear(&mut detector, 41, fresh), [Liveness::Alive(OTHER)]);
    }

    #[test]
    fn an_observer_that_was_not_scheduled_charges_nobody() {
        let mut detector = detector();
        answer_until(&mut detector, 100);
        assert_eq!(suspected(&mut detector, 5000, 5080), None);
        assert_eq!(suspected(&mut detector, 5080, 5400).map(|(ms, _)| ms), Some(5085));
    }

    #[test]
    fn a_restart_is_noticed_even_if_nobody_saw_the_connection_close() {
        let mut detector = detector();
        answer_until(&mut detector, 40);
        let reborn = Heartbeat {
            incarnation: 10,
            count: 1,
            heard_incarnation: 0,
            heard_count: 0,
            ..answer(&detector)
        };
        assert_eq!(hear(&mut detector, 41, reborn), [Liveness::Suspected(OTHER, Cause::Restarted)]);
    }

    #[test]
    fn a_connection_that_an_earlier_incarnation_left_behind_says_nothing() {
        let mut detector = detector();
        answer_until(&mut detector, 40);
        let reborn = Heartbeat { incarnation: 10, ..answer(&detector) };
        detector.heard(at(41), OTHER, Via(2), reborn);
        detector.beat(at(60));
        let answer = Heartbeat { incarnation: 10, ..answer(&detector) };
        assert_eq!(detector.heard(at(61), OTHER, Via(2), answer), [Liveness::Alive(OTHER)]);
        assert_eq!(detector.disconnected(OTHER, VIA), None);
        assert!(detector.disconnected(OTHER, Via(2)).is_some());
    }

    #[test]
    fn a_node_that_ends_before_it_is_heard_is_gone_with_the_last_connection_that_it_made() {
        let mut detector = detector();
        detector.connected(OTHER, VIA);
        detector.connected(OTHER, Via(2));
        assert_eq!(detector.disconnected(OTHER, VIA), None, "an earlier incarnation may have left it");
        let gone = Some(Liveness::Suspected(OTHER, Cause::Closed));
        assert_eq!(detector.disconnected(OTHER, Via(2)), gone);
        assert_eq!(detector.disconnected(OTHER, Via(2)), None);
        // After the first heartbeat only its connection counts.
        detector.beat(at(20));
        let beat = answer(&detector);
        assert_eq!(hear(&mut detector, 21, beat).last(), Some(&Liveness::Alive(OTHER)));
        detector.connected(OTHER, Via(3));
        assert_eq!(detector.disconnected(OTHER, Via(3)), None);
        assert_eq!(detector.disconnected(OTHER, VIA), gone);
    }

    #[test]
    fn a_node_that_was_never_heard_is_silent_and_not_out_of_reach() {
        let limits = Limits { heartbeats_missed: 1000, ..Limits::default() };
        let mut detector = Detector::new(7, &limits, DiskMark::default());
        detector.meet(at(0), OTHER, Taken::default());
        let mut suspected = vec![];
        for ms in 0..21_000 {
            let changes = detector.beat(at(ms)).1.into_iter();
            suspected.extend(changes.filter(|change| matches!(change, Liveness::Suspected(..))));
        }
        assert_eq!(suspected, [Liveness::Suspected(OTHER, silent_for(20_005))]);
    }

    #[test]
    fn a_node_that_says_that_it_cannot_serve_is_suspected_until_it_can() {
        let mut detector = detector();
        answer_until(&mut detector, 100);
        let ailment = Some(Ailment::DiskStalled);
        let unwell = Heartbeat { ailment, ..answer(&detector) };
        let cause = Cause::Unwell(Ailment::DiskStalled);
        assert_eq!(hear(&mut detector, 101, unwell), [Liveness::Suspected(OTHER, cause)]);
        assert!(hear(&mut detector, 102, unwell).is_empty());
        detector.beat(at(120));
        let well = answer(&detector);
        assert_eq!(hear(&mut detector, 121, well), [Liveness::Alive(OTHER)]);
        assert_eq!(detector.wrong_suspicions(), 0);
    }

    #[test]
    fn a_wrong_suspicion_is_counted_and_lengthens_the_timeout() {
        let mut detector = detector();
        answer_until(&mut detector, 1000);
        let (ms, _) = suspected(&mut detector, 981, 1400).unwrap();
        detector.beat(at(1120));
        let fresh = answer(&detector);
        assert_eq!(hear(&mut detector, 1121, fresh), [Liveness::Alive(OTHER)]);
        assert_eq!(detector.wrong_suspicions(), 1);
        let (again, _) = suspected(&mut detector, 1122, 2000).unwrap();
        assert!(again - 1121 >= 2 * (ms - 980) - 20, "{ms} {again}");
        // The second time the node reports a pause, so the suspicion was not wrong.
        detector.beat(at(2020));
        let stopped = Heartbeat { pauses: 1, ..answer(&detector) };
        assert_eq!(hear(&mut detector, 2021, stopped), [Liveness::Alive(OTHER)]);
        assert_eq!(detector.wrong_suspicions(), 1);
    }

    #[test]
    fn a_node_that_takes_nothing_but_heartbeats_is_suspected_until_it_does() {
        let mut detector = detector();
        let (mut suspected, mut probes, mut says) = (None, vec![], vec![]);
        for ms in (0..8000).step_by(20) {
            let (beats, changes) = detector.beat(at(ms));
            for change in changes {
                match change {
                    Liveness::Suspected(OTHER, cause) => suspected = suspected.or(Some((ms, cause))),
                    Liveness::Unproven(OTHER) => probes.push(ms),
                    change => panic!("{change:?}"),
                }
            }
            says.extend(beats.into_iter().map(|(_, beat)| beat.ailment).filter(Option::is_some));
            let beat = Heartbeat { taken: 0, ..answer(&detector) };
            hear(&mut detector, ms, beat);
        }
        assert_eq!(suspected, Some((6020, Cause::Unreached(Duration::from_millis(6020)))));
        assert_eq!(probes, [1000, 2000, 3000, 4000, 5000, 6000, 7000]);
        assert_eq!((says.first(), says.len()), (Some(&Some(Ailment::Unheard)), 99));
        detector.beat(at(8000));
        let beat = Heartbeat { taken: 1, ..answer(&detector) };
        assert_eq!(hear(&mut detector, 8000, beat), [Liveness::Alive(OTHER)]);
        assert_eq!(detector.beat(at(8020)).0[0].1.ailment, None);
    }

    #[test]
    fn a_node_tells_one_that_comes_back_with_less_on_its_disk_than_it_showed() {
        let mut here = detector();
        let show = |incarnation, durable, here: &Detector| Heartbeat {
            incarnation,
            disk: 3,
            durable,
            count: 1,
            heard_incarnation: 0,
            ..answer(here)
        };
        for durable in [50, 80, 70] {
            let beat = show(9, durable, &here);
            hear(&mut here, durable, beat);
        }
        // The other is killed, and its disk is set back.
        let mut back = Detector::new(10, &Limits::default(), DiskMark::new(3, 60));
        back.meet(at(100), NodeId(1), Taken::default());
        let beat = show(10, 60, &here);
        hear(&mut here, 100, beat);
        let (beats, _) = here.beat(at(100));
        let told = beats[0].1;
        assert_eq!((told.heard_incarnation, told.remembered), (10, 80));
        let changes = back.heard(at(101), NodeId(1), VIA, told);
        assert_eq!(changes[0], Liveness::SetBack(NodeId(1)), "before it counts as heard");
        // Reports for an earlier incarnation, or of this one's writes, do not count.
        let stale = Heartbeat { heard_incarnation: 9, ..told };
        assert!(back.heard(at(102), NodeId(1), VIA, stale).is_empty());
        let fine = Heartbeat { remembered: 60, ..told };
        assert!(!back.heard(at(103), NodeId(1), VIA, fine).contains(&Liveness::SetBack(NodeId(1))));
    }

    #[test]
    fn a_stranger_is_told_of() {
        let beat = answer(&detector());
        assert_eq!(detector().heard(at(0), NodeId(5), VIA, beat), [Liveness::Unknown(NodeId(5))]);
    }
}
