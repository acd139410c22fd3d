//! Random commands, checkpoints and crashes against a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::storage::{HardState, ReadRange, Run, StorageCommand};
use seriatim_model::{
    Incarnation, LogConfig, LogId, Order, Position, Record, RecordId, SessionId, ShardId, ViewHistory,
    ViewNumber,
};

use super::{OpenMode, ShardOptions, ShardStore};
use crate::disk::{MemoryDisk, sync_files};

const LOG: LogId = LogId(1);
const SHARD: ShardId = ShardId(0);

#[derive(Clone, Debug, Default)]
struct Model {
    versions: BTreeMap<(Position, ViewNumber), (RecordId, Record)>,
    memory: Option<HardState>,
    stable: Position,
    trim: Position,
}

impl Model {
    fn after(commands: &[StorageCommand]) -> Self {
        let mut model = Self::default();
        commands.iter().for_each(|command| model.execute(command));
        model
    }

    fn execute(&mut self, command: &StorageCommand) {
        match command {
            StorageCommand::Bind { view, runs } => {
                for run in runs {
                    for (n, record) in run.records.iter().enumerate() {
                        self.versions.insert((run.first + n as u64, *view), record.clone());
                    }
                }
            }
            StorageCommand::Remember(memory) | StorageCommand::RememberMissing { memory, .. } => {
                self.memory = Some(memory.clone());
            }
            StorageCommand::Stable(position) => self.stable = self.stable.max(*position),
            StorageCommand::Trim(position) => self.trim = self.trim.max(*position),
            other => unreachable!("this model knows no names: {other:?}"),
        }
    }

    fn valid(&self, from: Position, end: Position) -> Vec<(Position, RecordId, Record)> {
        let Some(memory) = &self.memory else { return vec![] };
        let is_valid =
            |position: Position, view| position < end && memory.history.cover(position) == Some(view);
        let versions = self.versions.range((from.max(self.trim), ViewNumber(0))..);
        let valid = versions.filter(|((position, view), _)| is_valid(*position, *view));
        valid.map(|((position, _), (id, record))| (*position, *id, record.clone())).collect()
    }
}

struct Soak {
    disk: MemoryDisk,
    store: ShardStore,
    random: u64,
    /// The executed commands and their journaled forms.
    commands: Vec<StorageCommand>,
    journal: Vec<Option<StorageCommand>>,
    model: Model,
    order: Order,
    /// The last checkpoint and the number of commands it covers.
    checkpoint: (Option<Bytes>, usize),
    history: ViewHistory,
    /// The next view to register.
    view: u64,
    next: u64,
    number: u64,
}

fn open(disk: &MemoryDisk, mode: OpenMode) -> Result<ShardStore, crate::OpenError> {
    ShardStore::open(Arc::new(disk.clone()), LOG, SHARD, mode, ShardOptions::new(3000))
}

impl Soak {
    fn new(seed: u64, mode: OpenMode) -> Self {
        let disk = MemoryDisk::new();
        let store = open(&disk, mode).unwrap();
        Self {
            disk,
            store,
            random: seed,
            commands: vec![],
            journal: vec![],
            model: Model::default(),
            order: if seed.is_multiple_of(2) { Order::ErwinBb } else { Order::ErwinSt },
            checkpoint: (None, 0),
            history: ViewHistory::default(),
            view: 1,
            next: 0,
            number: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn random_command(&mut self) -> StorageCommand {
        match self.below(12) {
            0 => {
                let first = self.next.saturating_sub(self.below(20));
                self.history.push(ViewNumber(self.view), Position(first));
                self.view += 1;
                StorageCommand::Remember(HardState {
                    incarnation: Incarnation(9),
                    config: LogConfig { order: self.order, ..LogConfig::default() },
                    claim: ViewNumber(self.view),
                    view: None,
                    history: self.history.clone(),
                })
            }
            1 => StorageCommand::Stable(Position(self.next)),
            2 if self.below(3) == 0 => {
                StorageCommand::Trim(Position(self.next.saturating_sub(self.below(60))))
            }
            4 | 5 => self.flush(),
            3 if !self.commands.is_empty() => {
                let again = self.below(self.commands.len() as u64) as usize;
                match self.commands[again].clone() {
                    bind @ StorageCommand::Bind { view, .. } if view.0 + 1 >= self.view => bind,
                    _ => StorageCommand::Stable(Position(self.next)),
                }
            }
            _ => self.random_bind(),
        }
    }

    /// Pushes known records again; damaged or lost ones become other records.
    fn flush(&mut self) -> StorageCommand {
        let first = self.next.saturating_sub(self.below(40));
        let mut runs: Vec<Run> = vec![];
        for position in (first..self.next).map(Position) {
            let versions =
                self.model.versions.range((position, ViewNumber(0))..=(position, ViewNumber(u64::MAX)));
            let known = versions.last().map(|(_, record)| record.clone());
            let record = match self.below(12) {
                0 => continue,
                1 => self.random_record(),
                _ => known.unwrap_or_else(|| self.random_record()),
            };
            match runs.last_mut().filter(|run| run.end() == position) {
                Some(run) => run.records.push(record),
                None => runs.push(Run { first: position, records: vec![record] }),
            }
        }
        StorageCommand::Bind { view: ViewNumber(self.view + self.below(3)), runs }
    }

    fn random_bind(&mut self) -> StorageCommand {
        let mut runs = Vec::new();
        for _ in 0..=self.below(2) {
            let back = if self.below(4) == 0 { self.below(10) } else { 0 };
            let first = (self.next + self.below(3)).saturating_sub(back);
            let count = self.below(8) + 1;
            let records = (0..count).map(|_| self.random_record()).collect();
            runs.push(Run { first: Position(first), records });
            self.next = self.next.max(first + count);
        }
        let view = ViewNumber(self.view - self.below(2).min(self.view - 1));
        StorageCommand::Bind { view, runs }
    }

    fn random_record(&mut self) -> (RecordId, Record) {
        self.number += 1;
        let payload = vec![self.number as u8; self.below(200) as usize];
        let id = RecordId { session: SessionId(u128::from(self.number)), number: self.number };
        (id, Record::new(&payload, self.number))
    }

    fn execute(&mut self) {
        let command = self.random_command();
        let kept = self.store.execute(&command).unwrap();
        self.model.execute(&command);
        self.journal.push(kept.of(&command));
        self.commands.push(command);
        self.remove_some();
    }

    /// Sometimes a crash comes before the store is notified.
    fn remove_some(&mut self) {
        if self.below(3) == 0
            && let Some(removal) = self.store.next_removal()
        {
            removal.perform(&self.disk).unwrap();
            if self.below(8) > 0 {
                self.store.removed();
            }
        }
    }

    fn check(&mut self) {
        let mut model = self.model.clone();
        let recovery = self.store.recovery();
        assert_eq!((&recovery.memory, recovery.stable), (&model.memory, model.stable));
        assert!(recovery.trim >= model.trim);
        model.trim = recovery.trim;
        let (mut from, end) = (Position(self.below(20)), Position(self.next));
        let expected = model.valid(from, end);
        let mut found = Vec::new();
        loop {
            let (max_records, max_bytes) = (self.below(40) as u32 + 1, self.below(3000) as u32 + 1);
            let read = self.store.read(ReadRange { from, end, max_records, max_bytes }).unwrap();
            let records = read.records.into_iter();
            found.extend(records.map(|stored| (stored.position, stored.id, stored.record)));
            from = read.upto;
            if from >= end {
                break;
            }
        }
        let name = |(position, id, _): &(Position, RecordId, Record)| (position.0, id.number);
        assert_eq!(found.iter().map(name).collect::<Vec<_>>(), expected.iter().map(name).collect::<Vec<_>>());
        assert!(found == expected);
    }

    fn take_checkpoint(&mut self) {
        let (bytes, files) = self.store.checkpoint();
        let covered = self.commands.len();
        for _ in 0..self.below(5) {
            self.execute();
        }
        sync_files(&self.disk, &files).unwrap();
        self.checkpoint = (Some(bytes), covered);
    }

    /// The journal keeps a random number of commands after the last checkpoint.
    fn lose_power(&mut self) {
        let seed = self.below(1 << 30);
        self.disk.crash(seed);
        let (checkpoint, covered) = self.checkpoint.clone();
        let kept = covered + self.below((self.commands.len() - covered) as u64 + 1) as usize;
        self.commands.truncate(kept);
        self.journal.truncate(kept);
        self.model = Model::after(&self.commands);
        self.store = open(&self.disk, OpenMode::Journaled { checkpoint }).unwrap();
        for command in self.journal[covered..].iter().flatten() {
            self.store.execute(command).unwrap();
        }
        self.check();
    }
}

#[test]
fn with_a_journal_power_cuts_lose_nothing() {
    let mut packed = 0;
    for seed in 0..150 {
        let mut soak = Soak::new(seed, OpenMode::Journaled { checkpoint: None });
        for _ in 0..120 {
            match soak.below(16) {
                0 => soak.take_checkpoint(),
                1 => soak.lose_power(),
                2 => soak.check(),
                _ => soak.execute(),
            }
        }
        packed += u64::from(soak.store.trim.packed_to() > soak.store.trim.first_segment());
        soak.lose_power();
    }
    assert!(packed > 30, "{packed}");
}

#[test]
fn without_a_journal_a_killed_process_loses_nothing() {
    for seed in 0..100 {
        let mut soak = Soak::new(seed, OpenMode::WriteBehind);
        for _ in 0..100 {
            soak.execute();
            if soak.below(15) == 0 {
                soak.store = open(&soak.disk, OpenMode::WriteBehind).unwrap();
                soak.check();
            }
        }
    }
}

#[test]
fn without_a_journal_power_cuts_invent_nothing() {
    let mut opened = 0;
    for seed in 0..300 {
        let mut soak = Soak::new(seed, OpenMode::WriteBehind);
        for _ in 0..soak.below(80) {
            soak.execute();
            if soak.below(5) == 0 {
                sync_files(&soak.disk, &soak.store.take_unsynced()).unwrap();
            }
        }
        soak.disk.crash(seed);
        let Ok(store) = open(&soak.disk, OpenMode::WriteBehind) else { continue };
        opened += 1;
        let all = ReadRange {
            from: Position(0),
            end: Position(u64::MAX),
            max_records: u32::MAX,
            max_bytes: u32::MAX,
        };
        for stored in store.read(all).map_or(vec![], |found| found.records) {
            let was_bound = soak.commands.iter().any(|command| match command {
                StorageCommand::Bind { runs, .. } => runs.iter().any(|run| {
                    run.first <= stored.position
                        && stored.position < run.end()
                        && run.records[(stored.position - run.first) as usize]
                            == (stored.id, stored.record.clone())
                }),
                _ => false,
            });
            assert!(was_bound, "{stored:?} was never bound there");
        }
    }
    assert!(opened > 100, "{opened}");
}
