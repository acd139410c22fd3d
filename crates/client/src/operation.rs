//! Operations: machines with one outcome, and the caller that waits for it.

use std::convert::Infallible;

use seriatim_model::{Address, Effect, Input, LogId, Machine, Time};
use seriatim_protocol::Message;
use seriatim_protocol::control::LogEntry;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::engine::Command;

pub(crate) trait Operation: Send {
    /// Handles an input. Returns true after the outcome, or if the caller stopped waiting.
    fn step(
        &mut self,
        now: Time,
        input: Input<Message, Infallible>,
        sends: &mut Vec<(Address, Message)>,
    ) -> bool;

    fn deadline(&self) -> Option<Time>;
}

/// Creates an operation from the time and the log's newest known entry.
pub(crate) type Start = Box<dyn FnOnce(Time, Option<&LogEntry>) -> Box<dyn Operation> + Send>;

struct Awaited<M: Machine> {
    machine: M,
    waiter: Option<oneshot::Sender<M::Reply>>,
}

impl<M> Operation for Awaited<M>
where
    M: Machine<Message = Message, Request = Infallible> + Send,
    M::Reply: Send,
{
    fn step(
        &mut self,
        now: Time,
        input: Input<Message, Infallible>,
        sends: &mut Vec<(Address, Message)>,
    ) -> bool {
        let mut effects = vec![];
        self.machine.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Reply { reply, .. } => {
                    if let Some(waiter) = self.waiter.take() {
                        let _ = waiter.send(reply);
                    }
                }
                Effect::Send { to, message } => sends.push((to, message)),
                // A client has no disk.
                _ => {}
            }
        }
        // A caller that stops waiting sends no cancellation.
        self.waiter.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }
}

impl Client {
    /// Runs an operation to its outcome. None: the client stopped. Dropping the future ends the
    /// operation.
    pub(crate) async fn run<M>(
        &self,
        log: LogId,
        make: impl FnOnce(Time, Option<&LogEntry>) -> M + Send + 'static,
    ) -> Option<M::Reply>
    where
        M: Machine<Message = Message, Request = Infallible> + Send + 'static,
        M::Reply: Send,
    {
        let (waiter, outcome) = oneshot::channel();
        let start: Start =
            Box::new(move |now, known| Box::new(Awaited { machine: make(now, known), waiter: Some(waiter) }));
        self.inner.commands.send(Command::Run { log, start }).await.ok()?;
        outcome.await.ok()
    }
}

pub(crate) fn newer(entry: LogEntry, known: Option<&LogEntry>) -> LogEntry {
    known.filter(|known| known.version > entry.version).cloned().unwrap_or(entry)
}
