//! Commands to a running player: each waits until it is done.

use std::time::Duration;

use seriatim_client::{Client, Position};
use seriatim_player::control::{CommandRecord, ControlLog, Event, Holder};

use crate::output::{Failure, Outcome, note, print_line};

/// Silence after which no player is running.
const SILENCE: Duration = Duration::from_secs(3);

pub(super) async fn run(
    client: &Client,
    name: &str,
    target: Option<String>,
    command: CommandRecord,
) -> Outcome {
    let control = ControlLog::open(client, name).await?;
    let position = control.append(&Event::Command { target, command }).await?;
    let asked = control.append(&Event::Hello { from: Holder::own() }).await?;
    let mut events = control.follow(position.next(), None).await?;
    let mut is_active = false;
    loop {
        let next = events.next();
        let event = match is_active {
            true => next.await?,
            false => match tokio::time::timeout(SILENCE, next).await {
                Ok(event) => event?,
                Err(_) => {
                    note(format_args!("no player '{name}' is running; the command waits for the next one"));
                    return Ok(());
                }
            },
        };
        match event {
            Some((_, Event::Done { command, error })) if Position(command) == position => {
                return match error {
                    None => {
                        print_line("done");
                        Ok(())
                    }
                    Some(reason) => Err(Failure::new(reason)),
                };
            }
            Some((at, Event::Status(_) | Event::Claim { .. })) if at > asked => is_active = true,
            Some(_) => {}
            None => return Err(Failure::new("the control log ended")),
        }
    }
}
