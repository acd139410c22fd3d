//! The command line as a bridge for programs in any language, with resumption after interruptions.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use seriatim_client::{NodeId, Order};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::command::{CommandLine, text};
use crate::members::Members;
use crate::process::peak_memory;

const TIMEOUT: Duration = Duration::from_secs(30);

async fn with_log(order: &str, test: impl AsyncFnOnce(&CommandLine, &Path)) {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "l", "--order", order]).await;
    test(&cli, cluster.scratch()).await;
    assert_eq!(cluster.complaints(), "", "nothing is worth a warning");
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
    kill_process(pid, signal).expect("it can be signalled");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in plain letters")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_receipt_is_printed_when_it_is_known() {
    with_log("erwin-st", async |cli, _| {
        let mut child = cli.begin_on(&["append", "l", "--json"]);
        let mut stdin = child.stdin.take().expect("it is piped");
        let mut receipts = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        for number in 0..3 {
            stdin.write_all(b"one more\n").await.expect("it reads");
            let receipt = tokio::time::timeout(TIMEOUT, receipts.next_line()).await;
            let receipt = receipt.expect("the input is still open").expect("it can be read");
            let receipt: Value = serde_json::from_str(&receipt.expect("a line")).expect("a line of JSON");
            assert_eq!(receipt["number"], number);
        }
        drop(stdin);
        assert!(child.wait().await.expect("it ends").success());
    })
    .await;
}

/// Complete records are in the log before the next one ends; an interrupt names the incomplete one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complete_records_are_appended_before_the_next_one_is_complete() {
    with_log("erwin-st", async |cli, scratch| {
        let progress = scratch.join("progress");
        let resume = ["--resume", path(&progress)];
        let many = format!("{}\n", "x".repeat(100)).repeat(500) + "tw";
        let mut appended = 0;
        for (arguments, input, records, rest) in [
            (&[][..], "one\ntw", 1, "line 2 has no end yet (2 bytes were read)"),
            (&[], &many, 500, "line 501 has no end yet (2 bytes were read)"),
            (&["--null"], "one\n\0two\0thr", 2, "record 3 has no end yet (3 bytes were read)"),
            (
                &["--input", "json"],
                "{\"record\": \"one\"}\n{\"rec",
                1,
                "line 2 has no end yet (5 bytes were read)",
            ),
            (&["--unordered"], "one\ntw", 1, "line 2 has no end yet (2 bytes were read)"),
            (&resume, "one\ntw", 1, "line 2 has no end yet (2 bytes were read)"),
        ] {
            let append = [&["append", "l", "--json"][..], arguments].concat();
            let mut child = cli.begin_on(&append);
            let mut stdin = child.stdin.take().expect("it is piped");
            stdin.write_all(input.as_bytes()).await.expect("it reads");
            let mut receipts = BufReader::new(child.stdout.take().expect("it is piped")).lines();
            for _ in 0..records {
                let receipt = tokio::time::timeout(TIMEOUT, receipts.next_line()).await;
                let receipt = receipt.unwrap_or_else(|_| panic!("{append:?}: it waits for more input"));
                receipt.expect("it can be read").expect("a receipt");
            }
            appended += records;
            signal(&child, Signal::TERM);
            let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await.expect("it ends");
            let output = output.expect("it ends");
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(130), "{said}");
            assert!(said.contains(&format!(": {records} ")) && said.contains(rest), "{append:?}: {said}");
            drop(stdin);
        }
        assert_eq!(cli.tail_of("l").await, appended, "the rests are not in the log");
        cli.good_on(&["append", "l", resume[0], resume[1]], b"one\ntwo\n").await;
        let read = cli.good(&["read", "l"]).await;
        assert!(read.ends_with(b"\none\none\ntwo\n"), "the next run appends the rest with its end");
    })
    .await;
}

/// The command has more input than fits in flight, then acknowledgements stop: it prints all
/// earlier receipts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_do_not_wait_for_room_to_submit_more() {
    let members = Members::start(1).await;
    let one = NodeId(1);
    let cli = CommandLine::new(&members.addresses());
    cli.good(&["log", "create", "l", "--sequencers", "1", "--replicas", "1"]).await;
    let mut child = cli.begin_on(&["append", "l", "--json"]);
    let mut stdin = child.stdin.take().expect("it is piped");
    let (given, mut so_many) = watch::channel(0);
    let feeding = tokio::spawn(async move {
        let mut line = vec![b'x'; 1 << 20];
        *line.last_mut().expect("it is not empty") = b'\n';
        while stdin.write_all(&line).await.is_ok() {
            given.send_modify(|count| *count += 1);
        }
    });
    // 16 MiB fit in flight, and a few lines are read ahead, so some are acknowledged.
    so_many.wait_for(|count| *count >= 40).await.expect("it reads on");
    members.signal(one, Signal::STOP);
    let mut receipts = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let first = tokio::time::timeout(TIMEOUT, receipts.next_line()).await;
    let first = first.expect("it is printed").expect("it can be read").expect("a line");
    assert!(first.contains(r#""number":0"#), "{first}");
    members.signal(one, Signal::CONT);
    signal(&child, Signal::KILL);
    child.wait().await.expect("it ends");
    feeding.await.expect("it ends with the command");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_copied_with_keys_and_headers() {
    with_log("erwin-st", async |cli, _| {
        let lines = concat!(
            r#"{"record": "two coffees", "key": "table 7", "headers": [{"kind": 40000, "value": "paid"}]}"#,
            "\n",
            r#"{"record_base64": "//4=", "key_base64": "/w=="}"#,
            "\n",
            r#"{"record": ""}"#,
        );
        cli.good_on(&["append", "l", "--input", "json"], lines.as_bytes()).await;
        cli.good(&["log", "create", "copy"]).await;
        let original = cli.good(&["read", "l", "--json"]).await;
        cli.good_on(&["append", "copy", "--input", "json"], &original).await;
        let copy = cli.good(&["read", "copy", "--json"]).await;
        let parsed = |printed: &[u8]| -> Vec<Value> {
            let lines = text(printed).lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
            let own = ["session", "number", "time"];
            lines
                .map(|mut line: Value| {
                    own.iter()
                        .for_each(|field| drop(line.as_object_mut().expect("an object").remove(*field)));
                    line
                })
                .collect()
        };
        assert_eq!(parsed(&original), parsed(&copy));
        assert_eq!(parsed(&copy)[0]["headers"][0]["value"], "paid");
        assert_eq!(parsed(&copy)[1]["key_base64"], "/w==");
        let wrong =
            cli.run_on(&["append", "l", "--input", "json"], b"{\"record\": \"good\"}\nno record\n").await;
        assert_eq!(wrong.status.code(), Some(1));
        assert!(text(&wrong.stderr).contains("line 2: not a record"), "{}", text(&wrong.stderr));
        assert_eq!(cli.tail_of("l").await, 4, "what came before it was appended");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_may_have_lines_of_their_own() {
    with_log("erwin-bb", async |cli, _| {
        cli.good_on(&["append", "l", "-0"], b"two\nlines\0and one").await;
        assert_eq!(cli.good(&["read", "l", "-0"]).await, b"two\nlines\0and one\0");
        assert_eq!(cli.run(&["read", "l", "-0", "--json"]).await.status.code(), Some(2));
    })
    .await;
}

/// Repeats a command until all possible records are in the log; returns the missing lines. In
/// `erwin-st` a killed client may have announced a record that never reached its shard.
async fn gone_on(cli: &CommandLine, append: &[&str]) -> Vec<usize> {
    loop {
        let output = cli.run(append).await;
        let said = text(&output.stderr);
        if output.status.success() {
            return vec![];
        }
        if let Some((_, listed)) = said.split_once("in time: ") {
            let numbers = listed.split(';').next().expect("a list").split(", ");
            return numbers.map(|number| number.trim().parse().expect("a number")).collect();
        }
        assert!(said.contains("did not reach its shard in time"), "{said}");
    }
}

/// Interrupts and resumes appends repeatedly, in every way.
pub(crate) async fn interrupted(order: Order) {
    let order = order.properties().name;
    with_log(order, async |cli, scratch| {
        let lines: String = (0..40_000).map(|line| format!("line {line}\n")).collect();
        let (file, progress) = (scratch.join("lines"), scratch.join("progress"));
        fs::write(&file, &lines).expect("the input is written");
        let append = ["append", "l", "--file", path(&file), "--resume", path(&progress), "--json"];
        for with in [Signal::INT, Signal::KILL, Signal::TERM, Signal::KILL] {
            let mut child = cli.begin(&append);
            let mut receipts = BufReader::new(child.stdout.take().expect("it is piped")).lines();
            let first = tokio::time::timeout(TIMEOUT, receipts.next_line()).await;
            first.expect("it appends").expect("it can be read").expect("a receipt");
            signal(&child, with);
            let rest = async { while receipts.next_line().await.is_ok_and(|line| line.is_some()) {} };
            tokio::time::timeout(TIMEOUT, rest).await.expect("it ends");
            let output = child.wait_with_output().await.expect("it ends");
            if with != Signal::KILL && output.status.code() != Some(0) {
                assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
                let said = text(&output.stderr);
                assert!(
                    said.contains("were acknowledged") && said.contains("run the same command again"),
                    "{said}"
                );
            }
        }
        let left_out = gone_on(cli, &append).await;
        let expected = |lines: &str| -> String {
            let kept =
                lines.split_inclusive('\n').enumerate().filter(|(index, _)| !left_out.contains(&(index + 1)));
            kept.map(|(_, line)| line).collect()
        };
        let read = cli.good(&["read", "l"]).await;
        assert!(read == expected(&lines).as_bytes(), "each line once, and in order, but {left_out:?}");
        assert_eq!(gone_on(cli, &append).await, left_out, "there is nothing left to do");
        let longer = lines.clone() + "one more\n";
        fs::write(&file, &longer).expect("the input grows");
        assert_eq!(gone_on(cli, &append).await, left_out);
        assert!(cli.good(&["read", "l"]).await == expected(&longer).as_bytes(), "only what is new");
        fs::write(&file, lines.clone() + "one more\nhalf a li").expect("the input is being written");
        let (_, said) = cli.bad(&append).await;
        assert!(said.contains("the last line has no end"), "{said}");
        fs::write(&file, "something else\n").expect("the input is another one");
        let (_, said) = cli.bad(&append).await;
        assert!(said.contains("does not begin with the 40001 lines"), "{said}");
        cli.good(&["log", "create", "other", "--order", order]).await;
        let (_, said) =
            cli.bad(&["append", "other", "--file", path(&file), "--resume", path(&progress)]).await;
        assert!(said.contains("belongs to another log"), "{said}");
    })
    .await;
}

/// A resumed `scalog` session leaves a no-op even without appends, so the last position has no
/// record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_read_to_its_end_where_that_has_no_record_and_records_are_counted() {
    with_log("scalog", async |cli, scratch| {
        let (file, progress) = (scratch.join("lines"), scratch.join("progress"));
        let append = ["append", "l", "--file", path(&file), "--resume", path(&progress)];
        for lines in ["a\nb\n", "a\nb\nc\n", "a\nb\nc\n"] {
            fs::write(&file, lines).expect("it is written");
            cli.good(&append).await;
        }
        let tail = cli.good(&["read", "l", "--json"]).await;
        let last: Value =
            text(&tail).lines().last().map(serde_json::from_str).expect("a line").expect("JSON");
        assert_eq!(last["position"], 3, "it is behind the first no-op, and before the second");
        let read = async |arguments: &[&str]| cli.good(&[&["read", "l"][..], arguments].concat()).await;
        assert_eq!(read(&[]).await, b"a\nb\nc\n");
        assert_eq!(read(&["--count", "3"]).await, b"a\nb\nc\n");
        assert_eq!(read(&["--count", "4"]).await, b"a\nb\nc\n");
        assert_eq!(read(&["--from", "1", "--count", "2"]).await, b"b\nc\n");
        assert_eq!(read(&["--from", "2", "--count", "1"]).await, b"c\n");
        for from in ["4", "5"] {
            assert_eq!(read(&["--from", from]).await, b"");
        }
        let (_, said) = cli.bad(&["read", "l", "--from", "6"]).await;
        assert!(said.contains('6') && said.contains('5'), "{said}");
    })
    .await;
}

struct Events(Lines<BufReader<ChildStdout>>);

impl Events {
    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(TIMEOUT, self.0.next_line()).await.expect("something comes");
        serde_json::from_str(&line.expect("it can be read").expect("a line")).expect("a line of JSON")
    }

    /// The next event that is no confirmation. Empty positions after the last record may be
    /// confirmed much later, or never.
    async fn next_record(&mut self) -> Value {
        loop {
            let event = self.next().await;
            if event["confirm"].is_null() {
                break event;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_speculative_tail_is_given_each_record_and_told_that_it_is_final() {
    for order in Order::ALL {
        with_log(&order.to_string(), async |cli, _| {
            let mut tail = cli.begin(&["tail", "l", "--from", "0", "--speculative", "--json"]);
            let mut events = Events(BufReader::new(tail.stdout.take().expect("it is piped")).lines());
            let mut predicted = 0;
            for number in 0..50 {
                cli.good_on(&["append", "l"], format!("line {number}\n").as_bytes()).await;
                let record = events.next_record().await;
                assert_eq!(record["record"], format!("line {number}"), "{order}");
                predicted += u32::from(record["speculative"].as_bool().expect("it says so"));
                let position = record["position"].as_u64().expect("a number");
                // Empty positions have confirmations too: wait for a bound above the record.
                while events.next().await["confirm"].as_u64().expect("nothing fails") <= position {}
            }
            let foretells = order.is_lazy() || order.has_quotas();
            assert!(predicted > 0 || !foretells, "{order}: every record came when it was final");
            assert!(predicted == 0 || foretells, "{order}: nothing is to be told early");
            signal(&tail, Signal::INT);
            assert!(tail.wait().await.expect("it ends").success());
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_speculative_tail_wants_a_part_of_a_log_and_says_what_is_no_part() {
    with_log("erwin-st", async |cli, _| {
        let lines = concat!(
            r#"{"record": "one", "key": "eu/1"}"#,
            "\n",
            r#"{"record": "two", "headers": [{"kind": 40000, "value": "urgent"}]}"#,
            "\n",
            r#"{"record": "three", "key": "us/1"}"#,
            "\n",
        );
        cli.good_on(&["append", "l", "--input", "json"], lines.as_bytes()).await;
        for (filter, wanted) in [("key=eu/", "one"), ("header:40000=urg", "two"), ("key=us/", "three")] {
            let printed = cli
                .good(&[
                    "tail",
                    "l",
                    "--from",
                    "0",
                    "--until",
                    "3",
                    "--filter",
                    filter,
                    "--speculative",
                    "--json",
                ])
                .await;
            let lines =
                text(&printed).lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
            let lines: Vec<Value> = lines.collect();
            let records: Vec<&Value> = lines.iter().filter(|line| !line["record"].is_null()).collect();
            assert!(matches!(&records[..], [record] if record["record"] == wanted), "{filter}: {records:?}");
            let confirmed = lines.last().expect("a line")["confirm"].as_u64().expect("it is final");
            assert!(confirmed > records[0]["position"].as_u64().expect("a number"), "{filter}: {lines:?}");
        }
        for wrong in [
            &["tail", "l", "--speculative"][..],
            &["tail", "l", "--speculative", "--json", "--filter", "value=x"],
            &["tail", "l", "--speculative", "--json", "--filter", "header:x=y"],
            &["tail", "l", "--from", "3", "--until", "2"],
            &["tail", "l", "--shards", "x"],
            &["tail", "l", "--shards", ""],
        ] {
            let output = cli.run(wrong).await;
            assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output.stderr));
            assert!(!text(&output.stderr).contains("parse integer"), "{wrong:?}: {}", text(&output.stderr));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_and_intervals_out_of_range_are_refused_with_the_range() {
    let cli = CommandLine::new("127.0.0.1:1");
    for (option, values, range) in [
        ("--window", &["0", "1", "10001", "-3", "x", "4294967296"][..], "2 to 10000 cuts"),
        ("--interval", &["0", "0ms", "10s", "1h", "soon"], ""),
    ] {
        for value in values {
            let option = format!("{option}={value}");
            let output = cli.run(&["log", "create", "l", "--order", "belfast", &option]).await;
            assert_eq!(output.status.code(), Some(2), "{option}");
            let said = text(&output.stderr);
            assert!(said.contains(range) || said.contains("is not a "), "{option}: {said}");
        }
    }
    with_log("scalog", async |cli, _| {
        for order in Order::ALL.into_iter().filter(|order| !order.has_quotas()) {
            let (_, said) =
                cli.bad(&["log", "create", "m", "--order", &order.to_string(), "--window", "5"]).await;
            assert!(said.contains("it has no window"), "{said}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_that_nobody_reads_holds_little_and_slows_no_other() {
    let predicts = |order: &Order| order.is_lazy() || order.has_quotas();
    for order in Order::ALL.into_iter().filter(predicts) {
        with_log(&order.to_string(), async |cli, scratch| {
            let read = ["tail", "l", "--from", "0", "--speculative", "--json"];
            let mut unread = cli.begin(&read);
            let mut other = cli.begin(&read);
            let lines = scratch.join("lines");
            fs::write(&lines, format!("{}\n", "x".repeat(4000)).repeat(LINES)).expect("it is written");
            cli.good(&["append", "l", "--file", path(&lines)]).await;
            let mut events = Events(BufReader::new(other.stdout.take().expect("it is piped")).lines());
            let mut records = 0;
            while records < LINES {
                records += usize::from(events.next().await["record"].is_string());
            }
            let held = peak_memory(unread.id().expect("it runs"));
            assert!(held < TAIL_BYTES, "{order}: {held} bytes");
            for tail in [&mut unread, &mut other] {
                tail.kill().await.expect("it runs");
            }
        })
        .await;
    }
}

const LINES: usize = 20_000;
/// Memory limit of a tail: data in flight, records for the program, and the program.
const TAIL_BYTES: u64 = 48 << 20;
const _: () = assert!(TAIL_BYTES < LINES as u64 * 4000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_no_progress_or_cannot_be_written_is_refused() {
    with_log("erwin-st", async |cli, scratch| {
        let progress = scratch.join("progress");
        fs::write(&progress, "something else").expect("it is written");
        let (_, said) = cli.bad(&["append", "l", "--resume", path(&progress)]).await;
        assert!(said.contains("not what an interrupted append left"), "{said}");
        let (none, lines) = (scratch.join("none/progress"), scratch.join("lines"));
        fs::write(&lines, "a\n").expect("it is written");
        let (_, said) = cli.bad(&["append", "l", "--file", path(&lines), "--resume", path(&none)]).await;
        assert!(
            said.contains("none/progress: No such file") && said.contains("this run appended no record"),
            "{said}"
        );
        assert_eq!(cli.tail_of("l").await, 0);
        assert_eq!(cli.run(&["append", "l", "--resume", "f", "--unordered"]).await.status.code(), Some(2));
    })
    .await;
}
