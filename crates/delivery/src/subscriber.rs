//! A subscription: delivers a log's records from a position on, in order, as they become final or
//! predicted.

use std::fmt;

use seriatim_model::{
    Address, Effect, Endpoint, Input, Machine, NodeId, Peer, Position, ShardId, Time, ViewHistory,
};
use seriatim_protocol::Options;
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::roles::Message;

pub use crate::sink::Event;

use crate::failure::Failure;
use crate::policy::{InOrder, Next, Step, TwoBounds};
use crate::sink::Application;
pub use crate::source::Selection;
use crate::source::{Known, News, Source};

/// A request of the reader. Later events carry the token of the latest request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Adds room. Records follow while both counts are positive, so only the last record may exceed
    /// the bytes.
    Want {
        /// Additional records.
        records: u64,
        /// Additional bytes of records.
        bytes: u64,
    },
    /// Ends delivery.
    Cancel,
}

/// Position that a waiting reader needs next, and the known obstacles.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Awaited {
    /// The position. Everything below it was delivered and is final.
    pub position: Position,
    /// Shards that may have the position and do not serve it.
    pub shards: Vec<Unanswered>,
    /// Why the log is unavailable, if the register says so.
    pub unavailable: Option<String>,
}

/// A shard that blocks the reader: its replicas serve nothing, or it has not joined the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unanswered {
    /// The shard.
    pub shard: ShardId,
    /// Nodes of silent replicas.
    pub silent: Vec<NodeId>,
    /// Nodes of replicas that answer that they cannot serve the position.
    pub lacking: Vec<NodeId>,
    /// Whether the shard has not joined the log, so that no node has records of it.
    pub is_joining: bool,
}

impl Unanswered {
    pub(crate) fn joining(shard: ShardId) -> Self {
        Self { shard, silent: vec![], lacking: vec![], is_joining: true }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, shards, unavailable } = self;
        write!(f, "waiting at position {position}")?;
        match (unavailable, &shards[..]) {
            (None, []) => write!(f, ": no data yet"),
            (Some(why), []) => write!(f, ": {why}"),
            (_, shards) => {
                let each: Vec<String> = shards.iter().map(ToString::to_string).collect();
                write!(f, " for {}", each.join("; and for "))
            }
        }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |nodes: &[NodeId], one: &str, many: &str| {
            let numbers: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            match &numbers[..] {
                [] => None,
                [node] => Some(format!("node {node} {one}")),
                [first @ .., last] => Some(format!("nodes {} and {last} {many}", first.join(", "))),
            }
        };
        if self.is_joining {
            return write!(f, "shard {}: it has not joined the log yet", self.shard);
        }
        let silent = told(&self.silent, "is not responding", "are not responding");
        let lacking = told(&self.lacking, "does not hold it yet", "do not hold it yet");
        let both: Vec<String> = silent.into_iter().chain(lacking).collect();
        write!(f, "shard {}: {}", self.shard, both.join(", "))
    }
}

/// A subscription to one log; merges the shards' records.
///
/// It starts with its first timer. The policy names positions, the source supplies them, and the
/// sink receives the records while it has room.
#[derive(Debug)]
pub struct Subscriber {
    source: Source,
    policy: Policy,
    sink: Application,
}

#[derive(Debug)]
enum Policy {
    InOrder(InOrder),
    /// With the flag, the reader receives confirmations.
    TwoBounds(TwoBounds, bool),
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
    /// Subscribes to `range` of the log of `entry`. Asks the register through node `control`. All
    /// shards share `window` bytes in flight and buffered; each gets at least
    /// [`SUBSCRIPTION_BYTES_LEAST`](seriatim_model::limits::SUBSCRIPTION_BYTES_LEAST), or the
    /// window if that is smaller.
    #[must_use]
    pub fn new(
        control: NodeId,
        entry: LogEntry,
        range: (Position, Option<Position>),
        window: u64,
        options: Options,
    ) -> Self {
        Self::with(control, entry, range, window, Selection::default(), options)
    }

    /// As [`new`](Self::new), with a [`Selection`].
    #[must_use]
    pub fn with(
        control: NodeId,
        entry: LogEntry,
        (from, end): (Position, Option<Position>),
        window: u64,
        selection: Selection,
        options: Options,
    ) -> Self {
        // No records exist at `Position::MAX` or above.
        let from = from.min(Position::MAX);
        let end = end.map_or(Position::MAX, |end| end.min(Position::MAX));
        let skips_lost = selection.skips_lost;
        let policy = match selection.is_plain() {
            true => Policy::InOrder(InOrder::new(from, end, skips_lost, options)),
            false => Policy::TwoBounds(TwoBounds::new(from, end, skips_lost, options), selection.speculative),
        };
        Self {
            source: Source::new(control, entry, from, window, selection, options),
            policy,
            sink: Application::new(from),
        }
    }

    /// The next position to deliver.
    #[must_use]
    pub fn next(&self) -> Position {
        match &self.policy {
            Policy::InOrder(policy) => policy.next(),
            Policy::TwoBounds(policy, _) => policy.next(),
        }
    }

    /// Bound below which no delivered record fails.
    #[must_use]
    pub fn confirmed(&self) -> Position {
        match &self.policy {
            Policy::InOrder(policy) => policy.next(),
            Policy::TwoBounds(policy, _) => policy.confirmed(),
        }
    }

    /// The position that the reader waits for, and the obstacles.
    #[must_use]
    pub fn awaited(&self, now: Time) -> Awaited {
        let position = self.confirmed();
        let shards = self.source.unanswered(now, position);
        Awaited { position, shards, unavailable: self.entry().unavailable.clone() }
    }

    /// Whether no event follows.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.sink.has_ended()
    }

    /// The latest known register entry.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.source.entry()
    }

    fn heard(&mut self, now: Time, news: News, out: &mut Out) {
        match news {
            News::Nothing => {}
            News::Failed(failure) => self.fail(failure, out),
            News::Entered { reassigned_from: Some(start) } if start < self.confirmed() => {
                let position = self.confirmed();
                self.end_with(Failure::Reassigned { position, start }, out);
            }
            news => match &mut self.policy {
                Policy::InOrder(policy) => {
                    if let News::Trimmed { first } = news {
                        let step = policy.trimmed(first);
                        self.follow(step, out);
                    }
                    self.hand_over(now, out);
                }
                Policy::TwoBounds(..) => {
                    self.judge(now, news, out);
                    match self.source.left() {
                        Some(shards) => self.end_without(shards, out),
                        None => self.hand_over_with_bounds(now, out),
                    }
                }
            },
        }
    }

    fn hand_over(&mut self, now: Time, out: &mut Out) {
        if !self.source.has_view() {
            return;
        }
        loop {
            let Policy::InOrder(policy) = &mut self.policy else { return };
            let Some(position) = policy.wanted().filter(|_| self.sink.wants_more()) else { break };
            let answer = self.source.ask(now, position);
            let step = policy.answered(position, answer);
            if !self.follow(step, out) {
                break;
            }
        }
        if self.is_over() {
            return;
        }
        self.sink.flush(out);
        if matches!(&self.policy, Policy::InOrder(policy) if policy.wanted().is_none()) {
            return self.finish(Some(Event::Finished), out);
        }
        self.source.return_credit(out);
    }

    /// Performs a step of the policy. Returns whether to ask for the next position at once.
    fn follow(&mut self, step: Step, out: &mut Out) -> bool {
        match step {
            Step::Give => self.sink.give(self.source.take()),
            Step::Pass => {}
            Step::Skip { first } => self.sink.skip(first, out),
            Step::Lose { shard, range } => self.sink.lose(shard, range, out),
            Step::Wait => return false,
            Step::Fail(failure) => {
                self.fail(failure, out);
                return false;
            }
        }
        true
    }

    /// Finds delivered predictions that the news proves wrong, and voids them.
    fn judge(&mut self, now: Time, news: News, out: &mut Out) {
        let Policy::TwoBounds(policy, _) = &mut self.policy else { return };
        let mut nowhere = None;
        let differs = match news {
            News::Holds { view, upto, void } => {
                policy.holds(view, upto);
                let from = policy.confirmed();
                void.and_then(|_| policy.compare(from..upto, |at| self.source.peek(at)))
            }
            News::Final { from, upto } => {
                let mut withheld = None;
                let differs = policy.compare(from..upto, |at| {
                    let known = self.source.peek(at);
                    if known == Known::NotYet && withheld.is_none() && self.source.is_withheld(at) {
                        withheld = Some(at);
                    }
                    known
                });
                if let Some(at) = withheld {
                    self.source.doubt(now, at);
                }
                differs
            }
            News::Entered { reassigned_from } => {
                let (number, start, history) = self.source.view().expect("it was just entered");
                let undone = reassigned_from.filter(|undone| *undone < policy.next());
                let void = match self.source.may_pass_over() {
                    false => {
                        let void = policy.entered(number, start, history);
                        let lost = history.gaps().iter().filter_map(|gap| policy.undecided_in(gap));
                        void.into_iter().chain(lost).min()
                    }
                    true => {
                        let void = policy.entered(number, start, &ViewHistory::default());
                        // No shard sends records at lost positions, or beyond the end of ended
                        // shards: predictions there are void.
                        let (confirmed, next) = (policy.confirmed(), policy.next());
                        let undecided = history.gaps().iter().filter(|gap| gap.end > confirmed);
                        let lost = undecided.map(|gap| gap.from.max(confirmed)).min();
                        let over = self.source.ends_at().map(|end| end.max(confirmed));
                        nowhere = lost.into_iter().chain(over).filter(|first| *first < next).min();
                        void.into_iter().chain(nowhere).min()
                    }
                };
                void.into_iter().chain(undone).min()
            }
            News::Trimmed { first } => {
                // The trim does not void records that this news confirms: confirm them first.
                self.confirm(out);
                return self.skip(first, out);
            }
            _ => None,
        };
        if let Some(first) = differs {
            // Where no record follows, report the first given record as void, instead of an empty
            // position before it.
            let void = policy.record_from(first).filter(|_| nowhere == Some(first));
            self.fail_from(first, void, out);
        }
    }

    /// Voids everything given from `first` on. Reports to the reader `void` as the first void
    /// position; None: `first`.
    fn fail_from(&mut self, first: Position, void: Option<Position>, out: &mut Out) {
        let Policy::TwoBounds(policy, _) = &mut self.policy else { return };
        let failed = policy.fail(first).map(|first| void.unwrap_or(first));
        let next = policy.next();
        self.take_back(failed, next, out);
    }

    fn end_without(&mut self, shards: Vec<ShardId>, out: &mut Out) {
        self.confirm(out);
        self.end_with(Failure::ShardsLeft(shards), out);
    }

    /// Ends with this failure. First voids unconfirmed records: no shard can confirm them any more.
    fn end_with(&mut self, failure: Failure, out: &mut Out) {
        if let Policy::TwoBounds(policy, _) = &self.policy
            && let Some(first) = policy.record_from(policy.confirmed())
        {
            self.fail_from(first, None, out);
        }
        self.fail(failure, out);
    }

    /// Ends a subscription whose chosen shards are retired and have no further positions. After the
    /// last confirmation, a reader with an end finishes; another gets [`Failure::ShardsRetired`].
    fn end_of(&mut self, shards: Vec<ShardId>, out: &mut Out) {
        self.confirm(out);
        let Policy::TwoBounds(policy, _) = &self.policy else { return };
        let (is_confirmed, has_end) = (policy.confirmed() >= policy.next(), policy.has_end());
        self.sink.flush(out);
        match (is_confirmed, has_end) {
            (false, _) => self.source.return_credit(out),
            (true, true) => self.finish(Some(Event::Finished), out),
            (true, false) => self.fail(Failure::ShardsRetired(shards), out),
        }
    }

    /// Restarts delivery at `next`, after voiding the records from `failed` on, if any.
    fn take_back(&mut self, failed: Option<Position>, next: Position, out: &mut Out) {
        if let Some(after) = failed {
            self.sink.take_back(after, out);
        }
        self.sink.rewind(next);
    }

    fn skip(&mut self, first: Position, out: &mut Out) {
        let Policy::TwoBounds(policy, _) = &mut self.policy else { return };
        let trimmed = policy.trimmed(first);
        self.take_back(trimmed.failed, trimmed.next, out);
        if trimmed.skips {
            self.sink.skip(first, out);
        }
    }

    /// Delivers available records, final or predicted.
    fn hand_over_with_bounds(&mut self, now: Time, out: &mut Out) {
        if !self.source.has_view() {
            return;
        }
        loop {
            let Policy::TwoBounds(policy, _) = &self.policy else { return };
            let Some(position) = policy.wanted().filter(|_| self.sink.wants_more()) else { break };
            if let Some(shards) = self.source.over_before(position) {
                return self.end_of(shards, out);
            }
            let known = self.source.know(now, position);
            if matches!(known, Known::Lost { .. }) {
                self.confirm(out);
                if !self.sink.wants_more() {
                    break;
                }
            }
            let Policy::TwoBounds(policy, is_speculative) = &mut self.policy else { return };
            match policy.answered(position, known) {
                Next::Give { speculative } => {
                    let speculative = speculative && *is_speculative;
                    self.sink.give_with(self.source.copy(position), speculative, out);
                }
                Next::Pass => {}
                Next::Lose { shard, range } => self.sink.lose(shard, range, out),
                Next::Wait => break,
                Next::Fail(failure) => return self.fail(failure, out),
            }
        }
        self.confirm(out);
        self.sink.flush(out);
        if matches!(&self.policy, Policy::TwoBounds(policy, _) if policy.is_done()) {
            return self.finish(Some(Event::Finished), out);
        }
        self.source.return_credit(out);
    }

    fn confirm(&mut self, out: &mut Out) {
        let Policy::TwoBounds(policy, is_speculative) = &mut self.policy else { return };
        if let Some(upto) = policy.confirm() {
            self.source.release(upto);
            if policy.takes_news() && *is_speculative {
                self.sink.confirm(upto, out);
            }
        }
        if *is_speculative && policy.tells_empty() {
            self.sink.pass(policy.confirmed(), out);
        }
    }

    fn fail(&mut self, failure: Failure, out: &mut Out) {
        self.finish(Some(Event::Failed(failure)), out);
    }

    fn finish(&mut self, last: Option<Event>, out: &mut Out) {
        self.sink.end(last, out);
        self.source.close(out);
    }
}

#[cfg(test)]
#[path = "subscriber_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "speculative_tests.rs"]
mod speculative_tests;
