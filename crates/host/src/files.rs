//! Work on files that takes as long as the disk takes: what a checkpoint syncs, and what is
//! deleted. One such work is under way at a time, on a thread that may wait.

use std::ops::Bound;

use seriatim_model::{LogId, ShardId};
use seriatim_store::{Disk, Removal, RoleKey, ShardStore, sync_files};

use crate::host::Host;
use crate::role::Role;

/// Something to be done with files.
#[derive(Clone, Debug)]
pub struct FileWork(Work);

#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Sync what a checkpoint covers.
    Sync(Vec<String>),
    /// Delete a few segments of a replica's store.
    Remove(RoleKey, Removal),
    /// Delete the store of a replica that was dismissed.
    RemoveStore(LogId, ShardId),
    /// Delete all stores of a log that was deleted.
    RemoveLog(LogId),
}

/// The work that is under way, or was last.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Under {
    Sync,
    Remove(RoleKey),
    RemoveStore,
    RemoveLog,
}

impl FileWork {
    /// Does it, however long it takes. The outcome is what
    /// [`Event::FilesSynced`](crate::Event::FilesSynced) reports.
    ///
    /// # Errors
    /// The error that the disk reports.
    pub fn perform(&self, disk: &dyn Disk) -> Result<(), String> {
        match &self.0 {
            Work::Sync(files) => sync_files(disk, files),
            Work::Remove(_, removal) => removal.perform(disk),
            Work::RemoveStore(log, shard) => ShardStore::destroy(disk, *log, *shard),
            Work::RemoveLog(log) => ShardStore::destroy_all(disk, *log),
        }
        .map_err(|cause| cause.to_string())
    }

    /// Whether it is a checkpoint's.
    #[must_use]
    pub fn is_checkpoint(&self) -> bool {
        matches!(self.0, Work::Sync(_))
    }
}

impl Host {
    /// How many entries its record stores have looked at ([`ShardStore::visited`]).
    #[must_use]
    pub fn visited(&self) -> u64 {
        let stores = self.roles.values().filter_map(|role| match role {
            Role::Shard(_, store) => Some(store.visited()),
            _ => None,
        });
        stores.sum()
    }

    /// The next work with files, if there is any and none is under way.
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
        // Only when the journal says so: it would bring such a replica back after a restart, and
        // miss its files.
        let durable = self.journal.durable();
        if let Some((_, log, shard)) = self.doomed.front().filter(|(lsn, ..)| *lsn <= durable) {
            return Some(Work::RemoveStore(*log, *shard));
        }
        if let Some((_, log)) = self.retired.front().filter(|(lsn, _)| *lsn <= durable) {
            return Some(Work::RemoveLog(*log));
        }
        // A store that is forgotten is put aside, and another one takes its names.
        if self.has_returned() { self.next_removal() } else { None }
    }

    /// The stores take turns.
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

    /// Tries one of the trimmed segments again that the disk had no room to leave.
    pub(crate) fn retry_crowded(&mut self) {
        self.removals.extend(self.crowded.pop_first());
    }

    /// The work that was under way is done, or failed.
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

    /// Removes what a trim left, if the replica's store has such files and does not wait for room.
    pub(crate) fn note_removal(&mut self, key: RoleKey) {
        let store = self.roles.get_mut(&key).and_then(|role| role.store());
        if store.is_some_and(|store| store.has_removal()) && !self.crowded.contains(&key) {
            self.removals.insert(key);
        }
    }
}
