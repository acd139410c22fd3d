//! `seriatim append`: appends the lines of a file, one record each.

mod input;
mod resume;

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Instant;

use indicatif::{HumanCount, ProgressBar};
use serde_json::json;
use seriatim_client::{Append, AppendError, AppendOptions, Client, Log, LogOptions, Receipt};
use seriatim_model::{ShardId, View};

use self::input::{Format, Input, Item, Reading, Rest};
use self::resume::{Earlier, Prefix, Progress};
use super::signals::Signals;
use crate::arguments::AppendArguments;
use crate::output::{Failure, Outcome, Printer, note, progress, progress_of_bytes};

/// Most appends in flight. With the log's window this bounds memory.
const IN_FLIGHT: usize = 4096;

pub(crate) async fn run(client: &Client, arguments: AppendArguments) -> Outcome {
    let earlier = arguments.resume.as_deref().map(Earlier::load).transpose()?;
    let mut options = match &earlier {
        _ if arguments.unordered => LogOptions::unordered(1),
        // A later run continues the session.
        Some(_) => LogOptions::default(),
        None => LogOptions::ending_when_dropped(),
    };
    options.resume = earlier.as_ref().map(Earlier::session).transpose()?.flatten();
    let log = client.log_with(&arguments.name, options).await?;
    let mut appending = AppendOptions::default();
    appending.sync = arguments.sync;
    if let Some(shard) = arguments.shard {
        check_shard(&log, ShardId(shard))?;
        appending = appending.to_shard(shard);
    }
    let input = Input::open(&arguments)?;
    let progress = match earlier {
        Some(earlier) => Some(earlier.begin(&log).await?),
        None => None,
    };
    Run::new(log, &arguments, appending, input, progress)?.finish().await
}

/// Checks the chosen shard before the first line is read.
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

struct Run {
    log: Log,
    options: AppendOptions,
    unit: &'static str,
    reading: Reading,
    in_flight: VecDeque<(Append, Prefix)>,
    /// The input whose records are all in the log, by this or an earlier run.
    done: Prefix,
    submitted: u64,
    progress: Option<Progress>,
    printer: Printer,
    prints_receipts: bool,
    bar: ProgressBar,
    began: (Instant, u64),
    signals: Signals,
}

enum Happening {
    /// Outcome of the oldest append in flight.
    Outcome(Result<Receipt, AppendError>, Prefix),
    /// The next chunk of the input. None at its end.
    Input(Option<Vec<Result<Item, Failure>>>),
    /// A signal to stop.
    Told,
}

impl Run {
    fn new(
        log: Log,
        arguments: &AppendArguments,
        options: AppendOptions,
        input: Input,
        progress: Option<Progress>,
    ) -> Result<Self, Failure> {
        let format = Format::of(arguments, log.entry().config.max_record_bytes);
        let done = progress.as_ref().map(Progress::done).unwrap_or_default();
        let bar = match input.len {
            Some(len) => progress_of_bytes(len),
            None => self::progress(None, "records"),
        };
        Ok(Self {
            log,
            options,
            unit: format.unit(),
            reading: input.read(format, done),
            in_flight: VecDeque::new(),
            done,
            submitted: done.records,
            progress,
            printer: Printer::new(),
            prints_receipts: arguments.json,
            bar,
            began: (Instant::now(), done.records),
            signals: Signals::new().map_err(|cause| Failure::new(format!("cannot start: {cause}")))?,
        })
    }

    async fn finish(mut self) -> Outcome {
        let outcome = self.append_all().await;
        self.bar.finish_and_clear();
        let saved = self.progress.as_mut().map_or(Ok(()), Progress::save);
        let printed = self.printer.flush();
        outcome.and(saved).and(printed)?;
        self.tell_of_the_end()
    }

    async fn append_all(&mut self) -> Outcome {
        loop {
            match self.next(true).await? {
                Happening::Outcome(outcome, upto) => self.record(outcome, upto)?,
                Happening::Input(Some(items)) => {
                    for item in items {
                        self.submit(item).await?;
                    }
                }
                Happening::Input(None) => return self.await_the_rest().await,
                Happening::Told => return Err(self.interrupted()),
            }
        }
    }

    async fn await_the_rest(&mut self) -> Outcome {
        while !self.in_flight.is_empty() {
            match self.next(false).await? {
                Happening::Outcome(outcome, upto) => self.record(outcome, upto)?,
                Happening::Input(_) => {}
                Happening::Told => return Err(self.interrupted()),
            }
        }
        Ok(())
    }

    /// The next event. Flushes the printed text before it waits.
    async fn next(&mut self, has_more: bool) -> Result<Happening, Failure> {
        let ready = tokio::select! {
            biased;
            happening = self.happening(has_more) => Some(happening),
            () = std::future::ready(()) => None,
        };
        match ready {
            Some(happening) => Ok(happening),
            None => {
                self.printer.flush()?;
                Ok(self.happening(has_more).await)
            }
        }
    }

    async fn happening(&mut self, has_more: bool) -> Happening {
        let wants_more = has_more && self.in_flight.len() < IN_FLIGHT;
        let oldest = async {
            match self.in_flight.front_mut() {
                // Receipts come in the order of the records.
                Some((append, _)) => append.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.signals.told() => Happening::Told,
            outcome = oldest => {
                let (_, upto) = self.in_flight.pop_front().expect("it was waited for");
                Happening::Outcome(outcome, upto)
            }
            chunk = self.reading.chunks.recv(), if wants_more => Happening::Input(chunk),
        }
    }

    /// Submits the next record. On failure it waits for the records before it.
    async fn submit(&mut self, item: Result<Item, Failure>) -> Outcome {
        let Item { record, upto } = match item {
            Ok(item) => item,
            Err(failure) => {
                self.await_the_rest().await?;
                return Err(failure);
            }
        };
        let log = self.log.clone();
        let mut submitting = pin!(log.submit_with(record, self.options));
        // A full window must not delay receipts.
        let submitted = loop {
            tokio::select! {
                biased;
                submitted = &mut submitting => break submitted,
                happening = self.next(false) => match happening? {
                    Happening::Outcome(outcome, upto) => self.record(outcome, upto)?,
                    Happening::Told => return Err(self.interrupted()),
                    Happening::Input(_) => {}
                },
            }
        };
        match submitted {
            Ok(append) => {
                self.in_flight.push_back((append, upto));
                self.submitted += 1;
                Ok(())
            }
            Err(cause) => {
                self.await_the_rest().await?;
                Err(self.failed(upto, &cause))
            }
        }
    }

    fn record(&mut self, outcome: Result<Receipt, AppendError>, upto: Prefix) -> Outcome {
        let receipt = match outcome {
            Ok(receipt) => describe(&receipt),
            // An earlier run appended it.
            Err(AppendError::AppendedBefore) => json!({ "appended_before": true }),
            Err(AppendError::NotAppended) => return Err(self.leave_out(upto)),
            Err(cause) => return Err(self.failed(upto, &cause)),
        };
        self.done = upto;
        if let Some(progress) = &mut self.progress {
            progress.acknowledged(upto)?;
        }
        match self.bar.length() {
            Some(_) => self.bar.set_position(upto.bytes),
            None => self.bar.set_position(upto.records),
        }
        if self.prints_receipts { self.printer.line(receipt) } else { Ok(()) }
    }

    /// The log lacks this record and may have later ones: the next run continues behind it.
    fn leave_out(&mut self, upto: Prefix) -> Failure {
        let failure = self.failed(upto, &AppendError::NotAppended);
        if let Some(progress) = &mut self.progress {
            progress.leaves_out(upto);
        }
        failure
    }

    fn failed(&self, upto: Prefix, cause: &AppendError) -> Failure {
        let (unit, number, before) = (self.unit, upto.records, self.done.records);
        let again = self.how_to_go_on();
        Failure::new(format!(
            "{unit} {number}: {cause}; {before} {unit}s before it were appended, later ones may be{again}"
        ))
    }

    fn interrupted(&self) -> Failure {
        let (unit, done, in_doubt) = (self.unit, self.done.records, self.submitted - self.done.records);
        let in_doubt = match in_doubt {
            0 => String::new(),
            some => format!(", and up to {some} after them may be in the log"),
        };
        let (left_out, again) = (self.left_out_rest(), self.how_to_go_on());
        Failure::Interrupted(format!(
            "interrupted: {done} {unit}s were acknowledged{in_doubt}{left_out}{again}"
        ))
    }

    /// Empty if there is no such record.
    fn left_out_rest(&self) -> String {
        let unit = self.unit;
        self.reading.unfinished().map_or_else(String::new, |Rest { number, bytes }| {
            format!("; {unit} {number} has no end yet ({bytes} bytes were read) and was left out")
        })
    }

    fn how_to_go_on(&self) -> &'static str {
        if self.progress.is_some() { "; run the same command again to continue" } else { "" }
    }

    /// Prints the rate on a terminal. Fails if earlier runs left records out.
    fn tell_of_the_end(&self) -> Outcome {
        let (began, before) = self.began;
        if !self.bar.is_hidden() {
            let records = self.done.records - before;
            let seconds = began.elapsed().as_secs_f64();
            let rate = HumanCount((records as f64 / seconds.max(0.001)) as u64);
            note(format_args!("{} records in {seconds:.1} s, {rate}/s", HumanCount(records)));
        }
        match self.progress.as_ref().map(Progress::left_out) {
            None | Some([]) => Ok(()),
            Some(left_out) => Err(Failure::new(format!(
                "the log has everything but these {}s, which did not reach their shard in time: {}; append them separately",
                self.unit,
                left_out.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
            ))),
        }
    }
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
