//! A real cluster with one `serve` process per node.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use seriatim_client::{Client, ClientOptions, NodeId};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::cluster::connect;
use crate::process::{NO_DISK_WARNING, Process, TIMEOUT, own_host, said};
use crate::surroundings::Surroundings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    First,
    Etcd,
}

/// Changes the configuration of a node before its start.
pub(crate) fn configure(node: NodeId, data: &Path, change: impl FnOnce(String) -> String) {
    let config = data.with_file_name(format!("node{node}.toml"));
    let text = fs::read_to_string(&config).expect("it was written");
    fs::write(config, change(text)).expect("it can be written");
}

/// A cluster with one process per node. Dropping it kills them and deletes their data.
pub(crate) struct Members {
    processes: Vec<Option<Process>>,
    /// Conditions of each node with a slow disk or shared processor.
    surroundings: BTreeMap<NodeId, Surroundings>,
    host: String,
    etcd: Option<Etcd>,
    directory: TempDir,
}

impl Members {
    /// Starts `count` nodes, with the register on node 1; waits until all joined.
    pub(crate) async fn start(count: u32) -> Self {
        Self::start_with(count, |_, _| {}).await
    }

    pub(crate) async fn start_with(count: u32, prepare: impl Fn(NodeId, &Path)) -> Self {
        Self::begin(count, Register::First, BTreeMap::new(), prepare).await
    }

    pub(crate) async fn start_in(count: u32, surroundings: BTreeMap<NodeId, Surroundings>) -> Self {
        Self::begin(count, Register::First, surroundings, |_, _| {}).await
    }

    pub(crate) async fn start_on(register: Register, count: u32) -> Self {
        Self::begin(count, register, BTreeMap::new(), |_, _| {}).await
    }

    async fn begin(
        count: u32,
        register: Register,
        surroundings: BTreeMap<NodeId, Surroundings>,
        prepare: impl Fn(NodeId, &Path),
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the cluster");
        let host = own_host();
        let etcd = match register {
            Register::First => None,
            Register::Etcd => Some(Etcd::start(&host, directory.path()).await),
        };
        let mut members = Self { processes: vec![], surroundings, host, etcd, directory };
        for number in 1..=count {
            members.processes.push(None);
            fs::write(members.config(NodeId(number)), members.configuration(number, register))
                .expect("the configuration is written");
            fs::create_dir(members.data(NodeId(number))).expect("a directory for its data");
            prepare(NodeId(number), &members.data(NodeId(number)));
            members.spawn(NodeId(number));
        }
        for number in 1..=count {
            members.ready(NodeId(number)).await;
        }
        members
    }

    fn configuration(&self, number: u32, register: Register) -> String {
        let (listen, host) = (self.address(NodeId(number)), &self.host);
        let register = match register {
            Register::First if number == 1 => "embedded = true".to_owned(),
            Register::First => format!("node = 1\naddress = \"{}\"", self.address(NodeId(1))),
            Register::Etcd => format!("etcd = [\"http://{host}:2379\"]\ncluster = \"rig\""),
        };
        format!(
            "id = {number}\nlisten = \"{listen}\"\ndata = \"node{number}\"\n\n[register]\n{register}\n\n[limits]\n{NO_DISK_WARNING}\n"
        )
    }

    /// The node's address, constant over restarts.
    pub(crate) fn address(&self, node: NodeId) -> String {
        format!("{}:{}", self.host, 7700 + node.0)
    }

    pub(crate) fn addresses(&self) -> String {
        let addresses: Vec<String> = self.numbers().map(|node| self.address(node)).collect();
        addresses.join(",")
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.processes.len() as u32).map(NodeId)
    }

    pub(crate) fn config(&self, node: NodeId) -> PathBuf {
        self.directory.path().join(format!("node{node}.toml"))
    }

    pub(crate) fn data(&self, node: NodeId) -> PathBuf {
        self.directory.path().join(format!("node{node}"))
    }

    pub(crate) async fn client(&self, deadline: Duration) -> Client {
        connect(&self.addresses(), deadline).await
    }

    /// A client that initially knows one node.
    pub(crate) async fn client_of(&self, node: NodeId, deadline: Duration) -> Client {
        let options = ClientOptions::default().with_deadline(deadline);
        Client::connect_with(&self.address(node), options).await.expect("the node serves")
    }

    pub(crate) fn spawn(&mut self, node: NodeId) {
        let config = self.config(node);
        let arguments = ["serve".as_ref(), "--config".as_ref(), config.as_os_str()];
        let usual = Surroundings::default();
        let surroundings = self.surroundings.get(&node).unwrap_or(&usual);
        let process = Process::spawn(arguments, self.words(node), surroundings);
        let before = self.processes[node.0 as usize - 1].replace(process);
        assert!(before.is_none(), "node {node} runs already");
    }

    pub(crate) async fn ready(&mut self, node: NodeId) {
        let address = self.process(node).ready().await;
        assert_eq!(address, self.address(node));
    }

    pub(crate) async fn kill(&mut self, node: NodeId) {
        self.take(node).kill().await;
    }

    pub(crate) async fn restart(&mut self, node: NodeId) {
        self.spawn(node);
        self.ready(node).await;
    }

    pub(crate) async fn stop(&mut self, node: NodeId) {
        let status = self.take(node).stop(Signal::TERM).await;
        assert!(status.success(), "node {node}: {status}; it says: {}", self.says());
    }

    pub(crate) async fn end_of(&mut self, node: NodeId, signal: Signal) -> std::process::ExitStatus {
        self.take(node).stop(signal).await
    }

    pub(crate) async fn end(
        &mut self,
        node: NodeId,
        cause: &str,
        at_most: Duration,
    ) -> std::process::ExitStatus {
        self.take(node).end(cause, at_most).await
    }

    /// Sends a signal. STOP pauses the node with open connections; CONT resumes it.
    pub(crate) fn signal(&self, node: NodeId, signal: Signal) {
        self.processes[node.0 as usize - 1].as_ref().expect("it runs").signal(signal);
    }

    pub(crate) async fn kill_etcd(&mut self) {
        self.etcd.as_mut().expect("they have one").child.kill().await.expect("it can be killed");
    }

    pub(crate) async fn restart_etcd(&mut self) {
        self.etcd = Some(Etcd::start(&self.host, self.directory.path()).await);
    }

    /// Sum of the running nodes' peak memory, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.processes.iter().flatten().map(Process::peak_memory).sum()
    }

    /// Standard error of each node, over all runs.
    pub(crate) fn says(&self) -> String {
        let said = |node| format!("node {node}: {}\n", said(&self.words(node)).trim_end());
        self.numbers().map(said).collect()
    }

    fn words(&self, node: NodeId) -> PathBuf {
        self.directory.path().join(format!("node{node}.words"))
    }

    fn process(&mut self, node: NodeId) -> &mut Process {
        self.processes[node.0 as usize - 1].as_mut().expect("it runs")
    }

    pub(crate) fn take(&mut self, node: NodeId) -> Process {
        self.processes[node.0 as usize - 1].take().expect("it runs")
    }
}

/// A one-member etcd. Dropping it kills it.
struct Etcd {
    child: Child,
}

impl Etcd {
    async fn start(host: &str, directory: &Path) -> Self {
        let (clients, peers) = (format!("http://{host}:2379"), format!("http://{host}:2380"));
        let words = fs::File::create(directory.join("etcd.words")).expect("a file for its words");
        let child = Command::new("etcd")
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}"), "--data-dir"])
            .arg(directory.join("etcd"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words)
            .kill_on_drop(true)
            .spawn()
            .expect("etcd starts");
        let listens = async {
            let mut again = tokio::time::interval(Duration::from_millis(20));
            while tokio::net::TcpStream::connect((host, 2379)).await.is_err() {
                again.tick().await;
            }
        };
        timeout(TIMEOUT, listens).await.unwrap_or_else(|_| panic!("etcd does not listen at {clients}"));
        Self { child }
    }
}

/// Whether etcd is installed; prints if not. With `SERIATIM_REQUIRE_ETCD=1` its absence fails the
/// test.
#[expect(clippy::print_stderr, reason = "a test that is skipped must not look like one that passed")]
pub(crate) fn has_etcd(test: &str) -> bool {
    let found = std::process::Command::new("etcd").arg("--version").stdout(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    let is_required = std::env::var("SERIATIM_REQUIRE_ETCD").is_ok_and(|value| value == "1");
    assert!(!is_required, "{test}: SERIATIM_REQUIRE_ETCD is set, and there is no etcd; install etcd-server");
    eprintln!("{test}: skipped, because there is no etcd; install etcd-server");
    false
}
