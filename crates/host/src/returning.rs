//! Return of a node with state: its roles wait until each registered node is suspected or has
//! reported its memory of the disk, with heartbeats. If the disk was set back, the roles restart in
//! new incarnations as on an empty disk, and their stores are put aside.

use std::collections::BTreeMap;

use seriatim_model::{Address, Endpoint, Input, LogId, NodeId, Time};
use seriatim_protocol::{Message, Mutation, shard};
use seriatim_store::{Lsn, RoleKey};

use crate::condition::NODE;
use crate::host::Host;
use crate::journal::{RoleRecord, encode};
use crate::mark::DiskMark;
use crate::recovery::Problem;
use crate::role::Role;

/// Most deferred messages of controllers.
const MOST_HELD_BACK: usize = 1 << 14;

#[derive(Debug)]
pub(crate) enum Returning {
    /// Roles wait for the others' reports. Nothing is written meanwhile: new entries would hide how
    /// little this start began with.
    Awaits {
        /// Whether the register has listed the nodes.
        is_told: bool,
        /// Entries to write when the roles take part: incarnations of roles without a journal.
        records: Vec<(RoleKey, RoleRecord)>,
    },
    /// Roles take part when this entry is durable.
    Writes(Lsn),
    /// Roles take part.
    Over,
    /// The disk was found set back too late: the node stops when this entry is durable.
    Ends(Lsn, String),
}

impl Returning {
    pub(crate) fn new(roles: &BTreeMap<RoleKey, Role>, records: Vec<(RoleKey, RoleRecord)>) -> Self {
        match roles.keys().any(keeps_what_others_count_on) {
            true => Self::Awaits { is_told: false, records },
            false => Self::Over,
        }
    }
}

impl Host {
    /// Journal progress, for the [`Detector`](crate::Detector) to report.
    #[must_use]
    pub fn mark(&self) -> DiskMark {
        self.mark.clone()
    }

    /// Whether the role waits for the others' reports.
    pub(crate) fn is_held_back(&self, key: RoleKey) -> bool {
        keeps_what_others_count_on(&key) && !self.has_returned()
    }

    /// Whether the node's roles take part. Before, an orderly end does not close them.
    #[must_use]
    pub fn has_returned(&self) -> bool {
        matches!(self.returning, Returning::Over)
    }

    /// Defers a controller's message. Clients look the role up again; other senders repeat their
    /// messages.
    pub(crate) fn hold_back(&mut self, key: RoleKey, from: Address, message: Message) {
        let is_of_controller =
            matches!(message, Message::Control(_) | Message::Shard(shard::Message::Fence { .. }));
        match from {
            Address::Node(..) if is_of_controller && self.held_back.len() < MOST_HELD_BACK => {
                self.held_back.push((key, from, message));
            }
            Address::Node(..) => {}
            Address::Client(..) => {
                if let Some(answer) = message.not_hosted() {
                    self.send(key, from, answer);
                }
            }
        }
    }

    pub(crate) fn note_others(&mut self, now: Time) {
        if let Returning::Awaits { is_told, .. } = &mut self.returning {
            *is_told = true;
            self.hears_of_others(now);
        }
    }

    /// Roles take part once all other nodes have reported, or cannot.
    pub(crate) fn hears_of_others(&mut self, now: Time) {
        let Returning::Awaits { is_told: true, records } = &mut self.returning else { return };
        if !self.others.untold(self.config.node).is_empty() {
            return;
        }
        // A role without a journal must end its old incarnation before it sends in the new one.
        let records = std::mem::take(records);
        for (key, record) in &records {
            self.awaited = self.append(*key, &encode(record));
        }
        match records.is_empty() {
            true => self.take_part(now),
            false => self.returning = Returning::Writes(self.awaited),
        }
    }

    /// Handles a report that node `by` has seen more of this disk than it held at the start.
    pub(crate) fn was_set_back(&mut self, by: NodeId) {
        // Several nodes may report this, some of them late.
        if self.mark.is_another() || self.config.options.mutates(Mutation::SetBackUnnoticed) {
            return;
        }
        let cause = format!(
            "the disk holds less than it held before, as node {by} knows: it was set back to an older state, or lost synced \
             writes"
        );
        match self.returning {
            Returning::Awaits { .. } => {
                let lsn = self.note_set_back();
                let forgotten: Vec<RoleKey> =
                    self.roles.keys().copied().filter(keeps_what_others_count_on).collect();
                forgotten.iter().for_each(|key| self.forget(*key));
                self.forgotten.extend(forgotten);
                self.returning = Returning::Writes(lsn);
                let cause = format!(
                    "{cause}; its replicas do not count until they have copied everything from other nodes"
                );
                self.problems.push(Problem { log: LogId(0), endpoint: Endpoint::Node, cause });
            }
            Returning::Writes(_) | Returning::Over => {
                let cause =
                    format!("{cause}. Start the node again: it then copies everything from the other nodes");
                self.returning = Returning::Ends(self.note_set_back(), cause);
            }
            Returning::Ends(..) => {}
        }
    }

    pub(crate) fn return_goes_on(&mut self, now: Time, durable: Lsn) {
        match &self.returning {
            Returning::Writes(lsn) if *lsn <= durable => self.take_part(now),
            Returning::Ends(lsn, cause) if *lsn <= durable => self.end(cause.clone()),
            _ => {}
        }
    }

    fn note_set_back(&mut self) -> Lsn {
        let disk = self.draw();
        self.mark.becomes(disk);
        self.awaited = self.append(NODE, &encode(&RoleRecord::SetBack { disk }));
        self.awaited
    }

    fn take_part(&mut self, now: Time) {
        self.returning = Returning::Over;
        let held_back: Vec<RoleKey> = self.roles.keys().copied().filter(keeps_what_others_count_on).collect();
        for key in held_back {
            self.step(now, key, Input::DiskFull(self.disk_is_full()));
        }
        let messages = std::mem::take(&mut self.held_back).into_iter();
        self.local.extend(messages.map(|(key, from, message)| (key, Input::Message { from, message })));
    }
}

/// Whether other nodes rely on the role's state.
pub(crate) fn keeps_what_others_count_on(key: &RoleKey) -> bool {
    matches!(key.endpoint, Endpoint::Sequencer | Endpoint::Shard(_))
}
