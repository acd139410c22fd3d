//! What a seed determines: the cluster, its network and disks, the workload, and the faults.

use std::time::Duration;

use seriatim_model::limits::{Limits, MAP_RUNS, MISSING_CONNECTED, MISSING_FOR, REPLACE_AFTER};
use seriatim_model::{Durability, LogConfig, NodeId, Order, RetentionChange};
use seriatim_protocol::{Mutation, Options};
use seriatim_store::{JournalOptions, ShardOptions};

use crate::capacity::Capacity;
use crate::coverage::{FaultKind, Step};
use crate::playing::PlayersPlan;
use crate::random::Random;

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// This long after the log's creation.
    At(Duration),
    /// At this step, but at least this long after the log's creation.
    Step(Step, Duration),
}

/// The node that a fault prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any node.
    Any,
    /// The leader.
    Leader,
    /// A sequencing replica that does not lead.
    Follower,
    /// A node with a shard replica only.
    Shard,
    /// A shard's primary.
    Primary,
    /// All replicas of one shard.
    WholeShard,
    /// All replicas of a retired shard.
    RetiredShard,
    /// A node whose controller is forming a view.
    Controller,
    /// This node.
    Node(NodeId),
}

/// A planned fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// When it strikes.
    pub trigger: Trigger,
    /// Its kind.
    pub kind: FaultKind,
    /// Its target.
    pub target: Target,
    /// Its duration, or that of a node's absence.
    pub lasting: Duration,
}

/// A change of a log's shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reshape {
    /// A shard joins.
    Add,
    /// A shard leaves.
    Remove,
}

/// How a node leaves the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The node.
    pub target: Target,
    /// Whether it is lost permanently first, if the log bears that.
    pub is_lost: bool,
    /// Whether one named node takes over.
    pub has_successor: bool,
    /// Time after which the departure is revoked, if it is.
    pub stays_after: Option<Duration>,
}

/// Message transport without faults.
#[derive(Clone, Copy, Debug)]
pub struct NetworkPlan {
    /// Shortest and longest one-way delay, in microseconds. If equal, nodes also answer at once.
    pub delay_us: (u64, u64),
    /// Messages per thousand that are lost, duplicated, overtaking.
    pub noise_permille: (u64, u64, u64),
    /// Percentage of messages that outlive their connection.
    pub straggle_percent: u64,
    /// Messages per thousand between nodes that arrive again much later.
    pub echo_permille: u64,
}

/// Sizes of the nodes' disks.
#[derive(Clone, Copy, Debug)]
pub struct DiskPlan {
    /// Size of each disk in bytes. `None`: unlimited.
    pub most: Option<u64>,
    /// A disk with less free space is full, in bytes.
    pub low: u64,
    /// Free space at which it is not full any more, in bytes.
    pub enough: u64,
}

/// The clients' work.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Whether records have keys, and some subscriptions a prefix.
    pub keyed: bool,
    /// Number of client processes.
    pub clients: u32,
    /// Sessions per client.
    pub sessions: u32,
    /// Appends per session.
    pub appends: u32,
    /// Appends after which the application opens another session.
    pub per_session: Option<u32>,
    /// Most appends of a session in flight.
    pub window: u32,
    /// Appends requested at once.
    pub burst: u32,
    /// Longest pause between bursts, in microseconds.
    pub think_us: u64,
    /// Percentage of appends that wait for their position.
    pub sync_percent: u64,
    /// Appends per thousand that exceed the log's limit.
    pub oversize_permille: u64,
    /// Longest payload, in bytes.
    pub payload_bytes: u64,
    /// Whether every payload has that length.
    pub payload_is_fixed: bool,
    /// Whether payloads are pieces of the nodes' disks.
    pub payload_of_disks: bool,
    /// Tail questions per hundred appends.
    pub tail_percent: u64,
    /// Whether clients read.
    pub reads: bool,
    /// Number of clients with random reads and a sequential one.
    pub lookups: u32,
    /// Whether the first client trims the records that it has read.
    pub trims: bool,
    /// Percentage of crashed clients that resume their sessions.
    pub resume_percent: u64,
    /// Percentage of programs that live on after another run resumed their sessions.
    pub lives_on_percent: u64,
    /// Longest isolation of such a program, in milliseconds. Zero: only its connections break.
    pub cut_off_most_ms: u64,
    /// Percentage of pauses long enough for sessions to expire.
    pub long_pause_percent: u64,
    /// Whether sessions are ended after the last append.
    pub ends: bool,
    /// Whether appends that become no-ops are resubmitted.
    pub unordered: bool,
    /// Pause between resets of a client's connections under load.
    pub reset_every: Option<Duration>,
}

/// A change of a log's pins.
#[derive(Clone, Copy, Debug)]
pub enum PinChange {
    /// Sets or raises a pin.
    Set {
        /// Number of the pin.
        name: u64,
        /// Positions below the stable bound.
        back: u64,
        /// As in the message.
        most_bytes: Option<u64>,
    },
    /// Removes a pin.
    Remove {
        /// Number of the pin.
        name: u64,
    },
}

/// The nodes' wall clocks.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    /// Milliseconds by which each node's clock is ahead of true time.
    pub ahead_ms: Vec<i64>,
    /// Temporary jumps of a clock: start, duration, node, milliseconds added.
    pub jumps: Vec<(Duration, Duration, NodeId, i64)>,
}

impl Clocks {
    /// Milliseconds by which a node's clock is ahead at `after`.
    #[must_use]
    pub fn ahead_ms(&self, node: NodeId, after: Duration) -> i64 {
        let jumped = self.jumps.iter().filter(|(from, lasting, of, _)| {
            *of == node && (*from..from.saturating_add(*lasting)).contains(&after)
        });
        let usual = self.ahead_ms.get(node.0 as usize - 1).copied().unwrap_or_default();
        usual + jumped.map(|(.., more)| more).sum::<i64>()
    }

    /// Most milliseconds by which a clock is ever behind.
    #[must_use]
    pub fn most_behind_ms(&self) -> u64 {
        let behind = |ahead: &i64| (-ahead).max(0).cast_unsigned();
        let usual = self.ahead_ms.iter().map(behind).max().unwrap_or_default();
        usual + self.jumps.iter().map(|(.., more)| behind(more)).sum::<u64>()
    }
}

/// Everything that determines a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of all randomness.
    pub seed: u64,
    /// Number of nodes. The first hosts the register.
    pub nodes: u32,
    /// Logs created before the tested one.
    pub earlier_logs: u32,
    /// The tested log.
    pub config: LogConfig,
    /// Options of all machines, including clients.
    pub options: Options,
    /// Whether nodes have different limits.
    pub nodes_differ: bool,
    /// Whether faults and work last for seconds.
    pub lasts_long: bool,
    /// Journal sizes.
    pub journal: JournalOptions,
    /// Record store sizes.
    pub shard_options: ShardOptions,
    /// Message transport.
    pub network: NetworkPlan,
    /// Range of a sync's duration, in microseconds.
    pub sync_us: (u64, u64),
    /// Disk sizes.
    pub disk: DiskPlan,
    /// The clients' work.
    pub workload: Workload,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Whether a log at durability `memory` may lose more than it can bear.
    pub may_lose_too_much: bool,
    /// Whether an operator accepts losses.
    pub has_operator: bool,
    /// Whether the operator asks nodes for their knowledge.
    pub asks_nodes: bool,
    /// Changes of shards, with their time after the log's creation.
    pub reshapes: Vec<(Duration, Reshape)>,
    /// Departures of nodes, with their time.
    pub departures: Vec<(Duration, Departure)>,
    /// Whether a lost disk returns with earlier contents.
    pub disk_goes_back: bool,
    /// Wall clocks. `None`: no limits apply.
    pub clocks: Option<Clocks>,
    /// Changes of limits, with their time.
    pub limit_changes: Vec<(Duration, RetentionChange)>,
    /// Changes of pins, with their time.
    pub pin_changes: Vec<(Duration, PinChange)>,
    /// Pause between appends to a second log, if there is one.
    pub second_log_every: Option<Duration>,
    /// Creation and deletion times of other logs.
    pub fleeting: Vec<(Duration, Duration)>,
    /// Time for all requests to complete during the faults. `None`: calm returns first.
    pub done_without_calm: Option<Duration>,
    /// Capacity of the cluster.
    pub capacity: Option<Capacity>,
    /// Players, if there are any.
    pub players: Option<PlayersPlan>,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let nodes = random.pick(&[3, 4, 5, 5, 6, 6]);
        let durability = if random.percent(70) { Durability::Disk } else { Durability::Memory };
        let mut config = LogConfig {
            durability,
            shards: random.between(1, 3) as u32,
            replicas: random.between(1, 3) as u32,
            sequencers: if random.percent(70) { 3 } else { random.between(1, u64::from(nodes)) as u32 },
            min_replicas: random.pick(&[1, 2]),
            min_sequencers: random.pick(&[1, 2, 2]),
            stripe: random.pick(&[1, 3, 64]),
            max_record_bytes: 600,
            ..LogConfig::default()
        };
        let may_lose_too_much = durability == Durability::Memory && random.percent(25);
        let earlier_logs = random.below(4) as u32;
        let limits = limits(&mut random, &mut config);
        let mut plan = Self {
            seed,
            nodes,
            earlier_logs,
            config,
            options: Options { limits, ..Options::default() },
            nodes_differ: Random::new(seed ^ DIFFERENT).percent(25),
            lasts_long: false,
            journal: journal(&mut random),
            shard_options: ShardOptions::new(random.pick(&[1500, 6000, 50_000])),
            network: network(&mut random),
            sync_us: random.pick(&[(20, 100), (100, 1000), (500, 6000)]),
            disk: DiskPlan { most: None, low: 2000, enough: 8000 },
            workload: workload(&mut random),
            faults: vec![],
            may_lose_too_much,
            has_operator: may_lose_too_much && random.percent(50),
            asks_nodes: false,
            reshapes: reshapes(seed),
            clocks: None,
            limit_changes: vec![],
            pin_changes: vec![],
            departures: vec![],
            disk_goes_back: false,
            second_log_every: None,
            fleeting: vec![],
            done_without_calm: None,
            capacity: None,
            players: None,
        };
        // Drawn from separate generators, so that known seeds keep their plans.
        let mut apart = Random::new(seed ^ 0x0E4D);
        plan.journal.snapshot_bytes = Random::new(seed ^ 0x54A9).pick(&[300, 2000, 256 << 10]);
        plan.options.limits.orphan_check_after = apart.pick(&[50, 400, 3000].map(Duration::from_millis));
        let connected = if seed.is_multiple_of(4) { MISSING_CONNECTED } else { MISSING_FOR };
        plan.options.limits.missing_connected = connected;
        plan.options.limits.order_every = apart.pick(&[0, 0, 500, 5000].map(Duration::from_micros));
        plan.faults = plan.some_faults(&mut random);
        plan.workload.ends = random.percent(40);
        plan.workload.unordered = random.percent(35);
        plan.workload.lookups = random.pick(&[0, 0, 1, 2]);
        plan.options.limits.map_runs = random.pick(&[1, 5, 40, MAP_RUNS]);
        scarce(&mut plan.options.limits, seed);
        plan
    }

    /// Adds one or two faults of 1 to 20 s, with clients slow enough to append meanwhile.
    #[must_use]
    pub fn lengthened(mut self) -> Self {
        if self.lasts_long {
            return self;
        }
        let mut random = Random::new(self.seed ^ LONG ^ 1 << 40);
        self.lasts_long = true;
        self.workload.think_us = 1_000_000;
        for _ in 0..random.between(1, 2) {
            let kind = random.pick(&[
                FaultKind::Pause,
                FaultKind::Pause,
                FaultKind::Partition,
                FaultKind::PartialPartition,
                FaultKind::ControlPartition,
                FaultKind::OneWay,
                FaultKind::ClientPartition,
            ]);
            let target =
                random.pick(&[Target::Any, Target::Leader, Target::Follower, Target::Shard, Target::Primary]);
            let trigger = Trigger::At(random.millis(0, 2000));
            self.faults.push(Fault { trigger, kind, target, lasting: random.millis(1000, 20_000) });
        }
        self
    }

    /// Adapts the plan to another ordering.
    #[must_use]
    pub fn ordered(mut self, order: Order) -> Self {
        self.config.order = order;
        if !order.properties().numbers_refused {
            // The client refuses such records before it numbers them.
            self.workload.oversize_permille = 0;
        }
        if !order.properties().fills_late {
            // No append fails because it is late, so none is resubmitted.
            self.workload.unordered = false;
        }
        self.config = self.config.fitted();
        if !order.properties().remembers_sessions {
            // A sequencer that forgot an active session would reuse its numbers.
            self.options.limits.max_sessions = self.options.limits.max_sessions.max(12);
            if self.seed.is_multiple_of(4) {
                self.options.limits.ended_sessions = 3;
            }
        }
        if order.has_cuts() {
            self.config.interval_us = [100, 1000, 5000][(self.seed % 3) as usize];
        }
        if order.has_quotas() {
            // Short windows in half of the runs.
            let mut random = Random::new(self.seed ^ 0x37_1D05);
            self.config.window = if random.percent(50) { random.between(2, 6) as u32 } else { 20 };
        }
        self
    }

    /// Adds a deliberate defect.
    #[must_use]
    pub fn mutated(mut self, mutation: Option<Mutation>) -> Self {
        self.options.mutation = mutation;
        self.shard_options.measures_by_encoding = self.options.mutates(Mutation::MeasuredByEncoding);
        self.shard_options.keeps_newest = self.options.mutates(Mutation::NewestKept);
        self
    }

    /// A node's options: the plan's limits, or lower ones where nodes may differ
    /// (`docs/decisions/2026-11-24-equal-on-all-nodes.md`).
    #[must_use]
    pub fn options_of(&self, node: NodeId) -> Options {
        let mut options = self.options;
        (options.limits.disk_low_bytes, options.limits.disk_enough_bytes) = (self.disk.low, self.disk.enough);
        if self.nodes_differ {
            let mut random = Random::new(self.seed ^ DIFFERENT ^ u64::from(node.0) << 32);
            make_different(&mut options.limits, &mut random);
        }
        options
    }

    /// Successive seeds visit all kinds and steps with the main fault; the others are random.
    fn some_faults(&self, random: &mut Random) -> Vec<Fault> {
        if random.percent(4) {
            return vec![];
        }
        let cells = (FaultKind::ALL.len() * Step::ALL.len()) as u64;
        let cell = (self.seed % cells) as usize;
        let kind = FaultKind::ALL[cell / Step::ALL.len()];
        let step = Step::ALL[cell % Step::ALL.len()];
        let start = random.millis(5, 300);
        let mut faults = vec![];
        if step.is_view_change() && random.percent(85) {
            // Causes the view change that the main fault disturbs.
            let cause = if self.config.durability == Durability::Disk {
                random.pick(&[FaultKind::Kill, FaultKind::PowerLoss, FaultKind::Close])
            } else {
                random.pick(&[FaultKind::Close, FaultKind::CloseAll])
            };
            faults.push(Fault {
                trigger: Trigger::At(start),
                kind: cause,
                target: Target::Any,
                lasting: random.millis(1, 60),
            });
        }
        let after = start + random.micros(1, 2000);
        faults.push(Fault {
            trigger: Trigger::Step(step, after),
            kind,
            target: Target::Any,
            lasting: random.millis(1, 400),
        });
        for _ in 0..random.below(5) {
            let at = random.millis(0, 1500);
            let trigger =
                if random.percent(50) { Trigger::At(at) } else { Trigger::Step(random.pick(&Step::ALL), at) };
            let lasting = random.millis(1, 600);
            faults.push(Fault { trigger, kind: random.pick(&FaultKind::ALL), target: Target::Any, lasting });
        }
        faults
    }
}

fn limits(random: &mut Random, config: &mut LogConfig) -> Limits {
    let small = random.percent(50);
    let ring_records = if small { random.between(4, 40) as usize } else { 10_000 };
    let batch_records = if small { random.between(1, 8) as usize } else { random.pick(&[16, 2048]) };
    config.session_idle_positions = random.pick(&[20, 60, 1000, 10_000_000]);
    Limits {
        ring_records,
        largest_ring_records: ring_records,
        batch_records,
        heartbeat_every: random.pick(&[20, 50, 200].map(Duration::from_millis)),
        replace_after: if random.percent(60) { random.millis(100, 2000) } else { REPLACE_AFTER },
        ..Limits::default()
    }
}

/// Seed of the limits that differ between nodes, separate so that known seeds keep their plans. No
/// seed that once failed has differing nodes.
const DIFFERENT: u64 = 0xD205_215F;

/// Seed of the long faults, separate for the same reason.
const LONG: u64 = 0x10_4604;

/// Limits of one node: at most the plan's, which other replicas rely on. Heartbeats remain
/// compatible.
fn make_different(limits: &mut Limits, random: &mut Random) {
    let records = limits.ring_records;
    limits.ring_records = random.pick(&[records, records, records.min(32), records.min(4)]);
    limits.ring_bytes = random.pick(&[limits.ring_bytes, limits.ring_bytes, 20_000, 4000]);
    limits.journal_backlog_bytes = random.pick(&[limits.journal_backlog_bytes, 60_000, 6000]);
    limits.batch_records = random.pick(&[limits.batch_records, limits.batch_records.min(5), 1]);
    limits.batch_bytes = random.pick(&[limits.batch_bytes, 5000, 700]);
    limits.order_every = random.pick(&[0, 500, 5000].map(Duration::from_micros));
    limits.orphan_check_after = random.pick(&[50, 400, 3000].map(Duration::from_millis));
    limits.replace_after = random.pick(&[limits.replace_after, Duration::from_millis(300), REPLACE_AFTER]);
    limits.heartbeat_every = random.pick(&[limits.heartbeat_every, limits.heartbeat_every / 2]);
    limits.heartbeats_missed = random.pick(&[limits.heartbeats_missed, 4]);
}

/// Lowers limits shared by clients, often until runs reach them. Drawn separately.
fn scarce(limits: &mut Limits, seed: u64) {
    let mut random = Random::new(seed ^ 0x5CA2_CE00);
    if random.percent(50) {
        limits.waiting_reads = random.pick(&[16, 40]);
        limits.waiting_locates = random.pick(&[4, 40]);
        // As in production, at least eight times a session's appends in flight: records behind a
        // gap keep their places, and the record that fills the gap needs a place too.
        limits.held_records = random.pick(&[400, 2000]);
        limits.void_runs = random.pick(&[2, 20]);
    }
}

/// Random changes of shards. Drawn separately, so that known seeds keep their plans.
fn reshapes(seed: u64) -> Vec<(Duration, Reshape)> {
    let mut random = Random::new(!seed);
    let count = if random.percent(35) { random.between(1, 3) } else { 0 };
    let mut one = || (random.millis(0, 1200), random.pick(&[Reshape::Add, Reshape::Add, Reshape::Remove]));
    (0..count).map(|_| one()).collect()
}

fn journal(random: &mut Random) -> JournalOptions {
    JournalOptions {
        file_bytes: random.pick(&[16_384, 32_768, 65_536]),
        batch_bytes: random.pick(&[512, 4096, 65_536]),
        checkpoint_bytes: random.pick(&[3000, 20_000, 200_000]),
        snapshot_bytes: 256 << 10,
        spare_files: random.pick(&[0, 2, 8]),
        block_bytes: random.pick(&[512, 4096]),
    }
}

fn network(random: &mut Random) -> NetworkPlan {
    let noisy = random.percent(25);
    NetworkPlan {
        delay_us: random.pick(&[(20, 80), (50, 1000), (10, 8000)]),
        noise_permille: if noisy {
            (random.below(30), random.below(60), random.below(60))
        } else {
            (0, 0, 0)
        },
        straggle_percent: random.pick(&[0, 30, 100]),
        echo_permille: 0,
    }
}

fn workload(random: &mut Random) -> Workload {
    Workload {
        keyed: false,
        clients: random.between(1, 4) as u32,
        sessions: random.between(1, 2) as u32,
        appends: random.between(10, 50) as u32,
        per_session: None,
        window: random.pick(&[1, 4, 30]),
        burst: random.pick(&[1, 3, 10]),
        think_us: random.pick(&[200, 5000, 40_000]),
        sync_percent: random.pick(&[0, 20, 100]),
        oversize_permille: random.pick(&[0, 0, 10]),
        payload_bytes: random.pick(&[30, 200, 600]),
        payload_is_fixed: false,
        payload_of_disks: false,
        tail_percent: random.pick(&[5, 30]),
        reads: random.percent(80),
        lookups: 0,
        trims: random.percent(40),
        resume_percent: random.pick(&[0, 60, 100]),
        lives_on_percent: 0,
        cut_off_most_ms: 0,
        long_pause_percent: random.pick(&[0, 3]),
        ends: false,
        unordered: false,
        reset_every: None,
    }
}
