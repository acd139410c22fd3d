//! A sequencing replica's memory: its journal at durability `disk`, and its whole state for a
//! checkpoint or an orderly shutdown.

use bytes::Bytes;
use seriatim_model::storage::JournalEntry;
use seriatim_model::wire::{Encoder, Wire, WireError, decode_one, wire_enum, wire_struct};
use seriatim_model::{
    BoundIds, Durability, LogConfig, Member, Position, RecordId, SessionId, Ticket, Time, View, ViewNumber,
};

use super::sequencer::Sequencer;
use crate::mutation::Options;
use crate::parts::membership::Staged;
use crate::parts::{Content, Sessions};
use crate::roles::RoleEffect;

/// An entry of the journal at durability `disk`.
#[derive(Debug)]
pub(super) enum JournalRecord {
    Admitted { session: SessionId, first: u64, lowest: u64, entries: Vec<Content> },
    Dropped { from: Position, runs: Vec<BoundIds> },
    Claimed { claim: ViewNumber, adopts: bool },
    Staged(Staged),
    Started { view: View },
    Snapshot(Snapshot),
    Forgotten { session: SessionId },
    Ended { session: SessionId, at: u64 },
    Succeeded { session: SessionId, successor: SessionId },
    Expired { sessions: Vec<SessionId> },
}

wire_enum! {
    JournalRecord {
        1 => Admitted { session, first, lowest, entries },
        2 => Dropped { from, runs },
        3 => Claimed { claim, adopts },
        4 => Staged(staged),
        5 => Started { view },
        6 => Snapshot(snapshot),
        7 => Forgotten { session },
        8 => Ended { session, at },
        9 => Succeeded { session, successor },
        10 => Expired { sessions },
    }
}

#[derive(Debug)]
pub(super) struct Snapshot {
    claim: ViewNumber,
    number: ViewNumber,
    view: Option<View>,
    ordered: Position,
    sessions: Sessions,
    staged: Option<Staged>,
    entries: Vec<(RecordId, Content)>,
}

wire_struct! { Snapshot { claim, number, view, ordered, sessions, staged, entries } }

impl Sequencer {
    /// Rebuilds a replica from its journal; it waits for a new view.
    ///
    /// # Errors
    /// If an entry is invalid.
    pub fn recover(
        me: Member,
        config: LogConfig,
        options: Options,
        entries: impl IntoIterator<Item = JournalEntry>,
    ) -> Result<Self, WireError> {
        let mut replica = Self::new(me, config, options);
        for entry in entries {
            replica.replay(decode_one(entry)?);
        }
        Ok(replica)
    }

    /// One journal entry that replaces all earlier ones.
    pub(super) fn whole_state(&self) -> Vec<Bytes> {
        let mut out = Encoder::new();
        JournalRecord::Snapshot(Snapshot {
            claim: self.membership.claim,
            number: self.membership.number,
            view: self.membership.view.clone(),
            ordered: self.log.ordered(),
            sessions: self.log.sessions().clone(),
            staged: self.membership.staged.clone(),
            entries: self.log.ring().iter().map(|entry| (entry.id, entry.content.clone())).collect(),
        })
        .encode(&mut out);
        out.finish()
    }

    pub(super) fn persist(&mut self, record: &JournalRecord, out: &mut Vec<RoleEffect>) -> Ticket {
        match self.log.config().durability {
            Durability::Disk => self.gate.persist(record, out),
            Durability::Memory => self.gate.issued(),
        }
    }

    fn replay(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Admitted { session, first, lowest, entries } => {
                // The session may have been known, without records, when the floor rose. The
                // journal does not show that, so the session becomes known first.
                self.log.open(session);
                self.log.hold(Time::ZERO, session, (first, lowest), entries, Ticket(0));
            }
            JournalRecord::Dropped { from, runs } => self.log.order(from, &runs, self.orderer.is_none()),
            JournalRecord::Claimed { claim, adopts } => {
                self.membership.claim = claim;
                if let Some(number) = self.membership.staged_number().filter(|_| adopts) {
                    self.adopt_staged(number, Position::ZERO);
                }
            }
            JournalRecord::Staged(staged) => self.membership.prepare(staged),
            JournalRecord::Started { view } => {
                self.start(&view);
                self.orderer = None;
                self.work_is_due = false;
                self.membership.was_restarted();
            }
            JournalRecord::Snapshot(snapshot) => self.restore(snapshot),
            JournalRecord::Forgotten { session } => self.log.forget(session),
            JournalRecord::Expired { sessions } => self.log.expire(&sessions),
            JournalRecord::Ended { session, at } => self.log.end(session, at),
            JournalRecord::Succeeded { session, successor } => {
                self.log.succeed(session, successor);
            }
        }
    }

    fn restore(&mut self, snapshot: Snapshot) {
        let Snapshot { claim, number, view, ordered, sessions, staged, entries } = snapshot;
        (self.membership.claim, self.membership.number, self.membership.view) = (claim, number, view);
        self.membership.staged = staged;
        self.log.restore(ordered, sessions, entries);
    }

    pub(super) fn persist_claim(&mut self, adopts: bool, out: &mut Vec<RoleEffect>) {
        self.persist(&JournalRecord::Claimed { claim: self.membership.claim, adopts }, out);
    }

    pub(super) fn persist_staged(&mut self, staged: &Staged, out: &mut Vec<RoleEffect>) {
        self.persist(&JournalRecord::Staged(staged.clone()), out);
    }
}
