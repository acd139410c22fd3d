//! `seriatim demo`: everything at once, unattended, with a check of every record.

mod timeline;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IsTerminal, stdout};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use seriatim_client::{
    Append, AppendOptions, Client, ClientOptions, Event, Log, LogConfig, Position, Receipt, Record, RecordId,
    SubscribeOptions,
};

use self::timeline::Timeline;
use crate::arguments::DemoArguments;
use crate::output::{Failure, Outcome, note, print_line, progress};

/// How many clients append at once.
const CLIENTS: usize = 4;
/// How many appends each keeps in flight.
const IN_FLIGHT: usize = 256;
/// How many lines the generated access log has.
const GENERATED_LINES: usize = 100_000;
/// Time limit of each step, after which the demo fails.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn run(arguments: DemoArguments) -> Outcome {
    let lines = Arc::new(match &arguments.file {
        Some(path) => lines_of(path)?,
        None => generated(),
    });
    if lines.is_empty() {
        return Err(Failure::new("the file has no lines; give one that has, or none at all"));
    }
    let data = tempfile::tempdir()?;
    let mut cluster = Cluster::start(data.path(), "127.0.0.1:0")?;
    note(format_args!("3 nodes with their data in a temporary directory serve on {}", cluster.address));
    let client = connect(&cluster.address).await?;
    client.create("demo", LogConfig::default()).await?;

    let bar = progress(Some(lines.len() as u64), "records");
    let acknowledged = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let reader = tokio::spawn(read_all(client.log("demo").await?, lines.len()));
    let mut writers = vec![];
    for number in 0..CLIENTS {
        let log = connect(&cluster.address).await?.log("demo").await?;
        writers.push(tokio::spawn(append_share(
            log,
            lines.clone(),
            number,
            acknowledged.clone(),
            bar.clone(),
        )));
    }
    wait_for_half(&acknowledged, lines.len() as u64).await?;
    let killed = Instant::now();
    cluster.kill_and_restart(data.path())?;
    note(format_args!("killed all nodes with -9 and started them again in {:.0?}", killed.elapsed()));

    let mut appended: Vec<Appended> = vec![];
    for writer in writers {
        appended.extend(writer.await??);
    }
    let append_time = began.elapsed();
    let delivered = tokio::time::timeout(TIMEOUT, reader).await;
    let delivered = delivered
        .map_err(|_| Failure::new("the reader did not get everything that was acknowledged"))???;
    bar.finish_and_clear();
    verify(&lines, &appended, &delivered)?;
    let mut acknowledged = vec![vec![]; CLIENTS];
    for append in &appended {
        acknowledged[append.client].push(append.acknowledged - began);
    }
    let is_coloured =
        stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    for line in (Timeline { acknowledged, killed: killed - began }).chart(is_coloured) {
        print_line(format_args!("{line}"));
    }
    print_line(format_args!(""));
    report(&appended, &delivered, append_time);
    Ok(())
}

/// An append that was acknowledged.
struct Appended {
    line: usize,
    client: usize,
    receipt: Receipt,
    began: Instant,
    acknowledged: Instant,
}

/// A record that the reader was given.
struct Delivered {
    position: Position,
    id: RecordId,
    payload: Bytes,
    at: Instant,
}

async fn connect(address: &str) -> Result<Client, Failure> {
    let mut options = ClientOptions::default();
    options.deadline = TIMEOUT;
    Ok(Client::connect_with(address, options).await?)
}

/// Appends every fourth line, from `client` on.
async fn append_share(
    log: Log,
    lines: Arc<Vec<Bytes>>,
    client: usize,
    acknowledged: Arc<AtomicU64>,
    bar: indicatif::ProgressBar,
) -> Result<Vec<Appended>, Failure> {
    let mut done = vec![];
    let mut in_flight: VecDeque<(usize, Instant, Append)> = VecDeque::new();
    let mut share = (client..lines.len()).step_by(CLIENTS);
    loop {
        let next = if in_flight.len() < IN_FLIGHT { share.next() } else { None };
        if let Some(line) = next {
            let append = log.submit_with(Record::from(lines[line].clone()), AppendOptions::default()).await?;
            in_flight.push_back((line, Instant::now(), append));
            continue;
        }
        let Some((line, began, append)) = in_flight.pop_front() else { return Ok(done) };
        let receipt = append.await?;
        done.push(Appended { line, client, receipt, began, acknowledged: Instant::now() });
        acknowledged.fetch_add(1, Ordering::Relaxed);
        bar.inc(1);
    }
}

/// Reads `count` records in the total order, from the first one.
async fn read_all(log: Log, count: usize) -> Result<Vec<Delivered>, Failure> {
    let mut events = log.subscribe(Position(0), SubscribeOptions::default()).await?;
    let mut delivered = Vec::with_capacity(count);
    while delivered.len() < count {
        match events.next().await {
            Some(Ok(Event::Deliver { position, id, record, .. })) => {
                delivered.push(Delivered { position, id, payload: record.payload(), at: Instant::now() });
            }
            Some(Ok(_)) => {}
            Some(Err(cause)) => return Err(cause.into()),
            None => return Err(Failure::new("the subscription ended early")),
        }
    }
    Ok(delivered)
}

async fn wait_for_half(acknowledged: &AtomicU64, lines: u64) -> Outcome {
    let mut look = tokio::time::interval(Duration::from_millis(1));
    let began = Instant::now();
    while acknowledged.load(Ordering::Relaxed) < lines / 2 {
        look.tick().await;
        if began.elapsed() > TIMEOUT {
            return Err(Failure::new("half of the lines were not acknowledged in time"));
        }
    }
    Ok(())
}

/// Fails unless each acknowledged record is in the log once, byte for byte, and positions have no
/// gap. The records of a client keep its order. A record that was acknowledged before another append
/// began has the lower position.
fn verify(lines: &[Bytes], appended: &[Appended], delivered: &[Delivered]) -> Outcome {
    if appended.len() != lines.len() {
        return Err(Failure::new(format!("{} of {} lines were acknowledged", appended.len(), lines.len())));
    }
    let mut positions = std::collections::BTreeMap::new();
    for (expected, record) in delivered.iter().enumerate() {
        if record.position != Position(expected as u64) {
            let found = record.position;
            return Err(Failure::new(format!("position {found} was delivered where {expected} was due")));
        }
        if positions.insert(record.id, expected).is_some() {
            return Err(Failure::new(format!("record {} was delivered twice", record.id)));
        }
    }
    let mut last = [None; CLIENTS];
    let mut order: Vec<(&Appended, usize)> = vec![];
    for append in appended {
        let Some(&position) = positions.get(&append.receipt.id) else {
            return Err(Failure::new(format!("the acknowledged line {} is not in the log", append.line + 1)));
        };
        if delivered[position].payload != lines[append.line] {
            return Err(Failure::new(format!("line {} was not read as it was appended", append.line + 1)));
        }
        if last[append.client].is_some_and(|before| before >= position) {
            return Err(Failure::new(format!(
                "line {} was bound before an earlier one of its client",
                append.line + 1
            )));
        }
        last[append.client] = Some(position);
        order.push((append, position));
    }
    verify_real_time(order)
}

fn verify_real_time(mut order: Vec<(&Appended, usize)>) -> Outcome {
    order.sort_by_key(|(_, position)| *position);
    // From the last position to the first: no append above was acknowledged before this one began.
    let mut earliest: Option<Instant> = None;
    for (append, position) in order.into_iter().rev() {
        if earliest.is_some_and(|acknowledged| acknowledged < append.began) {
            return Err(Failure::new(format!(
                "position {position} was appended after a higher one was acknowledged"
            )));
        }
        earliest = Some(earliest.map_or(append.acknowledged, |earliest| earliest.min(append.acknowledged)));
    }
    Ok(())
}

fn report(appended: &[Appended], delivered: &[Delivered], append_time: Duration) {
    let readable: std::collections::BTreeMap<RecordId, Instant> =
        delivered.iter().map(|record| (record.id, record.at)).collect();
    let mut latency = Histogram::<u64>::new_with_bounds(1, 600_000_000, 3).expect("the bounds are in order");
    let mut lag = Histogram::<u64>::new_with_bounds(1, 600_000_000, 3).expect("the bounds are in order");
    let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1);
    for append in appended {
        latency.saturating_record(us(append.acknowledged - append.began));
        let read = readable[&append.receipt.id];
        lag.saturating_record(us(read.saturating_duration_since(append.acknowledged)));
    }
    let line = |histogram: &Histogram<u64>| {
        let ms = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        format!("p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms", ms(0.5), ms(0.99), ms(1.0))
    };
    let rate = appended.len() as f64 / append_time.as_secs_f64();
    let count = appended.len();
    print_line(format_args!("appended  {count} lines, {rate:.0}/s, each on the disks of 3 nodes"));
    print_line(format_args!("returned  after {}, the kill included", line(&latency)));
    print_line(format_args!("readable  after another {}", line(&lag)));
    print_line(format_args!(
        "verified  every line is there once, byte for byte, in one order for all clients"
    ));
}

/// The cluster, in a process of its own, so that it can be killed.
struct Cluster {
    process: Child,
    address: String,
}

impl Cluster {
    fn start(data: &Path, listen: &str) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.arg("dev").arg("--data").arg(data).args(["--listen", listen]);
        // The demo kills the cluster on purpose: its warnings would interrupt the output.
        command.args(["--log-level", "error"]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().expect("the output is piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().strip_prefix("ready ").map(str::to_owned);
        let Some(address) = address else {
            let _ = process.kill();
            let _ = process.wait();
            return Err(Failure::new("the cluster did not start; what it said is above"));
        };
        Ok(Self { process, address })
    }

    fn kill_and_restart(&mut self, data: &Path) -> Outcome {
        self.process.kill()?;
        self.process.wait()?;
        let address = self.address.clone();
        *self = Self::start(data, &address)?;
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines_of(path: &Path) -> Result<Vec<Bytes>, Failure> {
    let content =
        std::fs::read(path).map_err(|cause| Failure::new(format!("{}: {cause}", path.display())))?;
    let content = Bytes::from(content);
    let body = content.strip_suffix(b"\n").unwrap_or(&content);
    if content.is_empty() {
        return Ok(vec![]);
    }
    Ok(body.split(|byte| *byte == b'\n').map(|line| content.slice_ref(line)).collect())
}

/// An access log as a web server writes it: always the same one.
fn generated() -> Vec<Bytes> {
    let mut state: u64 = 1;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    const PATHS: [&str; 6] = ["/", "/cart", "/checkout", "/items/%", "/search?q=%", "/static/app.js"];
    const STATUS: [u16; 8] = [200, 200, 200, 200, 200, 304, 404, 500];
    (0..GENERATED_LINES)
        .map(|number| {
            let host = format!("10.{}.{}.{}", draw(256), draw(256), draw(256));
            let path = PATHS[draw(6) as usize].replace('%', &draw(10_000).to_string());
            let (hour, minute, second) = (number / 3600 % 24, number / 60 % 60, number % 60);
            let (status, bytes) = (STATUS[draw(8) as usize], draw(50_000));
            let time = format!("21/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000");
            Bytes::from(format!("{host} - - [{time}] \"GET {path} HTTP/1.1\" {status} {bytes}"))
        })
        .collect()
}
