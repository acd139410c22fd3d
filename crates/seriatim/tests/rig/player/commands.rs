//! Commands of an operator to a player.

use rustix::process::Signal;

use super::{Stage, log_of, status, until};
use crate::command::text;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_entry_stops_its_target_alone_until_an_operator_decides() {
    let mut stage = Stage::new().await;
    let (bad, good) = (stage.database("bad.db"), stage.database("good.db"));
    // The table `bad` refuses 'line 13'.
    let free = rusqlite::Connection::open(stage.path("good.db")).expect("a database");
    free.execute_batch("drop table entries; create table entries (number integer primary key autoincrement, position integer, body text)")
        .expect("a table without the check");
    let routes = "[[route]]\nto = \"bad\"\n[[route]]\nto = \"good\"\n";
    let targets = format!("{routes}{}{}", bad.target("bad"), good.target("good"));
    let config = stage.configure("player.toml", "all = true", &targets);
    let player = stage.play(&config, &[]).await;
    stage.append(10..20).await;
    until("the other target receives all", || good.rows().len() == 10).await;
    until("the target stops", || {
        stage.said().contains("target bad is stopped: it rejected the entry at position 3")
    })
    .await;
    let (code, found) = status(&stage, "orders").await;
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(
        (&found["targets"][0]["state"], &found["targets"][0]["bound"]),
        (&"stopped".into(), &3.into())
    );
    assert_eq!(bad.rows().len(), 3, "the entries before it are applied");

    let (_, said) = stage.command.bad(&["player", "skip", "orders", "bad", "5"]).await;
    assert!(said.contains("the target's bound is 3, not 5"), "{said}");
    let (_, said) = stage.command.bad(&["player", "skip", "orders", "worse", "3"]).await;
    assert!(said.contains("no target 'worse'"), "{said}");
    assert_eq!(text(&stage.command.good(&["player", "retry", "orders", "bad"]).await), "done\n");
    until("it stops again", || stage.said().matches("target bad is stopped").count() == 2).await;
    assert_eq!(text(&stage.command.good(&["player", "dead-letter", "orders", "bad", "3"]).await), "done\n");
    until("the others follow", || bad.rows().len() == 9).await;
    let letters = log_of(&stage, "orders.dead").await;
    let letter: serde_json::Value = serde_json::from_str(&letters[0].1).expect("a dead letter is JSON");
    assert_eq!((&letter["target"], &letter["position"]), (&"bad".into(), &3.into()));
    assert_eq!(letter["parts"][0], "line 13");

    let (_, said) = stage.command.bad(&["player", "resume", "orders", "bad"]).await;
    assert!(said.contains("not paused"), "{said}");
    stage.append(20..25).await;
    until("new entries follow", || bad.rows().len() == 14).await;
    let (code, _) = status(&stage, "orders").await;
    assert_eq!(code, Some(0));
    player.stop(Signal::INT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_without_a_player_waits_for_the_next_one() {
    let mut stage = Stage::new().await;
    let bad = stage.database("bad.db");
    let config = stage.configure("player.toml", "map = \"key\"", &bad.target("bad"));
    let player = stage.play(&config, &[]).await;
    stage.append(13..16).await;
    until("the target stops", || stage.said().contains("target bad is stopped")).await;
    player.kill().await;
    let output = stage.command.run(&["player", "skip", "orders", "bad", "0"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("no player 'orders' is running"), "{}", text(&output.stderr));
    let player = stage.play(&config, &["--take-over"]).await;
    until("the entry is skipped", || bad.rows().len() == 2).await;
    player.stop(Signal::INT).await;
}
