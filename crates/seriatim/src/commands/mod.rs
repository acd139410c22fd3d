//! The action of each command.

mod admin;
mod append;
mod demo;
mod dev;
mod log;
mod open_files;
mod player;
mod read;
mod serve;
mod signals;
mod starting;
mod status;
mod stopping;
mod trim;
mod windows;

pub(crate) use open_files::allow_many as allow_many_open_files;
use seriatim_client::{Client, Log};

use crate::arguments::{Arguments, Command};
use crate::output::{Failure, Outcome, print_line};

pub(crate) async fn run(arguments: Arguments) -> Outcome {
    signals::survive_file_size_limit()?;
    let server = arguments.server;
    match arguments.command {
        Command::Dev(arguments) => dev::run(arguments).await,
        Command::Serve(arguments) => serve::run(arguments).await,
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Bench(arguments) => {
            let outcome = seriatim_bench::run(arguments, signals::told()).await;
            outcome.map_err(|failure| Failure::new(failure.to_string()))
        }
        Command::Log(command) => log::run(&connect(&server).await?, command).await,
        Command::Append(arguments) => append::run(&connect(&server).await?, arguments).await,
        Command::Read(arguments) => read::read(open(&server, &arguments.name).await?, arguments).await,
        Command::Tail(arguments) => read::tail(open(&server, &arguments.name).await?, arguments).await,
        Command::CheckTail { name } => {
            print_line(open(&server, &name).await?.check_tail().await?);
            Ok(())
        }
        Command::Trim { name, position, despite_pins } => {
            let position = seriatim_client::Position(position);
            trim::run(&connect(&server).await?, &name, position, despite_pins).await
        }
        Command::Seek { name, time } => {
            print_line(open(&server, &name).await?.position_at(time).await?);
            Ok(())
        }
        Command::Player(command) => player::run(&server, command).await,
        Command::Admin(command) => admin::run(&connect(&server).await?, command).await,
        Command::Status(arguments) => status::run(&server, arguments).await,
    }
}

async fn connect(server: &str) -> Result<Client, Failure> {
    Client::connect(server).await.map_err(|cause| {
        Failure::new(format!(
            "{cause}; start a cluster with: seriatim dev, or name one with --server or SERIATIM_SERVER"
        ))
    })
}

async fn open(server: &str, name: &str) -> Result<Log, Failure> {
    Ok(connect(server).await?.log(name).await?)
}
