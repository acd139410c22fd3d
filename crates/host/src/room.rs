//! Whether the node's disk has room for records, and what is said and done about it if not.
//!
//! A disk is full when a write found no room, or when what is left is needed for what makes room:
//! trims, deletions, view changes, the register. It is not any more when there is room for that and
//! for what comes at once when the node is taken back: at first that is what was there when the
//! disk became full, although it has gone with the node's part in its logs; with time, and with no
//! room to be had, it is tried with less. Between the two it stays what it was, so that no view
//! changes with every file that comes and goes.

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

/// How often to look how much room there is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// For how long nothing may be refused by a disk that shows room enough: another bound was met,
/// which the node cannot see.
const CALM_FOR: Duration = Duration::from_secs(2);

/// In which time a full disk is tried with half of what was needed when it became full.
const HALF_IN: Duration = Duration::from_secs(10);

/// How much a record's place, id and checksums take on a disk at most, in bytes.
const BESIDE_A_RECORD: u64 = 128;

/// Which part of what is kept for what makes room no view change gets: a file of the journal.
const VIEW_CHANGES_LEAVE: u64 = 2;

/// How many files the journal keeps for their next use where room is scarce.
const SPARES_IF_SCARCE: usize = 2;

/// How long to wait before a full disk is tried again.
const RETRY_FULL_AFTER: Duration = Duration::from_millis(200);

/// How much room the disk has.
#[derive(Debug, Default)]
pub(crate) struct Room {
    is_full: bool,
    /// When it became full last, and what a checkpoint needed then, in bytes.
    filled: (Time, u64),
    /// How much there was when it was looked last, in bytes, if there is a bound.
    free: Option<u64>,
    /// Bytes that records given to the disk since take.
    given: u64,
    look_at: Time,
    /// Although there seems to be room, it counts as full until then.
    calm_at: Time,
    /// A write was refused since it was looked last.
    was_refused: bool,
    /// A write was refused, and has not been tried again.
    has_refused: bool,
    /// When it is tried again.
    retry_at: Option<Time>,
    /// The node has told the roles to admit no records.
    is_told: bool,
    /// The warnings before the disk is full.
    filling: Filling,
}

impl Room {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(crate) fn look_at(&self) -> Time {
        self.look_at
    }

    /// When a disk that refused something is tried again.
    pub(crate) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// How much is left when so much more is given to the disk, in bytes.
    fn left_after(&self, bytes: u64) -> u64 {
        self.free.map_or(u64::MAX, |free| free.saturating_sub(self.given + bytes))
    }

    /// Whether it is too early to try it again.
    pub(crate) fn pauses(&self, now: Time) -> bool {
        self.retry_at.is_some_and(|at| now < at)
    }

    /// So much room was found, of which a checkpoint needs a part.
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

    /// With how much room a full disk is used again, while a checkpoint needs so many bytes.
    fn wants(&self, now: Time, needs: u64, limits: &Limits) -> u64 {
        limits.disk_enough_bytes + needs.max(self.comes_back(now))
    }

    /// It is full from now on, if it was not, while a checkpoint needs so many bytes.
    fn fills(&mut self, now: Time, needs: u64) {
        if !std::mem::replace(&mut self.is_full, true) {
            self.filled = (now, needs);
        }
    }

    /// The bytes that a checkpoint is expected to need soon after a full disk is used again.
    fn comes_back(&self, now: Time) -> u64 {
        let (at, needed) = self.filled;
        let halvings = now.since(at).as_secs() / HALF_IN.as_secs();
        needed.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0)
    }
}

impl Host {
    /// Whether the disk has no room for records, by the node's own word.
    #[must_use]
    pub fn has_full_disk(&self) -> bool {
        self.room.is_full()
    }

    /// How many bytes more find room on the disk, as far as is known.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        self.room.free
    }

    /// The share of the disk that is free, if that is so little that the operator is warned.
    pub(crate) fn little_room(&self, now: Time) -> Option<Share> {
        self.room.filling.warning(now, self.room.free)
    }

    /// How many bytes have to be free for a full disk to be used again, as things are now.
    pub(crate) fn wanted_bytes(&self, now: Time) -> u64 {
        self.room.wants(now, self.journal.checkpoint_needs(), &self.config.options.limits)
    }

    /// Looks how much room there is, and tells the roles if that changes anything.
    pub(crate) fn look_at_room(&mut self, now: Time) {
        // A disk that cannot tell shows when it is written to.
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

    /// A write found no room.
    pub(crate) fn found_no_room(&mut self, now: Time) {
        let before = self.room.is_full;
        self.room.fills(now, self.journal.checkpoint_needs());
        (self.room.was_refused, self.room.has_refused) = (true, true);
        self.tell_room(now, before);
    }

    /// The journal was written to, as far as there was room.
    pub(crate) fn journal_found_room(&mut self, now: Time) {
        self.room.retry_at = self.journal.is_full().then(|| now + RETRY_FULL_AFTER);
        if self.journal.is_full() {
            self.found_no_room(now);
        }
        self.look_at_room(now);
    }

    /// After a pause the node tries a full disk again: it takes the journal's write next, and asks
    /// a record store that had no room again as soon as a replica wants to write.
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

    /// Tells the roles whether anything that brings records is to be admitted.
    pub(crate) fn set_disk_full(&mut self, full: bool) {
        if self.room.is_told != full {
            self.room.is_told = full;
            self.local.extend(self.roles.keys().map(|key| (*key, Input::DiskFull(full))));
        }
    }

    /// Whether the node has told the roles so.
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

    /// Whether nothing that brings records is to be admitted.
    pub(crate) fn lacks_room(&self) -> bool {
        self.room.is_full() || self.journal.is_full()
    }

    /// Whether a command has to wait for room: what is left is not for records, but for those that
    /// a view change brings, which are few: the view that makes trims go through again needs them.
    pub(crate) fn keep_from(&mut self, now: Time, key: RoleKey, command: &StorageCommand) -> bool {
        let records = record_count(command) as u64;
        if records == 0 {
            return false;
        }
        let bytes = record_bytes(command) as u64 + records * BESIDE_A_RECORD;
        // Much may be given to a disk between two looks.
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

    /// Whether there is so little room that what a checkpoint needs is to be little.
    pub(crate) fn room_is_scarce(&self) -> bool {
        let enough = self.config.options.limits.disk_enough_bytes + self.journal.checkpoint_needs();
        self.room.free.is_some_and(|free| free < enough)
    }

    /// The disk of a node, this one or another, has no room for records, or has enough again.
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
        // A checkpoint under load needs much. As soon as the node is left out it needs little, and
        // gives a file back; and under load again it needs much.
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
