//! Lines of a server to a stream, written by a thread of their own.
//!
//! A stream takes no lines while no process reads it: a full pipe, a terminal held with Ctrl-S. The
//! server continues.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of waiting lines per stream. A further line is dropped and counted.
const MAX_WAITING_BYTES: usize = 256 << 10;

/// A bounded queue of lines with the thread that writes them. Clones share both.
#[derive(Clone)]
pub(crate) struct LineQueue {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Invariant: `waiting_bytes` is the sum of the lengths of `waiting`, and at most
/// [`MAX_WAITING_BYTES`].
#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    is_writing: bool,
    /// Dropped lines that were not reported yet.
    dropped: u64,
}

impl LineQueue {
    /// Starts the thread that writes to `stream`. After lines were dropped, the thread calls
    /// `report_dropped` with their number as soon as half of the queue is free.
    pub(crate) fn start(
        stream: impl Write + Send + 'static,
        report_dropped: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let queue = Self { shared: Arc::clone(&shared) };
        // The thread ends with the process: a blocked write cannot be cancelled.
        thread::Builder::new()
            .name("write lines".into())
            .spawn(move || shared.write_all_to(stream, report_dropped))?;
        Ok(queue)
    }

    /// Appends a line with its line end. Never waits for the stream.
    pub(crate) fn push(&self, line: Vec<u8>) {
        let mut state = self.shared.state();
        if state.waiting_bytes + line.len() > MAX_WAITING_BYTES {
            state.dropped += 1;
            return;
        }
        state.waiting_bytes += line.len();
        state.waiting.push_back(line);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits at most until `until` for the stream to take all lines.
    pub(crate) fn drain(&self, until: Instant) {
        let mut state = self.shared.state();
        while !state.waiting.is_empty() || state.is_writing {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Each call of `write` is one line.
impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all_to(&self, mut stream: impl Write, report_dropped: impl Fn(u64)) {
        loop {
            let line = self.next();
            // A closed stream takes no line, and no other stream could report that.
            let _ = stream.write_all(&line).and_then(|()| stream.flush());
            match self.written() {
                0 => {}
                dropped => report_dropped(dropped),
            }
        }
    }

    fn next(&self) -> Vec<u8> {
        let mut state = self.state();
        loop {
            if let Some(line) = state.waiting.pop_front() {
                state.waiting_bytes -= line.len();
                state.is_writing = true;
                return line;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes that the taken line is written. Returns the number of dropped lines to report: zero
    /// while the queue has no room for the report.
    fn written(&self) -> u64 {
        let mut state = self.state();
        state.is_writing = false;
        let has_room = state.waiting_bytes <= MAX_WAITING_BYTES / 2;
        let dropped = if has_room { mem::take(&mut state.dropped) } else { 0 };
        drop(state);
        self.changed.notify_all();
        dropped
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    struct Held {
        permits: Receiver<()>,
        written: SyncSender<String>,
    }

    impl Write for Held {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.written.send(String::from_utf8_lossy(line).into_owned()).expect("the test listens");
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_the_bound_are_dropped_and_counted_when_there_is_room() {
        let ((permits, held), (written, lines), (reports, reported)) = (
            sync_channel(MAX_WAITING_BYTES / 1024),
            sync_channel(MAX_WAITING_BYTES / 1024),
            sync_channel(MAX_WAITING_BYTES / 1024),
        );
        let stream = Held { permits: held, written };
        let queue = LineQueue::start(stream, move |dropped| reports.send(dropped).expect("the test listens"))
            .expect("a thread starts");
        let line = |number: usize| format!("{number:01023}\n");
        let fit = MAX_WAITING_BYTES / 1024;
        // The thread may hold one line more than the queue.
        (0..fit + 10).for_each(|number| queue.push(line(number).into_bytes()));
        queue.drain(Instant::now() + Duration::from_millis(10));
        assert!(reported.try_recv().is_err(), "there is no room for a report");
        for number in 0..fit {
            permits.send(()).expect("the thread waits");
            assert_eq!(lines.recv_timeout(SOON).expect("it is written"), line(number));
        }
        let dropped = reported.recv_timeout(SOON).expect("the dropped lines are reported");
        assert!((9..=10).contains(&dropped), "{dropped} of 10 lines were dropped");
        assert!(reported.try_recv().is_err(), "they are reported once");
    }

    #[test]
    fn draining_ends_when_everything_is_written_or_at_its_bound() {
        let ((permits, held), (written, lines)) =
            (sync_channel(MAX_WAITING_BYTES / 1024), sync_channel(MAX_WAITING_BYTES / 1024));
        let queue = LineQueue::start(Held { permits: held, written }, |_| {}).expect("a thread starts");
        queue.push(b"last\n".to_vec());
        queue.drain(Instant::now());
        assert!(lines.try_recv().is_err(), "the stream is held");
        permits.send(()).expect("the thread waits");
        queue.drain(Instant::now() + SOON);
        assert_eq!(lines.try_recv().as_deref(), Ok("last\n"));
    }
}
