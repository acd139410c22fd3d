//! Packed runs against a plain map, with bounds on visited entries.

use std::fmt::Debug;

use proptest::prelude::*;
use seriatim_model::storage::Owned;
use seriatim_model::{BoundIds, IdRun, SessionId, ShardId};

use super::super::index::IndexRun;
use super::*;

const FRAME_BYTES: u32 = 10;

#[derive(Clone, Debug)]
enum Action {
    Append { gap: u64, count: u16 },
    Insert { first: u64, count: u16, is_apart: bool },
    Remove { from: u64, end: u64 },
    DropBelow { end: u64, most: usize },
    DropFrom { from: u64 },
    Look { from: u64, end: u64 },
}

fn place() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0u64..400, 1 => 0u64..60]
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (place(), prop_oneof![3 => 0u64..8, 1 => 0u64..150]).prop_map(|(from, len)| (from, from + len))
}

fn action() -> impl Strategy<Value = Action> {
    let count = || prop_oneof![6 => Just(1u16), 3 => 1u16..6, 1 => 1u16..60];
    let insert = (place(), count(), any::<bool>());
    prop_oneof![
        12 => (prop_oneof![Just(0u64), Just(1), 0u64..5], count())
            .prop_map(|(gap, count)| Action::Append { gap, count }),
        6 => insert.prop_map(|(first, count, is_apart)| Action::Insert { first, count, is_apart }),
        3 => range().prop_map(|(from, end)| Action::Remove { from, end }),
        1 => (place(), 0usize..30).prop_map(|(end, most)| Action::DropBelow { end: end / 2, most }),
        1 => place().prop_map(|from| Action::DropFrom { from: 100 + from }),
        8 => range().prop_map(|(from, end)| Action::Look { from, end }),
    ]
}

/// Runs, and the expected record number of each place.
#[derive(Debug, Default)]
struct Both {
    runs: Runs<IndexRun>,
    model: BTreeMap<u64, u32>,
    visits: Visits,
    next: u32,
}

/// The record numbers of a run, with frames of equal length.
fn numbers(run: IndexRun) -> impl Iterator<Item = u32> {
    let first = run.offset / FRAME_BYTES + u32::from(run.skip);
    first..first + u32::from(run.count)
}

fn by_place(found: impl Iterator<Item = (u64, IndexRun)>) -> Vec<(u64, u32)> {
    found.flat_map(|(first, run)| (first..).zip(numbers(run))).collect()
}

impl Both {
    fn perform(&mut self, action: &Action) {
        match *action {
            Action::Append { gap, count } => self.insert(self.runs.end() + gap, count, false),
            Action::Insert { first, count, is_apart } => self.insert(first, count, is_apart),
            Action::Remove { from, end } => {
                let removed = self.runs.remove(from, end, &self.visits);
                assert_eq!(removed.into_iter().flat_map(numbers).collect::<Vec<_>>(), self.forget(from, end));
            }
            Action::DropBelow { end, most } => {
                let (before, mut left) = (self.runs.len(), most);
                let is_done = self.runs.drop_below(end, &mut left, &self.visits);
                assert!(before - self.runs.len() <= most - left, "no more is dropped than was asked for");
                assert!(is_done || left == 0, "no less is dropped, either");
                let first = self.runs.iter(&self.visits).next().map_or(end, |(first, _)| first.min(end));
                assert!(first == end || !is_done, "all is dropped");
                self.forget(0, first);
            }
            Action::DropFrom { from } => {
                self.runs.drop_from(from, &self.visits);
                self.forget(from, u64::MAX);
            }
            Action::Look { from, end } => {
                let before = self.visits.count();
                let found = by_place(self.runs.within(from, end, &self.visits));
                let expected: Vec<_> =
                    self.model.range(from..end).map(|(at, number)| (*at, *number)).collect();
                assert_eq!(found, expected);
                self.check_cost(before, found.len());
            }
        }
    }

    fn insert(&mut self, first: u64, count: u16, is_apart: bool) {
        // One run in four leaves a gap after the last record.
        self.next += u32::from(first.is_multiple_of(4));
        let (offset, bytes) = (self.next * FRAME_BYTES, u32::from(count) * FRAME_BYTES);
        let run = IndexRun { segment: 1, offset, bytes, skip: 0, count, frames: count };
        let before = self.visits.count();
        let end = first + u64::from(count);
        let expected = self.forget(first, end);
        if is_apart {
            let removed = self.runs.insert_apart(first, run, &self.visits);
            assert_eq!(removed.into_iter().flat_map(numbers).collect::<Vec<_>>(), expected);
        } else {
            self.runs.insert(first, run, &self.visits);
        }
        self.check_cost(before, expected.len());
        self.model.extend((first..end).zip(self.next..));
        self.next += u32::from(count);
    }

    fn forget(&mut self, from: u64, end: u64) -> Vec<u32> {
        let places: Vec<u64> = self.model.range(from..end.max(from)).map(|(at, _)| *at).collect();
        places.into_iter().map(|at| self.model.remove(&at).unwrap()).collect()
    }

    /// Each touched entry counts up to four times (searched, unpacked, packed, replaced), plus some
    /// blocks.
    fn check_cost(&self, before: u64, touched: usize) {
        let cost = self.visits.count() - before;
        assert!(cost <= (4 * touched + 16 * BLOCK_ENTRIES) as u64, "{cost} for {touched} entries");
    }

    fn check(&self) {
        assert_eq!(
            by_place(self.runs.iter(&self.visits)),
            self.model.clone().into_iter().collect::<Vec<_>>()
        );
        let Runs { blocks, unpacked, tail, .. } = &self.runs;
        for (key, block) in blocks {
            let open = match block {
                Block::Packed(packed) => &packed.unpacked(*key, &self.visits),
                Block::Unpacked(open) => {
                    assert_eq!(*unpacked, Some(*key));
                    open
                }
            };
            assert_eq!((open.first(), open.len()), (Some(*key), block.len()));
            assert!(open.len() <= 2 * BLOCK_ENTRIES && Some(open.end()) <= tail.first());
        }
        assert!(tail.len() <= 2 * BLOCK_ENTRIES && unpacked.is_none_or(|key| blocks.contains_key(&key)));
        let last = self.model.last_key_value().map_or(0, |(at, _)| at + 1);
        assert_eq!((self.runs.end(), self.runs.is_empty()), (last, self.model.is_empty()));
    }
}

fn check_block<T: Stretch + Debug + PartialEq>(entries: Vec<(u64, T)>) {
    let mut next = 1000;
    let placed: Vec<(u64, T)> = entries
        .into_iter()
        .map(|(gap, entry)| {
            let first = next + gap;
            next = first + entry.count();
            (first, entry)
        })
        .collect();
    let key = placed[0].0;
    let (visits, finger) = (Visits::default(), Cell::new(None));
    let block = Packed::new(key, &placed.iter().copied().collect());
    assert_eq!(block.unpacked(key, &visits).iter().collect::<Vec<_>>(), placed);
    for (at, (first, entry)) in placed.iter().enumerate() {
        let last = first + entry.count() - 1;
        for from in [*first, last, *first] {
            let found: Vec<_> = block.whole(key, from, last + 1, &finger, &visits).collect();
            assert_eq!(found, placed[at..=at]);
        }
    }
}

fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0u64), 2 => Just(7), 1 => 0u64..1000]
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(20u32), 2 => 0u32..100, 1 => 0u32..=u32::MAX / 2]
}

fn any_run() -> impl Strategy<Value = IndexRun> {
    let counts = (prop_oneof![2 => Just(1u16), 1 => 1u16..400], prop_oneof![2 => Just(0u16), 1 => 0u16..400]);
    (number(), number(), number(), counts, prop_oneof![2 => Just(0u16), 1 => 0u16..400]).prop_map(
        |(segment, offset, bytes, (count, skip), more)| IndexRun {
            segment,
            offset,
            bytes,
            skip,
            count,
            frames: skip + count + more,
        },
    )
}

fn any_owned() -> impl Strategy<Value = Owned> {
    let count = prop_oneof![2 => Just(1u64), 1 => Just(64), 1 => 1u64..1 << 40];
    (prop_oneof![0u32..3, 10u32..20, any::<u32>()], count)
        .prop_map(|(shard, count)| Owned { shard: ShardId(shard), count })
}

fn any_bound_ids() -> impl Strategy<Value = BoundIds> {
    let count = prop_oneof![2 => Just(1u64), 1 => 1u64..1000];
    (0u128..3, 0u64..50, count, any::<bool>()).prop_map(|(session, first, count, is_void)| BoundIds {
        ids: IdRun { session: SessionId(session << 100), first, count },
        is_void,
    })
}

proptest! {
    #[test]
    fn what_is_packed_is_what_was_put_in(actions in prop::collection::vec(action(), 1..150)) {
        let mut both = Both::default();
        for action in &actions {
            both.perform(action);
            both.check();
        }
    }

    #[test]
    fn entries_come_back_from_a_block_as_they_were(
        runs in prop::collection::vec((gap(), any_run()), 1..2 * BLOCK_ENTRIES),
        owned in prop::collection::vec((gap(), any_owned()), 1..2 * BLOCK_ENTRIES),
        bound in prop::collection::vec((gap(), any_bound_ids()), 1..2 * BLOCK_ENTRIES),
    ) {
        check_block(runs);
        check_block(owned);
        check_block(bound);
    }
}

fn bytes_each<T: Stretch>(entries: impl Iterator<Item = (u64, T)>) -> f64 {
    let (mut runs, visits) = (Runs::default(), Visits::default());
    for (first, entry) in entries {
        runs.insert(first, entry, &visits);
    }
    let packed = runs.blocks.values().map(|block| match block {
        Block::Packed(packed) => (packed.len(), packed.bytes()),
        Block::Unpacked(_) => (0, 0),
    });
    let (entries, bytes) =
        packed.fold((0, 0), |(entries, sum), (count, bytes)| (entries + count, sum + bytes));
    bytes as f64 / entries as f64
}

#[test]
fn a_run_of_one_record_takes_few_bytes() {
    // The first entry of a block has no prediction.
    let full = 20.0 / BLOCK_ENTRIES as f64;
    let single = |n: u32, offset: u32| IndexRun {
        segment: 3,
        offset,
        bytes: 100 + n % 2,
        skip: 0,
        count: 1,
        frames: 1,
    };
    let alternating = (0..1000u32).map(|n| (u64::from(n) * 2, single(0, n * 100)));
    assert!(bytes_each(alternating) < 1.0 + full, "every other position is another shard's");
    let scattered = (0..1000u32).map(|n| (u64::from(n) * 3, single(n, n.wrapping_mul(0x9e37_79b9) >> 6)));
    assert!(bytes_each(scattered) < 9.0 + full, "all over a segment");
    let shards = (0..1000u64).map(|n| (n, Owned { shard: ShardId(n as u32 % 3), count: 1 }));
    assert!(bytes_each(shards) < 1.0 + full);
}

#[test]
fn pieces_of_one_entry_are_packed_as_well() {
    let mut both = Both::default();
    both.perform(&Action::Append { gap: 0, count: 400 });
    for from in (1..400).step_by(2) {
        both.perform(&Action::Remove { from, end: from + 1 });
        both.check();
    }
    assert_eq!(both.runs.len(), 200);
}

#[test]
fn a_look_further_on_passes_over_nothing_twice() {
    let (mut runs, visits) = (Runs::default(), Visits::default());
    for n in 0..100 * BLOCK_ENTRIES as u64 {
        runs.insert(n, Owned { shard: ShardId(n as u32 % 2), count: 1 }, &visits);
    }
    let before = visits.count();
    for n in 0..50 * BLOCK_ENTRIES as u64 {
        assert_eq!(runs.within(n, n + 1, &visits).count(), 1);
    }
    // One visit skips the previous entry, one ends the search.
    assert!(visits.count() - before <= 3 * 50 * BLOCK_ENTRIES as u64);
}
