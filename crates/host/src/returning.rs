//! A node that comes back with what it held: its roles take part when the others have said what they remember of its disk.
//!
//! They are asked by heartbeats alone, so that takes as long as those do: until each node that the register knows is heard,
//! or suspected. A disk that was set back holds nothing that counts: its roles are forgotten, and come back in new
//! incarnations, as on an empty disk. Their stores are put aside when that happens.

use std::collections::BTreeSet;

use seriatim_model::{Address, Endpoint, Input, LogId, NodeId, Time};
use seriatim_protocol::{Deviation, Message};
use seriatim_store::{Lsn, RoleKey};

use crate::condition::NODE;
use crate::host::Host;
use crate::journal::{RoleRecord, encode};
use crate::mark::DiskMark;
use crate::recovery::Problem;
use crate::stranger::unknown_role;

/// How many messages of other nodes wait for roles that wait. What is lost beyond is said again.
const MOST_HELD_BACK: usize = 1024;

/// How far a node is with coming back.
#[derive(Debug)]
pub(crate) enum Returning {
    /// Its roles wait for these nodes' word; for that of the register, if there are none yet.
    Awaits(Option<BTreeSet<NodeId>>),
    /// Its roles are forgotten when the journal's entry is durable that says so.
    Forgets(Lsn),
    /// Its roles take part.
    Over,
    /// It found too late that its disk had been set back, and ends when the journal says so.
    Ends(Lsn, String),
}

impl Host {
    /// How far the node's disk is, for its [`Detector`](crate::Detector) to show.
    #[must_use]
    pub fn mark(&self) -> DiskMark {
        self.mark.clone()
    }

    /// Whether a role waits for what others remember of the node's disk.
    pub(crate) fn is_held_back(&self, key: RoleKey) -> bool {
        keeps_what_others_count_on(&key)
            && matches!(self.returning, Returning::Awaits(_) | Returning::Forgets(_))
    }

    /// A message for such a role: what nodes say it hears later, and clients are told to look again where the role is.
    pub(crate) fn hold_back(&mut self, key: RoleKey, from: Address, message: Message) {
        match from {
            Address::Node(..) if self.held_back.len() < MOST_HELD_BACK => {
                self.held_back.push((key, from, message));
            }
            Address::Node(..) => {}
            Address::Client(..) => {
                if let Some(answer) = unknown_role(&message) {
                    self.send(key, from, answer);
                }
            }
        }
    }

    /// The register told which nodes there are, or one of them was heard, or is suspected.
    pub(crate) fn hears_of_others(&mut self, now: Time) {
        if matches!(self.returning, Returning::Awaits(Some(_))) {
            self.await_others(now);
        }
    }

    /// The roles take part when each of the nodes that are known was heard or is suspected.
    pub(crate) fn await_others(&mut self, now: Time) {
        if !matches!(self.returning, Returning::Awaits(_)) {
            return;
        }
        let unheard = self.others.unheard(self.config.node);
        let is_over = unheard.is_empty();
        self.returning = Returning::Awaits(Some(unheard));
        if is_over {
            self.take_part(now);
        }
    }

    /// Another node remembers more of this node's disk than it held at the start.
    pub(crate) fn was_set_back(&mut self, by: NodeId) {
        if self.config.options.deviates(Deviation::SetBackUnnoticed) {
            return;
        }
        let cause = format!(
            "the disk holds less than node {by} has seen of it before this start: it was set back to an older state, or \
             lost what it had said to be synced"
        );
        match self.returning {
            Returning::Awaits(_) => {
                let lsn = self.note_set_back();
                let forgotten: Vec<RoleKey> =
                    self.roles.keys().copied().filter(keeps_what_others_count_on).collect();
                forgotten.into_iter().for_each(|key| self.forget(key));
                self.returning = Returning::Forgets(lsn);
                let cause = format!(
                    "{cause}; nothing that its replicas hold is counted on, and the others copy to them"
                );
                self.problems.push(Problem { log: LogId(0), endpoint: Endpoint::Node, cause });
            }
            Returning::Over => {
                let cause =
                    format!("{cause}. Start the node again: the others copy to it what it should hold");
                self.returning = Returning::Ends(self.note_set_back(), cause);
            }
            Returning::Forgets(_) | Returning::Ends(..) => {}
        }
    }

    /// The journal is durable so far.
    pub(crate) fn return_goes_on(&mut self, now: Time, durable: Lsn) {
        match &self.returning {
            Returning::Forgets(lsn) if *lsn <= durable => self.take_part(now),
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

    /// Whether the node ends because its disk had been set back: its roles are not to be told of any more.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.returning, Returning::Ends(..))
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
fn keeps_what_others_count_on(key: &RoleKey) -> bool {
    matches!(key.endpoint, Endpoint::Sequencer | Endpoint::Shard(_))
}
