//! The true state of the nodes, which no node knows.

use std::collections::BTreeMap;

use seriatim_model::{LogId, Member, NodeId, Order, RetiredShard, ShardId, View, ViewNumber};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::control::parting::Partings;

use super::scene::Scene;
use super::{CONTROL, Node};
use crate::coverage::Step;
use crate::plan::Target;

pub(super) type Nodes = BTreeMap<NodeId, Node>;

/// The present state, of the tested log unless stated otherwise.
#[derive(Clone, Copy)]
pub(super) struct Truth<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) scene: &'a Scene,
}

/// Register entries of all logs. Empty while the register's node is down.
pub(super) fn entries(nodes: &Nodes) -> impl Iterator<Item = &LogEntry> {
    let register = nodes[&CONTROL].host.as_ref().and_then(|host| host.register());
    register.into_iter().flat_map(|register| register.entries())
}

/// Register entry of a log. `None` while the register's node is down.
pub(super) fn entry(nodes: &Nodes, log: LogId) -> Option<&LogEntry> {
    entries(nodes).find(|entry| entry.id == log)
}

impl<'a> Truth<'a> {
    pub(super) fn entry(&self) -> Option<&'a LogEntry> {
        entry(self.nodes, self.scene.log)
    }

    /// Leaving nodes known to the register.
    pub(super) fn partings(&self) -> Option<&'a Partings> {
        Some(self.nodes[&CONTROL].host.as_ref()?.register()?.partings())
    }

    fn order(&self) -> Order {
        self.scene.plan.config.order
    }

    /// Whether a view change is claimed at the register.
    pub(super) fn is_changing(&self) -> bool {
        self.entry().is_some_and(|entry| entry.claimed > entry.view_number())
    }

    /// Whether a sequencing replica of a view, and one of each shard, would keep its memory if
    /// these nodes lost theirs.
    pub(super) fn survives(&self, view: &View, without: &[NodeId]) -> bool {
        // A node outside the previous view must first learn its missing range. A joining shard
        // lacks nothing.
        let before =
            self.scene.history.views.range(..view.number).next_back().map(|(_, before)| &before.view);
        let least = |shard| before.filter(|before| before.shard(shard).is_some()).map(|before| before.number);
        self.survives_each(view, without, |shard| least(shard).unwrap_or(ViewNumber::NONE))
    }

    /// Whether the log survives without these nodes, except the retired shard whose replicas they
    /// are.
    pub(super) fn survives_losing_retired(&self, view: &View, without: &[NodeId]) -> bool {
        let mut view = view.clone();
        let is_theirs = |retired: &RetiredShard| {
            retired.members().replicas.iter().all(|member| without.contains(&member.node))
        };
        let before = view.retired.len();
        view.retired.retain(|retired| !is_theirs(retired));
        view.retired.len() < before && self.survives_knowing(&view, without, view.number)
    }

    /// [`Truth::survives`], but only shard replicas that know a view at or above `least` count.
    pub(super) fn survives_knowing(&self, view: &View, without: &[NodeId], least: ViewNumber) -> bool {
        self.survives_each(view, without, |_| least)
    }

    /// [`Truth::survives_knowing`] with a separate `least` for each shard.
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
        // No other node will ever have the records of a retired shard.
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

    /// Whether the flush for a view being formed reaches another node: once that view is
    /// registered, only flushed versions count.
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

    /// Whether others have what these nodes hold, where a flush sends only the records' binding. A
    /// replica that misses the flush does not have the records bound after it. So if a damaged node
    /// stays a member, another must already have all its records with positions. Where cuts order,
    /// another replica must be up, after any loss.
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

    pub(super) fn controller_step(&self, id: NodeId) -> Option<Step> {
        let controller = self.nodes[&id].host.as_ref()?.controller(self.scene.log)?;
        Step::of_controller(controller.step_name()?)
    }

    pub(super) fn ordering_step(&self) -> Option<Step> {
        let leader =
            self.scene.latest_view().and_then(|view| self.nodes[&view.leader].sequencer(self.scene.log));
        match leader?.step_name()? {
            "truncate" => Some(Step::Truncate),
            _ => Some(Step::Bind),
        }
    }

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
