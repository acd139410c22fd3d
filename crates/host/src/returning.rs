//! A node that comes back with what it held: its roles take part when the others have said what
//! they remember of its disk.
//!
//! They are asked by heartbeats alone, so that takes as long as those do: until each node that the
//! register knows is heard, or suspected. A disk that was set back holds nothing that counts: its
//! roles are forgotten, and come back in new incarnations, as on an empty disk. Their stores are
//! put aside when that happens.

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

/// How many messages of controllers wait for roles that wait.
const MOST_HELD_BACK: usize = 1 << 14;

/// How far a node is with coming back.
#[derive(Debug)]
pub(crate) enum Returning {
    /// Its roles wait for the others' word. Nothing is written meanwhile: an incarnation that is
    /// cut short here would hide from the next one how little it began with.
    Awaits {
        /// Whether the register has told which nodes there are.
        is_told: bool,
        /// Entries for the journal when the others are heard: the incarnations that roles without a
        /// journal begin.
        records: Vec<(RoleKey, RoleRecord)>,
    },
    /// Its roles take part when the journal's entry is durable: the last of those, or that they are
    /// forgotten.
    Writes(Lsn),
    /// Its roles take part.
    Over,
    /// It found too late that its disk had been set back, and ends when the journal says so.
    Ends(Lsn, String),
}

impl Returning {
    /// A node that begins with these roles.
    pub(crate) fn new(roles: &BTreeMap<RoleKey, Role>, records: Vec<(RoleKey, RoleRecord)>) -> Self {
        match roles.keys().any(keeps_what_others_count_on) {
            true => Self::Awaits { is_told: false, records },
            false => Self::Over,
        }
    }
}

impl Host {
    /// How far the node's disk is, for its [`Detector`](crate::Detector) to show.
    #[must_use]
    pub fn mark(&self) -> DiskMark {
        self.mark.clone()
    }

    /// Whether a role waits for what others remember of the node's disk.
    pub(crate) fn is_held_back(&self, key: RoleKey) -> bool {
        keeps_what_others_count_on(&key) && !self.has_returned()
    }

    /// Whether the node's roles take part. An end before that is none of theirs.
    #[must_use]
    pub fn has_returned(&self) -> bool {
        matches!(self.returning, Returning::Over)
    }

    /// A message for such a role: it gets the messages of controllers later, and clients learn to
    /// look again where the role is. The senders of the rest repeat it.
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

    /// The register told which nodes there are.
    pub(crate) fn note_others(&mut self, now: Time) {
        if let Returning::Awaits { is_told, .. } = &mut self.returning {
            *is_told = true;
            self.hears_of_others(now);
        }
    }

    /// Another node has said what it remembers, or cannot. When all have, the roles take part.
    pub(crate) fn hears_of_others(&mut self, now: Time) {
        let Returning::Awaits { is_told: true, records } = &mut self.returning else { return };
        if !self.others.untold(self.config.node).is_empty() {
            return;
        }
        // Before a role without a journal says anything in its new incarnation, its old one must be
        // over.
        let records = std::mem::take(records);
        for (key, record) in &records {
            self.awaited = self.append(*key, &encode(record));
        }
        match records.is_empty() {
            true => self.take_part(now),
            false => self.returning = Returning::Writes(self.awaited),
        }
    }

    /// Another node remembers more of this node's disk than it held at the start.
    pub(crate) fn was_set_back(&mut self, by: NodeId) {
        // Several nodes may say so, and one of them late.
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

    /// The journal is durable so far.
    pub(crate) fn return_goes_on(&mut self, now: Time, durable: Lsn) {
        match &self.returning {
            Returning::Writes(lsn) if *lsn <= durable => self.take_part(now),
            Returning::Ends(lsn, cause) if *lsn <= durable => self.end(cause.clone()),
            _ => {}
        }
    }

    /// From now on the disk counts as another.
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

/// Whether the role keeps something that other nodes count on.
pub(crate) fn keeps_what_others_count_on(key: &RoleKey) -> bool {
    matches!(key.endpoint, Endpoint::Sequencer | Endpoint::Shard(_))
}
