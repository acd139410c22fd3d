//! Pins against limits and trims, through the command line.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::retention::{lines, until};

async fn shown(cli: &CommandLine, name: &str) -> Value {
    serde_json::from_slice(&cli.good(&["log", "show", name, "--json"]).await).expect("it is JSON")
}

async fn until_first_is(cli: &CommandLine, name: &str, first: u64) {
    let what = format!("position {first} is the first");
    until(&what, async || (shown(cli, name).await["use"]["first"] == first).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_stops_limits_and_trims_until_it_moves_up_or_is_removed() {
    let mut cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "a"]).await;
    cli.good_on(&["append", "a"], &lines(0..1000, 4)).await;
    let said = cli.good(&["log", "pin", "a", "billing", "20"]).await;
    assert_eq!(text(&said), "pin 'billing' of 'a' is at position 20, for at most 10.00 GiB\n");
    cli.good(&["log", "pin", "a", "audit", "40", "--most-bytes", "1GiB"]).await;
    cli.good(&["log", "set", "a", "--retain-records", "100"]).await;
    until_first_is(&cli, "a", 20).await;
    cluster.kill_and_restart().await;
    let (_, said) = cli.bad(&["trim", "a", "50"]).await;
    assert!(said.contains("the pin 'billing' keeps 'a' from position 20 on"), "{said}");
    cli.good(&["trim", "a", "20"]).await;
    cli.good(&["log", "pin", "a", "billing", "30"]).await;
    until_first_is(&cli, "a", 30).await;
    for (pin, position, words) in [
        ("billing", "25", "position 25 is trimmed; the first position that remains is 30"),
        ("audit", "35", "the pin 'audit' of 'a' is at 40, and a pin moves only up"),
        ("a/b", "50", "'a/b' cannot name a pin"),
    ] {
        let (_, said) = cli.bad(&["log", "pin", "a", pin, position]).await;
        assert!(said.contains(words), "{said}");
    }
    let pins = json!([
        { "name": "audit", "position": 40, "most_bytes": 1u64 << 30, "broken": false },
        { "name": "billing", "position": 30, "most_bytes": 10u64 << 30, "broken": false },
    ]);
    assert_eq!(shown(&cli, "a").await["pins"], pins);
    let said = cli.good(&["log", "show", "a"]).await;
    assert!(text(&said).contains("\npin billing       at position 30, for at most 10.00 GiB\n"), "{said:?}");
    cli.good(&["trim", "a", "50", "--despite-pins"]).await;
    until_first_is(&cli, "a", 50).await;
    for pin in ["billing", "audit"] {
        cli.good(&["log", "unpin", "a", pin]).await;
    }
    until_first_is(&cli, "a", 900).await;
    let (_, said) = cli.bad(&["log", "unpin", "a", "audit"]).await;
    assert!(said.contains("'a' has no pin 'audit'"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_that_keeps_too_many_bytes_is_broken_and_reported() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "a", "--shards", "1", "--retain-records", "10"]).await;
    cli.good(&["log", "pin", "a", "slow", "0", "--most-bytes", "64KiB"]).await;
    cli.good_on(&["append", "a"], &lines(0..1000, 1000)).await;
    until_first_is(&cli, "a", 990).await;
    let pin = json!({ "name": "slow", "position": 0, "most_bytes": 65_536, "broken": true });
    assert_eq!(shown(&cli, "a").await["pins"], json!([pin]));
    let said = cli.good(&["log", "show", "a"]).await;
    let words = "\npin slow          broken: the records from position 0 on took more than 64.00 KiB\n";
    assert!(text(&said).contains(words), "{}", text(&said));
    let notice = "the pin 'slow' is broken: the records from position 0 on took more than 65536 bytes";
    until("the node reports it", async || cluster.says().contains(notice).then_some(())).await;
    let said = cli.good(&["log", "pin", "a", "slow", "990"]).await;
    assert_eq!(text(&said), "pin 'slow' of 'a' is at position 990, for at most 64.00 KiB\n");
}
