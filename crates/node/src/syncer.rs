//! The threads that wait for the disk, so that nobody else does.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use seriatim_host::{Event, FileWork};
use seriatim_store::{Advance, Disk, JournalWrite, Preparation};
use tokio::sync::mpsc;

use crate::driver::Arrival;
use crate::progress::JournalProgress;

/// How long the journal's next file waits between its pieces of 1 MiB while it grows faster than
/// the one before it fills, so that what is synced meanwhile does not wait for all of them.
const NEXT_PIECE_AFTER: Duration = Duration::from_millis(20);

/// How often the names of the files are looked at. Every open file is looked at within four times
/// this.
const VERIFY_EVERY: Duration = Duration::from_secs(1);

/// Something that takes as long as the disk takes.
enum Job {
    Write(JournalWrite),
    Files(FileWork),
    Prepare(Preparation),
}

/// Four threads a node: one writes the journal, which appends wait for; one syncs the files of a
/// checkpoint and deletes what was trimmed, which may be much and must not be in the way; one makes
/// the journal's next file before it is needed; and one looks whether the files still have their
/// names.
pub(crate) struct Syncer {
    journal: Worker,
    files: Worker,
    next_file: Worker,
    progress: JournalProgress,
    _verifier: Verifier,
}

impl Syncer {
    /// `inbox` is told when a job is done.
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

    /// How the journal's writes do, for other threads to see.
    pub(crate) fn progress(&self) -> JournalProgress {
        self.progress.clone()
    }

    /// How long a journal write took lately; see [`JournalProgress::write_time`].
    pub(crate) fn write_time(&self) -> Duration {
        self.progress.write_time()
    }
}

/// A thread that does one job after the other.
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
        // The host has at most one job of each kind under way.
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
        // If the thread is gone the process is about to end, and the node learns of no completion.
        let _ = jobs.send(job);
    }

    /// Gives it a job that can be left undone, if it has time.
    fn offer(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("the worker runs until it is dropped");
        match jobs.try_send(job) {
            // A thread that is gone is told of where somebody waits for it.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

/// A thread that looks at the names of the files again and again, also while nothing is written,
/// and reports their loss.
struct Verifier {
    /// The thread ends when this is dropped.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Verifier {
    fn start(disk: Arc<dyn Disk>, inbox: mpsc::Sender<Arrival>) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name("file names".into()).spawn(move || {
            while stopped.recv_timeout(VERIFY_EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Err(cause) = disk.verify() {
                    // A driver that is gone has no use for it.
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
    /// Says what the host has to know.
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
