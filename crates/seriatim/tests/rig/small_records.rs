//! A reader of very small records: its memory, with its output read and unread, and the effect on
//! another log.

use std::time::{Duration, Instant};

use seriatim_client::{AppendOptions, Client, LogConfig};
use tokio::io::AsyncReadExt;
use tokio::process::Child;

use crate::cluster::Cluster;
use crate::command::CommandLine;
use crate::process::peak_memory;
use crate::workload::DEADLINE;

/// Number of empty records.
const RECORDS: usize = 1_000_000;
/// Memory limit of a reader, in bytes. Without counting structures it would take four times as
/// much.
const MEMORY_BYTES: u64 = 64 << 20;
/// Appends to the other log while the reader's output is unread.
const BESIDE: usize = 100;
/// Time limit per append, on a busy machine.
const LONGEST_APPEND: Duration = Duration::from_secs(2);

/// Reads all output. Returns the number of lines and the reader's peak memory.
async fn drain(reader: &mut Child) -> (usize, u64) {
    let id = reader.id().expect("it runs");
    let mut output = reader.stdout.take().expect("it is piped");
    let (mut lines, mut most, mut buffer) = (0, peak_memory(id), vec![0; 64 << 10]);
    loop {
        let bytes = tokio::time::timeout(DEADLINE, output.read(&mut buffer)).await;
        let bytes = bytes.expect("the reader prints").expect("its output can be read");
        if bytes == 0 {
            return (lines, most);
        }
        lines += buffer[..bytes].iter().filter(|byte| **byte == b'\n').count();
        most = most.max(peak_memory(id));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_empty_records_takes_little_memory_and_delays_no_other_log() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    let client = cluster.client(DEADLINE).await;
    let other = client.create("other", LogConfig::default()).await.expect("the log is created");
    let other = client.log(&other.name).await.expect("the log is there");
    for shards in ["1", "64"] {
        let name = format!("small-{shards}");
        cli.good(&["log", "create", &name, "--shards", shards]).await;
        cli.good_on(&["append", &name], &vec![b'\n'; RECORDS]).await;
        let before = views(&client, &name).await;
        let mut reader = cli.begin(&["read", &name]);
        let mut longest = Duration::ZERO;
        for _ in 0..BESIDE {
            let began = Instant::now();
            other.append("x", AppendOptions::default()).await.expect("it is appended");
            longest = longest.max(began.elapsed());
        }
        let (lines, memory) = drain(&mut reader).await;
        let status = tokio::time::timeout(DEADLINE, reader.wait()).await.expect("the reader ends");
        assert!(status.expect("it is waited for").success(), "{shards} shards");
        assert_eq!(lines, RECORDS, "{shards} shards");
        assert!(memory > 0 && memory < MEMORY_BYTES, "{shards} shards: the reader took {memory} bytes");
        assert!(longest < LONGEST_APPEND, "{shards} shards: an append beside the reader took {longest:?}");
        assert_eq!(
            views(&client, &name).await,
            before,
            "{shards} shards: no view changes because of a reader"
        );
    }
}

async fn views(client: &Client, small: &str) -> [u64; 2] {
    let mut views = [0; 2];
    for (log, view) in [small, "other"].into_iter().zip(&mut views) {
        *view = client.lookup(log).await.expect("the log is there").view_number().0;
    }
    views
}
