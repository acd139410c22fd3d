//! `seriatim trim`: deletes records, and reports the freed space.

use std::time::Duration;

use seriatim_client::{Client, LogUse, NodeId, Position};

use crate::arguments::bytes_in_words;
use crate::output::{Failure, Outcome, print_line};

/// Interval between checks for deleted files.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Longest wait for their deletion.
const FREED_WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn run(client: &Client, name: &str, position: Position, despite_pins: bool) -> Outcome {
    let before = use_of(client, name).await?;
    let log = client.log(name).await?;
    match despite_pins {
        true => log.trim_despite_pins(position).await?,
        false => log.trim(position).await?,
    }
    let (after, is_over) = freed(client, name).await?;
    let first = after.first.max(position);
    if !is_over {
        return Err(Failure::new(keeps(client, name, first, &after).await));
    }
    let freed = match before.bytes.saturating_sub(after.bytes) {
        0 => "freed nothing yet: a segment, of up to 64 MiB, is deleted when all of it is trimmed".to_owned(),
        bytes => format!("freed {}", bytes_in_words(bytes)),
    };
    print_line(format_args!("trimmed to {first}: {freed}{}", unasked(&after.silent)));
    Ok(())
}

async fn use_of(client: &Client, name: &str) -> Result<LogUse, Failure> {
    let entry = client.lookup(name).await?;
    Ok(client.log_use(&entry).await)
}

/// Waits until the responding nodes have deleted trimmed files. Returns the log's use of disks, and
/// whether they have.
async fn freed(client: &Client, name: &str) -> Result<(LogUse, bool), Failure> {
    let began = tokio::time::Instant::now();
    let mut again = tokio::time::interval(LOOK_EVERY);
    loop {
        again.tick().await;
        let found = use_of(client, name).await?;
        let is_over = found.going.is_empty();
        if is_over || began.elapsed() >= FREED_WITHIN {
            return Ok((found, is_over));
        }
    }
}

/// Why space is not free.
async fn keeps(client: &Client, name: &str, first: Position, after: &LogUse) -> String {
    let mut nodes = vec![];
    for (node, bytes) in &after.going {
        let is_full = client.condition(*node).await.is_some_and(|found| found.has_full_disk);
        let why = if is_full { "its disk is full" } else { "it has not deleted them yet" };
        nodes.push(format!("node {node} still keeps {} of them: {why}", bytes_in_words(*bytes)));
    }
    format!(
        "'{name}' is trimmed to {first}, but after {} s some files of trimmed records are not deleted: {}; if this lasts, make \
         room for a few KiB, and see 'seriatim status'",
        FREED_WITHIN.as_secs(),
        nodes.join(", ")
    )
}

/// The silent nodes. Empty if all responded.
fn unasked(silent: &[NodeId]) -> String {
    let nodes: Vec<String> = silent.iter().map(NodeId::to_string).collect();
    if nodes.is_empty() {
        String::new()
    } else {
        format!("; without node {}, which did not answer", nodes.join(", "))
    }
}
