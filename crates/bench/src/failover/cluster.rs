//! A temporary cluster of separate processes: this program's `serve`.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use seriatim_client::NodeId;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::arguments::RegisterKind;
use crate::terminal::Failure;

/// Nodes 1 to 3 have sequencing replicas. The fourth, with the register, is never lost.
const NODES: u32 = 4;
const REGISTER: u32 = NODES;
/// Longest start of a process.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A running cluster. Dropping it kills the processes and deletes their data.
pub(super) struct Cluster {
    nodes: Vec<Child>,
    ports: Vec<u16>,
    _etcd: Option<Child>,
    directory: TempDir,
}

impl Cluster {
    pub(super) async fn start(register: RegisterKind) -> Result<Self, Failure> {
        let directory = tempfile::tempdir()?;
        let mut ports = free_ports(NODES as usize + 2)?;
        let etcd_ports = ports.split_off(NODES as usize);
        let etcd = match register {
            RegisterKind::Embedded => None,
            RegisterKind::Etcd => Some(start_etcd(&etcd_ports, directory.path()).await?),
        };
        for number in 1..=NODES {
            let register = match register {
                RegisterKind::Embedded if number == REGISTER => "embedded = true".to_owned(),
                RegisterKind::Embedded => {
                    let port = ports[REGISTER as usize - 1];
                    format!("node = {REGISTER}\naddress = \"127.0.0.1:{port}\"")
                }
                RegisterKind::Etcd => {
                    format!("etcd = [\"http://127.0.0.1:{}\"]\ncluster = \"bench\"", etcd_ports[0])
                }
            };
            let port = ports[number as usize - 1];
            let text = format!(
                "id = {number}\nlisten = \"127.0.0.1:{port}\"\ndata = \"node{number}\"\n\n[register]\n{register}\n"
            );
            std::fs::write(directory.path().join(format!("node{number}.toml")), text)?;
        }
        let mut nodes = vec![];
        for number in 1..=NODES {
            nodes.push(spawn_node(directory.path(), number)?);
        }
        let mut cluster = Self { nodes, ports, _etcd: etcd, directory };
        for node in cluster.numbers() {
            cluster.ready(node).await?;
        }
        Ok(cluster)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=NODES).map(NodeId)
    }

    pub(super) fn addresses(&self) -> String {
        let addresses: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        addresses.join(",")
    }

    pub(super) fn signal(&self, node: NodeId, signal: Signal) -> Result<(), Failure> {
        let pid = self.nodes[node.0 as usize - 1].id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| Failure::new(format!("node {node} is not there any more")))?;
        Ok(kill_process(pid, signal)?)
    }

    pub(super) async fn restart(&mut self, node: NodeId) -> Result<(), Failure> {
        self.nodes[node.0 as usize - 1].wait().await?;
        self.nodes[node.0 as usize - 1] = spawn_node(self.directory.path(), node.0)?;
        self.ready(node).await
    }

    async fn ready(&mut self, node: NodeId) -> Result<(), Failure> {
        let stdout = self.nodes[node.0 as usize - 1].stdout.take().expect("it is piped");
        let mut line = String::new();
        let mut output = BufReader::new(stdout);
        let read = timeout(START_WITHIN, output.read_line(&mut line)).await;
        if read.is_ok_and(|read| read.is_ok()) && line.starts_with("ready ") {
            return Ok(());
        }
        let words = std::fs::read_to_string(words_of(self.directory.path(), &format!("node{node}")));
        let words = words.unwrap_or_default().trim_end().replace('\n', "; ");
        Err(Failure::new(format!("node {node} does not serve; it says: {words}")))
    }
}

fn spawn_node(directory: &Path, number: u32) -> Result<Child, Failure> {
    let config = directory.join(format!("node{number}.toml"));
    let arguments = ["serve".as_ref(), "--config".as_ref(), config.as_os_str()];
    spawn(std::env::current_exe()?.as_os_str(), &arguments, words_of(directory, &format!("node{number}")))
}

fn words_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.words"))
}

fn spawn(program: &OsStr, arguments: &[&OsStr], words: PathBuf) -> Result<Child, Failure> {
    let words = std::fs::OpenOptions::new().create(true).append(true).open(words)?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(words)
        .kill_on_drop(true)
        .spawn();
    child.map_err(|cause| Failure::new(format!("cannot start {}: {cause}", program.display())))
}

fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

async fn start_etcd(ports: &[u16], directory: &Path) -> Result<Child, Failure> {
    let [clients, peers] = [ports[0], ports[1]].map(|port| format!("http://127.0.0.1:{port}"));
    let (data, cluster) = (directory.join("etcd"), format!("default={peers}"));
    let options = [
        ("--listen-client-urls", clients.as_ref()),
        ("--advertise-client-urls", clients.as_ref()),
        ("--listen-peer-urls", peers.as_ref()),
        ("--initial-advertise-peer-urls", peers.as_ref()),
        ("--initial-cluster", cluster.as_ref()),
        ("--data-dir", data.as_os_str()),
    ];
    let arguments: Vec<&OsStr> =
        options.iter().flat_map(|(name, value): &(&str, &OsStr)| [name.as_ref(), *value]).collect();
    let child = spawn("etcd".as_ref(), &arguments, words_of(directory, "etcd")).map_err(|_| {
        Failure::new("there is no etcd on the path: install it (etcd-server), or use --register embedded")
    })?;
    let listens = async {
        let mut again = tokio::time::interval(Duration::from_millis(20));
        while TcpStream::connect(("127.0.0.1", ports[0])).await.is_err() {
            again.tick().await;
        }
    };
    match timeout(START_WITHIN, listens).await {
        Ok(()) => Ok(child),
        Err(_) => Err(Failure::new(format!("etcd does not listen within {START_WITHIN:?}"))),
    }
}
