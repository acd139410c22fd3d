//! The truth about the nodes, which none of them knows.

use std::collections::BTreeMap;

use seriatim_model::{LogId, Member, NodeId, Order, RetiredShard, ShardId, View, ViewNumber};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::control::parting::Partings;

use super::scene::Scene;
use super::{CONTROL, Node};
use crate::coverage::Step;
use crate::plan::Target;

/// All nodes, with their disks and their processes.
pub(super) type Nodes = BTreeMap<NodeId, Node>;

/// All that is so just now, of the tested log unless said otherwise: what the register knows, where
/// a view change is, and what would be left if nodes lost what they have.
#[derive(Clone, Copy)]
pub(super) struct Truth<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) scene: &'a Scene,
}

/// The logs that the register knows, while its node is up.
pub(super) fn entries(nodes: &Nodes) -> impl Iterator<Item = &LogEntry> {
    let register = nodes[&CONTROL].host.as_ref().and_then(|host| host.register());
    register.into_iter().flat_map(|register| register.entries())
}

/// The register's entry of a log, while its node is up.
pub(super) fn entry(nodes: &Nodes, log: LogId) -> Option<&LogEntry> {
    entries(nodes).find(|entry| entry.id == log)
}

impl<'a> Truth<'a> {
    /// The register's entry of the log, while its node is up.
    pub(super) fn entry(&self) -> Option<&'a LogEntry> {
        entry(self.nodes, self.scene.log)
    }

    /// The nodes that the register knows to be leaving, while its node is up.
    pub(super) fn partings(&self) -> Option<&'a Partings> {
        Some(self.nodes[&CONTROL].host.as_ref()?.register()?.partings())
    }

    fn order(&self) -> Order {
        self.scene.plan.config.order
    }

    /// Whether somebody is at work on a new view of the log, as the register knows.
    pub(super) fn is_changing(&self) -> bool {
        self.entry().is_some_and(|entry| entry.claimed > entry.view_number())
    }

    /// Whether a view would still have a sequencing replica, and a replica of each shard, that did
    /// not lose its memory, if these nodes lost theirs.
    pub(super) fn survives(&self, view: &View, without: &[NodeId]) -> bool {
        // A node that was no member of the view before has to learn first what it lacks. A shard
        // that joins lacks nothing.
        let before =
            self.scene.history.views.range(..view.number).next_back().map(|(_, before)| &before.view);
        let least = |shard| before.filter(|before| before.shard(shard).is_some()).map(|before| before.number);
        self.survives_each(view, without, |shard| least(shard).unwrap_or(ViewNumber::NONE))
    }

    /// Whether the log survives without these nodes, but for what the retired shard has of which
    /// they are replicas.
    pub(super) fn survives_losing_retired(&self, view: &View, without: &[NodeId]) -> bool {
        let mut view = view.clone();
        let is_theirs = |retired: &RetiredShard| {
            retired.members().replicas.iter().all(|member| without.contains(&member.node))
        };
        let before = view.retired.len();
        view.retired.retain(|retired| !is_theirs(retired));
        view.retired.len() < before && self.survives_knowing(&view, without, view.number)
    }

    /// The same, where only those replicas of shards count that know a view not below `least`.
    pub(super) fn survives_knowing(&self, view: &View, without: &[NodeId], least: ViewNumber) -> bool {
        self.survives_each(view, without, |_| least)
    }

    /// The same, with such a `least` view for each shard.
    fn survives_each(&self, view: &View, without: &[NodeId], least: impl Fn(ShardId) -> ViewNumber) -> bool {
        let (log, shards) = (self.scene.log, self.scene.history.shard_count);
        let incarnations = |node: NodeId| {
            if without.contains(&node) {
                Default::default()
            } else {
                self.nodes[&node].incarnations(log, shards)
            }
        };
        let sequencer = |member: &Member| incarnations(member.node).sequencer == Some(member.incarnation);
        let shard = |members: &seriatim_model::ShardMembers| {
            members.replicas.iter().any(|member| {
                incarnations(member.node).replicas.get(&members.shard).is_some_and(|(incarnation, known)| {
                    *incarnation == member.incarnation && *known >= least(members.shard)
                })
            })
        };
        // Nobody else will ever have the records of a retired shard.
        let retired = |retired: &RetiredShard| {
            retired.members().replicas.iter().any(|member| {
                let known = incarnations(member.node).replicas.get(&retired.shard).copied();
                known.is_some_and(|(incarnation, _)| incarnation == member.incarnation)
            })
        };
        let keeps_order = self.order().properties().keeps_order;
        (!keeps_order || view.sequencers.iter().any(sequencer))
            && view.shards.iter().all(shard)
            && view.retired.iter().all(retired)
    }

    /// Whether what is flushed for a view that is being formed reaches a replica on another node:
    /// where the flush went, only its versions count once the view is registered.
    pub(super) fn flush_survives(&self, without: &[NodeId]) -> bool {
        let controllers =
            self.nodes.values().filter_map(|node| node.host.as_ref()?.controller(self.scene.log));
        let mut flushed = controllers.flat_map(Controller::flushes_to);
        flushed.all(|members| members.replicas.iter().any(|member| !without.contains(&member.node)))
    }

    /// Whether every shard of these nodes has a replica elsewhere that lacks nothing.
    pub(super) fn is_complete_without(&self, view: &View, nodes: &[NodeId]) -> bool {
        view.shards.iter().all(|members| {
            let is_complete = |member: &Member| {
                let role = self.nodes[&member.node].replica(self.scene.log, members.shard);
                role.is_some_and(|role| role.missing().is_none())
            };
            let (theirs, others): (Vec<&Member>, Vec<&Member>) =
                members.replicas.iter().partition(|member| nodes.contains(&member.node));
            theirs.is_empty() || others.into_iter().any(is_complete)
        })
    }

    /// Where records are bound where they were put, a flush brings none: who misses it, because it
    /// is away or only slow, has none of what it binds afterwards. If what is damaged stays a
    /// member, somebody else is to have all of it with its positions already. Where cuts order,
    /// somebody else is to be there, whatever is lost.
    pub(super) fn is_all_elsewhere(&self, is_damaged: bool, view: &View, victims: &[NodeId]) -> bool {
        let order = self.order();
        if !order.has_cuts() && (order.places_by_position() || !is_damaged) {
            return true;
        }
        let held = |shard: ShardId, member: &Member| {
            let role = self.nodes[&member.node].replica(self.scene.log, shard)?;
            Some((role.stable(), role.unplaced()))
        };
        view.shards.iter().all(|members| {
            let (lost, left): (Vec<&Member>, Vec<&Member>) =
                members.replicas.iter().partition(|member| victims.contains(&member.node));
            let known = |member: &&Member| held(members.shard, member);
            let damaged = lost.iter().filter(|_| is_damaged).filter_map(known);
            let end = damaged.map(|(stable, _)| stable).max();
            let has_all = |(stable, unplaced)| end.is_none_or(|end| stable >= end && unplaced == 0);
            left.iter().filter_map(known).any(has_all)
        })
    }

    pub(super) fn view_change_step(&self) -> Option<Step> {
        let furthest = self.nodes.keys().filter_map(|id| self.controller_step(*id)).max();
        if furthest.is_some() {
            return furthest;
        }
        let view = self.scene.latest_view()?;
        let is_behind = |member: &Member| {
            self.nodes[&member.node]
                .sequencer(self.scene.log)
                .is_some_and(|role| role.view_number() < view.number)
        };
        view.sequencers.iter().any(is_behind).then_some(Step::Start)
    }

    /// The step of a view change that the node's controller is at.
    pub(super) fn controller_step(&self, id: NodeId) -> Option<Step> {
        let controller = self.nodes[&id].host.as_ref()?.controller(self.scene.log)?;
        Step::of_controller(controller.step_name()?)
    }

    /// The step at which records are ordered, if the leader is at one.
    pub(super) fn ordering_step(&self) -> Option<Step> {
        let leader =
            self.scene.latest_view().and_then(|view| self.nodes[&view.leader].sequencer(self.scene.log));
        match leader?.step_name()? {
            "truncate" => Some(Step::Truncate),
            _ => Some(Step::Bind),
        }
    }

    /// Whether a node is one of those that a fault or an operator aims at.
    pub(super) fn is_meant(&self, id: NodeId, target: Target) -> bool {
        let view = self.scene.latest_view();
        let leads = view.is_some_and(|view| view.leader == id);
        let orders = view.is_some_and(|view| view.sequencers.iter().any(|member| member.node == id));
        let is_replica = |members: &seriatim_model::ShardMembers, id| {
            members.replicas.iter().any(|member| member.node == id)
        };
        let holds = view.is_some_and(|view| view.shards.iter().any(|members| is_replica(members, id)));
        match target {
            Target::Any => true,
            Target::Leader => leads,
            Target::Follower => orders && !leads,
            Target::Shard => holds && !orders,
            // A fault that strikes one node has any of them.
            Target::WholeShard => holds,
            Target::RetiredShard => {
                view.is_some_and(|view| view.retired.iter().any(|retired| is_replica(retired.members(), id)))
            }
            Target::Primary => {
                view.is_some_and(|view| view.shards.iter().any(|members| members.primary().node == id))
            }
            Target::Controller => self.controller_step(id).is_some(),
            Target::Node(node) => node == id,
        }
    }
}
