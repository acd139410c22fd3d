//! A log with limits: differing wall clocks, changes of the limits, and their true effects.

use std::time::Duration;

use seriatim_model::retention::StoreUse;
use seriatim_model::{NodeId, Position, RetentionChange, ShardMembers, Time, TimeIndex};
use seriatim_protocol::control;

use super::scene::Scene;
use super::truth::{Nodes, Truth};
use super::{World, pins};
use crate::history::{Retained, Sought};

/// Correct time at the start of a run, in milliseconds since 1970.
pub(crate) const BEGAN_MS: u64 = 1_700_000_000_000;
/// Interval between searches by time.
const SEEK_EVERY: Duration = Duration::from_millis(150);
/// Time for a calm log to reach its limits: slow clocks catch up at one tenth of the speed.
const KEPT_WITHIN: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub(super) struct Limits {
    trim: Position,
    seek_at: Time,
}

impl Limits {
    pub(super) fn look(&mut self, scene: &mut Scene, nodes: &Nodes, id: NodeId) {
        if scene.plan.clocks.is_none() {
            return;
        }
        if let Some(limits) = (Truth { nodes, scene }).entry().map(|entry| entry.config.retention)
            && scene.history.limits.last().is_none_or(|(_, known)| *known != limits)
        {
            scene.history.limits.push((scene.now, limits));
        }
        pins::note(scene, nodes);
        let Some(host) = &nodes[&id].host else { return };
        let replicas = scene.history.shards().filter_map(|shard| host.replica(scene.log, shard));
        let (mut stable, mut trim) = (Position::ZERO, Position::ZERO);
        for replica in replicas {
            stable = stable.max(replica.stable());
            trim = trim.max(replica.held().trim);
        }
        if stable > scene.history.final_at.last().map_or(Position::ZERO, |(_, known)| *known) {
            scene.history.final_at.push((scene.now, stable));
        }
        if trim > self.trim {
            self.trim = trim;
            let truth = Truth { nodes, scene };
            let (used, kept) = (self.used_bytes(truth), Self::kept_bytes(truth, trim));
            scene.tell(format_args!("trimmed to {trim}; {used} bytes were used"));
            scene.history.retained.push(Retained { at: scene.now, trim, used, kept });
        }
        if scene.now >= self.seek_at && scene.now >= scene.began {
            self.seek_at = scene.now + SEEK_EVERY;
            let back = scene.random.between(0, 3000);
            Self::seek(scene, nodes, millis(scene.now - Time::ZERO).saturating_sub(back));
        }
    }

    /// Searches the position for a time, as a client does.
    fn seek(scene: &mut Scene, nodes: &Nodes, right_ms: u64) {
        if let Some(answer) = Self::position_at(Truth { nodes, scene }, BEGAN_MS + right_ms) {
            scene.history.sought.push(Sought { right_ms, answer });
        }
    }

    fn position_at(truth: Truth<'_>, wall_ms: u64) -> Option<Position> {
        let mut times = TimeIndex::default();
        for members in &truth.scene.latest_view()?.shards {
            for replica in &members.replicas {
                let role = truth.nodes[&replica.node].replica(truth.scene.log, members.shard);
                role.into_iter().for_each(|role| times.merge(role.times()));
            }
        }
        Some(times.position_at(wall_ms))
    }

    /// Bytes of the log's files, without trimmed bytes that stay because an earlier part is needed:
    /// for each shard, the replica with the least.
    fn used_bytes(&self, truth: Truth<'_>) -> u64 {
        Self::least_bytes(truth, |usage| usage.bytes - usage.held_bytes(self.trim))
    }

    /// Bytes of records from a position on, counted likewise.
    fn kept_bytes(truth: Truth<'_>, trim: Position) -> u64 {
        Self::least_bytes(truth, |usage| usage.kept_bytes(trim))
    }

    /// Sums a part of store usage over shards, for each the replica with the least.
    fn least_bytes(truth: Truth<'_>, part: impl Fn(&StoreUse) -> u64) -> u64 {
        let shards = truth.scene.latest_view().into_iter().flat_map(|view| &view.shards);
        let of_shard = |members: &ShardMembers| {
            let hosts =
                members.replicas.iter().filter_map(|replica| truth.nodes[&replica.node].host.as_ref());
            let uses = hosts.filter_map(|host| host.store_use(truth.scene.log, members.shard));
            uses.map(|usage| part(&usage)).min().unwrap_or_default()
        };
        shards.map(of_shard).sum()
    }

    /// Bytes allowed beyond the limit: per shard the segment being written, one partly trimmed
    /// segment, and the headers of binding logs.
    fn slack_bytes(truth: Truth<'_>) -> u64 {
        u64::from(truth.scene.history.shard_count)
            * (2 * truth.scene.plan.shard_options.segment_bytes + 16_384)
    }

    pub(super) fn exceeds(&self, truth: Truth<'_>) -> Option<String> {
        let limits = truth.entry()?.config.retention;
        let stable = truth.scene.history.final_at.last().map_or(Position::ZERO, |(_, stable)| *stable);
        let (trim, used) = (self.trim, self.used_bytes(truth));
        if limits.age_ms.is_some() && trim < stable {
            return Some(format!("all records are too old, and it is trimmed to {trim} of {stable}"));
        }
        if let Some(most) = limits.records.filter(|most| stable.since(trim) > *most) {
            return Some(format!("it is trimmed to {trim} of {stable}, and keeps {most} at most"));
        }
        if let Some(most) = limits.bytes.filter(|most| used > most + Self::slack_bytes(truth)) {
            return Some(format!("it takes {used} bytes of {most}, trimmed to {trim} of {stable}"));
        }
        let sought = Self::position_at(truth, u64::MAX).unwrap_or_default();
        (sought < stable).then(|| format!("marks reach {sought} of {stable}"))
    }
}

impl World {
    pub(super) fn drain_limits(&mut self) {
        if self.cluster.scene.plan.clocks.is_none() {
            return;
        }
        self.drain_pins();
        if !self.run_until(KEPT_WITHIN, |world| world.cluster.exceeds().is_none()) {
            self.cluster.scene.history.exceeds = self.cluster.exceeds();
        }
    }

    pub(super) fn set_limits(&mut self, change: RetentionChange) {
        let Some(entry) = self.cluster.entry() else { return };
        let (log, request) = (entry.id, self.cluster.scene.question());
        self.cluster.scene.tell(format_args!("the limits are to be changed: {change:?}"));
        self.cluster.ask_register(control::Message::SetRetention { request, log, change });
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
