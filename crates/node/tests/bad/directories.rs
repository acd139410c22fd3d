//! Ports and data directories that cannot be used.

use std::fs;
use std::path::Path;

use seriatim_client::LogConfig;
use seriatim_host::HostError;
use seriatim_net::BindError;
use seriatim_node::identity::IdentityError;
use seriatim_node::{DataDirectoryError, Dev, DevOptions, NodeError, StartError};
use seriatim_store::OpenError;

use crate::support::{Cluster, says, small_journal};

fn options(data: &Path, listen: &str) -> DevOptions {
    let mut options = DevOptions::new(data, listen);
    options.run.journal = small_journal();
    options
}

async fn refused(options: DevOptions) -> StartError {
    Dev::start(options).await.expect_err("it must not start")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named_and_leaves_nothing_behind() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let data = elsewhere.path().join("new");
    let error = refused(options(&data, &cluster.address())).await;
    assert!(matches!(error, StartError::Bind(BindError::InUse(_))), "{error:?}");
    says(&error, &["in use", &cluster.dev.address().port().to_string()]);
    assert!(!data.exists(), "no data directory was made");
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_one_process() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let error = refused(options(cluster.data.path(), "127.0.0.1:0")).await;
    assert!(matches!(error, StartError::Directory(DataDirectoryError::InUse(_))), "{error:?}");
    says(&error, &["data directory", "in use by another process"]);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_file_that_is_newer_or_broken_or_of_another_size() {
    let cluster = Cluster::start().await;
    let witness = cluster.witness().await;
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("cluster.toml");
    let id = "00000000000000000000000000000007";

    fs::write(&file, "format = 2\nsomething = \"from the future\"\n").unwrap();
    let newer = refused(options(data.path(), "127.0.0.1:0")).await;
    assert!(matches!(newer, StartError::Identity(IdentityError::Newer { found: 2, .. })), "{newer:?}");
    says(&newer, &["cluster.toml", "format 2", "use a newer seriatim"]);

    for broken in [
        "",
        "\0\0\0\0",
        "hello",
        "format = \"one\"",
        "format = 1\ncluster = \"xyz\"\nnodes = 3\n",
        &format!("format = 1\ncluster = \"{id}\"\nnodes = 0\n"),
        &format!("format = 1\ncluster = \"{id}\"\nnodes = 4000000000\n"),
        &format!("format = 1\ncluster = \"{id}\"\n"),
        &format!("format = 1\ncluster = \"{id}\"\nnodes = 3\nextra = true\n"),
    ] {
        fs::write(&file, broken).unwrap();
        let error = refused(options(data.path(), "127.0.0.1:0")).await;
        assert!(
            matches!(error, StartError::Identity(IdentityError::Malformed { .. })),
            "{broken}: {error:?}"
        );
        says(&error, &["cluster.toml", "not a description of a Seriatim cluster"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), broken, "it was left alone");
    }
    fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    let error = refused(options(data.path(), "127.0.0.1:0")).await;
    says(&error, &["cluster.toml"]);

    let mut two = options(cluster.data.path(), "127.0.0.1:0");
    two.nodes = Some(2);
    let nodes = refused(two).await;
    let is_nodes = matches!(nodes, StartError::Identity(IdentityError::Nodes { found: 3, wanted: 2, .. }));
    assert!(is_nodes, "{nodes:?}");
    says(&nodes, &["3 nodes, not 2", "--nodes", "--data"]);
    witness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_at_all_is_not_a_cluster() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("new");
    for nodes in [0, u32::MAX] {
        let mut none = options(&path, "127.0.0.1:0");
        none.nodes = Some(nodes);
        let error = refused(none).await;
        says(&error, &["nodes", "1 to"]);
        assert!(!path.exists(), "no data directory was made");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_path_that_is_a_file() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("file");
    fs::write(&path, "not a directory").unwrap();
    let error = refused(options(&path, "127.0.0.1:0")).await;
    assert!(matches!(error, StartError::Directory(DataDirectoryError::Io { .. })), "{error:?}");
    says(&error, &[path.to_str().unwrap(), "not a directory"]);
}

/// Gives node 2 of a stopped cluster the journal of `from`: of node 2 of another cluster, or of
/// another node of the same.
async fn swapped(from: &str) -> (tempfile::TempDir, StartError) {
    let victim = Cluster::start().await;
    let other = Cluster::start().await;
    // The first write makes a node's journal.
    victim.log("x", LogConfig::default()).await;
    other.log("x", LogConfig::default()).await;
    let (victim_data, other_data) = (victim.data, other.data);
    victim.dev.stop().await.unwrap();
    other.dev.stop().await.unwrap();
    let journal = |data: &Path, node: &str| data.join(node).join("journal");
    let from_data = if from == "node-2" { other_data.path() } else { victim_data.path() };
    let source = journal(from_data, from);
    let target = journal(victim_data.path(), "node-2");
    fs::remove_dir_all(&target).unwrap();
    fs::create_dir(&target).unwrap();
    for file in fs::read_dir(source).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), target.join(file.file_name())).unwrap();
    }
    let error = refused(options(victim_data.path(), "127.0.0.1:0")).await;
    (victim_data, error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_another_cluster_or_another_node_is_refused() {
    for from in ["node-2", "node-3"] {
        let (_data, error) = swapped(from).await;
        let StartError::Node(NodeError::Host { node: 2, cause: HostError::Open(cause) }) = &error else {
            panic!("{error:?}");
        };
        assert!(matches!(cause, OpenError::Foreign { .. }), "{cause:?}");
        says(&error, &["node 2", "journal/", "belongs to"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_a_newer_format_is_refused() {
    let cluster = Cluster::start().await;
    cluster.log("x", LogConfig::default()).await;
    let data = cluster.data;
    cluster.dev.stop().await.unwrap();
    let file = data.path().join("node-1/journal/0001");
    let before = fs::read(&file).unwrap();
    let mut newer = before.clone();
    // The file begins with magic bytes (8), then the version.
    newer[8..10].copy_from_slice(&99u16.to_le_bytes());
    fs::write(&file, &newer).unwrap();
    let error = refused(options(data.path(), "127.0.0.1:0")).await;
    let StartError::Node(NodeError::Host { node: 1, cause: HostError::Open(cause) }) = &error else {
        panic!("{error:?}");
    };
    assert!(matches!(cause, OpenError::Version { found: 99, .. }), "{cause:?}");
    says(&error, &["node 1", "journal/0001", "99"]);
    // With the version restored, the file is intact.
    fs::write(&file, before).unwrap();
    Dev::start(options(data.path(), "127.0.0.1:0")).await.unwrap().stop().await.unwrap();
}
