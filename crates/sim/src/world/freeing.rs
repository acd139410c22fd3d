//! With small disks, the whole log is trimmed in the end and each replica frees its space.

use std::time::Duration;

use super::cluster::Cluster;
use super::{CONTROL, JUDGE, World};
use crate::trimmer::Trimmer;

/// Time for every replica to confirm the trim.
const TRIMMED_WITHIN: Duration = Duration::from_secs(20);
/// Time for the replicas to delete their files afterwards.
const FREED_WITHIN: Duration = Duration::from_secs(5);
/// A trimmed store takes at most this fraction (1/N) of a segment.
const PART_OF_A_SEGMENT: u64 = 4;

impl World {
    /// Trims the log to its tail and notes stores that remain too large.
    pub(super) fn free_everything(&mut self) {
        let plan = &self.cluster.scene.plan;
        if plan.disk.most.is_none() || !plan.workload.trims {
            return;
        }
        let (now, options) = (self.cluster.scene.now, plan.options);
        let tail = self.cluster.truth().leader_ordered().unwrap_or_default();
        let Some(entry) = self.cluster.entry().cloned() else { return };
        self.clients.add_trimmer(
            &mut self.cluster,
            JUDGE,
            Trimmer::up_to(now, CONTROL, entry, tail, options),
        );
        let is_trimmed = self.run_until(TRIMMED_WITHIN, |world| world.clients.has_trimmed(JUDGE));
        self.clients.end_one(&mut self.cluster, JUDGE);
        let is_freed =
            is_trimmed && self.run_until(FREED_WITHIN, |world| world.cluster.keeps_room().is_none());
        if !is_freed {
            let kept = self.cluster.keeps_room().unwrap_or_else(|| "not every replica confirmed".into());
            self.cluster.scene.history.unfreed = Some(format!("trimmed to {tail}: {kept}"));
        }
    }
}

impl Cluster {
    fn keeps_room(&self) -> Option<String> {
        let most = self.scene.plan.shard_options.segment_bytes / PART_OF_A_SEGMENT;
        let shards = self.scene.latest_view().into_iter().flat_map(|view| &view.shards);
        let replicas = shards.flat_map(|members| members.replicas.iter().map(|at| (at.node, members.shard)));
        let mut uses = replicas.filter_map(|(node, shard)| {
            let usage = self.truth().nodes[&node].host.as_ref()?.store_use(self.scene.log, shard)?;
            Some((node, shard, usage.bytes))
        });
        let (node, shard, bytes) = uses.find(|(.., bytes)| *bytes > most)?;
        Some(format!("node {node} has {bytes} bytes of shard {shard}, where {most} are enough"))
    }
}
