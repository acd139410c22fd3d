//! Servers whose output no process reads: a full pipe, and a terminal stopped as with Ctrl-S.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, tcflow};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::cluster::connect;
use crate::command::{CommandLine, text};
use crate::process::{BINARY, TIMEOUT, own_host};

const STOP_WITHIN: Duration = Duration::from_secs(5);

struct Blocked {
    stream: File,
    other_end: File,
}

impl Blocked {
    fn pipe() -> Self {
        let (read, write) = io::pipe().expect("a pipe");
        let (other_end, mut stream) = (File::from(OwnedFd::from(read)), File::from(OwnedFd::from(write)));
        set_nonblocking(&stream, true);
        while stream.write(&[b'-'; 4096]).is_ok() {}
        while stream.write(b"-").is_ok() {}
        set_nonblocking(&stream, false);
        Self { stream, other_end }
    }

    /// A stopped terminal.
    fn terminal() -> Self {
        let owner = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&owner).expect("it is granted");
        unlockpt(&owner).expect("it is unlocked");
        let name = ptsname(&owner, Vec::new()).expect("it has a name");
        let user = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it opens");
        tcflow(&user, Action::OOff).expect("it is held");
        Self { stream: File::from(user), other_end: File::from(owner) }
    }

    fn copy(&self) -> File {
        self.stream.try_clone().expect("a copy of its descriptor")
    }
}

fn set_nonblocking(file: &File, nonblocking: bool) {
    let flags = rustix::fs::fcntl_getfl(file).expect("its flags");
    let flags = if nonblocking { flags | OFlags::NONBLOCK } else { flags & !OFlags::NONBLOCK };
    rustix::fs::fcntl_setfl(file, flags).expect("its flags are set");
}

/// Starts `dev` or `serve` with both streams blocked; returns process and address.
fn spawn(server: &str, format: &str, blocked: &Blocked, directory: &TempDir) -> (Child, String) {
    let address = format!("{}:7700", own_host());
    let mut command = Command::new(BINARY);
    command.arg(server).current_dir(directory.path());
    match server {
        "dev" => command.args(["--listen", &address, "--data", "data"]),
        _ => {
            let settings =
                format!("id = 1\nlisten = \"{address}\"\ndata = \"data\"\n[register]\nembedded = true\n");
            fs::write(directory.path().join("node.toml"), settings).expect("it is written");
            command.args(["--config", "node.toml"])
        }
    };
    command.args(["--log-format", format, "--stop-within", &STOP_WITHIN.as_secs().to_string()]);
    command.stdin(Stdio::null()).stdout(blocked.copy()).stderr(blocked.copy()).kill_on_drop(true);
    (command.spawn().expect("the binary starts"), address)
}

async fn command_line(address: &str) -> CommandLine {
    drop(connect(address, TIMEOUT).await);
    let cli = CommandLine::new(address);
    cli.good(&["log", "create", "first"]).await;
    cli
}

async fn end(mut child: Child) -> (Option<i32>, Duration) {
    let began = Instant::now();
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
    kill_process(pid, Signal::TERM).expect("it is signalled");
    let status = timeout(TIMEOUT, child.wait()).await.expect("SIGTERM ends it").expect("it is waited for");
    (status.code(), began.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_output_is_not_read_serves_and_ends() {
    for kind in ["pipe", "terminal"] {
        for server in ["dev", "serve"] {
            for format in ["text", "json"] {
                let case = format!("{server} with a blocked {kind} and {format}");
                let blocked = if kind == "pipe" { Blocked::pipe() } else { Blocked::terminal() };
                let directory = tempfile::tempdir().expect("a directory");
                let (child, address) = spawn(server, format, &blocked, &directory);
                let cli = command_line(&address).await;
                // Each creation is an event.
                for log in ["second", "third"] {
                    cli.good(&["log", "create", log]).await;
                }
                cli.good_on(&["append", "third"], b"one\ntwo\n").await;
                assert_eq!(text(&cli.good(&["read", "third"]).await), "one\ntwo\n", "{case}");
                let (code, took) = end(child).await;
                assert_eq!(code, Some(0), "{case}");
                assert!(took < STOP_WITHIN, "{case}: it took {took:?} to end");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lines_come_when_the_pipe_is_read_again() {
    let (blocked, directory) = (Blocked::pipe(), tempfile::tempdir().expect("a directory"));
    let (child, address) = spawn("dev", "text", &blocked, &directory);
    let cli = command_line(&address).await;
    let Blocked { stream, other_end } = blocked;
    drop(stream);
    let (says, mut said) = tokio::sync::mpsc::channel(1024);
    let reader = tokio::task::spawn_blocking(move || {
        for line in BufReader::new(other_end).lines() {
            let line = line.expect("the pipe is read").trim_start_matches('-').to_owned();
            says.blocking_send(line).expect("the test waits for it");
        }
    });
    let mut line_with = async |words: &str| {
        loop {
            let line = timeout(TIMEOUT, said.recv()).await.expect("a line comes").expect("the server runs");
            if line.contains(words) {
                return line;
            }
        }
    };
    line_with("log=\"first\"").await;
    cli.good(&["log", "create", "second"]).await;
    line_with("log=\"second\"").await;
    assert_eq!(end(child).await.0, Some(0));
    line_with("shutting down: ").await;
    reader.await.expect("the reader ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ready_line_comes_when_the_pipe_is_read_again() {
    let (blocked, directory) = (Blocked::pipe(), tempfile::tempdir().expect("a directory"));
    let (_child, address) = spawn("serve", "text", &blocked, &directory);
    drop(connect(&address, TIMEOUT).await);
    let Blocked { stream, other_end } = blocked;
    drop(stream);
    let reader = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(other_end).lines().map(|line| line.expect("the pipe is read"));
        lines.any(|line| line.trim_start_matches('-') == format!("ready {address}"))
    });
    assert!(timeout(TIMEOUT, reader).await.expect("the line comes").expect("the reader ends"));
}
