//! As many appends as the clients keep in flight, counted when they are stable.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::{Append, Log};

use super::Cluster;
use super::figures::{Latencies, Row, cpu_time};
use crate::output::Failure;

/// How long appends run before they are counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// What the clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) clients: usize,
    /// How many appends each of them keeps in flight.
    pub(super) in_flight: usize,
    /// Bytes of a record.
    pub(super) size: usize,
    /// For how long.
    pub(super) duration: Duration,
}

/// Closed loop with many in flight; counts what became stable.
pub(super) async fn throughput(cluster: &Cluster, name: &str, load: Load) -> Result<Row, Failure> {
    let Load { clients, in_flight, size, duration } = load;
    let stop = Instant::now() + WARM_UP + duration;
    let mut tasks = vec![];
    for _ in 0..clients {
        let log = cluster.log().await?;
        tasks.push(tokio::spawn(append_until(log, in_flight, size, stop)));
    }
    tokio::time::sleep(WARM_UP).await;
    let (cpu, before, started) = (cpu_time(), cluster.stable().await?, Instant::now());
    tokio::time::sleep_until(stop.into()).await;
    let (cpu, after, elapsed) = (cpu_time() - cpu, cluster.stable().await?, started.elapsed());
    let mut latencies = Latencies::new();
    for task in tasks {
        latencies.merge(&task.await??);
    }
    let stable = after - before;
    let mut row = Row::new(name, &latencies, stable as f64 / elapsed.as_secs_f64(), cpu, stable);
    row.stable_lag_ms = Some(stable_lag(cluster, latencies.count()).await?.as_secs_f64() * 1e3);
    Ok(row)
}

async fn append_until(log: Log, in_flight: usize, size: usize, stop: Instant) -> Result<Latencies, Failure> {
    let payload = Bytes::from(vec![7; size]);
    let mut latencies = Latencies::new();
    let mut window: VecDeque<(Instant, Append)> = VecDeque::new();
    while Instant::now() < stop {
        while window.len() < in_flight {
            window.push_back((Instant::now(), log.submit(payload.clone()).await?));
        }
        if let Some((began, append)) = window.pop_front() {
            append.await?;
            latencies.record(began.elapsed());
        }
    }
    for (began, append) in window {
        append.await?;
        latencies.record(began.elapsed());
    }
    Ok(latencies)
}

/// How long the shards need, after the last acknowledgement, until everything is stable.
async fn stable_lag(cluster: &Cluster, appended: u64) -> Result<Duration, Failure> {
    let began = Instant::now();
    while cluster.stable().await? < appended {
        if began.elapsed() > Duration::from_secs(30) {
            return Err(Failure::new("what was acknowledged did not become stable within 30 s"));
        }
    }
    Ok(began.elapsed())
}
