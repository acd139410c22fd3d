//! The output that people and scripts see.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use tokio::sync::watch;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::{EventArguments, LogFormat};

/// Why a command failed, in one line that says what to do; or that nobody reads what it prints.
#[derive(Debug)]
pub(crate) enum Failure {
    Message(String),
    /// Somebody stopped it; what was done until then.
    Interrupted(String),
    /// Something is not well, as was printed.
    Unwell,
    /// Standard output was closed by its reader, as `head` does: not worth a word.
    NobodyReads,
}

/// The exit status of what was interrupted, as shells have it for SIGINT.
const INTERRUPTED: u8 = 130;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    /// Says it, and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if let Self::Message(message) | Self::Interrupted(message) = self {
            // If standard error is gone as well, there is nobody left to tell.
            let _ = writeln!(io::stderr(), "seriatim: {message}");
        }
        match self {
            Self::Interrupted(_) => ExitCode::from(INTERRUPTED),
            Self::Message(_) | Self::Unwell | Self::NobodyReads => ExitCode::FAILURE,
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Message(error.to_string())
    }
}

/// The outcome of a command.
pub(crate) type Outcome = Result<(), Failure>;

/// Standard output, buffered: what is printed is there when `flush` returns.
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

/// A line for people on standard error.
pub(crate) fn note(line: impl fmt::Display) {
    // If nobody reads it, nothing is lost.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The target of events about an orderly end.
pub(crate) const STOPPING: &str = "seriatim::stopping";

/// The telling of what happens to a server.
pub(crate) struct Events {
    is_over: Arc<AtomicBool>,
}

impl Events {
    /// Tells nothing more but how the end goes on: the nodes of one process that stops take leave of each other, and none is lost.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// From here on what happens to a server is told on standard error: one line each, with its time in UTC.
pub(crate) fn tell_events(arguments: &EventArguments) -> Events {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Events { is_over: Arc::clone(&is_over) };
    let level = arguments.log_level.level();
    let is_told = dynamic_filter_fn(move |event, _| {
        *event.level() <= level && (event.target() == STOPPING || !is_over.load(Ordering::Relaxed))
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).with_target(false);
    let events = tracing_subscriber::registry();
    match arguments.log_format {
        LogFormat::Text => events.with(lines.with_filter(is_told)).init(),
        LogFormat::Json => events.with(lines.json().flatten_event(true).with_filter(is_told)).init(),
    }
    told
}

/// Tells what an operator should know: what there is to tell, and whatever comes later.
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

/// A bar on a terminal; nothing elsewhere.
pub(crate) fn progress(len: Option<u64>, unit: &str) -> ProgressBar {
    let template = match len {
        Some(_) => format!("{{bar:32}} {{human_pos}}/{{human_len}} {unit}, {{rate}}/s, {{eta}} left"),
        None => format!("{{spinner}} {{human_pos}} {unit}, {{rate}}/s"),
    };
    bar(len, &template)
}

/// A bar on a terminal for an input of known length in bytes; nothing elsewhere.
pub(crate) fn progress_of_bytes(len: u64) -> ProgressBar {
    bar(Some(len), "{bar:32} {percent} %, {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
}

fn bar(len: Option<u64>, template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
        // A bar that cannot be drawn is no reason to stop.
        let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
    };
    let bar = len.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.with_style(style.with_key("rate", rate))
}

/// A line on standard output, at once.
pub(crate) fn print_line(line: impl fmt::Display) {
    // If nobody reads it, nothing is lost.
    let _ = writeln!(io::stdout(), "{line}");
}
