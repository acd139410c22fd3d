//! Data directories that move or disappear in use, and unusable ones.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use seriatim_client::{LogConfig, NodeId, Order};

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::disks::{FULL, Mount, more, or_skipped, with_a_small_disk};
use crate::members::Members;
use crate::process::{BINARY, NO_DISK_WARNING};
use crate::surroundings::Surroundings;
use crate::workload::{DEADLINE, Style, Workload};

/// Time limit until a node with missing files ends; it checks every second.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

const THREE: NodeId = NodeId(3);

async fn within(seconds: u64, test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(seconds), test).await.expect("it comes to an end");
}

async fn logs(addresses: &str) -> Vec<Workload> {
    let client = crate::cluster::connect(addresses, DEADLINE).await;
    let mut logs = vec![];
    for order in Order::ALL {
        let (name, config) =
            (order.to_string(), LogConfig { order, sequencers: 3, replicas: 3, ..LogConfig::default() });
        client.create(&name, config).await.expect("the log is created");
        let styles = [Style::Pipelined(64), Style::Synchronous];
        logs.push(Workload::start(addresses, &name, order, rand::random(), &styles));
    }
    logs
}

async fn nothing_is_lost(logs: Vec<Workload>, says: impl Fn() -> String) {
    for log in logs {
        log.finish().await.unwrap_or_else(|violations| panic!("{violations:?}; {}", says()));
    }
}

/// The node printed exactly one sentence with these words.
fn says_once(status: ExitStatus, says: &str, words: &str) {
    assert_eq!(status.code(), Some(1), "{says}");
    let lines: Vec<&str> = says.lines().filter(|line| line.contains(words)).collect();
    let [line] = lines[..] else { panic!("one sentence with '{words}': {says}") };
    assert!(line.contains("put it back; start the node again"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_directory_is_renamed_ends_and_has_everything_in_its_new_place() {
    within(120, async {
        let mut cluster = Cluster::start(&[]).await;
        let logs = logs(cluster.address()).await;
        more(&logs, 300).await;
        let elsewhere = cluster.scratch().join("elsewhere");
        fs::rename(cluster.data(), &elsewhere).expect("it is renamed");
        let status = cluster.end("the new name of the directory", ENDS_WITHIN).await;
        says_once(status, &cluster.says(), "was moved, removed or unmounted");
        assert!(!cluster.data().exists(), "nothing is made where it was");
        fs::rename(elsewhere, cluster.data()).expect("it is put back");
        cluster.spawn();
        cluster.ready().await;
        more(&logs, 100).await;
        nothing_is_lost(logs, || cluster.says()).await;
    })
    .await;
}

/// An idle cluster loses a part of its second node's directory.
async fn ends_without(lost: impl Fn(&Path) -> PathBuf, words: &str) -> Cluster {
    let mut cluster = Cluster::start(&[]).await;
    let client = cluster.client(DEADLINE).await;
    let config = LogConfig { sequencers: 3, replicas: 3, ..LogConfig::default() };
    client.create("orders", config).await.expect("the log is created");
    let log = client.log("orders").await.expect("it is there");
    log.append_sync("before").await.expect("it is appended");
    let lost = lost(&cluster.data().join("node-2"));
    match lost.is_dir() {
        true => fs::remove_dir_all(&lost),
        false => fs::remove_file(&lost),
    }
    .unwrap_or_else(|cause| panic!("{}: {cause}", lost.display()));
    let status = cluster.end("the loss", ENDS_WITHIN).await;
    says_once(status, &cluster.says(), words);
    assert!(!lost.exists(), "{} is not made again", lost.display());
    cluster
}

fn log_below(node: &Path) -> PathBuf {
    let mut logs = fs::read_dir(node.join("logs")).expect("there is a log");
    logs.next().expect("there is a log").expect("it can be listed").path()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_loses_a_part_of_a_directory_ends_though_nothing_is_appended() {
    within(90, async {
        tokio::join!(
            ends_without(
                |node| node.parent().expect("it has one").to_owned(),
                "was moved, removed or unmounted"
            ),
            ends_without(Path::to_owned, "node-2 was moved, removed or unmounted"),
            ends_without(|node| node.join("lock"), "node-2/lock was moved or removed"),
            ends_without(log_below, "was moved or removed while the node used it"),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_its_journal_ends_and_does_not_start_as_a_new_one() {
    within(90, async {
        for lost in ["journal", "journal/0001"] {
            let words = format!("node-2/{lost} was moved or removed");
            let cluster = ends_without(|node| node.join(lost), &words).await;
            let data = cluster.data();
            let refused = start_on(&data).await;
            assert!(refused.contains("node 2") && refused.contains("the disk had a journal"), "{refused}");
            assert!(!data.join("node-2").join(lost).exists(), "{lost} is not made again");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_directory_is_renamed_ends_and_the_others_go_on() {
    within(120, async {
        let mut members = Members::start(3).await;
        let logs = logs(&members.addresses()).await;
        more(&logs, 300).await;
        let (data, elsewhere) = (members.data(THREE), members.config(THREE).with_file_name("elsewhere"));
        fs::rename(&data, &elsewhere).expect("it is renamed");
        let status = members.end(THREE, "the new name of the directory", ENDS_WITHIN).await;
        says_once(status, &members.says(), "was moved, removed or unmounted");
        assert!(!data.exists(), "nothing is made where it was");
        more(&logs, 300).await;
        fs::rename(elsewhere, data).expect("it is put back");
        members.restart(THREE).await;
        more(&logs, 100).await;
        nothing_is_lost(logs, || members.says()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_volume_is_detached_ends_and_writes_nothing_below_it() {
    within(120, async {
        let Some((mut members, mount)) = with_a_small_disk().await else { return };
        let logs = logs(&members.addresses()).await;
        more(&logs, 300).await;
        mount.detach();
        let status = members.end(FULL, "the loss of the volume", ENDS_WITHIN).await;
        says_once(status, &members.says(), "was moved, removed or unmounted");
        let below = fs::read_dir(members.data(FULL)).expect("the directory below the volume");
        assert_eq!(below.count(), 0, "nothing is written below the volume");
        more(&logs, 300).await;
        nothing_is_lost(logs, || members.says()).await;
    })
    .await;
}

/// The line with which `dev` refuses this directory.
async fn start_on(data: &Path) -> String {
    let data = data.to_str().expect("a path of text");
    let arguments = ["dev", "--limit", NO_DISK_WARNING, "--data", data, "--listen", "127.0.0.1:0"];
    CommandLine::new("unused").bad(&arguments).await.1
}

/// The line with which `serve` refuses this directory, without a register.
async fn serve_on(data: &Path, scratch: &Path) -> String {
    let config = scratch.join("node.toml");
    let register = "[register]\nnode = 1\naddress = \"127.0.0.1:1\"\n";
    let text = format!("id = 2\nlisten = \"127.0.0.1:0\"\ndata = {:?}\n\n{register}", data);
    fs::write(&config, text).expect("a configuration");
    CommandLine::new("unused").bad(&["serve", "--config", config.to_str().expect("text")]).await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_a_link_to_nothing_is_named_with_its_target() {
    within(60, async {
        let scratch = tempfile::tempdir().expect("a directory");
        let link = scratch.path().join("link");
        symlink("/nowhere/at/all", &link).expect("a link");
        for refused in [start_on(&link).await, serve_on(&link, scratch.path()).await] {
            let words = "is a link to /nowhere/at/all, which does not exist; make that directory";
            assert!(refused.contains(words) && refused.contains("data"), "{refused}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_on_a_read_only_file_system_is_refused() {
    within(60, async {
        let scratch = tempfile::tempdir().expect("a directory");
        let volume = scratch.path().join("volume");
        fs::create_dir(&volume).expect("a directory");
        let Some(mount) = or_skipped(Mount::at(&volume)) else { return };
        mount.becomes_read_only();
        for data in [volume.clone(), volume.join("new")] {
            for refused in [start_on(&data).await, serve_on(&data, scratch.path()).await] {
                assert!(
                    refused.contains("is on a read-only file system; mount that for writing"),
                    "{refused}"
                );
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_another_user_is_refused() {
    within(60, async {
        let scratch = tempfile::tempdir().expect("a directory");
        let data = scratch.path().join("data");
        fs::create_dir(&data).expect("a directory");
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("others may look");
        fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).expect("nobody may write");
        let mut command = tokio::process::Command::new(BINARY);
        command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data.join("new"));
        if rustix::process::geteuid().is_root() {
            // Root may write everywhere, so run as another user.
            command.uid(65534).gid(65534);
        }
        let output = command.stdin(Stdio::null()).output().await.expect("the binary starts");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        let place = format!("may not write to {}; make that user the owner", data.display());
        assert!(said.contains("user ") && said.contains(&place), "{said}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_another_process_holds_is_refused_and_left_alone() {
    within(60, async {
        let mut cluster = Cluster::start_in(Surroundings::default(), &[]).await;
        let data = cluster.data();
        let arguments = ["dev", "--data", data.to_str().expect("text"), "--listen", "127.0.0.1:0"];
        let refused = CommandLine::new("unused").held_up(&arguments).await;
        assert!(refused.contains("is in use by another process; stop that one"), "{refused}");
        cluster.kill_and_restart().await;
    })
    .await;
}
