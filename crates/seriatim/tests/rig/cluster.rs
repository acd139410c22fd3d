//! A real cluster: the binary's `dev` in a process of its own, with its data in a directory of its
//! own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use seriatim_client::{Client, ClientOptions};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::process::{NO_DISK_WARNING, Process, TIMEOUT, own_host, said};
use crate::surroundings::Surroundings;

/// A cluster that can be killed and started again. Dropping it kills it and deletes its data.
pub(crate) struct Cluster {
    process: Option<Process>,
    address: String,
    options: &'static [&'static str],
    surroundings: Surroundings,
    directory: TempDir,
}

impl Cluster {
    /// Starts a new cluster with these options of `dev`, and waits until it serves.
    pub(crate) async fn start(options: &'static [&'static str]) -> Self {
        Self::start_in(Surroundings::default(), options).await
    }

    /// The same, there.
    pub(crate) async fn start_in(surroundings: Surroundings, options: &'static [&'static str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the cluster");
        let address = format!("{}:0", own_host());
        let mut cluster = Self { process: None, address, options, surroundings, directory };
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

    /// The most memory that its process ever had, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.process.as_ref().expect("it runs").peak_memory()
    }

    /// From here on no file that it writes may become longer than this, in bytes.
    pub(crate) fn limit_file_sizes(&self, bytes: u64) {
        self.process.as_ref().expect("it runs").limit_file_sizes(bytes);
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
        let data = self.data();
        let fixed = ["dev", "--limit", NO_DISK_WARNING, "--listen", &self.address, "--data"].map(OsStr::new);
        let options = self.options.iter().map(OsStr::new);
        let arguments = fixed.into_iter().chain([data.as_os_str()]).chain(options);
        self.process = Some(Process::spawn(arguments, self.words(), &self.surroundings));
    }

    /// Waits until it serves.
    pub(crate) async fn ready(&mut self) {
        self.address = self.process.as_mut().expect("it was spawned").ready().await;
    }

    /// Waits until it serves, but not for longer than `at_most`. Whether it does.
    pub(crate) async fn ready_within(&mut self, at_most: Duration) -> bool {
        timeout(at_most, self.ready()).await.is_ok()
    }

    /// `kill -9`.
    pub(crate) async fn kill(&mut self) {
        self.process.take().expect("it runs").kill().await;
    }

    /// `kill -9`, and a new start on the same data and address.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.kill().await;
        self.spawn();
        self.ready().await;
    }

    /// Sends a signal, and waits for the end of the process.
    pub(crate) async fn stop(&mut self, signal: Signal) -> ExitStatus {
        self.process.take().expect("it runs").stop(signal).await
    }

    /// Waits for the end of the process, which `cause` brings about.
    pub(crate) async fn end(&mut self, cause: &str, at_most: Duration) -> ExitStatus {
        self.process.take().expect("it runs").end(cause, at_most).await
    }

    /// The server's words on standard error, over all its runs.
    pub(crate) fn says(&self) -> String {
        said(&self.words())
    }

    /// The complaints it made. That a node was lost, or a log unavailable, is no complaint: tests
    /// do that to it, and so does a busy machine.
    pub(crate) fn complaints(&self) -> String {
        let said = self.says();
        let ails = [" is down: ", " is unreachable: ", " is blocked: ", " unavailable: ", " slow disk: "];
        let passing = [&ails[..], &[" INFO ", " still shutting down: "]].concat();
        said.lines().filter(|line| !passing.iter().any(|word| line.contains(word))).collect()
    }

    fn words(&self) -> PathBuf {
        self.directory.path().join("stderr")
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
    timeout(TIMEOUT, attempts).await.unwrap_or_else(|_| panic!("nobody serves at {address}"))
}
