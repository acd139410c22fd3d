//! The task that writes a connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rustix::net::Shutdown;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::{sleep, timeout};

use crate::connection::CloseReason;
use crate::limits::{
    COALESCE_BELOW_BYTES, COALESCED_BYTES, LINGER_FOR, QUIET_READ_BYTES, WRITE_BYTES, WRITE_CHUNKS,
};
use crate::queue::{Queue, Stage};

/// Writes until the queue is closed and empty. Then waits for the end of the reading side, at most
/// [`FLUSH_FOR`](crate::limits::FLUSH_FOR), and closes the socket.
pub(crate) async fn run(queue: Arc<Queue>, socket: Arc<OwnedWriteHalf>, flush_for: Duration) {
    let overdue = async {
        queue.reached(Stage::Draining).await;
        sleep(flush_for).await;
    };
    let outcome = tokio::select! {
        outcome = drain(&queue, &socket) => outcome.map_err(CloseReason::io),
        () = overdue => Err(CloseReason::Stalled(flush_for)),
        () = queue.reached(Stage::Ended) => Ok(()),
    };
    match outcome {
        Ok(()) => queue.finish(),
        Err(reason) => queue.end(reason),
    }
    // The call fails if the peer is gone already.
    let socket: &TcpStream = (*socket).as_ref();
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
    if timeout(flush_for, queue.unread()).await.is_err() {
        // The peer neither closes nor needs to read: the kernel's buffers may hold all bytes.
        queue.end(CloseReason::Stalled(flush_for));
        queue.unread().await;
    }
    let _ = timeout(LINGER_FOR, discard(socket)).await;
}

async fn drain(queue: &Queue, socket: &OwnedWriteHalf) -> io::Result<()> {
    let mut batch = Batch::default();
    while queue.take(&mut batch.waiting).await {
        while batch.top_up() {
            let written = write(socket, &batch).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            batch.advance(written);
            queue.written(written);
        }
        batch.rest();
    }
    Ok(())
}

async fn write(socket: &OwnedWriteHalf, batch: &Batch) -> io::Result<usize> {
    loop {
        let mut slices = [IoSlice::new(&[]); WRITE_CHUNKS];
        match socket.try_write_vectored(batch.slices(&mut slices)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            outcome => return outcome,
        }
    }
}

async fn discard(socket: &TcpStream) -> io::Result<()> {
    loop {
        socket.readable().await?;
        let mut scratch = [0; QUIET_READ_BYTES];
        match socket.try_read(&mut scratch) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Chunks taken from the queue and not yet written.
#[derive(Debug, Default)]
struct Batch {
    waiting: VecDeque<Bytes>,
    /// Chunks of the next write: short neighbours are joined.
    offered: VecDeque<Bytes>,
    offered_bytes: usize,
}

impl Batch {
    /// Fills `offered` from `waiting`. False if nothing is left.
    fn top_up(&mut self) -> bool {
        while self.offered.len() < WRITE_CHUNKS && self.offered_bytes < WRITE_BYTES {
            let Some(chunk) = self.next_chunk() else { break };
            self.offered_bytes += chunk.len();
            self.offered.push_back(chunk);
        }
        !self.offered.is_empty()
    }

    /// The next chunk, joined from short ones.
    fn next_chunk(&mut self) -> Option<Bytes> {
        let (mut count, mut bytes) = (0, 0);
        for chunk in self.waiting.iter().take_while(|chunk| chunk.len() < COALESCE_BELOW_BYTES) {
            if bytes + chunk.len() > COALESCED_BYTES {
                break;
            }
            count += 1;
            bytes += chunk.len();
        }
        if count < 2 {
            return self.waiting.pop_front();
        }
        let mut joined = BytesMut::with_capacity(bytes);
        self.waiting.drain(..count).for_each(|chunk| joined.extend_from_slice(&chunk));
        Some(joined.freeze())
    }

    fn slices<'a, 'b>(&'a self, slices: &'b mut [IoSlice<'a>; WRITE_CHUNKS]) -> &'b [IoSlice<'a>] {
        for (slice, chunk) in slices.iter_mut().zip(&self.offered) {
            *slice = IoSlice::new(chunk);
        }
        &slices[..self.offered.len()]
    }

    fn advance(&mut self, mut written: usize) {
        self.offered_bytes -= written;
        while written > 0 {
            let first = self.offered.front_mut().expect("no more is written than was offered");
            if written < first.len() {
                return first.advance(written);
            }
            written -= first.len();
            self.offered.pop_front();
        }
    }

    /// Frees the memory of a burst. Short sends do not use the batch.
    fn rest(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(lengths: &[usize]) -> VecDeque<Bytes> {
        let mut next = 0u8;
        let mut byte = || {
            next = next.wrapping_add(1);
            next
        };
        lengths.iter().map(|length| (0..*length).map(|_| byte()).collect()).collect()
    }

    fn contents(batch: &Batch) -> Vec<u8> {
        batch.offered.iter().chain(&batch.waiting).flatten().copied().collect()
    }

    #[test]
    fn short_neighbours_are_joined_and_long_chunks_stay() {
        let mut batch = Batch { waiting: chunks(&[10, 20, 5000, 30, 6000, 40, 50, 60]), ..Batch::default() };
        let long = batch.waiting[2].as_ptr();
        let before = contents(&batch);
        assert!(batch.top_up());
        let lengths: Vec<_> = batch.offered.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [30, 5000, 30, 6000, 150]);
        assert_eq!(batch.offered[1].as_ptr(), long);
        assert_eq!(contents(&batch), before);
    }

    #[test]
    fn any_progress_leaves_exactly_the_rest() {
        for step in [1, 7, 29, 30, 31, 4096, 100_000] {
            let mut batch =
                Batch { waiting: chunks(&[10, 20, 5000, 30, 6000, 40, 50, 60]), ..Batch::default() };
            let all = contents(&batch);
            let mut done = 0;
            while batch.top_up() {
                assert_eq!(contents(&batch), all[done..]);
                let written = step.min(batch.offered_bytes);
                batch.advance(written);
                done += written;
            }
            assert_eq!((done, batch.offered_bytes), (all.len(), 0));
        }
    }

    #[test]
    fn one_write_is_offered_a_bounded_amount() {
        let mut batch = Batch { waiting: chunks(&[100; 100_000]), ..Batch::default() };
        assert!(batch.top_up());
        assert!(batch.offered.len() <= WRITE_CHUNKS);
        assert!(batch.offered_bytes <= WRITE_BYTES + COALESCED_BYTES);
        assert!(batch.offered.iter().all(|chunk| chunk.len() <= COALESCED_BYTES));
    }
}
