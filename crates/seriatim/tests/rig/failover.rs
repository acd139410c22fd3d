//! Nodes fail while programs append and read. The log continues without them and is complete after
//! their return. Acknowledged records stay, once, at their positions.
//!
//! The register's node (node 1) is spared; with etcd, any node may fail.
//!
//! `SERIATIM_RIG_FAILOVER_LOOPS` repeats each failure on new clusters.

use std::time::Duration;

use rustix::process::Signal;
use seriatim_client::{Client, LogConfig, LogEntry, NodeId, Order};

use crate::events::told;
use crate::members::{Members, Register, has_etcd};
use crate::workload::{DEADLINE, Workload, all_styles};

/// Time limit for continuing without the lost nodes, on a busy machine.
const GOES_ON_WITHIN: Duration = Duration::from_secs(10);
/// Time limit for the log's full membership after the nodes return.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);
/// Acknowledgements that prove progress: more than are in flight.
const MORE: u64 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Kill,
    Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Leader,
    Follower,
    Primary,
    Backup,
    /// A follower; then, during the view change, the first remaining node.
    FollowerAndWhoActs,
    Two,
}

impl Whom {
    fn nodes(self, entry: &LogEntry, members: &Members) -> Vec<NodeId> {
        let view = entry.view.as_ref().expect("it has a view");
        let mut followers =
            view.sequencers.iter().map(|member| member.node).filter(|node| *node != view.leader);
        let mut follower = || followers.next().expect("it has followers");
        match self {
            Self::Leader => vec![view.leader],
            Self::Follower => vec![follower()],
            Self::Primary => vec![view.shards[0].primary().node],
            Self::Backup => vec![view.shards[0].replicas[1].node],
            Self::FollowerAndWhoActs => {
                let lost = follower();
                let acts = members.numbers().find(|node| *node != lost).expect("there are more");
                vec![lost, acts]
            }
            Self::Two => vec![view.leader, follower()],
        }
    }

    /// Whether logs of this order have such nodes: a single sequencer has no follower.
    fn is_in(self, order: Order) -> bool {
        !order.properties().has_one_sequencer || matches!(self, Self::Leader | Self::Primary | Self::Backup)
    }

    /// A log with enough members to lose these nodes, one member per node.
    fn config(self) -> LogConfig {
        let count = if matches!(self, Self::Two | Self::FollowerAndWhoActs) { 4 } else { 3 };
        LogConfig { sequencers: count, replicas: count, ..LogConfig::default() }
    }
}

/// Creates a log per suitable order, with `whom` on the same nodes, other than the register's. With
/// etcd only lazy orders, because of the load; another test covers all.
async fn create(
    client: &Client,
    members: &Members,
    register: Register,
    whom: Whom,
) -> (Vec<LogEntry>, Vec<NodeId>) {
    let spares = |nodes: &[NodeId]| register == Register::Etcd || !nodes.contains(&NodeId(1));
    let takes_part = |order: Order| whom.is_in(order) && (order.is_lazy() || register == Register::First);
    let mut orders = Order::ALL.into_iter().filter(|order| takes_part(*order));
    let first = orders.next().expect("some ordering has them");
    let (first, lost) = create_one(client, members, (first, whom), spares).await;
    let mut entries = vec![first];
    for order in orders {
        entries.push(create_one(client, members, (order, whom), |nodes| nodes == lost).await.0);
    }
    (entries, lost)
}

async fn create_one(
    client: &Client,
    members: &Members,
    (order, whom): (Order, Whom),
    suits: impl Fn(&[NodeId]) -> bool,
) -> (LogEntry, Vec<NodeId>) {
    for number in 0..8 {
        let (name, config) = (format!("{order}-{number}"), LogConfig { order, ..whom.config() });
        let entry = client.create(&name, config).await.expect("the log is created");
        let nodes = whom.nodes(&entry, members);
        if suits(&nodes) {
            return (entry, nodes);
        }
        client.delete(&name).await.expect("it is deleted");
    }
    panic!("{whom:?} is never where it should be");
}

struct Logs {
    logs: Vec<(LogEntry, Workload)>,
    what: String,
}

impl Logs {
    fn start(members: &Members, entries: impl IntoIterator<Item = LogEntry>, what: &str) -> Self {
        let start = |entry: LogEntry| {
            let order = entry.config.order;
            let styles = all_styles(order);
            let log = Workload::start(&members.addresses(), &entry.name, order, rand::random(), &styles);
            (entry, log)
        };
        Self { logs: entries.into_iter().map(start).collect(), what: what.to_owned() }
    }

    /// Waits for acknowledgements of appends submitted from now on.
    async fn go_on(&self, when: &str, members: &Members) {
        let targets: Vec<u64> = self.logs.iter().map(|(_, log)| log.history.acknowledged() + MORE).collect();
        for ((entry, log), target) in self.logs.iter().zip(targets) {
            let waiting = tokio::time::timeout(GOES_ON_WITHIN, log.history.wait_for(target)).await;
            let (what, name) = (&self.what, &entry.name);
            assert!(waiting.is_ok(), "{what}: '{name}' acknowledges nothing {when}; {}", members.says());
        }
    }

    async fn whole(&self, client: &Client, gone: &[NodeId], members: &Members) {
        for (entry, _) in &self.logs {
            whole(client, entry, gone, &self.what, members).await;
        }
    }

    async fn finish(self, members: &Members) {
        for (entry, log) in self.logs {
            finish(log, &format!("{}, {}", self.what, entry.config.order), members).await;
        }
    }
}

fn loops() -> u32 {
    let Ok(text) = std::env::var("SERIATIM_RIG_FAILOVER_LOOPS") else { return 1 };
    text.parse().unwrap_or_else(|_| panic!("SERIATIM_RIG_FAILOVER_LOOPS needs a number, not '{text}'"))
}

async fn lose(register: Register, whom: Whom, blow: Blow) {
    let what = format!("{register:?}, {whom:?}, {blow:?}");
    if register == Register::Etcd && !has_etcd(&what) {
        return;
    }
    for _ in 0..loops() {
        let run = tokio::time::timeout(Duration::from_secs(200), lose_and_find(register, whom, blow, &what));
        run.await.unwrap_or_else(|_| panic!("{what}: it does not come to an end"));
    }
}

async fn lose_and_find(register: Register, whom: Whom, blow: Blow, what: &str) {
    let mut members = Members::start_on(register, 4).await;
    let client = members.client(DEADLINE).await;
    let (entries, lost) = create(&client, &members, register, whom).await;
    let logs = Logs::start(&members, entries, what);
    logs.go_on("before anything is lost", &members).await;
    for node in &lost {
        match blow {
            Blow::Kill => members.kill(*node).await,
            Blow::Pause => members.signal(*node, Signal::STOP),
        }
    }
    logs.go_on(&format!("without {lost:?}"), &members).await;
    for (_, log) in &logs.logs {
        log.read_stable().await;
    }
    for node in &lost {
        match blow {
            Blow::Kill => members.spawn(*node),
            Blow::Pause => members.signal(*node, Signal::CONT),
        }
    }
    if blow == Blow::Kill {
        for node in &lost {
            members.ready(*node).await;
        }
    }
    logs.whole(&client, &[], &members).await;
    logs.go_on("when it is whole", &members).await;
    logs.finish(&members).await;
}

/// Waits for the log's full membership without `gone` nodes; a spare may replace a lost one.
async fn whole(client: &Client, entry: &LogEntry, gone: &[NodeId], what: &str, members: &Members) {
    let (meant, replicas) = (entry.config.sequencers as usize, entry.config.replicas as usize);
    let sequencers = meant.min(members.numbers().filter(|node| !gone.contains(node)).count());
    let waiting = async {
        let mut again = tokio::time::interval(Duration::from_millis(50));
        loop {
            again.tick().await;
            let view = client.lookup(&entry.name).await.expect("it is there").view.expect("it had one");
            let shards = || view.shards.iter().all(|shard| shard.replicas.len() == replicas);
            let mut all = view.sequencers.iter().chain(view.shards.iter().flat_map(|shard| &shard.replicas));
            if view.sequencers.len() >= sequencers && shards() && all.all(|one| !gone.contains(&one.node)) {
                return;
            }
        }
    };
    let outcome = tokio::time::timeout(WHOLE_WITHIN, waiting).await;
    assert!(outcome.is_ok(), "{what}: the log does not get its members back; {}", members.says());
}

async fn finish(log: Workload, what: &str, members: &Members) {
    if let Err(violations) = log.finish().await {
        let first = violations[..violations.len().min(10)].join("\n");
        panic!("{what}: {} violations, the first of them:\n{first}\n{}", violations.len(), members.says());
    }
}

macro_rules! losses {
    ($($name:ident: $register:ident, $whom:ident, $blow:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            lose(Register::$register, Whom::$whom, Blow::$blow).await;
        }
    )*};
}

losses! {
    a_leader_is_killed: First, Leader, Kill;
    a_follower_is_killed: First, Follower, Kill;
    a_primary_is_killed: First, Primary, Kill;
    a_backup_is_killed: First, Backup, Kill;
    two_are_killed_at_once: First, Two, Kill;
    a_leader_is_paused: First, Leader, Pause;
    a_follower_is_paused: First, Follower, Pause;
    a_primary_is_paused: First, Primary, Pause;
    a_backup_is_paused: First, Backup, Pause;
    with_etcd_a_leader_is_killed: Etcd, Leader, Kill;
    with_etcd_a_leader_is_paused: Etcd, Leader, Pause;
    with_etcd_a_primary_is_killed: Etcd, Primary, Kill;
    with_etcd_two_are_killed_at_once: Etcd, Two, Kill;
    with_etcd_two_are_paused_at_once: Etcd, Two, Pause;
    with_etcd_who_acts_on_a_loss_is_killed_too: Etcd, FollowerAndWhoActs, Kill;
    with_etcd_who_acts_on_a_loss_is_paused_too: Etcd, FollowerAndWhoActs, Pause;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_in_turn_is_killed_and_comes_back() {
    const WHAT: &str = "every node in turn";
    if !has_etcd(WHAT) {
        return;
    }
    let mut members = Members::start_on(Register::Etcd, 4).await;
    let client = members.client(DEADLINE).await;
    let mut entries = vec![];
    for order in Order::ALL {
        let config = LogConfig { order, ..Whom::Leader.config() };
        entries.push(client.create(&format!("log-{order}"), config).await.expect("the log is created"));
    }
    let logs = Logs::start(&members, entries, WHAT);
    for node in members.numbers() {
        logs.go_on(&format!("before node {node} is killed"), &members).await;
        members.kill(node).await;
        logs.go_on(&format!("without node {node}"), &members).await;
        members.restart(node).await;
        logs.whole(&client, &[], &members).await;
    }
    logs.finish(&members).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_may_be_away_and_a_node_that_is_lost_meanwhile_is_done_without_when_it_is_back() {
    const WHAT: &str = "etcd is away";
    if !has_etcd(WHAT) {
        return;
    }
    let mut members = Members::start_on(Register::Etcd, 4).await;
    let client = members.client(DEADLINE).await;
    let (entries, lost) = create(&client, &members, Register::Etcd, Whom::Leader).await;
    let name = entries[0].name.clone();
    let logs = Logs::start(&members, entries, WHAT);
    logs.go_on("before anything is lost", &members).await;
    members.kill_etcd().await;
    logs.go_on("without etcd", &members).await;
    // A client that has not opened the log gets the cause of the outage.
    let hasty = members.client(Duration::from_secs(3)).await;
    let refused = hasty.lookup(&name).await.expect_err("nobody knows the log").to_string();
    assert!(refused.contains("etcd does not answer"), "{refused}");
    members.kill(lost[0]).await;
    members.restart_etcd().await;
    logs.go_on("with etcd, without the leader", &members).await;
    members.restart(lost[0]).await;
    logs.whole(&client, &[], &members).await;
    logs.go_on("when it is whole", &members).await;
    logs.finish(&members).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_come_back_is_replaced() {
    const WHAT: &str = "a node is gone for good";
    let mut members = Members::start(4).await;
    let client = members.client(DEADLINE).await;
    let (entries, lost) = create(&client, &members, Register::First, Whom::Backup).await;
    let logs = Logs::start(&members, entries, WHAT);
    logs.go_on("before anything is lost", &members).await;
    members.kill(lost[0]).await;
    // Members are on three nodes, so the fourth replaces the lost one.
    logs.whole(&client, &lost, &members).await;
    told(|| members.says(), &[" INFO ", " received a "]).await;
    logs.go_on("with another node in its place", &members).await;
    logs.finish(&members).await;
}
