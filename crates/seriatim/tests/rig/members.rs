//! A real cluster of several processes: each node is a `serve` of its own, which can be killed,
//! paused and started again alone.

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

/// Where the nodes have their view register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    /// In node 1.
    First,
    /// In an etcd of their own.
    Etcd,
}

/// Changes the configuration of a node that is not started yet, and whose data is to be in `data`.
pub(crate) fn configure(node: NodeId, data: &Path, change: impl FnOnce(String) -> String) {
    let config = data.with_file_name(format!("node{node}.toml"));
    let text = fs::read_to_string(&config).expect("it was written");
    fs::write(config, change(text)).expect("it can be written");
}

/// A cluster of several processes. Dropping it kills them and deletes their data.
pub(crate) struct Members {
    processes: Vec<Option<Process>>,
    /// Where nodes are started that are not started like the others.
    surroundings: BTreeMap<NodeId, Surroundings>,
    host: String,
    etcd: Option<Etcd>,
    directory: TempDir,
}

impl Members {
    /// Starts `count` nodes, the first of which has the register, and waits until all have joined.
    pub(crate) async fn start(count: u32) -> Self {
        Self::start_with(count, |_, _| {}).await
    }

    /// The same, and has each node's directory prepared before the node is started.
    pub(crate) async fn start_with(count: u32, prepare: impl Fn(NodeId, &Path)) -> Self {
        Self::begin(count, Register::First, BTreeMap::new(), prepare).await
    }

    /// Starts `count` nodes, the first of which has the register, some of them in other
    /// surroundings than the others.
    pub(crate) async fn start_in(count: u32, surroundings: BTreeMap<NodeId, Surroundings>) -> Self {
        Self::begin(count, Register::First, surroundings, |_, _| {}).await
    }

    /// Starts `count` nodes with their register there, and waits until all have joined.
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

    /// Where a node listens; the same after each restart.
    pub(crate) fn address(&self, node: NodeId) -> String {
        format!("{}:{}", self.host, 7700 + node.0)
    }

    /// All of them, as a client is given them.
    pub(crate) fn addresses(&self) -> String {
        let addresses: Vec<String> = self.numbers().map(|node| self.address(node)).collect();
        addresses.join(",")
    }

    /// The nodes.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.processes.len() as u32).map(NodeId)
    }

    /// A node's configuration.
    pub(crate) fn config(&self, node: NodeId) -> PathBuf {
        self.directory.path().join(format!("node{node}.toml"))
    }

    /// A node's data.
    pub(crate) fn data(&self, node: NodeId) -> PathBuf {
        self.directory.path().join(format!("node{node}"))
    }

    /// A client that may use any node, whose operations wait for so long.
    pub(crate) async fn client(&self, deadline: Duration) -> Client {
        connect(&self.addresses(), deadline).await
    }

    /// A client that knows only one of the nodes when it starts.
    pub(crate) async fn client_of(&self, node: NodeId, deadline: Duration) -> Client {
        let options = ClientOptions::default().with_deadline(deadline);
        Client::connect_with(&self.address(node), options).await.expect("the node serves")
    }

    /// Starts a node; it has not joined yet.
    pub(crate) fn spawn(&mut self, node: NodeId) {
        let config = self.config(node);
        let arguments = ["serve".as_ref(), "--config".as_ref(), config.as_os_str()];
        let usual = Surroundings::default();
        let surroundings = self.surroundings.get(&node).unwrap_or(&usual);
        let process = Process::spawn(arguments, self.words(node), surroundings);
        let before = self.processes[node.0 as usize - 1].replace(process);
        assert!(before.is_none(), "node {node} runs already");
    }

    /// Waits until a node has joined.
    pub(crate) async fn ready(&mut self, node: NodeId) {
        let address = self.process(node).ready().await;
        assert_eq!(address, self.address(node));
    }

    /// `kill -9`.
    pub(crate) async fn kill(&mut self, node: NodeId) {
        self.take(node).kill().await;
    }

    /// Starts a node again, and waits until it has joined.
    pub(crate) async fn restart(&mut self, node: NodeId) {
        self.spawn(node);
        self.ready(node).await;
    }

    /// An orderly end.
    pub(crate) async fn stop(&mut self, node: NodeId) {
        let status = self.take(node).stop(Signal::TERM).await;
        assert!(status.success(), "node {node}: {status}; it says: {}", self.says());
    }

    /// Sends a node a signal, and waits for its end, which may be long after.
    pub(crate) async fn end_of(&mut self, node: NodeId, signal: Signal) -> std::process::ExitStatus {
        self.take(node).stop(signal).await
    }

    /// Waits for the end of a node, which `cause` brings about.
    pub(crate) async fn end(
        &mut self,
        node: NodeId,
        cause: &str,
        at_most: Duration,
    ) -> std::process::ExitStatus {
        self.take(node).end(cause, at_most).await
    }

    /// Sends a node a signal: STOP stops it in the middle of whatever it does, while its
    /// connections stay open, and CONT lets it go on.
    pub(crate) fn signal(&self, node: NodeId, signal: Signal) {
        self.processes[node.0 as usize - 1].as_ref().expect("it runs").signal(signal);
    }

    /// `kill -9` for the etcd of the nodes.
    pub(crate) async fn kill_etcd(&mut self) {
        self.etcd.as_mut().expect("they have one").child.kill().await.expect("it can be killed");
    }

    /// Starts the etcd of the nodes again, and waits until it listens.
    pub(crate) async fn restart_etcd(&mut self) {
        self.etcd = Some(Etcd::start(&self.host, self.directory.path()).await);
    }

    /// The most memory that the nodes that run ever had, in bytes: the sum over all of them.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.processes.iter().flatten().map(Process::peak_memory).sum()
    }

    /// The words of each node on standard error, over all its runs.
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

    fn take(&mut self, node: NodeId) -> Process {
        self.processes[node.0 as usize - 1].take().expect("it runs")
    }
}

/// An etcd of one member. Dropping it kills it.
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

/// Whether tests with etcd can run here. Says so if not; with `SERIATIM_REQUIRE_ETCD=1` that is a
/// failure.
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
