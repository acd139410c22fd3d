//! One task for each target: it performs the calls of its sessions, one at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use seriatim_client::Position;
use seriatim_delivery::player::{Input, TargetIndex, Term};
use tokio::sync::mpsc;

use crate::runner::Happening;
use crate::{Batch, Stream, Target};

/// How long a call may continue after the end of its session. Then the task drops the call.
const GRACE: Duration = Duration::from_secs(5);

/// A call to a target.
#[derive(Debug)]
pub(crate) enum Call {
    Attach { term: Term, adopts: Option<Position> },
    Send { term: Term, batch: Arc<Batch> },
    Detach { term: Term },
}

/// Serves a target until the player drops the sender of calls.
pub(crate) async fn serve<T: Target>(
    mut target: T,
    index: TargetIndex,
    stream: Stream,
    epoch: u64,
    calls: mpsc::UnboundedReceiver<Call>,
    happenings: mpsc::Sender<Happening>,
) {
    let mut calls = Calls { calls, waiting: VecDeque::new() };
    while let Some(call) = calls.next().await {
        let input = match call {
            Call::Attach { term, adopts } => {
                let work = target.attach(&stream, epoch, adopts);
                let outcome = calls.unless_detached(work).await;
                outcome.map(|outcome| Input::Attached { target: index, term, outcome })
            }
            Call::Send { term, batch } => {
                let work = target.apply(&batch);
                let outcome = calls.unless_detached(work).await;
                outcome.map(|outcome| match outcome {
                    Ok(()) => Input::Applied { target: index, term, upto: batch.upto },
                    Err(error) => Input::NotApplied { target: index, term, error },
                })
            }
            Call::Detach { term } => Some(Input::Detached { target: index, term }),
        };
        if let Some(input) = input
            && happenings.send(Happening::Machine(input)).await.is_err()
        {
            return;
        }
    }
}

/// Calls, some of which arrived while another one ran.
struct Calls {
    calls: mpsc::UnboundedReceiver<Call>,
    waiting: VecDeque<Call>,
}

impl Calls {
    async fn next(&mut self) -> Option<Call> {
        match self.waiting.pop_front() {
            Some(call) => Some(call),
            None => self.calls.recv().await,
        }
    }

    /// Performs a call. None: its session ended, and the call did not end soon after.
    async fn unless_detached<R>(&mut self, work: impl Future<Output = R>) -> Option<R> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => return Some(outcome),
                call = self.calls.recv() => {
                    let ends = !matches!(call, Some(Call::Send { .. } | Call::Attach { .. }));
                    self.waiting.extend(call);
                    if ends {
                        return tokio::time::timeout(GRACE, work).await.ok();
                    }
                }
            }
        }
    }
}
