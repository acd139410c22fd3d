//! The output of a bench, for people and scripts.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Why a bench failed, in one line that says what to do.
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

/// The outcome of a bench.
pub(crate) type Outcome = Result<(), Failure>;

/// A bar on a terminal for work of a few long steps, each with a message that says what it is;
/// nothing elsewhere.
pub(crate) fn steps(len: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len}, {elapsed}, {msg}");
    let bar = ProgressBar::new(len).with_style(style.expect("the template is well-formed"));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// A line on standard output, at once.
pub(crate) fn print_line(line: impl fmt::Display) {
    // If nobody reads it, nothing is lost.
    let _ = writeln!(io::stdout(), "{line}");
}
