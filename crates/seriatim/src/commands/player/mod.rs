//! `seriatim player`: delivers the entries of a log to databases and services.

mod command;
mod playing;
mod status;

use std::path::Path;

use seriatim_player::control::CommandRecord;
use seriatim_player::{Config, Stream};

use crate::arguments::{DEFAULT_SERVER, PlayerCommand};
use crate::output::{Failure, Outcome, print_line};

pub(crate) async fn run(server: &str, arguments: PlayerCommand) -> Outcome {
    let connect = || super::connect(server);
    match arguments {
        PlayerCommand::Run(arguments) => playing::run(server, arguments).await,
        PlayerCommand::Check { config } => check(server, &config).await,
        PlayerCommand::Status { name, json, watch } => {
            status::run(&connect().await?, &name, json, watch).await
        }
        PlayerCommand::Skip { name, target, position } => {
            let target = (target != "all").then_some(target);
            command::run(&connect().await?, &name, target, CommandRecord::Skip { position }).await
        }
        PlayerCommand::Retry { name, target } => {
            command::run(&connect().await?, &name, Some(target), CommandRecord::Retry).await
        }
        PlayerCommand::DeadLetter { name, target, position } => {
            command::run(&connect().await?, &name, Some(target), CommandRecord::DeadLetter { position }).await
        }
        PlayerCommand::Pause { name, target } => {
            command::run(&connect().await?, &name, Some(target), CommandRecord::Pause).await
        }
        PlayerCommand::Resume { name, target } => {
            command::run(&connect().await?, &name, Some(target), CommandRecord::Resume).await
        }
        PlayerCommand::Adopt { name, target, position } => {
            command::run(&connect().await?, &name, Some(target), CommandRecord::Adopt { position }).await
        }
    }
}

/// The configuration, with the server of the command line if one is given.
fn load(server: &str, path: &Path) -> Result<Config, Failure> {
    let mut config = Config::load(path).map_err(Failure::new)?;
    if server != DEFAULT_SERVER {
        server.clone_into(&mut config.server);
    }
    Ok(config)
}

/// Prints the bound of each target, or its error.
async fn check(server: &str, path: &Path) -> Outcome {
    let config = load(server, path)?;
    let log = super::open(&config.server, &config.log).await?;
    let stream = Stream { log: log.entry().id, player: config.name.clone() };
    let mut failures = 0;
    for target in config.settings().map_err(Failure::new)?.targets {
        match target.target.check(&stream).await {
            Ok(checked) => print_line(format_args!("{}: {checked}", target.id)),
            Err(reason) => {
                failures += 1;
                print_line(format_args!("{}: {reason}", target.id));
            }
        }
    }
    if failures > 0 { Err(Failure::Unwell) } else { Ok(()) }
}
