//! The configuration of a log, chosen at its creation and kept in the catalog.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::limits;
use crate::order::Order;
use crate::record::Record;
use crate::retention::Retention;
use crate::wire::{Decoder, Encoder, Wire, WireError, decode_number, decode_one, encode_one, wire_enum};

/// Where a record is stored when its append is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// On the disk of every acknowledging replica.
    #[default]
    Disk,
    /// In the memory of every acknowledging replica; written to disk later.
    Memory,
}

wire_enum! { Durability { 1 => Disk {}, 2 => Memory {} } }

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
        })
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "disk" => Ok(Self::Disk),
            "memory" => Ok(Self::Memory),
            _ => Err(format!("unknown durability '{name}'; known: disk, memory")),
        }
    }
}

/// A log's choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// A log's configuration.
    pub order: Order,
    /// Durability level.
    pub durability: Durability,
    /// Number of shards.
    pub shards: u32,
    /// Replicas per shard.
    pub replicas: u32,
    /// Sequencing replicas.
    pub sequencers: u32,
    /// Fewest replicas of a shard for appends; see [`LogConfig::least_replicas`].
    pub min_replicas: u32,
    /// Fewest sequencing replicas for appends; see [`LogConfig::least_sequencers`].
    pub min_sequencers: u32,
    /// Consecutive positions of one shard; where clients choose shards, consecutive appends of a
    /// session.
    pub stripe: u64,
    /// Largest payload, in bytes.
    pub max_record_bytes: u32,
    /// Interval between cuts, in microseconds. Unused without cuts.
    pub interval_us: u32,
    /// Number of cuts for which shares are fixed in advance. Unused without quotas.
    pub window: u32,
    /// All replicas forget a session when this many positions have passed since its last record.
    pub session_idle_positions: u64,
    /// Retention limits. They can change; the register's entry has the valid ones.
    pub retention: Retention,
}

/// Flag in the encoded ordering: later fields follow. Not set if these fields have their defaults.
/// Older builds reject it.
const FIELDS_FOLLOW: u8 = 0x80;
/// Flag in the encoded ordering: retention limits follow, as the last field.
const LIMITS_FOLLOW: u8 = 0x40;

impl Wire for LogConfig {
    fn encode(&self, out: &mut Encoder) {
        let is_usual = self.session_idle_positions == limits::SESSION_IDLE_POSITIONS;
        let fields = if is_usual { 0 } else { FIELDS_FOLLOW };
        let limits = if self.retention.is_unlimited() { 0 } else { LIMITS_FOLLOW };
        out.put(&[encode_one(&self.order)[0] | fields | limits]);
        self.durability.encode(out);
        self.shards.encode(out);
        with_least(self.replicas, self.min_replicas).encode(out);
        with_least(self.sequencers, self.min_sequencers).encode(out);
        self.stripe.encode(out);
        self.max_record_bytes.encode(out);
        if self.order.has_cuts() {
            self.interval_us.encode(out);
        }
        if self.order.has_quotas() {
            self.window.encode(out);
        }
        if !is_usual {
            self.session_idle_positions.encode(out);
        }
        if limits != 0 {
            self.retention.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let order = u8::decode(input)?;
        let (has_more, has_limits) = (order & FIELDS_FOLLOW != 0, order & LIMITS_FOLLOW != 0);
        let order: Order = decode_one(vec![order & !(FIELDS_FOLLOW | LIMITS_FOLLOW)].into())?;
        let (durability, shards) = (Wire::decode(input)?, Wire::decode(input)?);
        let (replicas, min_replicas) = and_least(Wire::decode(input)?);
        let (sequencers, min_sequencers) = and_least(Wire::decode(input)?);
        // A longer stripe has the same effect, as no log has more positions.
        let stripe = u64::decode(input)?.min(limits::MAX_NUMBER);
        let max_record_bytes = Wire::decode(input)?;
        // In orderings older than cuts, the format has no interval.
        let interval_us = if order.has_cuts() { Wire::decode(input)? } else { limits::DEFAULT_INTERVAL_US };
        let window = if order.has_quotas() { Wire::decode(input)? } else { limits::DEFAULT_WINDOW };
        let session_idle_positions = match has_more {
            true => decode_number("LogConfig.session_idle_positions", input)?,
            false => limits::SESSION_IDLE_POSITIONS,
        };
        let retention = if has_limits { Wire::decode(input)? } else { Retention::default() };
        Ok(Self {
            order,
            durability,
            shards,
            replicas,
            sequencers,
            min_replicas,
            min_sequencers,
            stripe,
            max_record_bytes,
            interval_us,
            window,
            session_idle_positions,
            retention,
        })
    }
}

/// Encodes both counts in one field, because the first format had only `count`.
fn with_least(count: u32, least: u32) -> u32 {
    count & 0xFFFF | least << 16
}

fn and_least(both: u32) -> (u32, u32) {
    let least = both >> 16;
    (both & 0xFFFF, if least == 0 { LEAST } else { least })
}

/// Default of the fewest replicas, for shards and for sequencing replicas.
const LEAST: u32 = 2;

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            order: Order::default(),
            durability: Durability::default(),
            shards: 2,
            replicas: 3,
            sequencers: 3,
            min_replicas: LEAST,
            min_sequencers: LEAST,
            stripe: limits::DEFAULT_STRIPE,
            max_record_bytes: limits::DEFAULT_MAX_RECORD_BYTES,
            interval_us: limits::DEFAULT_INTERVAL_US,
            window: limits::DEFAULT_WINDOW,
            session_idle_positions: limits::SESSION_IDLE_POSITIONS,
            retention: Retention::default(),
        }
    }
}

impl LogConfig {
    /// Fewest replicas with which a shard takes appends, at most all.
    #[must_use]
    pub fn least_replicas(&self) -> usize {
        self.min_replicas.clamp(1, self.replicas.max(1)) as usize
    }

    /// Fewest sequencing replicas with which the log takes appends, at most all.
    #[must_use]
    pub fn least_sequencers(&self) -> usize {
        self.min_sequencers.clamp(1, self.sequencers.max(1)) as usize
    }

    /// Whether the record exceeds the log's limit.
    #[must_use]
    pub fn is_too_large(&self, record: &Record) -> bool {
        let largest = self.max_record_bytes as usize;
        record.payload().len() > largest
            || record.size() > largest + limits::MAX_RECORD_OVERHEAD_BYTES as usize
    }

    /// Sets one sequencer if the ordering has a single sequencer.
    #[must_use]
    pub fn fitted(self) -> Self {
        if self.order.properties().has_one_sequencer {
            Self { sequencers: 1, min_sequencers: 1, ..self }
        } else {
            self
        }
    }

    /// Interval between cuts, as a duration.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_micros(self.interval_us.into())
    }

    /// Number of positions after which an idle session is forgotten: more than
    /// [`LogConfig::session_idle_positions`] where shards fill turns with empty positions.
    #[must_use]
    pub fn idle_positions(&self) -> u64 {
        let times = if self.order.has_quotas() { limits::IDLE_TIMES_IF_PADDED } else { 1 };
        self.session_idle_positions.saturating_mul(times)
    }

    /// Checks the configuration for a cluster of `nodes` nodes.
    ///
    /// # Errors
    /// The fault and the valid range.
    pub fn check(&self, nodes: u32) -> Result<(), String> {
        let within = |what: &str, value: u32, most: u32| match value {
            0 => Err(format!("a log needs at least one of its {what}")),
            _ if value > most => Err(format!("{value} {what} are more than the {most} possible here")),
            _ => Ok(()),
        };
        within("sequencing replicas", self.sequencers, nodes.min(limits::MAX_REPLICAS))?;
        within("replicas of a shard", self.replicas, nodes.min(limits::MAX_REPLICAS))?;
        within("shards", self.shards, limits::MAX_SHARDS)?;
        within("bytes of a record", self.max_record_bytes, limits::MAX_RECORD_BYTES)?;
        if self.stripe == 0 {
            return Err("a stripe needs at least one position".into());
        }
        if self.order.has_cuts() && !limits::INTERVALS_US.contains(&self.interval_us) {
            let (least, most) = (limits::INTERVALS_US.start(), limits::INTERVALS_US.end());
            return Err(format!("an interval has {least} to {most} microseconds"));
        }
        if self.order.has_quotas() && !limits::WINDOWS.contains(&self.window) {
            let (least, most) = (limits::WINDOWS.start(), limits::WINDOWS.end());
            return Err(format!("a window has {least} to {most} cuts"));
        }
        if !limits::SESSION_IDLE.contains(&self.session_idle_positions) {
            let (least, most) = (limits::SESSION_IDLE.start(), limits::SESSION_IDLE.end());
            let asked = self.session_idle_positions;
            return Err(format!(
                "a session is forgotten after {least} to {most} positions, not after {asked}"
            ));
        }
        self.retention.check()
    }
}

/// Checks a log name; see [`is_log_name`].
///
/// # Errors
/// The text names the rule.
pub fn check_log_name(name: &str) -> Result<(), String> {
    if is_log_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(limits::MAX_NAME_BYTES).collect();
    let cut = if shown.len() < name.len() { "…" } else { "" };
    Err(format!(
        "'{shown}{cut}' cannot name a log: use up to 128 letters, digits, '-', '_' and '.', not starting with '-' or '.'"
    ))
}

/// Whether `name` is a valid log name: 1 to 128 letters, digits, `-`, `_` or `.`, not starting with
/// `-` or `.`.
#[must_use]
pub fn is_log_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=limits::MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(allowed)
        && !name.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_chose_nothing_new_is_written_as_it_always_was() {
        let config = LogConfig { replicas: 2, ..LogConfig::default() };
        let written = encode_one(&config);
        let first_format = [2, 1, 2, 0, 0, 0, 2, 0, 2, 0, 3, 0, 2, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0];
        assert_eq!(written, first_format[..]);
        assert_eq!(decode_one::<LogConfig>(written).unwrap(), config);
    }

    #[test]
    fn an_interval_and_a_window_are_written_where_there_are_cuts_and_quotas() {
        let head = [1, 2, 0, 0, 0, 2, 0, 2, 0, 3, 0, 2, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0];
        let (interval, window) = ([232, 3, 0, 0], [7, 0, 0, 0]);
        for (order, number, tail) in
            [(Order::Scalog, 4, interval.to_vec()), (Order::Belfast, 5, [interval, window].concat())]
        {
            let window = if order.has_quotas() { 7 } else { limits::DEFAULT_WINDOW };
            let config = LogConfig { order, replicas: 2, window, ..LogConfig::default() };
            let written = encode_one(&config);
            assert_eq!(written, [&[number], &head[..], &tail].concat());
            assert_eq!(decode_one::<LogConfig>(written).unwrap(), config);
        }
    }

    #[test]
    fn a_window_has_bounds() {
        let check = |window| LogConfig { order: Order::Belfast, window, ..LogConfig::default() }.check(3);
        assert_eq!([check(2), check(10_000)], [Ok(()), Ok(())]);
        for wrong in [0, 1, 10_001] {
            assert_eq!(check(wrong), Err("a window has 2 to 10000 cuts".into()));
        }
        let elsewhere = LogConfig { window: 0, ..LogConfig::default() };
        assert_eq!(elsewhere.check(3), Ok(()), "no client asks for it");
    }

    #[test]
    fn what_a_log_chose_comes_back() {
        for order in Order::ALL {
            let config = LogConfig { order, session_idle_positions: 20, ..LogConfig::default() };
            let written = encode_one(&config);
            assert_eq!(decode_one::<LogConfig>(written.clone()).unwrap(), config);
            let retention = Retention { records: Some(7), ..Retention::default() };
            let limited = LogConfig { retention, ..config };
            assert_eq!(decode_one::<LogConfig>(encode_one(&limited)).unwrap(), limited);
            let earlier = written.slice(..1);
            assert!(
                decode_one::<Order>(earlier).is_err(),
                "an earlier build refuses a value that it would misread"
            );
        }
    }

    #[test]
    fn the_positions_of_an_idle_session_have_bounds() {
        let check =
            |session_idle_positions| LogConfig { session_idle_positions, ..LogConfig::default() }.check(3);
        assert_eq!([check(1), check(10_000_000)], [Ok(()), Ok(())]);
        for wrong in [0, 10_000_001] {
            let refusal = check(wrong).unwrap_err();
            assert!(refusal.contains(&format!("1 to 10000000 positions, not after {wrong}")), "{refusal}");
        }
    }
}
