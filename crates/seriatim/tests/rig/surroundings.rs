//! The conditions that a server process has to put up with: a processor that it shares, a disk that
//! is slow.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where a process is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// It has one core, the one of [`BusyLoop`].
    pub(crate) has_one_core: bool,
    /// A library that is loaded before all others.
    pub(crate) preload: Option<PathBuf>,
}

impl Surroundings {
    /// A process whose `fdatasync` takes 50 ms longer. The library is built into this directory, by
    /// the compiler that links Rust programs, too.
    pub(crate) fn slow_sync(directory: &Path) -> Self {
        Self::with_sync(directory, &[])
    }

    /// A process none of whose `fdatasync` ends as long as there is a file at `stall`.
    pub(crate) fn stalled_sync(directory: &Path, stall: &Path) -> Self {
        let define = format!("-DSTALL_FILE=\"{}\"", stall.to_str().expect("a path of text"));
        Self::with_sync(directory, &[&define])
    }

    fn with_sync(directory: &Path, defines: &[&str]) -> Self {
        let library = directory.join("slow_sync.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rig/slow_sync.c");
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .args(defines)
            .args([source, "-ldl"])
            .output()
            .expect("there is a C compiler");
        assert!(built.status.success(), "{source}: {}", String::from_utf8_lossy(&built.stderr));
        Self { preload: Some(library), ..Self::default() }
    }

    /// Starts something here. What it starts in turn inherits this thread's core.
    pub(crate) fn within<T>(&self, start: impl FnOnce() -> T) -> T {
        if !self.has_one_core {
            return start();
        }
        let before = sched_getaffinity(None).expect("the cores of this thread");
        stay_on_one_core();
        let started = start();
        sched_setaffinity(None, &before).expect("they are its cores again");
        started
    }
}

fn stay_on_one_core() {
    let allowed = sched_getaffinity(None).expect("the cores of this thread");
    let first = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).expect("it has a core");
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).expect("one of its cores");
}

/// A thread that does nothing, as fast as it can, on the core of processes that have one core.
/// Dropping it ends it.
pub(crate) struct BusyLoop {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BusyLoop {
    pub(crate) fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = is_over.clone();
        let thread = std::thread::spawn(move || {
            stay_on_one_core();
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))), "a loop that does nothing cannot fail");
    }
}
