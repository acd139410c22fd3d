//! A connection after its handshake: a [`Sender`] that never waits, and a [`Receiver`].

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::frame::{Frame, FrameError, FrameKind};
use crate::handshake::{self, HandshakeError};
use crate::hello::{Greeting, Hello, Refusal, RefusalCode, Welcome};
use crate::intake::Intake;
use crate::limits::ConnectionOptions;
use crate::queue::{Queue, Stage};
use crate::writer;

/// Why a connection ended: the first cause. Except with [`CloseReason::Local`] and
/// [`CloseReason::Remote`], bytes in flight may be lost in both directions.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CloseReason {
    /// This side closed the connection.
    #[error("this side closed the connection")]
    Local,
    /// The peer closed its sending side.
    #[error("the peer closed the connection")]
    Remote,
    /// The peer gave a reason.
    #[error(transparent)]
    Refused(Refusal),
    /// The peer sent a malformed frame, or the connection broke within one.
    #[error(transparent)]
    Frame(FrameError),
    /// The peer sent a frame of the handshake.
    #[error("the peer sent a {0:?} frame after the handshake")]
    Unexpected(FrameKind),
    /// The peer was silent for this long, even after a ping.
    #[error("the peer was silent for {0:?}; it hangs, or the network lost it")]
    Silent(Duration),
    /// The peer did not take a closing connection's last bytes within this time.
    #[error("the peer did not take the last bytes within {0:?}")]
    Stalled(Duration),
    /// The operating system reports a failure.
    #[error("the connection failed: {0}")]
    Io(Arc<io::Error>),
}

impl CloseReason {
    pub(crate) fn io(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// Why nothing was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// The queue is full: the peer reads too slowly.
    #[error("{queued_bytes} bytes wait for the peer, the bound is {bound_bytes}; send later")]
    Overloaded {
        /// Queued bytes.
        queued_bytes: usize,
        /// Their limit.
        bound_bytes: usize,
    },
    /// The connection is closed.
    #[error("the connection is closed: {0}")]
    Closed(CloseReason),
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    /// The sending half.
    pub sender: Sender,
    /// The receiving half.
    pub receiver: Receiver,
}

impl Connection {
    pub(crate) fn start(
        stream: TcpStream,
        intake: Intake,
        options: &ConnectionOptions,
        keep: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let (read_half, write_half) = stream.into_split();
        let write_half = Arc::new(write_half);
        let queue = Arc::new(Queue::new(Arc::clone(&write_half), options));
        let (shared, flush_for) = (Arc::clone(&queue), options.flush_for);
        tokio::spawn(async move {
            writer::run(shared, write_half, flush_for).await;
            drop(keep);
        });
        let sender = Sender { guard: Arc::new(SenderGuard { queue: Arc::clone(&queue) }) };
        let timeout = IdleTimeout::new(options);
        let receiver = Receiver { queue, socket: read_half, intake, timeout, end: None };
        Self { sender, receiver }
    }
}

/// A connection after its handshake that no runtime drives yet.
#[derive(Debug)]
pub struct Detached {
    stream: std::net::TcpStream,
    intake: Intake,
    options: ConnectionOptions,
    keep: Option<OwnedSemaphorePermit>,
}

impl Detached {
    pub(crate) fn new(
        stream: TcpStream,
        intake: Intake,
        options: ConnectionOptions,
        keep: Option<OwnedSemaphorePermit>,
    ) -> io::Result<Self> {
        Ok(Self { stream: stream.into_std()?, intake, options, keep })
    }

    /// Attaches it to the current runtime.
    ///
    /// # Errors
    /// If the runtime cannot watch one more socket.
    pub fn attach(self) -> io::Result<Connection> {
        let stream = TcpStream::from_std(self.stream)?;
        Ok(Connection::start(stream, self.intake, &self.options, self.keep))
    }
}

/// The sending half. Clones share one connection. It closes when the last clone is dropped, after
/// its queue is written.
#[derive(Clone, Debug)]
pub struct Sender {
    guard: Arc<SenderGuard>,
}

#[derive(Debug)]
struct SenderGuard {
    queue: Arc<Queue>,
}

impl Drop for SenderGuard {
    fn drop(&mut self) {
        self.queue.close(CloseReason::Local, Vec::new());
    }
}

impl Sender {
    /// Queues chunks of whole frames, in order; never waits. Queued frames may still be lost.
    ///
    /// # Errors
    /// If the queue is full or the connection closed. Then nothing was queued.
    pub fn send(&self, chunks: Vec<Bytes>) -> Result<(), SendError> {
        self.guard.queue.push(chunks)
    }

    /// Bytes that the operating system has not taken yet.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.guard.queue.queued_bytes()
    }

    pub(crate) fn ping(&self) {
        self.guard.queue.ping();
    }

    pub(crate) fn heard_at(&self) -> std::time::Instant {
        self.guard.queue.heard_at()
    }

    /// Closes the sending side for all clones, after the queue is written. The receiver continues
    /// until the peer closes.
    pub fn close(&self) {
        self.guard.queue.close(CloseReason::Local, Vec::new());
    }

    /// Closes the sending side for all clones and drops the queue.
    pub fn abandon(&self) {
        self.guard.queue.end(CloseReason::Local);
    }

    /// Closes as [`Self::close`], and waits until the queue is written, at most
    /// [`ConnectionOptions::flush_for`]. Call it before the process exits.
    ///
    /// # Errors
    /// If the connection broke before that.
    pub async fn finish(&self) -> Result<(), CloseReason> {
        self.close();
        self.guard.queue.reached(Stage::Finished).await;
        match self.guard.queue.stage() {
            Stage::Ended => Err(self.close_reason().unwrap_or(CloseReason::Local)),
            _ => Ok(()),
        }
    }

    /// Closes as [`Self::close`], after a frame with the reason.
    pub fn refuse(&self, refusal: &Refusal) {
        self.guard.queue.close(CloseReason::Local, refusal_chunks(refusal));
    }

    /// Why the connection ended; `None` while it is whole. After [`CloseReason::Remote`] sending
    /// still works: the peer sends no more, but may read.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.guard.queue.reason()
    }

    /// Waits until the connection ends. Only [`Receiver::receive`] notices the peer's actions: call
    /// it at the same time.
    pub async fn closed(&self) -> CloseReason {
        self.guard.queue.closed().await
    }
}

fn refusal_chunks(refusal: &Refusal) -> Vec<Bytes> {
    // If the text is too long for a frame, no refusal is sent.
    refusal.chunks().unwrap_or_default()
}

/// The receiving half. Dropping it closes the connection, after the queue is written.
#[derive(Debug)]
pub struct Receiver {
    queue: Arc<Queue>,
    socket: OwnedReadHalf,
    intake: Intake,
    timeout: IdleTimeout,
    /// Result of each further `receive` once the connection has ended.
    end: Option<Result<(), CloseReason>>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.queue.close(CloseReason::Local, Vec::new());
        self.queue.reader_done();
    }
}

impl Receiver {
    /// Waits for messages and returns those of one read, at least one. `None` once the peer has
    /// closed its side. Pings are answered here: without calls this side seems silent. Cancel safe.
    ///
    /// # Errors
    /// If the connection broke or the peer violated the protocol, after all earlier messages.
    /// Further calls return the error again.
    pub async fn receive(&mut self) -> Result<Option<Vec<Frame>>, CloseReason> {
        loop {
            let frames = self.complete_frames();
            if !frames.is_empty() {
                return Ok(Some(frames));
            }
            if let Some(end) = &self.end {
                return end.clone().map(|()| None);
            }
            match self.read().await {
                Ok(0) => self.finish(),
                Ok(_) => {
                    self.queue.hears();
                    self.timeout.heard();
                }
                Err(reason) => {
                    self.queue.end(reason.clone());
                    self.stop(Err(reason));
                }
            }
        }
    }

    /// Why the connection ended; `None` while it is whole.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.queue.reason()
    }

    fn complete_frames(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while self.end.is_none() {
            match self.intake.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) if frame.kind == FrameKind::Message => frames.push(frame),
                Ok(Some(frame)) => self.control(frame),
                Err(error) => self.complain(CloseReason::Frame(error)),
            }
        }
        frames
    }

    fn control(&mut self, frame: Frame) {
        match frame.kind {
            FrameKind::Ping => self.queue.pong(),
            FrameKind::Refusal => match Refusal::read(frame.body) {
                Ok(refusal) => {
                    let reason = CloseReason::Refused(refusal);
                    self.queue.close(reason.clone(), Vec::new());
                    self.stop(Err(reason));
                }
                Err(_) => self.complain(CloseReason::Unexpected(FrameKind::Refusal)),
            },
            FrameKind::Pong | FrameKind::Message => {}
            FrameKind::Hello | FrameKind::Welcome => self.complain(CloseReason::Unexpected(frame.kind)),
        }
    }

    /// Sends the reason, then ends the connection.
    fn complain(&mut self, reason: CloseReason) {
        let refusal = Refusal::new(RefusalCode::Malformed, reason.to_string());
        self.queue.close(reason.clone(), refusal_chunks(&refusal));
        self.stop(Err(reason));
    }

    fn finish(&mut self) {
        match self.intake.finish() {
            Ok(()) => {
                self.queue.note(CloseReason::Remote);
                self.stop(Ok(()));
            }
            Err(error) => self.complain(CloseReason::Frame(error)),
        }
    }

    fn stop(&mut self, end: Result<(), CloseReason>) {
        self.end = Some(end);
        self.queue.reader_done();
    }

    async fn read(&mut self) -> Result<usize, CloseReason> {
        let mut ended = pin!(self.queue.reached(Stage::Ended));
        loop {
            tokio::select! {
                biased;
                read = self.intake.read(&mut self.socket) => return read.map_err(CloseReason::io),
                () = &mut ended => return Err(self.queue.reason().unwrap_or(CloseReason::Local)),
                () = self.timeout.elapsed() => self.timeout.next(&self.queue)?,
            }
        }
    }
}

/// Detects a silent peer. Messages do not reset its timer: it compares times when it fires.
#[derive(Debug)]
struct IdleTimeout {
    ping_after: Duration,
    answer_within: Duration,
    heard: Instant,
    /// Whether a ping was sent and nothing arrived since.
    pinged: bool,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl IdleTimeout {
    fn new(options: &ConnectionOptions) -> Self {
        let (ping_after, answer_within) = (options.ping_after, options.answer_within);
        Self { ping_after, answer_within, heard: Instant::now(), pinged: false, alarm: None }
    }

    fn heard(&mut self) {
        self.heard = Instant::now();
        if self.pinged {
            self.pinged = false;
            self.wake_at(self.heard + self.ping_after);
        }
    }

    fn wake_at(&mut self, instant: Instant) {
        if let Some(alarm) = &mut self.alarm {
            alarm.as_mut().reset(instant);
        }
    }

    async fn elapsed(&mut self) {
        let first = self.heard + self.ping_after;
        self.alarm.get_or_insert_with(|| Box::pin(sleep_until(first))).as_mut().await;
    }

    /// Pings a silent peer. Fails if the last ping had no answer.
    fn next(&mut self, queue: &Queue) -> Result<(), CloseReason> {
        if self.pinged {
            return Err(CloseReason::Silent(self.ping_after + self.answer_within));
        }
        let now = Instant::now();
        let ping_at = self.heard + self.ping_after;
        if now < ping_at {
            self.wake_at(ping_at);
            return Ok(());
        }
        queue.ping();
        self.pinged = true;
        self.wake_at(now + self.answer_within);
        Ok(())
    }
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing answers at the address.
    #[error("cannot reach {address}: {source}; check the address, and that the node is running")]
    Unreachable {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The handshake failed.
    #[error("no connection to {address}: {source}")]
    Handshake {
        /// The address.
        address: String,
        /// The cause.
        source: HandshakeError,
    },
}

/// A connection to a node.
#[derive(Debug)]
pub struct Connected {
    /// The node's Welcome.
    pub welcome: Welcome,
    /// The connection.
    pub connection: Connection,
}

/// Connects to the node at `address` (`host:port`), once. The connection and the handshake may each
/// take [`ConnectionOptions::handshake_for`].
///
/// # Errors
/// If the node cannot be reached, or refuses.
pub async fn connect(
    address: &str,
    hello: &Hello,
    options: &ConnectionOptions,
) -> Result<Connected, ConnectError> {
    let stream = timeout(options.handshake_for, TcpStream::connect(address))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|source| ConnectError::Unreachable { address: address.to_owned(), source })?;
    match handshake::initiate(stream, hello, options).await {
        Ok((welcome, connection)) => Ok(Connected { welcome, connection }),
        Err(source) => Err(ConnectError::Handshake { address: address.to_owned(), source }),
    }
}
