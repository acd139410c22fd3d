//! `seriatim`: the one binary. It is a server, a client, a demonstration and a benchmark.
//!
//! Exit status: 0 done, 1 failed with one line on standard error (or, of `status`, that something
//! is not well), 2 usage, 130 an append that was interrupted.

mod arguments;
mod commands;
mod config;
mod json_record;
mod lines;
mod output;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    if let Err(why) = arguments.check() {
        arguments::Arguments::command().error(ErrorKind::ArgumentConflict, why).exit();
    }
    commands::allow_many_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_name("seriatim").enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(commands::run(arguments));
            // Tasks that still run in the background have nothing left to say.
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
