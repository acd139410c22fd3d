//! A store without a journal through repeated power cuts.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use seriatim_model::storage::{HardState, MissingRange, ReadRange, Run, StorageCommand};
use seriatim_model::{
    Incarnation, LogConfig, LogId, NodeId, Order, Placement, Position, Record, RecordId, SessionId, ShardId,
    View, ViewHistory, ViewNumber,
};

use super::{OpenMode, ShardOptions, ShardStore, StoreError};
use crate::disk::{Disk, MemoryDisk, sync_files};

const SHARD: ShardId = ShardId(0);

#[derive(Clone, Copy, Debug)]
enum Step {
    Bind(u64),
    /// Binds with this much free room, in bytes.
    BindOnFullDisk(u64),
    Stable,
    Trim(u64),
    Remove,
    Sync,
    SyncOne(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u64..4).prop_map(Step::Bind),
        2 => (0u64..200).prop_map(Step::BindOnFullDisk),
        4 => Just(Step::Stable),
        1 => (0u64..10).prop_map(Step::Trim),
        1 => Just(Step::Remove),
        1 => Just(Step::Sync),
        2 => (0usize..6).prop_map(Step::SyncOne),
    ]
}

/// The steps of a run, and the seed of its power cut.
fn run_of_a_node() -> impl Strategy<Value = (Vec<Step>, u64)> {
    (prop::collection::vec(step(), 0..14), any::<u64>())
}

#[derive(Debug, Default)]
struct Restarts {
    disk: MemoryDisk,
    history: ViewHistory,
    bound: BTreeMap<(ViewNumber, Position), u64>,
    next: Position,
    number: u64,
}

impl Restarts {
    fn open(&self) -> Option<ShardStore> {
        let options = ShardOptions::new(1500);
        ShardStore::open(Arc::new(self.disk.clone()), LogId(1), SHARD, OpenMode::WriteBehind, options).ok()
    }

    /// A view starts at the stable bound.
    fn begin(&mut self, store: &mut ShardStore) {
        let stable = store.recovery().stable;
        let number = self.history.latest().next();
        self.history.push(number, stable);
        self.next = stable;
        let memory = memory(vec![SHARD], stable, self.history.clone());
        store.execute(&StorageCommand::Remember(memory)).unwrap();
    }

    fn perform(&mut self, store: &mut ShardStore, step: Step) {
        match step {
            Step::Bind(count) => self.bind(store, count).unwrap(),
            Step::BindOnFullDisk(room) => {
                self.disk.set_capacity(Some(self.disk.used() + room));
                let next = self.next;
                if self.bind(store, 1).is_err() {
                    self.next = next;
                }
                self.disk.set_capacity(None);
            }
            Step::Stable => {
                store.execute(&StorageCommand::Stable(self.next)).unwrap();
            }
            Step::Trim(back) => {
                let position = Position(store.recovery().stable.0.saturating_sub(back));
                store.execute(&StorageCommand::Trim(position)).unwrap();
            }
            Step::Remove => {
                if let Some(removal) = store.next_removal() {
                    removal.perform(&self.disk).unwrap();
                    store.removed();
                }
            }
            Step::Sync => sync_files(&self.disk, &store.take_unsynced()).unwrap(),
            Step::SyncOne(index) => {
                let files = self.disk.files();
                sync_files(&self.disk, &files[index % files.len()..][..1]).unwrap();
            }
        }
    }

    fn bind(&mut self, store: &mut ShardStore, count: u64) -> Result<(), StoreError> {
        let (view, first) = (self.history.latest(), self.next);
        let mut records = vec![];
        for _ in 0..count {
            self.number += 1;
            self.bound.insert((view, self.next), self.number);
            let id = RecordId { session: SessionId(5), number: self.number };
            records.push((id, Record::new(&self.number.to_le_bytes(), 0)));
            self.next = self.next.next();
        }
        store.execute(&StorageCommand::Bind { view, runs: vec![Run { first, records }] }).map(|_| ())
    }

    fn check(&self, store: &ShardStore) {
        let recovery = store.recovery();
        let (from, end) = (recovery.trim, recovery.stable);
        let range = ReadRange { from, end, max_records: u32::MAX, max_bytes: u32::MAX };
        // A read ends before a damaged record, or fails at it.
        let Ok(found) = store.read(range) else { return };
        let upto = found.upto;
        if upto < end {
            assert_eq!(
                store.read(ReadRange { from: upto, ..range }),
                Err(seriatim_model::storage::ReadFailure::Damaged(upto))
            );
        }
        let found: Vec<_> = found.records.iter().map(|stored| (stored.position, stored.id.number)).collect();
        let expected: Vec<_> = (from.0..upto.0)
            .map(|position| {
                let view = store.contents.history().and_then(|history| history.cover(Position(position)));
                let view = view.expect("what is stable was bound in some view");
                (Position(position), self.bound[&(view, Position(position))])
            })
            .collect();
        assert_eq!(found, expected);
    }
}

/// The hard state of a member of the latest view, which began at `start`.
fn memory(shards: Vec<ShardId>, start: Position, history: ViewHistory) -> HardState {
    let number = history.latest();
    let view = View {
        number,
        sequencers: vec![],
        leader: NodeId(1),
        shards: vec![],
        retired: vec![],
        placement: Placement::new(shards, 2),
        first: start,
        start,
    };
    let (incarnation, config) = (Incarnation(1), LogConfig { order: Order::ErwinBb, ..LogConfig::default() });
    HardState { incarnation, config, claim: number, view: Some(view), history }
}

#[test]
fn a_store_that_lost_a_trim_that_it_relied_on_is_believed_up_to_the_hole() {
    let mut world = Restarts::default();
    world.history.push(ViewNumber(1), Position(0));
    let memory = memory(vec![SHARD, ShardId(1)], Position(12), world.history.clone());
    let mut store = world.open().unwrap();
    sync_files(&world.disk, &store.take_unsynced()).unwrap();
    let missing = |from, end| Some(MissingRange { from: Position(from), end: Position(end) });
    // The other shard owns positions 2, 3, 6, 7, 10 and 11.
    let remember = |missing| StorageCommand::RememberMissing { memory: memory.clone(), missing };
    store.execute(&remember(missing(0, 12))).unwrap();
    for first in [4, 8] {
        world.next = Position(first);
        world.bind(&mut store, 2).unwrap();
    }
    store.execute(&StorageCommand::Trim(Position(4))).unwrap();
    store.execute(&remember(missing(8, 12))).unwrap();
    let after_a_cut = |lost: Option<&str>| {
        let files = store.place.segment_files(1).into_iter().chain([store.trim.name().to_owned()]);
        let disk = world.disk.fork();
        files
            .filter(|file| lost.is_none_or(|lost| !file.ends_with(lost)))
            .for_each(|file| disk.sync(&file).unwrap());
        disk.crash((0..).find(|seed| keeps_nothing(*seed)).unwrap());
        let recovery = Restarts { disk, ..Restarts::default() }.open().unwrap().recovery();
        (recovery.trim.0, recovery.stable.0)
    };
    assert_eq!(after_a_cut(None), (4, 12));
    assert_eq!(after_a_cut(Some("trim")), (0, 0));
}

/// Whether a crash with this seed drops all unsynced bytes.
fn keeps_nothing(seed: u64) -> bool {
    let disk = MemoryDisk::new();
    disk.create("f").unwrap();
    disk.sync("f").unwrap();
    disk.write_at("f", 0, &[vec![1; 512 * 64].into()]).unwrap();
    disk.crash(seed);
    disk.len("f").unwrap() == 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn what_power_cuts_leave_is_whole_below_what_is_remembered_as_stable(
        runs in prop::collection::vec(run_of_a_node(), 1..6),
    ) {
        let mut world = Restarts::default();
        for (steps, seed) in runs {
            // A store that does not open is set aside.
            let Some(mut store) = world.open() else { return Ok(()) };
            world.check(&store);
            world.begin(&mut store);
            for step in steps {
                world.perform(&mut store, step);
            }
            drop(store);
            world.disk.crash(seed);
        }
        if let Some(store) = world.open() {
            world.check(&store);
        }
    }
}
