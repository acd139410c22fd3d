//! The self-reported condition of a node and its logs, for operators.

use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, wire_struct};
use seriatim_model::{LogId, NodeId, ShardId};

use super::message::Ailment;

/// The self-reported condition of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The nodes that it suspects.
    pub suspects: Vec<NodeId>,
    /// Number of its wrong suspicions since it started.
    pub wrong_suspicions: u64,
    /// Recent duration of a journal write and its sync, in microseconds; 0 before the first write.
    pub journal_write_us: u64,
    /// Whether its disk has no room for records.
    pub has_full_disk: bool,
    /// Bytes that still fit on its disk; `None`: no known bound.
    pub free_bytes: Option<u64>,
    /// The node's program version; empty if it runs an earlier build.
    pub version: String,
    /// Milliseconds since its start.
    pub up_ms: u64,
    /// Why it cannot serve at present.
    pub ailment: Option<Ailment>,
    /// Bytes of the node's files; `None` if counting them took too long.
    pub used_bytes: Option<u64>,
    /// Whether the cluster's register is on this node.
    pub has_register: bool,
    /// The logs with a role on the node, in order of ids; at most
    /// [`CONDITION_LOGS`](seriatim_model::limits::CONDITION_LOGS).
    pub logs: Vec<LogCondition>,
    /// The node's shard replicas without a view or with missing records, in order; at most
    /// [`CONDITION_LOGS`](seriatim_model::limits::CONDITION_LOGS). Replicas of retired shards only
    /// if records are missing.
    pub incomplete: Vec<ReplicaOf>,
    /// Free bytes at which a full disk takes records again.
    pub wanted_bytes: Option<u64>,
    /// Free part of its disk in percent, if less than a fifth.
    pub free_percent: Option<u64>,
    /// Seconds until the node's disk is full at the last minute's rate. `None`: its use does not
    /// grow, more than a fifth is free, or it is too early to tell.
    pub full_in_s: Option<u64>,
    /// Nodes that the latest view of a log excludes, for views formed by this node; at most
    /// [`CONDITION_LOGS`](seriatim_model::limits::CONDITION_LOGS).
    pub left_out: Vec<LeftOut>,
}

/// An assigned node that the log's view excludes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The log.
    pub log: LogId,
    /// The node.
    pub node: NodeId,
    /// Milliseconds since the node was lost, or else since a view excluded it.
    pub ago_ms: u64,
    /// Why it was excluded; empty if unknown.
    pub why: String,
    /// Milliseconds until a view may take it back. `None`: it is down, or its disk is full.
    pub back_in_ms: Option<u64>,
}

wire_struct! { LeftOut { log, node, ago_ms, why, back_in_ms } }

/// A replica of a shard on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaOf {
    /// The log.
    pub log: LogId,
    /// The shard.
    pub shard: ShardId,
}

wire_struct! { ReplicaOf { log, shard } }

impl Wire for Condition {
    fn encode(&self, out: &mut Encoder) {
        self.suspects.encode(out);
        self.wrong_suspicions.encode(out);
        self.journal_write_us.encode(out);
        self.has_full_disk.encode(out);
        self.free_bytes.encode(out);
        self.version.encode(out);
        self.up_ms.encode(out);
        self.ailment.encode(out);
        self.used_bytes.encode(out);
        self.has_register.encode(out);
        self.logs.encode(out);
        self.incomplete.encode(out);
        self.wanted_bytes.encode(out);
        self.free_percent.encode(out);
        self.full_in_s.encode(out);
        self.left_out.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (suspects, wrong_suspicions, journal_write_us) =
            (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let before = Self { suspects, wrong_suspicions, journal_write_us, ..Self::default() };
        // A message of an earlier build ends at one of these checks.
        if input.remaining() == 0 {
            return Ok(before);
        }
        let before = Self { has_full_disk: Wire::decode(input)?, free_bytes: Wire::decode(input)?, ..before };
        if input.remaining() == 0 {
            return Ok(before);
        }
        let before = Self {
            version: Wire::decode(input)?,
            up_ms: Wire::decode(input)?,
            ailment: Wire::decode(input)?,
            used_bytes: Wire::decode(input)?,
            has_register: Wire::decode(input)?,
            logs: Wire::decode(input)?,
            ..before
        };
        if input.remaining() == 0 {
            return Ok(before);
        }
        let before = Self { incomplete: Wire::decode(input)?, ..before };
        if input.remaining() == 0 {
            return Ok(before);
        }
        let before = Self { wanted_bytes: Wire::decode(input)?, ..before };
        if input.remaining() == 0 {
            return Ok(before);
        }
        Ok(Self {
            free_percent: Wire::decode(input)?,
            full_in_s: Wire::decode(input)?,
            left_out: Wire::decode(input)?,
            ..before
        })
    }
}

/// The self-reported condition of a log at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCondition {
    /// The log.
    pub log: LogId,
    /// Whether the node has a sequencing replica of it.
    pub sequences: bool,
    /// Whether that replica takes part in a view.
    pub is_open: bool,
    /// Its shards with a replica on the node.
    pub shards: Vec<ShardId>,
    /// Bytes of the files of these replicas; `None` if counting them took too long.
    pub bytes: Option<u64>,
    /// Milliseconds without progress, measured once a second: its replica holds entries and none
    /// becomes stable, or it has no view. 0 if the replica makes progress or is idle.
    pub stands_ms: u64,
    /// Age of the oldest entry that it holds, in milliseconds, to the second; 0 if none.
    pub lag_ms: u64,
}

wire_struct! { LogCondition { log, sequences, is_open, shards, bytes, stands_ms, lag_ms } }

#[cfg(test)]
mod tests {
    use seriatim_model::wire::{decode_one, encode_one};

    use super::*;

    #[test]
    fn what_earlier_builds_say_is_understood() {
        let logs = vec![LogCondition { log: LogId(7), bytes: Some(3), ..LogCondition::default() }];
        let incomplete = vec![ReplicaOf { log: LogId(7), shard: ShardId(1) }];
        let (suspects, version) = (vec![NodeId(2)], "1.2.3".to_owned());
        let now = Condition {
            suspects,
            version,
            free_bytes: Some(5),
            logs,
            up_ms: 9,
            incomplete,
            wanted_bytes: Some(6),
            ..Condition::default()
        };
        let left_out =
            LeftOut { node: NodeId(3), why: "x".into(), back_in_ms: Some(4), ..LeftOut::default() };
        let newest = Condition { free_percent: Some(7), left_out: vec![left_out], ..now.clone() };
        assert_eq!(decode_one::<Condition>(encode_one(&newest)).unwrap(), newest);
        let encoded = encode_one(&now);
        assert_eq!(decode_one::<Condition>(encoded.clone()).unwrap(), now);
        // Cuts off the last three fields: two absent numbers and an empty vector.
        let encoded = encoded.slice(..encoded.len() - 1 - 1 - 4);
        assert_eq!(decode_one::<Condition>(encoded.clone()).unwrap(), now);
        // Lengths in bytes: a vector of one id, two numbers; then a flag and an optional number.
        let first = 4 + 4 + 8 + 8;
        let read = |len| decode_one::<Condition>(encoded.slice(..len));
        let wanted = 1 + 8;
        let before = Condition { wanted_bytes: None, ..now };
        assert_eq!(read(encoded.len() - wanted).unwrap(), before);
        let before = Condition { incomplete: vec![], ..before };
        assert_eq!(read(encoded.len() - wanted - 4 - 8 - 4).unwrap(), before);
        let before = Condition { version: String::new(), logs: vec![], up_ms: 0, ..before };
        assert_eq!(read(first + 1 + 9).unwrap(), before);
        assert_eq!(read(first).unwrap(), Condition { free_bytes: None, ..before });
        assert!(read(first + 1).is_err(), "it ends in the middle");
    }
}
