//! Recovery of a node from its journal and stores.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use seriatim_model::storage::{StorageCommand, StorageFailure};
use seriatim_model::wire::{WireError, decode_one};
use seriatim_model::{Durability, Endpoint, Incarnation, LogConfig, LogId, Member, ShardId};
use seriatim_protocol::control::register::Register;
use seriatim_protocol::roles::recover_sequencing_role;
use seriatim_protocol::shard::Replica;
use seriatim_store::shard::StoreError;
use seriatim_store::{Disk, OpenError, OpenMode, Recovered, RoleKey, ShardStore};

use crate::aside;
use crate::condition::NODE;
use crate::host::HostConfig;
use crate::journal::{Incarnated, RoleRecord, RoleSnapshot};
use crate::removal::{note_gone, remove_store, remove_unborn};
use crate::role::Role;

/// Why a node cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The journal or a role's files are not damaged, but cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// The journal has an undecodable entry.
    #[error("the journal has an entry for {role} that this program cannot read: {cause}")]
    Entry {
        /// The entry's role.
        role: String,
        /// The decoding error.
        cause: WireError,
    },
    /// A write failed permanently.
    #[error("{0}")]
    Write(String),
}

/// A role that could not be restored. The others run without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its log.
    pub log: LogId,
    /// The role.
    pub endpoint: Endpoint,
    /// The cause, for an operator.
    pub cause: String,
}

#[derive(Debug, Default)]
struct History {
    began: Option<Incarnated>,
    /// The role's entries, and whether the first is a checkpoint's.
    own: Vec<Bytes>,
    from_checkpoint: bool,
    closed: Option<Option<Bytes>>,
}

/// Restored roles, and entries to journal before all others.
pub(crate) struct Revived {
    pub(crate) roles: BTreeMap<RoleKey, Role>,
    pub(crate) records: Vec<(RoleKey, RoleRecord)>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) gone: VecDeque<LogId>,
    /// The disk's number, if the journal has it.
    pub(crate) disk: Option<u64>,
}

#[derive(Default)]
struct Told {
    histories: BTreeMap<RoleKey, History>,
    gone: VecDeque<LogId>,
    disk: Option<u64>,
}

/// Restores every role in the journal. `fresh` draws incarnations.
pub(crate) fn revive(
    config: &HostConfig,
    disk: &Arc<dyn Disk>,
    recovered: Recovered,
    mut fresh: impl FnMut() -> u64,
) -> Result<Revived, HostError> {
    let Told { mut histories, mut gone, disk: mut number } = of_checkpoint(recovered.snapshots)?;
    let mut doomed = BTreeSet::new();
    for (key, bytes) in recovered.entries {
        let record: RoleRecord = decode_one(bytes).map_err(entry_error(key))?;
        let history = histories.entry(key).or_default();
        match record {
            RoleRecord::Own(entry) => history.own.push(entry),
            RoleRecord::Began(began) => {
                doomed.remove(&key);
                *history = History { began: Some(began), ..History::default() };
            }
            RoleRecord::Closed { state } => history.closed = Some(state),
            RoleRecord::Reopened { incarnation } => {
                history.closed = None;
                if let Some(began) = &mut history.began {
                    began.incarnation = incarnation;
                }
            }
            RoleRecord::Gone => {
                histories.remove(&key);
                match key.endpoint {
                    Endpoint::Node => note_gone(&mut gone, key.log),
                    _ => _ = doomed.insert(key),
                }
            }
            RoleRecord::Disk { disk } => number = Some(disk),
            RoleRecord::SetBack { disk } => {
                number = Some(disk);
                histories.retain(|key, _| key.endpoint == Endpoint::Register);
            }
        }
    }
    let mut revived =
        Revived { roles: BTreeMap::new(), records: vec![], problems: vec![], gone, disk: number };
    for key in doomed {
        if let Endpoint::Shard(shard) = key.endpoint {
            revived.problems.extend(remove_store(&**disk, key.log, shard));
        }
    }
    for (key, history) in histories {
        if let Some(role) = revive_role(config, disk, key, history, &mut fresh, &mut revived)? {
            revived.roles.insert(key, role);
        }
    }
    revived.problems.extend(remove_unborn(&**disk, &revived.roles));
    Ok(revived)
}

fn of_checkpoint(snapshots: Vec<(RoleKey, Vec<Bytes>)>) -> Result<Told, HostError> {
    let mut told = Told::default();
    for (key, pieces) in snapshots {
        let mut snapshot = RoleSnapshot::decode_parts(pieces.concat().into()).map_err(entry_error(key))?;
        if key == NODE {
            let logs = snapshot.own.pop().map_or(Ok(vec![]), decode_one::<Vec<LogId>>);
            told.gone = logs.map_err(entry_error(key))?.into();
            told.disk = snapshot.own.pop().map(decode_one).transpose().map_err(entry_error(key))?;
            continue;
        }
        let history = History {
            began: snapshot.began,
            from_checkpoint: !snapshot.own.is_empty(),
            own: snapshot.own,
            closed: None,
        };
        told.histories.insert(key, history);
    }
    Ok(told)
}

/// Why a replica cannot be restored.
enum Loss {
    /// The disk is full. It can be restored when there is room.
    NoRoom(String),
    /// Its files are not damaged, but cannot be opened.
    Closed(OpenError),
    /// Any other cause.
    Damage(String),
}

impl From<OpenError> for Loss {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Self::NoRoom(error.to_string())
            }
            _ if error.is_of_the_surroundings() => Self::Closed(error),
            _ => Self::Damage(error.to_string()),
        }
    }
}

impl From<StoreError> for Loss {
    fn from(error: StoreError) -> Self {
        match error.failure() {
            StorageFailure::Full => Self::NoRoom(error.to_string()),
            StorageFailure::Unheld | StorageFailure::Failed => Self::Damage(error.to_string()),
        }
    }
}

impl From<WireError> for Loss {
    fn from(error: WireError) -> Self {
        Self::Damage(error.to_string())
    }
}

impl From<Loss> for HostError {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::NoRoom(cause) => Self::Write(format!("{cause}: make room and start again")),
            Loss::Closed(cause) => Self::Open(cause),
            Loss::Damage(cause) => Self::Write(cause),
        }
    }
}

fn revive_role(
    config: &HostConfig,
    disk: &Arc<dyn Disk>,
    key: RoleKey,
    history: History,
    fresh: &mut impl FnMut() -> u64,
    revived: &mut Revived,
) -> Result<Option<Role>, HostError> {
    if key.endpoint == Endpoint::Register {
        let register = Register::recover(config.node, config.options, history.own);
        return Ok(Some(Role::Register(register.map_err(entry_error(key))?.in_incarnation(config.seed))));
    }
    let Some(began) = history.began else { return Ok(None) };
    // An ordering role without stored state gets a new incarnation at each start.
    let keeps = key.endpoint != Endpoint::Sequencer || began.config.order.properties().keeps_order;
    let journaled = keeps && began.config.durability == Durability::Disk;
    // A role without a journal keeps its state only after an orderly end.
    let remembers = journaled || keeps && history.closed.is_some();
    let incarnation = if remembers { began.incarnation } else { Incarnation(fresh()) };
    let me = Member { node: config.node, incarnation };
    if !journaled {
        revived.records.push((key, RoleRecord::Reopened { incarnation }));
    }
    match key.endpoint {
        Endpoint::Sequencer => {
            let entries =
                if journaled { history.own } else { history.closed.flatten().into_iter().collect() };
            let role =
                recover_sequencing_role(me, began.config.clone(), config.options, entries.iter().cloned());
            match role {
                Ok(role) => Ok(Some(Role::Sequencer(role))),
                Err(cause) => {
                    let began = Incarnated { incarnation: Incarnation(fresh()), ..began };
                    begin_anew(config, disk, key, began, &entries, &cause.to_string(), revived).map(Some)
                }
            }
        }
        Endpoint::Shard(shard) => {
            let closed = history.closed.flatten();
            let (journaled, entries, from_checkpoint) = match closed.filter(ShardStore::is_checkpoint) {
                // After an orderly end, the closing state is a checkpoint, which all files must
                // match.
                Some(state) => (true, vec![state], true),
                None => (journaled, history.own, history.from_checkpoint),
            };
            let store = match open_store(config, disk, key.log, shard, journaled, &entries, from_checkpoint) {
                Ok(store) => store,
                Err(Loss::Damage(cause)) => {
                    let began = Incarnated { incarnation: Incarnation(fresh()), ..began };
                    return begin_anew(config, disk, key, began, &entries, &cause, revived).map(Some);
                }
                Err(cause) => return Err(cause.into()),
            };
            if let Some(role) = Replica::recover(me, shard, store.recovery(), config.options) {
                return Ok(Some(Role::Shard(Box::new(role), Box::new(store))));
            }
            drop(store);
            let problems = &mut revived.problems;
            let role = new_replica(config, disk, key.log, shard, me, began.config, problems);
            Ok(Some(role.map_err(Loss::from)?))
        }
        _ => Ok(None),
    }
}

/// Puts unreadable state aside and restarts the role, empty, in an incarnation that no view trusts.
/// Other replicas copy its records to it.
fn begin_anew(
    config: &HostConfig,
    disk: &Arc<dyn Disk>,
    key: RoleKey,
    began: Incarnated,
    entries: &[Bytes],
    cause: &str,
    revived: &mut Revived,
) -> Result<Role, HostError> {
    let Incarnated { config: log, incarnation } = began.clone();
    let place = aside::put(&**disk, key, incarnation, entries).map_err(|(file, source)| {
        let held = format!("the state of {:?} of log {} cannot be read: {cause}", key.endpoint, key.log);
        HostError::Write(format!("{held}; and it cannot be put aside as {file}: {source}"))
    })?;
    let cause = format!("{cause}; it is put aside as {place}, and copied again from other replicas");
    revived.problems.push(Problem { log: key.log, endpoint: key.endpoint, cause });
    revived.records.push((key, RoleRecord::Began(began)));
    let me = Member { node: config.node, incarnation };
    match key.endpoint {
        Endpoint::Shard(shard) => {
            let role = new_replica(config, disk, key.log, shard, me, log, &mut revived.problems);
            Ok(role.map_err(Loss::from)?)
        }
        _ => Ok(Role::new_sequencer(me, log, config.options)),
    }
}

/// Creates a replica with an empty store. Old files without a journal entry or hard state belong to
/// no replica; their trim point would hide new records. Files with records may be the last copies
/// and are put aside.
pub(crate) fn new_replica(
    config: &HostConfig,
    disk: &Arc<dyn Disk>,
    id: LogId,
    shard: ShardId,
    me: Member,
    log: LogConfig,
    problems: &mut Vec<Problem>,
) -> Result<Role, OpenError> {
    let aside = make_room(&**disk, id, shard, me.incarnation);
    let file = ShardStore::directory(id, shard);
    if let Some(place) = aside.map_err(|source| OpenError::Io { file, source })? {
        let cause = format!(
            "records of a replica that the journal does not know are put aside as {place}: no replica needs them, unless \
             the journal was lost or set back"
        );
        problems.push(Problem { log: id, endpoint: Endpoint::Shard(shard), cause });
    }
    let mode = match log.durability {
        Durability::Disk => OpenMode::Journaled { checkpoint: None },
        Durability::Memory => OpenMode::WriteBehind,
    };
    let store = ShardStore::open(disk.clone(), id, shard, mode, config.shard_options)?;
    let role = Replica::new(me, shard, log, config.options);
    Ok(Role::Shard(Box::new(role), Box::new(store)))
}

/// Removes or puts aside old files. Returns where earlier records were put, if any.
fn make_room(
    disk: &dyn Disk,
    log: LogId,
    shard: ShardId,
    incarnation: Incarnation,
) -> io::Result<Option<String>> {
    if ShardStore::has_records(disk, log, shard)? {
        return ShardStore::set_aside(disk, log, shard, incarnation.0).map(Some);
    }
    ShardStore::destroy(disk, log, shard).map(|()| None)
}

fn open_store(
    config: &HostConfig,
    disk: &Arc<dyn Disk>,
    log: LogId,
    shard: ShardId,
    journaled: bool,
    entries: &[Bytes],
    from_checkpoint: bool,
) -> Result<ShardStore, Loss> {
    let mut entries = entries.iter().cloned();
    let mode = if journaled {
        OpenMode::Journaled { checkpoint: if from_checkpoint { entries.next() } else { None } }
    } else {
        OpenMode::WriteBehind
    };
    let mut store = ShardStore::open(disk.clone(), log, shard, mode, config.shard_options)?;
    for entry in entries {
        store.execute(&decode_one::<StorageCommand>(entry)?)?;
    }
    Ok(store)
}

fn entry_error(key: RoleKey) -> impl FnOnce(WireError) -> HostError {
    move |cause| HostError::Entry { role: format!("{:?} of log {}", key.endpoint, key.log), cause }
}
