//! Output of commands, byte for byte, and exit status.

use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};

async fn with_log(test: impl AsyncFnOnce(&CommandLine)) {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l", "--stripe", "1"]).await;
    let test = tokio::time::timeout(Duration::from_secs(60), test(&cli));
    test.await.expect("it comes to an end");
    assert_eq!(cluster.complaints(), "", "nothing is worth a warning");
}

fn json_lines(output: &[u8]) -> Vec<Value> {
    text(output).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_line_comes_back_as_it_is() {
    with_log(async |cli| {
        let input = b"plain\n\n\xff\xfe bytes\n\0nul\r\n\"quoted\" \\ \xc3\xa9\nunterminated";
        assert_eq!(cli.good_on(&["append", "l"], input).await, b"");
        assert_eq!(cli.tail_of("l").await, 6, "an unterminated last line is one too");
        assert_eq!(cli.good(&["read", "l"]).await, [&input[..], b"\n"].concat());
        let encoded = base64::engine::general_purpose::STANDARD.encode(b"\xff\xfe bytes");
        let expected = [
            json!({ "position": 0, "record": "plain" }),
            json!({ "position": 1, "record": "" }),
            json!({ "position": 2, "record_base64": encoded }),
            json!({ "position": 3, "record": "\0nul\r" }),
            json!({ "position": 4, "record": "\"quoted\" \\ é" }),
            json!({ "position": 5, "record": "unterminated" }),
        ];
        let mut printed = json_lines(&cli.good(&["read", "l", "--json"]).await);
        for (number, line) in printed.iter_mut().enumerate() {
            let line = line.as_object_mut().expect("an object");
            assert_eq!(line.remove("number"), Some(json!(number)));
            assert!(line.remove("session").is_some_and(|session| session.as_str().unwrap().len() == 32));
            assert!(line.remove("time").is_some_and(|time| time.as_str().unwrap().ends_with('Z')));
        }
        assert_eq!(printed, expected);
        assert_eq!(cli.good(&["read", "l", "--from", "6"]).await, b"", "there is nothing at the tail");
        assert_eq!(cli.good(&["read", "l", "--count", "0"]).await, b"");
        let (printed, said) = cli.bad(&["read", "l", "--from", "7"]).await;
        assert!(printed.is_empty() && said.contains("past the tail, which is 6"), "{said}");
        assert_eq!(cli.good(&["append", "l"]).await, b"", "nothing is nothing");
        assert_eq!(cli.tail_of("l").await, 6);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_name_every_record() {
    with_log(async |cli| {
        let receipts = json_lines(&cli.good_on(&["append", "l", "--json"], b"a\nb\nc\n").await);
        assert_eq!(receipts.len(), 3);
        for (number, receipt) in receipts.iter().enumerate() {
            assert_eq!(receipt["number"], number);
            assert_eq!(receipt["session"], receipts[0]["session"]);
            assert_eq!(receipt["durability"], "disk");
            assert_eq!(receipt["position"], Value::Null, "it is bound later");
        }
        assert_eq!(cli.good_on(&["append", "l", "--sync"], b"d\n").await, b"");
        let receipts = json_lines(&cli.good_on(&["append", "l", "--sync", "--json"], b"e\nf").await);
        let positions: Vec<_> = receipts.iter().map(|receipt| receipt["position"].clone()).collect();
        assert_eq!(positions, [4, 5]);
        assert_eq!(cli.good(&["read", "l"]).await, b"a\nb\nc\nd\ne\nf\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_exit_with_one_line_and_misuse_with_two() {
    with_log(async |cli| {
        for misuse in [
            &["nonsense"][..],
            &["read"],
            &["read", "l", "--from", "x"],
            &["trim", "l"],
            &["log", "create", "m", "--order", "nonsense"],
            &["log", "create", "m", "--durability", "paper"],
            &["append", "l", "--unknown"],
            &["dev", "--nodes", "0"],
        ] {
            let output = cli.run(misuse).await;
            assert_eq!(output.status.code(), Some(2), "{misuse:?}: {}", text(&output.stderr));
            assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{misuse:?}");
        }
        for (failure, what) in [
            (&["read", "none"][..], "no log 'none'"),
            (&["log", "show", "none"], "no log 'none'"),
            (&["log", "delete", "none"], "no log 'none'"),
            (&["log", "create", "l"], "exists already"),
            (&["log", "create", "m", "--shards", "0"], "at least one"),
            (&["log", "create", "m", "--sequencers", "4"], "more than the 3"),
            (&["append", "l", "--file", "/nonexistent"], "/nonexistent"),
            (&["--server", "127.0.0.1:1", "log", "list"], "seriatim dev"),
        ] {
            let (printed, said) = cli.bad(failure).await;
            assert!(printed.is_empty() && said.contains(what), "{failure:?}: {said}");
        }
        cli.good(&["log", "create", "small", "--max-record-bytes", "4"]).await;
        let output = cli.run_on(&["append", "small"], b"abcd\nabcde\nabc\n").await;
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("line 2"), "{}", text(&output.stderr));
        assert_eq!(cli.good(&["read", "small"]).await, b"abcd\n", "what came before it is appended");
    })
    .await;
}
