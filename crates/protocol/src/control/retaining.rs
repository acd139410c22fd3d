//! Trims a log to its limits.
//!
//! Only the controller on the leader's node does so, in rounds. It asks the register for the limits
//! and each replica of the view for its state. After all answers it sends the trim point and a mark
//! (a position with its time). Replicas apply it only in that view.
//!
//! ```text
//!  controller        register        replicas
//!      |----- Peek ----->|               |
//!      |---- Survey -----|-------------->|
//!      |<--- Current ----|<-- Surveyed --|      of all of them
//!      |---- Retain -----|-------------->|      the trim point, a mark, the log's time
//! ```
//!
//! A trim stops at the lowest pin. If the log then keeps more than that pin's bytes, the next round
//! begins with a compare-and-set that marks the pin as broken. The trim above it waits until the
//! register has that: otherwise a later leader could find the pin intact.
//!
//! Ages follow the log's own time ([`LogClock`]). A new leader's node continues it from the latest
//! time that a replica knows.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::pin::{self, Pin};
use seriatim_model::retention::{Extent, Limit, LogClock, StoreUse, trims_to};
use seriatim_model::{
    Address, Endpoint, LogEntry, NodeId, Position, Retention, ShardId, Time, TimeIndex, TimeMark, View,
    ViewNumber,
};

use super::message::Message;
use super::send;
use crate::mutation::{Mutation, Options};
use crate::roles::RoleEffect;
use crate::shard::{self, Retain, Survey, Surveyed};

/// Least number of rounds within the configured age.
const PARTS_OF_AN_AGE: u64 = 8;

/// A trim to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// The first position that is kept.
    pub position: Position,
    /// The limit that caused it.
    pub limit: Limit,
    /// Freed bytes, in one replica of each shard.
    pub bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Retaining {
    /// Wall-clock time in milliseconds since 1970; `None` if unknown.
    wall: Option<u64>,
    reign: Option<Reign>,
    trimmed: Option<Trimmed>,
}

/// A view with its leader on this node.
#[derive(Clone, Debug)]
struct Reign {
    entry: LogEntry,
    /// Whether the register confirmed the view since the last questions.
    is_confirmed: bool,
    /// `None` before the first complete round.
    clock: Option<LogClock>,
    times: TimeIndex,
    /// Number of the round.
    request: u64,
    answers: BTreeMap<(ShardId, NodeId), Surveyed>,
    /// Trim point and stable bound of the last round.
    trim: Position,
    stable: Position,
    is_asking: bool,
    /// Name of the pin that the next round breaks.
    exceeded: Option<String>,
    /// When to begin a round or to retransmit, and the pause before the next round.
    at: Time,
    pause: Duration,
}

impl Retaining {
    pub(super) fn note_wall(&mut self, wall_ms: u64) {
        self.wall = Some(wall_ms);
    }

    pub(super) fn trimmed(&self) -> Option<Trimmed> {
        self.trimmed
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        // Rounds need a wall-clock time.
        self.wall.and(self.reign.as_ref()).map(|reign| reign.at)
    }

    /// Notes the latest entry; `None` if the log is gone.
    pub(super) fn learn(&mut self, now: Time, node: NodeId, entry: Option<&LogEntry>, options: Options) {
        let view = entry.and_then(|entry| entry.view.as_ref());
        let leads = view.is_some_and(|view| view.leader == node);
        let (Some(entry), true) = (entry, leads) else {
            self.reign = None;
            return;
        };
        let every = options.limits.retain_every;
        match &mut self.reign {
            Some(reign) if reign.entry.view == entry.view => {
                let before = &reign.entry;
                let has_other_limits = before.config.retention != entry.config.retention;
                if has_other_limits || before.pins != entry.pins {
                    (reign.at, reign.pause) = (now, every);
                }
                // A round under way heeds other pins. It would never end if each raised pin began
                // another one.
                reign.is_asking &= !has_other_limits;
                reign.exceeded = None;
                reign.entry = entry.clone();
            }
            _ => self.reign = Some(Reign::new(now, entry.clone(), every)),
        }
    }

    pub(super) fn confirmed(
        &mut self,
        now: Time,
        view: ViewNumber,
        options: Options,
        out: &mut Vec<RoleEffect>,
    ) {
        if let Some(reign) = &mut self.reign
            && reign.entry.view_number() == view
        {
            reign.is_confirmed = true;
            self.apply_if_complete(now, options, out);
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        from: Address,
        answer: &Surveyed,
        options: Options,
        out: &mut Vec<RoleEffect>,
    ) {
        let (Some(reign), Address::Node(node, Endpoint::Shard(shard))) = (&mut self.reign, from) else {
            return;
        };
        if reign.is_asking && answer.request == reign.request && answer.view == reign.entry.view_number() {
            reign.answers.insert((shard, node), answer.clone());
            self.apply_if_complete(now, options, out);
        }
    }

    /// Begins a round, or asks silent replicas again.
    pub(super) fn go_on(
        &mut self,
        now: Time,
        register: Address,
        options: Options,
        out: &mut Vec<RoleEffect>,
    ) {
        let every = options.limits.retain_every;
        let Some(reign) = self.wall.and(self.reign.as_mut()) else { return };
        if options.mutates(Mutation::NeverRetained) {
            reign.at = now + every;
        }
        if now < reign.at {
            return;
        }
        reign.at = now + every;
        if !reign.is_asking {
            reign.is_asking = true;
            reign.request += 1;
            reign.answers.clear();
        }
        // Replicas may answer late. The entry is asked for again, since it may have got a pin.
        reign.is_confirmed = false;
        send(register, reign.question(), out);
        let survey = Survey {
            request: reign.request,
            times: reign.clock.is_none(),
            usage: !reign.entry.config.retention.is_unlimited(),
        };
        for (shard, node) in reign.replicas().filter(|replica| !reign.answers.contains_key(replica)) {
            let to = Address::Node(node, Endpoint::Shard(shard));
            send(to, shard::Message::Survey(survey), out);
        }
    }

    fn apply_if_complete(&mut self, now: Time, options: Options, out: &mut Vec<RoleEffect>) {
        let (Some(reign), Some(wall_ms)) = (&mut self.reign, self.wall) else { return };
        let has_all = reign.replicas().all(|replica| reign.answers.contains_key(&replica));
        if reign.is_asking && reign.is_confirmed && has_all {
            let trimmed = reign.apply(now, wall_ms, options, out);
            self.trimmed = trimmed.or(self.trimmed);
        }
    }
}

impl Reign {
    fn new(now: Time, entry: LogEntry, every: Duration) -> Self {
        Self {
            entry,
            is_confirmed: false,
            clock: None,
            times: TimeIndex::default(),
            request: 0,
            answers: BTreeMap::new(),
            trim: Position::ZERO,
            stable: Position::ZERO,
            is_asking: false,
            exceeded: None,
            at: now + every,
            pause: every,
        }
    }

    fn replicas(&self) -> impl Iterator<Item = (ShardId, NodeId)> {
        replicas_of(self.entry.view.as_ref())
    }

    /// Asks the register for the entry, or for a change that breaks a pin. Both are answered by the
    /// entry.
    fn question(&self) -> Message {
        let Some(exceeded) = &self.exceeded else { return Message::Peek { log: self.entry.id } };
        let mut entry = self.entry.clone();
        for pin in entry.pins.iter_mut().filter(|pin| pin.name == *exceeded) {
            pin.is_broken = true;
        }
        Message::CompareAndSet { entry }
    }

    /// Sends each replica the result of a complete round.
    fn apply(
        &mut self,
        now: Time,
        wall_ms: u64,
        options: Options,
        out: &mut Vec<RoleEffect>,
    ) -> Option<Trimmed> {
        let answers = std::mem::take(&mut self.answers);
        let stable = answers.values().map(|answer| answer.stable).min().unwrap_or_default();
        let time_ms = self.time(now, wall_ms, options, &answers);
        let mut added = TimeIndex::default();
        // Replicas store a time only for an age limit. Marks carry their own.
        if self.entry.config.retention.age_ms.is_some() {
            added.reaches(time_ms);
        }
        let last = self.times.marks().last().map_or(Position::ZERO, |mark| mark.position);
        let before = self.times.clone();
        self.times.reaches(time_ms);
        let earlier = if options.mutates(Mutation::MarkedEarlier) { EARLIER_MS } else { 0 };
        let mark = TimeMark { position: stable, time_ms, wall_ms: wall_ms.saturating_sub(earlier) };
        if stable > last && self.times.add(mark) {
            added.add(mark);
        }
        let retention = self.entry.config.retention;
        let (trim, trimmed) = self.trims_to(&retention, stable, time_ms, &answers, options);
        let segment_bytes =
            retention.segment_bytes(self.entry.view.as_ref().map_or(1, |view| view.shards.len()));
        let (request, view) = (self.request, self.entry.view_number());
        for ((shard, node), answer) in &answers {
            let knows_all = answer.digest == before.digest_above(answer.trim);
            let times = if knows_all { added.clone() } else { self.times.clone() };
            let retain = Retain { request, view, trim, times, whole: !knows_all, segment_bytes };
            let to = Address::Node(*node, Endpoint::Shard(*shard));
            send(to, shard::Message::Retain(retain), out);
        }
        self.times.forget_below(answers.values().map(|answer| answer.trim).min().unwrap_or_default());
        self.rest(now, (stable, trim), options);
        if self.exceeded.is_some() {
            self.at = now + options.limits.retain_every;
        }
        trimmed
    }

    /// The log's time. A view's first round continues from the latest time that a replica knows.
    fn time(
        &mut self,
        now: Time,
        wall_ms: u64,
        options: Options,
        answers: &BTreeMap<(ShardId, NodeId), Surveyed>,
    ) -> u64 {
        if options.mutates(Mutation::AgedByWall) {
            self.clock = Some(LogClock::from(wall_ms, millis(now - Time::ZERO), wall_ms));
        }
        let clock = match self.clock {
            Some(mut clock) => {
                clock.goes_on(millis(now - Time::ZERO), wall_ms);
                clock
            }
            None => {
                for answer in answers.values() {
                    answer.times.iter().for_each(|times| self.times.merge(times));
                    self.times.reaches(answer.time_ms);
                }
                // Positions above the stable bounds may get other records.
                let known = answers.values().map(|answer| answer.stable).max().unwrap_or_default();
                self.times.forget_above(known);
                let latest = Some(self.times.time_ms()).filter(|time| *time > 0);
                LogClock::from(latest.unwrap_or(wall_ms), millis(now - Time::ZERO), wall_ms)
            }
        };
        self.clock = Some(clock);
        clock.time_ms()
    }

    fn trims_to(
        &mut self,
        retention: &Retention,
        stable: Position,
        time_ms: u64,
        answers: &BTreeMap<(ShardId, NodeId), Surveyed>,
        options: Options,
    ) -> (Position, Option<Trimmed>) {
        let before = answers.values().map(|answer| answer.trim).max().unwrap_or_default();
        let unknown = StoreUse::default();
        let mut shards: BTreeMap<ShardId, &StoreUse> = BTreeMap::new();
        for ((shard, _), answer) in answers {
            let usage = answer.usage.as_ref().unwrap_or(&unknown);
            // Counts the smallest replica: others may hold records twice.
            let least = shards.entry(*shard).or_insert(usage);
            if usage.kept_bytes(before) < least.kept_bytes(before) {
                *least = usage;
            }
        }
        let extents: Vec<&[Extent]> = shards.values().map(|usage| usage.extents.as_slice()).collect();
        let mut limits = *retention;
        if options.mutates(Mutation::RetainedThreeQuarters) {
            limits.bytes = limits.bytes.map(|most| most - most / 4);
        }
        let (wanted, limit) = trims_to(&limits, stable, &self.times, time_ms, &extents);
        if options.mutates(Mutation::RetainedTooLittle) && retention.bytes.is_some() {
            return (stable, None);
        }
        if options.mutates(Mutation::RetainedUnstable) && wanted > Position::ZERO {
            return (stable + UNSTABLE_TOO, None);
        }
        let kept = |trim| shards.values().map(|usage| usage.kept_bytes(trim)).sum::<u64>();
        let pins = if options.mutates(Mutation::PinIgnored) { &[] } else { self.entry.pins.as_slice() };
        let (wanted, exceeded) = held_by_pins(pins, wanted, kept);
        self.exceeded = exceeded.map(|pin| pin.name.clone());
        let bytes = kept(before).saturating_sub(kept(wanted));
        let trimmed = (wanted > before).then_some(Trimmed { position: wanted, limit, bytes });
        // All replicas trim to the highest trim point of any.
        (before.max(wanted).min(stable), trimmed)
    }

    /// The pause grows while the log is idle, within the age limit, so it is no
    /// [`Backoff`](crate::parts::Backoff).
    fn rest(&mut self, now: Time, (stable, trim): (Position, Position), options: Options) {
        let limits = options.limits;
        let every = limits.retain_every;
        let is_idle = (stable, trim) == (self.stable, self.trim);
        self.pause = if is_idle { (self.pause * 2).min(limits.retain_every_idle) } else { every };
        if let Some(age) = self.entry.config.retention.age_ms.filter(|_| trim < stable) {
            self.pause = self.pause.min(Duration::from_millis(age / PARTS_OF_AN_AGE)).max(every);
        }
        (self.stable, self.trim, self.is_asking) = (stable, trim, false);
        self.at = now + self.pause;
    }
}

/// The position at which pins stop a trim to `wanted`. Also returns the lowest pin, if it stops the
/// trim and the log keeps more than the pin's bytes from there on. `kept` counts the bytes from a
/// position on.
fn held_by_pins(pins: &[Pin], wanted: Position, kept: impl Fn(Position) -> u64) -> (Position, Option<&Pin>) {
    match pin::lowest(pins).filter(|pin| pin.position < wanted) {
        Some(pin) => (pin.position, (kept(pin.position) > pin.most_bytes).then_some(pin)),
        None => (wanted, None),
    }
}

/// Mutation: shift of a mark.
const EARLIER_MS: u64 = 1000;

/// Mutation: positions trimmed beyond the stable bound.
const UNSTABLE_TOO: u64 = 3;

fn replicas_of(view: Option<&View>) -> impl Iterator<Item = (ShardId, NodeId)> {
    let shards = view.into_iter().flat_map(|view| &view.shards);
    shards.flat_map(|members| members.replicas.iter().map(|replica| (members.shard, replica.node)))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use seriatim_model::{
        Incarnation, LogConfig, LogId, Member, Placement, ShardMembers, ViewHistory, ViewNumber,
    };

    use super::*;
    use crate::control::catalog;
    use crate::roles;

    const ME: NodeId = NodeId(1);
    const REGISTER: Address = Address::Node(NodeId(9), Endpoint::Register);
    const WALL: u64 = 5_000_000;

    /// One shard on nodes 1 and 2 that keeps ten records.
    fn entry(leader: NodeId) -> LogEntry {
        let nodes = [NodeId(1), NodeId(2)];
        let retention = Retention { records: Some(10), ..Retention::default() };
        let config = LogConfig { shards: 1, replicas: 2, sequencers: 2, retention, ..LogConfig::default() };
        let entry = catalog::place(LogId(1), "log".into(), config, &nodes).expect("they can hold it");
        let member = |node| Member { node, incarnation: Incarnation(1) };
        let replicas: Vec<Member> = nodes.map(member).to_vec();
        let view = View {
            number: ViewNumber(3),
            sequencers: replicas.clone(),
            leader,
            shards: vec![ShardMembers { shard: ShardId(0), begins: Position::ZERO, replicas }],
            retired: vec![],
            placement: Placement::new(vec![ShardId(0)], 1),
            first: Position::ZERO,
            start: Position::ZERO,
        };
        LogEntry { view: Some(view), history: ViewHistory::default(), ..entry }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn led_by(leader: NodeId) -> Retaining {
        let mut retaining = Retaining::default();
        retaining.note_wall(WALL);
        retaining.learn(at(0), ME, Some(&entry(leader)), Options::default());
        retaining
    }

    fn answer(request: u64, stable: u64, times: Option<TimeIndex>) -> Surveyed {
        let known = times.clone().unwrap_or_default();
        Surveyed {
            request,
            view: ViewNumber(3),
            stable: Position(stable),
            trim: Position::ZERO,
            digest: known.digest_above(Position::ZERO),
            time_ms: known.time_ms(),
            times,
            usage: None,
        }
    }

    fn replica(node: u32) -> Address {
        Address::Node(NodeId(node), Endpoint::Shard(ShardId(0)))
    }

    fn told(out: &[RoleEffect]) -> Vec<(Address, Retain)> {
        let told = out.iter().filter_map(|effect| match effect {
            RoleEffect::Send { to, message: roles::Message::Shard(shard::Message::Retain(retain)) } => {
                Some((*to, retain.clone()))
            }
            _ => None,
        });
        told.collect()
    }

    /// Runs a round in which both replicas answer.
    fn round(
        retaining: &mut Retaining,
        now: Time,
        request: u64,
        answers: [Surveyed; 2],
    ) -> Vec<(Address, Retain)> {
        let (options, mut out) = (Options::default(), vec![]);
        retaining.go_on(now, REGISTER, options, &mut out);
        assert_eq!(out.len(), 3, "the register and two replicas are asked in round {request}");
        retaining.confirmed(now, entry(ME).view_number(), options, &mut out);
        let [first, second] = answers;
        retaining.answered(now, replica(1), &first, options, &mut out);
        assert_eq!(told(&out), [], "one replica has not answered");
        retaining.answered(now, replica(2), &second, options, &mut out);
        told(&out)
    }

    #[test]
    fn a_log_is_trimmed_when_all_replicas_said_what_is_final() {
        let mut retaining = led_by(ME);
        let answers = [answer(1, 40, Some(TimeIndex::default())), answer(1, 30, Some(TimeIndex::default()))];
        let told = round(&mut retaining, at(1000), 1, answers);
        let mark = TimeMark { position: Position(30), time_ms: WALL, wall_ms: WALL };
        for (_, retain) in &told {
            assert_eq!((retain.trim, retain.view, retain.whole), (Position(20), ViewNumber(3), false));
            assert_eq!(retain.times.marks(), [mark]);
        }
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn whoever_leads_next_goes_on_from_the_latest_time_and_gives_its_marks_to_all() {
        let mut known = TimeIndex::default();
        known.add(TimeMark { position: Position(7), time_ms: 9_000_000, wall_ms: 4_000_000 });
        known.reaches(9_000_100);
        let mut retaining = led_by(ME);
        let answers = [answer(1, 12, Some(known.clone())), answer(1, 12, Some(TimeIndex::default()))];
        let told = round(&mut retaining, at(1000), 1, answers);
        let times: Vec<_> =
            told.iter().map(|(to, retain)| (*to, retain.whole, retain.times.marks().len())).collect();
        assert_eq!(times, [(replica(1), false, 1), (replica(2), true, 2)]);
        assert!(told.iter().all(|(_, retain)| retain.times.time_ms() == 9_000_100));
    }

    #[test]
    fn a_log_without_a_limit_of_age_that_is_idle_has_nothing_to_be_written_down() {
        let mut retaining = led_by(ME);
        let none = || Some(TimeIndex::default());
        let first = round(&mut retaining, at(1000), 1, [answer(1, 30, none()), answer(1, 30, none())]);
        let known = Some(first[0].1.times.clone());
        for number in 2..10 {
            let now = retaining.deadline().expect("it looks now and then");
            let answers = [(); 2].map(|()| Surveyed { times: None, ..answer(number, 30, known.clone()) });
            for (_, retain) in round(&mut retaining, now, number, answers) {
                assert_eq!((retain.times, retain.whole), (TimeIndex::default(), false));
            }
        }
    }

    #[test]
    fn it_is_known_what_a_limit_trimmed_last() {
        let mut retaining = led_by(ME);
        assert_eq!(retaining.trimmed(), None);
        let extents = [5, 15, 25].map(|end| Extent { end: Position(end), bytes: 100 }).to_vec();
        let usage = Some(StoreUse { bytes: 300, extents });
        let answers =
            [(); 2].map(|()| Surveyed { usage: usage.clone(), ..answer(1, 30, Some(TimeIndex::default())) });
        round(&mut retaining, at(1000), 1, answers);
        let trimmed = Trimmed { position: Position(20), limit: Limit::Records, bytes: 200 };
        assert_eq!(retaining.trimmed(), Some(trimmed));
    }

    #[test]
    fn nobody_but_the_controller_beside_the_leader_applies_limits() {
        let mut retaining = led_by(NodeId(2));
        let mut out = vec![];
        retaining.go_on(at(10_000), REGISTER, Options::default(), &mut out);
        assert!(out.is_empty() && retaining.deadline().is_none());
        let mut retaining = led_by(ME);
        let mut newer = entry(NodeId(2));
        newer.view.as_mut().expect("it has one").number = ViewNumber(4);
        retaining.learn(at(10), ME, Some(&newer), Options::default());
        assert!(retaining.deadline().is_none());
    }

    #[test]
    fn who_does_not_answer_is_asked_again_and_nothing_is_trimmed() {
        let (mut retaining, options, mut out) = (led_by(ME), Options::default(), vec![]);
        retaining.go_on(at(1000), REGISTER, options, &mut out);
        retaining.answered(at(1000), replica(1), &answer(1, 40, None), options, &mut out);
        out.clear();
        retaining.go_on(at(2000), REGISTER, options, &mut out);
        assert_eq!(out.len(), 2, "the register and the other replica are asked again");
        assert_eq!(told(&out), []);
    }

    /// Messages to the register.
    fn asked(out: &[RoleEffect]) -> Vec<Message> {
        let asked = out.iter().filter_map(|effect| match effect {
            RoleEffect::Send { to, message: roles::Message::Control(message) } if *to == REGISTER => {
                Some(message.clone())
            }
            _ => None,
        });
        asked.collect()
    }

    fn pin(name: &str, position: u64, most_bytes: u64) -> Pin {
        Pin { name: name.into(), position: Position(position), most_bytes, is_broken: false }
    }

    #[test]
    fn the_lowest_pin_stops_a_trim_and_only_it_is_exceeded() {
        let pins = [pin("a", 20, 10), pin("b", 12, 150), Pin { is_broken: true, ..pin("c", 3, 1) }];
        let kept = |position: Position| 1000 - 70 * position.0;
        let held = |wanted| held_by_pins(&pins, Position(wanted), kept);
        assert_eq!(held(9), (Position(9), None), "it wants no more than the pin allows");
        assert_eq!(held(12), (Position(12), None));
        assert_eq!(held(13), (Position(12), Some(&pins[1])), "160 bytes of 150");
        assert_eq!(held_by_pins(&pins, Position(13), |_| 150), (Position(12), None));
        assert_eq!(held_by_pins(&pins[..1], Position(30), |_| 11), (Position(20), Some(&pins[0])));
        assert_eq!(held_by_pins(&pins[2..], Position(30), kept), (Position(30), None));
    }

    /// One replica's answer with three parts of 100 bytes.
    fn with_use(request: u64) -> Surveyed {
        let extents = [5, 15, 25].map(|end| Extent { end: Position(end), bytes: 100 }).to_vec();
        let usage = Some(StoreUse { bytes: 300, extents });
        Surveyed { usage, ..answer(request, 30, Some(TimeIndex::default())) }
    }

    #[test]
    fn a_pin_is_broken_in_the_register_before_its_records_are_trimmed() {
        let (mut retaining, options) = (Retaining::default(), Options::default());
        retaining.note_wall(WALL);
        let pinned = LogEntry { pins: vec![pin("p", 12, 100)], ..entry(ME) };
        retaining.learn(at(0), ME, Some(&pinned), options);
        let trims =
            |round: Vec<(Address, Retain)>| round.iter().map(|told| told.1.trim.0).collect::<Vec<_>>();
        assert_eq!(trims(round(&mut retaining, at(1000), 1, [with_use(1), with_use(1)])), [12, 12]);
        // The register is asked to break it, and again until it answers.
        let broken = LogEntry { pins: vec![Pin { is_broken: true, ..pin("p", 12, 100) }], ..pinned.clone() };
        let mut out = vec![];
        for _ in 0..2 {
            let now = retaining.deadline().expect("a round is due");
            retaining.go_on(now, REGISTER, options, &mut out);
            let change = Message::CompareAndSet { entry: broken.clone() };
            assert_eq!((asked(&out), told(&out)), (vec![change], vec![]));
            out.clear();
        }
        let now = at(9000);
        for node in [1, 2] {
            retaining.answered(now, replica(node), &with_use(2), options, &mut out);
        }
        assert!(out.is_empty(), "the register has not answered");
        let broken = catalog::successor(broken);
        retaining.learn(now, ME, Some(&broken), options);
        retaining.confirmed(now, broken.view_number(), options, &mut out);
        assert_eq!(trims(told(&out)), [20, 20]);
    }

    #[test]
    fn a_pin_that_was_raised_meanwhile_is_not_broken() {
        let (mut retaining, options, mut out) = (Retaining::default(), Options::default(), vec![]);
        retaining.note_wall(WALL);
        let pinned = LogEntry { pins: vec![pin("p", 12, 100)], ..entry(ME) };
        retaining.learn(at(0), ME, Some(&pinned), options);
        round(&mut retaining, at(1000), 1, [with_use(1), with_use(1)]);
        let raised = catalog::successor(LogEntry { pins: vec![pin("p", 19, 100)], ..pinned });
        retaining.learn(at(1500), ME, Some(&raised), options);
        retaining.go_on(at(1500), REGISTER, options, &mut out);
        assert_eq!(asked(&out), [Message::Peek { log: LogId(1) }]);
    }
}
