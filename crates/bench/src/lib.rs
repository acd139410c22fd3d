//! `seriatim bench`: what appends cost here, beside what the machine itself can do.
//!
//! Each ordering runs on a fresh cluster in this process, over real loopback TCP. Figures of
//! different runs cannot be compared; the ratios within one can.
//!
//! Reading order: `comparison` (rounds in turn, and what is told of them), `latency`, `throughput`,
//! `read` and `scale`, which are compared with the `floor` and the `disk_floor`; then `figures` and
//! `report`, and how they are told: `presentation`, `table`, `chart`, `page`, and once more `plot`.

mod arguments;
mod chart;
mod cluster;
mod comparison;
mod disk_floor;
mod drawing;
mod failover;
mod figure;
mod figures;
mod floor;
mod grow;
mod latencies;
mod latency;
mod machine;
mod metadata;
mod pace;
mod page;
mod plot;
mod presentation;
mod read;
mod report;
mod scale;
mod speculate;
mod stall;
mod style;
mod table;
mod terminal;
mod throughput;

use std::future::Future;
use std::io;

use arguments::BenchCommand;
pub use arguments::{BenchArguments, duration};
pub use terminal::Failure;
use terminal::Outcome;

/// Measures what the command line asks for and prints the figures, unless it is interrupted
/// meanwhile. What keeps its thread does not look at `interrupted` at all.
///
/// # Errors
/// If something could not be measured or written down, or it was interrupted: what, and what to do.
pub async fn run(
    arguments: BenchArguments,
    interrupted: impl Future<Output = io::Result<()>>,
) -> Result<(), Failure> {
    let BenchArguments { command } = arguments;
    if let BenchCommand::Metadata(arguments) = &command {
        // It keeps its thread until it is done, and leaves nothing behind when its process is
        // killed.
        return metadata::run(arguments);
    }
    if let BenchCommand::Plot(arguments) = &command {
        return plot::run(arguments);
    }
    tokio::select! {
        outcome = measure(&command) => outcome,
        // Everything that was started ends with the measurement, and its files go.
        waited = interrupted => {
            waited?;
            Err(Failure::new("interrupted; nothing was measured"))
        }
    }
}

async fn measure(command: &BenchCommand) -> Outcome {
    match command {
        BenchCommand::Latency(arguments) => latency::run(arguments).await,
        BenchCommand::Throughput(arguments) => throughput::run(arguments).await,
        BenchCommand::Read(arguments) => read::run(arguments).await,
        BenchCommand::Scale(arguments) => scale::run(arguments).await,
        BenchCommand::Grow(arguments) => grow::run(arguments).await,
        BenchCommand::Plot(arguments) => plot::run(arguments),
        BenchCommand::Failover(arguments) => failover::run(arguments).await,
        BenchCommand::Metadata(arguments) => metadata::run(arguments),
        BenchCommand::Stall(arguments) => stall::run(arguments).await,
        BenchCommand::Speculate(arguments) => speculate::run(arguments).await,
    }
}
