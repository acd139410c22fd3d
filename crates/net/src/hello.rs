//! The first frames of a connection.
//!
//! Every version can read them: fields are only added at the end, and unknown fields are ignored.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError, wire_enum, wire_newtype, wire_struct};
use seriatim_model::{LogId, NodeId, limits::Limits};

use crate::frame::{FrameKind, FrameTooLarge, frame_chunks};
use crate::limits::MAX_TEXT_BYTES;

/// Id of a cluster, drawn at random at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

wire_newtype!(ClusterId);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Versions of messages that one side supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

wire_struct! { VersionRange { min, max } }

impl VersionRange {
    /// Versions of this build.
    pub const OURS: Self = Self { min: 10, max: 10 };

    /// The newest common version.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { self.min.fmt(f) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

/// The connecting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A node of the cluster.
    Node {
        /// Node number.
        id: NodeId,
        /// Process incarnation.
        incarnation: u64,
        /// Advertised address.
        advertised: String,
    },
    /// A client.
    Client {
        /// Name, for people who look at a node's connections.
        name: String,
    },
}

wire_enum! { Caller { 1 => Node { id, incarnation, advertised }, 2 => Client { name } } }

/// Reserved for a proof of the caller's identity; ignored.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(pub Bytes);

wire_newtype!(Credential);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({} bytes)", self.0.len())
    }
}

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Bulk traffic.
    #[default]
    Bulk,
    /// Heartbeats, which must not wait behind bulk traffic.
    Heartbeats,
}

wire_enum! { Lane { 1 => Bulk {}, 2 => Heartbeats {} } }

/// A node's `heartbeat_every` and `heartbeats_missed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beats {
    /// Interval of its heartbeats, and of its answers, in microseconds.
    pub every_us: u64,
    /// Intervals without an answer after which it suspects a node.
    pub missed: u32,
}

wire_struct! { Beats { every_us as number, missed } }

/// Least timeout of a node, in heartbeat intervals of any other node.
const BEARS: u32 = 2;

impl Beats {
    /// Heartbeats by `limits`.
    #[must_use]
    pub fn of(limits: &Limits) -> Self {
        let every_us = u64::try_from(limits.heartbeat_every.as_micros()).unwrap_or(u64::MAX);
        Self { every_us, missed: limits.heartbeats_missed }
    }

    fn every(self) -> Duration {
        Duration::from_micros(self.every_us)
    }

    fn timeout(self) -> Duration {
        self.every().saturating_mul(self.missed)
    }

    /// Whether two healthy nodes with these settings never suspect each other.
    ///
    /// A node hears its heartbeat repeated in the other's next one, so two answers are at most one
    /// interval of each node apart. A timeout of twice either interval is never shorter.
    /// Differences within this rule only make one node detect a failure later than the other.
    #[must_use]
    pub fn bears(self, other: Self) -> bool {
        let awaits = |node: Self, other: Self| node.timeout() >= other.every().saturating_mul(BEARS);
        awaits(self, other) && awaits(other, self)
    }
}

impl fmt::Display for Beats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every_ms = self.every_us as f64 / 1000.0;
        write!(f, "heartbeat_every_ms = {every_ms}, heartbeats_missed = {}", self.missed)
    }
}

/// Heartbeats of a connecting node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beating {
    /// Heartbeat settings.
    pub beats: Beats,
    /// Milliseconds since the node's start.
    pub up_ms: u64,
}

wire_struct! { Beating { beats, up_ms } }

/// First frame of the connecting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Supported versions.
    pub versions: VersionRange,
    /// The requested cluster. `None`: any. A node always names one.
    pub cluster: Option<ClusterId>,
    /// The caller.
    pub caller: Caller,
    /// Reserved for a proof of the caller's identity.
    pub credential: Option<Credential>,
    /// Purpose of the connection. Frames of version 1 end before this field.
    pub lane: Lane,
    /// A node's heartbeats; clients have none. Frames of earlier versions end before this field.
    pub beats: Option<Beating>,
}

impl Wire for Hello {
    fn encode(&self, out: &mut Encoder) {
        self.versions.encode(out);
        self.cluster.encode(out);
        self.caller.encode(out);
        self.credential.encode(out);
        self.lane.encode(out);
        self.beats.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (versions, cluster) = (Wire::decode(input)?, Wire::decode(input)?);
        let (caller, credential) = (Wire::decode(input)?, Wire::decode(input)?);
        let lane = if input.remaining() == 0 { Lane::Bulk } else { Lane::decode(input)? };
        let beats = if input.remaining() == 0 { None } else { Option::decode(input)? };
        Ok(Self { versions, cluster, caller, credential, lane, beats })
    }
}

impl Hello {
    /// Hello of a client that accepts any cluster.
    #[must_use]
    pub fn client(name: impl Into<String>) -> Self {
        let caller = Caller::Client { name: name.into() };
        Self {
            versions: VersionRange::OURS,
            cluster: None,
            caller,
            credential: None,
            lane: Lane::Bulk,
            beats: None,
        }
    }

    /// Hello of a node.
    #[must_use]
    pub fn node(cluster: ClusterId, id: NodeId, incarnation: u64, advertised: impl Into<String>) -> Self {
        let caller = Caller::Node { id, incarnation, advertised: advertised.into() };
        Self {
            versions: VersionRange::OURS,
            cluster: Some(cluster),
            caller,
            credential: None,
            lane: Lane::Bulk,
            beats: None,
        }
    }

    /// Sets the cluster.
    #[must_use]
    pub fn to(self, cluster: ClusterId) -> Self {
        Self { cluster: Some(cluster), ..self }
    }

    /// Sets the heartbeats.
    #[must_use]
    pub fn beating(self, beats: Beats) -> Self {
        Self { beats: Some(Beating { beats, up_ms: 0 }), ..self }
    }

    /// Sets the time since the node's start.
    #[must_use]
    pub fn after(self, up: Duration) -> Self {
        let up_ms = u64::try_from(up.as_millis()).unwrap_or(u64::MAX);
        Self { beats: self.beats.map(|beating| Beating { up_ms, ..beating }), ..self }
    }

    /// Sets the purpose.
    #[must_use]
    pub fn over(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }
}

/// First frame of the accepting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The common version.
    pub version: u16,
    /// Cluster id.
    pub cluster: ClusterId,
    /// Node number.
    pub node: NodeId,
    /// Process incarnation.
    pub node_incarnation: u64,
}

wire_struct! { Welcome { version, cluster, node, node_incarnation } }

/// Why a connection is refused or ended. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCode {
    /// The caller wants another cluster.
    WrongCluster,
    /// No common version.
    VersionUnsupported,
    /// Too many connections.
    Full,
    /// Malformed bytes, or an unexpected frame.
    Malformed,
    /// The handshake took too long.
    TimedOut,
    /// The nodes' heartbeat settings conflict.
    BeatsDiffer,
    /// A code of a later version.
    Unknown(u16),
}

const CODES: [(u16, RefusalCode); 6] = [
    (1, RefusalCode::WrongCluster),
    (2, RefusalCode::VersionUnsupported),
    (3, RefusalCode::Full),
    (4, RefusalCode::Malformed),
    (5, RefusalCode::TimedOut),
    (6, RefusalCode::BeatsDiffer),
];

impl Wire for RefusalCode {
    fn encode(&self, out: &mut Encoder) {
        let number = match self {
            Self::Unknown(number) => *number,
            known => CODES.iter().find(|(_, code)| code == known).expect("every known code has a number").0,
        };
        number.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let number = u16::decode(input)?;
        let known = CODES.iter().find(|(known, _)| *known == number);
        Ok(known.map_or(Self::Unknown(number), |(_, code)| *code))
    }
}

/// Last frame before its sender closes the connection, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer refused: {text}")]
pub struct Refusal {
    /// The reason, for programs.
    pub code: RefusalCode,
    /// The fault and the remedy, for people.
    pub text: String,
}

wire_struct! { Refusal { code, text } }

impl Refusal {
    /// Cuts `text` to [`MAX_TEXT_BYTES`].
    #[must_use]
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let fits = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=text.len().min(MAX_TEXT_BYTES)).rev().find(fits).unwrap_or(0);
        text.truncate(end);
        Self { code, text }
    }
}

/// A frame whose body later versions may extend.
pub(crate) trait Greeting: Wire {
    const KIND: FrameKind;

    fn read(body: Bytes) -> Result<Self, WireError> {
        Self::decode(&mut Decoder::new(body))
    }

    fn chunks(&self) -> Result<Vec<Bytes>, FrameTooLarge> {
        frame_chunks(Self::KIND, LogId(0), |out| self.encode(out))
    }
}

impl Greeting for Hello {
    const KIND: FrameKind = FrameKind::Hello;
}

impl Greeting for Welcome {
    const KIND: FrameKind = FrameKind::Welcome;
}

impl Greeting for Refusal {
    const KIND: FrameKind = FrameKind::Refusal;
}

#[cfg(test)]
mod tests {
    use super::*;
    use seriatim_model::wire::encode_one;

    #[test]
    fn the_newest_common_version_is_chosen() {
        let range = |min, max| VersionRange { min, max };
        assert_eq!(range(1, 3).common(range(2, 5)), Some(3));
        assert_eq!(range(2, 5).common(range(1, 3)), Some(3));
        assert_eq!(range(1, 1).common(range(2, 3)), None);
        assert_eq!(range(3, 1).common(range(1, 3)), None, "an empty range has nothing in common");
    }

    #[test]
    fn later_versions_may_add_fields() {
        let hello = Hello::node(ClusterId(5), NodeId(2), 77, "10.0.0.2:7700");
        let longer = [encode_one(&hello), Bytes::from_static(b"more")].concat();
        assert_eq!(Hello::read(longer.into()).unwrap(), hello);
    }

    #[test]
    fn a_greeting_of_version_1_is_readable() {
        let hello = Hello::node(ClusterId(5), NodeId(2), 77, "10.0.0.2:7700");
        let longer = encode_one(&hello);
        assert_eq!(Hello::read(longer.slice(..longer.len() - 2)).unwrap(), hello);
    }

    #[test]
    fn a_greeting_without_heartbeats_is_readable() {
        let hello = Hello::node(ClusterId(5), NodeId(2), 77, "10.0.0.2:7700").over(Lane::Heartbeats);
        let longer = encode_one(&hello);
        assert_eq!(Hello::read(longer.slice(..longer.len() - 1)).unwrap(), hello);
        let beating = hello.beating(Beats { every_us: 20_000, missed: 5 }).after(Duration::from_secs(3));
        assert_eq!(Hello::read(encode_one(&beating)).unwrap(), beating);
    }

    #[test]
    fn heartbeats_go_together_if_each_node_awaits_twice_the_others_interval() {
        let beats = |every_ms: u64, missed| Beats { every_us: every_ms * 1000, missed };
        let usual = beats(20, 5);
        for (other, goes) in [
            (usual, true),
            (beats(50, 5), true),
            (beats(51, 5), false),
            (beats(200, 5), false),
            (beats(8, 5), true),
            (beats(7, 5), false),
            (beats(1, 40), true),
            (beats(20, 1000), true),
            (beats(20, 2), true),
        ] {
            assert_eq!((usual.bears(other), other.bears(usual)), (goes, goes), "{other}");
        }
        let steps = [beats(20, 5), beats(20, 1000), beats(10_000, 1000), beats(10_000, 5)];
        assert!(steps.windows(2).all(|step| step[0].bears(step[1])));
        assert!(beats(u64::MAX / 1000, u32::MAX).bears(beats(u64::MAX / 1000, 2)));
    }

    #[test]
    fn an_unknown_refusal_is_still_a_refusal() {
        let refusal = Refusal::new(RefusalCode::Unknown(999), "because");
        assert_eq!(Refusal::read(encode_one(&refusal)).unwrap(), refusal);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(Refusal::new(RefusalCode::Full, "é".repeat(5000)).text.len(), MAX_TEXT_BYTES);
        let cut = Refusal::new(RefusalCode::Full, format!("a{}", "é".repeat(5000)));
        assert_eq!(cut.text.len(), MAX_TEXT_BYTES - 1);
    }

    #[test]
    fn a_credential_is_not_printed() {
        let secret = Credential(Bytes::from_static(b"secret"));
        assert_eq!(format!("{secret:?}"), "Credential(6 bytes)");
    }
}
