//! Checkpoints: what the roles know is written anew, so that the journal's files can be used again.
//!
//! A node may have many roles, and a role may know much. So this goes in pieces, each of so many
//! bytes and roles at most, between the steps of ordinary work: the next piece follows when the one
//! before is durable, and the files are synced that it relies on. What a role says stands for
//! everything that it has journaled until then, not until the checkpoint began.

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;
use seriatim_model::{LogId, Time, limits};
use seriatim_protocol::Mutation;
use seriatim_store::{CheckpointId, Lsn, RoleKey};

use crate::condition::NODE;
use crate::host::Host;

/// A checkpoint that is under way.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    id: CheckpointId,
    /// The role that was asked last, in the order of keys, and where it goes on if it says what it
    /// knows in parts.
    asked: Option<RoleKey>,
    goes_on: Option<LogId>,
    /// The snapshot of that role, or of the node itself, as far as it is not in the journal yet.
    said: (RoleKey, VecDeque<Bytes>),
    /// The last entry of the piece before.
    written: Lsn,
    /// To be synced; taken by the syncer.
    files: Vec<String>,
    is_syncing: bool,
}

impl Host {
    /// Begins a checkpoint if the journal asks for one, adds the next piece to the one under way,
    /// or finishes it.
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

    /// Whether a checkpoint is under way and waits for nothing.
    pub(crate) fn checkpoint_is_ready(&self) -> bool {
        let is_ready = |checkpoint: &Checkpoint| {
            checkpoint.files.is_empty()
                && !checkpoint.is_syncing
                && self.checkpoint_fits()
                && checkpoint.written <= self.journal.durable()
        };
        self.checkpoint.as_ref().is_some_and(is_ready) && self.has_returned()
    }

    /// Whether there is room for what it has still to say. On a full disk it waits for that: what
    /// is left is for trims, which make more, and a checkpoint that ends halfway makes none.
    fn checkpoint_fits(&self) -> bool {
        let needs = self.journal.checkpoint_needs();
        !self.has_full_disk()
            || self.free_bytes().is_none_or(|free| free + self.journal.ready_bytes() >= needs)
    }

    /// Whether what the journal has may go once the roles told what they know. What there is of a
    /// dismissed replica does not go before the replica's files, and of roles that wait for the
    /// others' word it is not certain that they count.
    pub(crate) fn can_checkpoint(&self) -> bool {
        self.doomed.is_empty() && self.retired.is_empty() && self.has_returned()
    }

    /// The node itself is the first to say what it knows, before anything else is journaled: what
    /// it says is not only about what is journaled in its name.
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

    /// Adds the next piece, and says whether there was one: otherwise all roles have said what they
    /// know.
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
                // The beginning of what a role says is to be journaled before anything that the
                // role does later.
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

    /// Asks the next role, if there is one, which may have nothing to say.
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

    /// The files that a checkpoint waits for, unless they were taken.
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

/// Takes at most so many bytes from the front, and says how many.
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
