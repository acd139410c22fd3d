//! Bounds that users meet, or that depend on each other, with their relations. A bound of a single
//! structure is beside that structure.

use std::time::Duration;

/// Largest frame, in bytes, without its header.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// Most logs in a node's status report.
pub const CONDITION_LOGS: usize = 1 << 14;

/// Largest position, count, or number of a record, view or entry. Decoding rejects larger ones, so
/// sums do not overflow. At a billion positions per second it lasts 36 years.
pub const MAX_NUMBER: u64 = 1 << 60;

/// Largest first number of consecutive numbers in a client's message, so that the others stay below
/// [`MAX_NUMBER`].
pub const MAX_FIRST: u64 = MAX_NUMBER / 2;

/// Largest payload that a log may allow, in bytes.
pub const MAX_RECORD_BYTES: u32 = 8 << 20;

/// Default of a log's largest payload, in bytes.
pub const DEFAULT_MAX_RECORD_BYTES: u32 = 1 << 20;

/// Most bytes of a record besides its payload, keys and headers included.
pub const MAX_RECORD_OVERHEAD_BYTES: u32 = 64 << 10;

/// Most sequencing replicas, and most replicas of one shard.
pub const MAX_REPLICAS: u32 = 9;

/// Most shards of a log.
pub const MAX_SHARDS: u32 = 256;

/// Longest log name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Most mutations of a transaction ([`wal`](crate::wal)).
pub const MAX_TRANSACTION_MUTATIONS: usize = 1024;

/// Default stripe, in positions.
pub const DEFAULT_STRIPE: u64 = 64;

/// Default ordering interval, in microseconds.
pub const DEFAULT_INTERVAL_US: u32 = 1000;

/// Permitted ordering intervals, in microseconds.
pub const INTERVALS_US: std::ops::RangeInclusive<u32> = 100..=1_000_000;

/// Default window, in cuts with fixed quotas.
pub const DEFAULT_WINDOW: u32 = 100;

/// Permitted windows, in cuts.
pub const WINDOWS: std::ops::RangeInclusive<u32> = 2..=10_000;

/// First quota of a shard, in records.
pub const FIRST_QUOTA: u32 = 10;

/// Largest quota of a shard, in records.
pub const MAX_QUOTA: u32 = 4096;

/// Most shards with a turn in one cut. In larger logs, the shards alternate.
pub const STAGGER_ABOVE: usize = 6;

/// Positions for a shard without turns at a window's end, in quotas.
pub const ROOM_QUOTAS: u32 = 16;
/// Least positions for a shard without turns at a window's end.
pub const LEAST_ROOM: u32 = 256;

/// Consecutive late cuts after which a shard loses its turns for a while.
pub const LATE_TIMES: u32 = 3;
/// Windows without turns after a shard is late. Doubles if it is late again soon.
pub const LENT_WINDOWS: u32 = 5;
/// Most windows without turns for a late shard.
pub const MOST_LENT_WINDOWS: u32 = 80;

/// Mostly empty windows in a row after which some windows have no quotas.
pub const BURSTY_WINDOWS: u32 = 3;
/// Number of windows without quotas after the first bursty windows. Doubles if the load stays
/// bursty.
pub const FREE_WINDOWS: u32 = 10;
/// Most windows without quotas.
pub const MOST_FREE_WINDOWS: u32 = 160;
/// Normal windows after which [`LENT_WINDOWS`] or [`FREE_WINDOWS`] applies again.
pub const STEADY_WINDOWS: u32 = 10;

/// Largest rest of a turn, in positions, that a shard leaves empty at once after a single record. A
/// shard with larger turns is busy, so more records may follow.
pub const PADDED_AT_ONCE: u64 = 16;

/// Time that a record waits for others in its turn, or for other shards' turns.
#[must_use]
pub const fn pad_after(interval: Duration) -> Duration {
    Duration::from_nanos(interval.as_nanos() as u64 / 2 * 3)
}

/// Time that a record of a shard without turns waits for its window's end, while no cut is made.
#[must_use]
pub const fn end_after(interval: Duration) -> Duration {
    Duration::from_nanos(interval.as_nanos() as u64 * 2)
}

/// Time that a cut waits for one missing shard. Then that shard counts as late.
#[must_use]
pub const fn late_after(interval: Duration) -> Duration {
    Duration::from_nanos(interval.as_nanos() as u64 * 4)
}

/// Factor for [`SESSION_IDLE_POSITIONS`] where shards fill turns with empty positions.
pub const IDLE_TIMES_IF_PADDED: u64 = 64;

/// Most cuts in flight to followers and shards.
pub const CUT_WINDOW: usize = 128;

/// Bytes of unstable records at which a sequencing replica answers `Busy`.
pub const RING_BYTES: usize = 32 << 20;

/// Number of unstable records at which a sequencing replica answers `Busy`.
pub const RING_RECORDS: usize = 256 << 10;

/// Bytes waiting for the journal at which the logs with most of them reject appends. A twelfth of
/// it while clients append to several logs.
pub const JOURNAL_BACKLOG_BYTES: usize = 8 << 20;

/// Free bytes below which a disk counts as full: the rest is for deletions and view changes.
pub const DISK_LOW_BYTES: u64 = 32 << 20;

/// Free bytes from which a disk is no longer full, enough for a node's return.
pub const DISK_ENOUGH_BYTES: u64 = 96 << 20;

/// Free percentage of the disk below which a node warns, and again at half of it. 0: never.
pub const DISK_WARN_PERCENT: u64 = 20;

/// Most records in an append message, and in a batch from the orderer to the shards.
pub const BATCH_RECORDS: usize = 2048;

/// Most bytes of records in an append message, and in a batch from the orderer to the shards,
/// unless one record is larger.
pub const BATCH_BYTES: usize = 1 << 20;

/// Batches in flight from the orderer to the shards.
pub const PUSH_WINDOW: usize = 8;

/// Most sessions that a log remembers. Equal on all nodes: independent members must forget the same
/// sessions.
pub const MAX_SESSIONS: usize = 100_000;

/// Largest distance of a session's opening position above a sequencing replica's ordered position
/// and floor: twice the replicas' capacity, plus one replica's lag.
pub const MOST_SESSION_AHEAD: u64 = 4 * RING_RECORDS as u64;

/// Most ended sessions in the entry of a `corfu` log, which every node that waits for a view
/// receives.
pub const MAX_ENDED_SESSIONS: usize = 1000;

/// Most earlier appends that a client of a `corfu` log finds again when it resumes a session.
pub const MAX_FOUND_AGAIN: usize = 1 << 20;

/// Most runs of positions that a view change hands over, for clients that still ask for positions.
pub const MAX_BOUND_RUNS: usize = 200_000;

/// Most runs of no-op numbers that a log remembers. Beyond, it forgets the sessions with most runs.
pub const MAX_VOID_RUNS: usize = 100_000;

/// Largest table of sessions in a view change, in bytes.
pub const MAX_SESSIONS_BYTES: usize =
    (MAX_SESSIONS + MAX_SESSIONS / 8) * 72 + MAX_BOUND_RUNS * 24 + MAX_VOID_RUNS * 16 + 20;

/// Default of `session_idle_positions`.
pub const SESSION_IDLE_POSITIONS: u64 = 10_000_000;

/// Permitted idle positions of a session.
pub const SESSION_IDLE: std::ops::RangeInclusive<u64> = 1..=SESSION_IDLE_POSITIONS;

/// Permitted age limits: a second to a hundred years, in milliseconds.
pub const RETAIN_AGE_MS: std::ops::RangeInclusive<u64> = 1000..=36_500 * 86_400_000;

/// Permitted byte limits: 64 KiB to 256 PiB.
pub const RETAIN_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=256 << 50;

/// Most pins of a log.
pub const MAX_PINS: usize = 64;

/// Default of [`Pin::most_bytes`](crate::Pin): 10 GiB.
pub const PIN_BYTES: u64 = 10 << 30;

/// Permitted record limits.
pub const RETAIN_RECORDS: std::ops::RangeInclusive<u64> = 1..=MAX_NUMBER;

/// Interval between checks of the retention limits in an active log.
pub const RETAIN_EVERY: Duration = Duration::from_secs(1);

/// Interval between checks of the retention limits in an idle log.
pub const RETAIN_EVERY_IDLE: Duration = Duration::from_secs(60);

/// Delay from a trim or deletion until the node removes the records from its files.
pub const FORGET_AFTER: Duration = Duration::from_secs(5);

/// Least time between removals of trimmed records from files: each costs a checkpoint and another
/// journal file.
pub const FORGET_EVERY: Duration = Duration::from_secs(5 * 60);

/// Most unacknowledged records of a session.
pub const MAX_IN_FLIGHT: usize = 64 << 10;

/// Most unacknowledged bytes of a session.
pub const MAX_IN_FLIGHT_BYTES: usize = 16 << 20;

/// Bytes of a record in any buffer besides its encoding: structure, position, id, framing. Both
/// ends of a subscription count it, so it is part of the protocol.
pub const RECORD_STRUCTURE_BYTES: usize = 128;

/// Most bytes of records in a read, by [`Record::memory`](crate::Record::memory), unless one record
/// is larger.
pub const READ_BYTES: u32 = 1 << 20;

/// Most records in a read.
pub const READ_RECORDS: u32 = 8192;

/// Most records read for a subscription before the node serves writers again.
pub const SERVED_RECORDS: u32 = 1024;

/// Most spans of empty positions in a read.
pub const READ_SPANS: usize = 8192;

/// Subscription credit of an empty span, in bytes: its size on the wire.
pub const SPAN_BYTES: u64 = 16;

/// Most positions in an answer about their shards.
pub const MAP_POSITIONS: u64 = 8192;

/// Most runs of positions and their shards that a reader remembers for a log.
pub const MAP_RUNS: usize = 128 << 10;

/// Most questions about the shards of a log's positions that a reader has in flight.
pub const MAP_QUESTIONS: usize = 8;

/// Most logs without a reader whose maps a client keeps.
pub const MAPPED_LOGS: usize = 16;

/// Most bytes in flight or buffered for a shard in a subscription, by
/// [`Record::memory`](crate::Record::memory).
pub const SUBSCRIPTION_BYTES: u64 = 4 << 20;
/// Least value of [`SUBSCRIPTION_BYTES`], for any number of subscriptions and shards.
pub const SUBSCRIPTION_BYTES_LEAST: u64 = 64 << 10;
/// Most bytes in flight or buffered in one subscription, and about the most in all subscriptions of
/// a client. A node closes a connection with more waiting data.
pub const SUBSCRIPTIONS_BYTES: u64 = 8 << 20;

/// Most waiting reads and subscriptions at a shard replica. Each client may use as many as are
/// still free: a single client half of them.
pub const MAX_WAITING_READS: usize = 16 << 10;

/// Most waiting questions for positions at a leader. Each client may use as many as are still free.
pub const MAX_WAITING_LOCATES: usize = 128 << 10;

/// Time without an answer before a retransmission.
pub const RESEND_AFTER: Duration = Duration::from_millis(100);

/// Time that a shard waits for an ordered record whose client disconnected before it put the
/// record. The shard waits longer if earlier records came late.
pub const MISSING_FOR: Duration = Duration::from_millis(100);
/// Time that a shard waits for an ordered record of a connected but silent client (stopped, not
/// scheduled, or new).
pub const MISSING_CONNECTED: Duration = Duration::from_secs(1);
/// Longest time that a shard waits for an ordered record, while its client sends.
pub const MISSING_MOST: Duration = Duration::from_secs(20);
/// Time until an unwritten position is filled, unless its client is known to be slow.
pub const FILL_AFTER: Duration = Duration::from_millis(10);
/// Longest time until an unwritten position is filled, for the slowest clients.
pub const FILL_AFTER_MOST: Duration = Duration::from_millis(640);
/// Time that a restarted shard waits, in a view change, for clients with records for vacant
/// positions.
pub const WRITERS_COME_WITHIN: Duration = Duration::from_millis(100);
/// Most bytes of records that a restarted shard writes at once in a view change, unless one record
/// is larger.
pub const FLUSHED_BYTES: usize = 2 << 20;
/// Most positions beyond its stable bound that a shard replica lets clients write.
pub const MOST_AHEAD: u64 = 1 << 20;
/// Time between ordered batches, unless a client waits for a position.
pub const ORDER_EVERY: Duration = Duration::from_micros(500);
/// Time until a follower sends the leader an entry that the leader may lack.
pub const FORWARD_AFTER: Duration = Duration::from_millis(500);

/// Idle time of a session until a shard replica asks the leader whether its records are orphans.
pub const ORPHAN_CHECK_AFTER: Duration = Duration::from_secs(60);

/// Number of deleted logs, the latest ones, whose roles a node refuses to start: controllers may
/// not have learned of the deletion.
pub const MAX_GONE_LOGS: usize = 1024;

/// Most individual notices per second.
pub const NOTICES: usize = 64;

/// Most roles whose state a checkpoint requests at once, and most logs in a register's answer.
pub const SNAPSHOT_ROLES: usize = 64;

/// Most records without final position at a shard replica. Each client may use as many as are still
/// free.
pub const MAX_HELD_RECORDS: u64 = 1 << 20;

/// Most sessions in a question about orphans.
pub const MAX_ORPHAN_SESSIONS: usize = 1024;

/// Most sessions that a leader ends at once.
pub const MAX_ENDINGS: usize = 1024;

/// Interval of heartbeats between nodes.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(20);

/// Missed heartbeats after which a node is suspected.
pub const HEARTBEATS_MISSED: u32 = 5;

/// [`HEARTBEATS_MISSED`] for nodes of one process: hours at the usual interval. Without a processor
/// all of them stall, and when the process ends its connections close.
pub const HEARTBEATS_MISSED_IN_PROCESS: u32 = 1 << 20;

/// Time without evidence that a node receives messages other than heartbeats, until a probe is
/// sent.
pub const PROBE_AFTER: Duration = Duration::from_secs(1);

/// Time without an answer to a probe until its receiver is suspected.
pub const UNHEARD_FOR: Duration = Duration::from_secs(5);

/// Time that a log lacks replicas until another node replaces an absent one.
pub const REPLACE_AFTER: Duration = Duration::from_secs(10);

/// Time without an answer from any complete replica of a shard until a log excludes the shard, if
/// its ordering permits. Gives a process that restarts at once time to return.
pub const RETIRE_AFTER: Duration = Duration::from_millis(200);

/// First pause before a replica outside the view asks again to join. Doubles each time.
pub const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Time that a controller waits for more answers than it needs. Up to half of [`ATTEMPT_FOR`] while
/// views follow each other.
pub const GATHER_FOR: Duration = Duration::from_millis(200);

/// Time until a controller abandons an attempt and claims again.
pub const ATTEMPT_FOR: Duration = Duration::from_secs(2);

/// Most targets of a player.
pub const PLAYER_TARGETS: usize = 1024;

/// Most messages in each queue of a player.
pub const PLAYER_QUEUE_MESSAGES: usize = 4096;

/// Most bytes in each queue of a player, unless it holds one message.
pub const PLAYER_QUEUE_BYTES: usize = 4 << 20;

/// Most bytes in all queues of a player, and in its batches in flight, by default.
pub const PLAYER_MEMORY: usize = 256 << 20;

/// Most messages in a batch to a target.
pub const PLAYER_BATCH_MESSAGES: usize = 1024;

/// Most bytes in a batch to a target, unless it holds one message.
pub const PLAYER_BATCH_BYTES: usize = 1 << 20;

/// Distance to the main stream, in positions, within which a returning target joins it. Beyond, the
/// target first reads the log again.
pub const PLAYER_JOIN: u64 = 2048;

/// Most recovery streams of a player at once.
pub const PLAYER_RECOVERIES: usize = 4;

/// Distance to the main stream, in positions, from which a player moves the bound of a target
/// without messages.
pub const PLAYER_QUIET_POSITIONS: u64 = 10_000;

/// Time after which a player moves the bound of a target without messages.
pub const PLAYER_QUIET_FOR: Duration = Duration::from_secs(10);

/// Bounds of one node or client that a deployment or a test may lower. Bounds that parties must
/// agree on are in a log's configuration or constants; see
/// `docs/decisions/2026-11-24-equal-on-all-nodes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`RING_BYTES`].
    pub ring_bytes: usize,
    /// See [`RING_RECORDS`].
    pub ring_records: usize,
    /// Largest `ring_records` of all sequencing replicas. Only tests lower it, on all nodes alike.
    pub largest_ring_records: usize,
    /// See [`JOURNAL_BACKLOG_BYTES`].
    pub journal_backlog_bytes: usize,
    /// See [`DISK_LOW_BYTES`].
    pub disk_low_bytes: u64,
    /// See [`DISK_ENOUGH_BYTES`].
    pub disk_enough_bytes: u64,
    /// See [`DISK_WARN_PERCENT`].
    pub disk_warn_percent: u64,
    /// See [`BATCH_RECORDS`].
    pub batch_records: usize,
    /// See [`BATCH_BYTES`].
    pub batch_bytes: usize,
    /// See [`MAX_SESSIONS`]. Only tests lower it, on all nodes alike.
    pub max_sessions: usize,
    /// See [`MAX_ENDED_SESSIONS`]. Only tests lower it.
    pub ended_sessions: usize,
    /// See [`ORDER_EVERY`].
    pub order_every: Duration,
    /// See [`ORPHAN_CHECK_AFTER`].
    pub orphan_check_after: Duration,
    /// See [`MISSING_CONNECTED`].
    pub missing_connected: Duration,
    /// See [`HEARTBEAT_EVERY`].
    pub heartbeat_every: Duration,
    /// See [`HEARTBEATS_MISSED`].
    pub heartbeats_missed: u32,
    /// Factor by which the tolerated silence grows for a node whose other messages arrive.
    pub silence_at_work: u32,
    /// See [`PROBE_AFTER`].
    pub probe_after: Duration,
    /// See [`UNHEARD_FOR`].
    pub unheard_for: Duration,
    /// See [`REPLACE_AFTER`].
    pub replace_after: Duration,
    /// See [`RETIRE_AFTER`].
    pub retire_after: Duration,
    /// See [`ATTEMPT_FOR`].
    pub attempt_for: Duration,
    /// See [`MAP_RUNS`].
    pub map_runs: usize,
    /// See [`MAX_WAITING_READS`].
    pub waiting_reads: usize,
    /// See [`MAX_WAITING_LOCATES`].
    pub waiting_locates: usize,
    /// See [`MAX_HELD_RECORDS`].
    pub held_records: u64,
    /// See [`MAX_VOID_RUNS`]. Only tests lower it.
    pub void_runs: usize,
    /// See [`RETAIN_EVERY`].
    pub retain_every: Duration,
    /// See [`RETAIN_EVERY_IDLE`].
    pub retain_every_idle: Duration,
    /// See [`FORGET_AFTER`].
    pub forget_after: Duration,
    /// See [`FORGET_EVERY`].
    pub forget_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ring_bytes: RING_BYTES,
            ring_records: RING_RECORDS,
            largest_ring_records: RING_RECORDS,
            journal_backlog_bytes: JOURNAL_BACKLOG_BYTES,
            disk_low_bytes: DISK_LOW_BYTES,
            disk_enough_bytes: DISK_ENOUGH_BYTES,
            disk_warn_percent: DISK_WARN_PERCENT,
            batch_records: BATCH_RECORDS,
            batch_bytes: BATCH_BYTES,
            max_sessions: MAX_SESSIONS,
            ended_sessions: MAX_ENDED_SESSIONS,
            order_every: ORDER_EVERY,
            orphan_check_after: ORPHAN_CHECK_AFTER,
            missing_connected: MISSING_CONNECTED,
            heartbeat_every: HEARTBEAT_EVERY,
            heartbeats_missed: HEARTBEATS_MISSED,
            silence_at_work: 3,
            probe_after: PROBE_AFTER,
            unheard_for: UNHEARD_FOR,
            replace_after: REPLACE_AFTER,
            retire_after: RETIRE_AFTER,
            attempt_for: ATTEMPT_FOR,
            map_runs: MAP_RUNS,
            waiting_reads: MAX_WAITING_READS,
            waiting_locates: MAX_WAITING_LOCATES,
            held_records: MAX_HELD_RECORDS,
            void_runs: MAX_VOID_RUNS,
            retain_every: RETAIN_EVERY,
            retain_every_idle: RETAIN_EVERY_IDLE,
            forget_after: FORGET_AFTER,
            forget_every: FORGET_EVERY,
        }
    }
}

const _: () = {
    // Sums of decoded numbers do not overflow.
    assert!(MAX_NUMBER.checked_mul(8).is_some());
    assert!(MAX_NUMBER - MAX_FIRST > MAX_FRAME_BYTES as u64);
    assert!(SERVED_RECORDS <= READ_RECORDS);
    // The largest record, and the fullest batch, fit into a frame.
    assert!((MAX_RECORD_BYTES + MAX_RECORD_OVERHEAD_BYTES) as usize * 3 / 2 < MAX_FRAME_BYTES);
    assert!(BATCH_BYTES + BATCH_RECORDS * 64 < MAX_FRAME_BYTES / 2);
    assert!(FLUSHED_BYTES > READ_BYTES as usize && FLUSHED_BYTES < MAX_FRAME_BYTES / 2);
    let spans = READ_SPANS * SPAN_BYTES as usize;
    assert!(
        READ_BYTES as usize + READ_RECORDS as usize * 64 + (MAX_RECORD_BYTES as usize) + spans
            < MAX_FRAME_BYTES
    );
    // All sessions fit into one frame, with the rest of a view change.
    assert!(MAX_SESSIONS_BYTES + (64 << 10) < MAX_FRAME_BYTES);
    assert!(MAX_ENDED_SESSIONS * 64 < MAX_FRAME_BYTES / 16);
    // A node's report of all its logs fits into a frame, with a few dozen shards per log.
    assert!(CONDITION_LOGS * 512 < MAX_FRAME_BYTES);
    // The longest map fits into a frame, and several into a reader's memory.
    assert!(MAP_POSITIONS as usize * 16 < MAX_FRAME_BYTES);
    assert!(MAP_POSITIONS as usize * MAP_QUESTIONS <= MAP_RUNS);
    // The orderer must be able to fill its window.
    assert!(RING_BYTES > BATCH_BYTES * PUSH_WINDOW);
    assert!(RING_RECORDS > BATCH_RECORDS * PUSH_WINDOW);
    // A record whose id is ordered late is not mistaken for an orphan.
    assert!(ORPHAN_CHECK_AFTER.as_millis() > MISSING_MOST.as_millis() * 2);
    assert!(MAX_ORPHAN_SESSIONS * 64 < MAX_FRAME_BYTES);
    // The journal's backlog still fits when room runs low, and a disk with enough room is not soon
    // full again.
    assert!(JOURNAL_BACKLOG_BYTES as u64 * 2 <= DISK_LOW_BYTES);
    assert!(DISK_LOW_BYTES * 2 < DISK_ENOUGH_BYTES);
    // A single session does not wait for its own records in flight.
    assert!((MAX_IN_FLIGHT as u64) < MOST_AHEAD);
    // A single session can ask for all its records in flight.
    assert!(MAX_IN_FLIGHT <= MAX_WAITING_LOCATES / 2 && (MAX_IN_FLIGHT as u64) < MAX_HELD_RECORDS / 8);
    // A single session does not fill a ring.
    assert!(MAX_IN_FLIGHT < RING_RECORDS && MAX_IN_FLIGHT_BYTES < RING_BYTES);
    assert!(DEFAULT_MAX_RECORD_BYTES <= MAX_RECORD_BYTES);
};
