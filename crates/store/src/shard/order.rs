//! Records that arrive before their positions: put by id, then ordered or discarded.

use seriatim_model::storage::{Ordered, Owned, StorageCommand};
use seriatim_model::{IdRun, Position, Record, RecordId, ViewNumber, limits};

use super::binding::{Binding, Bound, OrderPart};
use super::ids::runs_of;
use super::index::{IndexRun, hidden_from};
use super::runs::Stretch;
use super::{Kept, ShardStore, StoreError, stretches};

#[derive(Debug, Default)]
struct Plan {
    parts: Vec<OrderPart>,
    /// No-ops to write, with the index of their part.
    no_ops: Vec<(usize, Vec<(RecordId, Record)>)>,
}

/// Most bytes of a put run, unless one record is larger: a read of one record may read its whole
/// run. Runs with consecutive positions are joined.
const MAX_PUT_BYTES: u32 = 4 << 10;

/// Most encoded bytes of an order's head, and of each of its parts.
const PART_BYTES: u64 = 64;

impl ShardStore {
    pub(super) fn put(&mut self, records: &[(RecordId, Record)]) -> Result<Kept, StoreError> {
        if records.iter().any(|(id, _)| id.number > limits::MAX_NUMBER) {
            return Err(StoreError::Nonsense("a record's number is larger than any there is"));
        }
        let mut fresh = vec![];
        for (ids, records) in runs_of(records) {
            let held = self.held_numbers(ids)?;
            let rest = stretches(ids.count, &held).filter(|(_, is_held)| !is_held);
            fresh.extend(rest.map(|(range, _)| &records[range.start as usize..range.end as usize]));
        }
        if fresh.is_empty() {
            return Ok(Kept::Nothing);
        }
        self.make_room(&fresh, 0)?;
        let (written, appended) = self.write(&fresh, MAX_PUT_BYTES)?;
        let is_whole = fresh.iter().map(|part| part.len()).sum::<usize>() == records.len();
        let kept = if is_whole { Kept::Command } else { Kept::Instead(StorageCommand::Put(fresh.concat())) };
        let mut bindings = vec![];
        for (records, written) in fresh.iter().zip(written) {
            let RecordId { session, number: mut first } = records[0].0;
            for written in written {
                bindings.push(Binding::put(session, first, self.active.number, written));
                first += u64::from(written.count);
            }
        }
        self.note(bindings, Some(appended))?;
        Ok(kept)
    }

    /// Gives ids their positions. Changes nothing if the store lacks one of its own records.
    pub(super) fn order(
        &mut self,
        view: ViewNumber,
        first: Position,
        runs: &[Ordered],
    ) -> Result<Kept, StoreError> {
        let mut plan = Plan::default();
        let mut next = first;
        for run in runs {
            let end = next.0.checked_add(run.ids.count).filter(|_| run.ids.count > 0);
            let Some(end) = end.filter(|_| run.ids.first.checked_add(run.ids.count).is_some()) else {
                return Err(StoreError::Nonsense("an order of no or too many positions"));
            };
            self.plan(view, next, run, &mut plan)?;
            next = Position(end);
        }
        if self.contents.knows_order(view, first, &plan.parts, self.trim.position()) {
            return Ok(Kept::Nothing);
        }
        self.perform(view, first, plan)?;
        Ok(Kept::Command)
    }

    /// Plans one run; skips positions that a newer view decides.
    fn plan(
        &self,
        view: ViewNumber,
        first: Position,
        run: &Ordered,
        plan: &mut Plan,
    ) -> Result<(), StoreError> {
        let hidden = self.contents.history().and_then(|history| hidden_from(history, view));
        let count = hidden.map_or(run.ids.count, |from| from.since(first).min(run.ids.count));
        if count == 0 {
            return Ok(());
        }
        if run.shard != self.place.owner.shard {
            plan.parts.push(OrderPart::Elsewhere(Owned { shard: run.shard, count }));
            return Ok(());
        }
        let (ids, is_void) = (run.ids.head(count), run.is_void);
        let trimmed = self.trim.position().since(first).min(count);
        if trimmed > 0 {
            plan.parts.push(known(ids.head(trimmed), is_void));
        }
        let (first, ids) = (first + trimmed, ids.tail(trimmed));
        let is_it = |index, found: Option<(RecordId, &Record)>| {
            let wanted = RecordId { session: ids.session, number: ids.first + index };
            found.is_some_and(|(id, record)| id == wanted && record.is_no_op() == is_void)
        };
        let held = self.held(view, first, ids.count, is_it)?;
        for (range, is_held) in stretches(ids.count, &held) {
            let first = first + range.start;
            let ids = ids.tail(range.start).head(range.end - range.start);
            match (is_held, is_void) {
                (true, _) => plan.parts.push(known(ids, is_void)),
                (false, true) => plan.add_no_ops(ids)?,
                (false, false) => self.plan_named(view, first, ids, plan)?,
            }
        }
        Ok(())
    }

    fn plan_named(
        &self,
        view: ViewNumber,
        first: Position,
        ids: IdRun,
        plan: &mut Plan,
    ) -> Result<(), StoreError> {
        let mut rest = ids;
        for (number, run) in self.contents.held.within(ids) {
            let gap = rest.head(number - rest.first);
            self.plan_damaged(view, first + (rest.first - ids.first), gap, plan)?;
            let ids = IdRun { first: number, count: run.count(), ..ids };
            plan.parts.push(OrderPart::Here(Bound { ids, is_void: false, place: Some(run) }));
            rest = rest.tail(ids.end() - rest.first);
        }
        self.plan_damaged(view, first + (rest.first - ids.first), rest, plan)
    }

    /// Accepts ids that are not held if the view's records at their positions are damaged: an
    /// earlier execution of the order put the right records there.
    fn plan_damaged(
        &self,
        view: ViewNumber,
        first: Position,
        ids: IdRun,
        plan: &mut Plan,
    ) -> Result<(), StoreError> {
        if ids.count == 0 {
            return Ok(());
        }
        let damaged = self.held(view, first, ids.count, |_, found| found.is_none())?;
        if let Some((range, _)) = stretches(ids.count, &damaged).find(|(_, is_damaged)| !is_damaged) {
            let number = ids.first + range.start;
            return Err(StoreError::Unheld(RecordId { session: ids.session, number }));
        }
        plan.parts.push(known(ids, false));
        Ok(())
    }

    fn perform(&mut self, view: ViewNumber, first: Position, plan: Plan) -> Result<(), StoreError> {
        let no_ops: Vec<&[_]> = plan.no_ops.iter().map(|(_, records)| &records[..]).collect();
        self.make_room(&no_ops, PART_BYTES * (plan.parts.len() as u64 + 1))?;
        if no_ops.is_empty() {
            return self.note(vec![Binding::Order { view, first, parts: plan.parts }], None);
        }
        let (written, appended) = self.write(&no_ops, MAX_PUT_BYTES)?;
        let mut written = plan.no_ops.iter().map(|(index, _)| *index).zip(written).peekable();
        let mut parts = vec![];
        for (index, part) in plan.parts.into_iter().enumerate() {
            match (written.next_if(|(planned, _)| *planned == index), part) {
                (Some((_, written)), OrderPart::Here(bound)) => {
                    let mut rest = bound.ids;
                    for written in written {
                        let place = IndexRun::new(self.active.number, written);
                        let ids = rest.head(place.count());
                        parts.push(OrderPart::Here(Bound { ids, place: Some(place), ..bound }));
                        rest = rest.tail(place.count());
                    }
                }
                (_, part) => parts.push(part),
            }
        }
        self.note(vec![Binding::Order { view, first, parts }], Some(appended))
    }

    pub(super) fn note_map(
        &mut self,
        view: ViewNumber,
        first: Position,
        owned: &[Owned],
    ) -> Result<Kept, StoreError> {
        let end = owned.iter().try_fold(first.0, |end, part| end.checked_add(part.count));
        if end.is_none() || owned.iter().any(|part| part.count == 0) {
            return Err(StoreError::Nonsense("a map of no or too many positions"));
        }
        let mut next = first;
        let is_known = owned.iter().all(|part| {
            let first = next;
            next += part.count;
            self.contents.knows_owner(view, first, *part)
        });
        if is_known {
            return Ok(Kept::Nothing);
        }
        self.make_room(&[], PART_BYTES * (owned.len() as u64 + 1))?;
        self.note(vec![Binding::Map { view, first, owned: owned.to_vec() }], None)?;
        Ok(Kept::Command)
    }

    pub(super) fn discard(&mut self, ids: IdRun) -> Result<Kept, StoreError> {
        let discarded = self.contents.discarded(ids);
        if discarded.is_empty() {
            return Ok(Kept::Nothing);
        }
        self.note(discarded.into_iter().map(Binding::Discard).collect(), None)?;
        Ok(Kept::Command)
    }
}

impl Plan {
    fn add_no_ops(&mut self, ids: IdRun) -> Result<(), StoreError> {
        if ids.count > limits::RING_RECORDS as u64 {
            return Err(StoreError::Nonsense("more no-ops than records can be on their way"));
        }
        let records = ids.ids().map(|id| (id, Record::no_op())).collect();
        self.no_ops.push((self.parts.len(), records));
        self.parts.push(OrderPart::Here(Bound { ids, is_void: true, place: None }));
        Ok(())
    }
}

/// A part of an order for ids that already have these positions.
fn known(ids: IdRun, is_void: bool) -> OrderPart {
    OrderPart::Here(Bound { ids, is_void, place: None })
}
