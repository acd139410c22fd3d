//! A replica of a retired shard: it takes part in no view, learns the cuts that it missed, and
//! serves the shard's records.
//!
//! A member of the shard's last view that missed nothing has all its records. It lacks only names:
//! a cut has only records that all replicas of a shard hold.

use seriatim_model::storage::{MissingRange, Ordered, StorageCommand};
use seriatim_model::{IdRun, Position, ShardId, Ticket, Time, ViewNumber, limits};

use super::message::Message;
use super::{LocalPath, Out};
use crate::mutation::Mutation;
use crate::parts::held_ids::not_below;
use crate::parts::{Backoff, IdSet};
use crate::shard::{Applied, Core, DataPath, Retired, send};

const ASK_MOST: std::time::Duration = std::time::Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct Owing {
    retired: Retired,
    asks: Backoff,
    /// The write of the received cuts.
    write: Option<Ticket>,
}

impl Owing {
    /// When the replica asks next. `None` while it copies records or writes the cuts.
    pub(super) fn deadline(&self, core: &Core) -> Option<Time> {
        (self.write.is_none() && core.missing.is_none()).then(|| self.asks.at())
    }
}

impl LocalPath {
    /// A replica of the shard's last view asks for missed cuts, after it has copied missing
    /// records.
    pub(super) fn learn_retired(&mut self, core: &Core, now: Time, retired: Retired, out: &mut Out) {
        let is_member = core.is_named() && core.view_number() == retired.of;
        let lacks_cuts = is_member && core.stable < retired.ends;
        let asks = Backoff::new(now, limits::RESEND_AFTER, ASK_MOST);
        self.owing = lacks_cuts.then_some(Owing { retired, asks, write: None });
        self.ask_for_owed(core, now, out);
    }

    pub(super) fn ask_for_owed(&mut self, core: &Core, now: Time, out: &mut Out) {
        let may_ask = |owing: &&mut Owing| owing.deadline(core).is_some_and(|at| now >= at);
        let Some(owing) = self.owing.as_mut().filter(may_ask) else { return };
        owing.asks.tried(now);
        send(owing.retired.leader, Message::Owe { view: owing.retired.view }, out);
    }

    /// Stores the missed cuts, whose records the replica then serves.
    pub(super) fn got_owed(
        &mut self,
        core: &mut Core,
        (view, of): (ViewNumber, ViewNumber),
        (first, runs): (Position, Vec<Ordered>),
        out: &mut Out,
    ) {
        let end = Position(runs.iter().fold(first.0, |end, run| end.saturating_add(run.ids.count)));
        let is_asked = |owing: &&Owing| {
            let Owing { retired, write, .. } = owing;
            write.is_none() && (retired.view, retired.of, retired.until) == (view, of, end)
        };
        if self.owing.as_ref().filter(is_asked).is_none() || core.missing.is_some() {
            return;
        }
        let runs = if core.options.mutates(Mutation::RetiredKeeps) { self.filled(core, runs) } else { runs };
        let (first, rest) = not_below(core.stable, first, runs);
        if self.misses_names(core.shard, &rest) {
            // A named record is missing: the disk lost it unnoticed. The replica copies everything
            // up to `end`, the shard's last position.
            core.missing = Some(MissingRange { from: core.stable, end });
            self.owing = None;
            return;
        }
        self.ids.forget_placed();
        self.ids.place(of, first, &rest);
        let ticket = match rest.is_empty() {
            true => core.gate.issued(),
            false => core.gate.store(StorageCommand::Order { view: of, first, runs: rest }, out),
        };
        if let Some(owing) = &mut self.owing {
            owing.write = Some(ticket);
        }
        if core.gate.is_durable(ticket) {
            self.owed_stored(core, ticket, out);
        }
    }

    /// The deliberate defect: gives empty positions to records without one.
    fn filled(&self, core: &Core, runs: Vec<Ordered>) -> Vec<Ordered> {
        let named: IdSet = runs.iter().map(|run| run.ids).collect();
        let mut unplaced: Vec<IdRun> =
            self.ids.unplaced().into_iter().flat_map(|ids| named.missing(ids)).collect();
        let mut filled = vec![];
        for mut run in runs {
            while run.shard == ShardId::NOBODY && run.ids.count > 0 {
                let Some(ids) = unplaced.pop() else { break };
                let own = ids.head(run.ids.count.min(ids.count));
                if own.count < ids.count {
                    unplaced.push(ids.tail(own.count));
                }
                run.ids = run.ids.tail(own.count);
                filled.push(Ordered { ids: own, shard: core.shard, is_void: false });
            }
            if run.ids.count > 0 {
                filled.push(run);
            }
        }
        filled
    }

    /// The missed cuts are stored: discards records without a position, which their clients submit
    /// to other shards.
    pub(super) fn owed_stored(&mut self, core: &mut Core, ticket: Ticket, out: &mut Out) {
        let is_here = |owing: &Owing| owing.write.is_some_and(|write| write <= ticket);
        if let Some(Owing { retired, .. }) = self.owing.take_if(|owing| is_here(owing)) {
            self.applied = Applied::from(retired.until);
            core.advance_stable(self, retired.until, out);
            self.discard_unplaced(core, out);
        }
    }

    pub(super) fn owed_failed(&mut self, ticket: Ticket) {
        if let Some(owing) = self.owing.as_mut().filter(|owing| owing.write == Some(ticket)) {
            owing.write = None;
        }
    }
}
