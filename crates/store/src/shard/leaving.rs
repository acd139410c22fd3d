//! Leaving a trimmed active segment: sealing and abandoning it.
//!
//! Only sealed segments are deleted. Without this, a trimmed log without new appends would keep its
//! newest segment: no record comes that starts the next one.
//!
//! ```text
//! trim point ≥ active segment ──▶ seal it, make the next ──▶ raise the oldest ──▶ delete
//! ```
//!
//! On a full disk the node keeps enough room for the next segment free. Without room the store is
//! unchanged, and the host retries later.

use seriatim_model::Position;

use super::segment::HEADER_BYTES;
use super::{ShardStore, StoreError};

/// Divisor: leaving at once must free 1/256 of a segment. Otherwise a log trimmed after each append
/// would create files at each trim.
const PART_WORTH_LEAVING: u64 = 256;

/// Least bytes for which a segment is left at once.
const LEAST_WORTH_LEAVING: u64 = 512;

impl ShardStore {
    /// Whether the store was ever trimmed.
    #[must_use]
    pub fn is_trimmed(&self) -> bool {
        self.trim.position() > Position::ZERO
    }

    /// From now on, leaves the active segment as soon as all of it is trimmed, even if that frees
    /// little. The request ends when the segment is left.
    pub fn leave_at_any_size(&mut self) {
        self.leaves_at_any_size = !self.active.records.is_empty();
    }
}

pub(super) fn worth_leaving(store: &ShardStore) -> u64 {
    if store.leaves_at_any_size {
        return 1;
    }
    (store.segment_bytes() / PART_WORTH_LEAVING).max(LEAST_WORTH_LEAVING)
}

/// Whether the active and older segments are superfluous and leaving frees at least `least` bytes
/// of records, or of bindings that the next log does not repeat.
pub(super) fn can_leave(store: &ShardStore, least: u64) -> bool {
    let (active, trim) = (&store.active, store.trim.position());
    let records = active.records.len() - HEADER_BYTES;
    let bindings = active.bindings.len().saturating_sub(active.bindings_began);
    !store.options.keeps_newest
        && store.failure.is_none()
        && (records >= least
            || bindings >= least && active.is_worth_a_new_log(&store.contents, store.options))
        && store.contents.is_below(active.number, trim)
        && store.contents.dead_to(active.number + 1, trim) > active.number
}

/// Whether a sealed segment became superfluous since the last trim.
pub(super) fn has_dead(store: &ShardStore) -> bool {
    let oldest = store.removals.dead_to().max(store.trim.first_segment());
    let (active, trim) = (store.active.number, store.trim.position());
    store.failure.is_none()
        && oldest < active
        && store.contents.is_below(oldest, trim)
        && store.contents.dead_to(active, trim) > oldest
}

/// Leaves a superfluous active segment if that frees `least` bytes. Without room it does nothing,
/// and [`can_leave`] stays true.
pub(super) fn leave_trimmed(store: &mut ShardStore, least: u64) -> Result<(), StoreError> {
    if !can_leave(store, least) {
        return Ok(());
    }
    match store.start_next_segment() {
        Ok(()) => {
            store.leaves_at_any_size = false;
            store.raise_trim(store.trim.position())
        }
        Err(StoreError::Full { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Leaves the active segment if worth it, and abandons sealed segments that the last trim kept for
/// records whose fate is decided now. Does nothing without room.
pub(super) fn give_up_trimmed(store: &mut ShardStore) {
    let left = leave_trimmed(store, worth_leaving(store));
    let given_up = left.and_then(|()| match has_dead(store) {
        true => store.raise_trim(store.trim.position()),
        false => Ok(()),
    });
    match given_up {
        Ok(()) | Err(StoreError::Full { .. }) => {}
        Err(error) => store.failure = Some(error.to_string()),
    }
}

/// Abandons segments below `dead_to`, which are durably superfluous. Without room the next trim
/// finds them again.
pub(super) fn give_up_synced(store: &mut ShardStore, dead_to: u32) {
    if dead_to <= store.trim.first_segment() || store.failure.is_some() {
        return;
    }
    match store.give_up_below(dead_to, store.trim.position()) {
        Ok(()) => {}
        Err(StoreError::Full { .. }) => store.removals.note_dead(store.trim.first_segment()),
        Err(error) => store.failure = Some(error.to_string()),
    }
}
