//! Room on the node's disk.
//!
//! A disk is full when a write finds no room, or when the rest is reserved for trims, deletions,
//! view changes and the register. It is usable again when it has that reserve, and room for the
//! burst of writes when views include the node again: first as much as a checkpoint needed when the
//! disk filled, halved with time. Between the two bounds the state stays, so that views do not
//! change with every file.

use std::time::Duration;

use seriatim_model::limits::Limits;
use seriatim_model::storage::StorageCommand;
use seriatim_model::{Input, NodeId, Time};
use seriatim_protocol::Mutation;
use seriatim_store::RoleKey;

use crate::backlog::{record_bytes, record_count};
use crate::filling::{Filling, Share};
use crate::host::Host;
use crate::role::Role;

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Time without a rejected write before a disk with apparent room is usable: it may have an
/// invisible bound.
const CALM_FOR: Duration = Duration::from_secs(2);

/// Half-life of the free space required before a full disk is retried.
const HALF_IN: Duration = Duration::from_secs(10);

/// Most bytes of a record on disk besides its content.
const BESIDE_A_RECORD: u64 = 128;

/// Divisor: view changes must leave half of the reserve, which is a journal file.
const VIEW_CHANGES_LEAVE: u64 = 2;

/// Most spare journal files when room is scarce.
const SPARES_IF_SCARCE: usize = 2;

const RETRY_FULL_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(crate) struct Room {
    is_full: bool,
    /// When the disk last became full, and the bytes that a checkpoint needed then.
    filled: (Time, u64),
    /// Free bytes at the last check; `None` without a bound.
    free: Option<u64>,
    /// Bytes of records given to the disk since that check.
    given: u64,
    look_at: Time,
    /// Time until which the disk counts as full despite apparent room.
    calm_at: Time,
    /// Whether a write was rejected since the last check.
    was_refused: bool,
    /// Whether a rejected write awaits its retry.
    has_refused: bool,
    retry_at: Option<Time>,
    /// Whether roles must admit no records.
    is_told: bool,
    filling: Filling,
}

impl Room {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(crate) fn look_at(&self) -> Time {
        self.look_at
    }

    pub(crate) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// Free bytes once `bytes` more are written.
    fn left_after(&self, bytes: u64) -> u64 {
        self.free.map_or(u64::MAX, |free| free.saturating_sub(self.given + bytes))
    }

    pub(crate) fn pauses(&self, now: Time) -> bool {
        self.retry_at.is_some_and(|at| now < at)
    }

    /// Notes a check's result. A checkpoint needs `needs` bytes.
    fn found(&mut self, now: Time, free: Option<u64>, needs: u64, limits: &Limits) {
        (self.free, self.given) = (free, 0);
        self.look_at = now + LOOK_EVERY;
        let has = |bytes| free.is_none_or(|free| free >= bytes);
        if std::mem::take(&mut self.was_refused) && has(limits.disk_enough_bytes + needs) {
            self.calm_at = now + CALM_FOR;
        }
        if !has(limits.disk_low_bytes + needs) {
            self.fills(now, needs);
        } else if has(self.wants(now, needs, limits)) && now >= self.calm_at {
            self.is_full = false;
        }
    }

    /// Free bytes that end the full state, if a checkpoint needs `needs`.
    fn wants(&self, now: Time, needs: u64, limits: &Limits) -> u64 {
        limits.disk_enough_bytes + needs.max(self.comes_back(now))
    }

    fn fills(&mut self, now: Time, needs: u64) {
        if !std::mem::replace(&mut self.is_full, true) {
            self.filled = (now, needs);
        }
    }

    /// Bytes that a checkpoint should need once the disk is used again.
    fn comes_back(&self, now: Time) -> u64 {
        let (at, needed) = self.filled;
        let halvings = now.since(at).as_secs() / HALF_IN.as_secs();
        needed.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0)
    }
}

impl Host {
    /// Whether the node reports its disk as full.
    #[must_use]
    pub fn has_full_disk(&self) -> bool {
        self.room.is_full()
    }

    /// Free bytes on the disk, if known.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.room.free
    }

    pub(crate) fn little_room(&self, now: Time) -> Option<Share> {
        self.room.filling.warning(now, self.room.free)
    }

    /// Free bytes that end the full state now.
    pub(crate) fn wanted_bytes(&self, now: Time) -> u64 {
        self.room.wants(now, self.journal.checkpoint_needs(), &self.config.options.limits)
    }

    pub(crate) fn look_at_room(&mut self, now: Time) {
        // Some disks cannot report their room, and only reject writes.
        let free = self.disk.free().unwrap_or_default();
        let limits = self.config.options.limits;
        let before = self.room.is_full();
        if self.room_is_scarce() {
            self.journal.keep_spares(SPARES_IF_SCARCE);
        }
        self.room.found(now, free, self.journal.checkpoint_needs(), &limits);
        let size = self.disk.size().unwrap_or_default();
        if let Some((gets_worse, share)) = self.room.filling.found(now, free, size, limits.disk_warn_percent)
            && !self.room.is_full()
        {
            self.notice_filling(share, gets_worse);
        }
        self.retry_crowded();
        self.tell_room(now, before);
    }

    pub(crate) fn found_no_room(&mut self, now: Time) {
        let before = self.room.is_full;
        self.room.fills(now, self.journal.checkpoint_needs());
        (self.room.was_refused, self.room.has_refused) = (true, true);
        self.tell_room(now, before);
    }

    pub(crate) fn journal_found_room(&mut self, now: Time) {
        self.room.retry_at = self.journal.is_full().then(|| now + RETRY_FULL_AFTER);
        if self.journal.is_full() {
            self.found_no_room(now);
        }
        self.look_at_room(now);
    }

    /// Retries the journal's next write, and store writes as soon as a replica requests one.
    pub(crate) fn retry_when_full(&mut self, now: Time) {
        let is_over = self.room.retry_at.is_some_and(|at| now >= at);
        self.room.retry_at = self.room.retry_at.filter(|_| !is_over);
        if is_over && !self.journal.is_full() {
            self.room.has_refused = false;
            self.set_disk_full(false);
            self.drain_local(now);
            self.set_disk_full(self.lacks_room());
        }
        self.drain_local(now);
        if self.room.has_refused && self.room.retry_at.is_none() && !self.journal.is_full() {
            self.room.retry_at = Some(now + RETRY_FULL_AFTER);
        }
    }

    pub(crate) fn set_disk_full(&mut self, full: bool) {
        if self.room.is_told != full {
            self.room.is_told = full;
            self.local.extend(self.roles.keys().map(|key| (*key, Input::DiskFull(full))));
        }
    }

    pub(crate) fn disk_is_full(&self) -> bool {
        self.room.is_told
    }

    fn tell_room(&mut self, now: Time, before: bool) {
        if self.room.is_full() != before {
            self.disk_is(self.config.node, self.room.is_full());
            self.notice_room(now);
        }
        self.set_disk_full(self.lacks_room());
    }

    pub(crate) fn lacks_room(&self) -> bool {
        self.room.is_full() || self.journal.is_full()
    }

    /// Whether the store must reject the command's records. The reserve is not for records, except
    /// the few of a view change, without which trims cannot continue.
    pub(crate) fn keep_from(&mut self, now: Time, key: RoleKey, command: &StorageCommand) -> bool {
        let records = record_count(command) as u64;
        if records == 0 {
            return false;
        }
        let bytes = record_bytes(command) as u64 + records * BESIDE_A_RECORD;
        // Check early: much may be written between two checks.
        let low = self.config.options.limits.disk_low_bytes;
        let needs = self.journal.checkpoint_needs();
        let kept = needs + if self.room.is_full() { low / VIEW_CHANGES_LEAVE } else { low };
        if self.room.left_after(bytes) < kept || self.room.given >= low / 8 {
            self.look_at_room(now);
        }
        let is_between_views =
            matches!(self.roles.get(&key), Some(Role::Shard(replica, _)) if replica.is_between_views());
        let has_room = self.room.left_after(bytes) >= needs + low / VIEW_CHANGES_LEAVE;
        let spends = is_between_views && has_room || self.config.options.mutates(Mutation::ReserveSpent);
        let is_kept = self.room.is_full() && !spends;
        self.room.given += if is_kept { 0 } else { bytes };
        is_kept
    }

    /// Whether checkpoints should be small.
    pub(crate) fn room_is_scarce(&self) -> bool {
        let enough = self.config.options.limits.disk_enough_bytes + self.journal.checkpoint_needs();
        self.room.free.is_some_and(|free| free < enough)
    }

    pub(crate) fn disk_is(&mut self, node: NodeId, is_full: bool) {
        self.others.note_disk(node, is_full);
        self.notice_full(node, is_full);
        for key in self.controllers() {
            self.local.push_back((key, Input::FullDisk(node, is_full)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_disk_is_not_used_again_before_there_is_room_for_what_filled_it() {
        let (mut room, limits) = (Room::default(), Limits::default());
        let mut is_full = vec![];
        let second = Duration::from_secs(1);
        // A checkpoint under load needs much, one of an excluded node little.
        for (at, free, needs) in [(0, 129, 98), (1, 178, 4), (9, 190, 1), (9, 195, 1), (11, 194, 30)] {
            let now = Time::ZERO + second * at;
            room.found(now, Some(free * MIB), needs * MIB, &limits);
            is_full.push(room.is_full());
        }
        assert_eq!(is_full, [true, true, true, false, false]);
    }

    #[test]
    fn a_small_disk_is_tried_with_less_as_time_passes() {
        let (mut room, limits) = (Room::default(), Limits::default());
        let mut full_at = |at: u64, free: u64, needs: u64| {
            room.found(Time::ZERO + Duration::from_secs(at), Some(free * MIB), needs * MIB, &limits);
            room.is_full()
        };
        assert!(full_at(0, 100, 80));
        let until = (1..100).find(|at| !full_at(*at, 110, 1));
        assert_eq!(until, Some(30), "after three halvings 10 MiB are expected, and 110 are there");
    }
}
