//! The command line as scripts run it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::process::BINARY;

const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    server: String,
}

impl CommandLine {
    pub(crate) fn new(server: &str) -> Self {
        Self { server: server.to_owned() }
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).env("SERIATIM_SERVER", &self.server);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        self.run_on(arguments, b"").await
    }

    pub(crate) async fn run_on(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let feed = async move {
            // A failed command does not read the rest.
            let _ = stdin.write_all(input).await;
        };
        let both = async { tokio::join!(feed, child.wait_with_output()).1 };
        let output = tokio::time::timeout(TIMEOUT, both).await;
        let output = output.unwrap_or_else(|_| panic!("{arguments:?} takes too long"));
        output.expect("its output can be read")
    }

    /// Runs a command that must succeed without errors; returns its output.
    pub(crate) async fn good(&self, arguments: &[&str]) -> Vec<u8> {
        self.good_on(arguments, b"").await
    }

    pub(crate) async fn good_on(&self, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let output = self.run_on(arguments, input).await;
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
        output.stdout
    }

    /// Runs a command that must fail with one line; returns its output and that line.
    pub(crate) async fn bad(&self, arguments: &[&str]) -> (Vec<u8>, String) {
        let output = self.run(arguments).await;
        let said = text(&output.stderr).to_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!(said.matches('\n').count(), 1, "{arguments:?} says one line: {said}");
        assert!(said.starts_with("seriatim: ") && said.ends_with('\n'), "{arguments:?}: {said}");
        (output.stdout, said)
    }

    pub(crate) async fn good_into(&self, arguments: &[&str], path: &Path) {
        let mut command = self.command(arguments);
        let file = File::create(path).expect("a file for the output");
        let mut child = command.stdin(Stdio::null()).stdout(file).spawn().expect("the binary starts");
        let status = tokio::time::timeout(TIMEOUT, child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("{arguments:?} takes too long")).expect("it ends");
        assert!(status.success(), "{arguments:?}: {status}");
    }

    pub(crate) fn begin(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdin(Stdio::null()).spawn().expect("the binary starts")
    }

    /// Runs a server until it stops waiting for another process; returns its last error line.
    pub(crate) async fn held_up(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let lines: Vec<&str> = said.lines().collect();
        let [waits, last] = lines[..] else { panic!("{arguments:?} says two lines: {said}") };
        assert!(waits.contains("waiting for ") && waits.ends_with(", which another process holds"), "{said}");
        last.to_owned()
    }

    pub(crate) fn begin_on(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdin(Stdio::piped()).spawn().expect("the binary starts")
    }

    pub(crate) async fn tail_of(&self, log: &str) -> u64 {
        let printed = self.good(&["check-tail", log]).await;
        text(&printed).trim_end().parse().expect("a number alone")
    }
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}
