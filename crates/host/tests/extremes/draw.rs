//! Values of all message fields, with drawn numbers.

use bytes::Bytes;
use seriatim_model::limits;
use seriatim_model::record::Header;
use seriatim_model::retention::{Extent, LimitChange, StoreUse};
use seriatim_model::storage::{MissingRange, Ordered, Owned, Run, Stored};
use seriatim_model::{
    Announced, BoundIds, Durability, Endpoint, Filter, Gap, IdRun, Incarnation, LogConfig, LogId, Member,
    NodeId, Order, Pin, Placement, PlacementStep, Position, Record, RecordId, Retention, RetentionChange,
    RetiredShard, SessionId, ShardId, ShardMembers, Span, TimeIndex, TimeMark, View, ViewHistory, ViewNumber,
};
use seriatim_protocol::control::{
    Ailment, Condition, EndedSession, EndedSessions, Heartbeat, LeftOut, LogCondition, LogEntry, NodeAddress,
    NodeParting, Parting, PartingChange, Refusal, ReplicaOf, SealedState, StepTime,
};
use seriatim_protocol::cuts::message::{Course, Cut, End, Place};
use seriatim_protocol::cuts::window::{Lender, NextWindow, Share, Window};
use seriatim_protocol::cuts::{Rest, Submitted};
use seriatim_protocol::parts::sequencing::WindowStatus;
use seriatim_protocol::parts::{Carried, Content, Sessions};
use seriatim_protocol::shard::{Held, ReadError, Retain, Survey, Surveyed};

use crate::cluster::{Known, NAME};

/// Unusual numbers: ends of the type, and bounds of counts.
pub(crate) const EXTREMES: [u64; 9] = [
    0,
    1,
    u64::MAX - 1,
    u64::MAX,
    limits::MAX_FIRST,
    limits::MAX_FIRST + 1,
    limits::MAX_NUMBER - 1,
    limits::MAX_NUMBER,
    limits::MAX_NUMBER + 1,
];

pub(crate) struct Draw<'a> {
    order: Order,
    /// Source of usual numbers.
    known: Known,
    /// The extreme for each number, by the number's index; `None` for the usual value.
    pick: &'a dyn Fn(usize) -> Option<usize>,
    drawn: usize,
    sessions: u64,
}

impl<'a> Draw<'a> {
    pub(crate) fn new(order: Order, known: Known, pick: &'a dyn Fn(usize) -> Option<usize>) -> Self {
        Self { order, known, pick, drawn: 0, sessions: 0 }
    }

    pub(crate) fn drawn(&self) -> usize {
        self.drawn
    }

    fn number(&mut self, usual: u64) -> u64 {
        let picked = (self.pick)(self.drawn);
        self.drawn += 1;
        picked.map_or(usual, |extreme| EXTREMES[extreme])
    }

    /// A narrow number, with the ends of its type.
    fn narrow(&mut self, usual: u32) -> u32 {
        let number = self.number(u64::from(usual));
        match number {
            u64::MAX => u32::MAX,
            number => u32::try_from(number).unwrap_or(u32::MAX - 1),
        }
    }
}

pub(crate) trait Drawn {
    fn drawn(draw: &mut Draw) -> Self;
}

impl Drawn for u64 {
    fn drawn(draw: &mut Draw) -> Self {
        draw.number(draw.known.next)
    }
}

impl Drawn for u32 {
    fn drawn(draw: &mut Draw) -> Self {
        draw.narrow(1)
    }
}

impl Drawn for bool {
    fn drawn(draw: &mut Draw) -> Self {
        draw.number(1) & 1 == 1
    }
}

impl Drawn for String {
    fn drawn(_: &mut Draw) -> Self {
        NAME.into()
    }
}

impl Drawn for SessionId {
    fn drawn(draw: &mut Draw) -> Self {
        let SessionId(known) = draw.known.session;
        let opened_at = Position(draw.number(draw.known.session.opened_at().0));
        // The first session is known; the others follow it.
        draw.sessions += 1;
        Self::new(opened_at, known as u64 + draw.sessions - 1)
    }
}

impl Drawn for ViewNumber {
    fn drawn(draw: &mut Draw) -> Self {
        Self(draw.number(draw.known.view.0))
    }
}

impl Drawn for LogId {
    fn drawn(draw: &mut Draw) -> Self {
        Self(draw.number(draw.known.log.0))
    }
}

impl Drawn for Incarnation {
    fn drawn(draw: &mut Draw) -> Self {
        Self(draw.number(1))
    }
}

impl Drawn for NodeId {
    fn drawn(draw: &mut Draw) -> Self {
        Self(draw.narrow(1))
    }
}

impl Drawn for ShardId {
    fn drawn(draw: &mut Draw) -> Self {
        // A shard's highest bit is a flag.
        Self(draw.narrow(0) >> 1)
    }
}

impl Drawn for Position {
    fn drawn(draw: &mut Draw) -> Self {
        Self(draw.number(draw.known.tail.0))
    }
}

impl Drawn for Filter {
    fn drawn(draw: &mut Draw) -> Self {
        Self::Header { kind: u32::drawn(draw) as u16, prefix: Bytes::from_static(b"h") }
    }
}

impl Drawn for Record {
    fn drawn(draw: &mut Draw) -> Self {
        let header = Header { kind: 1, value: Bytes::from_static(b"h") };
        Self::build(b"payload", draw.number(0), Some(b"k"), &[header])
    }
}

impl Drawn for Content {
    fn drawn(draw: &mut Draw) -> Self {
        match draw.order.announces() {
            Announced::Id => Self::Put { shard: Drawn::drawn(draw), bytes: draw.narrow(64) },
            Announced::Record | Announced::Nothing => Self::Record(Drawn::drawn(draw)),
        }
    }
}

impl Drawn for Order {
    fn drawn(draw: &mut Draw) -> Self {
        draw.order
    }
}

impl Drawn for Durability {
    fn drawn(_: &mut Draw) -> Self {
        Self::Memory
    }
}

impl Drawn for Endpoint {
    fn drawn(draw: &mut Draw) -> Self {
        Self::Client(Drawn::drawn(draw))
    }
}

impl Drawn for Ailment {
    fn drawn(_: &mut Draw) -> Self {
        Self::Stuck
    }
}

impl Drawn for Rest {
    fn drawn(draw: &mut Draw) -> Self {
        Self::LocalLog { from: Drawn::drawn(draw), names: Drawn::drawn(draw) }
    }
}

impl Drawn for Parting {
    fn drawn(draw: &mut Draw) -> Self {
        Self::Drained { by: Drawn::drawn(draw) }
    }
}

impl Drawn for PartingChange {
    fn drawn(draw: &mut Draw) -> Self {
        Self::Drain { by: Drawn::drawn(draw) }
    }
}

impl Drawn for Refusal {
    fn drawn(draw: &mut Draw) -> Self {
        Self::NoSuchLog { name: Drawn::drawn(draw) }
    }
}

impl Drawn for ReadError {
    fn drawn(draw: &mut Draw) -> Self {
        Self::Lost { position: Drawn::drawn(draw), end: Drawn::drawn(draw) }
    }
}

impl Drawn for Placement {
    fn drawn(draw: &mut Draw) -> Self {
        let (shards, stripe) = (Drawn::drawn(draw), Ord::max(1, Drawn::drawn(draw)));
        let then = PlacementStep { from: Position(draw.number(1).max(1)), shards, stripe };
        Self::from_steps(vec![PlacementStep { from: Position::ZERO, ..then.clone() }, then])
            .expect("the second step is above the first")
    }
}

impl Drawn for ViewHistory {
    fn drawn(draw: &mut Draw) -> Self {
        let mut history = Self::default();
        history.push(Drawn::drawn(draw), Drawn::drawn(draw));
        history.give_up(Drawn::drawn(draw));
        history
    }
}

impl Drawn for Sessions {
    fn drawn(draw: &mut Draw) -> Self {
        let mut sessions = Self::default();
        let (session, next, at) = (Drawn::drawn(draw), Drawn::drawn(draw), Drawn::drawn(draw));
        sessions.admit(session, next, 0, at);
        sessions.end(session, Drawn::drawn(draw));
        let successor = sessions.succeed(session, Drawn::drawn(draw));
        sessions.open(successor, at);
        sessions
    }
}

/// A shard, or [`ShardId::NOBODY`].
fn owner(draw: &mut Draw) -> ShardId {
    ShardId(draw.narrow(0))
}

impl Drawn for Carried {
    fn drawn(draw: &mut Draw) -> Self {
        Self { sessions: Drawn::drawn(draw), order: Bytes::from(draw.number(1).to_le_bytes().to_vec()) }
    }
}

impl Drawn for Ordered {
    fn drawn(draw: &mut Draw) -> Self {
        Self { ids: Drawn::drawn(draw), shard: owner(draw), is_void: Drawn::drawn(draw) }
    }
}

impl Drawn for Owned {
    fn drawn(draw: &mut Draw) -> Self {
        Self { shard: owner(draw), count: Drawn::drawn(draw) }
    }
}

impl Drawn for Cut {
    fn drawn(draw: &mut Draw) -> Self {
        let (from, lengths) = (Drawn::drawn(draw), Drawn::drawn(draw));
        let names = vec![(owner(draw), Drawn::drawn(draw))];
        let course = draw.order.has_quotas().then(|| Drawn::drawn(draw));
        Self { from, lengths, names, ends: Drawn::drawn(draw), course }
    }
}

impl Drawn for LimitChange {
    fn drawn(draw: &mut Draw) -> Self {
        Self::Set(Drawn::drawn(draw))
    }
}

impl Drawn for TimeIndex {
    fn drawn(draw: &mut Draw) -> Self {
        let mut times = Self::default();
        let mark = TimeMark {
            position: Drawn::drawn(draw),
            time_ms: Drawn::drawn(draw),
            wall_ms: Drawn::drawn(draw),
        };
        times.add(mark);
        times.reaches(Drawn::drawn(draw));
        times
    }
}

impl<T: Drawn> Drawn for Vec<T> {
    fn drawn(draw: &mut Draw) -> Self {
        vec![T::drawn(draw), T::drawn(draw)]
    }
}

impl<T: Drawn> Drawn for Option<T> {
    fn drawn(draw: &mut Draw) -> Self {
        Some(T::drawn(draw))
    }
}

impl<A: Drawn, B: Drawn> Drawn for (A, B) {
    fn drawn(draw: &mut Draw) -> Self {
        (A::drawn(draw), B::drawn(draw))
    }
}

impl Drawn for RetiredShard {
    fn drawn(draw: &mut Draw) -> Self {
        let last = view_without(draw);
        let mut retired = Self::new(last.shards[0].shard, last, Drawn::drawn(draw));
        Vec::<NodeId>::drawn(draw).into_iter().for_each(|node| retired.add_copy(node));
        retired
    }
}

impl Drawn for View {
    fn drawn(draw: &mut Draw) -> Self {
        let view = view_without(draw);
        Self { retired: Drawn::drawn(draw), ..view }
    }
}

fn view_without(draw: &mut Draw) -> View {
    View {
        number: Drawn::drawn(draw),
        sequencers: Drawn::drawn(draw),
        leader: Drawn::drawn(draw),
        shards: Drawn::drawn(draw),
        retired: vec![],
        placement: Drawn::drawn(draw),
        first: Drawn::drawn(draw),
        start: Drawn::drawn(draw),
    }
}

macro_rules! drawn {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl Drawn for $name {
            fn drawn(draw: &mut Draw) -> Self {
                Self { $($field: Drawn::drawn(draw)),* }
            }
        }
    )*};
}

drawn! {
    RecordId { session, number }
    IdRun { session, first, count }
    BoundIds { ids, is_void }
    Run { first, records }
    Stored { position, id, record }
    MissingRange { from, end }
    Gap { shard, from, end }
    Member { node, incarnation }
    ShardMembers { shard, begins, replicas }
    LogConfig {
        order, durability, shards, replicas, sequencers, min_replicas, min_sequencers, stripe, max_record_bytes,
        interval_us, window, session_idle_positions, retention
    }
    Retention { age_ms, bytes, records }
    RetentionChange { age_ms, bytes, records }
    Extent { end, bytes }
    StoreUse { bytes, extents }
    Survey { request, times, usage }
    Surveyed { request, view, stable, trim, digest, time_ms, times, usage }
    Retain { request, view, trim, times, whole, segment_bytes }
    LogEntry {
        id, name, config, sequencers, shards, leaving, version, claimed, claimant, view, history, unavailable,
        ended, pins
    }
    Pin { name, position, most_bytes, is_broken }
    EndedSession { session, end, below, successor }
    EndedSessions { floor, sessions }
    NodeAddress { node, address }
    Heartbeat { incarnation, count, heard_incarnation, heard_count, pauses, ailment, taken, disk, durable, remembered }
    Condition {
        suspects, wrong_suspicions, journal_write_us, has_full_disk, free_bytes, version, up_ms, ailment, used_bytes,
        has_register, logs, incomplete, wanted_bytes, free_percent, full_in_s, left_out
    }
    LeftOut { log, node, ago_ms, why, back_in_ms }
    LogCondition { log, sequences, is_open, shards, bytes, stands_ms, lag_ms }
    ReplicaOf { log, shard }
    NodeParting { node, parting }
    StepTime { step, micros_ago }
    SealedState { ordered, held }
    Held { view, stable, missing, trim, end, knows }
    Submitted { ids, lowest }
    Course { window, made, next }
    Window { number, base, cuts, groups, shares, lenders }
    NextWindow { cuts, keepers, lenders }
    Share { shard, quota, index }
    Lender { shard, quota }
    WindowStatus { number, cuts, made, quotas, lenders, lag_fixes, positions, empty }
    Span { first, count }
    Place { number, count, position }
    End { session, at, successor, shard }
}
