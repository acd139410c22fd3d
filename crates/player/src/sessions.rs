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

/// A target's place in the player.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) index: TargetIndex,
    pub(crate) stream: Stream,
    pub(crate) epoch: u64,
    pub(crate) happenings: mpsc::Sender<Happening>,
}

/// Serves a target until the player drops the sender of calls.
pub(crate) async fn serve<T: Target>(mut target: T, place: Place, calls: mpsc::Receiver<Call>) {
    let Place { index, stream, epoch, happenings } = place;
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

/// Serves a gRPC target, which may have several batches in flight.
#[cfg(feature = "grpc")]
pub(crate) async fn serve_grpc(
    target: crate::targets::grpc::Grpc,
    place: Place,
    calls: mpsc::Receiver<Call>,
) {
    let Place { index, stream, epoch, happenings } = place;
    let mut calls = Calls { calls, waiting: VecDeque::new() };
    let mut session: Option<(Term, crate::targets::grpc::Session)> = None;
    loop {
        let input = tokio::select! {
            biased;
            call = calls.next() => match call {
                None => return,
                Some(Call::Attach { term, adopts }) => {
                    session = None;
                    let attached = calls.unless_detached(target.attach(&stream, epoch, adopts)).await;
                    attached.map(|attached| {
                        let outcome = attached.map(|attached| {
                            let bound = attached.bound();
                            session = Some((term, attached));
                            bound
                        });
                        Input::Attached { target: index, term, outcome }
                    })
                }
                Some(Call::Send { term, batch }) => {
                    // Without a session, its end is reported already.
                    if let Some((_, session)) = session.as_mut().filter(|(own, _)| *own == term) {
                        session.send(&batch);
                    }
                    None
                }
                Some(Call::Detach { term }) => {
                    session = None;
                    Some(Input::Detached { target: index, term })
                }
            },
            (term, answer) = answer(&mut session) => Some(match answer {
                Ok(upto) => Input::Applied { target: index, term, upto },
                Err(error) => {
                    session = None;
                    Input::NotApplied { target: index, term, error }
                }
            }),
        };
        if let Some(input) = input
            && happenings.send(Happening::Machine(input)).await.is_err()
        {
            return;
        }
    }
}

/// The next answer of the session. Without a session it waits forever.
#[cfg(feature = "grpc")]
async fn answer(
    session: &mut Option<(Term, crate::targets::grpc::Session)>,
) -> (Term, Result<Position, crate::ApplyError>) {
    match session {
        Some((term, session)) => (*term, session.answer().await),
        None => std::future::pending().await,
    }
}

/// The queue of calls. `waiting` has the calls that arrived while another one ran.
struct Calls {
    calls: mpsc::Receiver<Call>,
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
