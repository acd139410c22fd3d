//! The thread that waits for the disk, so that nobody else does.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use seriatim_host::Event;
use seriatim_store::{Disk, JournalWrite, sync_files};
use tokio::sync::mpsc;

use crate::driver::Arrival;

/// Something that takes as long as the disk takes.
pub(crate) enum Job {
    Write(JournalWrite),
    Sync(Vec<String>),
}

/// One thread a node: it writes and syncs, one job after the other.
pub(crate) struct Syncer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// `inbox` is told when a job is done.
    pub(crate) fn start(disk: Arc<dyn Disk>, inbox: mpsc::Sender<Arrival>) -> std::io::Result<Self> {
        // The host has at most one write and one list of files under way.
        let (jobs, queue) = sync_channel::<Job>(2);
        let thread = std::thread::Builder::new().name("syncer".into()).spawn(move || {
            for job in queue {
                let event = match job {
                    Job::Write(write) => Event::JournalWritten(write.perform(&*disk)),
                    Job::Sync(files) => {
                        Event::FilesSynced(sync_files(&*disk, &files).map_err(|cause| cause.to_string()))
                    }
                };
                if inbox.blocking_send(Arrival::Host(event)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    pub(crate) fn give(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("the syncer runs until it is dropped");
        // If the thread is gone the process is about to end, and the node learns of no completion.
        let _ = jobs.send(job);
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
