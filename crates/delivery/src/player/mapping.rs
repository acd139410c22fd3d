//! From entries to messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::record::key_hash;
use seriatim_model::storage::Stored;
use seriatim_model::{Filter, Position, wal};

/// Decides to which targets an entry belongs.
///
/// It must give the same answer for the same entry at any time: recovery maps entries again.
pub trait Mapper: fmt::Debug + Send + Sync {
    /// Adds what the entry holds for each target.
    fn map(&self, stored: &Stored, out: &mut Messages);
}

/// What an entry holds for the targets that it names.
#[derive(Debug, Default)]
pub struct Messages {
    parts: Vec<(String, Bytes)>,
}

impl Messages {
    /// Adds a mutation for a target. Several mutations for one target stay in order.
    pub fn put(&mut self, target: impl Into<String>, part: impl Into<Bytes>) {
        self.parts.push((target.into(), part.into()));
    }
}

/// A target for the entries that match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Id of the target.
    pub to: String,
    /// The entries that take the route. None: all.
    pub filter: Option<Filter>,
}

impl Route {
    fn matches(&self, stored: &Stored) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(&stored.record))
    }
}

/// How entries are mapped to targets.
#[derive(Clone, Debug)]
pub enum Map {
    /// Entries in the format of [`wal`] name their targets.
    Wal,
    /// The hash of the key chooses a target; without a key, the position.
    Key,
    /// Routes in order.
    Routes {
        /// The routes.
        routes: Vec<Route>,
        /// Whether all routes that match count, not only the first.
        all: bool,
    },
    /// A program's mapper.
    Program(Arc<dyn Mapper>),
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Wal, Self::Wal) | (Self::Key, Self::Key) | (Self::Program(_), Self::Program(_)) => true,
            (Self::Routes { routes, all }, Self::Routes { routes: others, all: other }) => {
                (routes, all) == (others, other)
            }
            _ => false,
        }
    }
}

/// A mapping with its targets. Their order matters for [`Map::Key`].
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The mapping.
    pub map: Map,
    /// Ids of the targets.
    pub targets: Vec<String>,
}

/// An entry that no player of this version can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    /// The entry's position.
    pub(super) position: Position,
    /// The fault of the entry.
    pub(super) reason: String,
}

impl Rule {
    /// The entry's parts for each target id.
    fn parts(&self, stored: &Stored) -> Result<Vec<(String, Bytes)>, Unreadable> {
        let whole = |id: &String| (id.clone(), stored.record.payload());
        match &self.map {
            Map::Wal => match wal::decode(&stored.record) {
                Ok(parts) => Ok(parts.unwrap_or_default()),
                Err(error) => Err(Unreadable { position: stored.position, reason: error.to_string() }),
            },
            Map::Key => {
                let number = stored.record.key().map_or(stored.position.0, |key| key_hash(&key));
                let count = self.targets.len() as u64;
                Ok(self.targets.get((number % count) as usize).map(whole).into_iter().collect())
            }
            Map::Routes { routes, all } => {
                let limit = if *all { routes.len() } else { 1 };
                let mut ids: Vec<&String> = vec![];
                for route in routes.iter().filter(|route| route.matches(stored)).take(limit) {
                    if !ids.contains(&&route.to) {
                        ids.push(&route.to);
                    }
                }
                Ok(ids.into_iter().map(whole).collect())
            }
            Map::Program(mapper) => {
                let mut messages = Messages::default();
                mapper.map(stored, &mut messages);
                Ok(messages.parts)
            }
        }
    }
}

/// The rules of one target: each applies from its position to the next one's.
///
/// Invariant: positions increase strictly.
pub type Rules = Vec<(Position, Arc<Rule>)>;

/// The rules of all targets.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// For each target its id and its rules.
    targets: Vec<(String, Rules)>,
    index: BTreeMap<String, usize>,
    /// Whether the mapping ignores the positions of rules: a deliberate defect.
    ignores_history: bool,
}

/// An entry's messages, and the names that no target has.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// For each named target, by its index, its parts in order.
    pub(super) messages: BTreeMap<usize, Vec<Bytes>>,
    pub(super) unknown: Vec<String>,
}

impl Mapping {
    pub(super) fn new(targets: Vec<(String, Rules)>, ignores_history: bool) -> Self {
        for (id, rules) in &targets {
            let increase = rules.windows(2).all(|pair| pair[0].0 < pair[1].0);
            assert!(increase && !rules.is_empty(), "the rules of target {id} have increasing positions");
        }
        let index = targets.iter().enumerate().map(|(index, (id, _))| (id.clone(), index)).collect();
        Self { targets, index, ignores_history }
    }

    /// The rule of a target for the entry at `position`.
    fn rule(&self, target: usize, position: Position) -> Option<&Arc<Rule>> {
        let rules = &self.targets[target].1;
        if self.ignores_history {
            return rules.last().map(|(_, rule)| rule);
        }
        let later = rules.partition_point(|(first, _)| *first <= position);
        later.checked_sub(1).map(|index| &rules[index].1)
    }

    /// Maps an entry. An entry in `skipped` belongs to no target.
    pub(super) fn unless_skipped(
        &self,
        stored: &Stored,
        skipped: &BTreeSet<Position>,
    ) -> Result<Mapped, Unreadable> {
        if skipped.contains(&stored.position) { Ok(Mapped::default()) } else { self.map(stored) }
    }

    /// Targets usually share one rule, which then maps the entry once.
    fn map(&self, stored: &Stored) -> Result<Mapped, Unreadable> {
        let mut distinct: Vec<&Arc<Rule>> = vec![];
        for target in 0..self.targets.len() {
            if let Some(rule) = self.rule(target, stored.position)
                && !distinct.iter().any(|known| Arc::ptr_eq(known, rule))
            {
                distinct.push(rule);
            }
        }
        let mut mapped = Mapped::default();
        for rule in distinct {
            for (id, part) in rule.parts(stored)? {
                let Some(&target) = self.index.get(&id) else {
                    if !rule.targets.contains(&id) {
                        mapped.unknown.push(id);
                    }
                    continue;
                };
                if self.rule(target, stored.position).is_some_and(|own| Arc::ptr_eq(own, rule)) {
                    let part = own_part(part, stored.record.encoded().len());
                    mapped.messages.entry(target).or_default().push(part);
                }
            }
        }
        Ok(mapped)
    }
}

/// Most names of unknown targets that a player counts.
const UNKNOWN_NAMES: usize = 64;

/// Names of unknown targets, with the number of their messages and the first position.
#[derive(Clone, Debug, Default)]
pub(super) struct Unknown(BTreeMap<String, (u64, Position)>);

impl Unknown {
    /// Counts a message. Returns whether the name is new.
    pub(super) fn count(&mut self, name: &str, position: Position) -> bool {
        if let Some((count, _)) = self.0.get_mut(name) {
            *count += 1;
        } else if self.0.len() < UNKNOWN_NAMES {
            self.0.insert(name.to_owned(), (1, position));
            return true;
        }
        false
    }

    /// The names, the numbers of their messages, and their first positions.
    pub(super) fn all(&self) -> Vec<(String, u64, Position)> {
        self.0.iter().map(|(name, (count, first))| (name.clone(), *count, *first)).collect()
    }
}

/// The part as a slice of its record, or as a copy if it is small: a slice keeps the record alive.
fn own_part(part: Bytes, record_bytes: usize) -> Bytes {
    if part.len() < record_bytes / 4 { Bytes::copy_from_slice(&part) } else { part }
}
