//! What a step costs, and what a record costs for good, however long the log is.

use std::sync::Arc;

use seriatim_model::storage::{Ordered, ShardMemory, StorageCommand};
use seriatim_model::{
    IdRun, Incarnation, LogConfig, LogId, NodeId, Order, Placement, Position, Record, RecordId, SessionId,
    ShardId, View, ViewHistory, ViewNumber,
};

use super::{OpenMode, ShardOptions, ShardStore};
use crate::disk::MemoryDisk;
use crate::format::work;

const SHARD: ShardId = ShardId(0);
const SEGMENT_BYTES: u64 = 8000;

fn open(disk: &MemoryDisk, mode: OpenMode) -> ShardStore {
    let options = ShardOptions { segment_bytes: SEGMENT_BYTES };
    ShardStore::open(Arc::new(disk.clone()), LogId(1), SHARD, mode, options).unwrap()
}

/// What a member of the latest of these views remembers.
fn remember(order: Order, steps: &[(u64, u64)]) -> StorageCommand {
    let mut history = ViewHistory::default();
    for (view, first) in steps {
        history.push(ViewNumber(*view), Position(*first));
    }
    let number = history.latest();
    let view = View {
        number,
        sequencers: vec![],
        leader: NodeId(1),
        shards: vec![],
        placement: Placement::new(vec![SHARD], 1),
        first: Position(0),
        start: Position(0),
    };
    let config = LogConfig { order, ..LogConfig::default() };
    let incarnation = Incarnation(1);
    StorageCommand::Remember(ShardMemory { incarnation, config, claim: number, view: Some(view), history })
}

fn id(session: u128, number: u64) -> RecordId {
    RecordId { session: SessionId(session), number }
}

fn put(session: u128, number: u64) -> StorageCommand {
    StorageCommand::Put(vec![(id(session, number), Record::new(&number.to_le_bytes(), 0))])
}

/// An order of single records of sessions that take turns.
fn order(view: u64, first: u64, names: &[(u128, u64)]) -> StorageCommand {
    let ordered = |&(session, number)| {
        let ids = IdRun { session: SessionId(session), first: number, count: 1 };
        Ordered { ids, shard: SHARD, is_void: false }
    };
    let runs = names.iter().map(ordered).collect();
    StorageCommand::Order { view: ViewNumber(view), first: Position(first), runs }
}

/// How much a command costs: bytes that are encoded, and bytes that are written.
fn cost(disk: &MemoryDisk, store: &mut ShardStore, command: &StorageCommand) -> u64 {
    let before = work::encoded() + disk.counters().bytes_written;
    store.execute(command).unwrap();
    work::encoded() + disk.counters().bytes_written - before
}

#[test]
fn an_order_costs_the_same_however_much_is_not_final() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk, OpenMode::WriteBehind);
    store.execute(&remember(Order::ErwinSt, &[(1, 0)])).unwrap();
    let mut most = 0;
    for number in 0..2000 {
        for session in 0..2 {
            most = most.max(cost(&disk, &mut store, &put(session, number)));
        }
        let ordered = order(1, number * 2, &[(0, number), (1, number)]);
        most = most.max(cost(&disk, &mut store, &ordered));
    }
    assert!(disk.files().len() > 50, "the log is many segments long");
    assert!(most < 2000, "a step cost {most} bytes");
}
