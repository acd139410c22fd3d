//! Messages of an ended session that arrive late, as from a slow network.

use seriatim_model::{Address, Endpoint, Record, SessionId, ShardId, Time};
use seriatim_protocol::Message;
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::erwin::{Message as Sequencing, ShardMessage};
use seriatim_protocol::parts::Content;

use crate::random::Random;

/// Sends a few appends with the number at which a session ended.
#[derive(Debug)]
pub struct LateMessages {
    session: SessionId,
    at: u64,
    left: u32,
    next_at: Time,
}

impl LateMessages {
    /// A sender for `session`, which ended at number `at`.
    #[must_use]
    pub fn new(now: Time, session: SessionId, at: u64) -> Self {
        Self { session, at, left: 4, next_at: now }
    }

    /// When to wake it. `None` once everything is sent.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (self.left > 0).then_some(self.next_at)
    }

    /// Sends an append to all members of the view when due.
    pub fn wake(&mut self, now: Time, entry: &LogEntry, random: &mut Random) -> Vec<(Address, Message)> {
        if self.deadline().is_none_or(|at| now < at) {
            return vec![];
        }
        self.left -= 1;
        self.next_at = now + random.millis(1, 300);
        let Some(view) = &entry.view else { return vec![] };
        let places = entry.config.order.places_by_position();
        let append = Sequencing::Append {
            view: view.number,
            session: self.session,
            first: self.at,
            lowest: self.at,
            entries: vec![match places {
                true => Record::new(b"after the end", 0).into(),
                false => Content::Put { shard: ShardId(0), bytes: 0 },
            }],
        };
        let to = |node| Address::Node(node, Endpoint::Sequencer);
        let mut sends: Vec<(Address, Message)> =
            view.sequencers.iter().map(|member| (to(member.node), append.clone().into())).collect();
        let put = ShardMessage::Put {
            view: view.number,
            session: self.session,
            first: self.at,
            records: vec![Record::new(b"after the end", 0)],
        };
        let replicas = view.shard(ShardId(0)).filter(|_| !places).into_iter();
        let to = |node| Address::Node(node, Endpoint::Shard(ShardId(0)));
        sends.extend(
            replicas
                .flat_map(|members| &members.replicas)
                .map(|member| (to(member.node), put.clone().into())),
        );
        sends
    }
}
