//! The disk floor: the same bytes to as many files as there are journals, each appended and synced
//! by its own thread. No protocol that syncs can be faster on this disk. Plain sequential writes
//! show its greatest rate.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::cluster::NODES;
use super::figure::Figure;
use super::figures::Measured;
use super::floor::all;
use super::latencies::Latencies;
use super::latency::BACKLOG;
use super::machine::cpu_time;
use super::pace::Pace;
use crate::terminal::Failure;

/// Size of a file in bytes. As in a journal, it is written in full before the measurement and then
/// overwritten.
const FILE_BYTES: u64 = 16 << 20;
/// Block size to which journals pad batches, in bytes.
const BLOCK_BYTES: usize = 4096;
/// For sequential writes: sizes of the file and of one write, and bytes between syncs.
const LONG_FILE_BYTES: u64 = 1 << 30;
const PIECE_BYTES: u64 = 1 << 20;
const SYNC_EVERY_BYTES: u64 = 64 << 20;
/// Longest measurement of sequential writes.
const SEQUENTIAL_FOR: Duration = Duration::from_secs(5);

pub(super) struct DiskFloor {
    files: Vec<Syncing>,
    _data: tempfile::TempDir,
}

/// A thread that appends to a file and syncs it. Appends that arrive during a sync share the next
/// one.
struct Syncing {
    appends: Option<SyncSender<oneshot::Sender<()>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl DiskFloor {
    pub(super) fn start(size: usize) -> Result<Self, Failure> {
        let data = tempfile::tempdir()?;
        let files = (0..NODES).map(|number| {
            let file = File::create(data.path().join(number.to_string()))?;
            Syncing::start(file, size.next_multiple_of(BLOCK_BYTES))
        });
        Ok(Self { files: files.collect::<io::Result<_>>()?, _data: data })
    }

    /// Open loop: appends begin on schedule.
    pub(super) async fn on_schedule(
        &self,
        clients: usize,
        rate: u64,
        duration: Duration,
    ) -> Result<Measured, Failure> {
        let (mut tasks, cpu) = (JoinSet::new(), cpu_time());
        for pace in Pace::split(rate, clients, duration)? {
            tasks.spawn(append_on_schedule(self.senders(), pace));
        }
        Ok(Measured::scheduled(all(tasks).await?, rate, cpu_time() - cpu))
    }

    /// Closed loop: each client makes one append after the other.
    pub(super) async fn closed(&self, clients: usize, duration: Duration) -> Result<Measured, Failure> {
        let (mut tasks, cpu, stop) = (JoinSet::new(), cpu_time(), Instant::now() + duration);
        for _ in 0..clients {
            tasks.spawn(append_until(self.senders(), stop));
        }
        Ok(Measured::closed(all(tasks).await?, cpu_time() - cpu))
    }

    fn senders(&self) -> Vec<SyncSender<oneshot::Sender<()>>> {
        self.files.iter().filter_map(|file| file.appends.clone()).collect()
    }
}

impl Syncing {
    fn start(file: File, size: usize) -> io::Result<Self> {
        for offset in (0..FILE_BYTES).step_by(PIECE_BYTES as usize) {
            file.write_all_at(&[0; PIECE_BYTES as usize], offset)?;
        }
        file.sync_all()?;
        let (appends, queue) = sync_channel(BACKLOG);
        let thread = std::thread::Builder::new().name("disk floor".into());
        let thread = thread.spawn(move || append_and_sync(&file, size, &queue))?;
        Ok(Self { appends: Some(appends), thread: Some(thread) })
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.appends = None;
        // If the thread failed, waiting appends have received the error already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn append_and_sync(file: &File, size: usize, queue: &Receiver<oneshot::Sender<()>>) -> io::Result<()> {
    let mut end = 0;
    while let Ok(first) = queue.recv() {
        let most = FILE_BYTES as usize / size - 1;
        let together: Vec<_> = std::iter::once(first).chain(queue.try_iter().take(most)).collect();
        let bytes = vec![7; together.len() * size];
        if end + bytes.len() as u64 > FILE_BYTES {
            end = 0;
        }
        file.write_all_at(&bytes, end)?;
        file.sync_data()?;
        end += bytes.len() as u64;
        for done in together {
            // The receiver may have stopped waiting.
            let _ = done.send(());
        }
    }
    Ok(())
}

/// Appends to all files; the future completes when all are synced.
fn append(files: &[SyncSender<oneshot::Sender<()>>]) -> impl Future<Output = Result<(), Failure>> + use<> {
    let waiting: Vec<_> = files
        .iter()
        .map(|file| {
            let (done, waiting) = oneshot::channel();
            // If the thread stopped or is overloaded, waiting for the answer fails below.
            let _ = file.try_send(done);
            waiting
        })
        .collect();
    async {
        for file in waiting {
            file.await.map_err(|_| Failure::new("a file of the disk floor could not be written"))?;
        }
        Ok(())
    }
}

async fn append_on_schedule(
    files: Vec<SyncSender<oneshot::Sender<()>>>,
    mut pace: Pace,
) -> Result<Latencies, Failure> {
    let mut appends = JoinSet::new();
    while let Some(scheduled) = pace.next().await {
        let append = append(&files);
        appends.spawn(async move {
            append.await?;
            Ok::<_, Failure>((scheduled, Instant::now()))
        });
    }
    let mut latencies = Latencies::new();
    while let Some(done) = appends.join_next().await {
        let (scheduled, done) = done??;
        latencies.record_between(scheduled, done);
    }
    Ok(latencies)
}

async fn append_until(
    files: Vec<SyncSender<oneshot::Sender<()>>>,
    stop: Instant,
) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new();
    while Instant::now() < stop {
        let began = Instant::now();
        append(&files).await?;
        latencies.record(began);
    }
    Ok(latencies)
}

pub(super) async fn sequential(duration: Duration) -> Result<Measured, Failure> {
    let writing = tokio::task::spawn_blocking(move || write_on_and_on(duration.min(SEQUENTIAL_FOR)));
    Ok(Measured::of([(Figure::Written, writing.await??)]))
}

/// Rate of sequential writes, in MB per second.
fn write_on_and_on(duration: Duration) -> io::Result<f64> {
    let file = tempfile::tempfile()?;
    let (piece, began) = (vec![7; PIECE_BYTES as usize], Instant::now());
    let mut written = 0;
    while began.elapsed() < duration || written % SYNC_EVERY_BYTES != 0 {
        file.write_all_at(&piece, written % LONG_FILE_BYTES)?;
        written += PIECE_BYTES;
        if written % SYNC_EVERY_BYTES == 0 {
            file.sync_data()?;
        }
    }
    Ok(written as f64 / began.elapsed().as_secs_f64() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_append_is_on_all_files() {
        let floor = DiskFloor::start(4096).unwrap();
        let second = Duration::from_secs(1);
        let measured = floor.on_schedule(4, 100, second).await.unwrap();
        assert_eq!(measured.latencies.count(), 100);
        let measured = floor.closed(2, Duration::from_millis(50)).await.unwrap();
        assert!(measured.latencies.count() >= 2);
    }
}
