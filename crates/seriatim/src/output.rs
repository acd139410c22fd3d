//! Output for people and scripts.

use std::backtrace::Backtrace;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use tokio::sync::watch;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::{EventArguments, LogFormat};
use crate::lines::LineQueue;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Message(String),
    /// A signal stopped the command. The text lists the completed work.
    Interrupted(String),
    /// A problem that the output already shows.
    Unwell,
    /// The reader closed standard output, as `head` does. No message.
    NobodyReads,
}

/// Exit status after an interrupt, as shells use it for SIGINT.
const INTERRUPTED: u8 = 130;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    /// Prints the message, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if let Self::Message(message) | Self::Interrupted(message) = self {
            let _ = io::stderr().write_all(described(message).as_bytes());
        }
        match self {
            Self::Interrupted(_) => ExitCode::from(INTERRUPTED),
            Self::Message(_) | Self::Unwell | Self::NobodyReads => ExitCode::FAILURE,
        }
    }
}

fn described(message: &str) -> String {
    format!("seriatim: {message}\n")
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Message(error.to_string())
    }
}

pub(crate) type Outcome = Result<(), Failure>;

/// Buffered standard output. `flush` writes the buffered text.
pub(crate) struct Printer {
    out: io::BufWriter<io::Stdout>,
}

impl Printer {
    pub(crate) fn new() -> Self {
        Self { out: io::BufWriter::with_capacity(256 << 10, io::stdout()) }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        self.out.write_all(bytes).map_err(failed_print)
    }

    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Outcome {
        writeln!(self.out, "{line}").map_err(failed_print)
    }

    pub(crate) fn flush(&mut self) -> Outcome {
        self.out.flush().map_err(failed_print)
    }
}

fn failed_print(cause: io::Error) -> Failure {
    match cause.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyReads,
        _ => Failure::new(format!("cannot print: {cause}")),
    }
}

pub(crate) fn note(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Target of events that a server reports while it shuts down: the progress, and dropped lines.
pub(crate) const TO_THE_END: &str = "seriatim::to_the_end";

/// Longest wait for the last lines of a server. A stream that no process reads never takes them.
pub(crate) const LAST_LINES: Duration = Duration::from_millis(500);

/// The reports of a server: events on standard error, one line each with its time in UTC, and lines
/// on standard output. A server never waits for either stream.
pub(crate) struct Reports {
    is_ending: Arc<AtomicBool>,
    errors: LineQueue,
    lines: LineQueue,
}

impl Reports {
    /// Starts the reports: events and panics go to standard error.
    pub(crate) fn start(arguments: &EventArguments) -> io::Result<Self> {
        let errors = LineQueue::start(io::stderr(), |lines| {
            tracing::error!(target: TO_THE_END, "{lines} lines were dropped: no process read standard error");
        })?;
        let lines = LineQueue::start(io::stdout(), |lines| {
            tracing::error!(target: TO_THE_END, "{lines} lines were dropped: no process read standard output");
        })?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let reports = Self { is_ending: Arc::clone(&is_ending), errors: errors.clone(), lines };
        let level = arguments.log_level.level();
        let is_reported = dynamic_filter_fn(move |event, _| {
            *event.level() <= level && (event.target() == TO_THE_END || !is_ending.load(Ordering::Relaxed))
        });
        let layer = tracing_subscriber::fmt::layer().with_writer(move || errors.clone());
        let layer = layer.with_ansi(false).with_target(false);
        let events = tracing_subscriber::registry();
        match arguments.log_format {
            LogFormat::Text => events.with(layer.with_filter(is_reported)).init(),
            LogFormat::Json => events.with(layer.json().flatten_event(true).with_filter(is_reported)).init(),
        }
        // The standard hook waits for standard error.
        panic::set_hook(Box::new(|panic| {
            tracing::error!(target: TO_THE_END, "{panic}\n{}", Backtrace::capture());
        }));
        Ok(reports)
    }

    /// Restricts events to the target [`TO_THE_END`]: nodes of one process that stops disconnect
    /// from each other, and that is no loss.
    pub(crate) fn end_events(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    pub(crate) fn line(&self, line: impl fmt::Display) {
        self.lines.push(format!("{line}\n").into_bytes());
    }

    /// Reports the failure in `outcome`, and waits at most [`LAST_LINES`] until all lines are
    /// written.
    pub(crate) fn end(&self, outcome: Outcome) -> Outcome {
        let outcome = outcome.map_err(|failure| match failure {
            Failure::Message(message) => {
                self.errors.push(described(&message).into_bytes());
                Failure::Unwell
            }
            failure => failure,
        });
        let until = Instant::now() + LAST_LINES;
        self.errors.drain(until);
        self.lines.drain(until);
        outcome
    }
}

/// Reports the present and all later warnings.
pub(crate) fn tell_warnings(mut warnings: watch::Receiver<Vec<String>>) {
    let mut told = 0;
    let mut tell = move |warnings: &[String]| {
        warnings[told..].iter().for_each(|warning| tracing::warn!("{warning}"));
        told = warnings.len();
    };
    tell(&warnings.borrow_and_update());
    tokio::spawn(async move {
        while warnings.changed().await.is_ok() {
            tell(&warnings.borrow_and_update());
        }
    });
}

/// A progress bar. Invisible unless standard error is a terminal.
pub(crate) fn progress(len: Option<u64>, unit: &str) -> ProgressBar {
    let template = match len {
        Some(_) => format!("{{bar:32}} {{human_pos}}/{{human_len}} {unit}, {{rate}}/s, {{eta}} left"),
        None => format!("{{spinner}} {{human_pos}} {unit}, {{rate}}/s"),
    };
    bar(len, &template)
}

pub(crate) fn progress_of_bytes(len: u64) -> ProgressBar {
    bar(Some(len), "{bar:32} {percent} %, {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
}

fn bar(len: Option<u64>, template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
    };
    let bar = len.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.with_style(style.with_key("rate", rate))
}

pub(crate) fn print_line(line: impl fmt::Display) {
    // If no process reads it, nothing is lost.
    let _ = writeln!(io::stdout(), "{line}");
}
