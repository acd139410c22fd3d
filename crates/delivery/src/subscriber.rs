//! Records from a position on, in order, as they become final.

use seriatim_model::{Address, Effect, Endpoint, Input, Machine, NodeId, Peer, Position, Time};
use seriatim_protocol::Options;
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::roles::Message;

pub use crate::sink::Event;

use crate::failure::Failure;
use crate::policy::{InOrder, Step};
use crate::sink::Application;
use crate::source::{News, Source};

/// A request of the reader. The token of the latest request is that of every event from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The reader can take more. It is given the next record while it wants both records and bytes: only
    /// the last record may be larger than what it wanted.
    Want {
        /// That many more records.
        records: u64,
        /// That many more bytes of records.
        bytes: u64,
    },
    /// The reader is done: nothing more is delivered.
    Cancel,
}

/// A subscription to one log: merges what the shards push.
///
/// It starts by itself, with its first timer; events leave as far as the reader wants records. It decides nothing itself: it
/// asks the source for the positions that the policy wants, and gives the sink the records that the policy says, while the sink has
/// room.
#[derive(Debug)]
pub struct Subscriber {
    source: Source,
    policy: InOrder,
    sink: Application,
}

type Out = Vec<Effect<Message, Event>>;

impl Machine for Subscriber {
    type Message = Message;
    type Request = Request;
    type Reply = Event;

    fn step(&mut self, now: Time, input: Input<Message, Request>, out: &mut Out) {
        if self.is_over() {
            return;
        }
        let news = match input {
            Input::Request { token, request: Request::Want { records, bytes } } => {
                self.sink.want(token, records, bytes);
                News::Changed
            }
            Input::Request { request: Request::Cancel, .. } => return self.finish(None, out),
            Input::Message {
                from: Address::Node(node, Endpoint::Shard(shard)),
                message: Message::Shard(message),
            } => self.source.receive(now, (node, shard), message, out),
            Input::Message { message: Message::Control(message), .. } => {
                self.source.controlled(now, message, out)
            }
            Input::Disconnected(Peer::Node(node)) => {
                self.source.disconnected(now, node);
                News::Nothing
            }
            Input::Wake => {
                self.source.timer(now, out);
                News::Nothing
            }
            _ => News::Nothing,
        };
        self.heard(now, news, out);
    }

    fn deadline(&self) -> Option<Time> {
        if self.is_over() { None } else { self.source.deadline() }
    }
}

impl Subscriber {
    /// A subscription to the log that `entry` describes: from `from` on, up to `end` if there is one. `control` is the
    /// node of the register; each shard may have `window` bytes on their way.
    #[must_use]
    pub fn new(
        control: NodeId,
        entry: LogEntry,
        (from, end): (Position, Option<Position>),
        window: u64,
        options: Options,
    ) -> Self {
        // There are no records above.
        let from = from.min(Position::MAX);
        let end = end.map_or(Position::MAX, |end| end.min(Position::MAX));
        Self {
            source: Source::new(control, entry, from, window),
            policy: InOrder::new(from, end, options),
            sink: Application::new(from),
        }
    }

    /// The position that is handed over next.
    #[must_use]
    pub fn next(&self) -> Position {
        self.policy.next()
    }

    /// Whether nothing follows any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.sink.has_ended()
    }

    /// The register's entry, as far as this subscription knows.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.source.entry()
    }

    fn heard(&mut self, now: Time, news: News, out: &mut Out) {
        match news {
            News::Nothing => return,
            News::Changed => {}
            News::Trimmed { first } => {
                let step = self.policy.trimmed(first);
                self.follow(step, out);
            }
            News::Failed(failure) => return self.fail(failure, out),
        }
        self.hand_over(now, out);
    }

    /// Hands over what comes next, as far as it is there and wanted.
    fn hand_over(&mut self, now: Time, out: &mut Out) {
        if !self.source.has_view() {
            return;
        }
        while let Some(position) = self.policy.wanted().filter(|_| self.sink.wants_more()) {
            let answer = self.source.ask(now, position);
            let step = self.policy.answered(position, answer);
            if !self.follow(step, out) {
                break;
            }
        }
        if self.is_over() {
            return;
        }
        self.sink.flush(out);
        if self.policy.wanted().is_none() {
            return self.finish(Some(Event::Finished), out);
        }
        self.source.return_credit(out);
    }

    /// Does what the policy says. Returns whether it may say more at once.
    fn follow(&mut self, step: Step, out: &mut Out) -> bool {
        match step {
            Step::Give => self.sink.give(self.source.take()),
            Step::Pass => {}
            Step::Skip { first } => self.sink.skip(first, out),
            Step::Wait => return false,
            Step::Fail(failure) => {
                self.fail(failure, out);
                return false;
            }
        }
        true
    }

    fn fail(&mut self, failure: Failure, out: &mut Out) {
        self.finish(Some(Event::Failed(failure)), out);
    }

    /// Tells the reader the last event, if it is still there, and the shards that nobody waits for more.
    fn finish(&mut self, last: Option<Event>, out: &mut Out) {
        self.sink.end(last, out);
        self.source.close(out);
    }
}

#[cfg(test)]
#[path = "subscriber_tests.rs"]
mod tests;
