//! A second log with little load, which must not suffer from the load on the tested one.

use std::collections::BTreeMap;

use seriatim_model::{LogId, ShardId};
use seriatim_protocol::control::LogEntry;

use super::World;
use super::clients::{Clients, machine_config};
use super::cluster::Cluster;
use super::scene::Scene;
use super::truth::{self, Truth};
use crate::client::{Client, Producer};
use crate::history::{End, History};
use crate::plan::{Plan, Workload};

pub(super) const NAME: &str = "second";
const APPENDER: u32 = 10_003;
const JUDGE: u32 = 10_004;
/// Most appends in flight: the client does not wait for earlier ones.
const WINDOW: u32 = 64;

pub(super) fn history_of(history: &mut History, client: u32) -> &mut History {
    match client {
        APPENDER | JUDGE => history.second.as_mut().expect("there is a second log"),
        _ => history,
    }
}

pub(super) fn workload_of(plan: &Plan, client: u32) -> Workload {
    match plan.second_log_every.filter(|_| client == APPENDER) {
        // Clients pause for a quarter to the whole of `think_us`, on average for `every`.
        Some(every) => {
            Workload { window: WINDOW, burst: 1, think_us: every.as_micros() as u64 * 8 / 5, ..plan.workload }
        }
        None => plan.workload,
    }
}

pub(super) fn log_of(scene: &Scene, client: u32) -> LogId {
    match client {
        APPENDER | JUDGE => scene.second.unwrap_or_default(),
        _ => scene.log,
    }
}

impl Truth<'_> {
    fn second_entry(&self) -> Option<&LogEntry> {
        truth::entry(self.nodes, self.scene.second?)
    }

    /// Whether all appends to the second log are final.
    pub(super) fn second_is_at_rest(&self) -> bool {
        let Some(log) = self.scene.second else { return true };
        let Some(view) = self.second_entry().and_then(|entry| entry.view.as_ref()) else { return false };
        let Some(leader) = self.nodes[&view.leader].sequencer(log) else { return false };
        let ordered = leader.ordered();
        view.sequencers.iter().all(|member| {
            let role = self.nodes[&member.node].sequencer(log);
            role.is_some_and(|role| role.is_open() && role.held() == 0 && role.ordered() == ordered)
        }) && view.shards.iter().all(|members| {
            let role = self.nodes[&members.primary().node].replica(log, members.shard);
            role.is_some_and(|role| role.stable() == ordered)
        })
    }
}

impl Clients {
    pub(super) fn begin_second(&mut self, cluster: &mut Cluster) {
        let Some(entry) = cluster.truth().second_entry().cloned() else { return };
        let config = machine_config(&mut cluster.scene, None);
        let session = history_of(&mut cluster.scene.history, APPENDER).open_session();
        let producer = Producer::new(0, APPENDER, session, u32::MAX, (config, entry), cluster.scene.now);
        let client = Client::new(APPENDER, BTreeMap::from([(0, producer)]));
        self.enter(cluster, client);
    }
}

impl World {
    pub(super) fn found_second(&mut self) {
        if self.cluster.scene.plan.second_log_every.is_none() {
            return;
        }
        self.create(NAME.to_owned(), self.cluster.scene.plan.config.clone());
        let id = self.cluster.entries().find(|entry| entry.name == NAME).map(|entry| entry.id);
        self.cluster.scene.second = id;
        self.cluster.scene.history.second =
            Some(Box::new(History::new(self.cluster.scene.plan.config.clone())));
    }

    pub(super) fn read_second(&mut self) {
        let Some(entry) = self.cluster.truth().second_entry().cloned() else { return };
        let leader = entry.view.as_ref().and_then(|view| self.cluster.node(view.leader).sequencer(entry.id));
        let tail = leader.map(|leader| leader.ordered());
        let shards = (0..entry.config.shards).map(ShardId).collect();
        let trim = self.read_log(JUDGE, &entry, shards);
        history_of(&mut self.cluster.scene.history, JUDGE).end = match trim.zip(tail) {
            Some(((trim, true), tail)) => End::AtRest { trim, tail },
            _ => End::Stuck("the second log could not be read to its end".into()),
        };
    }
}
