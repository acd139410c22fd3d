//! Leaving the active segment when everything in it is trimmed.
//!
//! Only sealed segments are deleted. Without this a log to which nothing is appended would keep its newest segment, up to
//! its whole length, however far it is trimmed: no record comes that would start the next one.
//!
//! ```text
//! trim point ≥ all that the active segment tells of ──▶ seal it, make the next one ──▶ raise the oldest segment ──▶ delete
//! ```
//!
//! The next segment needs room for two headers and for what a store remembers. The node keeps more than that free on a full
//! disk, which takes no records. If there is still no room, the store stays as it is and the host asks again later.

use super::segment::HEADER_BYTES;
use super::{ShardStore, StoreError};

/// A trimmed active segment is left at once if that frees at least this part of a whole segment. With less, a log that is
/// trimmed after each append would make new files for each trim.
const PART_WORTH_LEAVING: u64 = 256;

/// A segment is never left at once for fewer bytes than this.
const LEAST_WORTH_LEAVING: u64 = 512;

impl ShardStore {
    /// How many bytes have to become free for a trimmed active segment to be left at once.
    pub(super) fn worth_leaving(&self) -> u64 {
        (self.segment_bytes() / PART_WORTH_LEAVING).max(LEAST_WORTH_LEAVING)
    }

    /// Whether nothing of the active segment and of those before it is needed, and leaving it frees at least `least` bytes of
    /// records, or of bindings that the next binding log does not begin with.
    pub(super) fn can_leave(&self, least: u64) -> bool {
        let (number, trim) = (self.active.number, self.trim.position());
        let records = self.active.records.len() - HEADER_BYTES;
        let bindings = self.active.bindings.len().saturating_sub(self.active.bindings_began);
        !self.options.keeps_newest
            && self.failure.is_none()
            && (records >= least || bindings >= least && self.is_worth_a_new_log())
            && self.contents.is_below(number, trim)
            && self.contents.dead_to(number + 1, trim) > number
    }

    /// Whether nothing is needed any more of a sealed segment, which the last trim had to keep.
    pub(super) fn has_dead(&self) -> bool {
        let oldest = self.removals.dead_to().max(self.trim.first_segment());
        let trim = self.trim.position();
        self.failure.is_none()
            && oldest < self.active.number
            && self.contents.is_below(oldest, trim)
            && self.contents.dead_to(self.active.number, trim) > oldest
    }

    /// Gives up the sealed segments that the last trim had to keep, as far as nothing is needed of them any more: a record that
    /// waited for its position has it, or never gets one.
    pub(super) fn give_up_if_dead(&mut self) -> Result<(), StoreError> {
        if self.has_dead() { self.raise_trim(self.trim.position()) } else { Ok(()) }
    }

    /// Seals the active segment and makes the next one, if nothing of the former is needed and that frees at least `least`
    /// bytes. If there is no room, nothing happens: [`ShardStore::can_leave`] stays true.
    pub(super) fn leave_trimmed(&mut self, least: u64) -> Result<(), StoreError> {
        if !self.can_leave(least) {
            return Ok(());
        }
        match self.start_next_segment() {
            Ok(()) => self.raise_trim(self.trim.position()),
            Err(StoreError::Full { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
