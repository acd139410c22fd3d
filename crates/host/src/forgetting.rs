//! Trimmed and deleted records leave the node's files, although nothing is appended any more.
//!
//! The journal keeps an entry until a later checkpoint counts, and the bytes of its file until the
//! file is used again; both go by how much is appended. A segment of records stays until leaving it
//! is worth it. So some time after a trim or a deletion the node leaves the segments that are
//! trimmed, and takes a checkpoint that forgets
//! ([`Journal::begin_forgetting`](seriatim_store::Journal::begin_forgetting)). A node on which
//! nothing was trimmed or deleted does nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::Time;
use seriatim_model::limits::Limits;
use seriatim_store::{CheckpointId, Lsn, RoleKey};

use crate::host::Host;
use crate::role::Role;

/// How long the node waits before it looks again whether it can begin.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The records that the node's files still have although they are trimmed or deleted.
#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    /// When the node begins to forget. None if nothing was trimmed or deleted since it did so last.
    at: Option<Time>,
    /// The last journal entry when something was trimmed or deleted last.
    since: Lsn,
    /// When the node began to forget last.
    began: Option<Time>,
    /// The replicas that were trimmed since.
    trimmed: BTreeSet<RoleKey>,
}

impl Forgetting {
    /// After a start: of what these replicas trimmed, or others that are gone, an earlier process
    /// may have left something.
    pub(crate) fn after_start(trimmed: BTreeSet<RoleKey>, has_deleted: bool, limits: &Limits) -> Self {
        let is_wanted = has_deleted || !trimmed.is_empty();
        let at = is_wanted.then_some(Time::ZERO + limits.forget_after);
        Self { at, trimmed, ..Self::default() }
    }

    /// When the node is to look whether it forgets.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.at
    }

    /// Something was trimmed or deleted, and the journal's last entry is this.
    fn note(&mut self, now: Time, last: Lsn, limits: &Limits) {
        self.since = last;
        let soon = now + limits.forget_after;
        let at = self.began.map_or(soon, |began| soon.max(began + limits.forget_every));
        self.at.get_or_insert(at);
    }
}

impl Host {
    /// The trimmed and deleted records that an earlier process may have left in the node's files.
    pub(crate) fn to_be_forgotten(&self) -> Forgetting {
        let trimmed = self.roles.iter().filter_map(|(key, role)| match role {
            Role::Shard(_, store) if store.is_trimmed() => Some(*key),
            _ => None,
        });
        Forgetting::after_start(trimmed.collect(), !self.gone.is_empty(), &self.config.options.limits)
    }

    /// A replica was trimmed.
    pub(crate) fn note_trimmed(&mut self, now: Time, key: RoleKey) {
        self.forgetting.trimmed.insert(key);
        self.note_deleted(now);
    }

    /// A log or a replica was deleted.
    pub(crate) fn note_deleted(&mut self, now: Time) {
        self.forgetting.note(now, self.last, &self.config.options.limits);
    }

    /// Begins a checkpoint that forgets, if it is time and nothing is in its way: it needs room for
    /// another file of the journal, and what was trimmed has to be durable.
    pub(crate) fn begin_forgetting(&mut self, now: Time) -> Option<CheckpointId> {
        self.forgetting.at.filter(|at| now >= *at)?;
        let can = self.checkpoint.is_none()
            && self.journal.has_no_checkpoint()
            && self.can_checkpoint()
            && !self.room_is_scarce()
            && !self.lacks_room()
            && self.forgetting.since <= self.journal.durable();
        if !can {
            self.forgetting.at = Some(now + RETRY_AFTER);
            return None;
        }
        (self.forgetting.at, self.forgetting.began) = (None, Some(now));
        for key in std::mem::take(&mut self.forgetting.trimmed) {
            if let Some(Role::Shard(_, store)) = self.roles.get_mut(&key) {
                store.leave_at_any_size();
                self.note_removal(key);
            }
        }
        Some(self.journal.begin_forgetting())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_trim_is_forgotten_soon_and_many_are_together() {
        let limits = Limits::default();
        let mut forgetting = Forgetting::after_start(BTreeSet::new(), false, &limits);
        assert_eq!(forgetting.deadline(), None);
        let second = |second| Time::ZERO + Duration::from_secs(second);
        forgetting.note(second(100), Lsn(7), &limits);
        let first = forgetting.deadline();
        assert_eq!(first, Some(second(100) + limits.forget_after));
        forgetting.note(second(101), Lsn(8), &limits);
        assert_eq!(
            (forgetting.deadline(), forgetting.since),
            (first, Lsn(8)),
            "continued trims delay nothing"
        );
        (forgetting.at, forgetting.began) = (None, first);
        forgetting.note(second(107), Lsn(9), &limits);
        assert_eq!(forgetting.deadline(), first.map(|began| began + limits.forget_every));
    }
}
