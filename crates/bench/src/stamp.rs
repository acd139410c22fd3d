//! Payloads that hold the time at which their append should have begun.

use std::time::{Duration, Instant};

use bytes::Bytes;

/// Bytes of the scheduled time, at a record's start.
pub(super) const STAMP_BYTES: usize = size_of::<u64>();
/// Stamp of a record outside of the measurement.
pub(super) const WARM_UP: u64 = u64::MAX;

/// A payload with its scheduled time, in nanoseconds since the beginning.
pub(super) fn stamped(size: usize, nanos: u64) -> Bytes {
    let mut payload = vec![7; size];
    payload[..STAMP_BYTES].copy_from_slice(&nanos.to_le_bytes());
    payload.into()
}

pub(super) fn nanos_since(began: Instant, scheduled: Instant) -> u64 {
    u64::try_from((scheduled - began).as_nanos()).unwrap_or(WARM_UP - 1)
}

/// The scheduled time in a payload; `None` for a warm-up record, which does not count.
pub(super) fn stamp_of(payload: &[u8], began: Instant) -> Option<Instant> {
    let stamp = payload.first_chunk::<STAMP_BYTES>().map(|bytes| u64::from_le_bytes(*bytes))?;
    (stamp != WARM_UP).then(|| began + Duration::from_nanos(stamp))
}
