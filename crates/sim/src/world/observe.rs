//! Records true events in the nodes, for the checkers: registered views, each member's progress,
//! and the views for which it acts.

use std::collections::BTreeMap;

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, Member, NodeId, Position};
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::shard::ReadError;
use seriatim_protocol::{Message, shard};

use super::damage::Damage;
use super::limits::Limits;
use super::needed::Needed;
use super::promises::Promises;
use super::reached::{Copies, News, Reached};
use super::scene::Scene;
use super::standing_in::StandingIn;
use super::survivors::Survivors;
use super::truth::{self, Nodes, Truth};
use super::{CONTROL, changing};
use crate::history::{Claimed, RegisteredView};

/// Observes everything that nodes do and send. It writes to the history only.
#[derive(Debug, Default)]
pub(super) struct Witness {
    promises: Promises,
    reached: Reached,
    pub(super) copies: Copies,
    pub(super) damage: Damage,
    pub(super) limits: Limits,
    survivors: Survivors,
    standing_in: StandingIn,
    pub(super) needed: Needed,
    /// Nodes that each node suspected, as last traced.
    suspected: BTreeMap<NodeId, Vec<NodeId>>,
    has_news: bool,
}

impl Witness {
    pub(super) fn sent(&mut self, scene: &mut Scene, nodes: &Nodes, id: NodeId, outgoing: &Outgoing) {
        if outgoing.log != scene.log {
            return;
        }
        self.promises.heard(scene, nodes, id, outgoing);
        Self::note_end(scene, outgoing);
        self.survivors.sent(id, outgoing);
        self.standing_in.sent(scene, nodes, id, outgoing);
        self.needed.sent(scene, nodes, id, outgoing);
        scene.history.slots.sent(outgoing);
        if let Message::Shard(shard::Message::ReadFailed { error: ReadError::Damaged { position }, .. }) =
            &outgoing.message
        {
            scene.coverage.damages += 1;
            if let Endpoint::Shard(shard) = outgoing.from {
                scene.history.damaged.insert((shard, *position));
                self.damage.was_told(shard, *position);
            }
        }
        if outgoing.from != Endpoint::Sequencer {
            return;
        }
        let (view, what) = match &outgoing.message {
            Message::Shard(shard::Message::Stable { view, .. }) => (*view, "announced what is stable"),
            message => match message.deed() {
                Some(deed) => deed,
                None => return,
            },
        };
        let Some(member) = nodes[&id].sequencer(scene.log).map(SequencingRole::member) else { return };
        let claim = Claimed { view, member, what };
        if !scene.history.claims.contains_key(&claim) {
            let moment = scene.history.tick();
            scene.history.claims.insert(claim, moment);
        }
    }

    /// Notes a session end reported to a shard, which relies on it.
    fn note_end(scene: &mut Scene, outgoing: &Outgoing) {
        let Some((session, end)) = outgoing.message.ends_session() else { return };
        scene.coverage.ended_for_orphans += 1;
        scene.history.end_session(session, end);
    }

    pub(super) fn acted(&mut self, scene: &mut Scene, nodes: &Nodes, damaged: Option<NodeId>, id: NodeId) {
        Self::note_chosen(scene, nodes, id);
        if id == CONTROL {
            self.look_at_register(scene, nodes);
        }
        self.note_suspicions(scene, nodes, id);
        self.damage.look(scene, nodes, damaged, id);
        self.note_replicas(scene, nodes, id);
        self.note_ordered(scene, nodes, id);
        self.limits.look(scene, nodes, id);
    }

    fn note_chosen(scene: &mut Scene, nodes: &Nodes, id: NodeId) {
        let controller = nodes[&id].host.as_ref().and_then(|host| host.controller(scene.log));
        if let Some((view, member)) = controller.and_then(Controller::chosen) {
            scene.history.chosen.insert(view, member);
        }
    }

    fn note_suspicions(&mut self, scene: &mut Scene, nodes: &Nodes, id: NodeId) {
        if !scene.trace.is_readable() {
            return;
        }
        let Some(host) = &nodes[&id].host else { return };
        let silent: Vec<NodeId> = host.suspected().collect();
        let known = self.suspected.entry(id).or_default();
        if *known != silent {
            scene.tell(format_args!("node {id} takes for gone: {silent:?}"));
            *known = silent;
        }
    }

    /// Notes a sequencing replica's progress, and the positions that it makes final.
    pub(super) fn note_ordered(&mut self, scene: &mut Scene, nodes: &Nodes, id: NodeId) {
        if scene.plan.config.order.places_first() {
            return self.note_written(scene, nodes, id);
        }
        let Some(replica) = nodes[&id].sequencer(scene.log) else { return };
        if let Some(everyone) = self.reached.note_ordered(id, replica, &scene.history.views) {
            scene.history.note_stable(everyone);
        }
    }

    /// Notes the progress of a node's chains, and the positions that it makes final.
    fn note_written(&mut self, scene: &mut Scene, nodes: &Nodes, id: NodeId) {
        for shard in scene.history.shards() {
            let Some(replica) = nodes[&id].replica(scene.log, shard) else { continue };
            if let Some(everyone) = self.reached.note_written(id, shard, replica, &scene.history.views) {
                scene.history.note_written(shard, everyone);
            }
        }
    }

    fn note_replicas(&mut self, scene: &mut Scene, nodes: &Nodes, id: NodeId) {
        let Some(host) = &nodes[&id].host else { return };
        for shard in scene.history.shards() {
            let missing = host
                .replica(scene.log, shard)
                .map(|role| role.missing().is_some_and(|missing| !missing.is_empty()));
            match self.copies.note(id, shard, missing) {
                News::None => {}
                News::Complete => scene.coverage.copies += 1,
                News::Dismissed => {
                    scene.coverage.dismissals += 1;
                    self.damage.was_dismissed(id, shard);
                    self.needed.was_dismissed(scene, id, shard);
                }
            }
            if let Some(role) = host.replica(scene.log, shard) {
                let member = Member { node: id, incarnation: role.memory().incarnation };
                scene.history.note_incarnation(member, shard);
                let lacks_from = role.missing().map_or(Position::MAX, |missing| missing.from);
                scene.history.note_known(id, shard, lacks_from.min(role.stable()));
                if let Some(view) = &role.memory().view {
                    scene.history.note_heard(member, shard, view.number);
                }
            }
        }
    }

    pub(super) fn look_at_register(&mut self, scene: &mut Scene, nodes: &Nodes) {
        changing::note_claims(scene, nodes);
        self.has_news = true;
        let Some(entry) = truth::entry(nodes, scene.log) else { return };
        let latest = entry.view_number();
        self.standing_in.look(scene.now, entry);
        scene.history.shard_count = scene.history.shard_count.max(entry.shards.len() as u32);
        if scene.history.views.keys().next_back().is_some_and(|known| *known == latest) {
            return;
        }
        let view = entry.view.clone();
        // A view that the register lost in a crash was never reported to any node.
        scene.history.views.retain(|number, _| *number <= latest);
        scene.history.kept.retain(|kept| kept.view <= latest);
        if let Some(view) = view.filter(|view| !scene.history.views.contains_key(&view.number)) {
            let at = scene.history.tick();
            let (number, start) = (view.number, view.start);
            scene.tell(format_args!("view {number} is registered: {view:?}"));
            if let Some(old) = scene.history.views.values().next_back().map(|old| old.view.clone()) {
                self.survivors.registered(scene, &old, &view);
            }
            scene.history.views.insert(number, RegisteredView { view, at });
            scene.history.note_stable(start);
        }
        Self::check_losses(scene, nodes);
    }

    pub(super) fn check_losses(scene: &mut Scene, nodes: &Nodes) {
        if scene.history.is_on_disk() || scene.history.lost_too_much {
            return;
        }
        if scene.latest_view().is_some_and(|view| !(Truth { nodes, scene }).survives(view, &[])) {
            scene.tell(format_args!("more memory is lost than the log can bear"));
            scene.history.lose_too_much();
        }
    }

    pub(super) fn started(&mut self, scene: &mut Scene, nodes: &Nodes, id: NodeId) {
        self.promises.started(scene, nodes, id);
        self.survivors.started(id);
    }

    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }
}
