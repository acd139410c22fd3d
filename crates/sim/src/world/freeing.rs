//! Where disks are small the whole log is trimmed in the end, and each of its replicas gives its
//! room back.

use std::time::Duration;

use super::cluster::Cluster;
use super::{CONTROL, JUDGE, World};
use crate::trimmer::Trimmer;

/// How long it may take until every replica has confirmed the trim.
const TRIMMED_WITHIN: Duration = Duration::from_secs(20);
/// How long the replicas may take from then on to delete their files.
const FREED_WITHIN: Duration = Duration::from_secs(5);
/// Which part of a segment the store of a trimmed replica takes at most.
const PART_OF_A_SEGMENT: u64 = 4;

impl World {
    /// Trims the log to its tail, and waits until its stores are small. Notes what stands in the
    /// way if they are not.
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
    /// The replica of the latest view that takes more than a trimmed one may, and how much.
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
