//! Kills of a player that delivers to receivers of HTTP requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand::RngExt;
use rustix::process::Signal;
use seriatim_player::testing::{Receiver, Stored};

use super::{Stage, log_of, status, until};
use crate::command::text;

const LINES: usize = 20_000;
const KILLS: usize = 5;

/// Kills the player several times while lines are appended, then delivers the rest.
async fn kill_while_delivering(stage: &mut Stage, config: &str, delivered: impl Fn() -> usize) {
    let appends = {
        let command = stage.command.clone();
        let lines: String = (100..100 + LINES).map(|line| format!("line {line}\n")).collect();
        tokio::spawn(async move { command.good_on(&["append", "orders"], lines.as_bytes()).await })
    };
    for _ in 0..KILLS {
        let player = stage.play(config, &["--take-over"]).await;
        // The last kills may come after the last line.
        let wanted = (delivered() + rand::rng().random_range(1..LINES / KILLS / 4)).min(LINES);
        until("the receiver makes progress", || delivered() >= wanted).await;
        player.kill().await;
    }
    appends.await.expect("the appends succeed");
    stage.play_all(config).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_stores_its_bound_has_each_line_once() {
    let mut stage = Stage::new().await;
    let stored = Stored::default();
    let served = stored.clone();
    let receiver = Receiver::start(move |request| served.answer(request));
    let target =
        format!("[[target]]\nid = \"hook\"\nkind = \"http\"\nurl = \"http://{}/\"\n", receiver.address());
    let config = stage.configure("player.toml", "map = \"key\"", &target);
    let checked = stage.command.good(&["player", "check", "--config", &config]).await;
    assert_eq!(text(&checked), "hook: bound 0\n");
    kill_while_delivering(&mut stage, &config, || stored.effects().len()).await;
    let line = |(position, part)| (position, String::from_utf8(part).expect("text"));
    let effects: Vec<_> = stored.effects().into_iter().map(line).collect();
    assert!(effects == log_of(&stage, "orders").await, "the effects are the log, in order");
    let checked = stage.command.good(&["player", "check", "--config", &config]).await;
    assert_eq!(text(&checked), format!("hook: bound {LINES}\n"));
    let (_, found) = status(&stage, "orders").await;
    assert_eq!(found["targets"][0].get("at_least_once"), None);
}

/// The requests to a receiver that keeps no bound: keys and bodies.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// Positions and lines in the order of their first request. Checks that only earlier requests are
/// repeated, with the same body.
fn first_requests(requests: &Requests) -> Vec<(u64, String)> {
    let mut seen = BTreeMap::new();
    let mut first = vec![];
    for (key, body) in requests.lock().expect("no test thread panicked").iter() {
        let position: u64 = key.rsplit('/').next().and_then(|end| end.parse().ok()).expect("STREAM/POSITION");
        match seen.get(&position) {
            Some(known) => assert_eq!(known, body, "a key has one body"),
            None => {
                first.push((position, body.clone()));
                seen.insert(position, body.clone());
            }
        }
    }
    first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_without_a_bound_has_each_line_at_least_once() {
    let mut stage = Stage::new().await;
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    let receiver = Receiver::start(move |request| {
        if request.method == "POST" {
            let body = String::from_utf8(request.body.clone()).expect("text");
            let key = request.headers["idempotency-key"].clone();
            seen.lock().expect("no test thread panicked").push((key, body));
        }
        (200, String::new())
    });
    let target = format!(
        "[[target]]\nid = \"hook\"\nkind = \"http\"\nurl = \"http://{}/\"\ncontract = \"key\"\n",
        receiver.address()
    );
    let config = stage.configure("player.toml", "map = \"key\"", &target);
    let checked = stage.command.good(&["player", "check", "--config", &config]).await;
    assert_eq!(text(&checked), "hook: reachable; at least once, and the control log keeps the bound\n");
    let count = || requests.lock().expect("no test thread panicked").len();
    kill_while_delivering(&mut stage, &config, count).await;
    let log = log_of(&stage, "orders").await;
    assert!(first_requests(&requests) == log, "the first requests are the log, in order, without gaps");
    let repeated = count() - log.len();
    assert!(
        repeated < LINES / 4,
        "each run begins at the recorded bound, but {repeated} requests are repeated"
    );

    // A player that ends in order repeats nothing, also after many positions without a note.
    let player = stage.play(&config, &[]).await;
    stage.append(50_000..50_100).await;
    until("the new lines arrive", || first_requests(&requests).len() == LINES + 100).await;
    let said = stage.command.good(&["player", "status", "orders"]).await;
    assert!(
        text(&said).contains("hook: at least once, because its receiver keeps no bound"),
        "{}",
        text(&said)
    );
    let (_, found) = status(&stage, "orders").await;
    assert_eq!(found["targets"][0]["at_least_once"], true);
    player.stop(Signal::INT).await;
    let before = count();
    stage.play_all(&config).await;
    assert_eq!(count(), before, "nothing is repeated");
}
