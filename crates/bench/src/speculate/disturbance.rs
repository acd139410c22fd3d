//! Disturbances of a log during a measurement (SpecLog §6.4, §6.5, §6.9, §6.11).

use std::time::{Duration, Instant};

use seriatim_client::{DelayLine, Durability, NodeId, Order};
use seriatim_net::Timer;

use crate::arguments::{Killed, SpeculateArguments, Subscribers};
use crate::cluster::{Apart, Cluster, LOG};
use crate::terminal::{Failure, Outcome};
use crate::thirds::Thirds;

#[derive(Clone, Copy, Debug)]
pub(super) enum Disturbance {
    /// Multiplies appends to the first shard while the disturbance lasts.
    Burst(u32),
    /// Multiplies appends to the first shard from the beginning of the disturbance on.
    Change(u32),
    /// Delays messages of one shard's replica while the disturbance lasts.
    Slow(Duration),
    /// Kills a node with only backups when the disturbance begins.
    ReplicaKilled,
    /// Stops all nodes of one shard (the number says how many) while the disturbance lasts.
    ShardKilled(u32),
}

impl Disturbance {
    /// Fails if an ordering does not support the disturbance.
    pub(super) fn of(arguments: &SpeculateArguments) -> Result<Option<Self>, Failure> {
        let wanted = &arguments.disturbance;
        let more = wanted.burst.map(Self::Burst).or(wanted.change.map(Self::Change));
        let chooses_none = |order: &&Order| order.places_by_position();
        if let (Some(_), Some(order)) = (more, arguments.comparison.order.iter().find(chooses_none)) {
            return Err(Failure::new(format!(
                "one shard cannot have more appends in order {order}: its clients choose none"
            )));
        }
        let copies = arguments.comparison.copies;
        let lost = wanted.kill.map(|killed| match killed {
            Killed::Replica => Self::ReplicaKilled,
            Killed::Shard => Self::ShardKilled(copies.replicas),
        });
        if matches!(lost, Some(Self::ShardKilled(_))) {
            if copies.durable.durability != Durability::Disk {
                return Err(Failure::new(
                    "a shard comes back with what its disks have: give --durability disk",
                ));
            }
            if arguments.subscribe == Subscribers::Shard {
                return Err(Failure::new("the shard's appends go to others: give --subscribe all"));
            }
        }
        Ok(more.or(wanted.slow.map(Self::Slow)).or(lost))
    }

    pub(super) fn apart(self) -> std::io::Result<Option<Apart>> {
        let nodes = match self {
            Self::Burst(_) | Self::Change(_) => return Ok(None),
            Self::Slow(_) | Self::ReplicaKilled => 1,
            Self::ShardKilled(nodes) => nodes,
        };
        Ok(Some(Apart { delay: DelayLine::start(Duration::ZERO)?, nodes }))
    }

    /// Rate, beginning and duration of the additional appends to the first shard. `rate` is the
    /// usual rate of all shards together.
    pub(super) fn more(self, rate: u64, shards: u32, thirds: Thirds) -> Option<(u64, Instant, Duration)> {
        let (times, lasts) = match self {
            Self::Burst(times) => (times, thirds.third),
            Self::Change(times) => (times, thirds.third * 2),
            Self::Slow(_) | Self::ReplicaKilled | Self::ShardKilled(_) => return None,
        };
        Some((rate * u64::from(times - 1) / u64::from(shards), thirds.begins(), lasts))
    }

    pub(super) async fn happens(
        self,
        cluster: &mut Cluster,
        apart: Option<&Apart>,
        thirds: Thirds,
    ) -> Outcome {
        let Some(apart) = apart else { return Ok(()) };
        self.finds_its_replicas(cluster, apart).await?;
        let timer = Timer::start()?;
        timer.until(thirds.begins()).await;
        match self {
            Self::Burst(_) | Self::Change(_) => {}
            Self::Slow(longer) => {
                apart.delay.set(longer);
                timer.until(thirds.ends()).await;
                apart.delay.set(Duration::ZERO);
            }
            Self::ReplicaKilled => cluster.kill_apart(apart).await,
            Self::ShardKilled(_) => {
                cluster.kill_apart(apart).await;
                timer.until(thirds.ends()).await;
                cluster.restart_apart().await?;
            }
        }
        Ok(())
    }

    /// Fails unless the additional nodes have the intended replicas.
    async fn finds_its_replicas(self, cluster: &Cluster, apart: &Apart) -> Outcome {
        let entry = cluster.client().await?.lookup(LOG).await?;
        let is_apart = |node: &NodeId| apart.numbers().any(|apart| apart == *node);
        let some = entry.shards.iter().filter(|nodes| nodes.iter().any(is_apart)).count();
        let whole = entry.shards.iter().filter(|nodes| nodes.iter().all(is_apart)).count();
        let (is_so, advice) = match self {
            Self::ShardKilled(_) => (whole == 1, "--shards 3"),
            Self::ReplicaKilled => (some > 0, "--shards 2 --replicas 2"),
            _ => (some == 1, "--shards 2 --replicas 2"),
        };
        match is_so {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "its nodes have replicas of {some} shards, and of {whole} all: give {advice}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_and_a_change_lasts() {
        let start = Instant::now();
        let thirds = Thirds::new(start, Duration::from_secs(3));
        let (second, from) = (Duration::from_secs(1), start + Duration::from_secs(1));
        assert_eq!(Disturbance::Burst(10).more(1000, 2, thirds), Some((4500, from, second)));
        assert_eq!(Disturbance::Change(3).more(1000, 2, thirds), Some((1000, from, second * 2)));
        assert_eq!(Disturbance::ReplicaKilled.more(1000, 2, thirds), None);
    }
}
