//! A log with limits: clocks on walls that differ and jump, changes of the limits, and what truly became of them.

use std::time::Duration;

use seriatim_model::retention::StoreUse;
use seriatim_model::{Endpoint, LogId, NodeId, Position, RetentionChange, ShardMembers, Time, TimeIndex};
use seriatim_protocol::control;

use super::nodes::frame;
use super::{CONTROL, FOUNDER, World};
use crate::history::{Retained, Sought};
use crate::network::Party;

/// The time by a clock that is right when the world begins, in milliseconds since 1970.
pub(crate) const BEGAN_MS: u64 = 1_700_000_000_000;
/// How often somebody asks for the position of a time.
const SEEK_EVERY: Duration = Duration::from_millis(150);
/// How long it may take until a log keeps to its limits once nothing disturbs it any more: what clocks lost they catch up
/// with by a tenth.
const KEPT_WITHIN: Duration = Duration::from_secs(120);

/// The last that was seen, for those who only look now and then.
#[derive(Debug, Default)]
pub(super) struct Limits {
    trim: Position,
    seek_at: Time,
}

impl World {
    /// The time by a node's clock on the wall, if there are any.
    fn wall_ms(&self, id: NodeId) -> Option<u64> {
        let clocks = self.scene.plan.clocks.as_ref()?;
        let right = BEGAN_MS + millis(self.scene.now - Time::ZERO);
        Some(right.saturating_add_signed(clocks.ahead_ms(id, self.scene.now - self.scene.began)))
    }

    pub(super) fn tell_wall(&mut self, id: NodeId) {
        let Some(wall_ms) = self.wall_ms(id) else { return };
        if let Some(host) = self.nodes.get_mut(&id).and_then(|node| node.host.as_mut()) {
            host.note_wall(wall_ms);
        }
    }

    /// An operator wants other limits, and says so once.
    pub(super) fn set_limits(&mut self, change: RetentionChange) {
        let Some(entry) = self.entry() else { return };
        let (log, request) = (entry.id, self.scene.question());
        let message = control::Message::SetRetention { request, log, change };
        self.scene.tell(format_args!("the limits are to be changed: {change:?}"));
        let frame = frame(LogId(0), Endpoint::Client(0), Endpoint::Register, &message.into());
        self.transmit(Party::Client(FOUNDER), Party::Node(CONTROL), frame);
    }

    /// Notes what is final, what is trimmed, and which limits there are.
    pub(super) fn observe_limits(&mut self, id: NodeId) {
        if self.scene.plan.clocks.is_none() {
            return;
        }
        if let Some(limits) = self.entry().map(|entry| entry.config.retention)
            && self.scene.history.limits.last().is_none_or(|(_, known)| *known != limits)
        {
            self.scene.history.limits.push((self.scene.now, limits));
        }
        let Some(host) = &self.nodes[&id].host else { return };
        let replicas = self.scene.history.shards().filter_map(|shard| host.replica(self.scene.log, shard));
        let (mut stable, mut trim) = (Position::ZERO, Position::ZERO);
        for replica in replicas {
            stable = stable.max(replica.stable());
            trim = trim.max(replica.held().trim);
        }
        if stable > self.scene.history.final_at.last().map_or(Position::ZERO, |(_, known)| *known) {
            self.scene.history.final_at.push((self.scene.now, stable));
        }
        if trim > self.limits.trim {
            self.limits.trim = trim;
            let (used, kept) = (self.used_bytes(), self.kept_bytes(trim));
            self.scene.tell(format_args!("trimmed to {trim}; {used} bytes were used"));
            self.scene.history.retained.push(Retained { at: self.scene.now, trim, used, kept });
        }
        if self.scene.now >= self.limits.seek_at && self.scene.now >= self.scene.began {
            self.limits.seek_at = self.scene.now + SEEK_EVERY;
            let back = self.scene.random.between(0, 3000);
            self.seek(millis(self.scene.now - Time::ZERO).saturating_sub(back));
        }
    }

    /// Somebody asks where a time begins, as a client does.
    fn seek(&mut self, right_ms: u64) {
        if let Some(answer) = self.position_at(BEGAN_MS + right_ms) {
            self.scene.history.sought.push(Sought { right_ms, answer });
        }
    }

    fn position_at(&self, wall_ms: u64) -> Option<Position> {
        let mut times = TimeIndex::default();
        for members in &self.scene.latest_view()?.shards {
            for replica in &members.replicas {
                let role = self.nodes[&replica.node].replica(self.scene.log, members.shard);
                role.into_iter().for_each(|role| times.merge(role.times()));
            }
        }
        Some(times.position_at(wall_ms))
    }

    /// How many bytes of files the log takes that nothing written before keeps, one replica of each shard counted, the one that
    /// has least.
    fn used_bytes(&self) -> u64 {
        self.least_bytes(|usage| usage.bytes - usage.held_bytes(self.limits.trim))
    }

    /// How many bytes records from a position on keep, counted so.
    fn kept_bytes(&self, trim: Position) -> u64 {
        self.least_bytes(|usage| usage.kept_bytes(trim))
    }

    /// A part of what the stores of each shard's replicas take, summed up over shards: of replicas the least.
    fn least_bytes(&self, part: impl Fn(&StoreUse) -> u64) -> u64 {
        let shards = self.scene.latest_view().into_iter().flat_map(|view| &view.shards);
        let of_shard = |members: &ShardMembers| {
            let hosts = members.replicas.iter().filter_map(|replica| self.nodes[&replica.node].host.as_ref());
            let uses = hosts.filter_map(|host| host.store_use(self.scene.log, members.shard));
            uses.map(|usage| part(&usage)).min().unwrap_or_default()
        };
        shards.map(of_shard).sum()
    }

    /// How many bytes a log may have beyond its limit: on each shard the segment that is written to, one of which a part is
    /// trimmed, and what binding logs start with.
    fn slack_bytes(&self) -> u64 {
        u64::from(self.scene.history.shard_count) * (2 * self.scene.plan.shard_options.segment_bytes + 16_384)
    }

    /// Waits until the log keeps to its limits. What stands in the way if it does not.
    pub(super) fn settle_limits(&mut self) {
        if self.scene.plan.clocks.is_none() {
            return;
        }
        if !self.run_until(KEPT_WITHIN, |world| world.exceeds().is_none()) {
            self.scene.history.exceeds = self.exceeds();
        }
    }

    /// Which limit the log does not keep to, if there is one.
    fn exceeds(&self) -> Option<String> {
        let limits = self.entry()?.config.retention;
        let stable = self.scene.history.final_at.last().map_or(Position::ZERO, |(_, stable)| *stable);
        let (trim, used) = (self.limits.trim, self.used_bytes());
        if limits.age_ms.is_some() && trim < stable {
            return Some(format!("all records are too old, and it is trimmed to {trim} of {stable}"));
        }
        if let Some(most) = limits.records.filter(|most| stable.since(trim) > *most) {
            return Some(format!("it is trimmed to {trim} of {stable}, and keeps {most} at most"));
        }
        if let Some(most) = limits.bytes.filter(|most| used > most + self.slack_bytes()) {
            return Some(format!("it takes {used} bytes of {most}, trimmed to {trim} of {stable}"));
        }
        let sought = self.position_at(u64::MAX).unwrap_or_default();
        (sought < stable).then(|| format!("marks reach {sought} of {stable}"))
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
