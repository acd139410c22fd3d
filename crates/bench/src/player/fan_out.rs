//! The floor: the same bytes from one task to as many peers, over raw TCP.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::transactions::{KEY_BYTES, Transactions};
use crate::figures::Measured;
use crate::floor::all;
use crate::latencies::Latencies;
use crate::machine::cpu_time;
use crate::pace::Pace;
use crate::stamp::nanos_since;
use crate::terminal::Failure;

/// Bytes before a message: its length and the time at which its transaction was sent, 8 bytes each.
const HEADER_BYTES: usize = 16;

/// The connections to the peers.
struct FanOut {
    began: Instant,
    transactions: Transactions,
    peers: Vec<TcpStream>,
    /// A permit for each received message.
    received: Arc<Semaphore>,
    next: u64,
}

/// Sends transactions at this rate, or with `None` each as soon as the last one was received.
pub(super) async fn fan_out(
    transactions: Transactions,
    rate: Option<u64>,
    duration: Duration,
) -> Result<Measured, Failure> {
    let (mut receiving, received) = (JoinSet::new(), Arc::new(Semaphore::new(0)));
    let mut peers = vec![];
    let began = Instant::now();
    for _ in 0..transactions.targets {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        stream.set_nodelay(true)?;
        receiving.spawn(receive(listener.accept().await?.0, began, received.clone()));
        peers.push(stream);
    }
    let mut sending = FanOut { began, transactions, peers, received, next: 0 };
    let cpu = cpu_time();
    if let Some(rate) = rate {
        let mut pace = Pace::new(rate, duration)?;
        while pace.next().await.is_some() {
            sending.send().await?;
        }
    } else {
        while began.elapsed() < duration {
            let messages = sending.send().await?;
            sending.received.acquire_many(messages).await?.forget();
        }
    }
    let (sent, sent_for) = (sending.next, began.elapsed());
    drop(sending);
    let latencies = all(receiving).await?;
    let count = latencies.count();
    let reached = rate.map_or(sent as f64 / sent_for.as_secs_f64(), |rate| rate as f64);
    Ok(Measured::new(latencies, reached, cpu_time() - cpu, count))
}

impl FanOut {
    /// Sends a transaction and returns the number of its messages.
    async fn send(&mut self) -> io::Result<u32> {
        let messages = self.transactions.keys_of(self.next);
        self.next += 1;
        let mut frames: Vec<(usize, Vec<u8>)> = vec![];
        for (target, keys) in messages {
            let mut frame = vec![7; HEADER_BYTES + keys * KEY_BYTES];
            frame[..8].copy_from_slice(&((keys * KEY_BYTES) as u64).to_le_bytes());
            frames.push((target, frame));
        }
        let now = nanos_since(self.began, Instant::now()).to_le_bytes();
        for (target, frame) in &mut frames {
            frame[8..HEADER_BYTES].copy_from_slice(&now);
            self.peers[*target].write_all(frame).await?;
        }
        Ok(frames.len() as u32)
    }
}

async fn receive(stream: TcpStream, began: Instant, received: Arc<Semaphore>) -> io::Result<Latencies> {
    let (mut stream, mut latencies) = (BufReader::new(stream), Latencies::new());
    let mut message = vec![];
    loop {
        let length = match stream.read_u64_le().await {
            Ok(length) => length,
            Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => return Ok(latencies),
            Err(error) => return Err(error),
        };
        let sent = began + Duration::from_nanos(stream.read_u64_le().await?);
        message.resize(length as usize, 0);
        stream.read_exact(&mut message).await?;
        latencies.record(sent);
        received.add_permits(1);
    }
}
