//! The register's entry of a log: who takes part in it, and what it promises.

use crate::wire::{Decoder, Encoder, Wire, WireError, decode_number};
use crate::{EndedSessions, LogConfig, LogId, NodeId, ShardId, View, ViewHistory, ViewNumber};

/// The register's entry of one log. A compare-and-set covers it whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Which log.
    pub id: LogId,
    /// Its name in the catalog.
    pub name: String,
    /// Its promises.
    pub config: LogConfig,
    /// The nodes that are to host its sequencing replicas.
    pub sequencers: Vec<NodeId>,
    /// The nodes that are to host the replicas of each shard; none for one that has left.
    pub shards: Vec<Vec<NodeId>>,
    /// The shards that are to take no new records, in order.
    pub leaving: Vec<ShardId>,
    /// Counts the changes of this entry.
    pub version: u64,
    /// The highest view number claimed so far.
    pub claimed: ViewNumber,
    /// Tells the claimant of `claimed` from any other, so that a lost answer to a claim is not
    /// mistaken for somebody else's claim, or the other way round. The upper half is its node.
    pub claimant: u64,
    /// The registered view; none before the first.
    pub view: Option<View>,
    /// Which registered view decides where.
    pub history: ViewHistory,
    /// Why no view can be formed, if that is so.
    pub unavailable: Option<String>,
    /// The sessions that other runs went on with, where nobody else remembers them.
    pub ended: EndedSessions,
}

/// In the number of shards, says that those that leave follow them. Whoever does not know that
/// shards leave refuses the number.
const SOME_LEAVE: u32 = 1 << 31;
/// The same for sessions that have ended, which come last.
const SOME_ENDED: u32 = 1 << 30;

impl Wire for LogEntry {
    fn encode(&self, out: &mut Encoder) {
        self.id.encode(out);
        self.name.encode(out);
        self.config.encode(out);
        self.sequencers.encode(out);
        let some_leave = if self.leaving.is_empty() { 0 } else { SOME_LEAVE };
        let some_ended = if self.ended.is_empty() { 0 } else { SOME_ENDED };
        (self.shards.len() as u32 | some_leave | some_ended).encode(out);
        self.shards.iter().for_each(|nodes| nodes.encode(out));
        if some_leave != 0 {
            self.leaving.encode(out);
        }
        self.version.encode(out);
        self.claimed.encode(out);
        self.claimant.encode(out);
        self.view.encode(out);
        self.history.encode(out);
        self.unavailable.encode(out);
        if some_ended != 0 {
            self.ended.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (id, name) = (Wire::decode(input)?, Wire::decode(input)?);
        let (config, sequencers) = (Wire::decode(input)?, Wire::decode(input)?);
        let count = u32::decode(input)?;
        let mut shards = vec![];
        for _ in 0..count & !(SOME_LEAVE | SOME_ENDED) {
            shards.push(Wire::decode(input)?);
        }
        let leaving = if count & SOME_LEAVE == 0 { vec![] } else { Wire::decode(input)? };
        let (version, claimed, claimant) =
            (decode_number("LogEntry.version", input)?, Wire::decode(input)?, Wire::decode(input)?);
        let (view, history, unavailable) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let ended = if count & SOME_ENDED == 0 { EndedSessions::default() } else { Wire::decode(input)? };
        Ok(Self {
            id,
            name,
            config,
            sequencers,
            shards,
            leaving,
            version,
            claimed,
            claimant,
            view,
            history,
            unavailable,
            ended,
        })
    }
}

impl LogEntry {
    /// The number of the registered view, or [`ViewNumber::NONE`].
    #[must_use]
    pub fn view_number(&self) -> ViewNumber {
        self.view.as_ref().map_or(ViewNumber::NONE, |view| view.number)
    }

    /// The node of the claimant; some number that is no node's, if an earlier build claimed.
    #[must_use]
    pub fn claimant_node(&self) -> NodeId {
        NodeId((self.claimant >> 32) as u32)
    }
}
