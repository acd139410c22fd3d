//! Kill loops: clients append, a subscriber reads, the cluster is killed and restarted.
//!
//! `SERIATIM_RIG_LOOPS` repeats each loop with other seeds; `SERIATIM_RIG_SEED` replays the
//! schedule of one seed, apart from the scheduling of processes.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use seriatim_client::{AppendOptions, Durability, LogConfig, LogOptions, Order, Position};

use crate::cluster::Cluster;
use crate::history::may_have_no_ops;
use crate::workload::{DEADLINE, Style, Workload, all_styles};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    /// Kills again this long after the restart, ready or not.
    KillTwice(Duration),
    Stop(Signal),
}

struct Plan {
    name: String,
    config: LogConfig,
    styles: Vec<Style>,
}

fn plan(name: &str, order: Order, shape: (u32, u32, u32, u64), styles: &[Style]) -> Plan {
    let mut config = LogConfig { order, ..LogConfig::default() };
    (config.shards, config.replicas, config.sequencers, config.stripe) = shape;
    Plan { name: name.to_owned(), config: config.fitted(), styles: styles.into() }
}

/// Logs of all orders in several shapes, with all kinds of programs. The seed picks the orders of
/// rare shapes.
fn many_logs(seed: u64) -> Vec<Plan> {
    let stripes = [64, 4, 16, 8].into_iter().cycle();
    let usual = Order::ALL.into_iter().zip(stripes).map(|(order, stripe)| {
        // Chains need three replicas to have a middle.
        let replicas = 2 + u32::from(order.places_first());
        plan(order.properties().name, order, (2, replicas, 3, stripe), &all_styles(order))
    });
    let drawn = |number: u64| Order::ALL[(seed.wrapping_add(number) % Order::ALL.len() as u64) as usize];
    let rare = [
        plan("wide", drawn(0), (3, 3, 2, 7), &[Style::Pipelined(32), Style::Synchronous]),
        plan("lone", drawn(1), (1, 1, 1, 1), &[Style::Pipelined(4), Style::Synchronous]),
    ];
    usual.chain(rare).collect()
}

fn seeds() -> Vec<u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} needs a number, not '{text}'")))
    };
    match number("SERIATIM_RIG_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("SERIATIM_RIG_LOOPS").unwrap_or(1)).map(|_| rand::random()).collect(),
    }
}

#[derive(Default)]
struct Tally {
    acknowledged: u64,
    faults: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_moved_by_kills() {
    kill_loops("kill -9", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_moved_when_unsynced_writes_are_lost_with_the_process() {
    kill_loops("kill -9, unsynced writes lost", &["--volatile-disk"]).await;
}

#[expect(
    clippy::print_stderr,
    reason = "who runs many loops wants to see what ran, and the seed of a failure"
)]
async fn kill_loops(what: &str, options: &'static [&'static str]) {
    let (seeds, started) = (seeds(), Instant::now());
    let mut total = Tally::default();
    for seed in &seeds {
        eprintln!("{what}: SERIATIM_RIG_SEED={seed}");
        let mut random = StdRng::seed_from_u64(*seed);
        let faults: Vec<Fault> = (0..3).map(|_| random_kill(&mut random)).collect();
        let run = run(options, many_logs(*seed), &faults, *seed);
        let done = tokio::time::timeout(Duration::from_secs(180), run).await;
        let done = done.unwrap_or_else(|_| panic!("{what}: seed {seed} did not come to an end"));
        total.acknowledged += done.acknowledged;
        total.faults += done.faults;
    }
    eprintln!(
        "{what}: {} clusters, {} kills, {} appends acknowledged, all there once; {:.1} s",
        seeds.len(),
        total.faults,
        total.acknowledged,
        started.elapsed().as_secs_f64()
    );
}

fn random_kill(random: &mut StdRng) -> Fault {
    if random.random_ratio(1, 3) {
        Fault::KillTwice(Duration::from_millis(random.random_range(0..600)))
    } else {
        Fault::Kill
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_end_loses_nothing_at_any_durability() {
    let durabilities = [Durability::Disk, Durability::Memory];
    let logs = Order::ALL.into_iter().flat_map(|order| durabilities.map(|durability| (order, durability)));
    let logs = logs.map(|(order, durability)| {
        let (name, styles) = (format!("{order}-{durability}"), [Style::Pipelined(64), Style::Synchronous]);
        let mut plan = plan(&name, order, (2, 2, 3, 64), &styles);
        plan.config.durability = durability;
        plan
    });
    let faults = [Fault::Stop(Signal::INT), Fault::Stop(Signal::TERM)];
    // The lossy disk shows that an orderly stop also syncs.
    let run = run(&["--volatile-disk"], logs.collect(), &faults, 7);
    tokio::time::timeout(Duration::from_secs(120), run).await.expect("it comes to an end");
}

/// One cluster, from the start through all faults to the check of every log.
async fn run(options: &'static [&'static str], plans: Vec<Plan>, faults: &[Fault], seed: u64) -> Tally {
    let mut random = StdRng::seed_from_u64(seed.rotate_left(17));
    let mut cluster = Cluster::start(options).await;
    let client = cluster.client(DEADLINE).await;
    let mut logs = vec![];
    for Plan { name, config, styles } in plans {
        let order = config.order;
        client.create(&name, config).await.expect("the log is created");
        logs.push(Workload::start(cluster.address(), &name, order, random.random(), &styles));
    }
    let mut tally = Tally::default();
    for fault in faults {
        more_acknowledged(&logs, random.random_range(50..600)).await;
        for log in &logs {
            log.read_stable().await;
        }
        tally.faults += strike(&mut cluster, *fault).await;
        for log in &logs {
            log.read_stable().await;
        }
    }
    more_acknowledged(&logs, 50).await;
    for log in logs {
        let name = log.name.clone();
        match log.finish().await {
            Ok(acknowledged) => tally.acknowledged += acknowledged,
            Err(violations) => panic!(
                "SERIATIM_RIG_SEED={seed} {faults:?}: log '{name}': {} violations, the first of them:\n{}\nthe cluster says: {}",
                violations.len(),
                violations[..violations.len().min(10)].join("\n"),
                cluster.says()
            ),
        }
    }
    assert_eq!(cluster.complaints(), "", "SERIATIM_RIG_SEED={seed} {faults:?}: nothing is worth a warning");
    tally
}

/// Waits for more acknowledgements in each log.
async fn more_acknowledged(logs: &[Workload], count: u64) {
    for log in logs {
        // A tenth of `count` is enough: the smallest log appends one by one.
        let target = log.history.acknowledged() + count / 10 + 1;
        let waiting = tokio::time::timeout(DEADLINE, log.history.wait_for(target));
        assert!(waiting.await.is_ok(), "log '{}' acknowledges nothing any more", log.name);
    }
}

/// Strikes, and waits until the cluster serves. Returns the number of ended processes.
async fn strike(cluster: &mut Cluster, fault: Fault) -> usize {
    match fault {
        Fault::Kill => {
            cluster.kill_and_restart().await;
            1
        }
        Fault::KillTwice(after) => {
            cluster.kill().await;
            cluster.spawn();
            cluster.ready_within(after).await;
            cluster.kill_and_restart().await;
            2
        }
        Fault::Stop(signal) => {
            let status = cluster.stop(signal).await;
            assert!(status.success(), "{signal:?}: {status}; it says: {}", cluster.says());
            cluster.spawn();
            cluster.ready().await;
            1
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_was_idle_finds_the_nodes_that_moved() {
    let test = async {
        let mut cluster = Cluster::start(&[]).await;
        let mut logs = vec![];
        // Each log has its own client, which learns nothing from other clients. The only sequencing
        // replica of each log is on another node. After the restart all nodes except the first have
        // new addresses, and no pending request makes the client ask for them.
        let one = |order: Order| plan(order.properties().name, order, (1, 1, 1, 1), &[]);
        for plan in Order::ALL.map(one) {
            let client = cluster.client(Duration::from_secs(20)).await;
            client.create(&plan.name, plan.config.clone()).await.expect("the log is created");
            // A record may miss the moved shard although its id or position was accepted.
            let may_miss = plan.config.order.properties().fills_late;
            let options = if may_miss { LogOptions::unordered(1) } else { LogOptions::default() };
            let log = client.log_with(&plan.name, options).await.expect("it is there");
            assert_eq!(log.append_sync("before").await, Ok(Position(0)));
            logs.push((plan.config.order, log));
        }
        cluster.kill_and_restart().await;
        for (order, log) in &logs {
            let tail = log.check_tail().await.expect("it has a tail");
            assert!(tail == Position(1) || tail > Position(1) && order.has_quotas(), "{order}: {tail}");
        }
        cluster.kill_and_restart().await;
        for (order, log) in &logs {
            let receipt = log.append("after", AppendOptions::sync()).await.expect("it is appended");
            let no_ops = u64::from(receipt.appended_again);
            let (position, next) = (receipt.position, Some(Position(1 + no_ops)));
            assert!(position == next || position > next && order.has_quotas(), "{order}: {position:?}");
            assert!(no_ops == 0 || may_have_no_ops(*order), "{}", log.name());
        }
    };
    tokio::time::timeout(Duration::from_secs(100), test).await.expect("it comes to an end");
}
