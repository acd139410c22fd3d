//! The threads that wait for the disk, so that nobody else does.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use seriatim_host::{Event, FileWork};
use seriatim_store::{Disk, JournalWrite};
use tokio::sync::mpsc;

use crate::driver::Arrival;

/// Something that takes as long as the disk takes.
enum Job {
    Write(JournalWrite),
    Files(FileWork),
}

/// Two threads a node: one writes the journal, which appends wait for; the other syncs the files of a
/// checkpoint and deletes what was trimmed, which may be much and must not be in the way.
pub(crate) struct Syncer {
    journal: Worker,
    files: Worker,
}

impl Syncer {
    /// `inbox` is told when a job is done.
    pub(crate) fn start(disk: &Arc<dyn Disk>, inbox: &mpsc::Sender<Arrival>) -> std::io::Result<Self> {
        Ok(Self {
            journal: Worker::start("journal", disk.clone(), inbox.clone())?,
            files: Worker::start("checkpoint", disk.clone(), inbox.clone())?,
        })
    }

    pub(crate) fn write(&self, write: JournalWrite) {
        self.journal.give(Job::Write(write));
    }

    pub(crate) fn sync(&self, work: FileWork) {
        self.files.give(Job::Files(work));
    }
}

/// A thread that does one job after the other.
struct Worker {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(name: &str, disk: Arc<dyn Disk>, inbox: mpsc::Sender<Arrival>) -> std::io::Result<Self> {
        // The host has at most one job of each kind under way.
        let (jobs, queue) = sync_channel::<Job>(1);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            for job in queue {
                let event = match job {
                    Job::Write(write) => Event::JournalWritten(write.perform(&*disk)),
                    Job::Files(work) => Event::FilesSynced(work.perform(&*disk)),
                };
                if inbox.blocking_send(Arrival::Host(event)).is_err() {
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
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
