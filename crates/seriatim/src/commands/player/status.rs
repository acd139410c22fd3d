//! `seriatim player status`.

use std::time::Duration;

use indicatif::HumanDuration;
use seriatim_client::Client;
use seriatim_player::Stage;
use seriatim_player::control::{ControlLog, StatusRecord, TargetRecord};

use crate::output::{Failure, Outcome, note, print_line};

/// Interval between two questions of `--watch` while the player reports nothing.
const ASK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(client: &Client, name: &str, json: bool, watch: bool) -> Outcome {
    let control = ControlLog::open(client, name).await?;
    let mut asking = seriatim_player::control::Asking::start(&control).await?;
    let mut status = asking.answer().await?;
    if status.is_none() {
        note(format_args!("no player '{name}' responds; this is its last status"));
        status = asking.last();
    }
    let Some(status) = status else {
        return Err(Failure::new(format!("the player '{name}' has reported no status yet")));
    };
    print(&status, json)?;
    if watch {
        loop {
            if let Some(status) = asking.next(ASK_EVERY).await? {
                print(&status, json)?;
            }
        }
    }
    let stopped = Stage::Stopped.to_string();
    if status.targets.iter().any(|target| target.state == stopped) { Err(Failure::Unwell) } else { Ok(()) }
}

fn print(status: &StatusRecord, json: bool) -> Outcome {
    if json {
        print_line(serde_json::to_string(status)?);
        return Ok(());
    }
    let StatusRecord { holder, epoch, log, dispatched, tail, .. } = status;
    let read = dispatched.map_or("nothing".into(), |position| format!("to {position}"));
    print_line(format_args!("log {log}, {holder}, epoch {epoch}; tail {tail}, read {read}"));
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["TARGET", "STATE", "BOUND", "LAG", "AGE", "QUEUED", "SESSIONS", "REJECTED"]);
    for target in &status.targets {
        table.add_row(row(target));
    }
    print_line(table);
    for target in &status.targets {
        if let Some(error) = &target.last_error {
            print_line(format_args!("{}: {error}", target.id));
        }
    }
    for target in status.targets.iter().filter(|target| target.at_least_once) {
        print_line(format_args!("{}: at least once, because its receiver keeps no bound", target.id));
    }
    for (name, count, first) in &status.unknown {
        print_line(format_args!(
            "{count} messages name the target '{name}', which is not configured, from position {first} on"
        ));
    }
    Ok(())
}

fn row(target: &TargetRecord) -> [String; 8] {
    let age = match target.lag_ms {
        0 => "-".to_owned(),
        ms => HumanDuration(Duration::from_millis(ms)).to_string(),
    };
    [
        target.id.clone(),
        target.state.clone(),
        target.bound.to_string(),
        target.lag_entries.to_string(),
        age,
        target.queued.to_string(),
        target.sessions.to_string(),
        target.rejected.to_string(),
    ]
}
