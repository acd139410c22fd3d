//! `seriatim player run`.

use std::pin::pin;
use std::time::{Duration, Instant};

use seriatim_player::{Ending, PlayerError, Settings, Start};
use tokio::sync::oneshot;

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
    let (report, outcome) = oneshot::channel();
    let server = config.server;
    std::thread::Builder::new()
        .name("player".into())
        .spawn(move || {
            // The command may have ended by a second signal.
            let _ = report.send(play(&server, settings, stopped));
        })
        .map_err(|cause| Failure::new(format!("cannot start: {cause}")))?;
    let mut outcome = pin!(outcome);
    tokio::select! {
        outcome = &mut outcome => return ended(outcome.ok()),
        () = signals.told() => {}
    }
    note("ending after the current batch of each target");
    drop(stop);
    tokio::select! {
        outcome = &mut outcome => ended(outcome.ok()),
        () = signals.told() => Err(Failure::Interrupted(super::super::signals::AT_ONCE.into())),
    }
}

fn ended(outcome: Option<Result<Ending, Failure>>) -> Outcome {
    match outcome {
        Some(Ok(Ending::Finished)) => Ok(()),
        Some(Ok(Ending::Stopped)) => Err(Failure::Interrupted("the player has ended".into())),
        Some(Err(failure)) => Err(failure),
        None => Err(Failure::new("the player's thread panicked; report this")),
    }
}

/// Runs the player on this thread, which performs nothing else.
fn play(server: &str, settings: Settings, stopped: oneshot::Receiver<()>) -> Result<Ending, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let client = super::super::connect(server).await?;
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
    });
    runtime.shutdown_background();
    outcome
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
