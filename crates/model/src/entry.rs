//! The register's entry of a log: its members and its configuration.

use crate::pin::decode_pins;
use crate::wire::{Decoder, Encoder, Wire, WireError, decode_number};
use crate::{EndedSessions, LogConfig, LogId, NodeId, Pin, ShardId, View, ViewHistory, ViewNumber};

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
    /// Positions that retention keeps, in the order of names. Decoding rejects an entry with more
    /// than [`MAX_PINS`](crate::limits::MAX_PINS), or with two of a name.
    pub pins: Vec<Pin>,
}

/// Flag in the encoded number of shards: a list of leaving shards follows. Older builds reject it.
const SOME_LEAVE: u32 = 1 << 31;
/// Flag in the encoded number of shards: ended sessions follow, after all fields above.
const SOME_ENDED: u32 = 1 << 30;
/// Flag in the encoded number of shards: pins follow, as the last field.
const SOME_PINNED: u32 = 1 << 29;

impl Wire for LogEntry {
    fn encode(&self, out: &mut Encoder) {
        self.id.encode(out);
        self.name.encode(out);
        self.config.encode(out);
        self.sequencers.encode(out);
        let some_leave = if self.leaving.is_empty() { 0 } else { SOME_LEAVE };
        let some_ended = if self.ended.is_empty() { 0 } else { SOME_ENDED };
        let some_pinned = if self.pins.is_empty() { 0 } else { SOME_PINNED };
        (self.shards.len() as u32 | some_leave | some_ended | some_pinned).encode(out);
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
        if some_pinned != 0 {
            self.pins.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (id, name) = (Wire::decode(input)?, Wire::decode(input)?);
        let (config, sequencers) = (Wire::decode(input)?, Wire::decode(input)?);
        let count = u32::decode(input)?;
        let mut shards = vec![];
        for _ in 0..count & !(SOME_LEAVE | SOME_ENDED | SOME_PINNED) {
            shards.push(Wire::decode(input)?);
        }
        let leaving = if count & SOME_LEAVE == 0 { vec![] } else { Wire::decode(input)? };
        let (version, claimed, claimant) =
            (decode_number("LogEntry.version", input)?, Wire::decode(input)?, Wire::decode(input)?);
        let (view, history, unavailable) = (Wire::decode(input)?, Wire::decode(input)?, Wire::decode(input)?);
        let ended = if count & SOME_ENDED == 0 { EndedSessions::default() } else { Wire::decode(input)? };
        let pins = if count & SOME_PINNED == 0 { vec![] } else { decode_pins(input)? };
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
            pins,
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

    /// Whether another version has the same fields as this one, except for pins.
    #[must_use]
    pub fn is_alike_but_for_pins(&self, other: &Self) -> bool {
        *self == Self { version: self.version, pins: self.pins.clone(), ..other.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{decode_one, encode_one};
    use crate::{Position, limits};

    fn pin(name: &str, position: u64) -> Pin {
        Pin { name: name.into(), position: Position(position), most_bytes: 1 << 20, is_broken: false }
    }

    fn entry(pins: Vec<Pin>) -> LogEntry {
        LogEntry {
            id: LogId(7),
            name: "l".into(),
            config: LogConfig::default(),
            sequencers: vec![NodeId(1)],
            shards: vec![vec![NodeId(1), NodeId(2)]],
            leaving: vec![],
            version: 3,
            claimed: ViewNumber(2),
            claimant: 5,
            view: None,
            history: ViewHistory::default(),
            unavailable: None,
            ended: EndedSessions::default(),
            pins,
        }
    }

    /// An entry with the pins "a" at 9 and "b" at 4, which is broken, as a release wrote it.
    const GOLDEN: &str = "\
         0700000000000000010000006c0201020000000300020003000200400000000000000000001000010000\
         000100000001000020020000000100000002000000030000000000000002000000000000000500000000\
         000000000000000000020000000100000061090000000000000000001000000000000001000000620400\
         000000000000000010000000000001";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn pins_come_back_and_an_entry_without_pins_keeps_its_bytes() {
        let pinned = entry(vec![pin("a", 9), Pin { is_broken: true, ..pin("b", 4) }]);
        let written = encode_one(&pinned);
        assert_eq!(hex(&written), GOLDEN);
        assert_eq!(decode_one::<LogEntry>(written.clone()), Ok(pinned.clone()));
        let plain = encode_one(&entry(vec![]));
        assert_eq!(decode_one::<LogEntry>(plain.clone()), Ok(entry(vec![])));
        let added = written.len() - plain.len();
        assert_eq!(added, 4 + 2 * (4 + 1 + 8 + 8 + 1), "a count, and two pins");
        let differs = (0..plain.len()).filter(|at| plain[*at] != written[*at]).count();
        assert_eq!(differs, 1, "only the byte with the flag");
    }

    #[test]
    fn hostile_pins_are_rejected() {
        let refused = |pins: Vec<Pin>| decode_one::<LogEntry>(encode_one(&entry(pins))).is_err();
        let names = (0..=limits::MAX_PINS).map(|number| format!("p{number:03}"));
        let many: Vec<Pin> = names.map(|name| pin(&name, 1)).collect();
        assert!(!refused(many[1..].to_vec()) && refused(many));
        for wrong in [
            vec![pin("b", 1), pin("a", 1)],
            vec![pin("a", 1), pin("a", 2)],
            vec![pin("", 1)],
            vec![pin("a/b", 1)],
            vec![pin("a", limits::MAX_NUMBER + 1)],
            vec![Pin { most_bytes: limits::MAX_NUMBER + 1, ..pin("a", 1) }],
        ] {
            assert!(refused(wrong.clone()), "{wrong:?}");
        }
        let written = encode_one(&entry(vec![pin("a", 9), pin("b", 4)]));
        for bit in 0..written.len() * 8 {
            let mut bytes = written.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = decode_one::<LogEntry>(bytes.into()) {
                assert!(found.pins.len() <= limits::MAX_PINS);
                assert!(found.pins.is_sorted_by(|one, next| one.name < next.name));
            }
        }
        for end in 0..written.len() {
            assert!(decode_one::<LogEntry>(written.slice(..end)).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn versions_that_differ_in_pins_are_alike_but_for_them() {
        let before = entry(vec![pin("a", 9)]);
        let raised = LogEntry { version: 4, pins: vec![pin("a", 11)], ..before.clone() };
        assert!(before.is_alike_but_for_pins(&raised));
        let claimed = LogEntry { claimed: ViewNumber(9), ..raised };
        assert!(!before.is_alike_but_for_pins(&claimed));
    }
}
