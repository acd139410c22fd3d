//! A real cluster: the binary's `dev` in a process of its own, with its data in a directory of its own.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use seriatim_client::{Client, ClientOptions};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// The program under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_seriatim");

/// How long a start, or an orderly end, may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster that can be killed and started again. Dropping it kills it and deletes its data.
pub(crate) struct Cluster {
    process: Option<Process>,
    address: String,
    options: &'static [&'static str],
    directory: TempDir,
}

struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Cluster {
    /// Starts a new cluster with these options of `dev`, and waits until it serves.
    pub(crate) async fn start(options: &'static [&'static str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the cluster");
        let address = format!("{}:0", own_host());
        let mut cluster = Self { process: None, address, options, directory };
        cluster.spawn();
        cluster.ready().await;
        cluster
    }

    /// Where it listens; the same after each restart.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where its data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A place for a test's own files.
    pub(crate) fn scratch(&self) -> &Path {
        self.directory.path()
    }

    /// A client whose operations wait for so long.
    pub(crate) async fn client(&self, deadline: Duration) -> Client {
        connect(&self.address, deadline).await
    }

    /// Starts the process; it does not serve yet.
    pub(crate) fn spawn(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let mut child = Command::new(BINARY)
            .args(["dev", "--listen", &self.address, "--data"])
            .arg(self.data())
            .args(self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.log_file())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        self.process = Some(Process { child, output });
    }

    /// Waits until it serves.
    pub(crate) async fn ready(&mut self) {
        let process = self.process.as_mut().expect("it was spawned");
        let line = match timeout(PATIENCE, process.output.next_line()).await {
            Ok(line) => line.expect("its output can be read"),
            Err(_) => panic!("not ready within {PATIENCE:?}; it says: {}", self.says()),
        };
        let Some(line) = line else { panic!("it ended before it was ready; it says: {}", self.says()) };
        let address = line.strip_prefix("ready ").unwrap_or_else(|| panic!("not a ready line: {line}"));
        self.address = address.to_owned();
    }

    /// Waits until it serves, but not for longer than `patience`. Whether it does.
    pub(crate) async fn ready_within(&mut self, patience: Duration) -> bool {
        timeout(patience, self.ready()).await.is_ok()
    }

    /// `kill -9`.
    pub(crate) async fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.child.kill().await.expect("it can be killed");
    }

    /// `kill -9`, and a new start on the same data and address.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.kill().await;
        self.spawn();
        self.ready().await;
    }

    /// Sends a signal, and waits for the end of the process.
    pub(crate) async fn stop(&mut self, signal: Signal) -> ExitStatus {
        let mut process = self.process.take().expect("it runs");
        let pid = process.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it has an id");
        kill_process(pid, signal).expect("it can be signalled");
        match timeout(PATIENCE, process.child.wait()).await {
            Ok(status) => status.expect("it can be waited for"),
            Err(_) => panic!("{signal:?} did not end it within {PATIENCE:?}; it says: {}", self.says()),
        }
    }

    /// What it said on standard error, over all its lives.
    pub(crate) fn says(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("stderr")
    }

    fn log_file(&self) -> File {
        OpenOptions::new().create(true).append(true).open(self.log_path()).expect("a file for its words")
    }
}

/// A client whose operations wait for so long. Waits for a cluster that is about to come back.
pub(crate) async fn connect(address: &str, deadline: Duration) -> Client {
    let mut options = ClientOptions::default();
    options.deadline = deadline;
    options.name = "rig".into();
    let attempts = async {
        let mut again = tokio::time::interval(Duration::from_millis(10));
        loop {
            again.tick().await;
            if let Ok(client) = Client::connect_with(address, options.clone()).await {
                return client;
            }
        }
    };
    timeout(PATIENCE, attempts).await.unwrap_or_else(|_| panic!("nobody serves at {address}"))
}

/// An address of this machine that no other cluster of the rig uses, where that is possible: while a
/// cluster is down nobody else can then be given its port.
fn own_host() -> String {
    if cfg!(target_os = "linux") {
        let [a, b, c] = rand::random::<[u8; 3]>();
        format!("127.{}.{b}.{}", a.max(1), c.clamp(1, 254))
    } else {
        "127.0.0.1".into()
    }
}
