//! Records that arrive with their positions.
//!
//! The store writes no record that the view has. If another view has the same records at the same
//! positions, the store binds their bytes, and the journal keeps a reference to that view
//! ([`StorageCommand::Rebind`]). So each attempt of a view change, which pushes unstable records
//! again, costs a few bytes per run.

use std::collections::BTreeSet;
use std::ops::Range;

use seriatim_model::storage::{Rebound, Run, StorageCommand};
use seriatim_model::{Announced, BoundIds, Position, Record, RecordId, ViewNumber};

use super::binding::Binding;
use super::ids::runs_of;
use super::index::{IndexRun, MAX_RUN_BYTES};
use super::read::spans;
use super::runs::Stretch;
use super::{Kept, ShardStore, StoreError, stretches};

/// Most views that are not registered and are searched for equal records.
const CLAIMS_COMPARED: usize = 8;

/// Most bytes of an entry that binds existing bytes.
const REFERENCE_BYTES: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct BindPart<'a> {
    first: Position,
    records: &'a [(RecordId, Record)],
}

impl<'a> BindPart<'a> {
    fn within(self, range: Range<u64>) -> Self {
        let records = &self.records[range.start as usize..range.end as usize];
        Self { first: self.first + range.start, records }
    }

    fn end(&self) -> Position {
        self.first + self.records.len() as u64
    }
}

/// Positions from `first` on at which view `of` has the same records, in the bytes of `run`.
#[derive(Clone, Copy, Debug)]
struct Same {
    of: ViewNumber,
    first: Position,
    run: IndexRun,
}

impl ShardStore {
    /// Stores the records that the view lacks.
    pub(super) fn bind_runs(&mut self, view: ViewNumber, runs: &[Run]) -> Result<Kept, StoreError> {
        let fresh = self.fresh_parts(view, runs)?;
        if self.binds_ids() {
            return self.bind_named(view, runs, &fresh);
        }
        // In overlapping runs the last one wins, so the valid part of each run is unknown: do not
        // compare.
        let is_plain = runs.windows(2).all(|pair| pair[0].end() <= pair[1].first);
        let (fresh, same) = if is_plain { self.compare(view, fresh) } else { (fresh, vec![]) };
        if fresh.is_empty() && same.is_empty() {
            return Ok(Kept::Nothing);
        }
        let references =
            same.iter().map(|Same { first, run, .. }| Binding::Refer { view, first: *first, run: *run });
        self.write_parts(view, &fresh, references.collect())?;
        let count = |parts: usize, part: &BindPart<'_>| parts + part.records.len();
        let is_whole = fresh.iter().fold(0, count) == runs.iter().map(|run| run.records.len()).sum::<usize>();
        if is_whole || !is_plain {
            return Ok(Kept::Command);
        }
        let runs =
            fresh.iter().map(|part| Run { first: part.first, records: part.records.to_vec() }).collect();
        Ok(Kept::Instead(match same.is_empty() {
            true => StorageCommand::Bind { view, runs },
            false => StorageCommand::Rebind { view, same: rebound(&same), runs },
        }))
    }

    /// Binds runs like [`ShardStore::bind_runs`] in logs whose records may be held by id: also
    /// notes the ids.
    fn bind_named(
        &mut self,
        view: ViewNumber,
        runs: &[Run],
        fresh: &[BindPart<'_>],
    ) -> Result<Kept, StoreError> {
        // Note ids at trimmed positions too: they no longer wait for a position.
        let trimmed = runs.iter().flat_map(|run| name_bindings(view, self.split(run).0));
        let mut bindings: Vec<Binding> = trimmed.filter(|binding| !self.knows(binding)).collect();
        bindings.extend(fresh.iter().flat_map(|part| name_bindings(view, *part)));
        if bindings.is_empty() {
            return Ok(Kept::Nothing);
        }
        self.write_parts(view, fresh, bindings)?;
        Ok(Kept::Command)
    }

    /// Replays the command that [`ShardStore::bind_runs`] left for the journal: binds runs to
    /// another view's bytes and stores the rest.
    pub(super) fn rebind(
        &mut self,
        view: ViewNumber,
        same: &[Rebound],
        runs: &[Run],
    ) -> Result<Kept, StoreError> {
        let mut references = vec![];
        for Rebound { of, first, count } in same {
            let end = first.0.checked_add(*count).map(Position);
            let end = end.ok_or(StoreError::Nonsense("runs that end beyond all positions"))?;
            let first = (*first).max(self.trim.position()).min(end);
            if !self.contents.index.covers(*of, first, end.since(first), |_, _| true) {
                return Err(StoreError::Nonsense("a version of another view that is not there"));
            }
            let found = self.contents.index.within(*of, first, end);
            references.extend(found.map(|(first, run)| Binding::Refer { view, first, run }));
        }
        self.make_room(&[], REFERENCE_BYTES * references.len() as u64)?;
        self.note(references, None)?;
        self.bind_runs(view, runs)?;
        Ok(Kept::Command)
    }

    fn write_parts(
        &mut self,
        view: ViewNumber,
        parts: &[BindPart<'_>],
        mut bindings: Vec<Binding>,
    ) -> Result<(), StoreError> {
        let records: Vec<_> = parts.iter().map(|part| part.records).collect();
        self.make_room(&records, REFERENCE_BYTES * bindings.len() as u64)?;
        if records.is_empty() {
            return self.note(bindings, None);
        }
        let (written, appended) = self.write(&records, MAX_RUN_BYTES)?;
        for (part, written) in parts.iter().zip(written) {
            let mut first = part.first;
            for written in written {
                bindings.push(Binding::bind(view, first, self.active.number, written));
                first += u64::from(written.count);
            }
        }
        self.note(bindings, Some(appended))
    }

    /// Whether records may be held by id, so that their ids must be noted.
    fn binds_ids(&self) -> bool {
        let memory = self.contents.remembered.memory.as_ref();
        memory.is_some_and(|memory| memory.config.order.announces() == Announced::Id)
    }

    fn knows(&self, binding: &Binding) -> bool {
        match *binding {
            Binding::Ids { view, first, ids, is_void } => {
                self.contents.knows_ids(view, first, BoundIds { ids, is_void })
            }
            _ => false,
        }
    }

    /// The parts of `runs` neither trimmed nor stored.
    fn fresh_parts<'a>(&self, view: ViewNumber, runs: &'a [Run]) -> Result<Vec<BindPart<'a>>, StoreError> {
        let mut fresh = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            let (_, part) = self.split(run);
            let is_it = |index: u64, found: Option<(RecordId, &Record)>| {
                let (wanted, content) = &part.records[index as usize];
                found.is_some_and(|(id, record)| id == *wanted && record.is_no_op() == content.is_no_op())
            };
            let mut held = self.held(view, part.first, part.records.len() as u64, is_it)?;
            if !held.is_empty()
                && runs[..index].iter().any(|earlier| earlier.first < run.end() && run.first < earlier.end())
            {
                // An earlier run of this command replaces the stored records.
                held.clear();
            }
            let rest = stretches(part.records.len() as u64, &held).filter(|(_, is_held)| !is_held);
            fresh.extend(rest.map(|(range, _)| part.within(range)));
        }
        Ok(fresh)
    }

    /// Splits a run into its trimmed part and the rest.
    fn split<'a>(&self, run: &'a Run) -> (BindPart<'a>, BindPart<'a>) {
        let count = run.records.len() as u64;
        let whole = BindPart { first: run.first, records: &run.records };
        let trimmed = self.trim.position().since(run.first).min(count);
        (whole.within(0..trimmed), whole.within(trimmed..count))
    }

    /// Separates the records to write from the records that another view already stores.
    fn compare<'a>(&self, view: ViewNumber, parts: Vec<BindPart<'a>>) -> (Vec<BindPart<'a>>, Vec<Same>) {
        let (mut fresh, mut same) = (vec![], vec![]);
        for part in parts {
            let mut found = BTreeSet::new();
            for (of, from, end) in self.candidates(view, part) {
                self.compare_with(of, part, (from, end), &mut found, &mut same);
                if found.len() == part.records.len() {
                    break;
                }
            }
            let rest = stretches(part.records.len() as u64, &found).filter(|(_, is_found)| !is_found);
            fresh.extend(rest.map(|(range, _)| part.within(range)));
        }
        same.sort_unstable_by_key(|same| same.first);
        (fresh, same)
    }

    /// The views that may store equal records, with the range to compare: the latest unregistered
    /// views, and the views that decide these positions.
    fn candidates(&self, view: ViewNumber, part: BindPart<'_>) -> Vec<(ViewNumber, Position, Position)> {
        let Some(history) = self.contents.history() else { return vec![] };
        let claims = self.contents.index.views_after(history.latest()).filter(|claim| *claim != view);
        let claims = claims.take(CLAIMS_COMPARED).map(|claim| (claim, part.first, part.end()));
        let decided = spans(history, part.first, part.end()).filter(|span| span.view != view);
        claims.chain(decided.map(|span| (span.view, span.from, span.end))).collect()
    }

    /// Adds to `same` the records of a part that view `of` stores byte for byte, and their offsets
    /// to `found`. Ignores offsets already in `found`.
    fn compare_with(
        &self,
        of: ViewNumber,
        part: BindPart<'_>,
        (from, end): (Position, Position),
        found: &mut BTreeSet<u64>,
        same: &mut Vec<Same>,
    ) {
        for (first, run) in self.contents.index.within(of, from, end) {
            let before = first.since(part.first);
            if (before..before + run.count()).all(|index| found.contains(&index)) {
                continue;
            }
            // Skips unreadable runs and damaged records.
            let Ok(records) = self.records_of_run(run) else { continue };
            let matching: BTreeSet<u64> = (0..)
                .zip(records)
                .filter(|(index, record)| {
                    let wanted = &part.records[(before + index) as usize];
                    !found.contains(&(before + index)) && record.as_ref() == Some(wanted)
                })
                .map(|(index, _)| index)
                .collect();
            for (range, _) in stretches(run.count(), &matching).filter(|(_, is_same)| *is_same) {
                let run = run.tail(range.start).head(range.end - range.start);
                same.push(Same { of, first: first + range.start, run });
                found.extend(before + range.start..before + range.end);
            }
        }
    }
}

fn rebound(same: &[Same]) -> Vec<Rebound> {
    let mut merged: Vec<Rebound> = vec![];
    for Same { of, first, run } in same {
        match merged.last_mut().filter(|last| last.of == *of && last.first + last.count == *first) {
            Some(last) => last.count += run.count(),
            None => merged.push(Rebound { of: *of, first: *first, count: run.count() }),
        }
    }
    merged
}

fn name_bindings(view: ViewNumber, part: BindPart<'_>) -> Vec<Binding> {
    let mut bindings = vec![];
    let mut first = part.first;
    for (ids, records) in runs_of(part.records) {
        let mut rest = ids;
        for same in records.chunk_by(|(_, one), (_, next)| one.is_no_op() == next.is_no_op()) {
            let ids = rest.head(same.len() as u64);
            bindings.push(Binding::Ids { view, first, ids, is_void: same[0].1.is_no_op() });
            first += ids.count;
            rest = rest.tail(ids.count);
        }
    }
    bindings
}
