//! The floor: the same bytes to as many peers, over raw TCP with an echo on the other side, on the same
//! runtime. No protocol can be faster; the multiple of it is what a protocol costs.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::figures::{Latencies, Row, cpu_time};
use super::pace::Pace;
use crate::output::Failure;

/// What a peer answers, in bytes: about as much as an acknowledgement in its frame.
const ANSWER_BYTES: usize = 64;

pub(super) async fn measure(
    peers: usize,
    size: usize,
    clients: usize,
    rate: u64,
    duration: Duration,
) -> Result<Row, Failure> {
    let mut addresses = vec![];
    for _ in 0..peers {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, size));
            }
        });
    }
    let cpu = cpu_time();
    let started = Instant::now();
    let mut tasks = vec![];
    for pace in Pace::split(rate, clients, duration) {
        let mut streams = vec![];
        for address in &addresses {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        tasks.push(tokio::spawn(ask(streams, size, pace)));
    }
    let mut latencies = Latencies::new();
    for task in tasks {
        latencies.merge(&task.await??);
    }
    let count = latencies.count();
    let reached = count as f64 / started.elapsed().as_secs_f64();
    Ok(Row::new("floor", &latencies, reached, cpu_time() - cpu, count))
}

async fn answer(mut stream: TcpStream, size: usize) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut question = vec![0; size];
    loop {
        stream.read_exact(&mut question).await?;
        stream.write_all(&[0; ANSWER_BYTES]).await?;
    }
}

async fn ask(mut streams: Vec<TcpStream>, size: usize, mut pace: Pace) -> Result<Latencies, std::io::Error> {
    let question = vec![7; size];
    let mut answer = [0; ANSWER_BYTES];
    let mut latencies = Latencies::new();
    while let Some(scheduled) = pace.next().await {
        for stream in &mut streams {
            stream.write_all(&question).await?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut answer).await?;
        }
        latencies.record(scheduled.elapsed());
    }
    Ok(latencies)
}
