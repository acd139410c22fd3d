//! Journal and store on real files, and on a disk that loses unsynced data.

use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::storage::{HardState, ReadRange, Run, StorageCommand};
use seriatim_model::wire::{decode_one, encode_one};
use seriatim_model::{
    Endpoint, Incarnation, LogConfig, LogId, NodeId, Position, Record, RecordId, SessionId, ShardId,
    ViewHistory, ViewNumber,
};
use seriatim_node::RealDisk;
use seriatim_store::{
    Disk, Journal, JournalIdentity, JournalOptions, OpenMode, RoleKey, Secret, ShardOptions, ShardStore,
    VolatileDisk, sync_files,
};

const LOG: LogId = LogId(9);
const SHARD: ShardId = ShardId(0);
const ROLE: RoleKey = RoleKey { log: LOG, endpoint: Endpoint::Shard(SHARD) };

/// A minimal host of one shard replica.
struct Host {
    disk: Arc<dyn Disk>,
    journal: Journal,
    store: ShardStore,
}

impl Host {
    fn open(disk: Arc<dyn Disk>) -> Self {
        let identity = JournalIdentity { cluster: 1, node: NodeId(1) };
        let options =
            JournalOptions { file_bytes: 64 << 10, checkpoint_bytes: 100 << 10, ..JournalOptions::default() };
        let (journal, recovered) = Journal::open(&disk, identity, Secret::new(1), options).unwrap();
        let checkpoint = recovered.snapshots.into_iter().next().map(|(_, chunks)| chunks.concat().into());
        let options = ShardOptions::new(100_000);
        let mode = OpenMode::Journaled { checkpoint };
        let mut store = ShardStore::open(Arc::clone(&disk), LOG, SHARD, mode, options).unwrap();
        for (_, entry) in recovered.entries {
            store.execute(&decode_one(entry).unwrap()).unwrap();
        }
        Self { disk, journal, store }
    }

    fn execute(&mut self, command: &StorageCommand) {
        self.store.execute(command).unwrap();
        self.journal.append(ROLE, &[encode_one(command)]);
        if self.journal.checkpoint_due() {
            let id = self.journal.begin_checkpoint();
            let (bytes, files) = self.store.checkpoint();
            sync_files(&*self.disk, &files).unwrap();
            self.journal.add_snapshot(id, ROLE, &[bytes]);
            self.journal.finish_checkpoint(id);
        }
        while let Some(write) = self.journal.next_write() {
            self.journal.written(write.perform(&*self.disk)).unwrap();
        }
    }

    fn records(&self) -> Vec<(u64, Bytes)> {
        let all = ReadRange {
            from: Position(0),
            end: Position(u64::MAX),
            max_records: u32::MAX,
            max_bytes: u32::MAX,
        };
        let found = self.store.read(all).unwrap();
        found.records.into_iter().map(|stored| (stored.position.0, stored.record.payload())).collect()
    }
}

fn remember() -> StorageCommand {
    let mut history = ViewHistory::default();
    history.push(ViewNumber(1), Position(0));
    let (incarnation, config, claim) = (Incarnation(1), LogConfig::default(), ViewNumber(1));
    StorageCommand::Remember(HardState { incarnation, config, claim, view: None, history })
}

fn bind(number: u64) -> StorageCommand {
    let id = RecordId { session: SessionId(1), number };
    let record = Record::new(&vec![number as u8; 3000], number);
    let run = Run { first: Position(number), records: vec![(id, record)] };
    StorageCommand::Bind { view: ViewNumber(1), runs: vec![run] }
}

fn run(disk: impl Fn() -> Arc<dyn Disk>) {
    let mut host = Host::open(disk());
    host.execute(&remember());
    for number in 0..100 {
        host.execute(&bind(number));
        if number % 17 == 0 {
            drop(host);
            host = Host::open(disk());
        }
    }
    host.execute(&StorageCommand::Trim(Position(60)));
    drop(host);
    let host = Host::open(disk());
    let expected: Vec<_> = (60..100).map(|n| (n, Bytes::from(vec![n as u8; 3000]))).collect();
    assert_eq!(host.records(), expected);
    assert_eq!(host.store.recovery().trim, Position(60));
}

#[test]
fn a_host_restarts_on_real_files() {
    let dir = tempfile::tempdir().unwrap();
    run(|| Arc::new(RealDisk::open(dir.path()).unwrap()));
}

#[test]
fn a_host_restarts_without_what_it_did_not_sync() {
    let dir = tempfile::tempdir().unwrap();
    run(|| Arc::new(VolatileDisk::new(RealDisk::open(dir.path()).unwrap())));
}
