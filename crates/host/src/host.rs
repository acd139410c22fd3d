//! The node: dispatch, effects, writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::storage::{StorageCommand, StorageFailure};
use seriatim_model::timers::Timers;
use seriatim_model::{
    Address, Endpoint, Incarnation, Input, LogConfig, LogId, Member, NodeId, Peer, ShardId, Ticket, Time,
};
use seriatim_protocol::control;
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::roles::{RoleEffect, RoleInput};
use seriatim_protocol::shard;
use seriatim_protocol::{Message, Mutation, Options};
use seriatim_store::journal::WriteFailure;
use seriatim_store::{
    Disk, Journal, JournalIdentity, JournalOptions, JournalWrite, Kept, Lsn, RoleKey, Secret, ShardOptions,
};

use crate::backlog::Backlog;
use crate::checkpoint::Checkpoint;
use crate::condition::{Measured, NODE};
use crate::detector::Liveness;
use crate::files::Under;
use crate::forgetting::Forgetting;
use crate::journal::{Incarnated, RoleRecord, encode, own_record};
use crate::liveness::Others;
use crate::mark::DiskMark;
use crate::notices::Notices;
use crate::progress::Progress;
use crate::recovery::{HostError, Problem, new_replica, revive};
use crate::register::{RegisterPlace, RegisterQuestion};
use crate::register_proxy::RegisterProxy;
use crate::returning::{Returning, keeps_what_others_count_on};
use crate::role::Role;
use crate::room::Room;
use crate::serving::Serving;
use crate::turns::Turns;
use crate::visitors::Visitors;

/// Interval at which the node repeats its join until an answer comes.
pub(crate) const JOIN_EVERY: Duration = Duration::from_millis(200);

/// The register's role, which belongs to no log.
pub(crate) const REGISTER: RoleKey = RoleKey { log: LogId(0), endpoint: Endpoint::Register };

/// Parameters of a node's start.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The cluster's number.
    pub cluster: u128,
    /// The node's number.
    pub node: NodeId,
    /// Address for others, `host:port`.
    pub address: String,
    /// Place of the view register.
    pub register: RegisterPlace,
    /// Random for each start. Other nodes can see it and the numbers derived from it.
    pub seed: u64,
    /// Random for each start, and never sent.
    pub secret: Secret,
    /// Options of the machines.
    pub options: Options,
    /// Sizes of the journal.
    pub journal: JournalOptions,
    /// Sizes of the record stores.
    pub shard_options: ShardOptions,
}

/// Input of a node.
#[derive(Debug)]
pub enum Event {
    /// A message arrived.
    Message {
        /// Connection.
        peer: Peer,
        /// Log.
        log: LogId,
        /// Sender, on the other end.
        from: Endpoint,
        /// Receiver, on this node.
        to: Endpoint,
        /// Content.
        message: Message,
    },
    /// A connection closed. The [`Detector`](crate::Detector) decides whether the peer is down.
    Disconnected(Peer),
    /// A finding of the detector.
    Liveness(Liveness),
    /// Answer or news of an external register.
    RegisterAnswered {
        /// Asker, or receiver of the news.
        to: Address,
        /// Its log.
        log: LogId,
        /// The register's message.
        message: control::Message,
    },
    /// Outcome of the journal write that the driver took.
    JournalWritten(Result<(), WriteFailure>),
    /// Outcome of the file work that the driver took.
    FilesSynced(Result<(), String>),
    /// The node's files are not where the next start expects them, and why.
    FilesLost(String),
}

/// A message to send.
#[derive(Debug)]
pub struct Outgoing {
    /// Connection.
    pub peer: Peer,
    /// Log.
    pub log: LogId,
    /// Sender, on this node.
    pub from: Endpoint,
    /// Receiver, on the other end.
    pub to: Endpoint,
    /// Content.
    pub message: Message,
}

/// One node; see the [crate](crate).
#[derive(Debug)]
pub struct Host {
    pub(crate) config: HostConfig,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) journal: Journal,
    pub(crate) roles: BTreeMap<RoleKey, Role>,
    pub(crate) timers: Timers<RoleKey>,
    pub(crate) turns: Turns,
    /// Inputs that this node's roles cause for each other.
    pub(crate) local: VecDeque<(RoleKey, RoleInput)>,
    pub(crate) sends: Vec<Outgoing>,
    pub(crate) questions: Vec<RegisterQuestion>,
    /// Journal entries with which roles' writes become durable, in order.
    pub(crate) writes: VecDeque<(Lsn, RoleKey, Ticket)>,
    /// For each role whose first journal entry is not durable yet: that entry.
    pub(crate) beginnings: BTreeMap<RoleKey, Lsn>,
    /// Deleted logs, reported to the register once their files are gone.
    pub(crate) retired: VecDeque<(Lsn, LogId)>,
    /// Stores of dismissed replicas, with the dismissal's journal entry.
    pub(crate) doomed: VecDeque<(Lsn, LogId, ShardId)>,
    /// Roles forgotten because the disk was set back. Their stores stay until replaced or
    /// dismissed.
    pub(crate) forgotten: BTreeSet<RoleKey>,
    /// Logs deleted most recently: messages for them create no roles.
    pub(crate) gone: VecDeque<LogId>,
    /// Logs with replicas here that the register does not know, and since when; `None` once
    /// reported.
    pub(crate) unknown: BTreeMap<LogId, Option<Time>>,
    pub(crate) backlog: Backlog,
    /// The last journal entry, and the last that a role waits for.
    pub(crate) last: Lsn,
    pub(crate) awaited: Lsn,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) file_work: Option<Under>,
    /// Replicas with trimmed files to remove, and the last one served.
    pub(crate) removals: BTreeSet<RoleKey>,
    pub(crate) removed_last: Option<RoleKey>,
    /// Replicas whose disk had no room to replace a trimmed segment.
    pub(crate) crowded: BTreeSet<RoleKey>,
    pub(crate) forgetting: Forgetting,
    pub(crate) serving: Serving,
    pub(crate) room: Room,
    pub(crate) register_proxy: RegisterProxy,
    pub(crate) visitors: Visitors,
    pub(crate) measured: Measured,
    /// Clients that wait for the node's condition.
    pub(crate) asks: Vec<(Address, u64)>,
    pub(crate) progress: Progress,
    pub(crate) others: Others,
    pub(crate) mark: DiskMark,
    pub(crate) returning: Returning,
    /// Messages deferred until the node has returned.
    pub(crate) held_back: Vec<(RoleKey, Address, Message)>,
    pub(crate) join_at: Option<Time>,
    /// Address registered for this node, if it is not ours.
    pub(crate) elsewhere: Option<String>,
    random: u64,
    /// Last wall clock, in milliseconds since 1970.
    pub(crate) wall_ms: Option<u64>,
    pub(crate) failure: Option<String>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) notices: Notices,
    scratch: Vec<RoleEffect>,
}

impl Host {
    /// Starts a node from its disk.
    ///
    /// # Errors
    /// If the journal cannot be opened or decoded. A single damaged record store is a [`Problem`]
    /// instead.
    pub fn open(config: HostConfig, disk: Arc<dyn Disk>) -> Result<Self, HostError> {
        let identity = JournalIdentity { cluster: config.cluster, node: config.node };
        let (journal, recovered) = Journal::open(&disk, identity, config.secret, config.journal)?;
        let mut random = config.seed;
        let revived = revive(&config, &disk, recovered, || draw(&mut random))?;
        let last = journal.durable();
        // Without replicas, a set-back disk loses nothing: the disk gets a new number.
        let known = revived.disk.filter(|_| revived.roles.keys().any(keeps_what_others_count_on));
        let disk_number = known.unwrap_or_else(|| draw(&mut random));
        let returning = Returning::new(&revived.roles, revived.records);
        let mut host = Self {
            others: Others::new(&config),
            mark: DiskMark::new(disk_number, last.0),
            returning,
            held_back: vec![],
            disk,
            journal,
            roles: revived.roles,
            timers: Timers::default(),
            turns: Turns::default(),
            local: VecDeque::new(),
            sends: vec![],
            questions: vec![],
            writes: VecDeque::new(),
            beginnings: BTreeMap::new(),
            retired: VecDeque::new(),
            doomed: VecDeque::new(),
            forgotten: BTreeSet::new(),
            gone: revived.gone,
            unknown: BTreeMap::new(),
            backlog: Backlog::default(),
            last,
            awaited: last,
            checkpoint: None,
            file_work: None,
            removals: BTreeSet::new(),
            removed_last: None,
            crowded: BTreeSet::new(),
            forgetting: Forgetting::default(),
            serving: Serving::default(),
            room: Room::default(),
            register_proxy: RegisterProxy::new(config.seed),
            visitors: Visitors::default(),
            measured: Measured::default(),
            asks: vec![],
            progress: Progress::default(),
            join_at: Some(Time::ZERO),
            elsewhere: None,
            random,
            wall_ms: None,
            failure: None,
            problems: revived.problems,
            notices: Notices::default(),
            scratch: vec![],
            config,
        };
        if known.is_none() {
            host.append(NODE, &encode(&RoleRecord::Disk { disk: disk_number }));
        }
        host.forgetting = host.to_be_forgotten();
        host.add_register();
        let keys: Vec<_> = host.roles.keys().copied().collect();
        for key in keys {
            host.remember_anew(key)?;
            host.note_removal(key);
            host.update_timer(key);
        }
        host.flush()?;
        Ok(host)
    }

    /// Stores the hard state of a replica that may have lost entries.
    fn remember_anew(&mut self, key: RoleKey) -> Result<(), HostError> {
        let Some(Role::Shard(replica, store)) = self.roles.get_mut(&key) else { return Ok(()) };
        let known = store.recovery().memory;
        if known.as_ref() == Some(replica.memory()) {
            return Ok(());
        }
        let command = StorageCommand::Remember(replica.memory().clone());
        let Err(error) = store.execute(&command) else { return Ok(()) };
        if error.failure() == StorageFailure::Full {
            return Err(HostError::Write(format!("{error}: make room and start again")));
        }
        self.problems.push(Problem { log: key.log, endpoint: key.endpoint, cause: error.to_string() });
        Ok(())
    }

    /// Handles an event and steps the affected roles.
    pub fn handle(&mut self, now: Time, event: Event) {
        if self.failure.is_some() {
            return;
        }
        match event {
            Event::Message { peer, log, from, to, message } => {
                self.others.note_message(peer);
                self.receive(now, peer, log, from, to, message)
            }
            Event::Disconnected(peer) => self.disconnected(now, peer),
            Event::Liveness(change) => self.announce(now, change),
            Event::RegisterAnswered { to, log, message } => self.register_answered(to, log, message),
            Event::JournalWritten(outcome) => self.journal_written(now, outcome),
            Event::FilesSynced(outcome) => self.file_work_done(outcome),
            Event::FilesLost(cause) => self.fail(cause),
        }
        self.drain_local(now);
    }

    /// Performs due work once the inbox is drained. The driver then takes sends and writes.
    pub fn finish_turn(&mut self, now: Time) {
        if self.failure.is_some() {
            return;
        }
        for key in self.timers.take_due(now) {
            self.tell_wall(now, key);
            self.step(now, key, Input::Wake);
        }
        self.drain_local(now);
        self.join(now);
        if now >= self.room.look_at() {
            self.look_at_room(now);
        }
        self.retry_when_full(now);
        self.checkpoint_goes_on(now);
        self.notices.close_window(now);
        self.look_for_standing_logs(now);
    }

    /// Number of messages to send.
    #[must_use]
    pub fn waiting_sends(&self) -> usize {
        self.sends.len()
    }

    /// Removes and returns the messages to send, in order.
    pub fn take_sends(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.sends)
    }

    /// Next journal write, if a role waits for one and none is in flight.
    pub fn next_journal_write(&mut self, now: Time) -> Option<JournalWrite> {
        let awaited = self.journal.durable() < self.awaited
            || self.room_is_scarce() && self.journal.has_superfluous_files()
            || self.journal.has_files_to_forget();
        let pausing = self.journal.is_full() && self.room.pauses(now);
        (awaited && !pausing && self.failure.is_none()).then(|| self.journal.next_write()).flatten()
    }

    /// Bytes given to the journal that are not durable.
    #[must_use]
    pub fn journal_pending_bytes(&self) -> usize {
        self.journal.pending_bytes()
    }

    /// Latest time of the next [`Host::finish_turn`] or [`Host::serve_reader`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.failure.is_some() {
            return None;
        }
        let next_piece = self.checkpoint_is_ready().then_some(Time::ZERO);
        let look_at = Some(self.room.look_at());
        let forgets_at = self.forgetting.deadline();
        let own =
            [self.join_at, self.room.retry_at(), look_at, next_piece, forgets_at, self.notices.deadline()];
        own.into_iter()
            .chain([self.timers.next(), self.progress.deadline(), self.serving.deadline()])
            .flatten()
            .min()
    }

    /// Stops the node and keeps everything promised at any durability level.
    ///
    /// # Errors
    /// If the disk fails or a write is in flight: then it is a kill.
    pub fn close(mut self) -> Result<(), HostError> {
        if let Some(failure) = &self.failure {
            return Err(HostError::Write(failure.clone()));
        }
        let mut files = vec![];
        let mut closing = vec![];
        let has_returned = self.has_returned();
        for (key, role) in &mut self.roles {
            if let Some(store) = role.store() {
                files.extend(store.take_unsynced());
            }
            // Until the node returns, the journal's older record of these roles is valid.
            if role.can_close() && (has_returned || !keeps_what_others_count_on(key)) {
                closing.push((*key, RoleRecord::Closed { state: role.closing_state() }));
            }
        }
        for file in files {
            self.disk.sync(&file).map_err(|cause| HostError::Write(format!("{file}: {cause}")))?;
        }
        for file in self.take_checkpoint_files().unwrap_or_default() {
            // The replica may have been removed meanwhile.
            if let Err(cause) = self.disk.sync(&file)
                && cause.kind() != ErrorKind::NotFound
            {
                return Err(HostError::Write(format!("{file}: {cause}")));
            }
        }
        for (key, record) in closing {
            self.append(key, &encode(&record));
        }
        self.flush()
    }

    /// Writes all pending journal entries. No write may be in flight.
    fn flush(&mut self) -> Result<(), HostError> {
        while let Some(write) = self.journal.next_write() {
            let outcome = write.perform(&*self.disk);
            let full = matches!(outcome, Err(WriteFailure::Full { .. }));
            let written = self.journal.written(outcome);
            written.map_err(|cause| HostError::Write(cause.to_string()))?;
            if full {
                return Err(HostError::Write("the disk is full: make room and start again".into()));
            }
        }
        if self.journal.durable() < self.last {
            return Err(HostError::Write("an earlier write has not ended".into()));
        }
        self.mark.reaches(self.journal.durable().0);
        Ok(())
    }

    fn receive(&mut self, now: Time, peer: Peer, log: LogId, from: Endpoint, to: Endpoint, message: Message) {
        let from = match (peer, from) {
            (Peer::Node(node), endpoint) => Address::Node(node, endpoint),
            (Peer::Client(connection), Endpoint::Client(number)) if message.is_from_client_to(to) => {
                Address::Client(connection, number)
            }
            // Clients may not pose as nodes, nor send messages that only roles send.
            (Peer::Client(_), _) => return,
        };
        match to {
            Endpoint::Node => self.receive_as_node(now, from, message),
            Endpoint::Client(number) => self.pass_back(number, from, log, message),
            Endpoint::Register => {
                self.note_move(peer, &message);
                self.question_register(now, from, log, message);
            }
            // A client may ask an existing controller, and cannot create one.
            Endpoint::Controller if matches!(from, Address::Client(..)) && !self.hosts(log) => {}
            _ => {
                let key = RoleKey { log, endpoint: to };
                if let Peer::Client(connection) = peer {
                    if self.roles.contains_key(&key) {
                        self.visitors.note(connection, key);
                    }
                    self.backlog.visit(now, key.log);
                    self.press(now, key);
                } else if self.is_copying(key) {
                    self.press(now, key);
                }
                self.dispatch(now, key, from, message);
            }
        }
    }

    fn hosts(&self, log: LogId) -> bool {
        self.roles
            .range(RoleKey { log, endpoint: Endpoint::Register }..)
            .next()
            .is_some_and(|(key, _)| key.log == log)
    }

    pub(crate) fn dispatch(&mut self, now: Time, key: RoleKey, from: Address, message: Message) {
        if self.is_held_back(key) {
            return self.hold_back(key, from, message);
        }
        if matches!(message, Message::Control(control::Message::Gone { .. })) {
            self.note_unknown(now, key.log);
        }
        if !self.roles.contains_key(&key) {
            self.host_new_role(now, key, &message);
        }
        if self.roles.contains_key(&key) {
            self.introduce_leader(key, from, &message);
            self.tell_wall(now, key);
            self.step(now, key, Input::Message { from, message });
        } else if let Some(answer) = message.not_hosted() {
            self.send(key, from, answer);
        }
    }

    /// A first seal, fence or report, or a request to copy a retired shard, creates a role.
    fn host_new_role(&mut self, now: Time, key: RoleKey, message: &Message) {
        if self.gone.contains(&key.log) || self.is_doomed(key) {
            return;
        }
        match (key.endpoint, message) {
            (Endpoint::Controller, Message::Control(_)) => self.add_controller(now, key),
            (
                Endpoint::Sequencer,
                Message::Control(
                    control::Message::Seal { config, .. } | control::Message::Stage { config, .. },
                ),
            ) => {
                let me = self.begin_incarnation(key, config);
                let role = Role::new_sequencer(me, config.clone(), self.config.options);
                self.roles.insert(key, role);
            }
            (
                Endpoint::Shard(shard),
                Message::Shard(shard::Message::Fence { entry, .. })
                | Message::Control(control::Message::Registered { entry }),
            ) => {
                let is_fence = matches!(message, Message::Shard(_));
                if !is_fence && !control::parting::keeps_retired(entry, shard, self.config.node) {
                    return;
                }
                let log = entry.config.clone();
                let me = self.begin_incarnation(key, &log);
                match new_replica(&self.config, &self.disk, key.log, shard, me, log, &mut self.problems) {
                    Ok(role) => {
                        self.forgotten.remove(&key);
                        self.roles.insert(key, role);
                    }
                    Err(cause) => {
                        let cause = cause.to_string();
                        self.problems.push(Problem { log: key.log, endpoint: key.endpoint, cause });
                    }
                }
            }
            _ => {}
        }
        self.step(now, key, Input::DiskFull(self.disk_is_full()));
    }

    fn add_controller(&mut self, now: Time, key: RoleKey) {
        let random = draw(&mut self.random);
        let (node, register) = (self.config.node, self.register_node());
        let role = Controller::new(key.log, node, register, random, self.config.options);
        self.roles.insert(key, Role::Controller(Box::new(role)));
        self.introduce(now, key);
    }

    fn begin_incarnation(&mut self, key: RoleKey, config: &LogConfig) -> Member {
        let incarnation = Incarnation(draw(&mut self.random));
        let began = Incarnated { config: config.clone(), incarnation };
        self.awaited = self.append(key, &encode(&RoleRecord::Began(began)));
        self.beginnings.insert(key, self.awaited);
        Member { node: self.config.node, incarnation }
    }

    pub(crate) fn step(&mut self, now: Time, key: RoleKey, input: RoleInput) {
        if self.is_held_back(key) {
            return;
        }
        let Some(role) = self.roles.get_mut(&key) else { return };
        let mut effects = std::mem::take(&mut self.scratch);
        role.step(now, input, &mut effects);
        for effect in effects.drain(..) {
            if key.endpoint == Endpoint::Controller {
                self.notice_effect(now, key, &effect);
            }
            if !self.make_wait(key, &effect) {
                self.perform(now, key, effect);
            }
        }
        self.scratch = effects;
        self.look_at_progress(now, key);
        self.update_timer(key);
        self.take_turns(now, key);
    }

    fn update_timer(&mut self, key: RoleKey) {
        let deadline = self.roles.get(&key).filter(|_| !self.is_held_back(key)).and_then(Role::deadline);
        self.timers.set(key, deadline);
    }

    pub(crate) fn drain_local(&mut self, now: Time) {
        while let Some((key, input)) = self.local.pop_front() {
            match input {
                Input::Message { from, message } => match key.endpoint {
                    Endpoint::Node => self.receive_as_node(now, from, message),
                    Endpoint::Register => self.question_register(now, from, key.log, message),
                    _ => self.dispatch(now, key, from, message),
                },
                input => self.step(now, key, input),
            }
        }
    }

    fn perform(&mut self, now: Time, key: RoleKey, effect: RoleEffect) {
        match effect {
            RoleEffect::Send { to, message } => self.send(key, to, message),
            RoleEffect::Persist { ticket, entry } => {
                let lsn = self.append(key, &own_record(&entry));
                self.awaited = lsn;
                self.writes.push_back((lsn, key, ticket));
            }
            RoleEffect::Store { ticket, command } => self.store(now, key, ticket, &command),
            RoleEffect::Read { ticket, range, is_for_client: true } => self.serving.add(key, ticket, range),
            RoleEffect::Read { ticket, range, is_for_client: false } => {
                self.read(now, key, ticket, range);
            }
            RoleEffect::Find { ticket, ids } => {
                let found = match self.roles.get_mut(&key) {
                    Some(Role::Shard(_, store)) => store.find(&ids),
                    _ => return,
                };
                self.local.push_back((key, Input::Found(ticket, found)));
            }
            RoleEffect::Map { ticket, from, end } => {
                let owned = match self.roles.get_mut(&key) {
                    Some(Role::Shard(_, store)) => store.map(from, end),
                    _ => return,
                };
                self.local.push_back((key, Input::Mapped(ticket, owned)));
            }
            RoleEffect::Measure { ticket } => self.measure(key, ticket),
            RoleEffect::Reply { reply, .. } => match reply {},
        }
    }

    pub(crate) fn store(&mut self, now: Time, key: RoleKey, ticket: Ticket, command: &StorageCommand) {
        let must_wait = self.keep_from(now, key, command);
        if !must_wait {
            self.backlog.gives(key.log, command);
        }
        let Some(role) = self.roles.get_mut(&key) else { return };
        let journaled = role.is_journaled();
        let Some(store) = role.store() else { return };
        let outcome = match must_wait {
            true => Err((StorageFailure::Full, String::new())),
            false => store.execute(command).map_err(|cause| (cause.failure(), cause.to_string())),
        };
        self.note_removal(key);
        match &outcome {
            Ok(_) => self.set_disk_full(self.lacks_room()),
            Err((failure, cause)) => {
                self.local.push_back((key, Input::StoreFailed(ticket, *failure)));
                match failure {
                    StorageFailure::Full if must_wait => {}
                    StorageFailure::Full => self.found_no_room(now),
                    // An earlier write of the records that the command names failed. Both commands
                    // come again.
                    StorageFailure::Unheld => {}
                    // Stop the node: with a failed store its log would block silently.
                    StorageFailure::Failed => {
                        self.failure.get_or_insert(format!("the disk failed: {cause}"));
                    }
                }
            }
        }
        let is_stored = outcome.is_ok();
        match command {
            StorageCommand::RememberMissing { missing, .. } if is_stored => {
                self.notice_missing(now, key, *missing)
            }
            StorageCommand::Trim(_) if is_stored => self.note_trimmed(now, key),
            _ => {}
        }
        // A restart uses data of a role without a journal only if the journal names the role.
        if !journaled && !self.beginnings.contains_key(&key) {
            self.local.push_back((key, Input::Persisted(ticket)));
            return;
        }
        // A rejected command writes nothing. Later confirmations must not wait for other roles'
        // writes.
        let kept = outcome.unwrap_or(Kept::Nothing);
        if !journaled {
            self.awaited = self.last;
        } else {
            let in_full = is_stored && self.config.options.mutates(Mutation::AttemptJournaledInFull);
            match if in_full { Kept::Command } else { kept } {
                // The command repeats entries that may not be durable yet.
                Kept::Nothing if self.last <= self.journal.durable() => {
                    self.local.push_back((key, Input::Persisted(ticket)));
                    return;
                }
                Kept::Nothing => {}
                Kept::Command => _ = self.append(key, &own_record(&encode(command))),
                Kept::Instead(shorter) => _ = self.append(key, &own_record(&encode(&shorter))),
            }
            // No role waits for a stable bound or a mark.
            if !matches!(command, StorageCommand::Stable(_) | StorageCommand::Mark { .. }) {
                self.awaited = self.last;
            }
        }
        self.writes.push_back((self.last, key, ticket));
    }

    pub(crate) fn append(&mut self, key: RoleKey, chunks: &[Bytes]) -> Lsn {
        self.last = self.journal.append(key, chunks);
        self.backlog.add(self.last, key.log, chunks.iter().map(Bytes::len).sum());
        self.last
    }

    pub(crate) fn send(&mut self, key: RoleKey, to: Address, message: Message) {
        let log = match &message {
            Message::Control(message) => message.log().unwrap_or(key.log),
            _ => key.log,
        };
        match to {
            Address::Node(node, endpoint) if node == self.config.node => {
                let from = Address::Node(node, key.endpoint);
                let input = Input::Message { from, message };
                self.local.push_back((RoleKey { log, endpoint }, input));
            }
            Address::Node(..) | Address::Client(..) => {
                let (peer, endpoint) = match to {
                    Address::Node(node, endpoint) => (Peer::Node(node), endpoint),
                    Address::Client(connection, number) => {
                        (Peer::Client(connection), Endpoint::Client(number))
                    }
                };
                self.sends.push(Outgoing { peer, log, from: key.endpoint, to: endpoint, message });
            }
        }
    }

    fn receive_as_node(&mut self, now: Time, from: Address, message: Message) {
        let Message::Control(message) = message else { return };
        match (from, message) {
            (_, control::Message::Cluster { nodes }) => self.told_of(now, nodes),
            (_, control::Message::Elsewhere { version }) => self.move_here(version),
            (_, control::Message::Partings { partings }) => self.told_of_partings(now, partings),
            (_, control::Message::RemoveLog { log }) => self.remove_log(now, log),
            (_, control::Message::Dismiss { log, role, view }) => {
                self.dismiss(now, RoleKey { log, endpoint: role }, view)
            }
            (_, control::Message::AskCondition { request }) => self.note_ask(from, request),
            (_, control::Message::AskKnown { request }) => self.tell_known(from, request),
            (_, control::Message::Probe) => self.send(NODE, from, control::Message::Probed.into()),
            _ => {}
        }
    }

    fn journal_written(&mut self, now: Time, outcome: Result<(), WriteFailure>) {
        match self.journal.written(outcome) {
            Ok(durable) => {
                self.backlog.durable(durable);
                self.journal_found_room(now);
                self.report_durable(durable);
                self.mark.reaches(durable.0);
                self.return_goes_on(now, durable);
            }
            Err(cause) => self.failure = Some(cause.to_string()),
        }
    }

    fn report_durable(&mut self, durable: Lsn) {
        self.beginnings.retain(|_, began| *began > durable);
        let mut reached: BTreeMap<RoleKey, Ticket> = BTreeMap::new();
        while self.writes.front().is_some_and(|(lsn, _, _)| *lsn <= durable) {
            let (_, key, ticket) = self.writes.pop_front().expect("the front was just seen");
            reached.insert(key, ticket);
        }
        self.local.extend(reached.into_iter().map(|(key, ticket)| (key, Input::Persisted(ticket))));
    }

    pub(crate) fn fail(&mut self, cause: String) {
        self.end(format!("the disk failed: {cause}"));
    }

    pub(crate) fn end(&mut self, cause: String) {
        self.failure = Some(cause);
    }

    /// Draws a number unique among the roles.
    pub(crate) fn draw(&mut self) -> u64 {
        draw(&mut self.random)
    }
}

/// Next number of a seeded sequence (splitmix64).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
