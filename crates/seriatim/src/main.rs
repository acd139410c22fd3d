//! `seriatim`: the one binary. It is a server, a client, a demonstration and a benchmark.
//!
//! Exit status: 0 done, 1 failed with one line on standard error, 2 usage.

mod arguments;
mod commands;
mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(commands::run(arguments));
            // Whatever still runs in the background has nothing left to say.
            runtime.shutdown_background();
            outcome
        }
        Err(cause) => Err(output::Failure::new(format!("cannot start: {cause}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
