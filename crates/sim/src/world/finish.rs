//! The end of a run: everything comes to rest, and the whole log is read.

use std::time::Duration;

use seriatim_model::{Member, NodeId, Position, ShardId, ShardMembers, Time, View};
use seriatim_protocol::control::LogEntry;
use seriatim_store::ShardStore;

use super::second::history_of;
use super::{CONTROL, JUDGE, Node, PATIENCE, World};
use crate::history::End;
use crate::reader::{Reader, Style};

/// How long a log must have been saying that it is unavailable.
const UNAVAILABLE_FOR: Duration = Duration::from_secs(5);
/// And where work takes time: it says so until a view is registered, and forming one may take that long.
const UNAVAILABLE_UNDER_LOAD_FOR: Duration = Duration::from_secs(60);
/// How long it may take until others have the places of a node that has been away for long enough: views that only grow have
/// pauses between them.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);
/// How long reading one replica may take.
const READING_FOR: Duration = Duration::from_secs(20);

impl World {
    /// Where the plan wants that, everything that clients asked for has its answer, and they have read everything, although
    /// what went wrong stays so.
    pub(super) fn come_to_an_end_before_calm(&mut self) {
        let Some(within) = self.cluster.scene.plan.done_without_calm else { return };
        let is_served = |world: &Self| {
            let ordered = world.leader_ordered().unwrap_or_default();
            world.clients.are_done() && world.clients.have_delivered(ordered)
        };
        if !self.run_until(within, is_served) && !self.cluster.scene.is_over {
            let what = self.what_is_missing();
            self.cluster
                .scene
                .history
                .problems
                .push(format!("without calm, not done within {within:?}: {what}"));
        }
        self.become_whole();
    }

    /// Where a node is dead for good and the others are enough, they have its roles in the end: the next loss is borne, too.
    fn become_whole(&mut self) {
        let alive = self.cluster.nodes.values().filter(|node| node.host.is_some()).count();
        let Some(config) = self.cluster.entry().map(|entry| entry.config.clone()) else { return };
        if alive == self.cluster.nodes.len() || alive < config.sequencers.max(config.replicas) as usize {
            return;
        }
        if !self
            .run_until(self.cluster.scene.plan.options.limits.replace_after + WHOLE_WITHIN, Self::is_restored)
            && !self.cluster.scene.is_over
        {
            let view = self.cluster.scene.latest_view();
            self.cluster
                .scene
                .history
                .problems
                .push(format!("nobody has the place of a node that is dead: {view:?}"));
        }
    }

    /// Whether the latest view has as many members as the log is meant to have, none of them on a node that is dead.
    fn is_restored(&self) -> bool {
        let (Some(entry), Some(view)) = (self.cluster.entry(), self.cluster.scene.latest_view()) else {
            return false;
        };
        let is_full = |members: &[Member], wanted: u32| {
            let is_alive = |member: &Member| self.cluster.nodes[&member.node].host.is_some();
            members.len() >= wanted as usize && members.iter().all(is_alive)
        };
        is_full(&view.sequencers, entry.config.sequencers)
            && view.shards.iter().all(|members| is_full(&members.replicas, entry.config.replicas))
    }

    /// Waits until everything is at rest, asks for the tail once more, and reads the log.
    pub(super) fn settle(&mut self) {
        let rested = self.run_until(PATIENCE, |world| world.is_at_rest() || world.has_given_up());
        self.close_load();
        if !rested {
            let what = self.what_is_missing();
            self.cluster.scene.history.end =
                if self.cluster.excuses_damage() { End::Damaged(what) } else { End::Stuck(what) };
            return;
        }
        if self.has_given_up() {
            self.cluster.excuse_spoiled();
            let why = self.cluster.entry().and_then(|entry| entry.unavailable.clone()).unwrap_or_default();
            self.clients.end(&mut self.cluster);
            self.cluster.scene.history.judged_from = self.cluster.scene.history.tick();
            let (trim, _) = self.read_everything().unwrap_or_default();
            self.cluster.scene.history.end = End::Unavailable(why);
            self.cluster.scene.history.trimmed_to = trim;
            return;
        }
        self.ask_last_tails();
        if !self.run_until(PATIENCE, |world| world.is_at_rest()) {
            self.cluster.scene.history.end =
                End::Stuck(format!("after the last question for the tail: {}", self.what_is_missing()));
            return;
        }
        self.settle_limits();
        let tail = self.leader_ordered().unwrap_or_default();
        self.clients.end(&mut self.cluster);
        match self.read_everything() {
            Some((trim, true)) => {
                self.cluster.scene.history.end = End::Settled { trim, tail };
                self.read_second();
            }
            _ => self.cluster.scene.history.end = End::Stuck("the log could not be read to its end".into()),
        }
    }

    fn ask_last_tails(&mut self) {
        let clients: Vec<u32> = self.clients.numbers();
        for client in clients {
            self.clients.ask_tail_of(&mut self.cluster, client);
        }
    }

    fn leader_ordered(&self) -> Option<Position> {
        let view = self.cluster.scene.latest_view()?;
        Some(self.cluster.nodes[&view.leader].sequencer(self.cluster.scene.log)?.ordered())
    }

    /// Whether every client has all its answers, every member takes part, and everything is stable.
    fn is_at_rest(&self) -> bool {
        let is_settled = self.cluster.scene.latest_view().is_some_and(|view| self.is_settled(view));
        let rests = self.cluster.truth().second_is_at_rest() && self.fleet.remains(&self.cluster).is_empty();
        self.clients.are_done() && is_settled && rests && self.leavers.are_over(&self.cluster)
    }

    pub(super) fn is_settled(&self, view: &View) -> bool {
        let Some(ordered) = self.leader_ordered() else { return false };
        let entry = self.cluster.entry().and_then(|entry| entry.view.as_ref());
        let members = view.sequencers.len() == self.cluster.scene.plan.config.sequencers as usize;
        let sequencers = view.sequencers.iter().all(|member| {
            self.cluster.nodes[&member.node].sequencer(self.cluster.scene.log).is_some_and(|role| {
                role.is_open()
                    && role.view_number() == view.number
                    && role.held() == 0
                    && role.ordered() == ordered
            })
        });
        let shards = view.shards.iter().all(|members| self.is_whole(members, ordered));
        let there = || self.cluster.nodes.iter().filter(|(node, _)| !self.leavers.is_gone(**node));
        let roles = there().all(|(node, _)| self.hosts_its_roles_only(*node, view));
        let hears_all = |node: &Node| {
            node.host.as_ref().is_some_and(|host| host.suspected().all(|other| self.leavers.is_gone(other)))
        };
        let nobody_is_silent = there().all(|(_, node)| hears_all(node));
        let dismissed = self
            .cluster
            .witness
            .copies
            .dismissed()
            .all(|(node, shard)| self.leavers.is_gone(node) || !self.has_store(node, shard));
        entry == Some(view)
            && dismissed
            && members
            && sequencers
            && shards
            && roles
            && nobody_is_silent
            && self.clients.have_delivered(ordered)
    }

    /// Whether a shard has all the replicas that it is to have, and all of them lack nothing.
    fn is_whole(&self, members: &ShardMembers, ordered: Position) -> bool {
        let replica = |node: NodeId| self.cluster.nodes[&node].replica(self.cluster.scene.log, members.shard);
        let primary = members.primary().node;
        let is_whole = |member: &Member| {
            replica(member.node).is_some_and(|role| {
                let memory = role.memory();
                memory.incarnation == member.incarnation
                    && memory.view.as_ref().is_some_and(|view| Some(view) == self.cluster.scene.latest_view())
                    && role.lacks().is_none()
                    && role.unnamed() == 0
                    && (role.stable() == ordered || member.node != primary)
            })
        };
        members.replicas.len() == self.cluster.scene.plan.config.replicas as usize
            && members.replicas.iter().all(is_whole)
    }

    /// Whether a node has only those roles of the log that the view names.
    fn hosts_its_roles_only(&self, id: NodeId, view: &View) -> bool {
        let Some(host) = &self.cluster.nodes[&id].host else { return false };
        let names = |members: &[Member]| members.iter().any(|member| member.node == id);
        let is_clean = |members: &ShardMembers| {
            names(&members.replicas) || host.replica(self.cluster.scene.log, members.shard).is_none()
        };
        (names(&view.sequencers) || host.sequencer(self.cluster.scene.log).is_none())
            && view.shards.iter().all(is_clean)
    }

    /// Whether a node's disk has a store of a shard, in use or not.
    fn has_store(&self, id: NodeId, shard: ShardId) -> bool {
        let directory = format!("{}/", ShardStore::directory(self.cluster.scene.log, shard));
        self.cluster.nodes[&id].disk.files().iter().any(|file| file.starts_with(&directory))
    }

    /// Whether the log has been saying for a while that it is unavailable.
    fn has_given_up(&self) -> bool {
        let calm = self.cluster.scene.history.calm_since.unwrap_or(Time(u64::MAX));
        let says_so = self.cluster.entry().is_some_and(|entry| entry.unavailable.is_some());
        let enough = self.cluster.scene.plan.capacity.map_or(UNAVAILABLE_FOR, |_| UNAVAILABLE_UNDER_LOAD_FOR);
        says_so && !self.cluster.scene.plan.has_operator && self.cluster.scene.now >= calm + enough
    }

    /// The state of everything that may be the reason, for a person.
    pub(super) fn what_is_missing(&self) -> String {
        let mut lines = self.clients.state();
        lines.extend(self.fleet.remains(&self.cluster));
        lines.extend(self.clients.dead().into_iter().map(|client| format!("client {client} is dead")));
        lines.extend(
            self.cluster
                .nodes
                .values()
                .flat_map(|node| node.state(self.cluster.scene.log, self.cluster.scene.history.shards())),
        );
        let kept =
            self.cluster.witness.copies.dismissed().filter(|(node, shard)| self.has_store(*node, *shard));
        lines
            .extend(kept.map(|(node, shard)| format!("node {node}, shard {shard}: dismissed, with a store")));
        lines.extend(self.leavers.state(&self.cluster));
        if let Some(entry) = self.cluster.entry() {
            let members = entry.view.as_ref().map(|view| (&view.sequencers, &view.shards));
            lines.push(format!(
                "register: view {}, claimed {}, members {members:?}, unavailable {:?}; step {:?}",
                entry.view_number(),
                entry.claimed,
                entry.unavailable,
                self.cluster.truth().view_change_step()
            ));
        }
        lines.join("\n  ")
    }

    /// Reads every replica of every shard from the beginning. Returns the trim point, and whether every one could be
    /// read to the end.
    fn read_everything(&mut self) -> Option<(Position, bool)> {
        let entry = self.cluster.entry()?.clone();
        let shards = self.cluster.scene.history.shards().collect();
        self.read_log(JUDGE, &entry, shards)
    }

    /// The same of one log.
    pub(super) fn read_log(
        &mut self,
        judge: u32,
        entry: &LogEntry,
        shards: Vec<ShardId>,
    ) -> Option<(Position, bool)> {
        let mut trim = Position::ZERO;
        let mut complete = true;
        let view = entry.view.clone()?;
        for shard in shards {
            let replicas = view.shard(shard).map_or(0, |members| members.replicas.len());
            for replica in 0..replicas {
                let style = Style::Drain { shard, replica };
                let first = history_of(&mut self.cluster.scene.history, judge).observations.len();
                let reader = Reader::new(
                    CONTROL,
                    entry.clone(),
                    style,
                    Position::ZERO,
                    self.cluster.scene.random.fork(),
                );
                let reader = self.read_with(judge, reader, READING_FOR);
                trim = trim.max(reader.trimmed());
                complete &= reader.is_done();
                if replica == 0 {
                    let history = history_of(&mut self.cluster.scene.history, judge);
                    for observation in &history.observations[first..] {
                        history.last.insert(observation.position, (observation.id, observation.append));
                    }
                }
            }
        }
        Some((trim, complete))
    }

    /// Lets a client with nothing but a reader read, until that has all, but not longer than `most`.
    fn read_with(&mut self, number: u32, reader: Reader, most: Duration) -> Reader {
        self.clients.add_reader(&mut self.cluster, number, reader);
        self.run_until(most, |world| world.clients.has_read(number));
        self.clients.end_reader(&mut self.cluster, number)
    }
}
