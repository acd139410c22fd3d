//! Records from a position on, in order, as they become final.

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

/// A request of the reader. The token of the latest request is that of every event from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The reader can take more. It is given the next record while it wants both records and bytes:
    /// only the last record may be larger than what it wanted.
    Want {
        /// That many more records.
        records: u64,
        /// That many more bytes of records.
        bytes: u64,
    },
    /// The reader is done: nothing more is delivered.
    Cancel,
}

/// The next position of a reader that gets nothing, and what is known of why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Awaited {
    /// Everything below it was handed over, and is final.
    pub position: Position,
    /// The shards that may have what is there, and do not give it out.
    pub shards: Vec<Unanswered>,
    /// Why the log cannot go on, if the register says so.
    pub unavailable: Option<String>,
}

/// A shard that gives out nothing because none of its replicas does, or because it has yet to join
/// the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unanswered {
    /// The shard.
    pub shard: ShardId,
    /// The nodes of the replicas that do not answer.
    pub silent: Vec<NodeId>,
    /// The nodes of those that answer that they cannot give it out.
    pub lacking: Vec<NodeId>,
    /// Whether the shard has yet to join the log, so that no node has anything of it.
    pub is_joining: bool,
}

impl Unanswered {
    /// A shard that has yet to join the log.
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

/// A subscription to one log: merges what the shards push.
///
/// It starts by itself, with its first timer; events leave as far as the reader wants records. It
/// decides nothing itself: it asks the source for the positions that the policy wants, and gives
/// the sink the records that the policy says, while the sink has room.
#[derive(Debug)]
pub struct Subscriber {
    source: Source,
    policy: Policy,
    sink: Application,
}

/// The policy that decides which records are handed over, and when.
#[derive(Debug)]
enum Policy {
    InOrder(InOrder),
    /// With whether the reader is told what is confirmed.
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
    /// A subscription to the log that `entry` describes: from `from` on, up to `end` if there is
    /// one. `control` is the node of the register; all shards together may have `window` bytes on
    /// their way or kept, and each of them no less than
    /// [`SUBSCRIPTION_BYTES_LEAST`](seriatim_model::limits::SUBSCRIPTION_BYTES_LEAST), where the
    /// window is larger than that.
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

    /// The same, of a part of the log, or before it is final.
    #[must_use]
    pub fn with(
        control: NodeId,
        entry: LogEntry,
        (from, end): (Position, Option<Position>),
        window: u64,
        selection: Selection,
        options: Options,
    ) -> Self {
        // There are no records above.
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

    /// The position that is handed over next.
    #[must_use]
    pub fn next(&self) -> Position {
        match &self.policy {
            Policy::InOrder(policy) => policy.next(),
            Policy::TwoBounds(policy, _) => policy.next(),
        }
    }

    /// Below it nothing fails that was handed over.
    #[must_use]
    pub fn confirmed(&self) -> Position {
        match &self.policy {
            Policy::InOrder(policy) => policy.next(),
            Policy::TwoBounds(policy, _) => policy.confirmed(),
        }
    }

    /// The position that is waited for, and why it does not come.
    #[must_use]
    pub fn awaited(&self, now: Time) -> Awaited {
        let position = self.confirmed();
        let shards = self.source.unanswered(now, position);
        Awaited { position, shards, unavailable: self.entry().unavailable.clone() }
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

    /// Hands over what comes next, as far as it is there and wanted.
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

    /// Does what the policy says. Returns whether it may say more at once.
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

    /// Takes back what turned out different.
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
                        // Records that are lost come from nobody, nor do such of shards that have
                        // ended.
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
                // A record that holds and was trimmed holds all the same.
                self.confirm(out);
                return self.skip(first, out);
            }
            _ => None,
        };
        if let Some(first) = differs {
            // Where no record comes from any more, the first one that was given fails.
            let void = policy.record_from(first).filter(|_| nowhere == Some(first));
            self.fail_from(first, void, out);
        }
    }

    /// Voids all that was given from `first` on; it is wanted anew. The reader is told `void`, if
    /// it is known which record is the first.
    fn fail_from(&mut self, first: Position, void: Option<Position>, out: &mut Out) {
        let Policy::TwoBounds(policy, _) = &mut self.policy else { return };
        let failed = policy.fail(first).map(|first| void.unwrap_or(first));
        let next = policy.next();
        self.take_back(failed, next, out);
    }

    /// The chosen shards have left.
    fn end_without(&mut self, shards: Vec<ShardId>, out: &mut Out) {
        self.confirm(out);
        self.end_with(Failure::ShardsLeft(shards), out);
    }

    /// Ends with this failure. The records that are not confirmed fail first: no shard can say any
    /// more whether they are final.
    fn end_with(&mut self, failure: Failure, out: &mut Out) {
        if let Policy::TwoBounds(policy, _) = &self.policy
            && let Some(first) = policy.record_from(policy.confirmed())
        {
            self.fail_from(first, None, out);
        }
        self.fail(failure, out);
    }

    /// The chosen shards are retired, and have nothing at the next position or after it. When all
    /// that they had is confirmed, a reader with an end is finished, and a reader without one gets
    /// [`Failure::ShardsRetired`].
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

    /// From `next` on the reader is given records anew. Some of those that it has are void, or
    /// none.
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

    /// Hands over what comes next, final or predicted, and tells what is final now.
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

    /// Tells the reader what is final now, if it wants to know, and lets go of it.
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

    /// Tells the reader the last event, if it is still there, and the shards that nobody waits for
    /// more.
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
