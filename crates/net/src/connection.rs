//! A connection after its handshake: a [`Sender`] that never waits and a [`Receiver`] that returns
//! all that one read brought.

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

/// Why a connection ends or ended: the first cause. All but [`CloseReason::Local`] and
/// [`CloseReason::Remote`] may have lost what was on its way, in both directions.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CloseReason {
    /// This side closed it.
    #[error("this side closed the connection")]
    Local,
    /// The peer closed its sending side.
    #[error("the peer closed the connection")]
    Remote,
    /// The peer said why it closes.
    #[error(transparent)]
    Refused(Refusal),
    /// The peer sent what is not a frame, or the connection broke within one.
    #[error(transparent)]
    Frame(FrameError),
    /// The peer sent a frame that belongs into a handshake.
    #[error("the peer sent a {0:?} frame after the handshake")]
    Unexpected(FrameKind),
    /// The peer said nothing, not even to a ping, for this long.
    #[error("the peer was silent for {0:?}; it hangs, or the network lost it")]
    Silent(Duration),
    /// The connection was closing and the peer did not take what was queued for this long.
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

/// Why something was not sent. None of it was.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// The queue is full: the peer takes less than it is sent. Later, or not at all.
    #[error("{queued_bytes} bytes wait for the peer, the bound is {bound_bytes}; send later")]
    Overloaded {
        /// The number of bytes that are queued.
        queued_bytes: usize,
        /// How much may be.
        bound_bytes: usize,
    },
    /// The connection takes nothing any more.
    #[error("the connection is closed: {0}")]
    Closed(CloseReason),
}

/// An open connection. Its halves are independent and may live in different tasks.
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

/// A connection after its handshake that no runtime drives yet: whoever takes it decides which one
/// does.
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

    /// Lets the current runtime drive it.
    ///
    /// # Errors
    /// If the runtime cannot watch one more socket.
    pub fn attach(self) -> io::Result<Connection> {
        let stream = TcpStream::from_std(self.stream)?;
        Ok(Connection::start(stream, self.intake, &self.options, self.keep))
    }
}

/// The sending half. Clones share one connection; it closes when the last one is dropped, after
/// what is queued was written.
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
    /// Queues the chunks of one or more whole frames. Never waits. Frames of one connection arrive
    /// in the order of these calls; that they were queued does not mean that they will arrive.
    ///
    /// # Errors
    /// If the queue is full or the connection closed. Then nothing was queued.
    pub fn send(&self, chunks: Vec<Bytes>) -> Result<(), SendError> {
        self.guard.queue.push(chunks)
    }

    /// How many bytes were sent and not yet taken by the operating system.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.guard.queue.queued_bytes()
    }

    /// Asks the peer for a sign of life. Its answer is no message; see [`Self::heard_at`].
    pub(crate) fn ping(&self) {
        self.guard.queue.ping();
    }

    /// When something arrived last; if nothing did, when the connection was made.
    pub(crate) fn heard_at(&self) -> std::time::Instant {
        self.guard.queue.heard_at()
    }

    /// Closes the sending side for all clones; what is queued is still written. The receiver goes
    /// on until the peer closes, too.
    pub fn close(&self) {
        self.guard.queue.close(CloseReason::Local, Vec::new());
    }

    /// Closes the sending side for all clones, and drops what is queued.
    pub fn abandon(&self) {
        self.guard.queue.end(CloseReason::Local);
    }

    /// Closes as [`Self::close`] does, and waits until what is queued has left this process, which
    /// takes [`ConnectionOptions::flush_for`] at most. Call it before the process exits.
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

    /// Closes as [`Self::close`] does, and tells the peer why.
    pub fn refuse(&self, refusal: &Refusal) {
        self.guard.queue.close(CloseReason::Local, refusal_chunks(refusal));
    }

    /// Why the connection ends or ended; `None` while it is whole. [`CloseReason::Remote`] says
    /// that the peer sends no more; it may still listen, and sending still works.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.guard.queue.reason()
    }

    /// Waits for [`Self::close_reason`]. The peer's doings are noticed by [`Receiver::receive`], so
    /// this needs somebody to call that.
    pub async fn closed(&self) -> CloseReason {
        self.guard.queue.closed().await
    }
}

fn refusal_chunks(refusal: &Refusal) -> Vec<Bytes> {
    // A text that does not fit into a frame is not worth an error on the way out.
    refusal.chunks().unwrap_or_default()
}

/// The receiving half. Dropping it closes the connection, after what is queued was written.
#[derive(Debug)]
pub struct Receiver {
    queue: Arc<Queue>,
    socket: OwnedReadHalf,
    intake: Intake,
    timeout: IdleTimeout,
    /// The result that every further call returns.
    end: Option<Result<(), CloseReason>>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.queue.close(CloseReason::Local, Vec::new());
        self.queue.reader_done();
    }
}

impl Receiver {
    /// Waits for messages and returns all that one read brought, at least one; `None` when the peer
    /// has closed its side. Pings are answered here, so a peer whose owner does not call this looks
    /// silent. Cancel safe.
    ///
    /// # Errors
    /// If the connection broke, or the peer did what it must not. Messages before that were
    /// returned. The error comes again at every further call.
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

    /// Why the connection ends or ended; `None` while it is whole.
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

    /// Ends the connection because of what the peer sent, and tells it so.
    fn complain(&mut self, reason: CloseReason) {
        let refusal = Refusal::new(RefusalCode::Malformed, reason.to_string());
        self.queue.close(reason.clone(), refusal_chunks(&refusal));
        self.stop(Err(reason));
    }

    /// The peer sends no more.
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

/// Knows how long the peer has been silent. One timer per connection, which is not moved
/// by every message: it looks back when it fires.
#[derive(Debug)]
struct IdleTimeout {
    ping_after: Duration,
    answer_within: Duration,
    heard: Instant,
    /// Whether a ping was sent and nothing heard since.
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

    /// Pings a peer that was silent for long; gives up one that does not answer.
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

/// Why there is no connection to a node.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing answers at the address.
    #[error("cannot reach {address}: {source}; check the address, and that the node is running")]
    Unreachable {
        /// Where.
        address: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// Something answers, but not as it should.
    #[error("no connection to {address}: {source}")]
    Handshake {
        /// Where.
        address: String,
        /// The handshake's error.
        source: HandshakeError,
    },
}

/// The outcome of connecting to a node.
#[derive(Debug)]
pub struct Connected {
    /// The node's Welcome.
    pub welcome: Welcome,
    /// The connection to it.
    pub connection: Connection,
}

/// Connects to the node at `address` (`host:port`), once. Reaching it may take
/// [`ConnectionOptions::handshake_for`], and the handshake as long again.
///
/// # Errors
/// If the node cannot be reached or does not let us in.
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
