//! Names whose fate is not final: which records are held by name, and which positions names were given.
//!
//! Records that wait for their positions cost 32 bytes for each run: what one append leaves of a session's
//! consecutive numbers, in pieces of about 4 KiB. So records of 100 bytes that are appended together cost one byte
//! each, and one that is appended alone 32. Names that have positions which are not final cost 72 bytes for each
//! run of both. All that is forgotten when the position is final: what is here is what is on its way, and what
//! clients that died left behind until it is discarded.

use std::collections::BTreeMap;

use seriatim_model::{IdRun, RecordId, SessionId, Settled};

use super::index::{IndexRun, Versions};
use super::runs::{Runs, Stretch, Visits};

/// Where the records are that are held by name.
#[derive(Debug, Default)]
pub(super) struct Names {
    sessions: BTreeMap<SessionId, Runs<IndexRun>>,
    /// For each segment, how many names have their records in it.
    segments: BTreeMap<u32, u64>,
    visits: Visits,
}

impl Names {
    /// A record that is held already is held at the new place only.
    pub(super) fn insert(&mut self, session: SessionId, first: u64, run: IndexRun) {
        *self.segments.entry(run.segment).or_default() += run.count();
        let replaced = self.sessions.entry(session).or_default().insert_apart(first, run);
        self.visits.add(1);
        self.release(&replaced);
    }

    pub(super) fn forget(&mut self, ids: IdRun) {
        let Some(runs) = self.sessions.get_mut(&ids.session) else { return };
        let removed = runs.remove(ids.first, ids.end());
        if runs.is_empty() {
            self.sessions.remove(&ids.session);
        }
        self.release(&removed);
    }

    fn release(&mut self, removed: &[IndexRun]) {
        self.visits.add(removed.len());
        for run in removed {
            let count = self.segments.get_mut(&run.segment).expect("a segment with names is counted");
            *count -= run.count();
            if *count == 0 {
                self.segments.remove(&run.segment);
            }
        }
    }

    /// Where those of the names are that are held, with the first number of each run, in order.
    pub(super) fn within(&self, ids: IdRun) -> impl Iterator<Item = (u64, IndexRun)> + use<'_> {
        let runs = self.sessions.get(&ids.session).into_iter();
        let found = runs.flat_map(move |runs| runs.within(ids.first, ids.first.saturating_add(ids.count)));
        found.inspect(|_| self.visits.add(1))
    }

    /// Whether a name's record is in this segment.
    pub(super) fn need(&self, segment: u32) -> bool {
        self.segments.contains_key(&segment)
    }

    /// All names, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = IdRun> + use<'_> {
        let sessions = self.sessions.iter();
        let all = sessions.flat_map(|(session, runs)| {
            runs.iter().map(|(first, run)| IdRun { session: *session, first, count: run.count() })
        });
        all.inspect(|_| self.visits.add(1))
    }

    /// How many runs it has looked at so far.
    pub(super) fn visited(&self) -> u64 {
        self.visits.count()
    }
}

/// Which names have which positions that are not final.
pub(super) type Given = Versions<Settled>;

impl Stretch for Settled {
    fn count(&self) -> u64 {
        self.ids.count
    }

    fn head(self, count: u64) -> Self {
        Self { ids: self.ids.head(count), ..self }
    }

    fn tail(self, count: u64) -> Self {
        Self { ids: self.ids.tail(count), ..self }
    }

    fn join(self, next: Self) -> Option<Self> {
        let ids = follow(self.ids, next.ids)?;
        (self.is_void == next.is_void).then_some(Self { ids, ..self })
    }
}

/// Both as one, if the second follows the first.
fn follow(ids: IdRun, next: IdRun) -> Option<IdRun> {
    let follows = ids.session == next.session && ids.end() == next.first;
    follows.then(|| ids.head(ids.count + next.count))
}

/// The same names in order, each once, in as few runs as possible.
pub(super) fn in_order(mut runs: Vec<IdRun>) -> Vec<IdRun> {
    runs.sort_unstable();
    let mut merged: Vec<IdRun> = vec![];
    for run in runs {
        match merged.last_mut().filter(|last| last.session == run.session && last.end() >= run.first) {
            Some(last) => last.count = last.end().max(run.end()) - last.first,
            None => merged.push(run),
        }
    }
    merged
}

/// Consecutive names as runs, in the order given; each with the part of `records` that it names.
pub(super) fn runs_of<T>(records: &[(RecordId, T)]) -> impl Iterator<Item = (IdRun, &[(RecordId, T)])> {
    let follows = |(id, _): &(RecordId, T), (next, _): &(RecordId, T)| {
        id.session == next.session && id.number.checked_add(1) == Some(next.number)
    };
    records.chunk_by(follows).map(|chunk| {
        let RecordId { session, number } = chunk[0].0;
        (IdRun { session, first: number, count: chunk.len() as u64 }, chunk)
    })
}
