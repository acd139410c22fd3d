//! Acceptance test of the first version: by command line only, a file in, the same file out.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use seriatim_client::{AppendError, AppendOptions, LogOptions, Order, Position};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cluster::{Cluster, connect};
use crate::command::{CommandLine, text};

const LINES: usize = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_meaning_where_positions_come_first_is_refused() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "chained", "--order", "corfu"]).await;
    let (_, said) = cli.bad(&["log", "create", "other", "--order", "corfu", "--sequencers", "3"]).await;
    assert!(said.contains("one sequencer"), "{said}");
    let (_, said) = cli.bad(&["append", "chained", "--shard", "0"]).await;
    assert!(said.contains("the position decides"), "{said}");
    let client = connect(cluster.address(), Duration::from_secs(30)).await;
    let log = client.log("chained").await.expect("it is there");
    let receipt = log.append("once", AppendOptions::default()).await.expect("it is appended");
    assert_eq!(receipt.position.map(|position| position.0), Some(0), "a receipt has its position");
}

/// A program with its first session resumes after any number of restarts.
pub(crate) async fn goes_on_from_its_first_session(order: Order) {
    let name = order.properties().name;
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", name, "--order", name, "--shards", "2"]).await;
    let mut first = None;
    let mut told: Vec<Position> = vec![];
    for runs in 1..=4 {
        let client = connect(cluster.address(), Duration::from_secs(30)).await;
        let mut options = LogOptions::default();
        options.resume = first;
        let log = client.log_with(name, options).await.expect("it is there");
        let session = log.session().await.expect("it has a session");
        // Each run repeats all earlier lines and adds one. Earlier lines keep their positions.
        for line in 0..runs {
            match log.append_sync(format!("line {line}")).await {
                // In an ordering by cuts, the end of a session also takes a position.
                Ok(position) if line + 1 == runs => {
                    assert!(order.has_cuts() || position == Position(line), "{order}, {runs} runs");
                    assert!(told.last().is_none_or(|last| *last < position), "{order}, {runs} runs");
                    told.push(position);
                }
                Ok(position) => assert_eq!(position, told[line as usize], "{order}, {runs} runs"),
                Err(cause) => {
                    assert!(cause == AppendError::AppendedBefore && line + 1 < runs, "{order}: {cause}")
                }
            }
        }
        assert_eq!(*first.get_or_insert(session), session, "{order}, {runs} runs");
    }
    let lines = cli.good(&["read", name]).await;
    assert_eq!(text(&lines), "line 0\nline 1\nline 2\nline 3\n", "{order}");
    let mut beyond = LogOptions::default();
    beyond.resume = first.map(|(session, _)| (session, 5));
    let client = connect(cluster.address(), Duration::from_secs(30)).await;
    let log = client.log_with(name, beyond).await.expect("it is there");
    let failed = log.append_sync("a number that nobody ever reached").await.expect_err("it is refused");
    assert!(matches!(failed, AppendError::SessionExpired(_)), "{order}: {failed}");
}

/// A resumed session excludes the earlier run that is still alive.
pub(crate) async fn shuts_out_an_earlier_run(order: Order) {
    let name = order.properties().name;
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", name, "--order", name, "--shards", "2"]).await;
    let connected = || connect(cluster.address(), Duration::from_secs(30));
    let (earlier, later) = (connected().await, connected().await);
    let old = earlier.log(name).await.expect("it is there");
    let (session, first) = old.session().await.expect("it has a session");
    // The program does not wait for these appends.
    let mut in_flight = vec![];
    for line in 0..3 {
        let sent = old.submit(format!("line {line}")).await;
        in_flight.push(sent.expect("it is on its way"));
    }
    let new = later.log_with(name, LogOptions::resume(session, first)).await.expect("it is there");
    for line in 0..5 {
        let outcome = new.append(format!("line {line}"), AppendOptions::default()).await;
        let was_told = outcome == Err(AppendError::AppendedBefore) && line < 3;
        assert!(outcome.is_ok() || was_told, "{order}: {outcome:?}");
    }
    for sent in in_flight {
        let outcome = sent.await;
        let is_told = matches!(outcome, Ok(_) | Err(AppendError::SessionExpired(_)));
        assert!(is_told, "{order}: {outcome:?}");
    }
    // The old program then gets a new, independent session.
    let mut told = 0;
    while let Err(cause) = old.append("late", AppendOptions::default()).await {
        assert!(matches!(cause, AppendError::SessionExpired(_)) && told == 0, "{order}: {cause}");
        told += 1;
    }
    let lines = cli.good(&["read", name]).await;
    assert_eq!(text(&lines), "line 0\nline 1\nline 2\nline 3\nline 4\nlate\n", "{order}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_go_to_the_shard_that_is_named() {
    let cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    cli.good(&["log", "create", "straight", "--order", "erwin-st", "--shards", "2"]).await;
    cli.good(&["log", "create", "pushed", "--order", "erwin-bb", "--shards", "2"]).await;
    let append = |arguments: &[&'static str]| [&["append"], arguments].concat();
    let printed = cli.good_on(&append(&["straight", "--shard", "1", "--json", "--sync"]), b"a\nb\n").await;
    let receipts: Vec<serde_json::Value> =
        text(&printed).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(receipts[1]["position"], 1, "{printed:?}");
    assert_eq!(receipts[1]["appended_again"], 0, "{printed:?}");
    cli.good_on(&append(&["straight", "--unordered", "--shard", "0"]), b"c").await;
    cli.good_on(&append(&["pushed", "--unordered"]), b"c").await;
    assert_eq!(cli.good(&["read", "straight"]).await, b"a\nb\nc\n");
    let (_, said) = cli.bad(&append(&["straight", "--shard", "2"])).await;
    assert!(said.contains("no shard 2") && said.contains("open shards: 0, 1"), "{said}");
    let (_, said) = cli.bad(&append(&["pushed", "--shard", "0"])).await;
    assert!(said.contains("order erwin-bb") && said.contains("--order erwin-st"), "{said}");
}

/// A file comes back unchanged, through kills and trims.
pub(crate) async fn accept(order: Order) {
    // An order with quotas assigns positions in advance, so some have no record.
    let has_empty = order.has_quotas();
    let order = order.properties().name;
    let mut cluster = Cluster::start(&[]).await;
    let cli = CommandLine::new(cluster.address());
    let input = real_lines();
    let lines = input.iter().filter(|byte| **byte == b'\n').count();
    let (file, output) = (cluster.scratch().join("input"), cluster.scratch().join("output"));
    fs::write(&file, &input).expect("the input is written");
    let file = file.to_str().expect("a path in plain letters");

    assert_eq!(cli.good(&["log", "create", "orders", "--order", order, "--shards", "2"]).await, b"");
    assert_eq!(cli.good(&["log", "list"]).await, b"orders\n");
    let is_tail =
        |tail: u64, lines: usize| if has_empty { tail >= lines as u64 } else { tail == lines as u64 };
    assert_eq!(cli.good(&["append", "orders", "--file", file]).await, b"");
    assert!(is_tail(cli.tail_of("orders").await, lines));
    cli.good_into(&["read", "orders"], &output).await;
    assert!(fs::read(&output).expect("the output") == input, "what was read is what was appended");

    cluster.kill_and_restart().await;
    assert!(is_tail(cli.tail_of("orders").await, lines));
    cli.good_into(&["read", "orders"], &output).await;
    assert!(fs::read(&output).expect("the output") == input, "nor does a kill change it");
    assert_eq!(cli.good(&["append", "orders", "--file", file]).await, b"");
    assert!(is_tail(cli.tail_of("orders").await, 2 * lines));
    cli.good_into(&["read", "orders"], &output).await;
    assert!(
        fs::read(&output).expect("the output") == [&input[..], &input].concat(),
        "it goes on where it was"
    );

    // The other checks need one line per position.
    if !has_empty {
        trimmed(&mut cluster, &cli, &input).await;
        followed(&cli, 2 * lines as u64).await;
    }
    assert_eq!(cluster.complaints(), "", "nothing is worth a warning");
}

/// Trims the first hundred lines; checks before and after a kill.
async fn trimmed(cluster: &mut Cluster, cli: &CommandLine, input: &[u8]) {
    let line = |index: usize| input.split_inclusive(|byte| *byte == b'\n').nth(index).expect("it has more");
    let said = cli.good(&["trim", "orders", "100"]).await;
    assert!(text(&said).starts_with("trimmed to 100: freed "), "{}", text(&said));
    for _ in 0..2 {
        let (printed, said) = cli.bad(&["read", "orders", "--from", "50"]).await;
        assert_eq!(printed, b"");
        assert!(said.contains("trimmed") && said.contains("the first one is 100"), "{said}");
        assert_eq!(cli.good(&["read", "orders", "--count", "1"]).await, line(100));
        let counted = cli.good(&["read", "orders", "--from", "150", "--count", "2"]).await;
        assert_eq!(counted, [line(150), line(151)].concat());
        let first = cli.good(&["read", "orders", "--count", "1", "--json"]).await;
        let first: serde_json::Value = serde_json::from_slice(&first).expect("a line of JSON");
        assert_eq!(first["position"], 100);
        cluster.kill_and_restart().await;
    }
    let whole = cli.good(&["read", "orders"]).await;
    let gone: usize = (0..100).map(|index| line(index).len()).sum();
    assert!(whole == [&input[gone..], input].concat(), "everything from 100 on is left");
    let (_, said) = cli.bad(&["trim", "orders", "99999999"]).await;
    assert!(said.contains("past the tail"), "{said}");
    let said = cli.good(&["trim", "orders", "30"]).await;
    assert!(text(&said).starts_with("trimmed to 100: freed nothing"), "a lower trim point changes nothing");
    assert_eq!(cli.good(&["read", "orders", "--count", "1"]).await, line(100));
}

/// `tail` prints new records and stops at an interrupt.
async fn followed(cli: &CommandLine, tail: u64) {
    let mut child = cli.begin(&["tail", "orders", "--from", &(tail - 1).to_string(), "--json"]);
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut next = async || {
        let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await;
        let line = line.expect("it follows").expect("it can be read").expect("it has no end");
        serde_json::from_str::<serde_json::Value>(&line).expect("a line of JSON")
    };
    assert_eq!(next().await["position"], tail - 1, "what is there already");
    for (index, appended) in ["first\n", "second"].iter().enumerate() {
        cli.good_on(&["append", "orders"], appended.as_bytes()).await;
        let line = next().await;
        assert_eq!(line["position"], tail + index as u64);
        assert_eq!(line["record"], appended.trim_end());
    }
    let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())).expect("it runs");
    rustix::process::kill_process(pid, Signal::INT).expect("it can be signalled");
    let status = tokio::time::timeout(Duration::from_secs(30), child.wait()).await;
    assert!(status.expect("it stops").expect("it can be waited for").success());
}

fn real_lines() -> Vec<u8> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = vec![];
    gather(&crates, &mut sources);
    let once = sources.concat();
    let lines = once.iter().filter(|byte| **byte == b'\n').count();
    assert!(lines > 1000, "the workspace has sources");
    once.repeat(LINES.div_ceil(lines))
}

fn gather(directory: &Path, sources: &mut Vec<Vec<u8>>) {
    let entries = fs::read_dir(directory).expect("a directory of the workspace");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            gather(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let mut source = fs::read(&path).expect("a source");
            if source.last().is_some_and(|last| *last != b'\n') {
                source.push(b'\n');
            }
            sources.push(source);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_says_what_is_in_its_way() {
    let first = Cluster::start(&["--nodes", "1"]).await;
    let cli = CommandLine::new(first.address());
    let data = first.data();
    let data = data.to_str().expect("a path in plain letters");
    let said = cli.held_up(&["dev", "--data", data, "--listen", "127.0.0.1:0"]).await;
    assert!(said.contains(data), "the directory is in use: {said}");
    let other = first.scratch().join("other");
    let other = other.to_str().expect("a path in plain letters");
    let said = cli.held_up(&["dev", "--data", other, "--listen", first.address()]).await;
    assert!(said.contains("in use") && said.contains("--listen"), "the address is taken: {said}");
    assert!(!Path::new(other).exists(), "nothing is left of what could not start");
    let status = cli.good(&["status", "--json"]).await;
    let status: serde_json::Value = serde_json::from_str(text(&status)).expect("JSON");
    assert_eq!(status["nodes"][0]["address"], first.address());
}
