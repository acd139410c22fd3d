//! `seriatim append`: the lines of a file, a record each.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};

use bytes::Bytes;
use serde_json::json;
use seriatim_client::{Append, AppendError, AppendOptions, Log, Receipt, Record};
use seriatim_model::{ShardId, View};
use tokio::sync::mpsc;

use crate::arguments::AppendArguments;
use crate::output::{Failure, Outcome, Printer, progress};

/// How many appends are in flight at most. Together with the log's own window this bounds memory.
const IN_FLIGHT: usize = 4096;
/// How many lines travel from the reading thread at once.
const CHUNK_LINES: usize = 256;
/// How many bytes they have at most, unless a line is longer.
const CHUNK_BYTES: usize = 256 << 10;

pub(crate) async fn run(log: Log, arguments: AppendArguments) -> Outcome {
    let mut options = AppendOptions::default();
    options.sync = arguments.sync;
    if let Some(shard) = arguments.shard {
        check_shard(&log, ShardId(shard))?;
        options = options.to_shard(shard);
    }
    let mut lines = lines_of(&arguments)?;
    let mut printer = Printer::new();
    let bar = progress(None, "records");
    let mut in_flight: VecDeque<Append> = VecDeque::new();
    let mut acknowledged: u64 = 0;
    let mut outcome = Ok(());
    'input: while let Some(chunk) = lines.recv().await {
        for line in chunk? {
            // Receipts come in the order of the lines, so the oldest is the one to wait for.
            if in_flight.len() >= IN_FLIGHT
                && let Some(oldest) = in_flight.pop_front()
            {
                outcome = settle(oldest, &mut acknowledged, arguments.json, &mut printer).await;
                if outcome.is_err() {
                    break 'input;
                }
                bar.set_position(acknowledged);
            }
            let record = match &arguments.key {
                Some(key) => Record::from(line).with_key(key.clone()),
                None => line.into(),
            };
            match log.submit_with(record, options).await {
                Ok(append) => in_flight.push_back(append),
                Err(cause) => {
                    outcome = Err(failed(acknowledged + in_flight.len() as u64, &cause));
                    break 'input;
                }
            }
        }
    }
    // What was submitted before a line that could not be is appended all the same: say so truthfully.
    for append in in_flight {
        let settled = settle(append, &mut acknowledged, arguments.json, &mut printer).await;
        outcome = outcome.and(settled);
        if outcome.is_err() && acknowledged == 0 {
            break;
        }
        bar.set_position(acknowledged);
    }
    bar.finish_and_clear();
    printer.flush()?;
    outcome
}

/// Says what is wrong before the first line is read.
fn check_shard(log: &Log, shard: ShardId) -> Outcome {
    let order = log.entry().config.order;
    if order.places_by_position() {
        return Err(AppendError::NoChoice(order).into());
    }
    let open = log.entry().view.as_ref().map(View::open_shards).unwrap_or_default();
    if open.contains(&shard) || open.is_empty() {
        return Ok(());
    }
    Err(AppendError::NoSuchShard { shard, open: open.to_vec() }.into())
}

async fn settle(append: Append, acknowledged: &mut u64, as_json: bool, printer: &mut Printer) -> Outcome {
    match append.await {
        Ok(receipt) => {
            *acknowledged += 1;
            if as_json { printer.line(describe(&receipt)) } else { Ok(()) }
        }
        Err(cause) => Err(failed(*acknowledged, &cause)),
    }
}

fn failed(line_index: u64, cause: &AppendError) -> Failure {
    let line = line_index + 1;
    Failure::new(format!(
        "line {line}: {cause}; {line_index} lines before it were appended, later ones may be"
    ))
}

fn describe(receipt: &Receipt) -> serde_json::Value {
    json!({
        "session": receipt.id.session.to_string(),
        "number": receipt.id.number,
        "durability": receipt.durability.to_string(),
        "position": receipt.position.map(|position| position.0),
        "appended_again": receipt.appended_again,
    })
}

/// Reads lines on a thread of its own, a bounded number ahead.
fn lines_of(arguments: &AppendArguments) -> Result<mpsc::Receiver<Result<Vec<Bytes>, Failure>>, Failure> {
    let (input, name): (Box<dyn Read + Send>, String) = match &arguments.file {
        Some(path) if path.as_os_str() != "-" => {
            let name = path.display().to_string();
            let file = std::fs::File::open(path).map_err(|cause| Failure::new(format!("{name}: {cause}")))?;
            (Box::new(file), name)
        }
        _ => (Box::new(std::io::stdin()), "standard input".to_owned()),
    };
    let (chunks, lines) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut input = BufReader::with_capacity(256 << 10, input);
        loop {
            let chunk = read_chunk(&mut input).map_err(|cause| Failure::new(format!("{name}: {cause}")));
            let is_last = chunk.as_ref().is_ok_and(Vec::is_empty);
            if is_last || chunks.blocking_send(chunk).is_err() {
                break;
            }
        }
    });
    Ok(lines)
}

/// The next lines, without their newlines; nothing at the end. An unterminated last line is a line too.
fn read_chunk(input: &mut BufReader<impl Read>) -> std::io::Result<Vec<Bytes>> {
    let mut lines = vec![];
    let mut bytes = 0;
    while lines.len() < CHUNK_LINES && bytes < CHUNK_BYTES {
        let mut line = vec![];
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        bytes += line.len();
        lines.push(line.into());
        // What a person types is appended at once: reading on might wait for more.
        if input.buffer().is_empty() {
            break;
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_as_they_are() {
        let mut input = BufReader::new(&b"a\n\n\0b\r\nlast"[..]);
        let lines = read_chunk(&mut input).unwrap();
        assert_eq!(lines, [&b"a"[..], b"", b"\0b\r", b"last"]);
        assert!(read_chunk(&mut input).unwrap().is_empty());
    }
}
