//! Ids and their decisions against a model: random commands, power cuts, and openings in both
//! modes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::storage::{HardState, Ordered, Owned, ReadRange, Run, StorageCommand};
use seriatim_model::{
    IdRun, Incarnation, LogConfig, LogId, NodeId, Order, Placement, Position, Record, RecordId, SessionId,
    ShardId, View, ViewHistory, ViewNumber,
};

use super::ids::in_order;
use super::{OpenMode, ShardOptions, ShardStore};
use crate::disk::{Disk, MemoryDisk, VolatileDisk, sync_files};

const SHARD: ShardId = ShardId(0);

/// A power cut that keeps only synced bytes.
const LOSES_ALL: u64 = 0;

type Version = (ViewNumber, Position);

#[derive(Clone, Debug, Default)]
struct Model {
    /// The store's present trim point, which survives the loss of commands.
    trim: Position,
    owners: BTreeMap<Version, ShardId>,
    versions: BTreeMap<Version, (RecordId, bool)>,
    ids: BTreeSet<RecordId>,
    given: BTreeMap<Version, (RecordId, bool)>,
    history: ViewHistory,
    stable: Position,
    believed: Option<Position>,
}

impl Model {
    fn after(commands: &[StorageCommand], trim: Position, believed: Option<Position>) -> Self {
        let mut model = Self { trim, believed, ..Self::default() };
        commands.iter().for_each(|command| model.execute(command));
        model
    }

    fn execute(&mut self, command: &StorageCommand) {
        match command {
            StorageCommand::Put(records) => self.ids.extend(records.iter().map(|(id, _)| *id)),
            StorageCommand::Order { view, first, runs } => {
                let mut position = *first;
                for run in runs {
                    for id in run.ids.ids() {
                        self.owners.insert((*view, position), run.shard);
                        if run.shard == SHARD {
                            self.give((*view, position), (id, run.is_void));
                        }
                        position = position.next();
                    }
                }
            }
            StorageCommand::Bind { view, runs } => {
                for run in runs {
                    for (n, (id, record)) in (0..).zip(&run.records) {
                        let (version, named) = ((*view, run.first + n), (*id, record.is_no_op()));
                        let is_held = self.versions.get(&version) == Some(&named);
                        if !is_held || version.1 < self.trim {
                            self.give(version, named);
                        }
                    }
                }
            }
            StorageCommand::Map { view, first, owned } => {
                let mut position = *first;
                for part in owned {
                    for _ in 0..part.count {
                        self.owners.insert((*view, position), part.shard);
                        position = position.next();
                    }
                }
            }
            StorageCommand::Discard(discarded) => {
                let given: BTreeSet<_> = self.given.values().map(|(id, _)| *id).collect();
                let goes =
                    |id: &RecordId| discarded.ids().any(|discarded| discarded == *id) && !given.contains(id);
                self.ids.retain(|id| !goes(id));
            }
            StorageCommand::Remember(memory) => {
                self.history = memory.history.clone();
                let given = std::mem::take(&mut self.given);
                self.given = given.into_iter().filter(|(version, _)| !self.is_hidden(*version)).collect();
                self.raise_stable(memory.view.as_ref().unwrap().start);
            }
            StorageCommand::Stable(position) => self.raise_stable(*position),
            StorageCommand::Trim(position) => self.trim = self.trim.max(*position),
            StorageCommand::Mark { .. } => {}
            StorageCommand::RememberMissing { .. } | StorageCommand::Rebind { .. } => {
                unreachable!("nothing is lacking here, and no log of names binds by reference")
            }
        }
    }

    fn is_hidden(&self, (view, position): Version) -> bool {
        self.history.steps().iter().any(|(newer, first)| *newer > view && *first <= position)
    }

    fn give(&mut self, version: Version, named: (RecordId, bool)) {
        self.versions.insert(version, named);
        if version.1 < self.stable {
            self.drop_final(version, named);
        } else if !self.is_hidden(version) {
            self.given.insert(version, named);
        }
    }

    fn drop_final(&mut self, (view, position): Version, (id, _): (RecordId, bool)) {
        if self.history.cover(position) == Some(view) {
            self.ids.remove(&id);
        }
    }

    fn raise_stable(&mut self, position: Position) {
        self.stable = self.stable.max(self.believed.map_or(position, |bound| bound.min(position)));
        let stable = self.stable;
        for (version, named) in
            self.given.extract_if(.., |(_, position), _| *position < stable).collect::<Vec<_>>()
        {
            self.drop_final(version, named);
        }
    }

    fn valid<T: Copy>(&self, versions: &BTreeMap<Version, T>, position: Position) -> Option<T> {
        versions.get(&(self.history.cover(position)?, position)).copied()
    }

    /// End of the positions known without a gap.
    fn known_to(&self) -> Position {
        let mut position = self.trim;
        while let Some(owner) = self.valid(&self.owners, position)
            && (owner != SHARD || self.valid(&self.versions, position).is_some())
        {
            position = position.next();
        }
        position
    }

    fn put(&self) -> Vec<IdRun> {
        in_order(self.ids.iter().copied().map(alone).collect())
    }

    fn void(&self) -> Vec<IdRun> {
        let void =
            self.given.iter().filter(|((_, position), (_, is_void))| *is_void && *position >= self.trim);
        in_order(void.map(|(_, (id, _))| alone(*id)).collect())
    }

    fn check(&self, store: &ShardStore) {
        let recovery = store.recovery();
        assert_eq!((recovery.stable, recovery.trim), (self.stable, self.trim));
        assert_eq!((&recovery.put, &recovery.void), (&self.put(), &self.void()));
        let found: Vec<_> = store.find(&recovery.put);
        assert!(found.iter().all(|(id, content)| *content == record(*id)), "a record under another's name");
        assert_eq!(found.len(), self.ids.len(), "every name's record is there");
        let (from, end) = (self.trim, Position(self.trim.0 + 2000));
        let read =
            store.read(ReadRange { from, end, max_records: u32::MAX, max_bytes: u32::MAX }).unwrap().records;
        let read: Vec<_> = read
            .into_iter()
            .map(|stored| {
                let is_void = stored.record.is_no_op();
                assert!(is_void || stored.record == record(stored.id), "a record under another's name");
                (stored.position, stored.id, is_void)
            })
            .collect();
        let positions = (from.0..end.0).map(Position);
        let valid = positions.clone().filter_map(|position| {
            self.valid(&self.versions, position).map(|(id, is_void)| (position, id, is_void))
        });
        assert_eq!(read, valid.collect::<Vec<_>>());
        let owners = positions.map_while(|position| self.valid(&self.owners, position));
        let found = store.map(from, end);
        assert!(found.windows(2).all(|pair| pair[0].shard != pair[1].shard), "runs are merged");
        let found = found.iter().flat_map(|owned| (0..owned.count).map(|_| owned.shard));
        assert_eq!(found.collect::<Vec<_>>(), owners.collect::<Vec<_>>());
    }
}

fn alone(id: RecordId) -> IdRun {
    IdRun { session: id.session, first: id.number, count: 1 }
}

fn record(id: RecordId) -> Record {
    let len = (id.number * 37 + id.session.0 as u64 * 11) % 150;
    Record::new(&[&id.number.to_le_bytes()[..], &vec![id.session.0 as u8; len as usize]].concat(), id.number)
}

fn memory(history: &ViewHistory, start: Position) -> StorageCommand {
    let number = history.latest();
    let view = View {
        number,
        sequencers: vec![],
        leader: NodeId(1),
        shards: vec![],
        retired: vec![],
        placement: Placement::new(vec![SHARD], 1),
        first: start,
        start,
    };
    let config = LogConfig { order: Order::ErwinSt, ..LogConfig::default() };
    StorageCommand::Remember(HardState {
        incarnation: Incarnation(1),
        config,
        claim: number,
        view: Some(view),
        history: history.clone(),
    })
}

struct Fates {
    disk: MemoryDisk,
    store: ShardStore,
    random: u64,
    commands: Vec<StorageCommand>,
    /// For each command its journaled form.
    journal: Vec<Option<StorageCommand>>,
    /// Ids that the model forgot with each command.
    forgotten: Vec<BTreeSet<RecordId>>,
    model: Model,
    /// The last checkpoint, the number of commands it covers, and their model.
    checkpoint: (Option<Bytes>, usize, Model),
    numbers: [u64; 3],
    attempt: ViewNumber,
    /// Whether removals are performed. Without a journal a removal syncs earlier writes.
    removes: bool,
}

fn open(disk: &MemoryDisk, mode: OpenMode) -> Result<ShardStore, crate::OpenError> {
    open_on(Arc::new(disk.clone()), mode)
}

fn open_on(disk: Arc<dyn Disk>, mode: OpenMode) -> Result<ShardStore, crate::OpenError> {
    ShardStore::open(disk, LogId(1), SHARD, mode, ShardOptions::new(1500))
}

impl Fates {
    fn new(seed: u64, mode: OpenMode) -> Self {
        let disk = MemoryDisk::new();
        let store = open(&disk, mode).unwrap();
        let mut fates = Self {
            disk,
            store,
            random: seed,
            commands: vec![],
            journal: vec![],
            forgotten: vec![],
            model: Model::default(),
            checkpoint: (None, 0, Model::default()),
            numbers: [0; 3],
            attempt: ViewNumber(1),
            removes: true,
        };
        fates.begin();
        fates
    }

    fn begin(&mut self) {
        let mut history = ViewHistory::default();
        history.push(ViewNumber(1), Position(0));
        self.execute(memory(&history, Position(0)));
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn execute(&mut self, command: StorageCommand) {
        let kept = self.store.execute(&command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let ids = self.model.ids.clone();
        self.model.execute(&command);
        self.forgotten.push(&ids - &self.model.ids);
        self.journal.push(kept.of(&command));
        self.commands.push(command);
        self.remove_some();
    }

    /// Sometimes a crash comes before the store is notified.
    fn remove_some(&mut self) {
        if self.removes
            && self.below(3) == 0
            && let Some(removal) = self.store.next_removal()
        {
            removal.perform(&*self.store.place.disk).unwrap();
            if self.below(8) > 0 {
                self.store.removed();
            }
        }
    }

    fn step(&mut self) {
        let command = match self.below(16) {
            0 => self.register(),
            1 => StorageCommand::Stable(self.between(self.model.stable, self.model.known_to())),
            2 => StorageCommand::Trim(self.between(self.model.trim, self.model.stable)),
            3 => self.again(),
            4 => self.discard(),
            5 => self.copy(),
            6..10 => self.order(),
            _ => self.put(),
        };
        self.execute(command);
    }

    fn between(&mut self, from: Position, end: Position) -> Position {
        Position(from.0 + self.below(end.since(from) + 1))
    }

    fn put(&mut self) -> StorageCommand {
        let mut records = vec![];
        for _ in 0..=self.below(3) {
            let session = self.below(3) as usize;
            for _ in 0..=self.below(6) {
                let back = if self.below(20) == 0 { self.below(8) } else { 0 };
                let number = self.numbers[session].saturating_sub(back);
                self.numbers[session] = self.numbers[session].max(number + 1);
                let id = RecordId { session: SessionId(session as u128), number };
                records.push((id, record(id)));
            }
        }
        StorageCommand::Put(records)
    }

    fn order(&mut self) -> StorageCommand {
        let latest = self.model.history.latest();
        let (view, lowest) = match self.below(4) {
            0 if self.attempt > latest => (self.attempt, self.model.stable),
            _ => (latest, self.model.stable.max(self.model.history.steps().last().unwrap().1)),
        };
        let known = self.model.known_to().max(lowest);
        let first = if self.below(3) == 0 { self.between(lowest, known) } else { known };
        let mut taken: BTreeSet<RecordId> = BTreeSet::new();
        let before = self.model.given.range((view, Position(0))..(view, first));
        taken.extend(before.map(|(_, (id, _))| *id));
        let mut runs = vec![];
        for _ in 0..=self.below(4) {
            let free: Vec<RecordId> = self.model.ids.difference(&taken).copied().collect();
            let session = SessionId(u128::from(self.below(3)));
            let is_void = self.below(6) == 0;
            let id = match self.below(3) {
                0 => None,
                _ if is_void => {
                    let next = self.numbers[session.0 as usize];
                    let number = next.saturating_sub(self.below(4));
                    self.numbers[session.0 as usize] = next.max(number + 1);
                    Some(RecordId { session, number })
                }
                _ if free.is_empty() => None,
                _ => Some(free[self.below(free.len() as u64) as usize]),
            };
            let shard = ShardId(if id.is_some() { SHARD.0 } else { 1 + self.below(2) as u32 });
            let id = id.unwrap_or(RecordId { session: SessionId(9), number: 0 });
            if shard == SHARD && taken.contains(&id) {
                continue;
            }
            let most = 1 + self.below(5);
            let is_free = |number| {
                let id = RecordId { number, ..id };
                is_void && number == id.number || shard != SHARD || free.contains(&id) && !is_void
            };
            let count = (id.number..id.number + most).take_while(|number| is_free(*number)).count() as u64;
            let ids = IdRun { session: id.session, first: id.number, count: count.max(1) };
            if shard == SHARD {
                taken.extend(ids.ids());
            }
            runs.push(Ordered { ids, shard, is_void: is_void && shard == SHARD });
        }
        StorageCommand::Order { view, first, runs }
    }

    /// Registers a view, often the attempted one.
    fn register(&mut self) -> StorageCommand {
        let number = self.attempt.max(self.model.history.latest().next());
        let first = self.between(self.model.stable, self.model.known_to().max(self.model.stable));
        let mut history = self.model.history.clone();
        history.push(number, first);
        self.attempt = ViewNumber(number.0 + 1 + self.below(2));
        // The view starts within the flushed positions.
        let flushed = Model { history: history.clone(), ..self.model.clone() }.known_to();
        let start = self.between(self.model.stable, flushed.max(self.model.stable));
        memory(&history, start)
    }

    /// A command with owners or records copied from another replica.
    fn copy(&mut self) -> StorageCommand {
        let view = self.model.history.latest();
        let first = self.model.known_to().max(self.model.history.steps().last().unwrap().1);
        if self.below(2) == 0 {
            let owned = Owned { shard: ShardId(1 + self.below(2) as u32), count: 1 + self.below(6) };
            return StorageCommand::Map { view, first, owned: vec![owned] };
        }
        let given: BTreeSet<_> = self.model.given.values().map(|(id, _)| *id).collect();
        let ids: Vec<RecordId> = self.model.ids.difference(&given).copied().take(3).collect();
        let mut records: Vec<_> = ids.into_iter().map(|id| (id, record(id))).collect();
        let id = RecordId { session: SessionId(7), number: first.0 };
        records.push((id, if self.below(2) == 0 { Record::no_op() } else { record(id) }));
        let owned = vec![Owned { shard: SHARD, count: records.len() as u64 }];
        self.execute(StorageCommand::Map { view, first, owned });
        StorageCommand::Bind { view, runs: vec![Run { first, records }] }
    }

    fn discard(&mut self) -> StorageCommand {
        let session = self.below(3) as usize;
        let from = self.numbers[session].saturating_sub(self.below(6));
        StorageCommand::Discard(IdRun {
            session: SessionId(session as u128),
            first: from,
            count: 1 + self.below(8),
        })
    }

    /// Repeats the last command, unless that could contradict a later one.
    fn again(&mut self) -> StorageCommand {
        let last = self.commands.last().expect("a view is remembered").clone();
        match last {
            StorageCommand::Order { .. } | StorageCommand::Put(_) | StorageCommand::Bind { .. } => last,
            _ => StorageCommand::Stable(self.model.stable),
        }
    }

    fn take_checkpoint(&mut self) {
        let (bytes, files) = self.store.checkpoint();
        let (covered, model) = (self.commands.len(), self.model.clone());
        for _ in 0..self.below(5) {
            self.step();
        }
        sync_files(&self.disk, &files).unwrap();
        self.checkpoint = (Some(bytes), covered, model);
    }

    /// The journal keeps a random number of commands after the last checkpoint.
    fn lose_power(&mut self) {
        let seed = self.below(1 << 30);
        self.disk.crash(seed);
        let (checkpoint, covered, model) = self.checkpoint.clone();
        let kept = covered + self.below((self.commands.len() - covered) as u64 + 1) as usize;
        let (lost, forgotten) = (self.commands.split_off(kept), self.forgotten.split_off(kept));
        self.journal.truncate(kept);
        self.store = open(&self.disk, OpenMode::Journaled { checkpoint }).unwrap();
        // The trim file's point applies to the replayed commands, but not to the checkpoint's.
        let trim = self.store.recovery().trim;
        let mut kept_trim = model.trim;
        self.model = Model { trim, ..model };
        for (command, kept) in self.commands[covered..].iter().zip(&self.journal[covered..]) {
            if let Some(kept) = kept {
                self.store.execute(kept).unwrap_or_else(|error| panic!("{kept:?}: {error}"));
            }
            self.model.execute(command);
            if let StorageCommand::Trim(position) = command {
                kept_trim = kept_trim.max(*position);
            }
        }
        let is_overtaken = kept_trim < trim;
        if is_overtaken {
            // The trim may have deleted segments because of lost commands that made ids final or
            // discarded them. These ids may be gone even if they were put again: the journal lost
            // that put too, so it was never acknowledged.
            let raised = lost.iter().position(|command| *command == StorageCommand::Trim(trim));
            let raised = raised.expect("what the journal lost raised the trim point");
            let ids: BTreeSet<_> = self.store.recovery().put.iter().flat_map(|ids| ids.ids()).collect();
            let may_be_gone =
                |id: &RecordId| forgotten[..raised].iter().any(|forgotten| forgotten.contains(id));
            self.model.ids.retain(|id| ids.contains(id) || !may_be_gone(id));
        }
        self.model.check(&self.store);
        if kept == 0 {
            self.begin();
        }
        if is_overtaken {
            // Replay of the journal must not bring back ids that are gone.
            self.take_checkpoint();
        }
    }
}

#[test]
fn with_a_journal_no_name_is_lost_and_none_comes_back() {
    let mut packed = 0;
    for seed in 0..300 {
        let mut fates = Fates::new(seed, OpenMode::Journaled { checkpoint: None });
        for _ in 0..100 {
            match fates.below(20) {
                0 => fates.take_checkpoint(),
                1 => fates.lose_power(),
                2 => fates.model.check(&fates.store),
                _ => fates.step(),
            }
        }
        packed += u64::from(has_packed_logs(&fates.store));
        fates.lose_power();
    }
    assert!(packed > 50, "{packed}");
}

fn has_packed_logs(store: &ShardStore) -> bool {
    store.trim.packed_to() > store.trim.first_segment()
}

#[test]
fn without_a_journal_a_killed_process_loses_no_name() {
    let mut packed = 0;
    for seed in 0..200 {
        let mut fates = Fates::new(seed, OpenMode::WriteBehind);
        for _ in 0..100 {
            fates.step();
            if fates.below(15) == 0 {
                fates.store = open(&fates.disk, OpenMode::WriteBehind).unwrap();
                fates.model.check(&fates.store);
            }
        }
        packed += u64::from(has_packed_logs(&fates.store));
    }
    assert!(packed > 50, "{packed}");
}

/// A store without a journal after a power cut, the number of synced commands, and the reopened
/// store.
fn cut_power(seed: u64) -> (Fates, usize, Option<ShardStore>) {
    let mut fates = Fates::new(seed, OpenMode::WriteBehind);
    let mut synced = 0;
    for _ in 0..fates.below(70) {
        fates.step();
        if fates.below(6) == 0 {
            sync_files(&fates.disk, &fates.store.take_unsynced()).unwrap();
            synced = fates.commands.len();
        }
    }
    fates.disk.crash(seed);
    let store = open(&fates.disk, OpenMode::WriteBehind).ok();
    (fates, synced, store)
}

fn remove_all(store: &mut ShardStore, disk: &MemoryDisk) {
    while let Some(removal) = store.next_removal() {
        removal.perform(disk).unwrap();
        store.removed();
    }
}

/// The reopened store shows a prefix of its commands, with all synced ones.
#[test]
fn without_a_journal_power_cuts_leave_what_was_and_no_wrong_name() {
    let (mut opened, mut cut, mut packed) = (0, 0, 0);
    for seed in 0..400 {
        let (fates, synced, store) = cut_power(seed);
        packed += u64::from(has_packed_logs(&fates.store));
        let Some(mut store) = store else { continue };
        opened += 1;
        cut += u64::from(synced < fates.commands.len());
        check_some_prefix(&store, &fates.commands, synced, seed);
        remove_all(&mut store, &fates.disk);
        check_some_prefix(&store, &fates.commands, synced, seed);
        let store = open(&fates.disk, OpenMode::WriteBehind).unwrap();
        check_some_prefix(&store, &fates.commands, synced, seed);
    }
    assert!(opened > 200 && cut > 100 && packed > 50, "{opened} {cut} {packed}");
}

/// This cut keeps the trim point. It loses the view whose start made ids final and the first
/// segment superfluous.
#[test]
fn without_a_journal_no_segment_goes_before_what_made_its_names_final() {
    let (fates, synced, store) = cut_power(182108);
    let store = store.expect("nothing is torn");
    assert_eq!(store.trim.position(), fates.model.trim);
    assert!(store.recovery().stable < fates.model.stable);
    check_some_prefix(&store, &fates.commands, synced, 182108);
}

#[test]
fn without_a_journal_a_trim_gives_up_a_segment_when_it_is_durable_that_no_name_needs_it() {
    let mut fates = Fates::new(0, OpenMode::WriteBehind);
    let ids = IdRun { session: SessionId(1), first: 3, count: 1 };
    let named = |ids: IdRun| ids.ids().map(|id| (id, record(id))).collect();
    fates.execute(StorageCommand::Put(named(ids)));
    fates.execute(StorageCommand::Put(named(IdRun { session: SessionId(2), first: 0, count: 20 })));
    fates.execute(StorageCommand::Put(named(IdRun { session: SessionId(2), first: 20, count: 20 })));
    fates.execute(StorageCommand::Discard(IdRun { session: SessionId(2), first: 0, count: 40 }));
    sync_files(&fates.disk, &fates.store.take_unsynced()).unwrap();
    fates.removes = false;
    fates.execute(StorageCommand::Discard(ids));
    fates.execute(StorageCommand::Trim(Position(1)));
    let trim_file = fates.store.trim.name().to_owned();
    let held_after_a_cut = |disk: &MemoryDisk| {
        let disk = disk.fork();
        disk.sync(&trim_file).unwrap();
        disk.crash(LOSES_ALL);
        let store = open(&disk, OpenMode::WriteBehind).unwrap();
        assert_eq!(store.trim.position(), Position(1));
        let put = store.recovery().put;
        assert_eq!(store.find(&put).len() as u64, put.iter().map(|ids| ids.count).sum::<u64>());
        put
    };
    assert_eq!(held_after_a_cut(&fates.disk), [ids]);
    remove_all(&mut fates.store, &fates.disk);
    assert_eq!(held_after_a_cut(&fates.disk), []);
    assert!(fates.store.trim.first_segment() > 1, "the segment is given up without another command");
    assert!(!fates.disk.files().contains(&fates.store.place.records_file(1)));
}

#[test]
fn what_a_killed_process_did_not_sync_is_gone_and_nothing_else() {
    for seed in 0..100 {
        let mut fates = Fates::new(seed, OpenMode::WriteBehind);
        let below = MemoryDisk::new();
        let disk = Arc::new(VolatileDisk::new(below.clone()));
        fates.store = open_on(disk.clone(), OpenMode::WriteBehind).unwrap();
        fates.store.execute(&fates.commands[0]).unwrap();
        for _ in 0..60 {
            fates.step();
        }
        sync_files(&*disk, &fates.store.take_unsynced()).unwrap();
        let (expected, trim) = (fates.model.clone(), fates.model.trim);
        fates.removes = false;
        for _ in 0..fates.below(10) {
            fates.step();
        }
        if fates.model.trim > trim {
            continue;
        }
        expected.check(&open(&below, OpenMode::WriteBehind).unwrap());
    }
}

/// The entries of one command may survive partly, except an order's: so the check is per id,
/// position and owner.
fn check_some_prefix(store: &ShardStore, commands: &[StorageCommand], synced: usize, seed: u64) {
    let recovery = store.recovery();
    let explains = |count: usize| {
        let model = Model::after(&commands[..count], Position(0), None);
        let believed = Some(recovery.stable);
        let model = Model::after(&commands[..count], model.trim, believed);
        let next = commands.get(count).map(|_| Model::after(&commands[..=count], model.trim, believed));
        let ids: BTreeSet<RecordId> = recovery.put.iter().flat_map(|ids| ids.ids()).collect();
        let within = |model: &Model, other: &Model| {
            model.ids.intersection(&other.ids).all(|id| ids.contains(id))
                && ids.iter().all(|id| model.ids.contains(id) || other.ids.contains(id))
        };
        within(&model, next.as_ref().unwrap_or(&model))
    };
    let explained = (synced..=commands.len()).any(explains);
    assert!(explained, "seed {seed}: {:?}", recovery.put);
    let found = store.find(&recovery.put);
    assert!(found.iter().all(|(id, content)| *content == record(*id)), "a record under another's name");
    let ids: u64 = recovery.put.iter().map(|ids| ids.count).sum();
    assert!(found.len() as u64 <= ids);
    let was_given: BTreeSet<(Position, RecordId, bool)> = (0..=commands.len())
        .flat_map(|count| Model::after(&commands[..count], Position(0), None).versions)
        .map(|((_, position), (id, is_void))| (position, id, is_void))
        .collect();
    let range =
        ReadRange { from: Position(0), end: Position(2000), max_records: u32::MAX, max_bytes: u32::MAX };
    for stored in store.read(range).map_or(vec![], |found| found.records) {
        let is_void = stored.record.is_no_op();
        assert!(was_given.contains(&(stored.position, stored.id, is_void)), "{stored:?}");
        assert!(is_void || stored.record == record(stored.id));
    }
}
