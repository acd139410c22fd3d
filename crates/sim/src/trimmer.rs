//! A client that trims read records, with the machine that programs use.

use std::time::Duration;

use seriatim_delivery::Trim;
use seriatim_model::{Address, Effect, Input, Machine, NodeId, Peer, Position, Time};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::{Message, Options};

use crate::history::{self, History};
use crate::random::Random;
use crate::reader::Reader;

/// Time after which a further trim replaces an unconfirmed one.
const FURTHER_AFTER: Duration = Duration::from_secs(3);

/// Makes one trim after another.
#[derive(Debug)]
pub struct Trimmer {
    control: NodeId,
    options: Options,
    under_way: Option<Trim>,
    /// When an unconfirmed trim is replaced.
    further_at: Time,
    next_at: Time,
    done: Position,
}

impl Trimmer {
    /// A trimmer that uses the register on `control`.
    #[must_use]
    pub fn new(control: NodeId, options: Options) -> Self {
        Self {
            control,
            options,
            under_way: None,
            further_at: Time::ZERO,
            next_at: Time::ZERO,
            done: Position::ZERO,
        }
    }

    /// A trimmer that makes one trim.
    #[must_use]
    pub fn up_to(now: Time, control: NodeId, entry: LogEntry, position: Position, options: Options) -> Self {
        let under_way = Some(Trim::new(now, control, entry, position, options));
        Self { under_way, further_at: now + FURTHER_AFTER, ..Self::new(control, options) }
    }

    /// Whether no trim is pending.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.under_way.is_none()
    }

    /// When to wake it. With `trims_more`, it makes further trims.
    #[must_use]
    pub fn deadline(&self, trims_more: bool) -> Option<Time> {
        match (&self.under_way, trims_more) {
            (Some(trim), true) => Some(trim.deadline().map_or(self.further_at, |at| at.min(self.further_at))),
            (Some(trim), false) => trim.deadline(),
            (None, _) => trims_more.then_some(self.next_at),
        }
    }

    /// Trims at random below the reader's bound. Without a reader, only completes the pending trim.
    pub fn wake(
        &mut self,
        now: Time,
        reader: Option<&Reader>,
        random: &mut Random,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        if let Some(reader) = reader {
            self.trim_more(now, reader, random);
        }
        if self.under_way.as_ref().and_then(Machine::deadline).is_some_and(|at| now >= at) {
            self.step(now, Input::Wake, history, out);
        }
    }

    fn trim_more(&mut self, now: Time, reader: &Reader, random: &mut Random) {
        let read = reader.frontier();
        let goal = match &self.under_way {
            // A trim that takes longer lacks disk space. An operator would trim further too.
            Some(_) if now >= self.further_at => {
                self.further_at = now + FURTHER_AFTER;
                Some(read)
            }
            None if now >= self.next_at => {
                self.next_at = now + random.millis(10, 200);
                let has_more = reader.entry().view.is_some() && read > self.done;
                has_more.then(|| Position(random.between(self.done.0 + 1, read.0)))
            }
            _ => None,
        };
        if let Some(goal) =
            goal.filter(|goal| self.under_way.as_ref().is_none_or(|trim| trim.position() < *goal))
        {
            self.further_at = now + FURTHER_AFTER;
            self.under_way = Some(Trim::new(now, self.control, reader.entry().clone(), goal, self.options));
        }
    }

    /// Takes a message.
    pub fn receive(
        &mut self,
        now: Time,
        from: Address,
        message: Message,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        self.step(now, Input::Message { from, message }, history, out);
    }

    /// The connection to a node is closed.
    pub fn disconnected(
        &mut self,
        now: Time,
        node: NodeId,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        self.step(now, Input::Disconnected(Peer::Node(node)), history, out);
    }

    fn step(
        &mut self,
        now: Time,
        input: Input<Message, std::convert::Infallible>,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        let Some(trim) = &mut self.under_way else { return };
        let (first, mut effects) = (trim.position(), vec![]);
        trim.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => out.push((to, message)),
                Effect::Reply { reply, .. } => {
                    self.under_way = None;
                    if reply.is_ok() {
                        self.done = first;
                        let confirmed = history.tick();
                        history.trims.push(history::Trim { confirmed, first });
                    }
                }
                _ => {}
            }
        }
    }
}
