//! One data directory per node number: copied configurations and directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use rustix::process::Signal;
use seriatim_client::{Client, LogConfig, NodeId};

use crate::command::{CommandLine, text};
use crate::disks::copy;
use crate::members::{Members, Register, has_etcd};
use crate::process::{Process, TIMEOUT};
use crate::surroundings::Surroundings;

const ONE: NodeId = NodeId(1);
const THREE: NodeId = NodeId(3);

async fn within(seconds: u64, test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(seconds), test).await.expect("it comes to an end");
}

/// A second configuration of a node, with another address and directory.
fn second(members: &Members, node: NodeId, data: &str) -> (PathBuf, String) {
    let config = members.config(node);
    let elsewhere = members.address(NodeId(node.0 + 50));
    let text = fs::read_to_string(&config).expect("its configuration");
    let text = text
        .replace(&format!("listen = \"{}\"", members.address(node)), &format!("listen = \"{elsewhere}\""))
        .replace(&format!("data = \"node{node}\""), &format!("data = \"{data}\""));
    let path = config.with_file_name(format!("second-{data}.toml"));
    fs::write(&path, text).expect("a second configuration");
    (path, elsewhere)
}

async fn serve(config: &Path) -> Output {
    let config = config.to_str().expect("a path of text");
    CommandLine::new("unused").run(&["serve", "--config", config]).await
}

async fn view(client: &Client) -> u64 {
    client.lookup("l").await.expect("it is there").view_number().0
}

/// The second process reports both addresses; the cluster is not affected.
fn is_refused(output: &Output, members: &Members, elsewhere: &str) {
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let [.., line] = lines[..] else { panic!("it says nothing") };
    let here = format!("node 3 already runs at {}", members.address(THREE));
    assert!(line.contains(&here) && line.contains(elsewhere), "{said}");
}

async fn a_second_directory_is_refused_on(register: Register) {
    let members = Members::start_on(register, 3).await;
    let client = members.client(TIMEOUT).await;
    client.create("l", LogConfig { sequencers: 3, ..LogConfig::default() }).await.expect("it is created");
    let log = client.log("l").await.expect("it is there");
    log.append_sync("a").await.expect("it is appended");
    let before = view(&client).await;
    let (config, elsewhere) = second(&members, THREE, "other");
    is_refused(&serve(&config).await, &members, &elsewhere);
    log.append_sync("b").await.expect("it is appended");
    assert_eq!(view(&client).await, before, "no view was changed; {}", members.says());
    assert!(!config.with_file_name("other").exists(), "no directory is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_directory_under_a_living_number_is_refused() {
    within(60, a_second_directory_is_refused_on(Register::First)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_directory_under_a_living_number_is_refused_with_etcd() {
    if has_etcd("a_second_directory_under_a_living_number_is_refused_with_etcd") {
        within(60, a_second_directory_is_refused_on(Register::Etcd)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_directory_is_refused_while_the_other_lives_also_without_the_register() {
    within(60, async {
        let mut members = Members::start(3).await;
        let (config, elsewhere) = second(&members, THREE, "copied");
        copy(&members.data(THREE), &config.with_file_name("copied"));
        let output = serve(&config).await;
        is_refused(&output, &members, &elsewhere);
        assert!(text(&output.stderr).contains("is a copy of the other's"), "{}", text(&output.stderr));
        members.kill(ONE).await;
        is_refused(&serve(&config).await, &members, &elsewhere);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_number_was_taken_while_it_was_stopped_ends_when_it_goes_on() {
    within(90, async {
        let mut members = Members::start(3).await;
        members.signal(THREE, Signal::STOP);
        // The register considers the node down, so the second process is accepted.
        let (config, elsewhere) = second(&members, THREE, "taker");
        let arguments = ["serve".as_ref(), "--config".as_ref(), config.as_os_str()];
        let words = config.with_file_name("taker.words");
        let mut taker = Process::spawn(arguments, &words, &Surroundings::default());
        assert_eq!(taker.ready().await, elsewhere);
        let mut stopped = members.take(THREE);
        stopped.signal(Signal::CONT);
        // One of the two ends. On a busy machine the second one may be suspected at this moment;
        // then the first one keeps the number.
        let ended = tokio::select! {
            ended = stopped.ended() => ended,
            ended = taker.ended() => ended,
        };
        assert!(!ended.success());
        let says = members.says() + &fs::read_to_string(&words).unwrap_or_default();
        assert_eq!(says.matches("node 3 already runs at ").count(), 1, "{says}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_directory_or_moved_is_taken_back() {
    within(90, async {
        let mut members = Members::start(3).await;
        members.kill(THREE).await;
        let (config, elsewhere) = second(&members, THREE, "node3");
        let arguments = ["serve".as_ref(), "--config".as_ref(), config.as_os_str()];
        let words = config.with_file_name("moved.words");
        let mut moved = Process::spawn(arguments, &words, &Surroundings::default());
        assert_eq!(moved.ready().await, elsewhere);
        assert!(moved.stop(Signal::TERM).await.success());
        fs::remove_dir_all(members.data(THREE)).expect("the directory is lost");
        members.restart(THREE).await;
        // An invalid file with the last address does not prevent a start.
        members.stop(THREE).await;
        fs::write(members.data(THREE).join("address"), [0xff; 3000]).expect("it is written");
        members.restart(THREE).await;
    })
    .await;
}
