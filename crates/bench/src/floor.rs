//! The floor: sends the same bytes as a log's client to echoing peers over raw TCP, on the same
//! runtime. No protocol can be faster.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_client::DelayLine;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::cluster::NODES;
use super::figures::Measured;
use super::latencies::Latencies;
use super::machine::cpu_time;
use super::pace::Pace;
use crate::terminal::Failure;

/// Approximate size of an acknowledgement or a question.
const SHORT_BYTES: usize = 64;
const READ_BYTES: usize = 64 << 10;
/// Limit of messages in flight in one direction of a connection.
const ON_THE_WAY: usize = 1 << 16;

/// Sizes of question and answer in bytes, and number of peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    peers: usize,
    question: usize,
    answer: usize,
}

impl Exchange {
    /// A record to all sequencing replicas.
    pub(super) fn append(size: usize) -> Self {
        Self { peers: NODES as usize, question: size, answer: SHORT_BYTES }
    }

    /// The exchange of a read: one replica answers with the record.
    pub(super) fn read(size: usize) -> Self {
        Self { peers: 1, question: SHORT_BYTES, answer: size }
    }
}

/// Running echo peers. Dropping it stops them.
pub(super) struct Floor {
    exchange: Exchange,
    delay: Option<DelayLine>,
    addresses: Vec<std::net::SocketAddr>,
    _peers: JoinSet<()>,
}

impl Floor {
    pub(super) async fn start(
        exchange: Exchange,
        delay: Option<DelayLine>,
        nodes: &Handle,
    ) -> Result<Self, Failure> {
        let (mut addresses, mut peers) = (vec![], JoinSet::new());
        for _ in 0..exchange.peers {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push(listener.local_addr()?);
            peers.spawn_on(serve(listener, exchange, delay.clone()), nodes);
        }
        Ok(Self { exchange, delay, addresses, _peers: peers })
    }

    /// Open loop: exchanges begin on schedule.
    pub(super) async fn on_schedule(
        &self,
        clients: usize,
        rate: u64,
        duration: Duration,
    ) -> Result<Measured, Failure> {
        let (mut tasks, asking) = (JoinSet::new(), self.connect(clients).await?);
        let cpu = cpu_time();
        for (peers, pace) in asking.into_iter().zip(Pace::split(rate, clients, duration)?) {
            tasks.spawn(ask_on_schedule(peers, pace));
        }
        Ok(Measured::scheduled(all(tasks).await?, rate, cpu_time() - cpu))
    }

    /// Closed loop: each client keeps `in_flight` exchanges outstanding.
    pub(super) async fn closed(
        &self,
        clients: usize,
        in_flight: usize,
        duration: Duration,
    ) -> Result<Measured, Failure> {
        let (mut tasks, asking) = (JoinSet::new(), self.connect(clients).await?);
        let (cpu, stop) = (cpu_time(), Instant::now() + duration);
        for peers in asking {
            tasks.spawn(ask_until(peers, in_flight, stop));
        }
        Ok(Measured::closed(all(tasks).await?, cpu_time() - cpu))
    }

    async fn connect(&self, clients: usize) -> io::Result<Vec<Peers>> {
        let mut asking = vec![];
        for _ in 0..clients {
            asking.push(self.connect_one().await?);
        }
        Ok(asking)
    }

    async fn connect_one(&self) -> io::Result<Peers> {
        let (mut inlets, mut outlets) = (vec![], vec![]);
        for address in &self.addresses {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (inlet, outlet) = stream.into_split();
            inlets.push((inlet, 0));
            outlets.push(Outlet::new(outlet, self.delay.as_ref()));
        }
        Ok(Peers { exchange: self.exchange, inlets, outlets, buffer: vec![0; READ_BYTES] })
    }
}

pub(super) async fn all<E>(mut tasks: JoinSet<Result<Latencies, E>>) -> Result<Latencies, Failure>
where
    Failure: From<E>,
    E: 'static,
{
    let mut latencies = Latencies::new();
    while let Some(done) = tasks.join_next().await {
        latencies.merge(&done??);
    }
    Ok(latencies)
}

async fn serve(listener: TcpListener, exchange: Exchange, delay: Option<DelayLine>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let delay = delay.clone();
        connections.spawn(async move { answer(stream, exchange, delay.as_ref()).await });
    }
}

async fn answer(stream: TcpStream, exchange: Exchange, delay: Option<&DelayLine>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut inlet, outlet) = stream.into_split();
    let mut outlet = Outlet::new(outlet, delay);
    let (mut buffer, mut unanswered) = (vec![0; READ_BYTES], 0);
    loop {
        let read = inlet.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        unanswered += read;
        let questions = unanswered / exchange.question;
        unanswered %= exchange.question;
        if questions > 0 {
            outlet.send(Bytes::from(vec![7; questions * exchange.answer])).await?;
        }
    }
}

async fn ask_on_schedule(mut peers: Peers, mut pace: Pace) -> io::Result<Latencies> {
    let (mut latencies, mut unanswered) = (Latencies::new(), VecDeque::new());
    let question = Bytes::from(vec![7; peers.exchange.question]);
    let (mut answered, mut is_over) = (0, false);
    while !is_over || !unanswered.is_empty() {
        tokio::select! {
            biased;
            count = peers.answered(), if !unanswered.is_empty() => {
                let count = count?;
                unanswered.drain(..count - answered).for_each(|scheduled| latencies.record(scheduled));
                answered = count;
            }
            scheduled = pace.next(), if !is_over => match scheduled {
                Some(scheduled) => {
                    unanswered.push_back(scheduled);
                    peers.ask(&question).await?;
                }
                None => is_over = true,
            },
        }
    }
    Ok(latencies)
}

async fn ask_until(mut peers: Peers, in_flight: usize, stop: Instant) -> io::Result<Latencies> {
    let (mut latencies, mut unanswered) = (Latencies::new(), VecDeque::new());
    let questions = Bytes::from(vec![7; in_flight * peers.exchange.question]);
    let mut answered = 0;
    loop {
        let now = Instant::now();
        let missing = if now < stop { in_flight - unanswered.len() } else { 0 };
        if missing > 0 {
            unanswered.extend(std::iter::repeat_n(now, missing));
            peers.ask(&questions.slice(..missing * peers.exchange.question)).await?;
        }
        if unanswered.is_empty() {
            return Ok(latencies);
        }
        let count = peers.answered().await?;
        unanswered.drain(..count - answered).for_each(|began| latencies.record(began));
        answered = count;
    }
}

struct Peers {
    exchange: Exchange,
    /// Receiving half of each peer's connection, with the number of bytes received.
    inlets: Vec<(OwnedReadHalf, usize)>,
    outlets: Vec<Outlet>,
    /// Buffer for discarded bytes.
    buffer: Vec<u8>,
}

impl Peers {
    async fn ask(&mut self, questions: &Bytes) -> io::Result<()> {
        for outlet in &mut self.outlets {
            outlet.send(questions.clone()).await?;
        }
        Ok(())
    }

    /// Waits for bytes and returns the number of exchanges that all peers answered. Cancel safe.
    async fn answered(&mut self) -> io::Result<usize> {
        let Self { inlets, buffer, .. } = self;
        poll_fn(|context| {
            let mut has_come = false;
            for (inlet, bytes) in &mut *inlets {
                let mut read = ReadBuf::new(buffer);
                if let Poll::Ready(outcome) = Pin::new(inlet).poll_read(context, &mut read) {
                    outcome?;
                    if read.filled().is_empty() {
                        return Poll::Ready(Err(io::Error::from(io::ErrorKind::UnexpectedEof)));
                    }
                    *bytes += read.filled().len();
                    has_come = true;
                }
            }
            if has_come { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await?;
        let least = self.inlets.iter().map(|(_, bytes)| *bytes).min().unwrap_or_default();
        Ok(least / self.exchange.answer)
    }
}

enum Outlet {
    Near(OwnedWriteHalf),
    Far(DelayLine, mpsc::Sender<(Instant, Bytes)>),
}

impl Outlet {
    fn new(half: OwnedWriteHalf, delay: Option<&DelayLine>) -> Self {
        let Some(delay) = delay else { return Self::Near(half) };
        let (sender, on_the_way) = mpsc::channel(ON_THE_WAY);
        tokio::spawn(arrive(half, delay.clone(), on_the_way));
        Self::Far(delay.clone(), sender)
    }

    async fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        match self {
            Self::Near(half) => half.write_all(&bytes).await,
            Self::Far(delay, on_the_way) => {
                let sent = on_the_way.send((delay.arrival(Instant::now()), bytes)).await;
                sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

async fn arrive(
    mut half: OwnedWriteHalf,
    delay: DelayLine,
    mut on_the_way: mpsc::Receiver<(Instant, Bytes)>,
) -> io::Result<()> {
    while let Some((at, bytes)) = on_the_way.recv().await {
        delay.timer().exactly(at).await;
        half.write_all(&bytes).await?;
    }
    Ok(())
}
