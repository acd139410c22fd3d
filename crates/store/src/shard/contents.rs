//! The in-memory state of a store: the sum of its binding log entries, both when they are written
//! and when they are loaded.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::storage::{HardState, Owned};
use seriatim_model::{BoundIds, IdRun, Position, RecordId, ShardId, Span, ViewHistory, ViewNumber, limits};

use super::Remembered;
use super::binding::{Binding, Bound, OrderPart};
use super::given::Given;
use super::ids::{HeldIds, in_order};
use super::index::{Index, IndexRun, Map, hidden_from};
use super::read::spans;
use super::runs::{Stretch, Visits};
use super::segment::Written;
use super::usage::Parts;

#[derive(Debug)]
pub(super) struct Contents {
    shard: ShardId,
    /// While entries are loaded: the highest stable bound that they may set.
    believed: Position,
    pub(super) remembered: Remembered,
    pub(super) index: Index,
    pub(super) map: Map,
    /// A copy of the map's empty positions, so that a read finds them without visiting the rest.
    empty: Map,
    pub(super) held: HeldIds,
    /// Ids with positions that are not final. Invariant: nothing in it is below the stable bound.
    pub(super) given: Given,
    /// Held ids that a later [`Binding::Held`] entry repeats.
    told_again: BTreeSet<RecordId>,
    segments: BTreeMap<u32, Need>,
    visits: Visits,
}

/// Why a segment is needed, besides held records.
#[derive(Clone, Debug, Default)]
struct Need {
    /// Bound above the positions of its records, and above the positions whose owners its log
    /// notes.
    positions: Position,
    /// Bound above the positions whose ids its log has; ids matter until final.
    ids: Position,
    /// Bound above all positions in its log.
    told: Position,
    /// The positions of its records, in the order of bytes.
    parts: Parts,
}

impl Need {
    fn is_over(&self, trim: Position, stable: Position) -> bool {
        self.positions <= trim && self.ids <= stable
    }
}

impl Contents {
    /// Loaded entries raise the stable bound to `believed` at most.
    pub(super) fn new(shard: ShardId, believed: Position) -> Self {
        Self {
            shard,
            believed,
            remembered: Remembered::default(),
            index: Index::default(),
            map: Map::default(),
            empty: Map::default(),
            held: HeldIds::default(),
            given: Given::default(),
            told_again: BTreeSet::new(),
            segments: BTreeMap::new(),
            visits: Visits::default(),
        }
    }

    pub(super) fn believe(&mut self) {
        self.believed = Position(u64::MAX);
    }

    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(super) fn history(&self) -> Option<&ViewHistory> {
        self.remembered.memory.as_ref().map(|memory| &memory.history)
    }

    pub(super) fn add_segment(&mut self, number: u32) {
        self.segments.entry(number).or_default();
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.segments.keys().copied()
    }

    /// Number after the oldest segments below `limit` that are all superfluous at this trim point;
    /// 0 if the oldest segment is needed.
    pub(super) fn dead_to(&self, limit: u32, trim: Position) -> u32 {
        let stable = self.remembered.stable;
        let is_dead = |(number, need): &(&u32, &Need)| {
            **number < limit && need.is_over(trim, stable) && !self.held.need(**number)
        };
        let seen = self.segments.iter().inspect(|_| self.visits.add(1));
        seen.take_while(is_dead).last().map_or(0, |(number, _)| number + 1)
    }

    /// Whether all positions of this segment are trimmed: a cheap check before
    /// [`Contents::dead_to`].
    pub(super) fn is_below(&self, number: u32, trim: Position) -> bool {
        self.segments.get(&number).is_some_and(|need| need.positions <= trim)
    }

    /// Whether the segment's binding log concerns final positions only.
    pub(super) fn is_told_final(&self, number: u32) -> bool {
        let stable = self.remembered.stable;
        self.segments.get(&number).is_some_and(|need| need.told <= stable && need.ids <= stable)
    }

    /// For each segment: number, parts, and a bound above the positions that keep it.
    pub(super) fn parts(&self) -> impl DoubleEndedIterator<Item = (u32, &Parts, Position)> {
        self.segments.iter().map(|(number, need)| (*number, &need.parts, need.positions))
    }

    pub(super) fn has_segment(&self, number: u32) -> bool {
        self.segments.contains_key(&number)
    }

    pub(super) fn forget_segment(&mut self, number: u32) {
        self.segments.remove(&number);
    }

    /// The first entries of a new binding log: state that would be lost with earlier logs.
    ///
    /// Other entries need no copy, so they do not grow with the log: a record's bytes are named in
    /// the log of its segment or a later one, a position's owner in a log that stays until the
    /// position is trimmed, and an id in a log that stays until its position is final.
    pub(super) fn initial_bindings(&self) -> Vec<Binding> {
        self.remembered.bindings()
    }

    /// Entries for ids that are forgotten once positions below `position` are final, but were put,
    /// or noted, again after they got positions. The log that gave the positions may be deleted
    /// before the records: without these entries the ids would reappear as held.
    pub(super) fn put_again_below(&self, position: Position) -> Vec<Binding> {
        let mut again = vec![];
        for (view, first, named) in self.given.versions().below(position) {
            for (number, run) in self.held.within(named.ids) {
                let first = first + (number - named.ids.first);
                let here = self.index.within(view, first, first + run.count());
                let bound: u64 =
                    here.filter(|(_, bound)| bound.segment == run.segment).map(|(_, b)| b.count()).sum();
                let ids = IdRun { first: number, count: run.count(), ..named.ids };
                if bound < run.count() || self.is_told_again(ids) {
                    again.push(Binding::Ids { view, first, ids, is_void: named.is_void });
                }
            }
        }
        again
    }

    fn is_told_again(&self, ids: IdRun) -> bool {
        !self.told_again.is_empty() && ids.ids().any(|id| self.told_again.contains(&id))
    }

    fn forget(&mut self, ids: IdRun) {
        if !self.told_again.is_empty() {
            let name = |number| RecordId { session: ids.session, number };
            let told = self.told_again.range(name(ids.first)..name(ids.end())).copied();
            told.collect::<Vec<_>>().iter().for_each(|id| _ = self.told_again.remove(id));
        }
        self.held.forget(ids);
    }

    /// Entries with the ids of positions that are not final.
    pub(super) fn given_bindings(&self) -> Vec<Binding> {
        let given = self.given.versions().iter();
        let entry = |(view, first, BoundIds { ids, is_void })| Binding::Ids { view, first, ids, is_void };
        given.map(entry).collect()
    }

    /// Entries with the bytes of all positions, and with the ids of positions that are not final.
    pub(super) fn all_bindings(&self) -> Vec<Binding> {
        let places = self.index.iter().map(|(view, first, run)| Binding::Refer { view, first, run });
        places.chain(self.given_bindings()).collect()
    }

    pub(super) fn visited(&self) -> u64 {
        let Self { index, map, empty, held, given, visits, .. } = self;
        index.visited() + map.visited() + empty.visited() + held.visited() + given.visited() + visits.count()
    }

    /// Applies an entry from the log of segment `log`. Ignores records of deleted segments.
    pub(super) fn take(&mut self, binding: Binding, log: u32) {
        match binding {
            Binding::Bind { view, first, count, segment, offset, bytes } => {
                self.bind(view, first, IndexRun::new(segment, Written { count, offset, bytes }), log);
            }
            Binding::Stable(position) => self.raise_stable(position),
            Binding::Times { times, whole: true } => self.remembered.times = times,
            Binding::Times { times, whole: false } => self.remembered.times.merge(&times),
            Binding::Remember(memory) => self.take_memory(memory),
            Binding::RememberMissing { memory, missing } => {
                self.take_memory(memory);
                self.remembered.missing = missing;
            }
            Binding::Put { session, first, count, segment, offset, bytes } => {
                if self.segments.contains_key(&segment) {
                    let run = IndexRun::new(segment, Written { count, offset, bytes });
                    self.held.insert(session, first, run);
                }
            }
            Binding::Order { view, first, parts } => self.order(view, first, &parts, log),
            Binding::Ids { view, first, ids, is_void } => {
                self.give_ids(view, first, BoundIds { ids, is_void }, log);
            }
            Binding::Map { view, mut first, owned } => {
                for part in owned {
                    self.own(view, first, part, log);
                    first += part.count;
                }
            }
            Binding::Discard(ids) => self.discard(ids),
            Binding::Held { session, first, run } => {
                if self.segments.contains_key(&run.segment) {
                    self.held.insert(session, first, run);
                    let ids = IdRun { session, first, count: run.count() };
                    self.told_again.extend(ids.ids());
                }
            }
            Binding::Refer { view, first, run } => self.bind(view, first, run, log),
        }
    }

    /// Whether the view is known to have given these ids these positions. For final positions it
    /// suffices that no id is held.
    pub(super) fn knows_ids(&self, view: ViewNumber, first: Position, named: BoundIds) -> bool {
        let final_count = self.remembered.stable.since(first).min(named.count());
        let (bound, rest) = (named.head(final_count), named.tail(final_count));
        let is_same = |before, found: BoundIds| {
            rest.is_void == found.is_void && rest.ids.tail(before).head(found.count()) == found.ids
        };
        self.held.within(bound.ids).next().is_none()
            && self.given.versions().covers(view, first + final_count, rest.count(), is_same)
    }

    pub(super) fn knows_owner(&self, view: ViewNumber, first: Position, owned: Owned) -> bool {
        self.map.covers(view, first, owned.count, |_, found| found.shard == owned.shard)
    }

    /// Whether an order adds nothing. Owners below `trim` do not matter.
    pub(super) fn knows_order(
        &self,
        view: ViewNumber,
        mut first: Position,
        parts: &[OrderPart],
        trim: Position,
    ) -> bool {
        parts.iter().all(|part| {
            let owned = match part {
                OrderPart::Elsewhere(owned) => *owned,
                OrderPart::Here(bound) => Owned { shard: self.shard, count: bound.ids.count },
            };
            let trimmed = trim.since(first).min(owned.count);
            let knows_owner = self.knows_owner(view, first + trimmed, owned.tail(trimmed));
            let knows_ids = match *part {
                OrderPart::Elsewhere(_) => true,
                OrderPart::Here(Bound { place: Some(_), .. }) => false,
                OrderPart::Here(Bound { ids, is_void, place: None }) => {
                    self.knows_ids(view, first, BoundIds { ids, is_void })
                }
            };
            first += owned.count;
            knows_owner && knows_ids
        })
    }

    /// The valid empty positions (without an owner) in `from..end`, in at most `most` spans.
    pub(super) fn empty_within(&self, from: Position, end: Position, most: usize) -> Vec<Span> {
        let mut empty: Vec<Span> = vec![];
        for (first, count) in self.nobodys(from, end) {
            let is_enough = empty.len() == most;
            match empty.last_mut().filter(|last| last.end() == first) {
                Some(last) => last.count += count,
                None if is_enough => break,
                None => empty.push(Span { first, count }),
            }
        }
        empty
    }

    /// The end of the empty positions that follow `end` without a gap. Visits at most
    /// [`limits::READ_SPANS`] runs.
    pub(super) fn empty_to(&self, mut end: Position) -> Position {
        for (first, count) in self.nobodys(end, Position(u64::MAX)).take(limits::READ_SPANS) {
            if first != end {
                break;
            }
            end = first + count;
        }
        end
    }

    /// The valid empty runs in `from..end`: first position and count.
    fn nobodys(&self, from: Position, end: Position) -> impl Iterator<Item = (Position, u64)> + use<'_> {
        let spans = self.history().into_iter().flat_map(move |history| spans(history, from, end));
        let runs = spans.flat_map(|span| self.empty.within(span.view, span.from, span.end));
        runs.map(|(first, owned)| (first, owned.count))
    }

    /// Drops up to `most` runs below a trim point. Returns whether none is left.
    pub(super) fn trim(&mut self, trim: Position, mut most: usize) -> bool {
        self.remembered.times.forget_below(trim);
        let Self { index, map, empty, .. } = self;
        index.trim_some(trim, &mut most) && map.trim_some(trim, &mut most) && empty.trim_some(trim, &mut most)
    }

    fn bind(&mut self, view: ViewNumber, first: Position, run: IndexRun, log: u32) {
        let told = self.need_of(log);
        told.told = told.told.max(first + run.count());
        if let Some(need) = self.segments.get_mut(&run.segment) {
            need.positions = need.positions.max(first + run.count());
            need.parts.bound(run, first);
            self.index.insert(view, first, run);
        }
    }

    fn own(&mut self, view: ViewNumber, first: Position, owned: Owned, log: u32) {
        let need = self.need_of(log);
        need.positions = need.positions.max(first + owned.count);
        need.told = need.told.max(first + owned.count);
        self.map.insert(view, first, owned);
        match owned.shard {
            ShardId::NOBODY => self.empty.insert(view, first, owned),
            _ => self.empty.remove(view, first, first + owned.count),
        }
    }

    fn need_of(&mut self, log: u32) -> &mut Need {
        self.segments.get_mut(&log).expect("a segment whose log is written or read is known")
    }

    fn order(&mut self, view: ViewNumber, mut first: Position, parts: &[OrderPart], log: u32) {
        for part in parts {
            match *part {
                OrderPart::Elsewhere(owned) => self.own(view, first, owned, log),
                OrderPart::Here(Bound { ids, is_void, place }) => {
                    self.own(view, first, Owned { shard: self.shard, count: ids.count }, log);
                    if let Some(run) = place {
                        self.bind(view, first, run, log);
                    }
                    self.give_ids(view, first, BoundIds { ids, is_void }, log);
                }
            }
            first += part.count();
        }
    }

    fn give_ids(&mut self, view: ViewNumber, first: Position, named: BoundIds, log: u32) {
        let hidden = self.history().and_then(|history| hidden_from(history, view));
        let count = hidden.map_or(named.count(), |from| from.since(first).min(named.count()));
        let named = named.head(count);
        let final_count = self.remembered.stable.since(first).min(count);
        if final_count > 0 {
            self.drop_final(vec![(view, first, named.head(final_count))]);
        }
        if final_count < count {
            let need = self.need_of(log);
            need.ids = need.ids.max(first + count);
            let first = first + final_count;
            assert!(first >= self.remembered.stable, "the final record at {first} has no name");
            self.given.insert(view, first, named.tail(final_count));
        }
    }

    fn raise_stable(&mut self, position: Position) {
        let stable = self.remembered.stable.max(position.min(self.believed));
        self.remembered.stable = stable;
        let bound = self.given.versions().below(stable);
        if !bound.is_empty() {
            self.given.change().trim(stable);
            self.drop_final(bound);
        }
    }

    fn take_memory(&mut self, memory: HardState) {
        self.index.hide(&memory.history);
        self.map.hide(&memory.history);
        self.empty.hide(&memory.history);
        self.given.hide(&memory.history);
        let start = start_of_view(Some(&memory));
        self.remembered.memory = Some(memory);
        self.raise_stable(start);
    }

    /// Forgets the ids of final positions. An invalid version does not decide about its ids.
    fn drop_final(&mut self, bound: Vec<(ViewNumber, Position, BoundIds)>) {
        let mut forgotten = vec![];
        for (view, first, named) in bound {
            let Some(history) = self.history() else { return };
            let end = first + named.count();
            for span in spans(history, first, end).filter(|span| span.view == view) {
                let head = named.head(span.end - first);
                forgotten.push(head.tail(span.from - first).ids);
            }
        }
        for ids in forgotten {
            self.forget(ids);
        }
    }

    fn discard(&mut self, discarded: IdRun) {
        self.given.without_position(discarded).into_iter().for_each(|ids| self.forget(ids));
    }

    /// The parts of `ids` without positions, except parts without a held id.
    ///
    /// Discard entries list only these. The positions of other ids are in earlier logs, which may
    /// be deleted when the entry is loaded: the positions are final by then, but a newer view or
    /// order may have given them to other ids.
    pub(super) fn discarded(&self, ids: IdRun) -> Vec<IdRun> {
        let mut without = self.given.without_position(ids);
        without.retain(|ids| self.held.within(*ids).next().is_some());
        without
    }

    pub(super) fn put(&self) -> Vec<IdRun> {
        in_order(self.held.ids().collect())
    }

    /// Ids of no-ops at positions that are not final.
    pub(super) fn void(&self, trim: Position) -> Vec<IdRun> {
        let void = self.given.versions().iter().filter(|(_, _, named)| named.is_void);
        let above = void.filter_map(|(_, first, named)| {
            let trimmed = trim.since(first);
            (trimmed < named.count()).then(|| named.tail(trimmed).ids)
        });
        in_order(above.collect())
    }

    /// The end of each view's versions, on any shard.
    pub(super) fn ends(&self) -> Vec<(ViewNumber, Position)> {
        let mut ends: BTreeMap<ViewNumber, Position> = BTreeMap::new();
        for (view, end) in self.index.ends().into_iter().chain(self.map.ends()) {
            let known = ends.entry(view).or_default();
            *known = end.max(*known);
        }
        ends.into_iter().collect()
    }
}

/// Start of the registered view; all below is stable.
pub(super) fn start_of_view(memory: Option<&HardState>) -> Position {
    memory.and_then(|memory| memory.view.as_ref()).map_or(Position::ZERO, |view| view.start)
}
