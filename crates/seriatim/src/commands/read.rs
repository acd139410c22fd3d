//! `seriatim read` and `seriatim tail`.

use std::time::Duration;

use seriatim_client::{
    Event, Log, Position, ReadError, RecordId, StoredRecord, SubscribeOptions, Subscription,
};

use crate::arguments::{PrintArguments, ReadArguments, TailArguments};
use crate::json_record::JsonRecord;
use crate::output::{Failure, Outcome, Printer};

/// How long nothing may come before the tail is looked at again: a view change may have lowered it. Also
/// how long the first look may take: a log that cannot say its tail now still gives out what is stable.
const QUIET: Duration = Duration::from_secs(2);

pub(crate) async fn read(log: Log, arguments: ReadArguments) -> Outcome {
    let tail = match tokio::time::timeout(QUIET, log.check_tail()).await {
        Ok(tail) => tail?,
        Err(_) => Position(u64::MAX),
    };
    let from = Position(arguments.from.unwrap_or(0));
    if from > tail {
        return Err(ReadError::PastTail { position: from, tail }.into());
    }
    let mut printer = Printer::new();
    let outcome = print_until(&log, from, tail, &arguments, &mut printer).await;
    // Records read before something went wrong are good, and are printed.
    printer.flush()?;
    outcome
}

/// Prints as many records as are wanted, of those below `end`. Nothing need be at the positions before the end: the
/// subscription says when it is reached.
async fn print_until(
    log: &Log,
    mut next: Position,
    mut end: Position,
    arguments: &ReadArguments,
    printer: &mut Printer,
) -> Outcome {
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let mut events = log.subscribe(next, SubscribeOptions::default().until(end)).await?;
    while left > 0 && next < end {
        let event = match tokio::time::timeout(QUIET, events.next()).await {
            Ok(Some(event)) => event?,
            Ok(None) => return Ok(()),
            Err(_) => {
                printer.flush()?;
                let tail = log.check_tail().await?;
                if tail < end {
                    end = tail;
                    events = log.subscribe(next, SubscribeOptions::default().until(end)).await?;
                }
                continue;
            }
        };
        match event {
            Event::Deliver { position, id, record, .. } => {
                print(printer, &arguments.print, position, id, &record)?;
                left -= 1;
                next = position + 1;
            }
            Event::Trimmed { first } if arguments.from.is_some() => {
                return Err(ReadError::Trimmed { first }.into());
            }
            Event::Trimmed { first } => next = first,
            _ => {}
        }
    }
    Ok(())
}

pub(crate) async fn tail(log: Log, arguments: TailArguments) -> Outcome {
    let from = match arguments.from {
        Some(from) => Position(from),
        None => log.check_tail().await?,
    };
    let mut options = SubscribeOptions::default();
    options.end = arguments.until.map(Position);
    options.speculative = arguments.speculative;
    options.filter = arguments.filter.clone();
    if let Some(shards) = &arguments.shards {
        options = options.shards(shards.iter().copied());
    }
    let mut events = log.subscribe(from, options).await?;
    let mut printer = Printer::new();
    tokio::select! {
        outcome = follow(&mut events, &arguments, &mut printer) => outcome,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn follow(events: &mut Subscription, arguments: &TailArguments, printer: &mut Printer) -> Outcome {
    loop {
        // Print at once what has come; wait only when nothing is left to print.
        let event = match next_if_ready(events).await {
            Some(event) => event,
            None => {
                printer.flush()?;
                events.next().await
            }
        };
        match event {
            Some(Ok(event)) if arguments.speculative => print_event(printer, &event)?,
            Some(Ok(Event::Deliver { position, id, record, .. })) => {
                print(printer, &arguments.print, position, id, &record)?;
            }
            Some(Ok(Event::Trimmed { first })) if arguments.from.is_some() => {
                return Err(ReadError::Trimmed { first }.into());
            }
            Some(Ok(_)) => {}
            Some(Err(cause)) => return Err(cause.into()),
            None if arguments.until.is_some() => return printer.flush(),
            None => return Err(Failure::new("the subscription ended")),
        }
    }
}

/// Prints what a subscription before records are final tells, a line of JSON each.
fn print_event(printer: &mut Printer, event: &Event) -> Outcome {
    let line = match event {
        Event::Deliver { position, id, record, speculative } => {
            let record = JsonRecord::delivered(*position, *id, record).speculative(*speculative);
            serde_json::to_string(&record)?
        }
        Event::Confirm { upto } => serde_json::json!({ "confirm": upto.0 }).to_string(),
        Event::Fail { after } => serde_json::json!({ "fail": after.0 }).to_string(),
        Event::Trimmed { first } => serde_json::json!({ "trimmed": first.0 }).to_string(),
        _ => return Ok(()),
    };
    printer.line(line)
}

/// Prints a record as it was appended, and what ends it; or as a line of JSON.
fn print(
    printer: &mut Printer,
    how: &PrintArguments,
    position: Position,
    id: RecordId,
    record: &StoredRecord,
) -> Outcome {
    if how.json {
        let line = JsonRecord::delivered(position, id, record);
        return printer.line(serde_json::to_string(&line)?);
    }
    printer.bytes(&record.payload())?;
    printer.bytes(if how.null { b"\0" } else { b"\n" })
}

/// The next event, if it is there already.
async fn next_if_ready(events: &mut Subscription) -> Option<Option<Result<Event, ReadError>>> {
    tokio::select! {
        biased;
        event = events.next() => Some(event),
        () = std::future::ready(()) => None,
    }
}
