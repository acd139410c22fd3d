//! A real cluster: `dev` in its own process with its own data directory.

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

/// A cluster that tests kill and restart. Dropping it kills it and deletes its data.
pub(crate) struct Cluster {
    process: Option<Process>,
    address: String,
    options: &'static [&'static str],
    surroundings: Surroundings,
    directory: TempDir,
}

impl Cluster {
    /// Starts a cluster with these options of `dev`; waits until it serves.
    pub(crate) async fn start(options: &'static [&'static str]) -> Self {
        Self::start_in(Surroundings::default(), options).await
    }

    pub(crate) async fn start_in(surroundings: Surroundings, options: &'static [&'static str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the cluster");
        let address = format!("{}:0", own_host());
        let mut cluster = Self { process: None, address, options, surroundings, directory };
        cluster.spawn();
        cluster.ready().await;
        cluster
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn peak_memory(&self) -> u64 {
        self.process.as_ref().expect("it runs").peak_memory()
    }

    /// Limits the size of files that the cluster writes, in bytes.
    pub(crate) fn limit_file_sizes(&self, bytes: u64) {
        self.process.as_ref().expect("it runs").limit_file_sizes(bytes);
    }

    /// Directory for the test's own files.
    pub(crate) fn scratch(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) async fn client(&self, deadline: Duration) -> Client {
        connect(&self.address, deadline).await
    }

    pub(crate) fn spawn(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let data = self.data();
        let fixed = ["dev", "--limit", NO_DISK_WARNING, "--listen", &self.address, "--data"].map(OsStr::new);
        let options = self.options.iter().map(OsStr::new);
        let arguments = fixed.into_iter().chain([data.as_os_str()]).chain(options);
        self.process = Some(Process::spawn(arguments, self.words(), &self.surroundings));
    }

    pub(crate) async fn ready(&mut self) {
        self.address = self.process.as_mut().expect("it was spawned").ready().await;
    }

    pub(crate) async fn ready_within(&mut self, at_most: Duration) -> bool {
        timeout(at_most, self.ready()).await.is_ok()
    }

    pub(crate) async fn kill(&mut self) {
        self.process.take().expect("it runs").kill().await;
    }

    pub(crate) async fn kill_and_restart(&mut self) {
        self.kill().await;
        self.spawn();
        self.ready().await;
    }

    pub(crate) async fn stop(&mut self, signal: Signal) -> ExitStatus {
        self.process.take().expect("it runs").stop(signal).await
    }

    pub(crate) async fn end(&mut self, cause: &str, at_most: Duration) -> ExitStatus {
        self.process.take().expect("it runs").end(cause, at_most).await
    }

    /// Standard error of all its runs.
    pub(crate) fn says(&self) -> String {
        said(&self.words())
    }

    /// Complaints on standard error, except lines that tests and busy machines cause: lost nodes,
    /// unavailable logs, slow disks.
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

/// Connects a client, also to a cluster that is restarting.
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
