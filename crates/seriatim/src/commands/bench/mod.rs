//! `seriatim bench`: what appends cost here, beside what the machine itself can do.
//!
//! Each ordering runs on a fresh cluster in this process, over real loopback TCP. Figures of different
//! runs cannot be compared; the ratios within one can.
//!
//! Reading order: [`comparison`] (rounds in turn, and what is told of them), [`latency`], [`throughput`], [`read`] and
//! [`scale`], which are compared with the [`floor`]; then [`figures`], [`table`], [`chart`] and [`page`].

mod chart;
mod cluster;
mod comparison;
mod failover;
mod figures;
mod floor;
mod latency;
mod machine;
mod metadata;
mod pace;
mod page;
mod read;
mod scale;
mod stall;
mod table;
mod throughput;

use super::signals::Signals;
use crate::arguments::BenchCommand;
use crate::output::{Failure, Outcome};

pub(crate) async fn run(command: BenchCommand) -> Outcome {
    if let BenchCommand::Metadata(arguments) = &command {
        // It keeps its thread until it is done, and leaves nothing behind when it is interrupted.
        return metadata::run(arguments);
    }
    let mut signals = Signals::new()?;
    tokio::select! {
        outcome = measure(&command) => outcome,
        // What was started ends with the measurement, and its files go.
        () = signals.told() => Err(Failure::new("interrupted; nothing was measured")),
    }
}

async fn measure(command: &BenchCommand) -> Outcome {
    match command {
        BenchCommand::Latency(arguments) => latency::run(arguments).await,
        BenchCommand::Throughput(arguments) => throughput::run(arguments).await,
        BenchCommand::Read(arguments) => read::run(arguments).await,
        BenchCommand::Scale(arguments) => scale::run(arguments).await,
        BenchCommand::Failover(arguments) => failover::run(arguments).await,
        BenchCommand::Metadata(arguments) => metadata::run(arguments),
        BenchCommand::Stall(arguments) => stall::run(arguments).await,
    }
}
