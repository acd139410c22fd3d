//! The ids of records that a shard replica holds before they have final positions.
//!
//! The store has the records; here are only their ids. An id goes from *held* to *placed*, when it
//! is given a position, and is forgotten when that position is final.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::limits::Limits;
use seriatim_model::storage::Ordered;
use seriatim_model::{IdRun, LogConfig, Position, SessionId, ShardId, ViewHistory, ViewNumber};

use super::{Held, IdSet, junk};

/// The ids of records in the store that have no final position, with the positions that some of
/// them were given.
#[derive(Clone, Debug, Default)]
pub struct HeldIds {
    held: Held,
    /// Ids that got positions which are not final yet.
    placed: BTreeMap<(Position, ViewNumber), Ordered>,
    /// Above which position nothing of a session was bound as far as this replica can tell: where
    /// the session was opened, or the stable bound when something of it last came or became final.
    active: BTreeMap<SessionId, Position>,
    /// Where the next search for sessions that are over is due.
    sweep_at: Position,
}

impl HeldIds {
    /// The ids that a store holds when it is opened again.
    #[must_use]
    pub fn recover(put: Vec<IdRun>) -> Self {
        let mut ids = Self::default();
        put.into_iter().for_each(|run| ids.held.add(run, None));
        ids
    }

    /// The ids that are held, and the clients that brought them.
    #[must_use]
    pub fn records(&self) -> &Held {
        &self.held
    }

    /// The same, to be added to and taken from.
    pub fn records_mut(&mut self) -> &mut Held {
        &mut self.held
    }

    /// Their records are not in the store any more, or never came to be.
    pub fn release(&mut self, ids: IdRun) {
        self.held.remove(ids);
    }

    /// The given ids whose records are here.
    #[must_use]
    pub fn within(&self, ids: IdRun) -> Vec<IdRun> {
        self.held.ids().within(ids)
    }

    /// The given ids whose records are not here.
    #[must_use]
    pub fn missing(&self, ids: IdRun) -> Vec<IdRun> {
        self.held.ids().missing(ids)
    }

    /// The ids that are held and have no position.
    #[must_use]
    pub fn unplaced(&self) -> Vec<IdRun> {
        let placed: IdSet = self.placed.values().map(|run| run.ids).collect();
        self.held.ids().iter().flat_map(|ids| placed.missing(ids)).collect()
    }

    /// How many these are.
    #[must_use]
    pub fn unplaced_count(&self) -> u64 {
        self.unplaced().iter().map(|ids| ids.count).sum()
    }

    /// Takes note that ids got the positions from `first` on. Those of nobody got none.
    pub fn place(&mut self, view: ViewNumber, first: Position, runs: &[Ordered]) {
        let mut position = first;
        for run in runs {
            if run.shard != ShardId::NOBODY {
                self.placed.insert((position, view), *run);
            }
            position += run.ids.count;
        }
    }

    /// Ids at positions that no view counts are as if they had none.
    pub fn forget_placed(&mut self) {
        self.placed.clear();
    }

    /// The position after the last that ids got here.
    #[must_use]
    pub fn placed_end(&self) -> Position {
        self.placed.last_key_value().map_or(Position::ZERO, |((first, _), run)| *first + run.ids.count)
    }

    /// The next ids, in order, whose positions are below `stable` and so final. They are not placed
    /// any more.
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

    /// The positions of these are final, some of them on this `shard`: what is held of them goes,
    /// and what comes before them in their session, which is final as well, somewhere else. Returns
    /// the latter, which was put for nothing.
    pub fn finish(&mut self, shard: ShardId, run: Ordered) -> Vec<IdRun> {
        if run.shard == shard {
            self.release(run.ids);
        }
        let orphans = self.within(IdRun { first: 0, count: run.ids.end(), ..run.ids });
        orphans.iter().for_each(|ids| self.release(*ids));
        orphans
    }

    /// Something of a session came, or became final. A session is opened at a tail, which may be
    /// far above what is final.
    pub fn note_active(&mut self, stable: Position, session: SessionId) {
        self.active.insert(session, stable.max(session.opened_at()));
    }

    /// Whether a session counts as active.
    #[must_use]
    pub fn is_active(&self, session: SessionId) -> bool {
        self.active.contains_key(&session)
    }

    /// If more than twice `most` sessions are active, forgets that of as many as can be, the
    /// longest idle first, so that there are not more than `most`: such of which nothing is held
    /// and that are not to be `kept`. Returns them.
    pub fn forget_idle(&mut self, most: usize, kept: impl FnOnce() -> BTreeSet<SessionId>) -> Vec<SessionId> {
        // No fewer than sequencing replicas remember, and some that are on their way.
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

    /// After how many positions nothing is admitted any more of a session that nothing came of.
    /// Twice: a sequencing replica may have ordered a little less than is final here. And a ring's,
    /// the largest that any node has: what it holds was admitted before, and is ordered within
    /// that. No number of this node alone is in it, since other nodes admit what is discarded here.
    #[must_use]
    pub fn over_after(config: &LogConfig, limits: Limits) -> u64 {
        config.idle_positions().saturating_mul(2).saturating_add(limits.largest_ring_records as u64)
    }

    /// Forgets sessions of which nothing came, and nothing became final, for so many positions that
    /// no sequencing replica admits anything of theirs any more, whatever comes. Returns the ids
    /// that were put and now never get a position; nothing if it does not look, which it does every
    /// sixteenth of that.
    pub fn sweep(&mut self, stable: Position, idle_positions: u64) -> Option<Vec<IdRun>> {
        if stable < self.sweep_at {
            return None;
        }
        self.sweep_at = stable + idle_positions / 16;
        // Ids that a store brought back count from now on.
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

/// The part of a batch that is not final yet.
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
