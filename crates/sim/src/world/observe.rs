//! The true events inside the nodes, for the checkers: which views are registered, how far each member
//! got, and for which view it speaks.

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, Member, NodeId};
use seriatim_protocol::shard::ReadError;
use seriatim_protocol::{Message, shard};

use super::reached::News;
use super::{CONTROL, World};
use crate::coverage::Step;
use crate::history::{Claimed, RegisteredView};

impl World {
    /// Notes what a message claims for its sender.
    pub(super) fn observe_send(&mut self, id: NodeId, outgoing: &Outgoing) {
        if outgoing.log != self.scene.log {
            return;
        }
        self.observe_promise(id, outgoing);
        self.observe_end(outgoing);
        if let Message::Shard(shard::Message::ReadFailed { error: ReadError::Damaged { position }, .. }) =
            &outgoing.message
        {
            self.scene.coverage.damages += 1;
            if let Endpoint::Shard(shard) = outgoing.from {
                self.scene.history.damaged.insert((shard, *position));
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
        let Some(member) = self.member(id) else { return };
        let claim = Claimed { view, member, what };
        if !self.scene.history.claims.contains_key(&claim) {
            let moment = self.scene.history.tick();
            self.scene.history.claims.insert(claim, moment);
        }
    }

    /// Shards that are told where a session ended rely on that.
    fn observe_end(&mut self, outgoing: &Outgoing) {
        let Message::Shard(shard::Message::Undecided { session, end, .. }) = outgoing.message else { return };
        if end < u64::MAX {
            self.scene.coverage.ended_for_orphans += 1;
            self.scene.history.end_session(session, end);
        }
    }

    /// Looks at a node after it did something.
    pub(super) fn observe_node(&mut self, id: NodeId) {
        if id == CONTROL {
            self.entry_changed();
        }
        self.observe_suspicions(id);
        self.observe_damage(id);
        self.observe_replicas(id);
        self.observe_ordered(id);
        self.observe_limits(id);
    }

    /// Writes down for whoever reads the trace whom a node takes for gone.
    fn observe_suspicions(&mut self, id: NodeId) {
        if !self.scene.trace.is_readable() {
            return;
        }
        let Some(host) = &self.nodes[&id].host else { return };
        let silent: Vec<NodeId> = host.suspected().collect();
        let node = self.nodes.get_mut(&id).expect("the node exists");
        if node.suspected != silent {
            self.scene.tell(format_args!("node {id} takes for gone: {silent:?}"));
            node.suspected = silent;
        }
    }

    /// Notes how far a sequencing replica is, and what is final by that.
    pub(super) fn observe_ordered(&mut self, id: NodeId) {
        if self.scene.plan.config.order.places_first() {
            return self.observe_written(id);
        }
        let Some(replica) = self.nodes[&id].sequencer(self.scene.log) else { return };
        if let Some(everyone) = self.reached.note_ordered(id, replica, &self.scene.history.views) {
            self.scene.history.note_stable(everyone);
        }
    }

    /// Notes how far the chains of a node's shards are written, and what is final by that.
    fn observe_written(&mut self, id: NodeId) {
        for shard in self.scene.history.shards() {
            let Some(replica) = self.nodes[&id].replica(self.scene.log, shard) else { continue };
            if let Some(everyone) = self.reached.note_written(id, shard, replica, &self.scene.history.views) {
                self.scene.history.note_written(shard, everyone);
            }
        }
    }

    /// Counts the copies that are complete, and the replicas that are not needed any more.
    fn observe_replicas(&mut self, id: NodeId) {
        let Some(host) = &self.nodes[&id].host else { return };
        for shard in self.scene.history.shards() {
            let lacks = host
                .replica(self.scene.log, shard)
                .map(|role| role.lacks().is_some_and(|lacks| !lacks.is_empty()));
            match self.copies.note(id, shard, lacks) {
                News::None => {}
                News::Complete => self.scene.coverage.copies += 1,
                News::Dismissed => {
                    self.scene.coverage.dismissals += 1;
                    self.damage.was_dismissed(id, shard);
                }
            }
            if let Some(view) =
                host.replica(self.scene.log, shard).and_then(|role| role.memory().view.as_ref())
            {
                self.scene.history.note_heard(id, shard, view.number);
            }
        }
    }

    /// Looks at the register after it did something.
    pub(super) fn entry_changed(&mut self) {
        self.observe_claims();
        self.observe_gone();
        self.observe_leavers();
        let Some(entry) = self.entry() else { return };
        let latest = entry.view_number();
        self.scene.history.shard_count = self.scene.history.shard_count.max(entry.shards.len() as u32);
        let Some(entry) = self.entry() else { return };
        if self.scene.history.views.keys().next_back().is_some_and(|known| *known == latest) {
            return;
        }
        let view = entry.view.clone();
        // A view that the register wrote and forgot in a crash was never told to anybody.
        self.scene.history.views.retain(|number, _| *number <= latest);
        if let Some(view) = view.filter(|view| !self.scene.history.views.contains_key(&view.number)) {
            let at = self.scene.history.tick();
            let (number, start) = (view.number, view.start);
            self.scene.tell(format_args!("view {number} is registered: {view:?}"));
            self.scene.history.views.insert(number, RegisteredView { view, at });
            self.scene.history.note_stable(start);
        }
        self.check_losses();
    }

    /// Notes when more memory is lost than the log can bear.
    pub(super) fn check_losses(&mut self) {
        if self.scene.history.is_on_disk() || self.scene.history.lost_too_much {
            return;
        }
        if self.scene.latest_view().is_some_and(|view| !self.bearing().survives(view, &[])) {
            self.scene.tell(format_args!("more memory is lost than the log can bear"));
            self.scene.history.lose_too_much();
        }
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

    pub(super) fn ordering_step(&self) -> Option<Step> {
        let leader =
            self.scene.latest_view().and_then(|view| self.nodes[&view.leader].sequencer(self.scene.log));
        match leader.and_then(|leader| leader.step_name()) {
            Some("drop") => return Some(Step::Drop),
            Some(_) => return Some(Step::Bind),
            None => {}
        }
        let mut producers = self.clients.values().flat_map(|client| client.producers.values());
        producers.any(|producer| producer.is_appending()).then_some(Step::Append)
    }
}
