//! The bounds that users meet, or that have to fit each other, in one place with the relations
//! between them. A bound of one structure alone stands beside it.

use std::time::Duration;

/// The largest frame that travels, in bytes, without its header.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// Of how many logs a node tells when it is asked how it is.
pub const CONDITION_LOGS: usize = 1 << 14;

/// The largest number that is counted with: a position, the number of a record, of a view or of an
/// entry, or how many there are of something. A larger one is refused when it is read, so that the
/// sum of any two that came, and what is added to one as a log grows, is a number. At a billion
/// positions a second it lasts for 36 years.
pub const MAX_NUMBER: u64 = 1 << 60;

/// The largest number with which a client may begin what it sends with consecutive numbers: those
/// of the rest of one message do not pass [`MAX_NUMBER`], and what is made of them can be read
/// everywhere.
pub const MAX_FIRST: u64 = MAX_NUMBER / 2;

/// The largest payload that a log may allow, in bytes.
pub const MAX_RECORD_BYTES: u32 = 8 << 20;

/// The largest payload of an append unless the log says otherwise, in bytes.
pub const DEFAULT_MAX_RECORD_BYTES: u32 = 1 << 20;

/// The most that a record takes besides its payload, keys and headers included, in bytes.
pub const MAX_RECORD_OVERHEAD_BYTES: u32 = 64 << 10;

/// The largest number of sequencing replicas, and of replicas of one shard.
pub const MAX_REPLICAS: u32 = 9;

/// The largest number of shards of a log.
pub const MAX_SHARDS: u32 = 256;

/// The longest name of a log, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// How many consecutive positions one shard takes unless the log says otherwise.
pub const DEFAULT_STRIPE: u64 = 64;

/// How often a log is ordered at most, where that is done by cuts, unless it says otherwise, in
/// microseconds.
pub const DEFAULT_INTERVAL_US: u32 = 1000;

/// The intervals that such a log may choose, in microseconds.
pub const INTERVALS_US: std::ops::RangeInclusive<u32> = 100..=1_000_000;

/// How many cuts have their quotas fixed in advance, where that is done, unless a log says
/// otherwise.
pub const DEFAULT_WINDOW: u32 = 100;

/// The numbers that such a log may choose.
pub const WINDOWS: std::ops::RangeInclusive<u32> = 2..=10_000;

/// With what quota a shard begins, in records.
pub const FIRST_QUOTA: u32 = 10;

/// The largest quota of a shard, in records.
pub const MAX_QUOTA: u32 = 4096;

/// The most shards that have a turn in one cut. Where there are more, they take turns.
pub const STAGGER_ABOVE: usize = 6;

/// The room that a shard without turns has in a window, as a number of its quotas, and at least.
pub const ROOM_QUOTAS: u32 = 16;
/// The least room of a shard without turns, in positions.
pub const LEAST_ROOM: u32 = 256;

/// A shard for which so many cuts in a row waited too long has no turns for a while.
pub const LATE_TIMES: u32 = 3;
/// For how many windows: the first time, and at most, if it is late again and again.
pub const LENT_WINDOWS: u32 = 5;
/// The most windows for which a shard has no turns.
pub const MOST_LENT_WINDOWS: u32 = 80;

/// So many windows in a row that are mostly empty, since the load comes in bursts, are followed by
/// some without quotas.
pub const BURSTY_WINDOWS: u32 = 3;
/// By how many: the first time, and at most, if the load is the same after them.
pub const FREE_WINDOWS: u32 = 10;
/// The most windows without quotas.
pub const MOST_FREE_WINDOWS: u32 = 160;
/// After so many windows that were as they should be, the next exception is as short as the first.
pub const STEADY_WINDOWS: u32 = 10;

/// A record that comes alone has the rest of its turn left empty at once, if that is no more than
/// this. A larger turn is that of a shard that is in use: more may come with it.
pub const PADDED_AT_ONCE: u64 = 16;

/// How long a record waits for others, in a shard's turn or for other shards' turns, where a log is
/// ordered at most once in an interval.
#[must_use]
pub const fn pad_after(interval: Duration) -> Duration {
    Duration::from_nanos(interval.as_nanos() as u64 / 2 * 3)
}

/// How long a record of a shard without turns waits for the end of its window, where no cut is
/// made.
#[must_use]
pub const fn end_after(interval: Duration) -> Duration {
    Duration::from_nanos(interval.as_nanos() as u64 * 2)
}

/// How long a cut waits for a shard, the only one that it waits for, until that is late.
#[must_use]
pub const fn late_after(interval: Duration) -> Duration {
    Duration::from_nanos(interval.as_nanos() as u64 * 4)
}

/// How many times as many positions a session may be idle for, where shards fill their turns with
/// empty positions.
pub const IDLE_TIMES_IF_PADDED: u64 = 64;

/// How many cuts may be on their way to followers and shards. What comes meanwhile is covered by
/// the next one.
pub const CUT_WINDOW: usize = 128;

/// How many bytes of not yet stable records a sequencing replica holds before it answers `Busy`.
pub const RING_BYTES: usize = 32 << 20;

/// How many not yet stable records a sequencing replica holds before it answers `Busy`.
pub const RING_RECORDS: usize = 256 << 10;

/// How many bytes may wait for a node's journal before the logs that wait for most of them admit
/// nothing more; a twelfth of it while clients bring something for several logs.
pub const JOURNAL_BACKLOG_BYTES: usize = 8 << 20;

/// With less room than this, in bytes, a node's disk counts as full: no more records go to it, and
/// what is left is for what makes room, and for view changes.
pub const DISK_LOW_BYTES: u64 = 32 << 20;

/// With so much room, in bytes, it does not count as full any more: enough for what comes at once
/// when a node is taken back.
pub const DISK_ENOUGH_BYTES: u64 = 96 << 20;

/// A node warns, and `seriatim status` shows, when less than this share of its disk is free, in
/// percent of the size, and again at half of it. 0: never.
pub const DISK_WARN_PERCENT: u64 = 20;

/// How many records one append message, and one batch of the orderer, carry at most.
pub const BATCH_RECORDS: usize = 2048;

/// How many bytes of records one append message, and one batch of the orderer, carry, unless a
/// single record is larger.
pub const BATCH_BYTES: usize = 1 << 20;

/// How many batches the orderer keeps on their way to the shards.
pub const PUSH_WINDOW: usize = 8;

/// How many sessions a log remembers. It is the same on all nodes: where members of a layer forget
/// sessions each for itself, they forget the same.
pub const MAX_SESSIONS: usize = 100_000;

/// How far above what a sequencing replica knows to be ordered, and above its floor, the tail may
/// be that a session was opened at: twice what the replicas hold at most, and what one of them may
/// be behind the others.
pub const MOST_SESSION_AHEAD: u64 = 4 * RING_RECORDS as u64;

/// How many sessions that other runs went on with the register remembers of a log of order `corfu`:
/// with each entry, which all who wait for a view are sent.
pub const MAX_ENDED_SESSIONS: usize = 1000;

/// How many appends of earlier runs a client of a log of order `corfu` finds again at most, when it
/// goes on with their session.
pub const MAX_FOUND_AGAIN: usize = 1 << 20;

/// How many runs of positions a view change carries over, for those who still ask where their
/// appends are bound.
pub const MAX_BOUND_RUNS: usize = 200_000;

/// How many runs of numbers that became no-ops a log remembers, of all sessions together. Sessions
/// that have most of them are forgotten when there are more.
pub const MAX_VOID_RUNS: usize = 100_000;

/// The largest table of sessions that a view change carries, in bytes: all sessions with an end and
/// a successor, a few more of them, and all runs.
pub const MAX_SESSIONS_BYTES: usize =
    (MAX_SESSIONS + MAX_SESSIONS / 8) * 72 + MAX_BOUND_RUNS * 24 + MAX_VOID_RUNS * 16 + 20;

/// For how many positions of the log a session may bind nothing before it is forgotten, unless the
/// log says otherwise.
pub const SESSION_IDLE_POSITIONS: u64 = 10_000_000;

/// The numbers of such positions that a log may choose.
pub const SESSION_IDLE: std::ops::RangeInclusive<u64> = 1..=SESSION_IDLE_POSITIONS;

/// For how long a log may choose to keep records, in milliseconds: a second to a hundred years.
pub const RETAIN_AGE_MS: std::ops::RangeInclusive<u64> = 1000..=36_500 * 86_400_000;

/// How many bytes of records a log may choose to keep: 64 KiB to 256 PiB.
pub const RETAIN_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=256 << 50;

/// How many records a log may choose to keep.
pub const RETAIN_RECORDS: std::ops::RangeInclusive<u64> = 1..=MAX_NUMBER;

/// How often a log's limits are applied, and noted how far it is, while it is appended to.
pub const RETAIN_EVERY: Duration = Duration::from_secs(1);

/// How often at least, while nothing happens.
pub const RETAIN_EVERY_IDLE: Duration = Duration::from_secs(60);

/// How long after a trim or a deletion a node begins to remove the trimmed and deleted records that
/// its files still have.
pub const FORGET_AFTER: Duration = Duration::from_secs(5);

/// How long after it did so a node does it again at the earliest: it costs a checkpoint and another
/// file of the journal.
pub const FORGET_EVERY: Duration = Duration::from_secs(5 * 60);

/// How many records one session may have appended and not yet seen acknowledged.
pub const MAX_IN_FLIGHT: usize = 64 << 10;

/// How many bytes of records one session may have appended and not yet seen acknowledged.
pub const MAX_IN_FLIGHT_BYTES: usize = 16 << 20;

/// How many bytes of memory one record takes besides its encoded bytes, in every buffer: the
/// structure with its position and its id, and the bytes that frame it on its way. Both ends of a
/// subscription count with this number, so it is a part of the protocol.
pub const RECORD_STRUCTURE_BYTES: usize = 128;

/// How many bytes of records one read returns, as [`Record::memory`](crate::Record::memory) counts
/// them, unless a single record is larger.
pub const READ_BYTES: u32 = 1 << 20;

/// How many records one read returns.
pub const READ_RECORDS: u32 = 8192;

/// How many records a node reads for one subscription at once: it looks after writers between two
/// such reads.
pub const SERVED_RECORDS: u32 = 1024;

/// How many spans of empty positions one read returns.
pub const READ_SPANS: usize = 8192;

/// How many bytes of a subscription's credit one span of empty positions takes: what it takes on
/// its way.
pub const SPAN_BYTES: u64 = 16;

/// How many positions one answer about which shards hold them covers.
pub const MAP_POSITIONS: u64 = 8192;

/// How many runs of positions a reader remembers the shards of, for each log.
pub const MAP_RUNS: usize = 128 << 10;

/// How many questions about which shards hold which positions a reader has on their way, for each
/// log.
pub const MAP_QUESTIONS: usize = 8;

/// How many logs' maps a client keeps while it does not read them.
pub const MAPPED_LOGS: usize = 16;

/// How many bytes a subscription keeps in flight or buffered for each shard at most, as
/// [`Record::memory`](crate::Record::memory) counts them.
pub const SUBSCRIPTION_BYTES: u64 = 4 << 20;
/// The same at least, however many subscriptions a client has, and however many shards a log.
pub const SUBSCRIPTION_BYTES_LEAST: u64 = 64 << 10;
/// How many bytes one subscription keeps in flight or buffered, all shards together; and, about,
/// all subscriptions of a client: a node closes a connection on which more waits than it takes.
pub const SUBSCRIPTIONS_BYTES: u64 = 8 << 20;

/// How many reads and subscriptions wait at a shard replica, of all clients together. One client
/// may have as many as are left: half of them, if no other has any.
pub const MAX_WAITING_READS: usize = 16 << 10;

/// How many questions where a record is bound wait at a leader, of all clients together; of one
/// client as many as are left.
pub const MAX_WAITING_LOCATES: usize = 128 << 10;

/// After how long without an answer a message is sent again.
pub const RESEND_AFTER: Duration = Duration::from_millis(100);

/// How long a shard waits for a record that was ordered before its client put it, if that client's
/// connection is closed; and longer, if records have been coming late.
pub const MISSING_FOR: Duration = Duration::from_millis(100);
/// How long it waits while a client says nothing whose connection stands (one that is not
/// scheduled, or stopped), or for the first word of one that is new.
pub const MISSING_CONNECTED: Duration = Duration::from_secs(1);
/// How long it waits at most, whatever comes from the client.
pub const MISSING_MOST: Duration = Duration::from_secs(20);
/// How long a position that was given out may stay unwritten before it is filled, unless its client
/// is known to be slow.
pub const FILL_AFTER: Duration = Duration::from_millis(10);
/// The same for the slowest clients.
pub const FILL_AFTER_MOST: Duration = Duration::from_millis(640);
/// For how long a shard that flushes itself, and was started anew, waits for clients to come that
/// may have something for vacant positions.
pub const WRITERS_COME_WITHIN: Duration = Duration::from_millis(100);
/// How many bytes of records such a shard writes at once, with what it was offered; a single record
/// may be more.
pub const FLUSHED_BYTES: usize = 2 << 20;
/// How far beyond what it knows to be final a shard replica lets clients write, in positions.
pub const MOST_AHEAD: u64 = 1 << 20;
/// How long what comes gathers after a batch of it began to be ordered, unless a client waits for
/// where it is bound.
pub const ORDER_EVERY: Duration = Duration::from_micros(500);
/// After how long a follower sends an entry that its leader may not have to the leader.
pub const FORWARD_AFTER: Duration = Duration::from_millis(500);

/// After how long a shard replica asks the leader whether records without positions are orphans,
/// while nothing comes of their session.
pub const ORPHAN_CHECK_AFTER: Duration = Duration::from_secs(60);

/// Of how many deleted logs, the latest, a node remembers that no role of theirs may begin again:
/// for as long as the controllers of nodes that have not heard of it go on.
pub const MAX_GONE_LOGS: usize = 1024;

/// How many notices about logs an operator is given within a second, one by one.
pub const NOTICES: usize = 64;

/// How many roles a checkpoint asks at once what they know, and of how many logs a register says so
/// at once.
pub const SNAPSHOT_ROLES: usize = 64;

/// How many records a shard replica holds that were put and have no final position, of all clients
/// together. Each client may have as many as are left.
pub const MAX_HELD_RECORDS: u64 = 1 << 20;

/// How many sessions of possible orphans one question lists.
pub const MAX_ORPHAN_SESSIONS: usize = 1024;

/// How many sessions a leader ends at the same time.
pub const MAX_ENDINGS: usize = 1024;

/// How often nodes tell each other that they are there.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(20);

/// After how many heartbeats without an answer a node counts as gone.
pub const HEARTBEATS_MISSED: u32 = 5;

/// The same for nodes of one process, at the usual interval some hours. Such a node does not vanish
/// by itself: where its thread gets no processor, the others get none either, and if it ends, its
/// connections close.
pub const HEARTBEATS_MISSED_IN_PROCESS: u32 = 1 << 20;

/// After how long without a sign that what a node sends another arrives there, heartbeats apart, it
/// sends something to find out.
pub const PROBE_AFTER: Duration = Duration::from_secs(1);

/// How long such a question may go unanswered before the other node counts as gone.
pub const UNHEARD_FOR: Duration = Duration::from_secs(5);

/// How long a shard may have fewer replicas than it should before another node stands in for one
/// that is away.
pub const REPLACE_AFTER: Duration = Duration::from_secs(10);

/// How long all replicas of a shard that hold everything may be silent before the log goes on
/// without the shard, where its order lets it. A process that restarts at once is worth waiting
/// for.
pub const RETIRE_AFTER: Duration = Duration::from_millis(200);

/// How long a replica that takes part in no view waits before it asks for one again; doubled while
/// nothing comes of it.
pub const REPORT_EVERY: Duration = Duration::from_millis(100);

/// How long a controller gathers answers beyond those that it needs; longer, up to half of
/// [`ATTEMPT_FOR`], where views follow each other.
pub const GATHER_FOR: Duration = Duration::from_millis(200);

/// After how long a controller gives up an attempt and claims anew.
pub const ATTEMPT_FOR: Duration = Duration::from_secs(2);

/// The bounds that a deployment or a test may lower.
///
/// They are a node's own, or a client's: another may have others. Each that two parties would have
/// to agree on is in a log's configuration instead, or a constant; see
/// `docs/decisions/2026-11-24-equal-on-all-nodes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`RING_BYTES`].
    pub ring_bytes: usize,
    /// See [`RING_RECORDS`].
    pub ring_records: usize,
    /// How many records the ring of any sequencing replica holds at most, whatever its node's own
    /// number is: [`RING_RECORDS`]. A test lowers it for all nodes alike, and a deployment does
    /// not.
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
    /// See [`MAX_SESSIONS`]. Only the simulator and tests lower it, on all nodes alike.
    pub max_sessions: usize,
    /// See [`MAX_ENDED_SESSIONS`]. Only the simulator and tests lower it.
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
    /// A node whose other messages arrive is suspected no sooner than after so many times the
    /// silence that is borne otherwise.
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
    /// See [`MAX_VOID_RUNS`]. Only the simulator and tests lower it.
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
    // Some sums of what was read are numbers, too, and no message has so many records.
    assert!(MAX_NUMBER.checked_mul(8).is_some());
    assert!(MAX_NUMBER - MAX_FIRST > MAX_FRAME_BYTES as u64);
    assert!(SERVED_RECORDS <= READ_RECORDS);
    // The largest record, or the fullest batch, fits into one frame with room for its ids.
    assert!((MAX_RECORD_BYTES + MAX_RECORD_OVERHEAD_BYTES) as usize * 3 / 2 < MAX_FRAME_BYTES);
    assert!(BATCH_BYTES + BATCH_RECORDS * 64 < MAX_FRAME_BYTES / 2);
    assert!(FLUSHED_BYTES > READ_BYTES as usize && FLUSHED_BYTES < MAX_FRAME_BYTES / 2);
    let spans = READ_SPANS * SPAN_BYTES as usize;
    assert!(
        READ_BYTES as usize + READ_RECORDS as usize * 64 + (MAX_RECORD_BYTES as usize) + spans
            < MAX_FRAME_BYTES
    );
    // A snapshot of all sessions fits into one frame, with what else a view change says in it.
    assert!(MAX_SESSIONS_BYTES + (64 << 10) < MAX_FRAME_BYTES);
    // All ended sessions are a small part of a frame.
    assert!(MAX_ENDED_SESSIONS * 64 < MAX_FRAME_BYTES / 16);
    // A node's word about all its logs fits into a frame, where they have a few dozen shards each.
    assert!(CONDITION_LOGS * 512 < MAX_FRAME_BYTES);
    // The longest map in pieces of one position fits into one frame, and several of them into a
    // reader's memory.
    assert!(MAP_POSITIONS as usize * 16 < MAX_FRAME_BYTES);
    assert!(MAP_POSITIONS as usize * MAP_QUESTIONS <= MAP_RUNS);
    // A ring holds several batches, or the orderer could never fill its window.
    assert!(RING_BYTES > BATCH_BYTES * PUSH_WINDOW);
    assert!(RING_RECORDS > BATCH_RECORDS * PUSH_WINDOW);
    // Records whose ids are late are not taken for orphans.
    assert!(ORPHAN_CHECK_AFTER.as_millis() > MISSING_MOST.as_millis() * 2);
    assert!(MAX_ORPHAN_SESSIONS * 64 < MAX_FRAME_BYTES);
    // Entries that wait for the journal when room runs low still find some; a disk with enough is
    // not soon low again.
    assert!(JOURNAL_BACKLOG_BYTES as u64 * 2 <= DISK_LOW_BYTES);
    assert!(DISK_LOW_BYTES * 2 < DISK_ENOUGH_BYTES);
    // One session alone does not wait for what it has itself on the way.
    assert!((MAX_IN_FLIGHT as u64) < MOST_AHEAD);
    // One session alone has room to ask for all that it has on the way.
    assert!(MAX_IN_FLIGHT <= MAX_WAITING_LOCATES / 2 && (MAX_IN_FLIGHT as u64) < MAX_HELD_RECORDS / 8);
    // One session alone does not fill a ring.
    assert!(MAX_IN_FLIGHT < RING_RECORDS && MAX_IN_FLIGHT_BYTES < RING_BYTES);
    assert!(DEFAULT_MAX_RECORD_BYTES <= MAX_RECORD_BYTES);
};
