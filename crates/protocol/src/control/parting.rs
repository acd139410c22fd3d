//! Nodes that leave the cluster, and when a log no longer needs one.
//!
//! A *drained* node takes no new roles. Others take over its roles, and hold all records before it
//! leaves a view. A *removed* node has no roles, and its number is never reused. The register
//! stores both; controllers act on them.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::wire::{wire_enum, wire_struct};
use seriatim_model::{LogConfig, LogEntry, LogId, NodeId, RetiredShard, ShardId};

use super::catalog;
use super::message::Refusal;

/// The state of a node that does not stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Other nodes take over its roles.
    Drained {
        /// The only successor; `None`: any node.
        by: Option<NodeId>,
    },
    /// It has left permanently.
    Removed,
}

wire_enum! { Parting { 1 => Drained { by }, 2 => Removed {} } }

/// A node and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeParting {
    /// The node.
    pub node: NodeId,
    /// Its state.
    pub parting: Parting,
}

wire_struct! { NodeParting { node, parting } }

/// An operator's order for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartingChange {
    /// Others take over its roles.
    Drain {
        /// The only successor; `None`: any node.
        by: Option<NodeId>,
    },
    /// It stays after all.
    Stay,
    /// It has left permanently.
    Remove,
}

wire_enum! { PartingChange { 1 => Drain { by }, 2 => Stay {}, 3 => Remove {} } }

/// The drained and removed nodes.
pub type Partings = BTreeMap<NodeId, Parting>;

/// These nodes and their states as a list, for messages.
#[must_use]
pub fn listed(partings: &Partings) -> Vec<NodeParting> {
    partings.iter().map(|(node, parting)| NodeParting { node: *node, parting: *parting }).collect()
}

/// The map of a list from a message.
#[must_use]
pub fn gathered(partings: Vec<NodeParting>) -> Partings {
    partings.into_iter().map(|NodeParting { node, parting }| (node, parting)).collect()
}

/// The removed nodes.
pub fn removed(partings: &Partings) -> impl Iterator<Item = NodeId> {
    partings.iter().filter(|(_, parting)| **parting == Parting::Removed).map(|(node, _)| *node)
}

/// The nodes that may take roles.
#[must_use]
pub fn staying(nodes: impl IntoIterator<Item = NodeId>, partings: &Partings) -> Vec<NodeId> {
    nodes.into_iter().filter(|node| !partings.contains_key(node)).collect()
}

/// Places a new log on the staying nodes; see [`catalog::place`].
///
/// # Errors
/// If they cannot hold it.
pub fn place(
    id: LogId,
    name: &str,
    config: &LogConfig,
    nodes: &[NodeId],
    partings: &Partings,
) -> Result<LogEntry, Refusal> {
    let place = |nodes: &[NodeId]| catalog::place(id, name.to_owned(), config.clone(), nodes);
    place(&staying(nodes.iter().copied(), partings)).map_err(|refusal| match place(nodes) {
        Ok(_) => {
            let drained = nodes.iter().copied().filter(|node| partings.contains_key(node)).collect();
            let reason = format!("{refusal}; draining nodes take no new roles: {}", named(&drained));
            Refusal::Impossible { reason }
        }
        Err(_) => refusal,
    })
}

/// The state of `node` after an operator's `change`: `None` if it does not change, `Some(None)` if
/// the node stays. `known` are all nodes that joined; `keeper` hosts the register.
///
/// # Errors
/// The reason, for a person.
pub fn change(
    (known, keeper): (&BTreeSet<NodeId>, Option<NodeId>),
    entries: &[&LogEntry],
    partings: &Partings,
    node: NodeId,
    change: PartingChange,
) -> Result<Option<Option<Parting>>, Refusal> {
    let now = partings.get(&node).copied();
    let refused = |reason: String| Err(Refusal::Impossible { reason });
    match (now, change) {
        (Some(Parting::Removed), PartingChange::Remove) => return Ok(None),
        (Some(Parting::Removed), _) => {
            return refused(format!("node {node} was removed, and its number is not used again"));
        }
        (None, _) if !known.contains(&node) => {
            return refused(format!("there is no node {node}; the cluster has {}", named(known)));
        }
        _ => {}
    }
    if keeper == Some(node) && change != PartingChange::Stay {
        return refused(format!("node {node} holds the register of this cluster and cannot leave"));
    }
    let wanted = match change {
        PartingChange::Stay => None,
        PartingChange::Remove => {
            if let Some(roles) = roles(entries, node) {
                return refused(format!(
                    "node {node} still has roles {roles}; drain it first: seriatim admin drain {node}"
                ));
            }
            Some(Parting::Removed)
        }
        PartingChange::Drain { by } => {
            let others: BTreeSet<NodeId> = known.iter().copied().filter(|other| *other != node).collect();
            if staying(others.iter().copied(), partings).is_empty() {
                return refused(format!("no other node can take over from node {node}"));
            }
            if let Some(by) = by.filter(|_| now != Some(Parting::Drained { by })) {
                check_successor(&others, entries, partings, node, by)?;
            }
            Some(Parting::Drained { by })
        }
    };
    Ok((wanted != now).then_some(wanted))
}

/// Fails unless `by` can take over all roles of `node`.
fn check_successor(
    others: &BTreeSet<NodeId>,
    entries: &[&LogEntry],
    partings: &Partings,
    node: NodeId,
    by: NodeId,
) -> Result<(), Refusal> {
    let reason = if by == node {
        format!("node {node} cannot take over from itself")
    } else if !others.contains(&by) && !partings.contains_key(&by) {
        format!("there is no node {by} to take over; choose among {}", named(others))
    } else if partings.contains_key(&by) {
        format!("node {by} is draining or removed, and takes no roles")
    } else {
        let shared = entries.iter().flat_map(|entry| roles_of(entry)).find(|role| !role.can_pass(node, by));
        let Some(Role { what, log, .. }) = shared else { return Ok(()) };
        format!(
            "node {by} already has a replica of {what} of '{log}': choose another node, or let any node take over: seriatim \
             admin drain {node}"
        )
    };
    Err(Refusal::Impossible { reason })
}

/// Replicas of a log's order or of one shard: assigned nodes (`meant`), and members of the view.
struct Role {
    what: String,
    log: String,
    meant: BTreeSet<NodeId>,
    members: BTreeSet<NodeId>,
}

impl Role {
    /// Whether `to` can take over the replica of `from`, if any, or stands in for it already.
    fn can_pass(&self, from: NodeId, to: NodeId) -> bool {
        let both = |nodes: &BTreeSet<NodeId>| nodes.contains(&from) && nodes.contains(&to);
        let has = self.meant.contains(&from) || self.members.contains(&from);
        !has || !self.meant.contains(&to) && !both(&self.members)
    }
}

fn roles_of(entry: &LogEntry) -> impl Iterator<Item = Role> {
    let log = &entry.name;
    let view = entry.view.as_ref();
    let members = view.iter().flat_map(|view| &view.sequencers).map(|member| member.node);
    let (meant, members) = (entry.sequencers.iter().copied().collect(), members.collect());
    let order = Role { what: "the order".into(), log: log.clone(), meant, members };
    let shards = (0..).map(seriatim_model::ShardId).zip(&entry.shards).map(move |(shard, meant)| {
        let members = view.and_then(|view| view.shard(shard)).into_iter();
        let members = members.flat_map(|members| &members.replicas).map(|member| member.node);
        let (meant, members) = (meant.iter().copied().collect(), members.collect());
        Role { what: format!("shard {shard}"), log: log.clone(), meant, members }
    });
    std::iter::once(order).chain(shards)
}

/// The logs with roles on a node, for a person.
fn roles(entries: &[&LogEntry], node: NodeId) -> Option<String> {
    let logs: Vec<&str> =
        entries.iter().filter(|entry| !is_rid_of(entry, node)).map(|entry| entry.name.as_str()).collect();
    let first = logs.first()?;
    Some(match logs.len() {
        1 => format!("in log '{first}'"),
        count => format!("in {count} logs, such as '{first}'"),
    })
}

/// Whether a log does not need a node: neither its view nor its assignment names it.
#[must_use]
pub fn is_rid_of(entry: &LogEntry, node: NodeId) -> bool {
    !catalog::needed(entry).contains(&node)
}

/// The retired shard whose copy is the only reason why the log needs this node, until the shard is
/// trimmed.
#[must_use]
pub fn retired_shard_on(entry: &LogEntry, node: NodeId) -> Option<&RetiredShard> {
    let retired = entry.view.as_ref()?.retired.iter().find(|retired| retired.has_copy_on(node));
    retired.filter(|_| !catalog::taking_part(entry).contains(&node))
}

/// Whether a node holds a copy of a retired shard.
#[must_use]
pub fn keeps_retired(entry: &LogEntry, shard: ShardId, node: NodeId) -> bool {
    let retired = entry.view.as_ref().and_then(|view| view.retired(shard));
    retired.is_some_and(|retired| retired.has_copy_on(node))
}

fn named(nodes: &BTreeSet<NodeId>) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    match names.len() {
        0 => "none".into(),
        1 => format!("node {}", names[0]),
        _ => format!("nodes {}", names.join(", ")),
    }
}

/// The drained nodes among the replicas of one shard, or of the order.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Drained members and assigned nodes.
    pub(super) drained: BTreeSet<NodeId>,
    /// All members; `kept` are the staying ones.
    pub(super) members: BTreeSet<NodeId>,
    pub(super) kept: BTreeSet<NodeId>,
    /// Places of drained nodes without a stand-in.
    pub(super) unfilled: usize,
    /// Configured number of members.
    pub(super) wanted: usize,
}

impl Group {
    /// `meant` are the assigned nodes.
    pub(super) fn of(meant: &[NodeId], members: &BTreeSet<NodeId>, wanted: u32, partings: &Partings) -> Self {
        let parts = |node: &NodeId| partings.contains_key(node);
        let drained = meant.iter().chain(members).copied().filter(parts).collect();
        let kept: BTreeSet<NodeId> = members.iter().copied().filter(|node| !parts(node)).collect();
        let staying = meant.iter().filter(|node| !parts(node)).count();
        let stand_ins = kept.iter().filter(|node| !meant.contains(node)).count();
        let wanted = wanted as usize;
        let unfilled = wanted.saturating_sub(staying + stand_ins);
        Self { drained, members: members.clone(), kept, unfilled, wanted }
    }

    /// Whether drained nodes or surplus members remain.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.drained.is_empty() || self.members.len() > self.wanted
    }

    /// The members that must hold all records before a view drops drained or surplus ones; `None`
    /// if no view can drop any.
    pub(super) fn awaited(&self) -> Option<&BTreeSet<NodeId>> {
        match self.is_whole() {
            true => Some(&self.kept).filter(|_| self.is_unfinished()),
            false => Some(&self.members).filter(|_| self.members.len() > self.wanted),
        }
    }

    /// Whether enough members stay.
    pub(super) fn is_whole(&self) -> bool {
        self.kept.len() >= self.wanted
    }

    /// The spares that may stand in for drained nodes. Successors named by the operator come first;
    /// if each drained node has one, there are no others.
    pub(super) fn stand_ins(&self, spares: impl Iterator<Item = NodeId>, partings: &Partings) -> Vec<NodeId> {
        let successors: Vec<Option<NodeId>> =
            self.drained.iter().map(|node| successor(partings, *node)).collect();
        let any = successors.contains(&None);
        let mut spares: Vec<NodeId> =
            spares.filter(|spare| any || successors.contains(&Some(*spare))).collect();
        spares.sort_by_key(|spare| !successors.contains(&Some(*spare)));
        spares
    }
}

fn successor(partings: &Partings, node: NodeId) -> Option<NodeId> {
    match partings.get(&node) {
        Some(Parting::Drained { by }) => *by,
        Some(Parting::Removed) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Incarnation, Member, Placement, Position, ShardMembers, View, ViewNumber};

    use super::*;

    const DRAIN: PartingChange = PartingChange::Drain { by: None };

    fn nodes(all: &[u32]) -> BTreeSet<NodeId> {
        all.iter().copied().map(NodeId).collect()
    }

    /// Sequencing replicas on nodes 1 and 2, a shard on nodes 2 and 3.
    fn entry() -> LogEntry {
        let config =
            LogConfig { shards: 1, replicas: 2, sequencers: 2, min_sequencers: 1, ..LogConfig::default() };
        let nodes: Vec<NodeId> = nodes(&[1, 2, 3]).into_iter().collect();
        catalog::place(LogId(1), "a".into(), config, &nodes).unwrap()
    }

    fn ask(partings: &Partings, node: u32, wanted: PartingChange) -> Result<Option<Option<Parting>>, String> {
        let known = nodes(&[1, 2, 3, 4]);
        change((&known, Some(NodeId(1))), &[&entry()], partings, NodeId(node), wanted)
            .map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let none = Partings::new();
        let by = |by| PartingChange::Drain { by: Some(NodeId(by)) };
        let gone = Partings::from([(NodeId(4), Parting::Removed)]);
        let most = [2, 3, 4].map(|node| (NodeId(node), Parting::Drained { by: None }));
        let all_but_one = Partings::from(most);
        for (partings, node, wanted, words) in [
            (&none, 9, DRAIN, "there is no node 9; the cluster has nodes 1, 2, 3, 4"),
            (&none, 1, DRAIN, "node 1 holds the register"),
            (&none, 1, PartingChange::Remove, "node 1 holds the register"),
            (&none, 3, PartingChange::Remove, "node 3 still has roles in log 'a'; drain it first"),
            (&none, 3, by(3), "node 3 cannot take over from itself"),
            (&none, 3, by(9), "there is no node 9 to take over; choose among nodes 1, 2, 4"),
            (&none, 3, by(2), "node 2 already has a replica of shard 0 of 'a'"),
            (&none, 2, by(1), "node 1 already has a replica of the order of 'a'"),
            (&gone, 3, by(4), "node 4 is draining or removed"),
            (&gone, 4, DRAIN, "node 4 was removed, and its number is not used again"),
            (&gone, 4, PartingChange::Stay, "node 4 was removed"),
        ] {
            let refused = ask(partings, node, wanted).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        let known = nodes(&[2, 3, 4]);
        let alone = change((&known, None), &[], &all_but_one, NodeId(2), DRAIN);
        assert!(alone.is_err_and(|refusal| refusal.to_string().contains("no other node can take over")));
    }

    #[test]
    fn one_that_stands_in_for_a_lost_node_already_can_take_over() {
        let role = |meant: &[u32], members: &[u32]| Role {
            what: String::new(),
            log: String::new(),
            meant: nodes(meant),
            members: nodes(members),
        };
        let can = |role: Role| role.can_pass(NodeId(2), NodeId(4));
        assert!(can(role(&[2, 3], &[3, 4])));
        assert!(can(role(&[2, 3], &[2, 3])) && can(role(&[1, 4], &[1, 4])));
        assert!(!can(role(&[2, 4], &[4])) && !can(role(&[2, 3], &[2, 4])) && !can(role(&[3, 4], &[2, 3])));
    }

    #[test]
    fn what_is_asked_for_again_is_done() {
        let none = Partings::new();
        let drained = Partings::from([(NodeId(3), Parting::Drained { by: None })]);
        let gone = Partings::from([(NodeId(4), Parting::Removed)]);
        assert_eq!(ask(&none, 3, DRAIN), Ok(Some(Some(Parting::Drained { by: None }))));
        assert_eq!(ask(&drained, 3, DRAIN), Ok(None));
        assert_eq!(ask(&drained, 3, PartingChange::Stay), Ok(Some(None)));
        assert_eq!(ask(&none, 3, PartingChange::Stay), Ok(None));
        assert_eq!(ask(&none, 4, PartingChange::Remove), Ok(Some(Some(Parting::Removed))));
        assert_eq!(ask(&gone, 4, PartingChange::Remove), Ok(None));
        let by = PartingChange::Drain { by: Some(NodeId(4)) };
        assert_eq!(ask(&drained, 3, by), Ok(Some(Some(Parting::Drained { by: Some(NodeId(4)) }))));
    }

    #[test]
    fn a_drained_node_is_stood_in_for_once() {
        let partings = Partings::from([(NodeId(2), Parting::Drained { by: Some(NodeId(5)) })]);
        let meant = [NodeId(1), NodeId(2)];
        let group = |members: &[u32]| Group::of(&meant, &nodes(members), 2, &partings);
        let at_first = group(&[1, 2]);
        assert_eq!((at_first.unfilled, at_first.is_whole()), (1, false));
        assert_eq!(at_first.stand_ins([3, 5].map(NodeId).into_iter(), &partings), [NodeId(5)]);
        let with_both = group(&[1, 2, 5]);
        assert_eq!((with_both.unfilled, with_both.is_whole()), (0, true));
        // An absent node keeps its place.
        let without_another = group(&[2, 5]);
        assert_eq!((without_another.unfilled, without_another.is_whole()), (0, false));
        assert!(Group::of(&meant, &nodes(&[1, 2]), 2, &Partings::new()).drained.is_empty());
    }

    #[test]
    fn what_a_retired_shard_has_stays_on_its_last_replicas_alone() {
        let members = |shard: u32, replicas: &[u32]| ShardMembers {
            shard: ShardId(shard),
            begins: Position::ZERO,
            replicas: replicas
                .iter()
                .map(|node| Member { node: NodeId(*node), incarnation: Incarnation(1) })
                .collect(),
        };
        let view = |number: u64, shards: Vec<ShardMembers>, retired: Vec<RetiredShard>| View {
            number: ViewNumber(number),
            sequencers: members(0, &[1, 2]).replicas,
            leader: NodeId(1),
            placement: Placement::new(shards.iter().map(|members| members.shard).collect(), 1),
            shards,
            retired,
            first: Position::ZERO,
            start: Position(7),
        };
        let mut entry = entry();
        entry.shards.push(vec![NodeId(2), NodeId(3)]);
        // Node 4 stood in for node 3 in shard 0.
        let last = view(1, vec![members(0, &[2, 4]), members(1, &[2, 3])], vec![]);
        let retired = RetiredShard::new(ShardId(0), last, Position(7));
        entry.view = Some(view(2, vec![members(1, &[2])], vec![retired]));
        let stays = |node| retired_shard_on(&entry, NodeId(node)).map(|retired| retired.shard);
        assert_eq!([1, 2, 3, 4, 5].map(stays), [None, None, None, Some(ShardId(0)), None]);
        assert_eq!([3, 4, 5].map(|node| is_rid_of(&entry, NodeId(node))), [false, false, true]);
        // Then node 3 is assigned only to the retired shard.
        entry.shards[1] = vec![NodeId(2)];
        assert!(is_rid_of(&entry, NodeId(3)));
    }
}
