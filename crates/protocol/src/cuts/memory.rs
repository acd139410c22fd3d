//! Memory of a member of the ordering layer: its journal at durability `disk`, and its whole state
//! for a checkpoint or an orderly end.

use bytes::Bytes;
use seriatim_model::storage::JournalEntry;
use seriatim_model::wire::{Encoder, Wire, WireError, decode_one, wire_enum, wire_struct};
use seriatim_model::{Durability, LogConfig, Member, Position, Ticket, View, ViewNumber};

use super::cut::Cut;
use super::quotas::Quotas;
use super::sequencer::Sequencer;
use super::window::Windows;
use crate::mutation::Options;
use crate::parts::Sessions;
use crate::parts::membership::Staged;
use crate::roles::RoleEffect;

#[derive(Debug)]
pub(super) enum JournalRecord {
    /// `bound`: the cuts below it were dropped.
    Held {
        bound: Position,
        cut: Cut,
    },
    Claimed {
        claim: ViewNumber,
        adopts: bool,
    },
    Staged(Staged),
    Started {
        view: View,
    },
    Snapshot(Snapshot),
    SnapshotWithin {
        snapshot: Snapshot,
        quotas: Bytes,
        windows: Option<Windows>,
    },
}

wire_enum! {
    JournalRecord {
        1 => Held { bound, cut },
        2 => Claimed { claim, adopts },
        3 => Staged(staged),
        4 => Started { view },
        5 => Snapshot(snapshot),
        6 => SnapshotWithin { snapshot, quotas, windows },
    }
}

#[derive(Debug)]
pub(super) struct Snapshot {
    claim: ViewNumber,
    number: ViewNumber,
    view: Option<View>,
    bound: Position,
    cuts: Vec<Cut>,
    sessions: Sessions,
    staged: Option<Staged>,
}

wire_struct! { Snapshot { claim, number, view, bound, cuts, sessions, staged } }

impl Sequencer {
    /// Rebuilds a member from its journal. The member then waits for a new view.
    ///
    /// # Errors
    /// If an entry is not one of ours.
    pub fn recover(
        me: Member,
        config: LogConfig,
        options: Options,
        entries: impl IntoIterator<Item = JournalEntry>,
    ) -> Result<Self, WireError> {
        let mut member = Self::new(me, config, options);
        for entry in entries {
            member.replay(decode_one(entry)?);
        }
        Ok(member)
    }

    /// The whole state as one journal entry that replaces all others.
    pub(super) fn whole_state(&self) -> Vec<Bytes> {
        let mut out = Encoder::new();
        let snapshot = Snapshot {
            claim: self.membership.claim,
            number: self.membership.number,
            view: self.membership.view.clone(),
            bound: self.bound,
            cuts: self.cuts.iter().cloned().collect(),
            sessions: self.sessions.clone(),
            staged: self.membership.staged.clone(),
        };
        match self.config.order.has_quotas() {
            false => JournalRecord::Snapshot(snapshot),
            true => {
                let (quotas, windows) = (self.quotas.carried(&self.owed), self.windows.clone());
                JournalRecord::SnapshotWithin { snapshot, quotas, windows }
            }
        }
        .encode(&mut out);
        out.finish()
    }

    pub(super) fn persist(&mut self, record: &JournalRecord, out: &mut Vec<RoleEffect>) -> Ticket {
        match self.config.durability {
            Durability::Disk => self.gate.persist(record, out),
            Durability::Memory => self.gate.issued(),
        }
    }

    fn replay(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Held { bound, cut } => {
                self.let_go_below(bound);
                cut.apply(&mut self.sessions, self.options);
                self.take_course(&cut);
                self.keep(cut);
            }
            JournalRecord::Claimed { claim, adopts } => {
                self.membership.claim = claim;
                if let Some(number) = self.membership.staged_number().filter(|_| adopts) {
                    self.adopt_staged(number, Position::ZERO);
                }
            }
            JournalRecord::Staged(staged) => self.membership.prepare(staged),
            JournalRecord::Started { view } => {
                self.start(&view, self.gate.issued());
                self.leader = None;
                self.membership.was_restarted();
            }
            JournalRecord::SnapshotWithin { snapshot, quotas, windows } => {
                self.replay(JournalRecord::Snapshot(snapshot));
                (self.quotas, self.owed) = Quotas::of_carried(&quotas);
                self.windows = windows;
            }
            JournalRecord::Snapshot(Snapshot { claim, number, view, bound, cuts, sessions, staged }) => {
                (self.membership.claim, self.membership.number, self.membership.view) = (claim, number, view);
                (self.bound, self.cuts, self.sessions, self.membership.staged) =
                    (bound, cuts.into(), sessions, staged);
            }
        }
    }

    pub(super) fn persist_claim(&mut self, adopts: bool, out: &mut Vec<RoleEffect>) {
        self.persist(&JournalRecord::Claimed { claim: self.membership.claim, adopts }, out);
    }
}
