//! Leaving the active segment when everything in it is trimmed.
//!
//! Only sealed segments are deleted. Without this a log to which nothing is appended would keep its
//! newest segment, up to its whole length, however far it is trimmed: no record comes that would
//! start the next one.
//!
//! ```text
//! trim point ≥ all that the active segment tells of ──▶ seal it, make the next one ──▶ raise the oldest segment ──▶ delete
//! ```
//!
//! The next segment needs room for two headers and for what a store remembers. The node keeps more
//! than that free on a full disk, which takes no records. If there is still no room, the store
//! stays as it is and the host asks again later.

use seriatim_model::Position;

use super::segment::HEADER_BYTES;
use super::{ShardStore, StoreError};

/// A trimmed active segment is left at once if that frees at least this part of a whole segment.
/// With less, a log that is trimmed after each append would make new files for each trim.
const PART_WORTH_LEAVING: u64 = 256;

/// A segment is never left at once for fewer bytes than this.
const LEAST_WORTH_LEAVING: u64 = 512;

impl ShardStore {
    /// Whether anything was ever trimmed.
    #[must_use]
    pub fn is_trimmed(&self) -> bool {
        self.trim.position() > Position::ZERO
    }

    /// From now on, until the active segment is left, it is left when it is trimmed, however little
    /// that frees.
    pub fn leave_at_any_size(&mut self) {
        self.leaves_at_any_size = !self.active.records.is_empty();
    }
}

/// How many bytes have to become free for a trimmed active segment to be left at once.
pub(super) fn worth_leaving(store: &ShardStore) -> u64 {
    if store.leaves_at_any_size {
        return 1;
    }
    (store.segment_bytes() / PART_WORTH_LEAVING).max(LEAST_WORTH_LEAVING)
}

/// Whether nothing of the active segment and of those before it is needed, and leaving it frees at
/// least `least` bytes of records, or of bindings that the next binding log does not begin with.
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

/// Whether nothing is needed any more of a sealed segment, which the last trim had to keep.
pub(super) fn has_dead(store: &ShardStore) -> bool {
    let oldest = store.removals.dead_to().max(store.trim.first_segment());
    let (active, trim) = (store.active.number, store.trim.position());
    store.failure.is_none()
        && oldest < active
        && store.contents.is_below(oldest, trim)
        && store.contents.dead_to(active, trim) > oldest
}

/// Seals the active segment and makes the next one, if nothing of the former is needed and that
/// frees at least `least` bytes. If there is no room, nothing happens: [`can_leave`] stays true.
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

/// Leaves the active segment if that is worth it, and gives up the sealed segments that the last
/// trim had to keep and of which nothing is needed any more: a record that waited for its position
/// has it, or never gets one. If there is no room to say so, nothing happens.
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

/// Gives up the segments below one. A durable trim says that no record in them is needed. If there
/// is no room to say so, the next trim finds them again.
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
