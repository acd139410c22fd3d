//! The meaning of a seed: the cluster, its network and disks, the workload, and the faults.

use std::time::Duration;

use seriatim_model::limits::{Limits, MAP_RUNS, MISSING_CONNECTED, MISSING_FOR, REPLACE_AFTER};
use seriatim_model::{Durability, LogConfig, NodeId, Order, RetentionChange};
use seriatim_protocol::{Mutation, Options};
use seriatim_store::{JournalOptions, ShardOptions};

use crate::capacity::Capacity;
use crate::coverage::{FaultKind, Step};
use crate::random::Random;

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// So long after the log was created.
    At(Duration),
    /// As soon as the protocol is at this step, but not before so long after the log was created.
    Step(Step, Duration),
}

/// Which node a fault prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any.
    Any,
    /// The leader of the latest view.
    Leader,
    /// Another sequencing replica of the latest view.
    Follower,
    /// A node without a sequencing replica, but with a replica of a shard.
    Shard,
    /// The primary of a shard of the latest view.
    Primary,
    /// All replicas of one shard of the latest view.
    WholeShard,
    /// All replicas of a shard that the latest view is without.
    RetiredShard,
    /// A node whose controller is at work on a new view.
    Controller,
    /// This one.
    Node(NodeId),
}

/// Something that is to go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// When.
    pub trigger: Trigger,
    /// The kind of fault.
    pub kind: FaultKind,
    /// To whom.
    pub target: Target,
    /// How long it lasts, or how long a node stays down.
    pub lasting: Duration,
}

/// A change of a log's shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reshape {
    /// One more.
    Add,
    /// One of them is to leave.
    Remove,
}

/// How a node leaves the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which node.
    pub target: Target,
    /// Whether it is lost for good before anybody wants it to leave, if the log bears that.
    pub is_lost: bool,
    /// Whether one other node is to take over.
    pub has_successor: bool,
    /// After how long it is to stay after all, if it is.
    pub stays_after: Option<Duration>,
}

/// How messages travel when nothing goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct NetworkPlan {
    /// The shortest and the longest one-way delay, in microseconds. The same: every message takes
    /// exactly so long, and nodes take no time to answer.
    pub delay_us: (u64, u64),
    /// How many of a thousand messages are lost, come twice, or overtake others, all the time.
    pub noise_permille: (u64, u64, u64),
    /// How many of a hundred messages outlive the connection that they travel over.
    pub straggle_percent: u64,
    /// How many of a thousand messages between nodes come a second time, much later, whatever
    /// became of their connection.
    pub echo_permille: u64,
}

/// How large the nodes' disks are.
#[derive(Clone, Copy, Debug)]
pub struct DiskPlan {
    /// How much each of them takes, from the first moment to the last, in bytes, if there is a
    /// bound.
    pub most: Option<u64>,
    /// With how little room a disk counts as full, in bytes.
    pub low: u64,
    /// With how much it does not any more, in bytes.
    pub enough: u64,
}

/// The work of clients.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Whether each record has a key, and some subscriptions want those with some of the keys only.
    pub keyed: bool,
    /// How many client processes there are.
    pub clients: u32,
    /// How many sessions each of them appends with.
    pub sessions: u32,
    /// How many appends each session makes.
    pub appends: u32,
    /// After how many of them its application begins a session of its own for the next, without a
    /// word or by closing the one before; if it does.
    pub per_session: Option<u32>,
    /// How many of them may be on their way at once.
    pub window: u32,
    /// How many are asked for at once.
    pub burst: u32,
    /// How long a session pauses between bursts, at most, in microseconds.
    pub think_us: u64,
    /// How many of a hundred appends wait for their position.
    pub sync_percent: u64,
    /// How many of a thousand appends are larger than the log allows.
    pub oversize_permille: u64,
    /// The longest payload, in bytes.
    pub payload_bytes: u64,
    /// Whether every payload is that long.
    pub payload_is_fixed: bool,
    /// Whether payloads are pieces of what the nodes' disks hold.
    pub payload_of_disks: bool,
    /// How many questions for the tail each session asks, for a hundred appends.
    pub tail_percent: u64,
    /// Whether clients read.
    pub reads: bool,
    /// How many clients read here and there, and once through.
    pub lookups: u32,
    /// Whether the first client trims what it has read.
    pub trims: bool,
    /// How many of a hundred crashed clients go on with their sessions.
    pub resume_percent: u64,
    /// How many of a hundred programs whose sessions another run continues are not dead.
    pub lives_on_percent: u64,
    /// The longest time for which such a program reaches no node, in milliseconds. With zero, only
    /// its connections break.
    pub cut_off_most_ms: u64,
    /// How many of a hundred pauses are so long that sessions may expire.
    pub long_pause_percent: u64,
    /// Whether sessions are ended when all is appended.
    pub ends: bool,
    /// Whether applications do not mind in which order their appends are in the log, so that one
    /// that became a no-op is appended again.
    pub unordered: bool,
    /// How often, while there is load, each client's connections break.
    pub reset_every: Option<Duration>,
}

/// The clocks on the walls of nodes.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    /// By how many milliseconds each is ahead, the first node's first.
    pub ahead_ms: Vec<i64>,
    /// After how long, and for how long, which node's is ahead by so many milliseconds more.
    pub jumps: Vec<(Duration, Duration, NodeId, i64)>,
}

impl Clocks {
    /// By how many milliseconds a node's is ahead so long after the log was created.
    #[must_use]
    pub fn ahead_ms(&self, node: NodeId, after: Duration) -> i64 {
        let jumped = self.jumps.iter().filter(|(from, lasting, of, _)| {
            *of == node && (*from..from.saturating_add(*lasting)).contains(&after)
        });
        let usual = self.ahead_ms.get(node.0 as usize - 1).copied().unwrap_or_default();
        usual + jumped.map(|(.., more)| more).sum::<i64>()
    }

    /// By how many milliseconds one of them is ever behind.
    #[must_use]
    pub fn most_behind_ms(&self) -> u64 {
        let behind = |ahead: &i64| (-ahead).max(0).cast_unsigned();
        let usual = self.ahead_ms.iter().map(behind).max().unwrap_or_default();
        usual + self.jumps.iter().map(|(.., more)| behind(more)).sum::<u64>()
    }
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where all its randomness comes from.
    pub seed: u64,
    /// How many nodes there are. The first hosts the register.
    pub nodes: u32,
    /// How many logs are created before the one that is tested; they decide which nodes host it.
    pub earlier_logs: u32,
    /// The log that is tested.
    pub config: LogConfig,
    /// The options of the machines, clients among them.
    pub options: Options,
    /// Whether each node has bounds of its own, where nodes may differ; see [`Plan::options_of`].
    pub nodes_differ: bool,
    /// Whether something goes wrong for seconds, and there is work for as long.
    pub lasts_long: bool,
    /// Sizes of the journals.
    pub journal: JournalOptions,
    /// Sizes of the record stores.
    pub shard_options: ShardOptions,
    /// How messages travel.
    pub network: NetworkPlan,
    /// How long a sync takes, in microseconds.
    pub sync_us: (u64, u64),
    /// How large the disks are.
    pub disk: DiskPlan,
    /// The work of clients.
    pub workload: Workload,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Whether a log at durability `memory` may lose more than it can bear.
    pub may_lose_too_much: bool,
    /// Whether an operator accepts what is lost.
    pub has_operator: bool,
    /// Whether the operator asks nodes what they know, as one does whose register does not answer.
    pub asks_nodes: bool,
    /// How the log's shards are changed, and how long after it was created.
    pub reshapes: Vec<(Duration, Reshape)>,
    /// Which nodes leave, and how long after the log was created.
    pub departures: Vec<(Duration, Departure)>,
    /// Whether a disk that is lost is not empty then, but as it was some time before.
    pub disk_goes_back: bool,
    /// The clocks on the nodes' walls. Without them no limits are applied.
    pub clocks: Option<Clocks>,
    /// How the log's limits are changed, and how long after it was created.
    pub limit_changes: Vec<(Duration, RetentionChange)>,
    /// How often a client appends to a second log, which is created beside the tested one, if there
    /// is one.
    pub second_log_every: Option<Duration>,
    /// When, after the tested log was created, others come, and when they go.
    pub fleeting: Vec<(Duration, Duration)>,
    /// How long everything that was asked for may take while what went wrong stays as it is.
    /// Without it, calm returns first, and then all of it comes to an end.
    pub done_without_calm: Option<Duration>,
    /// The amount of everything there is in a second. Without it, work takes no time and messages
    /// have no size.
    pub capacity: Option<Capacity>,
}

impl Plan {
    /// The plan that a seed stands for.
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
            departures: vec![],
            disk_goes_back: false,
            second_log_every: None,
            fleeting: vec![],
            done_without_calm: None,
            capacity: None,
        };
        // Drawn apart, so that the seeds known by their numbers stay what they are.
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

    /// The same plan, with one thing or two that go wrong for 1 to 20 s, and clients that go on
    /// asking meanwhile.
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

    /// The same plan, for a log of another order.
    #[must_use]
    pub fn ordered(mut self, order: Order) -> Self {
        self.config.order = order;
        if !order.properties().numbers_refused {
            // A client refuses a record that is too large before it has a number.
            self.workload.oversize_permille = 0;
        }
        if !order.properties().fills_late {
            // No append fails because its record is late, so none is tried again.
            self.workload.unordered = false;
        }
        self.config = self.config.fitted();
        if !order.properties().remembers_sessions {
            // The sequencer knows all sessions that are at work: of one that it forgets then, it
            // gives out numbers anew.
            self.options.limits.max_sessions = self.options.limits.max_sessions.max(12);
            if self.seed.is_multiple_of(4) {
                self.options.limits.ended_sessions = 3;
            }
        }
        if order.has_cuts() {
            self.config.interval_us = [100, 1000, 5000][(self.seed % 3) as usize];
        }
        if order.has_quotas() {
            // Windows end often in half of the runs, and hardly ever in others.
            let mut random = Random::new(self.seed ^ 0x37_1D05);
            self.config.window = if random.percent(50) { random.between(2, 6) as u32 } else { 20 };
        }
        self
    }

    /// The same plan, with a deliberate defect.
    #[must_use]
    pub fn mutated(mut self, mutation: Option<Mutation>) -> Self {
        self.options.mutation = mutation;
        self.shard_options.measures_by_encoding = self.options.mutates(Mutation::MeasuredByEncoding);
        self.shard_options.keeps_newest = self.options.mutates(Mutation::NewestKept);
        self
    }

    /// The configuration of a node's machines: the plan's bounds, or lower ones of its own where
    /// nodes may differ (`docs/decisions/2026-11-24-equal-on-all-nodes.md`).
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

    /// The first fault goes through all kinds and steps from seed to seed; the others are drawn.
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
            // Something has to cause the view change that the fault is to disturb.
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

/// The bounds of the log's nodes, and the one that is the log's own.
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

/// Where the bounds of nodes that differ are drawn from: apart, so that the seeds known by their
/// numbers stay what they are. None of those that failed once is among the seeds whose nodes
/// differ.
const DIFFERENT: u64 = 0xD205_215F;

/// Where it is drawn from what lasts long: apart, for the same reason.
const LONG: u64 = 0x10_4604;

/// Bounds of one node. Each is at most what the plan says, which the log's replicas elsewhere may
/// count on; two nodes' heartbeats bear each other.
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

/// Bounds that clients share, in half of the plans so low that they meet them. Drawn apart as well.
fn scarce(limits: &mut Limits, seed: u64) {
    let mut random = Random::new(seed ^ 0x5CA2_CE00);
    if random.percent(50) {
        limits.waiting_reads = random.pick(&[16, 40]);
        limits.waiting_locates = random.pick(&[4, 40]);
        // As outside, eight times what a session may have on its way at least: records behind a gap
        // keep their places, and what fills it needs some.
        limits.held_records = random.pick(&[400, 2000]);
        limits.void_runs = random.pick(&[2, 20]);
    }
}

/// Drawn apart from the rest, so that they change nothing else of what a seed stands for.
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
