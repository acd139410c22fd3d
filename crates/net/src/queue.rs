//! State shared by a connection's handles and its writer.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Accepts chunks.
    Open,
    /// Accepts no chunks, writes the queued ones.
    Draining,
    /// All chunks are written.
    Finished,
    /// Broken; unwritten chunks are dropped.
    Ended,
}

#[derive(Debug)]
struct State {
    chunks: VecDeque<Bytes>,
    /// Chunks in the delay line, before they reach `chunks`.
    way: Option<Way<Vec<Bytes>>>,
    /// `None` once the writer has ended.
    socket: Option<Arc<OwnedWriteHalf>>,
    /// Whether the writer has taken chunks that are not yet written.
    in_hand: bool,
    stage: Stage,
    /// Whether to write a ping; like `pong` a flag, so that a flood of pings does not lengthen the
    /// queue.
    ping: bool,
    pong: bool,
    /// Whether no task reads from the socket any more.
    reader_done: bool,
}

impl State {
    fn let_arrive(&mut self) {
        let Some(way) = &mut self.way else { return };
        let now = Instant::now();
        let arrived: Vec<Vec<Bytes>> = std::iter::from_fn(|| way.arrived(now)).collect();
        arrived.into_iter().for_each(|chunks| self.arrive(chunks));
    }

    fn arrive(&mut self, chunks: Vec<Bytes>) {
        self.chunks.extend(chunks.into_iter().filter(|chunk| !chunk.is_empty()));
    }

    /// Writes few `chunks` at once if nothing is queued: waking the writer takes longer. Returns
    /// the written bytes.
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
        // The writer will notice a broken socket.
        socket.try_write_vectored(&slices[..chunks.len()]).unwrap_or(0)
    }
}

fn rest(chunks: Vec<Bytes>, mut written: usize) -> Vec<Bytes> {
    let left = chunks.into_iter().filter_map(|mut chunk| {
        let skipped = written.min(chunk.len());
        chunk.advance(skipped);
        written -= skipped;
        (!chunk.is_empty()).then_some(chunk)
    });
    left.collect()
}

enum Taken<'a> {
    Something,
    /// No chunk at present.
    NothingYet,
    /// No chunk before this instant, except urgent frames.
    NothingBefore(Instant, &'a Timer),
    /// No chunk any more.
    Nothing,
}

/// Queued bytes of several connections. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Together(Arc<AtomicUsize>);

impl Together {
    /// The count.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Queued bytes not written to the socket. Increased under the lock of `state`.
    queued_bytes: AtomicUsize,
    bound_bytes: usize,
    together: Option<Together>,
    delay: Option<DelayLine>,
    started: Instant,
    /// Time of the last arrival, in nanoseconds after `started`.
    heard: AtomicU64,
    reason: OnceLock<CloseReason>,
    work: Notify,
    /// Signals a change of `stage`, `reader_done` or `reason`.
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

    /// Queues all chunks or none. An empty queue accepts a frame over the limit.
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
        // The writer needs no signal while it waits for earlier chunks in the delay line.
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

    pub(crate) fn hears(&self) {
        let nanos = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.heard.store(nanos, Ordering::Relaxed);
    }

    /// Last arrival; before the first, the start of the connection.
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

    /// Accepts no further chunks. Queued ones, then `last`, are still written.
    pub(crate) fn close(&self, reason: CloseReason, last: Vec<Bytes>) {
        let mut state = self.state();
        // The reason first: a thread that sees the stage must see the reason.
        let _ = self.reason.set(reason);
        if state.stage == Stage::Open {
            self.append(&mut state, last);
            state.stage = Stage::Draining;
        }
        drop(state);
        self.notify();
    }

    /// Called by the writer after the last chunk.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        state.stage = state.stage.max(Stage::Finished);
        state.socket = None;
        drop(state);
        self.notify();
    }

    /// Drops the queue.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut state = self.state();
        let _ = self.reason.set(reason);
        state.stage = Stage::Ended;
        state.socket = None;
        let dropped = std::mem::take(&mut state.chunks);
        let lost: Vec<_> = state.way.iter_mut().flat_map(Way::lose).collect();
        drop(state);
        drop((dropped, lost));
        // The writer drops its own chunks.
        self.written(usize::MAX);
        self.notify();
    }

    /// Notes a reason without closing: the peer sends no more, but may read.
    pub(crate) fn note(&self, reason: CloseReason) {
        let _ = self.reason.set(reason);
        self.changed.notify_waiters();
    }

    pub(crate) fn reader_done(&self) {
        self.state().reader_done = true;
        self.notify();
    }

    fn notify(&self) {
        self.work.notify_one();
        self.changed.notify_waiters();
    }

    /// Called by the writer: waits for chunks and moves them to `batch`. False if there will be
    /// none.
    ///
    /// A delay line takes effect here.
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

    /// Called by the writer: removes written bytes from the counts.
    pub(crate) fn written(&self, bytes: usize) {
        let less = |queued: usize| Some(queued.saturating_sub(bytes));
        let before = self.queued_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if let (Some(Together(all)), Ok(before)) = (&self.together, before) {
            all.fetch_sub(before.min(bytes), Ordering::Relaxed);
        }
    }

    pub(crate) async fn reached(&self, stage: Stage) {
        self.until(|| (self.stage() >= stage).then_some(())).await;
    }

    /// Waits until no task reads from the socket any more.
    pub(crate) async fn unread(&self) {
        self.until(|| self.state().reader_done.then_some(())).await;
    }

    pub(crate) async fn closed(&self) -> CloseReason {
        self.until(|| self.reason()).await
    }

    async fn until<T>(&self, check: impl Fn() -> Option<T>) -> T {
        let mut changed = pin!(self.changed.notified());
        loop {
            // Register for a change before the check: no change between the two is missed.
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
        self.written(usize::MAX);
    }
}
