//! Ids without a final position: records held by id, and positions given to ids.
//!
//! A held run costs 32 bytes; in long sessions a few bytes, since runs are packed. It has
//! consecutive ids of one append, up to about 4 KiB of records. A run of ids with positions costs
//! 64 bytes, or a few bytes where there are many. Both are forgotten when the position is final or
//! the ids are discarded.

use std::collections::BTreeMap;

use seriatim_model::{BoundIds, IdRun, RecordId, SessionId};

use super::index::IndexRun;
use super::numbers::{Input, put_difference, put_number};
use super::runs::{Runs, Stretch, Visits};

#[derive(Debug, Default)]
pub(super) struct HeldIds {
    sessions: BTreeMap<SessionId, Runs<IndexRun>>,
    /// Number of held ids per segment.
    segments: BTreeMap<u32, u64>,
    visits: Visits,
}

impl HeldIds {
    /// Notes the place of held ids. Replaces an earlier place.
    pub(super) fn insert(&mut self, session: SessionId, first: u64, run: IndexRun) {
        *self.segments.entry(run.segment).or_default() += run.count();
        let replaced = self.sessions.entry(session).or_default().insert_apart(first, run, &self.visits);
        self.release(&replaced);
    }

    pub(super) fn forget(&mut self, ids: IdRun) {
        let Some(runs) = self.sessions.get_mut(&ids.session) else { return };
        let removed = runs.remove(ids.first, ids.end(), &self.visits);
        if runs.is_empty() {
            self.sessions.remove(&ids.session);
        }
        self.release(&removed);
    }

    fn release(&mut self, removed: &[IndexRun]) {
        for run in removed {
            let count = self.segments.get_mut(&run.segment).expect("a segment with names is counted");
            *count -= run.count();
            if *count == 0 {
                self.segments.remove(&run.segment);
            }
        }
    }

    /// The held runs of these ids, each with its first number.
    pub(super) fn within(&self, ids: IdRun) -> impl Iterator<Item = (u64, IndexRun)> + use<'_> {
        let runs = self.sessions.get(&ids.session).into_iter();
        runs.flat_map(move |runs| runs.within(ids.first, ids.first.saturating_add(ids.count), &self.visits))
    }

    pub(super) fn need(&self, segment: u32) -> bool {
        self.segments.contains_key(&segment)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = IdRun> + use<'_> {
        self.sessions.iter().flat_map(|(session, runs)| {
            let runs = runs.iter(&self.visits);
            runs.map(|(first, run)| IdRun { session: *session, first, count: run.count() })
        })
    }

    pub(super) fn visited(&self) -> u64 {
        self.visits.count()
    }
}

/// Flags of an encoded entry: the ids are void; another session than the last entry's; a number
/// that does not follow the last entry's; several ids.
const VOID: u8 = 1;
const OTHER_SESSION: u8 = 2;
const ELSEWHERE: u8 = 4;
const SEVERAL: u8 = 8;

impl Stretch for BoundIds {
    const NOTHING: Self = Self { ids: IdRun { session: SessionId(0), first: 0, count: 0 }, is_void: false };

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

    fn put_after(self, last: Self, out: &mut Vec<u8>) -> u8 {
        let Self { ids, is_void } = self;
        let mut how = if is_void { VOID } else { 0 };
        if ids.session != last.ids.session {
            how |= OTHER_SESSION;
            out.extend_from_slice(&ids.session.0.to_le_bytes());
        }
        if ids.first != last.ids.end() {
            how |= ELSEWHERE;
            put_difference(out, last.ids.end(), ids.first);
        }
        if ids.count != 1 {
            how |= SEVERAL;
            put_number(out, ids.count);
        }
        how
    }

    fn take_after(last: Self, how: u8, input: &mut Input<'_>) -> Option<Self> {
        let is_told = |what| how & what != 0;
        let session = if is_told(OTHER_SESSION) { input.session()? } else { last.ids.session };
        let next = last.ids.end();
        let first = if is_told(ELSEWHERE) { input.difference(next)? } else { next };
        let count = if is_told(SEVERAL) { input.number()? } else { 1 };
        Some(Self { ids: IdRun { session, first, count }, is_void: is_told(VOID) })
    }
}

fn follow(ids: IdRun, next: IdRun) -> Option<IdRun> {
    let follows = ids.session == next.session && ids.end() == next.first;
    follows.then(|| ids.head(ids.count + next.count))
}

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

/// Splits records into runs of consecutive ids, keeping the order.
pub(super) fn runs_of<T>(records: &[(RecordId, T)]) -> impl Iterator<Item = (IdRun, &[(RecordId, T)])> {
    let follows = |(id, _): &(RecordId, T), (next, _): &(RecordId, T)| {
        id.session == next.session && id.number.checked_add(1) == Some(next.number)
    };
    records.chunk_by(follows).map(|chunk| {
        let RecordId { session, number } = chunk[0].0;
        (IdRun { session, first: number, count: chunk.len() as u64 }, chunk)
    })
}
