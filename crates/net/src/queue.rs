//! What the handles of a connection and its writer share: the bytes to be written and how the connection
//! ends.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use seriatim_model::LogId;
use tokio::sync::Notify;

use crate::connection::{CloseReason, SendError};
use crate::frame::{FrameKind, frame_chunks};

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
    stage: Stage,
    /// A Ping and a Pong to be written. Flags, not chunks: a peer that floods us with pings makes the
    /// queue no longer.
    ping: bool,
    pong: bool,
    /// Whether nobody will read from the socket again.
    reader_done: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Bytes taken and not yet written to the socket. Increased under the lock of `state`.
    queued_bytes: AtomicUsize,
    bound_bytes: usize,
    /// Why the connection ends or ended: the first cause.
    reason: OnceLock<CloseReason>,
    /// There is something for the writer.
    work: Notify,
    /// `stage`, `reader_done` or `reason` changed.
    changed: Notify,
}

impl Queue {
    pub(crate) fn new(bound_bytes: usize) -> Self {
        let state = State {
            chunks: VecDeque::new(),
            stage: Stage::Open,
            ping: false,
            pong: false,
            reader_done: false,
        };
        Self {
            state: Mutex::new(state),
            queued_bytes: AtomicUsize::new(0),
            bound_bytes,
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

    /// Adds chunks, all or none. A frame that is larger than the bound by itself passes an empty queue.
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
        self.append(&mut state, chunks);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    fn append(&self, state: &mut State, chunks: Vec<Bytes>) {
        let bytes = chunks.iter().map(Bytes::len).sum::<usize>();
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        state.chunks.extend(chunks.into_iter().filter(|chunk| !chunk.is_empty()));
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
        drop(state);
        self.notify();
    }

    /// Writes nothing any more; what was queued is dropped.
    pub(crate) fn end(&self, reason: CloseReason) {
        let mut state = self.state();
        let _ = self.reason.set(reason);
        state.stage = Stage::Ended;
        let dropped = std::mem::take(&mut state.chunks);
        drop(state);
        self.written(dropped.iter().map(Bytes::len).sum());
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

    /// For the writer: waits until there is something to write, and moves all of it to `batch`. False if
    /// there is nothing and never will be.
    ///
    /// This is where frames leave. A delay line for benchmarks belongs here: it would hold each push back
    /// until its time has come.
    pub(crate) async fn take(&self, batch: &mut VecDeque<Bytes>) -> bool {
        loop {
            if let Some(more) = self.try_take(batch) {
                return more;
            }
            self.work.notified().await;
        }
    }

    fn try_take(&self, batch: &mut VecDeque<Bytes>) -> Option<bool> {
        let mut state = self.state();
        if state.stage == Stage::Ended {
            return Some(false);
        }
        for (wanted, kind) in [(state.ping, FrameKind::Ping), (state.pong, FrameKind::Pong)] {
            if wanted {
                let frame = frame_chunks(kind, LogId(0), |_| {}).expect("an empty body fits");
                self.queued_bytes.fetch_add(frame.iter().map(Bytes::len).sum(), Ordering::Relaxed);
                batch.extend(frame);
            }
        }
        (state.ping, state.pong) = (false, false);
        if batch.is_empty() {
            std::mem::swap(&mut state.chunks, batch);
        } else {
            batch.append(&mut state.chunks);
        }
        match (batch.is_empty(), state.stage) {
            (false, _) => Some(true),
            (true, Stage::Open) => None,
            (true, _) => Some(false),
        }
    }

    /// For the writer: this much left the queue.
    pub(crate) fn written(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
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
