//! Threads that wait for the disk in place of the driver.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use seriatim_host::{Event, FileWork};
use seriatim_store::{Advance, Disk, JournalWrite, Preparation};
use tokio::sync::mpsc;

use crate::driver::Arrival;
use crate::progress::JournalProgress;

/// Pause between 1 MiB pieces of the next journal file, unless the current file fills faster: a
/// sync in the meantime does not wait for all pieces.
const NEXT_PIECE_AFTER: Duration = Duration::from_millis(20);

/// Pause between checks of file names. Four checks cover every open file.
const VERIFY_EVERY: Duration = Duration::from_secs(1);

enum Job {
    Write(JournalWrite),
    Files(FileWork),
    Prepare(Preparation),
}

/// Four threads of a node, separate so that journal writes do not wait for other work:
///
/// - `journal` performs the writes that appends wait for;
/// - `files` syncs checkpoint files and deletes trimmed ones;
/// - `next_file` makes the next journal file in advance;
/// - the verifier checks names of files.
pub(crate) struct Syncer {
    journal: Worker,
    files: Worker,
    next_file: Worker,
    progress: JournalProgress,
    _verifier: Verifier,
}

impl Syncer {
    pub(crate) fn start(disk: &Arc<dyn Disk>, inbox: &mpsc::Sender<Arrival>) -> std::io::Result<Self> {
        let progress = JournalProgress::new();
        let start = |name| Worker::start(name, disk.clone(), inbox.clone(), progress.clone());
        Ok(Self {
            journal: start("journal")?,
            files: start("checkpoint")?,
            next_file: start("next journal")?,
            progress,
            _verifier: Verifier::start(disk.clone(), inbox.clone())?,
        })
    }

    pub(crate) fn write(&self, write: JournalWrite) {
        if let Some(file) = write.take_preparation() {
            self.next_file.offer(Job::Prepare(file));
        }
        self.journal.give(Job::Write(write));
    }

    pub(crate) fn sync(&self, work: FileWork) {
        self.files.give(Job::Files(work));
    }

    pub(crate) fn progress(&self) -> JournalProgress {
        self.progress.clone()
    }

    pub(crate) fn write_time(&self) -> Duration {
        self.progress.write_time()
    }
}

struct Worker {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(
        name: &str,
        disk: Arc<dyn Disk>,
        inbox: mpsc::Sender<Arrival>,
        progress: JournalProgress,
    ) -> std::io::Result<Self> {
        // The host has at most one job of each kind in flight.
        let (jobs, queue) = sync_channel::<Job>(1);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            for job in queue {
                let event = job.perform(&*disk, &progress, &inbox);
                if event.is_some_and(|event| inbox.blocking_send(Arrival::Host(event)).is_err()) {
                    break;
                }
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    fn give(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("the worker runs until it is dropped");
        // If the thread has ended, so will the process: no completion is reported.
        let _ = jobs.send(job);
    }

    /// Queues an optional job, or drops it if the queue is full.
    fn offer(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("the worker runs until it is dropped");
        match jobs.try_send(job) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

/// A thread that checks names of files at intervals, even without writes, and reports their loss.
struct Verifier {
    /// Dropping this sender ends the thread.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Verifier {
    fn start(disk: Arc<dyn Disk>, inbox: mpsc::Sender<Arrival>) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name("file names".into()).spawn(move || {
            while stopped.recv_timeout(VERIFY_EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Err(cause) = disk.verify() {
                    let _ = inbox.blocking_send(Arrival::Host(Event::FilesLost(cause.to_string())));
                    break;
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Job {
    /// Returns the event for the host that reports the job's end, if any.
    fn perform(
        self,
        disk: &dyn Disk,
        progress: &JournalProgress,
        inbox: &mpsc::Sender<Arrival>,
    ) -> Option<Event> {
        Some(match self {
            Self::Write(write) => Event::JournalWritten(progress.during(|| write.perform(disk))),
            Self::Prepare(file) => {
                while !inbox.is_closed() {
                    match file.advance(disk) {
                        Advance::Behind => {}
                        Advance::Ahead => std::thread::sleep(NEXT_PIECE_AFTER),
                        Advance::Ended => break,
                    }
                }
                return None;
            }
            Self::Files(work) => Event::FilesSynced(work.perform(disk)),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
