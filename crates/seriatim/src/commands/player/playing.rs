//! `seriatim player run`.

use std::time::{Duration, Instant};

use seriatim_player::{Ending, PlayerError, Settings, Start};
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::arguments::PlayerRunArguments;
use crate::output::{Failure, Outcome, note, print_line};

use super::super::signals::Signals;

/// A notice that repeats within this time is not printed again.
const REPEATED_WITHIN: Duration = Duration::from_secs(10);

pub(super) async fn run(server: &str, arguments: PlayerRunArguments) -> Outcome {
    let config = super::load(server, &arguments.config)?;
    let mut settings = config.settings().map_err(Failure::new)?;
    settings.start = match (arguments.take_over, arguments.standby) {
        (true, _) => Start::TakeOver,
        (false, true) => Start::Standby,
        (false, false) => Start::Refuse,
    };
    settings.above = arguments.above;
    settings.until_tail = arguments.until_tail;
    let mut signals = Signals::new()?;
    let (stop, stopped) = oneshot::channel::<()>();
    // A task, so that the workers of the runtime share the player's work with this thread.
    let mut outcome = tokio::spawn(play(config.server, settings, stopped));
    tokio::select! {
        outcome = &mut outcome => return ended(outcome),
        () = signals.told() => {}
    }
    note("ending after the current batch of each target");
    drop(stop);
    tokio::select! {
        outcome = &mut outcome => ended(outcome),
        () = signals.told() => Err(Failure::Interrupted(super::super::signals::AT_ONCE.into())),
    }
}

fn ended(outcome: Result<Result<Ending, Failure>, JoinError>) -> Outcome {
    match outcome {
        Ok(Ok(Ending::Finished)) => Ok(()),
        Ok(Ok(Ending::Stopped)) => Err(Failure::Interrupted("the player has ended".into())),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(Failure::new("the player panicked; report this")),
    }
}

async fn play(server: String, settings: Settings, stopped: oneshot::Receiver<()>) -> Result<Ending, Failure> {
    let client = super::super::connect(&server).await?;
    let mut notices = Notices::default();
    let mut observer = |text: &str, _is_problem: bool| notices.print(text);
    let started = |started: &seriatim_player::Started| {
        print_line(format_args!("playing {} as {}, epoch {}", started.log, started.name, started.epoch));
    };
    let stop = async {
        // Resolves when the command drops the sender.
        let _ = stopped.await;
    };
    let ended = seriatim_player::run(&client, settings, None, started, &mut observer, stop).await;
    ended.map_err(|cause: PlayerError| Failure::new(cause.to_string()))
}

/// Prints each notice, except repetitions.
#[derive(Default)]
struct Notices {
    last: Option<(String, Instant)>,
}

impl Notices {
    fn print(&mut self, text: &str) {
        let is_repeated =
            self.last.as_ref().is_some_and(|(last, at)| last == text && at.elapsed() < REPEATED_WITHIN);
        if !is_repeated {
            note(text);
            self.last = Some((text.to_owned(), Instant::now()));
        }
    }
}
