//! `seriatim`: server, client, demonstration and benchmark in one binary.
//!
//! Exit status: 0 done; 1 failed, with one line on standard error, or `status` found a problem; 2
//! usage; 130 an interrupted append.

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
            // Background tasks have no more output.
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
