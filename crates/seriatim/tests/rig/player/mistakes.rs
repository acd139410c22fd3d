//! Mistakes of users: one sentence each, exit status 1, and nothing changes.

use super::Stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_are_reported_in_one_sentence() {
    let mut stage = Stage::new().await;
    let ledger = stage.database("ledger.db");
    let config = stage.configure("player.toml", "map = \"key\"", &ledger.target("ledger"));
    let bad = async |config: &str| {
        let (_, said) = stage.command.bad(&["player", "run", "--config", config]).await;
        said
    };
    let unknown = stage.configure("unknown.toml", "map = \"key\"\ncolour = 1", &ledger.target("ledger"));
    assert!(bad(&unknown).await.contains("unknown field `colour`"));
    let twice = format!("{}{}", ledger.target("ledger"), ledger.target("ledger"));
    let twice = stage.configure("twice.toml", "map = \"key\"", &twice);
    assert!(bad(&twice).await.contains("ledger"));
    let none = stage.configure("none.toml", "map = \"key\"", "");
    assert!(bad(&none).await.contains("target"));
    let missing = bad("/nowhere/player.toml").await;
    assert!(missing.contains("cannot read the configuration"), "{missing}");
    let (_, said) = stage.command.bad(&["player", "status", "nobody"]).await;
    assert!(said.contains("no player 'nobody' has ever run"), "{said}");

    let copying = "[[target]]\nid = \"mirror\"\nkind = \"log\"\nlog = \"copy\"\n";
    let copying = stage.configure("copying.toml", "map = \"key\"", copying);
    assert!(bad(&copying).await.contains("target 'mirror': there is no log 'copy'; create it with"));
    stage.command.good(&["log", "create", "copy", "--order", "scalog"]).await;
    let said = bad(&copying).await;
    assert!(
        said.contains("target 'mirror': the log 'copy' has the ordering scalog, whose sessions do"),
        "{said}"
    );
    let checked = stage.command.run(&["player", "check", "--config", &copying]).await;
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        crate::command::text(&checked.stdout).starts_with("mirror: the log 'copy' has the ordering scalog")
    );
    let (_, said) = stage.command.bad(&["player", "status", "orders"]).await;
    assert!(said.contains("no player 'orders' has ever run"), "nothing changed: {said}");

    // Another log of the same name is another stream.
    stage.append(0..5).await;
    stage.play_all(&config).await;
    stage.command.good(&["log", "delete", "orders"]).await;
    stage.command.good(&["log", "create", "orders"]).await;
    let player = stage.play(&config, &["--take-over"]).await;
    super::until("the target stops", || stage.said().contains("it has a bound of another log")).await;
    stage.append(100..110).await;
    stage.command.good(&["player", "adopt", "orders", "ledger", "4"]).await;
    super::until("it continues from the given position", || ledger.rows().len() == 5 + 6).await;
    player.kill().await;
}
