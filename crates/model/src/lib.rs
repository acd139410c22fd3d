//! Types that every part of Seriatim shares. This crate decides nothing and performs nothing.
//!
//! - Logs: [`config`], [`order`], [`retention`], [`limits`].
//! - Records: [`record`], [`position`], [`filter`], [`ended`], [`wal`].
//! - Membership: [`view`], [`entry`].
//! - Interface between a protocol and the world: [`machine`], [`storage`], [`time`], [`timers`].
//! - Encoding: [`wire`], [`numbers`].

pub mod config;
pub mod ended;
pub mod entry;
pub mod filter;
pub mod limits;
pub mod machine;
pub mod numbers;
pub mod order;
pub mod pin;
pub mod position;
pub mod record;
pub mod retention;
pub mod storage;
pub mod time;
pub mod timers;
pub mod view;
pub mod wal;
pub mod wire;

pub use config::{Durability, LogConfig};
pub use ended::{EndedSession, EndedSessions};
pub use entry::LogEntry;
pub use filter::Filter;
pub use machine::{Address, ConnectionId, Effect, Endpoint, Input, Machine, Peer, Ticket};
pub use order::{Announced, Order, Properties};
pub use pin::Pin;
pub use position::{Placement, PlacementStep, Position, Span};
pub use record::{BoundIds, IdRun, Record, RecordId, SessionId};
pub use retention::{Retention, RetentionChange, TimeIndex, TimeMark};
pub use time::Time;
pub use view::{
    Gap, Incarnation, LogId, Member, NodeId, RetiredShard, ShardId, ShardMembers, View, ViewHistory,
    ViewNumber,
};
