//! The state that the handles of a connection and its writer share: the bytes to be written and how
//! the connection ends.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use seriatim_model::LogId;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

use crate::connection::{CloseReason, SendError};
use crate::delay::{DelayLine, Way};
use crate::frame::{FrameKind, frame_chunks};
use crate::limits::{ConnectionOptions, WRITE_CHUNKS, WRITE_THROUGH_BYTES};
use crate::timer::Timer;

/// How far the writing side has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Takes new chunks.
    Open,
    /// Takes no new chunks, writes those it has.
    Draining,
    /// Wrote them all.
    Finished,
    /// Broke; what was not written is dropped.
    Ended,
}

#[derive(Debug)]
struct State {
    chunks: VecDeque<Bytes>,
    /// The chunks that a delay line holds back, before they come to `chunks`.
    way: Option<Way<Vec<Bytes>>>,
    /// Where to write, until the writer has ended.
    socket: Option<Arc<OwnedWriteHalf>>,
    /// Whether the writer has taken chunks that it has not written yet.
    in_hand: bool,
    stage: Stage,
    /// A Ping and a Pong to be written. Flags, not chunks: a peer that floods us with pings makes
    /// the queue no longer.
    ping: bool,
    pong: bool,
    /// Whether nobody will read from the socket again.
    reader_done: bool,
}

impl State {
    /// Makes ready what has come to the end of its way.
    fn let_arrive(&mut self) {
        let Some(way) = &mut self.way else { return };
        let now = Instant::now();
        let arrived: Vec<Vec<Bytes>> = std::iter::from_fn(|| way.arrived(now)).collect();
        arrived.into_iter().for_each(|chunks| self.arrive(chunks));
    }

    fn arrive(&mut self, chunks: Vec<Bytes>) {
        self.chunks.extend(chunks.into_iter().filter(|chunk| !chunk.is_empty()));
    }

    /// Writes as much of `chunks` as the socket takes at once, if nothing waits to be written
    /// before them and there are few of them. Says how many bytes that were. To wake the writer for
    /// every message would take longer than to write it.
    fn write_through(&self, chunks: &[Bytes], bytes: usize) -> usize {
        let is_next =
            self.way.is_none() && !self.in_hand && self.chunks.is_empty() && !self.ping && !self.pong;
        let Some(socket) = self.socket.as_ref().filter(|_| is_next) else { return 0 };
        if bytes > WRITE_THROUGH_BYTES || chunks.len() > WRITE_CHUNKS {
            return 0;
        }
        let mut slices = [IoSlice::new(&[]); WRITE_CHUNKS];
        for (slice, chunk) in slices.iter_mut().zip(chunks) {
            *slice = IoSlice::new(chunk);
        }
        // If it is broken, the writer will find that out.
        socket.try_write_vectored(&slices[..chunks.len()]).unwrap_or(0)
    }
}

/// The rest of `chunks` without their first `written` bytes.
fn rest(chunks: Vec<Bytes>, mut written: usize) -> Vec<Bytes> {
    let left = chunks.into_iter().filter_map(|mut chunk| {
        let skipped = written.min(chunk.len());
        chunk.advance(skipped);
        written -= skipped;
        (!chunk.is_empty()).then_some(chunk)
    });
    left.collect()
}

/// The outcome of a take.
enum Taken<'a> {
    Something,
    /// Nothing now; maybe later.
    NothingYet,
    /// Nothing before this instant, unless it is urgent.
    NothingBefore(Instant, &'a Timer),
    /// Nothing, and there will be nothing any more.
    Nothing,
}

/// How many bytes wait for several connections together. Clones count the same.
#[derive(Clone, Debug, Default)]
pub struct Together(Arc<AtomicUsize>);

impl Together {
    /// How many.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Bytes taken and not yet written to the socket. Increased under the lock of `state`.
    queued_bytes: AtomicUsize,
    bound_bytes: usize,
    together: Option<Together>,
    delay: Option<DelayLine>,
    /// When the connection was made.
    started: Instant,
    /// How many nanoseconds after that something arrived last.
    heard: AtomicU64,
    /// Why the connection ends or ended: the first cause.
    reason: OnceLock<CloseReason>,
    /// There is something for the writer.
    work: Notify,
    /// `stage`, `reader_done` or `reason` changed.
    changed: Notify,
}

impl Queue {
    pub(crate) fn new(socket: Arc<OwnedWriteHalf>, options: &ConnectionOptions) -> Self {
        let delay = options.delay.clone();
        let state = State {
            chunks: VecDeque::new(),
            way: delay.as_ref().map(DelayLine::way),
            socket: Some(socket),
            in_hand: false,
            stage: Stage::Open,
            ping: false,
            pong: false,
            reader_done: false,
        };
        Self {
            state: Mutex::new(state),
            queued_bytes: AtomicUsize::new(0),
            bound_bytes: options.queue_bytes,
            together: options.together.clone(),
            delay,
            started: Instant::now(),
            heard: AtomicU64::new(0),
            reason: OnceLock::new(),
            work: Notify::new(),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn reason(&self) -> Option<CloseReason> {
        self.reason.get().cloned()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.state().stage
    }

    /// Adds chunks, all or none. A frame that is larger than the bound by itself passes an empty
    /// queue.
    pub(crate) fn push(&self, chunks: Vec<Bytes>) -> Result<(), SendError> {
        let bytes = chunks.iter().map(Bytes::len).sum::<usize>();
        let mut state = self.state();
        if state.stage > Stage::Open {
            return Err(SendError::Closed(self.reason().unwrap_or(CloseReason::Local)));
        }
        let queued_bytes = self.queued_bytes();
        if queued_bytes > 0 && queued_bytes.saturating_add(bytes) > self.bound_bytes {
            return Err(SendError::Overloaded { queued_bytes, bound_bytes: self.bound_bytes });
        }
        let written = state.write_through(&chunks, bytes);
        if written == bytes {
            return Ok(());
        }
        let chunks = if written == 0 { chunks } else { rest(chunks, written) };
        // A writer that waits for something on its way need not be told of what comes behind it.
        let is_waited_for = state.way.as_ref().is_some_and(|way| way.next_at().is_some());
        self.append(&mut state, chunks);
        drop(state);
        if !is_waited_for {
            self.work.notify_one();
        }
        Ok(())
    }

    fn append(&self, state: &mut State, chunks: Vec<Bytes>) {
        self.waits(chunks.iter().map(Bytes::len).sum());
        match &mut state.way {
            Some(way) => way.send(Instant::now(), chunks),
            None => state.arrive(chunks),
        }
    }

    /// Something arrived.
    pub(crate) fn hears(&self) {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.heard.store(nanos, Ordering::Relaxed);
    }

    /// When something arrived last; if nothing did, when the connection was made.
    pub(crate) fn heard_at(&self) -> Instant {
        self.started + Duration::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    pub(crate) fn ping(&self) {
        self.state().ping = true;
        self.work.notify_one();
    }

    pub(crate) fn pong(&self) {
        self.state().pong = true;
        self.work.notify_one();
    }

    /// Takes no new chunks. Those queued, and then `last`, are still written.
    pub(crate) fn close(&self, reason: CloseReason, last: Vec<Bytes>) {
        let mut state = self.state();
        // The reason comes first: who sees the stage sees the reason.
        let _ = self.reason.set(reason);
        if state.stage == Stage::Open {
            self.append(&mut state, last);
            state.stage = Stage::Draining;
        }
        drop(state);
        self.notify();
    }

    /// For the writer: all chunks are written and there will be no more.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        state.stage = state.stage.max(Stage::Finished);
        state.socket = None;
        drop(state);
        self.notify();
    }

    /// Writes nothing any more; what was queued is dropped.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut state = self.state();
        let _ = self.reason.set(reason);
        state.stage = Stage::Ended;
        state.socket = None;
        let dropped = std::mem::take(&mut state.chunks);
        let lost: Vec<_> = state.way.iter_mut().flat_map(Way::lose).collect();
        drop(state);
        drop((dropped, lost));
        // The writer drops what it has in hand.
        self.written(usize::MAX);
        self.notify();
    }

    /// Notes the reason without closing: the peer will send no more, but may still listen.
    pub(crate) fn note(&self, reason: CloseReason) {
        let _ = self.reason.set(reason);
        self.changed.notify_waiters();
    }

    /// Nobody will read from the socket again.
    pub(crate) fn reader_done(&self) {
        self.state().reader_done = true;
        self.notify();
    }

    fn notify(&self) {
        self.work.notify_one();
        self.changed.notify_waiters();
    }

    /// For the writer: waits until there is something to write, and moves all of it to `batch`.
    /// False if there is nothing and never will be.
    ///
    /// This is where frames leave, and where a delay line holds them back.
    pub(crate) async fn take(&self, batch: &mut VecDeque<Bytes>) -> bool {
        loop {
            match self.try_take(batch) {
                Taken::Something => return true,
                Taken::Nothing => return false,
                Taken::NothingYet => self.work.notified().await,
                Taken::NothingBefore(at, timer) => {
                    tokio::select! {
                        () = timer.exactly(at) => {}
                        () = self.work.notified() => {}
                    }
                }
            }
        }
    }

    fn try_take(&self, batch: &mut VecDeque<Bytes>) -> Taken<'_> {
        let mut state = self.state();
        if state.stage == Stage::Ended {
            return Taken::Nothing;
        }
        state.let_arrive();
        for (wanted, kind) in [(state.ping, FrameKind::Ping), (state.pong, FrameKind::Pong)] {
            if wanted {
                let frame = frame_chunks(kind, LogId(0), |_| {}).expect("an empty body fits");
                self.waits(frame.iter().map(Bytes::len).sum());
                batch.extend(frame);
            }
        }
        (state.ping, state.pong) = (false, false);
        if batch.is_empty() {
            std::mem::swap(&mut state.chunks, batch);
        } else {
            batch.append(&mut state.chunks);
        }
        state.in_hand = !batch.is_empty();
        let next_at = state.way.as_ref().and_then(Way::next_at);
        match (batch.is_empty(), next_at.zip(self.delay.as_ref()), state.stage) {
            (false, ..) => Taken::Something,
            (true, Some((at, delay)), _) => Taken::NothingBefore(at, delay.timer()),
            (true, None, Stage::Open) => Taken::NothingYet,
            (true, None, _) => Taken::Nothing,
        }
    }

    fn waits(&self, bytes: usize) {
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(Together(all)) = &self.together {
            all.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// For the writer: this much left the queue, if that has not ended meanwhile.
    pub(crate) fn written(&self, bytes: usize) {
        let less = |queued: usize| Some(queued.saturating_sub(bytes));
        let before = self.queued_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if let (Some(Together(all)), Ok(before)) = (&self.together, before) {
            all.fetch_sub(before.min(bytes), Ordering::Relaxed);
        }
    }

    /// Waits until the writing side has come as far as `stage`.
    pub(crate) async fn reached(&self, stage: Stage) {
        self.until(|| (self.stage() >= stage).then_some(())).await;
    }

    /// Waits until nobody will read from the socket again.
    pub(crate) async fn unread(&self) {
        self.until(|| self.state().reader_done.then_some(())).await;
    }

    /// Waits until there is a reason.
    pub(crate) async fn closed(&self) -> CloseReason {
        self.until(|| self.reason()).await
    }

    async fn until<T>(&self, check: impl Fn() -> Option<T>) -> T {
        let mut changed = pin!(self.changed.notified());
        loop {
            // Listen first, then look: a change between the two is not missed.
            changed.as_mut().enable();
            if let Some(value) = check() {
                return value;
            }
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Bytes that were never written do not wait any more.
        self.written(usize::MAX);
    }
}
