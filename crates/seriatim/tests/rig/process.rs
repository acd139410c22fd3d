//! A server process.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::surroundings::Surroundings;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_seriatim");

/// Time limit of a start or an orderly stop on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Disables the disk warning, because the test machine's disk may be nearly full.
pub(crate) const NO_DISK_WARNING: &str = "disk_warn_percent=0";

pub(crate) struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    words: PathBuf,
}

impl Process {
    /// Starts the binary; appends its standard error to the file `words`.
    pub(crate) fn spawn<S: AsRef<OsStr>>(
        arguments: impl IntoIterator<Item = S>,
        words: impl Into<PathBuf>,
        surroundings: &Surroundings,
    ) -> Self {
        let words = words.into();
        let file = OpenOptions::new().create(true).append(true).open(&words).expect("a file for its words");
        let mut command = Command::new(BINARY);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).kill_on_drop(true);
        command.envs(surroundings.preload.iter().map(|library| ("LD_PRELOAD", library)));
        let mut child = surroundings.within(|| command.spawn()).expect("the binary starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, output, words }
    }

    /// Waits until it serves; returns its address.
    pub(crate) async fn ready(&mut self) -> String {
        let line = self.line().await;
        line.strip_prefix("ready ").unwrap_or_else(|| panic!("not a ready line: {line}")).to_owned()
    }

    /// The next line of its standard output.
    pub(crate) async fn line(&mut self) -> String {
        let line = match timeout(TIMEOUT, self.output.next_line()).await {
            Ok(line) => line.expect("its output can be read"),
            Err(_) => panic!("no line within {TIMEOUT:?}; it says: {}", said(&self.words)),
        };
        line.unwrap_or_else(|| panic!("it ended; it says: {}", said(&self.words)))
    }

    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    pub(crate) fn peak_memory(&self) -> u64 {
        peak_memory(self.child.id().expect("it runs"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it can be signalled");
    }

    /// Limits the size of its written files, in bytes, until the next call. `u64::MAX`: no limit.
    pub(crate) fn limit_file_sizes_softly(&self, bytes: u64) {
        let limit = Rlimit { current: (bytes < u64::MAX).then_some(bytes), maximum: None };
        prlimit(Some(self.pid()), Resource::Fsize, limit).expect("it can be limited");
    }

    pub(crate) fn limit_file_sizes(&self, bytes: u64) {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        prlimit(Some(self.pid()), Resource::Fsize, limit).expect("it can be limited");
    }

    fn pid(&self) -> Pid {
        self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it has an id")
    }

    /// Waits until it has ended. Cancelling the future loses nothing.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        self.child.wait().await.expect("it can be waited for")
    }

    pub(crate) async fn stop(self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.end(&format!("{signal:?}"), TIMEOUT).await
    }

    pub(crate) async fn end(mut self, cause: &str, at_most: Duration) -> ExitStatus {
        match timeout(at_most, self.child.wait()).await {
            Ok(status) => status.expect("it can be waited for"),
            Err(_) => panic!("{cause} did not end it within {at_most:?}; it says: {}", said(&self.words)),
        }
    }
}

/// Peak memory of a process, in bytes; 0 if the operating system does not report it.
pub(crate) fn peak_memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}

pub(crate) fn said(words: &Path) -> String {
    fs::read_to_string(words).unwrap_or_default()
}

/// A loopback address of this cluster alone, if possible: no other process gets its ports while it
/// is down.
pub(crate) fn own_host() -> String {
    if cfg!(target_os = "linux") {
        let [a, b, c] = rand::random::<[u8; 3]>();
        format!("127.{}.{b}.{}", a.max(1), c.clamp(1, 254))
    } else {
        "127.0.0.1".into()
    }
}
