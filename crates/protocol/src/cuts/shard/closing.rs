//! Positions from a closing cut: versions of the claim that makes it. They count once its view is
//! registered.

use seriatim_model::storage::{Ordered, StorageCommand};
use seriatim_model::{Address, Endpoint, Member, Position, ViewNumber};

use super::LocalPath;
use super::message::Message;
use crate::roles::RoleEffect;
use crate::shard::{Core, Write, send};

impl LocalPath {
    /// Whether to obey this claim's closing cut: the replica is fenced for the claim, which is no
    /// view yet.
    pub(super) fn may_close(
        core: &Core,
        from: Address,
        claim: ViewNumber,
        out: &mut Vec<RoleEffect>,
    ) -> bool {
        core.accepts(from, claim, out) && claim > core.view_number()
    }

    /// Primary: replies when all required replicas hold the part.
    pub(super) fn close(
        &mut self,
        core: &mut Core,
        from: Address,
        (view, batch): (ViewNumber, Position),
        backups: &[Member],
        runs: Vec<Ordered>,
        out: &mut Vec<RoleEffect>,
    ) {
        if core.answers_again(from, (view, batch), out) {
            return;
        }
        let held_here = core.begin_batch(from, (view, batch), backups, vec![]);
        for backup in backups {
            if core.batches[&(view, batch)].backups.contains(&backup.node) {
                let (incarnation, runs) = (backup.incarnation, runs.clone());
                let message = Message::ReplicateClosing { view, batch, incarnation, runs };
                send(Address::Node(backup.node, Endpoint::Shard(core.shard)), message, out);
            }
        }
        if !held_here {
            self.hold_closing(core, Write::Primary(view, batch), (view, batch), runs, out);
        }
    }

    pub(super) fn replicate_closing(
        &mut self,
        core: &mut Core,
        from: Address,
        (view, batch): (ViewNumber, Position),
        runs: Vec<Ordered>,
        out: &mut Vec<RoleEffect>,
    ) {
        if !core.replicated_again(from, (view, batch), out) {
            self.hold_closing(core, Write::Backup(from, view, batch), (view, batch), runs, out);
        }
    }

    fn hold_closing(
        &mut self,
        core: &mut Core,
        write: Write,
        (view, first): (ViewNumber, Position),
        runs: Vec<Ordered>,
        out: &mut Vec<RoleEffect>,
    ) {
        if self.misses_names(core.shard, &runs) {
            // A named record is missing here. All receivers reported it, so this store failed
            // since.
            return;
        }
        let end = first + runs.iter().map(|run| run.ids.count).sum::<u64>();
        self.ids.place(view, first, &runs);
        core.hold(self, write, end, StorageCommand::Order { view, first, runs }, out);
    }
}
