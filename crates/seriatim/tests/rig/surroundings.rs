//! Adverse conditions of a server process: a shared processor, a slow disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// One core, shared with [`BusyLoop`].
    pub(crate) has_one_core: bool,
    /// A library to preload.
    pub(crate) preload: Option<PathBuf>,
}

impl Surroundings {
    /// Each `fdatasync` takes 50 ms longer. Builds the library in this directory with the linker's
    /// compiler.
    pub(crate) fn slow_sync(directory: &Path) -> Self {
        Self::with_sync(directory, &[])
    }

    /// `fdatasync` blocks while a file exists at `stall`.
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

    /// Runs `start` under these conditions; child processes inherit the core.
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

/// A busy thread on the shared core. Dropping it ends it.
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
