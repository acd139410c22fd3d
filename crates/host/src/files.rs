//! Slow work on files: syncs and deletions, one at a time, on a thread that may wait.

use std::ops::Bound;

use seriatim_model::{LogId, ShardId};
use seriatim_store::{Disk, Removal, RoleKey, ShardStore, sync_files};

use crate::host::Host;
use crate::role::Role;

/// A piece of work on files.
#[derive(Clone, Debug)]
pub struct FileWork(Work);

#[derive(Clone, Debug)]
pub(crate) enum Work {
    Sync(Vec<String>),
    /// Delete a few segments of a store.
    Remove(RoleKey, Removal),
    /// Delete a dismissed replica's store.
    RemoveStore(LogId, ShardId),
    /// Delete all stores of a deleted log.
    RemoveLog(LogId),
}

/// The kind of the file work in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Under {
    Sync,
    Remove(RoleKey),
    RemoveStore,
    RemoveLog,
}

impl FileWork {
    /// Performs the work, blocking. The driver reports
    /// [`Event::FilesSynced`](crate::Event::FilesSynced).
    ///
    /// # Errors
    /// The disk's error.
    pub fn perform(&self, disk: &dyn Disk) -> Result<(), String> {
        match &self.0 {
            Work::Sync(files) => sync_files(disk, files),
            Work::Remove(_, removal) => removal.perform(disk),
            Work::RemoveStore(log, shard) => ShardStore::destroy(disk, *log, *shard),
            Work::RemoveLog(log) => ShardStore::destroy_all(disk, *log),
        }
        .map_err(|cause| cause.to_string())
    }

    /// Whether this is a checkpoint's sync.
    #[must_use]
    pub fn is_checkpoint(&self) -> bool {
        matches!(self.0, Work::Sync(_))
    }
}

impl Host {
    /// Entries that the record stores examined ([`ShardStore::visited`]).
    #[must_use]
    pub fn visited(&self) -> u64 {
        let stores = self.roles.values().filter_map(|role| match role {
            Role::Shard(_, store) => Some(store.visited()),
            _ => None,
        });
        stores.sum()
    }

    /// The next file work, if none is in flight.
    pub fn next_sync(&mut self) -> Option<FileWork> {
        if self.file_work.is_some() || self.failure().is_some() {
            return None;
        }
        let work = self.next_file_work()?;
        self.file_work = Some(match &work {
            Work::Sync(_) => Under::Sync,
            Work::Remove(key, _) => Under::Remove(*key),
            Work::RemoveStore(..) => Under::RemoveStore,
            Work::RemoveLog(_) => Under::RemoveLog,
        });
        Some(FileWork(work))
    }

    fn next_file_work(&mut self) -> Option<Work> {
        if let Some(files) = self.take_checkpoint_files() {
            return Some(Work::Sync(files));
        }
        // Files go after their journal entry is durable. Otherwise a restart would bring the
        // replica back without its files.
        let durable = self.journal.durable();
        if let Some((_, log, shard)) = self.doomed.front().filter(|(lsn, ..)| *lsn <= durable) {
            return Some(Work::RemoveStore(*log, *shard));
        }
        if let Some((_, log)) = self.retired.front().filter(|(lsn, _)| *lsn <= durable) {
            return Some(Work::RemoveLog(*log));
        }
        // Until the node has returned, its stores may be put aside.
        if self.has_returned() { self.next_removal() } else { None }
    }

    /// The next removal of trimmed files. Stores take turns.
    fn next_removal(&mut self) -> Option<Work> {
        loop {
            let after = self.removed_last.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.removals.range((after, Bound::Unbounded)).next();
            let key = *next.or_else(|| self.removals.first())?;
            if let Some(store) = self.roles.get_mut(&key).and_then(|role| role.store()) {
                if let Some(removal) = store.next_removal() {
                    self.removed_last = Some(key);
                    return Some(Work::Remove(key, removal));
                }
                if store.has_removal() {
                    self.crowded.insert(key);
                }
            }
            self.removals.remove(&key);
        }
    }

    /// Retries one trimmed segment for which the disk had no room.
    pub(crate) fn retry_crowded(&mut self) {
        self.removals.extend(self.crowded.pop_first());
    }

    pub(crate) fn file_work_done(&mut self, outcome: Result<(), String>) {
        match (self.file_work.take(), outcome) {
            (Some(Under::Sync), outcome) => self.files_synced(outcome),
            (Some(Under::Remove(key)), Ok(())) => {
                if let Some(store) = self.roles.get_mut(&key).and_then(|role| role.store()) {
                    store.removed();
                }
            }
            (Some(Under::Remove(_)), Err(cause)) => self.fail(cause),
            (Some(Under::RemoveStore), outcome) => self.store_is_removed(outcome),
            (Some(Under::RemoveLog), outcome) => self.log_is_removed(outcome),
            (None, _) => {}
        }
    }

    /// Schedules the removal of trimmed files, unless the store waits for room.
    pub(crate) fn note_removal(&mut self, key: RoleKey) {
        let store = self.roles.get_mut(&key).and_then(|role| role.store());
        if store.is_some_and(|store| store.has_removal()) && !self.crowded.contains(&key) {
            self.removals.insert(key);
        }
    }
}
