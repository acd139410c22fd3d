//! The register's entry of a log: its members and its configuration.

use crate::wire::{Decoder, Encoder, Wire, WireError, decode_number};
use crate::{EndedSessions, LogConfig, LogId, NodeId, ShardId, View, ViewHistory, ViewNumber};

/// The register's entry of one log. Each compare-and-set of the register replaces all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The log's number.
    pub id: LogId,
    /// Name in the catalog.
    pub name: String,
    /// The log's configuration.
    pub config: LogConfig,
    /// The nodes that should host sequencing replicas.
    pub sequencers: Vec<NodeId>,
    /// The nodes that should host each shard's replicas; an empty list for a shard that left the
    /// log.
    pub shards: Vec<Vec<NodeId>>,
    /// The shards that should take no new records, in order.
    pub leaving: Vec<ShardId>,
    /// Counts changes of this entry.
    pub version: u64,
    /// The highest view number claimed so far.
    pub claimed: ViewNumber,
    /// Distinguishes claimants of `claimed`: a claimant whose answer was lost recognizes its claim.
    /// The upper half is its node's number.
    pub claimant: u64,
    /// The registered view; `None` before the first.
    pub view: Option<View>,
    /// Decides which view's version of a position is valid.
    pub history: ViewHistory,
    /// Why no view can be formed; `None` if one can.
    pub unavailable: Option<String>,
    /// Ended sessions, for orderings in which only this entry remembers them.
    pub ended: EndedSessions,
}

/// Flag in the encoded number of shards: a list of leaving shards follows. Older builds reject it.
const SOME_LEAVE: u32 = 1 << 31;
/// Flag in the encoded number of shards: ended sessions follow, as the last field.
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

    /// Node that claimed last; a number that no node has if an earlier build claimed.
    #[must_use]
    pub fn claimant_node(&self) -> NodeId {
        NodeId((self.claimant >> 32) as u32)
    }
}
