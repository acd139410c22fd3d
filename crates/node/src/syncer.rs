//! The threads that wait for the disk, so that nobody else does.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use seriatim_host::{Event, FileWork};
use seriatim_store::{Advance, Disk, JournalWrite, Preparation};
use tokio::sync::mpsc;

use crate::driver::Arrival;
use crate::progress::JournalProgress;

/// How long the journal's next file waits between its pieces of 1 MiB while it grows faster than the one before it fills, so
/// that what is synced meanwhile does not wait for all of them.
const NEXT_PIECE_AFTER: Duration = Duration::from_millis(20);

/// Something that takes as long as the disk takes.
enum Job {
    Write(JournalWrite),
    Files(FileWork),
    Prepare(Preparation),
}

/// Three threads a node: one writes the journal, which appends wait for; one syncs the files of a
/// checkpoint and deletes what was trimmed, which may be much and must not be in the way; and one makes the journal's
/// next file before it is needed.
pub(crate) struct Syncer {
    journal: Worker,
    files: Worker,
    next_file: Worker,
    progress: JournalProgress,
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
