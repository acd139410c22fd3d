//! Reads frames from a socket. Holds memory only while it contains data.
//!
//! A quiet connection reads into its thread's shared buffer and copies the bytes: it owns nothing
//! while it waits, and a short message kept for long holds no long buffer. A busy connection, or
//! one within a long frame, reads into its own buffer; its frames are slices.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use crate::frame::{Frame, FrameDecoder, FrameError};
use crate::limits::QUIET_READ_BYTES;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; QUIET_READ_BYTES].into());
}

#[derive(Debug)]
pub(crate) struct Intake {
    decoder: FrameDecoder,
    /// Whether the last read filled its buffer.
    busy: bool,
}

impl Intake {
    pub(crate) fn for_stranger() -> Self {
        Self { decoder: FrameDecoder::for_stranger(), busy: false }
    }

    pub(crate) fn admit(&mut self) {
        self.decoder.admit();
    }

    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        self.decoder.next_frame()
    }

    pub(crate) fn finish(&self) -> Result<(), FrameError> {
        self.decoder.finish()
    }

    /// Reads available bytes, at most one buffer. 0 is the end. Cancel safe.
    pub(crate) async fn read(&mut self, source: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(source, context)).await
    }

    fn poll_read(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.busy || self.decoder.missing_bytes() > QUIET_READ_BYTES {
            self.poll_own(source, context)
        } else {
            self.poll_shared(source, context)
        }
    }

    fn poll_own(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let poll = pin!(source.read_buf(self.decoder.room())).poll(context);
        self.busy = matches!(poll, Poll::Ready(Ok(bytes)) if bytes >= QUIET_READ_BYTES);
        if poll.is_pending() && self.decoder.missing_bytes() == 0 {
            self.decoder.shrink();
        }
        poll
    }

    fn poll_shared(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.decoder.is_empty() {
            self.decoder.shrink();
        }
        SHARED.with_borrow_mut(|shared| {
            let mut buffer = ReadBuf::new(shared);
            ready!(Pin::new(source).poll_read(context, &mut buffer))?;
            let bytes = buffer.filled();
            self.busy = bytes.len() == QUIET_READ_BYTES;
            self.decoder.feed(bytes);
            Poll::Ready(Ok(bytes.len()))
        })
    }
}
