//! How a node is, and how its logs get on, by its own word: for people who look at a cluster.

use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, wire_struct};
use seriatim_model::{LogId, NodeId, ShardId};

use super::message::Ailment;

/// How a node is, by its own word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The nodes that it takes for gone.
    pub suspects: Vec<NodeId>,
    /// How many of its suspicions since it was started turned out wrong: the other node had been
    /// there all the time.
    pub wrong_suspicions: u64,
    /// How long a write of its journal has lately taken, its sync included, in microseconds; 0
    /// before the first.
    pub journal_write_us: u64,
    /// Whether its disk has no room for records.
    pub has_full_disk: bool,
    /// How many bytes more find room on its disk, if there is a bound that it knows.
    pub free_bytes: Option<u64>,
    /// Which version of the program it runs; empty if an earlier build does not tell.
    pub version: String,
    /// For how long it has been running, in milliseconds.
    pub up_ms: u64,
    /// Why it cannot serve at present, if it says so.
    pub ailment: Option<Ailment>,
    /// How many bytes its files take, if it could look in time.
    pub used_bytes: Option<u64>,
    /// Whether the cluster's register is in this node.
    pub has_register: bool,
    /// The logs that it has a sequencing replica or shard replicas of, in order; at most
    /// [`CONDITION_LOGS`](seriatim_model::limits::CONDITION_LOGS).
    pub logs: Vec<LogCondition>,
    /// Its shard replicas that take part in no view, or do not hold everything yet that they
    /// should, in order; at most as many. Those of retired shards take part in none, and are told
    /// only if they lack something.
    pub incomplete: Vec<ReplicaOf>,
    /// With how many free bytes a node whose disk is full takes records again, as things are now.
    pub wanted_bytes: Option<u64>,
    /// The part of its disk that is free, in percent, if that is less than a fifth.
    pub free_percent: Option<u64>,
    /// After how many seconds its disk is full at the rate of the last minute. `None`: the disk
    /// does not fill up, more than a fifth is free, or it is too early to tell.
    pub full_in_s: Option<u64>,
    /// The nodes that views which were formed at this node leave out, as long as those are the
    /// latest views; at most [`CONDITION_LOGS`](seriatim_model::limits::CONDITION_LOGS).
    pub left_out: Vec<LeftOut>,
}

/// A node that the view of a log leaves out, although the log is to have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The log.
    pub log: LogId,
    /// The node.
    pub node: NodeId,
    /// How long ago it was lost, or left out where it was not lost, in milliseconds.
    pub ago_ms: u64,
    /// Why it was left out; empty if that is not known.
    pub why: String,
    /// In how many milliseconds it is taken back, at the earliest. `None`: it is awaited, as it is
    /// down, or its disk is full.
    pub back_in_ms: Option<u64>,
}

wire_struct! { LeftOut { log, node, ago_ms, why, back_in_ms } }

/// Names a replica of a shard on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaOf {
    /// The log.
    pub log: LogId,
    /// Its shard.
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
        // Nodes of earlier builds end here, or after the next two, or before one of the others.
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

/// How a log gets on at a node, by the node's word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCondition {
    /// Which log.
    pub log: LogId,
    /// Whether the node has a sequencing replica of it.
    pub sequences: bool,
    /// Whether that takes part in a view.
    pub is_open: bool,
    /// Which of its shards the node has replicas of.
    pub shards: Vec<ShardId>,
    /// How many bytes the files of these take, if the node could look in time.
    pub bytes: Option<u64>,
    /// For how long the sequencing replica has got nowhere, in milliseconds, looked at once a
    /// second: it holds something and nothing became stable, or it takes part in no view. 0 if it
    /// gets on, or has nothing to do.
    pub stands_ms: u64,
    /// How long ago the oldest that it holds was taken, in milliseconds, to the second; 0 if it
    /// holds nothing.
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
        // Two numbers that are missing, and a vector of nothing.
        let encoded = encoded.slice(..encoded.len() - 1 - 1 - 4);
        assert_eq!(decode_one::<Condition>(encoded.clone()).unwrap(), now);
        // Of a vector of one, two numbers, a flag, and a number that may be missing.
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
