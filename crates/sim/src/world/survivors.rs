//! Records durable on shard replicas when a view ends, as reported to the leader: survivors are in
//! the log when the next view starts.

use std::collections::BTreeMap;

use seriatim_host::Outgoing;
use seriatim_model::{Endpoint, IdRun, Member, NodeId, ShardId, View, ViewNumber};
use seriatim_protocol::shard::Unplaced;

use super::scene::Scene;
use crate::kept::Kept;

#[derive(Debug, Default)]
pub(super) struct Survivors {
    /// For each shard replica in a view: number of its records, and of starts of its process by
    /// then.
    lengths: BTreeMap<(ViewNumber, ShardId, NodeId), (u64, u64)>,
    /// Ids of these records, from the first on.
    names: BTreeMap<(ViewNumber, ShardId), Vec<IdRun>>,
    starts: BTreeMap<NodeId, u64>,
}

impl Survivors {
    pub(super) fn sent(&mut self, id: NodeId, outgoing: &Outgoing) {
        let Endpoint::Shard(shard) = outgoing.from else { return };
        let Some(Unplaced { view, length, from, names }) = outgoing.message.unplaced() else { return };
        let starts = self.starts(id);
        let (known_starts, known) = self.lengths.entry((view, shard, id)).or_default();
        (*known_starts, *known) = (starts, length.max(*known));
        let known = self.names.entry((view, shard)).or_default();
        let mut named: u64 = known.iter().map(|ids| ids.count).sum();
        let mut index = from;
        for ids in names {
            if index == named {
                known.push(ids);
                named += ids.count;
            }
            index += ids.count;
        }
    }

    pub(super) fn started(&mut self, id: NodeId) {
        *self.starts.entry(id).or_default() += 1;
    }

    fn starts(&self, id: NodeId) -> u64 {
        self.starts.get(&id).copied().unwrap_or_default()
    }

    /// Notes the records that a new view's shards kept from `old`: records that all replicas in
    /// both views held, if the process of one such replica took part in the old view. Not judged
    /// after an accepted loss or a disk failure.
    pub(super) fn registered(&mut self, scene: &mut Scene, old: &View, view: &View) {
        if scene.history.accepted.is_none() && !scene.history.disks_failed {
            for members in &view.shards {
                let was_member = |member: &&Member| {
                    old.shard(members.shard).is_some_and(|old| old.replicas.contains(member))
                };
                let said = members.replicas.iter().filter(was_member).map(|member| {
                    let said = self.lengths.get(&(old.number, members.shard, member.node));
                    let (starts, length) = said.copied().unwrap_or((u64::MAX, 0));
                    (starts == self.starts(member.node), length)
                });
                let said: Vec<(bool, u64)> = said.collect();
                if !said.iter().any(|(lives, _)| *lives) {
                    continue;
                }
                let mut left = said.iter().map(|(_, length)| *length).min().unwrap_or_default();
                for ids in self.names.get(&(old.number, members.shard)).into_iter().flatten() {
                    let ids = ids.head(left.min(ids.count));
                    left -= ids.count;
                    scene.history.kept.push(Kept { ids, view: view.number, start: view.start });
                }
            }
        }
        self.lengths.retain(|(of, ..), _| *of >= view.number);
        self.names.retain(|(of, _), _| *of >= view.number);
    }
}
