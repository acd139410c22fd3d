//! Output of a benchmark, for people and scripts.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A one-line cause of failure with a remedy.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

pub(crate) type Outcome = Result<(), Failure>;

/// A progress bar for a few long steps with messages; hidden without a terminal.
pub(crate) fn steps(len: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len}, {elapsed}, {msg}");
    let bar = ProgressBar::new(len).with_style(style.expect("the template is well-formed"));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

pub(crate) fn print_line(line: impl fmt::Display) {
    // Ignore errors: the output may be closed.
    let _ = writeln!(io::stdout(), "{line}");
}
