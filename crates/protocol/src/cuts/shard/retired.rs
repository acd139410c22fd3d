//! A replica of a retired shard: it takes part in no view, learns the cuts that it has missed, and
//! gives out what the shard has.
//!
//! It has everything that its last view left when it was a member of that and missed nothing then.
//! What the ordering layer owes it are names of records that it has: a cut has only what all
//! replicas of a shard hold.

use seriatim_model::storage::{MissingRange, Ordered, StorageCommand};
use seriatim_model::{IdRun, Position, ShardId, Ticket, Time, ViewNumber, limits};

use super::message::Message;
use super::{LocalPath, Out};
use crate::mutation::Mutation;
use crate::parts::held_ids::not_below;
use crate::parts::{Backoff, IdSet};
use crate::shard::{Applied, Core, DataPath, Retired, send};

/// The longest wait before the leader is asked again.
const ASK_MOST: std::time::Duration = std::time::Duration::from_secs(1);

/// Cuts that are asked for.
#[derive(Clone, Debug)]
pub(super) struct Owing {
    retired: Retired,
    asks: Backoff,
    /// The write of what came.
    write: Option<Ticket>,
}

impl Owing {
    /// When the replica asks next. None while it copies records, or writes the cuts.
    pub(super) fn deadline(&self, core: &Core) -> Option<Time> {
        (self.write.is_none() && core.missing.is_none()).then(|| self.asks.at())
    }
}

impl LocalPath {
    /// The shard is retired in a view that is registered. A replica of the shard's last view asks
    /// for the cuts that it has missed, once it has copied the records that it lacks.
    pub(super) fn learn_retired(&mut self, core: &Core, now: Time, retired: Retired, out: &mut Out) {
        let is_member = core.is_named() && core.view_number() == retired.of;
        let lacks_cuts = is_member && core.stable < retired.ends;
        let asks = Backoff::new(now, limits::RESEND_AFTER, ASK_MOST);
        self.owing = lacks_cuts.then_some(Owing { retired, asks, write: None });
        self.ask_for_owed(core, now, out);
    }

    /// Asks the leader, again if need be. A replica that still copies records asks later.
    pub(super) fn ask_for_owed(&mut self, core: &Core, now: Time, out: &mut Out) {
        let may_ask = |owing: &&mut Owing| owing.deadline(core).is_some_and(|at| now >= at);
        let Some(owing) = self.owing.as_mut().filter(may_ask) else { return };
        owing.asks.tried(now);
        send(owing.retired.leader, Message::Owe { view: owing.retired.view }, out);
    }

    /// The leader says what the replica has missed. It is in the store before any of it is given
    /// out.
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
            // It has reported less than that: its disk went back, and it does not know. More than
            // this it never has.
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

    /// The deliberate defect: records without positions get empty ones.
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

    /// Writes up to this ticket are in the store. What was owed is given out, and what nobody gave
    /// a position is discarded: it is submitted to other shards, if it is not in the log.
    pub(super) fn owed_stored(&mut self, core: &mut Core, ticket: Ticket, out: &mut Out) {
        let is_here = |owing: &Owing| owing.write.is_some_and(|write| write <= ticket);
        if let Some(Owing { retired, .. }) = self.owing.take_if(|owing| is_here(owing)) {
            self.applied = Applied::from(retired.until);
            core.advance_stable(self, retired.until, out);
            self.discard_unplaced(core, out);
        }
    }

    /// There was no room for what was owed: it is asked for again.
    pub(super) fn owed_failed(&mut self, ticket: Ticket) {
        if let Some(owing) = self.owing.as_mut().filter(|owing| owing.write == Some(ticket)) {
            owing.write = None;
        }
    }
}
