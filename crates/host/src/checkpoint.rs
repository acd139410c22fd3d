//! Checkpoints: roles write their whole state, so that journal files can be reused.
//!
//! A checkpoint goes in pieces of bounded bytes and roles, between ordinary steps. A piece follows
//! when the previous one is durable and its files are synced. A role's snapshot covers all its
//! journal entries until that moment, not only those before the checkpoint.

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;
use seriatim_model::{LogId, Time, limits};
use seriatim_protocol::Mutation;
use seriatim_store::{CheckpointId, Lsn, RoleKey};

use crate::condition::NODE;
use crate::host::Host;

#[derive(Debug)]
pub(crate) struct Checkpoint {
    id: CheckpointId,
    /// Last role asked for its snapshot, in key order, and the start of its next part, if any.
    asked: Option<RoleKey>,
    goes_on: Option<LogId>,
    /// Rest of the current snapshot, not in the journal yet.
    said: (RoleKey, VecDeque<Bytes>),
    /// Last entry of the previous piece.
    written: Lsn,
    /// Files to sync before the next piece.
    files: Vec<String>,
    is_syncing: bool,
}

impl Host {
    pub(crate) fn checkpoint_goes_on(&mut self, now: Time) {
        let is_due = self.journal.checkpoint_due()
            || self.has_full_disk() && self.journal.needs_file()
            || self.room_is_scarce() && self.journal.checkpoint_pays();
        if is_due && self.checkpoint.is_none() && self.can_checkpoint() && self.checkpoint_fits() {
            let id = self.journal.begin_checkpoint();
            self.begin_checkpoint(id);
        } else if let Some(id) = self.begin_forgetting(now) {
            self.begin_checkpoint(id);
        }
        if !self.checkpoint_is_ready() {
            return;
        }
        let Some(mut checkpoint) = self.checkpoint.take() else { return };
        if self.add_piece(&mut checkpoint) {
            self.checkpoint = Some(checkpoint);
        } else {
            self.last = self.journal.finish_checkpoint(checkpoint.id);
        }
        self.awaited = self.last;
    }

    pub(crate) fn checkpoint_is_ready(&self) -> bool {
        let is_ready = |checkpoint: &Checkpoint| {
            checkpoint.files.is_empty()
                && !checkpoint.is_syncing
                && self.checkpoint_fits()
                && checkpoint.written <= self.journal.durable()
        };
        self.checkpoint.as_ref().is_some_and(is_ready) && self.has_returned()
    }

    /// Whether the disk has room for the whole checkpoint: an unfinished one frees nothing. On a
    /// full disk the last room is for trims, which free some.
    fn checkpoint_fits(&self) -> bool {
        let needs = self.journal.checkpoint_needs();
        !self.has_full_disk()
            || self.free_bytes().is_none_or(|free| free + self.journal.ready_bytes() >= needs)
    }

    /// Whether a checkpoint may begin. Entries of a dismissed replica must outlive its files, and
    /// roles of a returning node may still be discarded.
    pub(crate) fn can_checkpoint(&self) -> bool {
        self.doomed.is_empty() && self.retired.is_empty() && self.has_returned()
    }

    /// The node's own snapshot goes first because it covers more than entries under its own key.
    fn begin_checkpoint(&mut self, id: CheckpointId) {
        self.checkpoint = Some(Checkpoint {
            id,
            asked: None,
            goes_on: None,
            said: (NODE, self.own_snapshot().into()),
            written: Lsn(0),
            files: vec![],
            is_syncing: false,
        });
    }

    /// Adds one piece. Returns false when all roles are done.
    fn add_piece(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let most = self.config.journal.snapshot_bytes;
        let (mut bytes, mut asked) = (0, 0);
        loop {
            if bytes >= most || asked == limits::SNAPSHOT_ROLES && checkpoint.said.1.is_empty() {
                return true;
            }
            if checkpoint.said.1.is_empty() {
                if !self.ask_next(checkpoint) {
                    return asked > 0 || bytes > 0;
                }
                asked += 1;
                // The start of a role's snapshot must precede the role's later entries.
                if self.config.options.mutates(Mutation::SnapshotAhead) {
                    return true;
                }
            }
            let (key, said) = &mut checkpoint.said;
            let (piece, len) = cut(said, most - bytes);
            if len > 0 {
                checkpoint.written = self.journal.add_snapshot(checkpoint.id, *key, &piece);
                self.last = checkpoint.written;
                bytes += len;
            }
        }
    }

    /// Asks the next role for its snapshot; it may have none. Returns false if there is no further
    /// role.
    fn ask_next(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let from = checkpoint.asked.map_or(Bound::Unbounded, |key| match checkpoint.goes_on {
            Some(_) => Bound::Included(key),
            None => Bound::Excluded(key),
        });
        let Some((key, role)) = self.roles.range_mut((from, Bound::Unbounded)).next() else { return false };
        let goes_on = checkpoint.goes_on.take().filter(|_| checkpoint.asked == Some(*key));
        checkpoint.asked = Some(*key);
        if let Some(snapshot) = role.snapshot(goes_on) {
            checkpoint.said = (*key, snapshot.said.into());
            checkpoint.files.extend(snapshot.files);
            checkpoint.goes_on = snapshot.goes_on;
        }
        true
    }

    pub(crate) fn take_checkpoint_files(&mut self) -> Option<Vec<String>> {
        let checkpoint = self.checkpoint.as_mut().filter(|checkpoint| !checkpoint.files.is_empty())?;
        checkpoint.is_syncing = true;
        Some(std::mem::take(&mut checkpoint.files))
    }

    pub(crate) fn files_synced(&mut self, outcome: Result<(), String>) {
        match (outcome, &mut self.checkpoint) {
            (Ok(()), Some(checkpoint)) => checkpoint.is_syncing = false,
            (Ok(()), None) => {}
            (Err(cause), _) => self.fail(cause),
        }
    }
}

fn cut(chunks: &mut VecDeque<Bytes>, most: usize) -> (Vec<Bytes>, usize) {
    let (mut taken, mut len) = (vec![], 0);
    while let Some(mut chunk) = chunks.pop_front() {
        let piece = chunk.split_to(chunk.len().min(most - len));
        len += piece.len();
        taken.push(piece);
        if !chunk.is_empty() {
            chunks.push_front(chunk);
            break;
        }
    }
    (taken, len)
}
