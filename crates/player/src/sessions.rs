//! One task for each target: it performs the calls of its sessions, one at a time.

use std::collections::VecDeque;
use std::sync::Arc;
#[cfg(feature = "grpc")]
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_client::Position;
use seriatim_delivery::player::{Input, TargetIndex, Term};
use tokio::sync::mpsc;

use crate::runner::Happening;
#[cfg(feature = "grpc")]
use crate::targets::grpc;
use crate::{Batch, Stream, Target};

/// Calls that wait for a target. A session has one attach, at most 8 batches and one detach.
const CALLS: usize = 1024;

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

/// The way of calls to a target, whose task performs them.
pub(crate) struct Caller {
    calls: mpsc::Sender<Call>,
    /// Sends a batch at once. None: batches are calls as others.
    sends: Option<Sends>,
}

type Sends = Box<dyn Fn(Term, &Batch) + Send>;

impl Caller {
    /// For a target that takes one call at a time.
    pub(crate) fn queued<T: Target + 'static>(target: T, place: Place) -> Self {
        let (calls, receiver) = mpsc::channel(CALLS);
        tokio::spawn(serve(target, place, receiver));
        Self { calls, sends: None }
    }

    /// For a gRPC target, which may have several batches in flight.
    #[cfg(feature = "grpc")]
    pub(crate) fn grpc(target: grpc::Grpc, place: Place) -> Self {
        let (calls, receiver) = mpsc::channel(CALLS);
        let outlet = Outlet::default();
        tokio::spawn(serve_grpc(target, place, receiver, outlet.clone()));
        let sends = move |term, batch: &Batch| {
            // Without a session, its end is reported already.
            if let Some((_, outlet)) = locked(&outlet).as_mut().filter(|(own, _)| *own == term) {
                outlet.send(batch);
            }
        };
        Self { calls, sends: Some(Box::new(sends)) }
    }

    pub(crate) fn call(&self, call: Call) {
        if let (Some(sends), Call::Send { term, batch }) = (&self.sends, &call) {
            return sends(*term, batch);
        }
        let sent = self.calls.try_send(call);
        sent.expect("a target's task outlives the runner, and its queue has room for several sessions");
    }
}

/// Serves a target until the player drops the sender of calls.
async fn serve<T: Target>(mut target: T, place: Place, calls: mpsc::Receiver<Call>) {
    let Place { index, stream, epoch, happenings } = place;
    let mut calls = Calls { calls, waiting: VecDeque::new() };
    let mut session = None;
    while let Some(call) = calls.next().await {
        let input = match call {
            // The session is over, and the machine waits only for the end of its calls.
            Call::Attach { term, .. } | Call::Send { term, .. } if calls.is_detached(term) => None,
            Call::Attach { term, adopts } => {
                let work = target.attach(&stream, epoch, adopts);
                let outcome = calls.unless_detached(work).await;
                session = matches!(outcome, Some(Ok(_))).then_some(term);
                outcome.map(|outcome| Input::Attached { target: index, term, outcome })
            }
            // The batch before it was not applied, and ended the session.
            Call::Send { term, .. } if session != Some(term) => None,
            Call::Send { term, batch } => {
                let work = target.apply(&batch);
                let outcome = calls.unless_detached(work).await;
                session = session.filter(|_| matches!(outcome, Some(Ok(()))));
                outcome.map(|outcome| match outcome {
                    Ok(()) => Input::Applied { target: index, term, upto: batch.upto },
                    Err(error) => Input::NotApplied { target: index, term, error },
                })
            }
            Call::Detach { term } => {
                session = None;
                Some(Input::Detached { target: index, term })
            }
        };
        if let Some(input) = input
            && happenings.send(Happening::Machine(input)).await.is_err()
        {
            return;
        }
    }
}

/// The half of the present session that sends. None: there is no session.
#[cfg(feature = "grpc")]
type Outlet = Arc<Mutex<Option<(Term, grpc::Outlet)>>>;

#[cfg(feature = "grpc")]
fn locked(outlet: &Outlet) -> MutexGuard<'_, Option<(Term, grpc::Outlet)>> {
    outlet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a gRPC target until the player drops the sender of calls.
#[cfg(feature = "grpc")]
async fn serve_grpc(target: grpc::Grpc, place: Place, calls: mpsc::Receiver<Call>, outlet: Outlet) {
    let Place { index, stream, epoch, happenings } = place;
    let mut calls = Calls { calls, waiting: VecDeque::new() };
    let mut answers: Option<(Term, grpc::Answers)> = None;
    let set = |sends| *locked(&outlet) = sends;
    loop {
        let input = tokio::select! {
            biased;
            call = calls.next() => match call {
                None => return,
                Some(Call::Attach { term, adopts }) => {
                    let attached = calls.unless_detached(target.attach(&stream, epoch, adopts)).await;
                    attached.map(|attached| {
                        let outcome = attached.map(|session| {
                            let bound = session.bound();
                            set(Some((term, session.outlet)));
                            answers = Some((term, session.answers));
                            bound
                        });
                        Input::Attached { target: index, term, outcome }
                    })
                }
                Some(Call::Send { .. }) => unreachable!("batches take the outlet"),
                Some(Call::Detach { term }) => {
                    set(None);
                    answers = None;
                    Some(Input::Detached { target: index, term })
                }
            },
            (term, answer) = answer(&mut answers) => Some(match answer {
                Ok(upto) => Input::Applied { target: index, term, upto },
                Err(error) => {
                    set(None);
                    answers = None;
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
async fn answer(answers: &mut Option<(Term, grpc::Answers)>) -> (Term, Result<Position, crate::ApplyError>) {
    match answers {
        Some((term, answers)) => (*term, answers.next().await),
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

    /// Whether the end of the session waits behind its other calls.
    fn is_detached(&self, term: Term) -> bool {
        self.waiting.iter().any(|call| matches!(call, Call::Detach { term: ended } if *ended == term))
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

#[cfg(test)]
mod tests {
    use seriatim_delivery::player::{ApplyError, AttachError};
    use seriatim_model::LogId;

    use super::*;

    /// Fails at the batch whose end is `fails`.
    struct Fake {
        applied: mpsc::Sender<u64>,
        fails: u64,
    }

    impl Target for Fake {
        async fn attach(&mut self, _: &Stream, _: u64, _: Option<Position>) -> Result<Position, AttachError> {
            Ok(Position::ZERO)
        }

        async fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
            if batch.upto.0 == self.fails {
                return Err(ApplyError::Broken { reason: "the test breaks it".into() });
            }
            self.applied.send(batch.upto.0).await.unwrap();
            Ok(())
        }
    }

    /// A target for which `calls` wait. Returns its answers, and a queue of its effects, which has
    /// `room`.
    fn served(
        calls: Vec<Call>,
        (fails, room): (u64, usize),
    ) -> (mpsc::Receiver<Happening>, mpsc::Receiver<u64>) {
        let (happenings, happened) = mpsc::channel(16);
        let (applied, effects) = mpsc::channel(room);
        let stream = Stream { log: LogId(1), player: "billing".into() };
        let place = Place { index: TargetIndex(0), stream, epoch: 7, happenings };
        let caller = Caller::queued(Fake { applied, fails }, place);
        calls.into_iter().for_each(|call| caller.call(call));
        (happened, effects)
    }

    fn attach(term: u64) -> Call {
        Call::Attach { term: Term(term), adopts: None }
    }

    fn send(term: u64, upto: u64) -> Call {
        let batch = Batch { after: Position(upto - 1), upto: Position(upto), messages: vec![] };
        Call::Send { term: Term(term), batch: Arc::new(batch) }
    }

    async fn next(happened: &mut mpsc::Receiver<Happening>) -> Option<(&'static str, u64)> {
        match happened.recv().await? {
            Happening::Machine(Input::Attached { term, .. }) => Some(("attached", term.0)),
            Happening::Machine(Input::Applied { upto, .. }) => Some(("applied", upto.0)),
            Happening::Machine(Input::NotApplied { term, .. }) => Some(("not applied", term.0)),
            Happening::Machine(Input::Detached { term, .. }) => Some(("detached", term.0)),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_batch_behind_a_failed_one_is_not_applied() {
        let calls = vec![attach(1), send(1, 1), send(1, 2), send(1, 3), attach(2), send(2, 4)];
        let (mut happened, mut effects) = served(calls, (2, 16));
        for answer in [("attached", 1), ("applied", 1), ("not applied", 1), ("attached", 2), ("applied", 4)] {
            assert_eq!(next(&mut happened).await, Some(answer));
        }
        assert_eq!(next(&mut happened).await, None);
        assert_eq!(
            (effects.recv().await, effects.recv().await, effects.recv().await),
            (Some(1), Some(4), None)
        );
    }

    #[tokio::test]
    async fn a_batch_before_the_end_of_its_session_does_not_begin_after_that_end() {
        let calls = vec![attach(1), send(1, 1), send(1, 2), send(1, 3), Call::Detach { term: Term(1) }];
        let (mut happened, mut effects) = served(calls, (0, 1));
        for answer in [("attached", 1), ("applied", 1)] {
            assert_eq!(next(&mut happened).await, Some(answer));
        }
        // The second batch has waited for room, and the end of the session waits for it.
        assert_eq!(effects.recv().await, Some(1));
        for answer in [("applied", 2), ("detached", 1)] {
            assert_eq!(next(&mut happened).await, Some(answer));
        }
        assert_eq!((effects.recv().await, effects.recv().await), (Some(2), None));
    }
}
