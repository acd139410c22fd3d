//! How a follower forwards entries that a dead client sent to it but not to the leader.
//!
//! The follower cannot distinguish them from entries that wait in the leader's ring, but a dead
//! client's entries stay the oldest here forever. So it forwards its oldest entries, at most one
//! message's worth, and repeats with a doubling backoff while they stay the oldest.

use std::time::Duration;

use seriatim_model::limits::{FORWARD_AFTER, Limits};
use seriatim_model::{Address, Endpoint, RecordId, SessionId, Time};

use super::message::Message;
use super::sequencer::{Sequencer, reply};
use crate::parts::{Backoff, Content, Entry, Ring};
use crate::roles::RoleEffect;

/// Longest pause before the same entries are forwarded again.
const MOST: Duration = Duration::from_secs(8);

/// Consecutive entries of a session, and the first number.
type Batch = (SessionId, u64, Vec<Content>);

#[derive(Clone, Debug)]
pub(super) struct Forwarding {
    /// The oldest entry at the last forwarding.
    oldest: Option<RecordId>,
    backoff: Backoff,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { oldest: None, backoff: Backoff::new(Time::ZERO, FORWARD_AFTER, MOST) }
    }
}

impl Forwarding {
    /// When the oldest entry is so old that the leader may lack it.
    pub(super) fn deadline(&self, held: &Ring) -> Option<Time> {
        held.iter().next().map(|oldest| self.is_due_at(oldest))
    }

    pub(super) fn take_due(&mut self, now: Time, held: &Ring, limits: &Limits) -> Vec<Batch> {
        let Some(oldest) = held.iter().next().filter(|oldest| now >= self.is_due_at(oldest)) else {
            return vec![];
        };
        self.forwarded(now, oldest.id);
        let mut batches: Vec<Batch> = vec![];
        let mut bytes = 0;
        for entry in held.iter().take(limits.batch_records) {
            bytes += entry.content.size();
            let is_first = entry.id == oldest.id;
            if now < entry.since + FORWARD_AFTER || bytes > limits.batch_bytes && !is_first {
                break;
            }
            match batches.last_mut() {
                Some((session, first, entries))
                    if *session == entry.id.session && *first + entries.len() as u64 == entry.id.number =>
                {
                    entries.push(entry.content.clone());
                }
                _ => batches.push((entry.id.session, entry.id.number, vec![entry.content.clone()])),
            }
        }
        batches
    }

    fn is_due_at(&self, oldest: &Entry) -> Time {
        self.backoff.at().max(oldest.since + FORWARD_AFTER)
    }

    fn forwarded(&mut self, now: Time, oldest: RecordId) {
        if self.oldest.replace(oldest) != Some(oldest) {
            self.backoff.helped();
        }
        self.backoff.tried(now);
    }
}

impl Sequencer {
    /// Follower: forwards old entries, which the leader admits like any append.
    pub(super) fn forward_old(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let (true, Some(view)) = (self.follows(), &self.membership.view) else { return };
        for (session, first, entries) in self.forwarding.take_due(now, self.log.ring(), &self.options.limits)
        {
            let message = Message::Forward { view: self.membership.number, session, first, entries };
            reply(Address::Node(view.leader, Endpoint::Sequencer), message, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Position, ShardId, Ticket};

    use super::*;

    fn held(entries: &[(u64, u64, Time)]) -> Ring {
        let mut ring = Ring::default();
        for (session, number, since) in entries {
            let id = RecordId { session: SessionId::new(Position(0), *session), number: *number };
            let content = Content::Put { shard: ShardId(0), bytes: 1 };
            ring.push(Entry { id, content, ticket: Ticket(0), since: *since });
        }
        ring
    }

    #[test]
    fn the_same_entries_are_forwarded_after_pauses_that_double() {
        let (ring, mut forwarding) = (held(&[(1, 0, Time::ZERO)]), Forwarding::default());
        let mut at = Time::ZERO + FORWARD_AFTER;
        for times in [1, 2, 4] {
            assert_eq!(forwarding.deadline(&ring), Some(at));
            assert_eq!(forwarding.take_due(at, &ring, &Limits::default()).len(), 1);
            at = at + FORWARD_AFTER * times;
        }
        assert!(forwarding.take_due(at, &held(&[]), &Limits::default()).is_empty());
    }

    #[test]
    fn one_batch_has_the_numbers_of_one_session() {
        let (old, young) = (Time::ZERO, Time::ZERO + FORWARD_AFTER);
        let ring = held(&[(1, 0, old), (1, 1, old), (2, 7, old), (1, 2, old), (1, 3, young)]);
        let batches = Forwarding::default().take_due(young, &ring, &Limits::default());
        let batches: Vec<_> = batches.iter().map(|(_, first, entries)| (*first, entries.len())).collect();
        assert_eq!(batches, [(0, 2), (7, 1), (2, 1)], "new records are not forwarded yet");
    }
}
