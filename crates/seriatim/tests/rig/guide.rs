//! `docs/cluster.md` does what it says: its commands are run as they stand there, in order, by one shell.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use crate::members::has_etcd;
use crate::process::{BINARY, own_host};

const PAGE: &str = include_str!("../../../../docs/cluster.md");

/// The commands of a page: what stands in its `sh` blocks.
pub(crate) fn commands(page: &str) -> String {
    let mut commands = String::new();
    let mut within = false;
    for line in page.lines() {
        match line {
            "```sh" => within = true,
            "```" => within = false,
            line if within => commands.extend([line, "\n"]),
            _ => {}
        }
    }
    commands
}

/// The text below a heading of a page, up to the next one.
pub(crate) fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let begins = page.find(heading).unwrap_or_else(|| panic!("there is no '{heading}'"));
    let rest = &page[begins + heading.len()..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// The processes of a group, which end with it.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // Nothing is left to kill if all of them have ended.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Runs commands in `directory` like someone who stops at the first that fails. Whatever they leave
/// running ends with them. Their status, and what they printed.
pub(crate) async fn run(commands: &str, directory: &Path) -> (bool, String) {
    let binaries = Path::new(BINARY).parent().expect("it is in a folder").display();
    let path = format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default());
    let shell = Command::new("bash")
        .args(["-e", "-u", "-x", "-o", "pipefail", "-c", &format!("exec 2>&1\n{commands}")])
        .current_dir(directory)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(directory.join("printed")).expect("a file"))
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut shell = shell.expect("bash starts");
    let group = Group(shell.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it has an id"));
    let status = tokio::time::timeout(Duration::from_secs(180), shell.wait()).await;
    drop(group);
    let printed = std::fs::read_to_string(directory.join("printed")).expect("what was printed");
    (status.is_ok_and(|status| status.expect("it can be waited for").success()), printed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_work_as_they_stand() {
    if !has_etcd("the guide to a cluster") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    // Another host of this machine, so that no port is taken.
    let commands = commands(PAGE).replace("127.0.0.1", &own_host());
    let (is_good, printed) = run(&commands, directory.path()).await;
    assert!(is_good, "{printed}");
    assert!(printed.contains("3/3"), "{printed}");
}
