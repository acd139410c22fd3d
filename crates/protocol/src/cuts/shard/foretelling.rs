//! Positions of records before a cut gives them (SpecLog §3.2): the primary of a shard with a quota
//! computes them from the window, for readers that take predictions.
//!
//! ```text
//!              decided            everywhere           length
//!  --------------|--------------------|------------------|-----   index
//!    committed   |  foretold          |  not yet         |
//! ```
//!
//! An index is foretold when everything before it is, the primary knows the window of its turn, and
//! it is padding or its record is durable on all replicas. Each sealed member of the ordering layer
//! knows that window, and each replica that continues into the next view has the record at that
//! index. So the closing cut puts the record at the foretold position.

use std::collections::BTreeMap;
use std::ops::Range;

use seriatim_model::storage::{Found, Ordered, Stored};
use seriatim_model::{Address, Endpoint, IdRun, Position, RecordId, ShardId, Span, limits};

use super::message::Message;
use super::padding::Turns;
use super::{Chunk, LocalLog, LocalPath, Out};
use crate::mutation::{Mutation, Options};
use crate::parts::junk::is_of_nobody;
use crate::shard::{Core, Foretold, send};

/// The part of a local log whose positions readers may receive.
///
/// Invariant: below position `upto` lie no indexes of this shard except those below `end` and
/// decided ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Foretelling {
    /// Indexes below this one are foretold (predicted).
    end: u64,
    /// The position of index `end`, or a lower bound of it.
    upto: Position,
    /// All cuts from the view's start up to here were received.
    committed: Position,
    /// Cuts beyond a gap: first position and end.
    beyond: BTreeMap<Position, Position>,
    /// Positions of skipped records: first position and end. The spans are disjoint.
    passed_over: BTreeMap<Position, Position>,
}

impl Foretelling {
    pub(super) fn begin(start: Position) -> Self {
        Self { upto: start, committed: start, ..Self::default() }
    }

    /// The deliberate defect: guessed positions may be wrong.
    pub(super) fn guessed(&mut self) {
        self.end = 0;
    }

    /// Notes a committed cut. Returns whether the gapless part grew.
    fn note_committed(&mut self, first: Position, runs: &[Ordered]) -> bool {
        let mut end = first;
        for run in runs {
            let from = end;
            end += run.ids.count;
            if run.shard == ShardId::NOBODY && !is_of_nobody(run.ids.session) && from >= self.committed {
                self.passed_over.insert(from, end);
            }
        }
        let before = self.committed;
        if end > before {
            self.beyond.insert(first, end);
        }
        while let Some(part) = self.beyond.first_entry().filter(|part| *part.key() <= self.committed) {
            self.committed = self.committed.max(part.remove());
        }
        self.committed > before
    }

    fn forget_below(&mut self, stable: Position) {
        while self.passed_over.first_key_value().is_some_and(|(_, end)| *end <= stable) {
            self.passed_over.pop_first();
        }
    }

    /// Skipped positions of committed cuts in `from..upto`.
    fn passed_over(&self, from: Position, upto: Position) -> Vec<Span> {
        let upto = upto.min(self.committed);
        let first = self.passed_over.range(..=from).next_back().map_or(from, |(first, _)| *first);
        if first >= upto {
            return vec![];
        }
        let spans = self.passed_over.range(first..upto);
        Span::joined(
            spans.filter_map(|(first, end)| Span::between((*first).max(from), (*end).min(upto))).collect(),
        )
    }
}

impl LocalLog {
    /// Durable length on all replicas. Padding needs no acknowledgement.
    fn everywhere(&self, options: Options) -> u64 {
        let own = self.durable();
        if options.mutates(Mutation::PredictedUnreplicated) {
            return own;
        }
        let of_backups = self.backups.values().map(|backup| self.over_padding(backup.stored));
        of_backups.fold(own, u64::min)
    }

    /// End of the padding at an index, or the index itself.
    fn over_padding(&self, mut index: u64) -> u64 {
        let from = self.chunks.partition_point(|chunk| chunk.end() <= index);
        for chunk in self.chunks.range(from..) {
            if chunk.index > index || !chunk.is_padding() {
                break;
            }
            index = chunk.end();
        }
        index
    }

    fn foretell(&mut self, stable: Position, options: Options) -> bool {
        let everywhere = self.everywhere(options);
        let Some((end, upto)) = self.turns.foretold(everywhere, stable) else { return false };
        let known = &mut self.foretelling;
        let is_more = upto > known.upto;
        (known.end, known.upto) = (end.max(known.end), upto.max(known.upto));
        if is_more {
            self.assert_foretold(options);
        }
        is_more
    }

    fn assert_foretold(&self, options: Options) {
        let Foretelling { end, upto, .. } = self.foretelling;
        // Cuts may decide more than this replica knows of its backups.
        let end = end.max(self.decided);
        let are_guessed =
            options.mutates(Mutation::LeaseIgnored) || options.mutates(Mutation::LenderPredicts);
        let next = self.turns.slot(end).map(|(position, _)| position).filter(|_| !are_guessed);
        assert!(
            next.is_none_or(|next| next >= upto),
            "index {end} is at {next:?}, and positions below {upto} are predicted"
        );
    }

    fn read_foretold(&self, from: Position, max_records: u32, max_bytes: u32) -> Found {
        let Foretelling { end, upto, .. } = self.foretelling;
        let mut reading = Reading::new(upto, max_records, max_bytes);
        let mut index = self.turns.first_from(from).map_or(end, |index| index.min(end));
        let mut chunks = self.chunks.range(self.chunks.partition_point(|chunk| chunk.end() <= index)..);
        let mut next = chunks.next();
        while index < end {
            let chunk =
                next.filter(|chunk| chunk.index <= index).expect("records that are not stable are kept");
            let (position, turn_end) = self.turns.slot(index).expect("it is foretold");
            let stop = chunk.end().min(turn_end).min(end);
            if !reading.take(chunk, index..stop, position) {
                break;
            }
            index = stop;
            if index == chunk.end() {
                next = chunks.next();
            }
        }
        reading.found
    }
}

struct Reading {
    found: Found,
    bytes: u64,
    max_records: usize,
    max_bytes: u64,
}

impl Reading {
    fn new(upto: Position, max_records: u32, max_bytes: u32) -> Self {
        let found = Found { records: vec![], empty: vec![], upto };
        Self { found, bytes: 0, max_records: max_records as usize, max_bytes: max_bytes.into() }
    }

    fn is_full(&self) -> bool {
        self.found.records.len() >= self.max_records
            || self.found.empty.len() >= limits::READ_SPANS
            || self.bytes >= self.max_bytes
    }

    /// Takes indexes with consecutive positions. Returns whether it took all.
    fn take(&mut self, chunk: &Chunk, indexes: Range<u64>, first: Position) -> bool {
        if chunk.is_padding() && !self.is_full() {
            let span = Span { first, count: indexes.end - indexes.start };
            match self.found.empty.last_mut().filter(|last| last.end() == first) {
                Some(last) => last.count += span.count,
                None => {
                    self.bytes += limits::SPAN_BYTES;
                    self.found.empty.push(span);
                }
            }
            return true;
        }
        for (nth, index) in (0..).zip(indexes) {
            if self.is_full() {
                self.found.upto = first + nth;
                return false;
            }
            let stored = chunk.stored_at(index, first + nth);
            self.bytes += stored.record.memory() as u64;
            self.found.records.push(stored);
        }
        true
    }
}

impl Chunk {
    pub(super) fn is_padding(&self) -> bool {
        self.records.is_empty()
    }

    fn stored_at(&self, index: u64, position: Position) -> Stored {
        let nth = index - self.index;
        let ids = self.names.ids;
        let id = RecordId { session: ids.session, number: ids.first + nth };
        Stored { position, id, record: self.records[usize::try_from(nth).expect("it is in memory")].clone() }
    }
}

impl Foretold for LocalPath {
    fn foretold(&self, from: Position, max_records: u32, max_bytes: u32) -> Found {
        let mut found = self.local.read_foretold(from, max_records, max_bytes);
        // A skipped name keeps its position. This replica knows the skipped names of all shards.
        let void = self.local.foretelling.passed_over(from, found.upto);
        if !void.is_empty() {
            let is_void = |stored: &Stored| {
                let span = void.partition_point(|span| span.end() <= stored.position);
                void.get(span).is_some_and(|span| span.contains(stored.position))
            };
            found.records.retain(|stored| !is_void(stored));
            found.empty.extend(void);
            found.empty = Span::joined(found.empty);
            if let Some(beyond) = found.empty.get(limits::READ_SPANS) {
                found.upto = beyond.first;
                found.empty.truncate(limits::READ_SPANS);
                found.records.retain(|stored| stored.position < found.upto);
            }
        }
        found
    }

    fn passed_over(&self, from: Position, upto: Position) -> Vec<Span> {
        self.local.foretelling.passed_over(from, upto)
    }
}

impl LocalPath {
    pub(super) fn foretold_upto(&self) -> Position {
        self.local.foretelling.upto
    }

    pub(super) fn committed_upto(&self) -> Position {
        self.local.foretelling.committed
    }

    /// Primary: sends predictions to readers, if more is foretold.
    pub(super) fn foretell(&mut self, core: &mut Core, out: &mut Out) {
        let before = self.local.foretelling.upto.max(core.stable);
        if !core.is_open() || !core.is_primary() || !self.local.foretell(core.stable, core.options) {
            return;
        }
        if core.options.mutates(Mutation::AcknowledgedOnPrediction) {
            let found = self.local.read_foretold(before, u32::MAX, u32::MAX);
            let one = |id: RecordId| IdRun { session: id.session, first: id.number, count: 1 };
            let named = found.records.iter().map(|stored| (one(stored.id), stored.position));
            self.answer_submitters(core, named, out);
        }
        core.predict(&*self, out);
    }

    /// Primary: a committed cut confirms predictions to readers.
    pub(super) fn note_committed(
        &mut self,
        core: &mut Core,
        first: Position,
        runs: &[Ordered],
        out: &mut Out,
    ) {
        if self.local.foretelling.note_committed(first, runs) {
            core.predict(&*self, out);
        }
    }

    pub(super) fn forget_foretold(&mut self, core: &Core) {
        self.local.foretelling.forget_below(core.stable);
    }

    /// Backup, with quotas: reports its durable length to the primary.
    pub(super) fn tell_stored(&mut self, core: &Core, out: &mut Out) {
        let length = self.local.durable();
        if core.is_primary() || !self.has_begun(core) || length <= self.local.acknowledged {
            return;
        }
        let Some(members) = core.members().filter(|_| core.memory.config.order.has_quotas()) else { return };
        self.local.acknowledged = length;
        let primary = Address::Node(members.primary().node, Endpoint::Shard(core.shard));
        send(primary, Message::LocalStored { view: core.view_number(), length }, out);
    }

    pub(super) fn stored_at_backup(&mut self, core: &mut Core, from: Address, length: u64, out: &mut Out) {
        let Address::Node(node, _) = from else { return };
        if let Some(backup) = self.local.backups.get_mut(&node) {
            backup.stored = backup.stored.max(length);
            self.foretell(core, out);
        }
    }
}

impl Turns {
    /// The foretold length, and the position of the next index or a lower bound. `everywhere`:
    /// durable length on all replicas. `None`: no window is known.
    fn foretold(&self, everywhere: u64, stable: Position) -> Option<(u64, Position)> {
        // Begins at the window of `stable`: records below come from the store.
        let over = self.windows.partition_point(|window| window.base <= stable).checked_sub(1)?;
        let mut known = None;
        for window in self.windows.range(over..) {
            let before = Some((known.map_or(0, |(end, _)| end), window.base));
            let (begun, length) =
                (window.length_before(self.shard, 0), window.length_before(self.shard, window.cuts));
            let (Some(begun), Some(length), Some(end)) = (begun, length, window.end()) else {
                // The shard lends in this window.
                return before;
            };
            if everywhere < begun {
                return before;
            }
            if everywhere < length {
                let next = window.position(self.shard, everywhere);
                return Some((everywhere, next.expect("it has a turn for that")));
            }
            known = Some((length, end));
        }
        known
    }

    /// First index with a position at or above `from`, in the known windows.
    fn first_from(&self, from: Position) -> Option<u64> {
        self.windows.iter().filter(|window| window.end().is_some_and(|end| end > from)).find_map(|window| {
            let share = window.shares.iter().find(|share| share.shard == self.shard)?;
            let (mut low, mut high) = (share.index, window.length(self.shard, window.cuts - 1)?);
            let end = high;
            while low < high {
                let middle = low.midpoint(high);
                match window.position(self.shard, middle)? < from {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            (low < end).then_some(low)
        })
    }

    /// Position of an index, and the end of its turn.
    fn slot(&self, index: u64) -> Option<(Position, u64)> {
        let position = self.windows.iter().find_map(|window| window.position(self.shard, index))?;
        Some((position, self.end_at(index)?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use seriatim_model::{Record, SessionId};

    use super::*;
    use crate::cuts::shard::{Stored as Write, Submitted};
    use crate::cuts::window::{Share, Window};

    const SHARD: ShardId = ShardId(1);

    fn windows() -> Vec<Window> {
        let share = |shard, quota, index| Share { shard: ShardId(shard), quota, index };
        let (first, second) = (vec![share(0, 2, 0), share(1, 3, 0)], vec![share(0, 1, 4), share(1, 2, 6)]);
        vec![
            Window { number: 0, base: Position(10), cuts: 2, groups: 1, shares: first, lenders: vec![] },
            Window { number: 1, base: Position(20), cuts: 3, groups: 2, shares: second, lenders: vec![] },
        ]
    }

    /// The shard's positions in `windows()`, by index.
    const POSITIONS: [u64; 8] = [12, 13, 14, 17, 18, 19, 21, 22];

    /// One record, padding up to index 3, three records, padding up to index 8.
    fn local() -> LocalLog {
        let mut local = LocalLog { foretelling: Foretelling::begin(Position(10)), ..LocalLog::default() };
        local.turns.shard = SHARD;
        local.turns.windows = windows().into();
        local.push(chunk(0, 1));
        local.add_padding(3);
        local.push(chunk(3, 3));
        local.add_padding(8);
        local
    }

    fn chunk(index: u64, count: u64) -> Chunk {
        let ids = IdRun { session: SessionId(7), first: index, count };
        let records = (0..count).map(|_| Record::new(b"record".as_slice(), 0)).collect();
        Chunk { index, names: Submitted { ids, lowest: 0 }, records, stored: Write::Durable }
    }

    #[test]
    fn as_much_is_foretold_as_all_replicas_have_and_windows_are_known_for() {
        let mut local = local();
        assert!(local.foretell(Position(10), Options::default()));
        let known = &local.foretelling;
        assert_eq!((known.end, known.upto), (8, Position(24)), "the window ends");
        let mut upto = BTreeMap::new();
        for stored in 0..=8 {
            let end = local.over_padding(stored);
            upto.insert(stored, local.turns.foretold(end, Position(10)).expect("it received windows").1.0);
        }
        let expected = [12, 17, 17, 17, 18, 19, 24, 24, 24];
        assert_eq!(upto.into_values().collect::<Vec<_>>(), expected, "over padding, to the next slot");
    }

    #[test]
    fn from_each_position_all_is_read_that_follows_however_little_is_read_at_once() {
        let mut local = local();
        local.foretell(Position(10), Options::default());
        for (from, most) in (10..=24).flat_map(|from| (1..9).map(move |most| (from, most))) {
            let (mut next, mut records, mut empty) = (Position(from), vec![], vec![]);
            while next < local.foretelling.upto {
                let found = local.read_foretold(next, most, u32::MAX);
                assert!(found.upto > next, "it goes on");
                records.extend(found.records.iter().map(|stored| (stored.position.0, stored.id.number)));
                empty.extend(found.empty.iter().flat_map(|span| span.positions()).map(|position| position.0));
                next = found.upto;
            }
            let own = (0..).zip(POSITIONS).filter(|(_, position)| *position >= from);
            let (with, without): (Vec<_>, Vec<_>) = own.partition(|(index, _)| [0, 3, 4, 5].contains(index));
            let with: Vec<(u64, u64)> = with.into_iter().map(|(index, position)| (position, index)).collect();
            let without: Vec<u64> = without.into_iter().map(|(_, position)| position).collect();
            assert_eq!((records, empty), (with, without), "from {from}, {most} at once");
        }
    }

    #[test]
    fn cuts_confirm_when_they_came_without_a_gap_and_say_what_they_passed_over() {
        let mut known = Foretelling::begin(Position(10));
        let run = |shard, session, count| {
            let ids = IdRun { session: SessionId(session), first: 0, count };
            Ordered { ids, shard: ShardId(shard), is_void: shard == ShardId::NOBODY.0 }
        };
        let nobody = ShardId::NOBODY.0;
        assert!(!known.note_committed(Position(15), &[run(0, 7, 2), run(nobody, 7, 3)]));
        assert_eq!(known.committed, Position(10));
        let first = [run(nobody, 8, 1), run(nobody, SessionId::NOBODY.0, 2), run(1, 7, 2)];
        assert!(known.note_committed(Position(10), &first));
        assert_eq!(known.committed, Position(20));
        let spans = |from, upto| {
            let spans = known.passed_over(Position(from), Position(upto));
            spans.into_iter().map(|span| (span.first.0, span.count)).collect::<Vec<_>>()
        };
        assert_eq!(spans(10, 30), [(10, 1), (17, 3)]);
        assert_eq!((spans(18, 19), spans(11, 17)), (vec![(18, 1)], vec![]));
    }
}
