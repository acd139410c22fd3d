//! What players did with their targets: the input of the players' checkers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use seriatim_delivery::player::{Mapper, Messages, PlayerLimits};
use seriatim_model::Position;
use seriatim_model::record::key_hash;
use seriatim_model::storage::Stored;

use crate::client::key_of;
use crate::history::{End, History, Moment};
use crate::random::Random;

/// How entries are mapped to targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// The hash of the key chooses one target.
    Key,
    /// [`Spread`] chooses any number of targets.
    Spread,
}

/// What players do, and their faults.
#[derive(Clone, Debug)]
pub struct PlayersPlan {
    /// Number of targets at first.
    pub targets: usize,
    /// The mapping.
    pub map: MapKind,
    /// Whether a restarted player has one more target.
    pub adds_target: bool,
    /// Limits of the players.
    pub limits: PlayerLimits,
    /// Most unanswered batches of each target.
    pub unanswered: usize,
    /// Whether rejected messages go to the dead-letter log without an operator.
    pub dead_letters: bool,
    /// The target that is always slow.
    pub slow: Option<usize>,
    /// Calls per thousand during which a target is killed.
    pub kill_permille: u64,
    /// Percentage of killed targets that return with an older copy.
    pub restore_percent: u64,
    /// Calls per thousand whose answer is lost.
    pub lost_permille: u64,
    /// Calls per thousand that take longer than the player waits.
    pub slow_permille: u64,
    /// Messages per thousand that a target refuses.
    pub refuse_permille: u64,
    /// Steps of a player per thousand at which it is killed.
    pub crash_permille: u64,
    /// When a player pauses, and for how long.
    pub pauses: Vec<(Duration, Duration)>,
    /// When the operator pauses a target, for how long, and which one.
    pub maintenances: Vec<(Duration, Duration, usize)>,
    /// The target that has a bound of another log at first.
    pub foreign: Option<usize>,
    /// When the control log is absent, and for how long.
    pub absences: Vec<(Duration, Duration)>,
    /// How long faults last.
    pub faults_for: Duration,
}

/// Gives an entry to some of the targets, by its contents.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Ids of the targets.
    pub targets: Vec<String>,
}

impl Spread {
    fn parts(&self, payload: &Bytes) -> Vec<(String, Bytes)> {
        let seed =
            payload.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        let mut random = Random::new(seed);
        let mut parts = vec![];
        for target in &self.targets {
            for _ in 0..random.pick(&[0, 1, 1, 2]) {
                let length = random.below(payload.len() as u64 + 1) as usize;
                parts.push((target.clone(), payload.slice(..length)));
            }
        }
        parts
    }
}

impl Mapper for Spread {
    fn map(&self, stored: &Stored, out: &mut Messages) {
        for (target, part) in self.parts(&stored.record.payload()) {
            out.put(target, part);
        }
    }
}

/// A mapping and its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleKind {
    /// The mapping.
    pub map: MapKind,
    /// Ids of the targets.
    pub targets: Vec<String>,
}

impl RuleKind {
    /// The parts of an entry for a target, computed without the player.
    fn parts(&self, target: &str, position: Position, entry: &Entry) -> Vec<Bytes> {
        match self.map {
            MapKind::Key => {
                let number = entry.key.as_ref().map_or(position.0, |key| key_hash(key));
                let chosen = &self.targets[(number % self.targets.len() as u64) as usize];
                if chosen == target { vec![entry.payload.clone()] } else { vec![] }
            }
            MapKind::Spread => {
                let spread = Spread { targets: self.targets.clone() };
                let parts = spread.parts(&entry.payload).into_iter();
                parts.filter(|(id, _)| id == target).map(|(_, part)| part).collect()
            }
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Option<Bytes>,
    /// Its payload.
    pub payload: Bytes,
}

/// What a target stores. A transaction changes all of it at once.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// Whether the bound belongs to another log.
    pub is_foreign: bool,
    /// The highest epoch that attached.
    pub epoch: u64,
    /// Everything below is applied.
    pub bound: Position,
    /// The applied messages, in order: position and parts.
    pub effects: Vec<(Position, Vec<Bytes>)>,
}

/// A transaction of a target.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// When.
    pub at: Moment,
    /// The epoch of the player that sent it.
    pub epoch: u64,
    /// The highest epoch that the target knew.
    pub known: u64,
}

/// What happened at a target.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Its id.
    pub id: String,
    /// Its rules, each from its position on.
    pub rules: Vec<(Position, RuleKind)>,
    /// Its stored state at the end.
    pub database: Database,
    /// Its transactions.
    pub transactions: Vec<Transaction>,
    /// Acknowledged bounds, each with the bound stored at that time, if it was lower.
    pub untrue: Vec<(Position, Position)>,
    /// Ranges that an operator passed over or adopted.
    pub skipped: Vec<(Position, Position)>,
    /// Messages in the dead-letter log.
    pub dead_letters: BTreeSet<Position>,
}

impl Played {
    /// The parts of an entry for this target.
    #[must_use]
    pub fn parts(&self, position: Position, entry: &Entry) -> Vec<Bytes> {
        let later = self.rules.partition_point(|(first, _)| *first <= position);
        let rule = later.checked_sub(1).map(|index| &self.rules[index].1);
        rule.map_or(vec![], |rule| rule.parts(&self.id, position, entry))
    }

    /// Whether an operator passed over the position, or it is in the dead-letter log.
    #[must_use]
    pub fn is_skipped(&self, position: Position) -> bool {
        let holds = |(from, end): &(Position, Position)| (*from..*end).contains(&position);
        self.dead_letters.contains(&position) || self.skipped.iter().any(holds)
    }
}

/// Queues of a player at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queued {
    /// Most memory of all queues and batches in flight, in bytes.
    pub memory: usize,
    /// Most queued messages of one target.
    pub messages: usize,
}

/// What players did.
#[derive(Clone, Debug)]
pub struct Playing {
    /// Limits of the players.
    pub limits: PlayerLimits,
    /// Most batches in flight.
    pub flights: usize,
    /// The targets.
    pub targets: Vec<Played>,
    /// Every entry that a stream of a player delivered.
    pub read: BTreeMap<Position, Entry>,
    /// The longest queues.
    pub most: Queued,
    /// Where a target that was well lacked messages, although the log and the player were well.
    pub disturbed: Vec<String>,
}

impl Playing {
    /// An empty record.
    #[must_use]
    pub fn new(plan: &PlayersPlan) -> Self {
        Self {
            limits: plan.limits,
            flights: (plan.targets + usize::from(plan.adds_target)) * plan.unanswered,
            targets: vec![],
            read: BTreeMap::new(),
            most: Queued::default(),
            disturbed: vec![],
        }
    }
}

impl History {
    /// Every known entry of the log: entries that players read, and entries in the log at the end.
    #[must_use]
    pub fn entries(&self) -> BTreeMap<Position, Entry> {
        let Some(playing) = &self.playing else { return BTreeMap::new() };
        let mut entries = playing.read.clone();
        for (position, (_, append)) in &self.last {
            let Some(append) = append else { continue };
            let payload = self.appends[*append].payload.clone();
            let key = self.keyed.then(|| Bytes::copy_from_slice(&key_of(&payload)));
            entries.entry(*position).or_insert(Entry { key, payload });
        }
        entries
    }

    /// Entries for the target that it must have applied in the end, and has not. Empty unless the
    /// run came to rest.
    #[must_use]
    pub fn missing(&self, target: &Played) -> Vec<Position> {
        let End::AtRest { tail, .. } = self.end else { return vec![] };
        let applied: BTreeSet<Position> =
            target.database.effects.iter().map(|(position, _)| *position).collect();
        let is_missing = |(position, entry): &(Position, Entry)| {
            *position < tail
                && !applied.contains(position)
                && !target.is_skipped(*position)
                && !target.parts(*position, entry).is_empty()
        };
        self.entries().into_iter().filter(is_missing).map(|(position, _)| position).collect()
    }
}
