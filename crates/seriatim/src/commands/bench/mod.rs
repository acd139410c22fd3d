//! `seriatim bench`: what appends cost here, beside what the machine itself can do.
//!
//! Each ordering runs on a fresh cluster in this process, over real loopback TCP. Figures of different
//! runs cannot be compared; the ratios within one can.

mod failover;
mod figures;
mod floor;
mod metadata;
mod pace;
mod read;
mod scale;
mod stall;
mod throughput;

use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Append, Client, Durability, Log, LogConfig, Order};
use seriatim_node::{Dev, DevOptions};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::arguments::{BenchArguments, BenchCommand};
use crate::output::{Failure, Outcome, progress};
use figures::{Latencies, Report, Row, cpu_time};
use pace::Pace;
use throughput::{Load, throughput};

/// How many nodes the throw-away cluster has.
const NODES: u32 = 3;
/// Below this part of the rate that was asked for, a latency is not worth its name.
const REACHED: f64 = 0.98;

pub(crate) async fn run(command: BenchCommand) -> Outcome {
    let arguments = match &command {
        BenchCommand::Latency(arguments) | BenchCommand::Throughput(arguments) => arguments,
        BenchCommand::Failover(arguments) => return failover::run(arguments).await,
        BenchCommand::Read(arguments) => return read::run(arguments).await,
        BenchCommand::Scale(arguments) => return scale::run(arguments).await,
        BenchCommand::Metadata(arguments) => return metadata::run(arguments),
        BenchCommand::Stall(arguments) => return stall::run(arguments).await,
    };
    let bar = progress(Some(arguments.order.len() as u64 + 1), "rows");
    let size = arguments.size.unwrap_or(match command {
        BenchCommand::Latency(_) => 4096,
        _ => 100,
    });
    let clients = arguments.clients.unwrap_or(4);
    let duration = Duration::from_secs(arguments.duration);
    let sequencers = NODES as usize;
    let floor =
        floor::measure(sequencers, size, clients, arguments.rate, duration.min(Duration::from_secs(10)));
    let mut rows = vec![floor.await?];
    bar.inc(1);
    for order in &arguments.order {
        let BenchArguments { durability, shards, replicas, .. } = *arguments;
        let shape = Shape { order: *order, durability, shards, replicas };
        let cluster = Cluster::start(shape, &Handle::current()).await?;
        let row = match command {
            BenchCommand::Latency(_) => latency(&cluster, *order, arguments, size, clients, duration).await?,
            _ => {
                let clients = arguments.clients.unwrap_or(8);
                let load = Load { clients, in_flight: arguments.in_flight, size, duration };
                throughput(&cluster, &order.to_string(), load).await?
            }
        };
        cluster.dev.stop().await?;
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report::compared_with_the_first(rows);
    report.print();
    arguments.json.as_deref().map_or(Ok(()), |path| report.write(path))
}

/// What the log of a throw-away cluster is like.
#[derive(Clone, Copy, Debug)]
struct Shape {
    order: Order,
    durability: Durability,
    shards: u32,
    replicas: u32,
}

/// A throw-away cluster with one log.
struct Cluster {
    dev: Dev,
    address: String,
    _data: tempfile::TempDir,
}

impl Cluster {
    /// Starts it, with its nodes on a runtime.
    async fn start(shape: Shape, nodes: &Handle) -> Result<Self, Failure> {
        let data = tempfile::tempdir()?;
        let options = DevOptions { nodes: Some(NODES), ..DevOptions::new(data.path(), "127.0.0.1:0") };
        let dev = nodes.spawn(Dev::start(options)).await??;
        let address = dev.address().to_string();
        let client = Client::connect(&address).await?;
        let config = LogConfig {
            order: shape.order,
            durability: shape.durability,
            shards: shape.shards,
            replicas: shape.replicas,
            sequencers: NODES,
            ..LogConfig::default()
        };
        client.create("bench", config).await?;
        Ok(Self { dev, address, _data: data })
    }

    async fn log(&self) -> Result<Log, Failure> {
        Ok(Client::connect(&self.address).await?.log("bench").await?)
    }

    /// The stable bound, as the shards know it.
    async fn stable(&self) -> Result<u64, Failure> {
        let client = Client::connect(&self.address).await?;
        let status = client.status(client.lookup("bench").await?).await;
        status.stable.map(|stable| stable.0).ok_or_else(|| Failure::new("a shard did not answer"))
    }
}

/// Open loop: appends begin on a schedule, whatever happens to those before.
async fn latency(
    cluster: &Cluster,
    order: Order,
    arguments: &BenchArguments,
    size: usize,
    clients: usize,
    duration: Duration,
) -> Result<Row, Failure> {
    let mut logs = vec![];
    for _ in 0..clients {
        let log = cluster.log().await?;
        // The session is opened, and the connections made, before anything counts.
        log.append(Bytes::from(vec![7; size]), Default::default()).await?;
        logs.push(log);
    }
    let cpu = cpu_time();
    let started = Instant::now();
    let mut tasks = vec![];
    for (log, pace) in logs.into_iter().zip(Pace::split(arguments.rate, clients, duration)) {
        tasks.push(tokio::spawn(append_on_schedule(log, pace, size)));
    }
    let mut latencies = Latencies::new();
    for task in tasks {
        latencies.merge(&task.await??);
    }
    let count = latencies.count();
    let reached = count as f64 / started.elapsed().as_secs_f64();
    let mut row = Row::new(&order.to_string(), &latencies, reached, cpu_time() - cpu, count);
    if reached < arguments.rate as f64 * REACHED {
        row.note = Some(format!("reached only {reached:.0} of {} appends/s: not a latency", arguments.rate));
    }
    Ok(row)
}

async fn append_on_schedule(log: Log, mut pace: Pace, size: usize) -> Result<Latencies, Failure> {
    let payload = Bytes::from(vec![7; size]);
    let (appends, mut in_flight) = mpsc::channel::<(Instant, Append)>(1 << 16);
    let settle = tokio::spawn(async move {
        let mut latencies = Latencies::new();
        // A session is acknowledged in order, so waiting in order delays no measurement.
        while let Some((scheduled, append)) = in_flight.recv().await {
            append.await?;
            latencies.record(scheduled.elapsed());
        }
        Ok::<_, Failure>(latencies)
    });
    while let Some(scheduled) = pace.next().await {
        let append = log.submit(payload.clone()).await?;
        if appends.send((scheduled, append)).await.is_err() {
            break;
        }
    }
    drop(appends);
    settle.await?
}
