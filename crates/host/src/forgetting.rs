//! Removes trimmed and deleted records from the files of an idle node. On a busy node, later
//! checkpoints and reused files do so. Some time after a trim or deletion, the node rewrites
//! trimmed segments and takes a checkpoint that forgets
//! ([`Journal::begin_forgetting`](seriatim_store::Journal::begin_forgetting)).

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::Time;
use seriatim_model::limits::Limits;
use seriatim_store::{CheckpointId, Lsn, RoleKey};

use crate::host::Host;
use crate::role::Role;

const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    /// When to begin; `None` if nothing was trimmed or deleted since the last time.
    at: Option<Time>,
    /// Last journal entry at the latest trim or deletion.
    since: Lsn,
    began: Option<Time>,
    /// Replicas trimmed since the last time.
    trimmed: BTreeSet<RoleKey>,
}

impl Forgetting {
    /// An earlier process may have left records that these replicas trimmed, or of deleted logs.
    pub(crate) fn after_start(trimmed: BTreeSet<RoleKey>, has_deleted: bool, limits: &Limits) -> Self {
        let is_wanted = has_deleted || !trimmed.is_empty();
        let at = is_wanted.then_some(Time::ZERO + limits.forget_after);
        Self { at, trimmed, ..Self::default() }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.at
    }

    fn note(&mut self, now: Time, last: Lsn, limits: &Limits) {
        self.since = last;
        let soon = now + limits.forget_after;
        let at = self.began.map_or(soon, |began| soon.max(began + limits.forget_every));
        self.at.get_or_insert(at);
    }
}

impl Host {
    pub(crate) fn to_be_forgotten(&self) -> Forgetting {
        let trimmed = self.roles.iter().filter_map(|(key, role)| match role {
            Role::Shard(_, store) if store.is_trimmed() => Some(*key),
            _ => None,
        });
        Forgetting::after_start(trimmed.collect(), !self.gone.is_empty(), &self.config.options.limits)
    }

    pub(crate) fn note_trimmed(&mut self, now: Time, key: RoleKey) {
        self.forgetting.trimmed.insert(key);
        self.note_deleted(now);
    }

    pub(crate) fn note_deleted(&mut self, now: Time) {
        self.forgetting.note(now, self.last, &self.config.options.limits);
    }

    /// Begins a checkpoint that forgets, if it is due. Needs room for another journal file, and
    /// durable trims.
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
