//! Texts for operators: views, causes, durations and roles.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use seriatim_model::{Endpoint, Member, NodeId, Pin, View};
use seriatim_protocol::control::{Ailment, LogEntry};

use crate::detector::Cause;

pub(crate) fn described(entry: &LogEntry, view: &View, why: &str, took: Duration) -> String {
    let config = &entry.config;
    let away = missing(entry, view);
    let replicas = view.shards.iter().map(|members| members.replicas.len());
    let fewest = replicas.fold(config.replicas as usize, usize::min);
    let (sequencers, wanted, replicas) = (view.sequencers.len(), config.sequencers, config.replicas);
    let mut text = format!("view {} starts at position {}", view.number, view.start);
    if !away.is_empty() {
        let away: Vec<String> = away.iter().map(ToString::to_string).collect();
        text += &format!(" without node {}", away.join(", node "));
    }
    text + &format!(
        ": {why}; {sequencers} of {wanted} sequencing replicas, at least {fewest} of {replicas} replicas of each shard; took \
         {}",
        Lasting(took)
    )
}

/// Nodes of the log that have no part in this view.
pub(crate) fn missing(entry: &LogEntry, view: &View) -> BTreeSet<NodeId> {
    let takes_part = |members: &[Member], node: &NodeId| members.iter().any(|member| member.node == *node);
    let meant = entry.sequencers.iter().filter(|node| !takes_part(&view.sequencers, node));
    let of_shards = view.shards.iter().flat_map(|members| {
        let meant = entry.shards.get(members.shard.0 as usize).into_iter().flatten();
        meant.filter(|node| !takes_part(&members.replicas, node))
    });
    meant.chain(of_shards).copied().collect()
}

pub(crate) fn nodes_of(view: &View) -> BTreeSet<NodeId> {
    let replicas = view.shards.iter().flat_map(|members| &members.replicas);
    view.sequencers.iter().chain(replicas).map(|member| member.node).collect()
}

/// A readable duration: `4.2 ms`, `36 ms`, `1.2 s`, `36 s`.
pub(crate) struct Lasting(pub(crate) Duration);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let (value, unit) = if seconds < 0.9995 { (seconds * 1e3, "ms") } else { (seconds, "s") };
        let digits = usize::from(value < 9.95);
        write!(f, "{value:.digits$} {unit}")
    }
}

pub(crate) struct Because(pub(crate) Cause);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Cause::Closed => write!(f, "its connection closed"),
            Cause::Silent(silent) => write!(f, "no heartbeat for {} ms", silent.as_millis()),
            Cause::Restarted => write!(f, "it was restarted"),
            Cause::Unwell(Ailment::DiskStalled) => {
                write!(f, "it reports a disk write that does not end")
            }
            Cause::Unwell(Ailment::Stuck) => write!(f, "it reports that it makes no progress"),
            Cause::Unwell(Ailment::DiskFull) => write!(f, "its disk is full"),
            Cause::Unwell(Ailment::Unheard) => {
                write!(f, "it receives only heartbeats from this node")
            }
            Cause::Unreached(silent) => write!(
                f,
                "it received only heartbeats for {} ms; check the network between the nodes",
                silent.as_millis()
            ),
        }
    }
}

/// The house word for the state of a node that is lost for this cause.
pub(crate) fn state(cause: Cause) -> &'static str {
    match cause {
        Cause::Closed | Cause::Restarted => "down",
        Cause::Silent(_) | Cause::Unreached(_) | Cause::Unwell(Ailment::Unheard) => "unreachable",
        Cause::Unwell(Ailment::DiskStalled | Ailment::Stuck | Ailment::DiskFull) => "blocked",
    }
}

/// The role at the beginning of a notice.
pub(crate) fn role_in_short(endpoint: Endpoint) -> String {
    match endpoint {
        Endpoint::Sequencer => "order".into(),
        Endpoint::Shard(shard) => format!("shard {shard}"),
        endpoint => role_in_words(endpoint),
    }
}

/// A role's description.
#[must_use]
pub fn role_in_words(endpoint: Endpoint) -> String {
    match endpoint {
        Endpoint::Register => "the register".into(),
        Endpoint::Controller => "the controller".into(),
        Endpoint::Sequencer => "the sequencing replica".into(),
        Endpoint::Shard(shard) => format!("the replica of shard {shard}"),
        Endpoint::Client(_) => "a client".into(),
        Endpoint::Node => "the node".into(),
    }
}

/// Reports a pin that retention limits have broken.
pub(crate) fn broken_pin(entry: &LogEntry, pin: &Pin) -> String {
    format!(
        "the pin '{}' is broken: the records from position {} on took more than {} bytes; the limits of the log trim \
         them; set the pin again, or remove it with 'seriatim log unpin {} {}'",
        pin.name, pin.position, pin.most_bytes, entry.name, pin.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_as_a_person_says_it() {
        let said = |micros| Lasting(Duration::from_micros(micros)).to_string();
        let expected = ["0.0 ms", "4.2 ms", "10 ms", "108 ms", "1.0 s", "1.2 s", "36 s", "3600 s"];
        let micros = [0, 4_240, 9_960, 107_900, 999_900, 1_240_000, 36_066_600, 3_600_000_000];
        assert_eq!(micros.map(said), expected);
    }
}
