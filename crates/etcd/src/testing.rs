//! A real etcd for tests: one process on loopback that can be killed, restarted and paused.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

/// Environment variable. If it is 1, a missing etcd fails the test instead of skipping it.
const REQUIRED: &str = "SERIATIM_REQUIRE_ETCD";
const START_FOR: Duration = Duration::from_secs(60);
/// etcd's log line once it takes requests.
const READY: &str = "serving client traffic";
/// Attempts to start etcd: another process may take a free port before etcd does.
const ATTEMPTS: u32 = 5;

/// A running etcd with its data in a temporary directory. Dropping it kills it.
#[derive(Debug)]
pub struct EtcdServer {
    child: Child,
    ports: Ports,
    directory: TempDir,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    clients: u16,
    peers: u16,
}

impl EtcdServer {
    /// Starts an empty etcd. `None`, with a printed line, if `etcd` is not installed.
    ///
    /// # Panics
    /// If it does not start, or is missing although `SERIATIM_REQUIRE_ETCD` is 1.
    #[must_use]
    #[expect(clippy::print_stdout, reason = "the skipped test is reported")]
    pub fn start() -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            let is_required = std::env::var(REQUIRED).is_ok_and(|value| value == "1");
            assert!(!is_required, "etcd is not installed, and {REQUIRED} is 1: install etcd-server");
            println!("skipped, because there is no program `etcd`: install Debian's package etcd-server");
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        for _ in 0..ATTEMPTS {
            let ports = Ports { clients: free_port(), peers: free_port() };
            if let Some(child) = spawn(ports, &directory, &[]) {
                return Some(Self { child, ports, directory });
            }
        }
        panic!("etcd does not start")
    }

    /// Its address for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        endpoint(self.ports.clients)
    }

    /// Number of requests since its start.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.clients)).expect("it listens");
        let ask = "GET /metrics HTTP/1.0\r\n\r\n";
        stream.write_all(ask.as_bytes()).expect("it hears");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("it answers with text");
        let counts = said.lines().filter(|line| line.starts_with("grpc_server_started_total{"));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        counts.sum::<f64>() as u64
    }

    /// Kills it, as with `kill -9`.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts it with its data.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// Restarts it with its data and more options.
    pub fn restart_with(&mut self, options: &[&str]) {
        self.kill();
        self.child = spawn(self.ports, &self.directory, options).expect("etcd starts again");
    }

    /// Stops all its threads, with its connections open.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let stopped = waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        assert!(
            stopped.is_ok_and(|stopped| stopped.is_some_and(|(_, status)| status.stopped())),
            "etcd was there"
        );
    }

    /// Continues it after [`Self::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("etcd is our own child");
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn endpoint(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// Returns a process that takes requests; `None` if it fails.
fn spawn(ports: Ports, directory: &TempDir, options: &[&str]) -> Option<Child> {
    let (clients, peers) = (endpoint(ports.clients), endpoint(ports.peers));
    let mut child = Command::new("etcd")
        .args(["--name", "test", "--logger", "zap", "--log-outputs", "stderr"])
        .arg("--data-dir")
        .arg(directory.path().join("etcd"))
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("test={peers}")])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("etcd was there a moment ago");
    let said = BufReader::new(child.stderr.take().expect("it was piped"));
    let (ready, is_ready) = mpsc::sync_channel(1);
    // Reads all output, so that etcd never blocks on its log.
    std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok).filter(|line| line.contains(READY)) {
            // Only the first line counts.
            let _ = ready.try_send(line);
        }
    });
    if is_ready.recv_timeout(START_FOR).is_ok() {
        return Some(child);
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
