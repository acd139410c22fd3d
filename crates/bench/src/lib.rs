//! `seriatim bench`: measures the cost of appends, compared with floors: the same bytes without a
//! protocol, over raw TCP and to plain files.
//!
//! Each ordering runs on a fresh cluster in this process, over loopback TCP. Compare ratios within
//! a run, not figures of different runs.
//!
//! Reading order: `comparison` (alternating rounds), `latency`, `throughput`, `read`, `scale`,
//! `player`, `floor` and `disk_floor`; then `figures`, `report`, `presentation`, `table`, `chart`,
//! `page` and `plot`.

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
mod player;
mod plot;
mod presentation;
mod read;
mod report;
mod scale;
mod speculate;
mod stall;
mod stamp;
mod style;
mod table;
mod terminal;
mod thirds;
mod throughput;

use std::future::Future;
use std::io;

use arguments::BenchCommand;
pub use arguments::{BenchArguments, duration};
pub use terminal::Failure;
use terminal::Outcome;

/// Runs a benchmark and prints its figures. Benchmarks that block their thread ignore
/// `interrupted`.
///
/// # Errors
/// The cause and its remedy.
pub async fn run(
    arguments: BenchArguments,
    interrupted: impl Future<Output = io::Result<()>>,
) -> Result<(), Failure> {
    let BenchArguments { command } = arguments;
    if let BenchCommand::Metadata(arguments) = &command {
        // This benchmark blocks its thread, and leaves no files when killed.
        return metadata::run(arguments);
    }
    if let BenchCommand::Plot(arguments) = &command {
        return plot::run(arguments);
    }
    tokio::select! {
        outcome = measure(&command) => outcome,
        // Dropping the measurement stops everything and deletes its files.
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
        BenchCommand::Player(arguments) => player::run(arguments).await,
    }
}
