//! How a follower sees to it that its leader gets what a dead client left with the follower only.
//!
//! Nothing tells an entry that its leader lacks from one that waits its turn there, but that the first stays the oldest
//! for ever. So the oldest entries are forwarded, a message's worth of them, and again after a pause that doubles as long
//! as they stay the oldest.

use std::time::Duration;

use seriatim_model::{Address, Endpoint, RecordId, SessionId, Time, limits};

use super::message::Message;
use super::sequencer::{Sequencer, reply};
use crate::parts::{Content, Entry};
use crate::roles::RoleEffect;

/// The longest pause before the same entries are forwarded again.
const MOST: Duration = Duration::from_secs(8);

/// When to forward.
#[derive(Clone, Debug, Default)]
pub(super) struct Forwarding {
    /// The oldest entry when something was forwarded last.
    oldest: Option<RecordId>,
    not_before: Time,
    pause: Duration,
}

impl Forwarding {
    fn is_due_at(&self, oldest: &Entry) -> Time {
        self.not_before.max(oldest.since + limits::FORWARD_AFTER)
    }

    fn forwarded(&mut self, now: Time, oldest: RecordId) {
        let is_stuck = self.oldest.replace(oldest) == Some(oldest);
        self.pause = if is_stuck { (self.pause * 2).min(MOST) } else { limits::FORWARD_AFTER };
        self.not_before = now + self.pause;
    }
}

impl Sequencer {
    fn oldest_that_follows(&self) -> Option<&Entry> {
        let follows = self.membership.is_open() && self.orderer.is_none();
        self.ring.iter().next().filter(|_| follows)
    }

    /// When a follower's oldest entry is so old that the leader may not have it.
    pub(super) fn forward_at(&self) -> Option<Time> {
        self.oldest_that_follows().map(|oldest| self.forwarding.is_due_at(oldest))
    }

    /// Follower: what a dead client left here only would stay for ever; the leader admits it like any append.
    pub(super) fn forward_old(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let Some(leader) = self.membership.view.as_ref().map(|view| view.leader) else { return };
        let Some(oldest) = self.oldest_that_follows() else { return };
        if now < self.forwarding.is_due_at(oldest) {
            return;
        }
        let oldest = oldest.id;
        self.forwarding.forwarded(now, oldest);
        let mut batches: Vec<(SessionId, u64, Vec<Content>)> = vec![];
        let mut bytes = 0;
        for entry in self.ring.iter().take(self.options.limits.batch_records) {
            bytes += entry.content.size();
            let is_first = entry.id == oldest;
            if now < entry.since + limits::FORWARD_AFTER
                || bytes > self.options.limits.batch_bytes && !is_first
            {
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
        for (session, first, entries) in batches {
            let message = Message::Forward { view: self.membership.number, session, first, entries };
            reply(Address::Node(leader, Endpoint::Sequencer), message, out);
        }
    }
}
