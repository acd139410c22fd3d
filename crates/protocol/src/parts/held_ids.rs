//! The ids of records that a shard replica holds and whose positions are not final.
//!
//! The store has the records. An id is *held*, then *placed* at a position, and forgotten when the
//! position is final.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::limits::Limits;
use seriatim_model::storage::Ordered;
use seriatim_model::{IdRun, LogConfig, Position, SessionId, ShardId, ViewHistory, ViewNumber};

use super::{Held, IdSet, junk};

/// The ids of stored records without final positions, and the positions assigned so far.
#[derive(Clone, Debug, Default)]
pub struct HeldIds {
    held: Held,
    /// Ids with positions that are not final yet.
    placed: BTreeMap<(Position, ViewNumber), Ordered>,
    /// For each active session, a position above which none of its records is known to be bound:
    /// its opening position, or the stable bound at its last activity.
    active: BTreeMap<SessionId, Position>,
    sweep_at: Position,
}

impl HeldIds {
    /// Starts with the ids in a reopened store.
    #[must_use]
    pub fn recover(put: Vec<IdRun>) -> Self {
        let mut ids = Self::default();
        put.into_iter().for_each(|run| ids.held.add(run, None));
        ids
    }

    /// The held ids, and the clients that sent them.
    #[must_use]
    pub fn records(&self) -> &Held {
        &self.held
    }

    /// Mutable access to the held ids.
    pub fn records_mut(&mut self) -> &mut Held {
        &mut self.held
    }

    /// Removes ids whose records left the store or were never stored.
    pub fn release(&mut self, ids: IdRun) {
        self.held.remove(ids);
    }

    /// The part of `ids` whose records are on this replica.
    #[must_use]
    pub fn within(&self, ids: IdRun) -> Vec<IdRun> {
        self.held.ids().within(ids)
    }

    /// The part of `ids` whose records are not on this replica.
    #[must_use]
    pub fn missing(&self, ids: IdRun) -> Vec<IdRun> {
        self.held.ids().missing(ids)
    }

    /// The held ids without a position.
    #[must_use]
    pub fn unplaced(&self) -> Vec<IdRun> {
        let placed: IdSet = self.placed.values().map(|run| run.ids).collect();
        self.held.ids().iter().flat_map(|ids| placed.missing(ids)).collect()
    }

    /// The number of held ids without a position.
    #[must_use]
    pub fn unplaced_count(&self) -> u64 {
        self.unplaced().iter().map(|ids| ids.count).sum()
    }

    /// Assigns positions from `first` on to the ids of `runs`. Positions that belong to no shard
    /// are skipped.
    pub fn place(&mut self, view: ViewNumber, first: Position, runs: &[Ordered]) {
        let mut position = first;
        for run in runs {
            if run.shard != ShardId::NOBODY {
                self.placed.insert((position, view), *run);
            }
            position += run.ids.count;
        }
    }

    /// Drops all assigned positions: no view counts them.
    pub fn forget_placed(&mut self) {
        self.placed.clear();
    }

    /// The end of the assigned positions.
    #[must_use]
    pub fn placed_end(&self) -> Position {
        self.placed.last_key_value().map_or(Position::ZERO, |((first, _), run)| *first + run.ids.count)
    }

    /// Takes the next ids, in order, whose positions are below `stable` and thus final.
    pub fn next_final(&mut self, stable: Position, history: &ViewHistory) -> Option<Ordered> {
        while let Some(((first, view), run)) = self.placed.first_key_value().map(|(at, run)| (*at, *run))
            && first < stable
        {
            self.placed.pop_first();
            let end = first + run.ids.count;
            let decided_to = history.cover_end(first).map_or(end, |next| next.min(end)).min(stable);
            let count = decided_to - first;
            if count < run.ids.count {
                self.placed.insert((decided_to, view), Ordered { ids: run.ids.tail(count), ..run });
            }
            if history.cover(first) == Some(view) && !junk::is_of_nobody(run.ids.session) {
                return Some(Ordered { ids: run.ids.head(count), ..run });
            }
        }
        None
    }

    /// Releases `run`, if its final positions are on this `shard`, and the session's earlier ids,
    /// which are final on other shards. Returns these earlier ids: their records are orphans here.
    pub fn finish(&mut self, shard: ShardId, run: Ordered) -> Vec<IdRun> {
        if run.shard == shard {
            self.release(run.ids);
        }
        let orphans = self.within(IdRun { first: 0, count: run.ids.end(), ..run.ids });
        orphans.iter().for_each(|ids| self.release(*ids));
        orphans
    }

    /// Notes activity of a session. Its opening position may be far above the stable bound.
    pub fn note_active(&mut self, stable: Position, session: SessionId) {
        self.active.insert(session, stable.max(session.opened_at()));
    }

    /// Whether a session counts as active.
    #[must_use]
    pub fn is_active(&self, session: SessionId) -> bool {
        self.active.contains_key(&session)
    }

    /// If more than `2 * most` sessions are active, forgets the longest idle ones down to `most`,
    /// except sessions with held records and `kept` ones. Returns them.
    pub fn forget_idle(&mut self, most: usize, kept: impl FnOnce() -> BTreeSet<SessionId>) -> Vec<SessionId> {
        // Sequencing replicas remember at most this many sessions, plus some in flight.
        if self.active.len() <= 2 * most {
            return vec![];
        }
        let kept = kept();
        let is_idle = |session: &SessionId| !self.held.has(*session) && !kept.contains(session);
        let active = self.active.iter().filter(|(session, _)| is_idle(session));
        let mut idle: Vec<(Position, SessionId)> = active.map(|(session, at)| (*at, *session)).collect();
        idle.sort_unstable();
        idle.truncate(self.active.len() - most);
        let idle: Vec<SessionId> = idle.into_iter().map(|(_, session)| session).collect();
        idle.iter().for_each(|session| {
            self.active.remove(session);
        });
        idle
    }

    /// Number of positions after which records of an idle session are no longer admitted. Twice the
    /// idle limit, since a sequencing replica may have ordered less than is final here; plus the
    /// largest ring of any node, whose entries were admitted before. This node's own ring does not
    /// count, since other nodes admit the records.
    #[must_use]
    pub fn over_after(config: &LogConfig, limits: Limits) -> u64 {
        config.idle_positions().saturating_mul(2).saturating_add(limits.largest_ring_records as u64)
    }

    /// Forgets sessions idle for more than `idle_positions`, which no sequencing replica admits any
    /// more. Returns the ids that stay without a position. `None` if the next sweep is not due, a
    /// sixteenth of `idle_positions` after the last.
    pub fn sweep(&mut self, stable: Position, idle_positions: u64) -> Option<Vec<IdRun>> {
        if stable < self.sweep_at {
            return None;
        }
        self.sweep_at = stable + idle_positions / 16;
        // Sessions of a reopened store count as active from now.
        for ids in self.held.ids().iter() {
            self.active.entry(ids.session).or_insert(stable.max(ids.session.opened_at()));
        }
        let over = |at: &Position| stable.since(*at) > idle_positions;
        let mut orphans = self.unplaced();
        orphans.retain(|ids| self.active.get(&ids.session).is_some_and(over));
        orphans.iter().for_each(|ids| self.release(*ids));
        self.active.retain(|_, at| !over(at));
        Some(orphans)
    }
}

/// The part of a batch with positions at or above `stable`.
#[must_use]
pub fn not_below(stable: Position, first: Position, runs: Vec<Ordered>) -> (Position, Vec<Ordered>) {
    let mut position = first;
    let mut rest = vec![];
    for run in runs {
        let end = position + run.ids.count;
        let skip = stable.since(position).min(run.ids.count);
        if skip < run.ids.count {
            rest.push(Ordered { ids: run.ids.tail(skip), ..run });
        }
        position = end;
    }
    (first.max(stable), rest)
}
