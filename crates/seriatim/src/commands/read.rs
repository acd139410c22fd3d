//! `seriatim read` and `seriatim tail`.

use std::time::{Duration, Instant};

use seriatim_client::{
    Event, Log, Position, ReadError, RecordId, StoredRecord, SubscribeOptions, Subscription,
};

use crate::arguments::{PrintArguments, ReadArguments, TailArguments};
use crate::json_record::JsonRecord;
use crate::output::{Failure, Outcome, Printer, note};

/// Silence after which the tail is checked again, because a view change may have lowered it. Also
/// the longest first check: a log that cannot report its tail still serves stable records.
const QUIET: Duration = Duration::from_secs(2);

/// Silence after which a reader reports its wait.
const TELL_AFTER: Duration = Duration::from_secs(4);
/// Interval between such lines.
const TELL_EVERY: Duration = Duration::from_secs(10);

pub(crate) async fn read(log: Log, arguments: ReadArguments) -> Outcome {
    let tail = match tokio::time::timeout(QUIET, log.check_tail()).await {
        Ok(tail) => tail?,
        Err(_) => Position(u64::MAX),
    };
    let from = Position(arguments.from.unwrap_or(0));
    if from > tail {
        return Err(ReadError::PastTail { position: from, tail }.into());
    }
    let (mut printer, mut losses) = (Printer::new(), Losses::default());
    let outcome = print_until(&log, from, tail, &arguments, &mut printer, &mut losses).await;
    // Print records read before the failure.
    printer.flush()?;
    losses.tell();
    outcome
}

#[derive(Default)]
struct Losses {
    runs: u64,
    positions: u64,
    first: Position,
    end: Position,
}

impl Losses {
    fn add(&mut self, from: Position, end: Position) {
        if self.runs == 0 {
            self.first = from;
        }
        (self.runs, self.positions, self.end) = (self.runs + 1, self.positions + (end - from), end);
    }

    /// Reports them on standard error: standard output has only records.
    fn tell(&mut self) {
        let Self { runs, positions, first, end } = std::mem::take(self);
        let positions =
            if positions == 1 { "1 position".to_owned() } else { format!("{positions} positions") };
        match runs {
            0 => {}
            1 => note(format_args!("skipped lost records: {positions} from {first} to {end}")),
            _ => {
                note(format_args!("skipped lost records: {positions} in {runs} places from {first} to {end}"))
            }
        }
    }
}

/// Notices on standard error for a reader without new records.
struct Notices {
    position: Option<Position>,
    /// Start of the wait at this position.
    since: Instant,
    told: Option<Instant>,
}

impl Notices {
    fn new() -> Self {
        Self { position: None, since: Instant::now(), told: None }
    }

    /// Reports what a quiet subscription waits for. A missing successor matters only if a record
    /// `is_owed`, or cannot come.
    async fn quiet(&mut self, events: &Subscription, is_owed: bool) {
        let Some(awaited) = events.awaited().await else { return };
        let cannot_come = !awaited.shards.is_empty() || awaited.unavailable.is_some();
        if self.note_quiet(Instant::now(), awaited.position) && (is_owed || cannot_come) {
            self.told = Some(Instant::now());
            note(format_args!("{awaited}; see 'seriatim status'"));
        }
    }

    /// Notes the wait at this position. Returns whether to report it.
    fn note_quiet(&mut self, now: Instant, position: Position) -> bool {
        if self.position != Some(position) {
            (self.position, self.since) = (Some(position), now);
        }
        now >= self.since + TELL_AFTER && self.told.is_none_or(|told| now >= told + TELL_EVERY)
    }
}

/// Adds the option that skips a loss.
fn failed(cause: ReadError) -> Failure {
    match &cause {
        ReadError::Failed(seriatim_client::Failure::Lost { .. }) => {
            Failure::new(format!("{cause}, or with --skip-lost"))
        }
        ReadError::Failed(seriatim_client::Failure::Reassigned { start, .. }) => {
            Failure::new(format!("{cause}, with --from {start}"))
        }
        _ => cause.into(),
    }
}

/// Prints the wanted number of records below `end`. Positions before the end may be empty: the
/// subscription reports when it reaches the end.
async fn print_until(
    log: &Log,
    mut next: Position,
    mut end: Position,
    arguments: &ReadArguments,
    printer: &mut Printer,
    losses: &mut Losses,
) -> Outcome {
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let mut options = SubscribeOptions::default();
    options.skip_lost = arguments.skip_lost;
    let mut events = log.subscribe(next, options.clone().until(end)).await?;
    let mut notices = Notices::new();
    while left > 0 && next < end {
        let event = match tokio::time::timeout(QUIET, events.next()).await {
            Ok(Some(event)) => event.map_err(failed)?,
            Ok(None) => return Ok(()),
            Err(_) => {
                printer.flush()?;
                notices.quiet(&events, true).await;
                let tail = log.check_tail().await?;
                if tail < end {
                    end = tail;
                    events = log.subscribe(next, options.clone().until(end)).await?;
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
            Event::Lost { from, end, .. } => {
                losses.add(from, end);
                next = end;
            }
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
    if let Some(until) = arguments.until.map(Position).filter(|until| *until < from) {
        return Err(Failure::new(format!(
            "nothing to print below position {until}: printing starts at the tail, {from}; give --from"
        )));
    }
    let mut options = SubscribeOptions::default();
    options.end = arguments.until.map(Position);
    options.speculative = arguments.speculative;
    options.filter = arguments.filter.clone();
    options.skip_lost = arguments.skip_lost;
    if let Some(shards) = &arguments.shards {
        options = options.shards(shards.iter().copied());
    }
    let mut events = log.subscribe(from, options).await?;
    let (mut printer, mut losses) = (Printer::new(), Losses::default());
    let outcome = tokio::select! {
        outcome = follow(&mut events, &arguments, &mut printer, &mut losses) => outcome,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    losses.tell();
    outcome
}

async fn follow(
    events: &mut Subscription,
    arguments: &TailArguments,
    printer: &mut Printer,
    losses: &mut Losses,
) -> Outcome {
    let mut notices = Notices::new();
    loop {
        // Print buffered events at once, and wait only when none is left.
        let event = match next_if_ready(events).await {
            Some(event) => event,
            None => {
                printer.flush()?;
                losses.tell();
                next_with_notices(events, &mut notices).await
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
            Some(Ok(Event::Lost { from, end, .. })) => losses.add(from, end),
            Some(Ok(_)) => {}
            Some(Err(cause)) => {
                printer.flush()?;
                return Err(failed(cause));
            }
            None if arguments.until.is_some() => return printer.flush(),
            None => return Err(Failure::new("the subscription ended")),
        }
    }
}

fn print_event(printer: &mut Printer, event: &Event) -> Outcome {
    let line = match event {
        Event::Deliver { position, id, record, speculative } => {
            let record = JsonRecord::delivered(*position, *id, record).speculative(*speculative);
            serde_json::to_string(&record)?
        }
        Event::Confirm { upto } => serde_json::json!({ "confirm": upto.0 }).to_string(),
        Event::Fail { after } => serde_json::json!({ "fail": after.0 }).to_string(),
        Event::Trimmed { first } => serde_json::json!({ "trimmed": first.0 }).to_string(),
        Event::Lost { shard, from, end } => {
            serde_json::json!({ "lost": from.0, "end": end.0, "shard": shard.0 }).to_string()
        }
        _ => return Ok(()),
    };
    printer.line(line)
}

/// Prints a record with its delimiter, or as a line of JSON.
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

/// The next event. Reports a wait unless no record was appended.
async fn next_with_notices(
    events: &mut Subscription,
    notices: &mut Notices,
) -> Option<Result<Event, ReadError>> {
    loop {
        match tokio::time::timeout(QUIET, events.next()).await {
            Ok(event) => return event,
            Err(_) => notices.quiet(events, false).await,
        }
    }
}

async fn next_if_ready(events: &mut Subscription) -> Option<Option<Result<Event, ReadError>>> {
    tokio::select! {
        biased;
        event = events.next() => Some(event),
        () = std::future::ready(()) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_told_what_it_waits_for_after_a_while_and_now_and_then() {
        let (begin, mut notices) = (Instant::now(), Notices::new());
        let mut is_due = |seconds, position| {
            let now = begin + Duration::from_secs(seconds);
            let is_due = notices.note_quiet(now, Position(position));
            notices.told = if is_due { Some(now) } else { notices.told };
            is_due
        };
        let first = [(2, 10), (6, 20), (8, 30), (10, 30), (12, 30)];
        assert_eq!(first.map(|(now, at)| is_due(now, at)), [false, false, false, false, true]);
        assert_eq!([14, 21, 22, 24].map(|now| is_due(now, 30)), [false, false, true, false]);
        assert_eq!([40, 43, 44].map(|now| is_due(now, 40)), [false, false, true], "it has got on meanwhile");
    }
}
