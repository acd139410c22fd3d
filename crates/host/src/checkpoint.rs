//! Checkpoints: what the roles know is written anew, so that the journal's files can be used again.

use bytes::Bytes;
use seriatim_store::{CheckpointId, RoleKey};

use crate::host::Host;
use crate::journal::encode;

#[derive(Debug)]
pub(crate) struct Checkpoint {
    id: CheckpointId,
    snapshots: Vec<(RoleKey, Vec<Bytes>)>,
    /// To be synced first; taken by the syncer.
    files: Option<Vec<String>>,
}

impl Host {
    /// Begins a checkpoint, if the journal asks for one.
    pub(crate) fn checkpoint_if_due(&mut self) {
        if self.journal.checkpoint_due() && self.checkpoint.is_none() && self.can_checkpoint() {
            self.begin_checkpoint();
        }
    }

    /// Whether what the journal has may go once the roles told what they know. What there is of a dismissed replica does not
    /// go before the replica's files, and of roles that wait for the others' word it is not certain that they count.
    fn can_checkpoint(&self) -> bool {
        self.doomed.is_empty() && self.retired.is_empty() && self.has_returned()
    }

    /// The files that a checkpoint waits for, unless they were taken.
    pub(crate) fn take_checkpoint_files(&mut self) -> Option<Vec<String>> {
        self.checkpoint.as_mut()?.files.take()
    }

    fn begin_checkpoint(&mut self) {
        let id = self.journal.begin_checkpoint();
        let mut snapshots = vec![self.own_snapshot()];
        let mut files = vec![];
        for (key, role) in &mut self.roles {
            if let Some((snapshot, unsynced)) = role.snapshot() {
                snapshots.push((*key, encode(&snapshot)));
                files.extend(unsynced);
            }
        }
        self.checkpoint = Some(Checkpoint { id, snapshots, files: Some(files) });
    }

    pub(crate) fn files_synced(&mut self, outcome: Result<(), String>) {
        let Some(Checkpoint { id, snapshots, .. }) = self.checkpoint.take() else { return };
        match outcome {
            Ok(()) => {
                self.last = self.journal.finish_checkpoint(id, &snapshots);
                self.awaited = self.last;
            }
            Err(cause) => self.fail(cause),
        }
    }
}
