//! Records from a position on, in order, as they become final.

use std::collections::BTreeMap;

use seriatim_model::storage::Stored;
use seriatim_model::{
    Address, Effect, Endpoint, Input, Machine, NodeId, Peer, Position, ShardId, Time, ViewNumber,
};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::roles::Message;
use seriatim_protocol::shard::{self, ReadError};

use crate::directory::{Directory, Learned};
use crate::failure::Failure;
use crate::feed::{Feed, MISSING_ROUNDS, Received, Taken};

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

/// An event for the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The next records. No-ops are left out; every other position is there, in order, once.
    Deliver {
        /// The records. Never empty.
        records: Vec<Stored>,
        /// Whether they may still fail. Those of shards are final, so they never do.
        speculative: bool,
    },
    /// The records that should have come next were trimmed: the next record is at `first` or after it.
    Trimmed {
        /// The first position that is left.
        first: Position,
    },
    /// The end that was asked for is reached. Nothing follows.
    Finished,
    /// It cannot go on. Nothing follows.
    Failed(Failure),
}

/// A subscription to one log: merges what the shards push.
///
/// It starts by itself, with its first timer; events leave as far as the reader wants records.
///
/// Invariant: everything below `next` was handed over, is a no-op, or was announced as trimmed; what was
/// handed over was handed over once.
#[derive(Debug)]
pub struct Subscriber {
    directory: Directory,
    next: Position,
    end: Position,
    token: u64,
    wanted_records: u64,
    /// Below zero if the last record was larger than what was wanted.
    wanted_bytes: i64,
    /// How many bytes each shard may have on their way.
    window: u64,
    feeds: BTreeMap<ShardId, Feed>,
    entered: ViewNumber,
    last_request: u64,
    doubt: Option<Doubt>,
    /// The position for which all were asked again in the present view, since it did not come.
    asked_again: Option<Position>,
    is_over: bool,
}

/// A shard did not give out `position` although it should have it, by the view that is known. Before
/// anybody is blamed, the register is asked whether there is a newer one: then another shard may have it.
#[derive(Debug)]
struct Doubt {
    position: Position,
    shard: ShardId,
    /// Only answers to later questions count.
    asked: u64,
}

type Out = Vec<Effect<Message, Event>>;

impl Machine for Subscriber {
    type Message = Message;
    type Request = Request;
    type Reply = Event;

    fn step(&mut self, now: Time, input: Input<Message, Request>, out: &mut Out) {
        if self.is_over {
            return;
        }
        match input {
            Input::Request { token, request: Request::Want { records, bytes } } => {
                self.token = token;
                self.wanted_records = self.wanted_records.saturating_add(records);
                self.wanted_bytes = self.wanted_bytes.saturating_add_unsigned(bytes);
                self.hand_over(now, out);
            }
            Input::Request { request: Request::Cancel, .. } => self.finish(out),
            Input::Message {
                from: Address::Node(node, Endpoint::Shard(shard)),
                message: Message::Shard(message),
            } => {
                self.receive(now, node, shard, message, out);
            }
            Input::Message { message: Message::Control(message), .. } => self.controlled(now, message, out),
            Input::Disconnected(Peer::Node(node)) => self.disconnected(now, node),
            Input::Timer => self.timer(now, out),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.is_over {
            return None;
        }
        self.feeds.values().filter_map(Feed::deadline).chain(self.directory.deadline()).min()
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
    ) -> Self {
        let mut subscriber = Self {
            window,
            directory: Directory::new(control, entry),
            // There are no records above.
            next: from.min(Position::MAX),
            end: end.map_or(Position::MAX, |end| end.min(Position::MAX)),
            token: 0,
            wanted_records: 0,
            wanted_bytes: 0,
            feeds: BTreeMap::new(),
            entered: ViewNumber::NONE,
            last_request: 0,
            doubt: None,
            asked_again: None,
            is_over: false,
        };
        subscriber.enter_view(Time::ZERO, &mut vec![]);
        subscriber
    }

    /// The position that is handed over next.
    #[must_use]
    pub fn next(&self) -> Position {
        self.next
    }

    /// Whether nothing follows any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The register's entry, as far as this subscription knows.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.directory.entry()
    }

    fn receive(&mut self, now: Time, node: NodeId, shard: ShardId, message: shard::Message, out: &mut Out) {
        let is_current = |feed: &&mut Feed, request| feed.source == node && feed.request == Some(request);
        match message {
            shard::Message::Deliver { request, from, records, upto } => {
                let feed = self.feeds.get_mut(&shard).filter(|feed| feed.awaits(node, request));
                let is_late = feed.as_ref().is_some_and(|feed| feed.request != Some(request));
                match feed.map(|feed| feed.receive(now, from, records, upto)) {
                    None | Some(Received::Repeated) => {}
                    Some(Received::Hole) if is_late => {}
                    Some(Received::Hole) => self.drop_subscription(now, shard, out),
                    Some(Received::Disordered(position)) => {
                        self.fail(Failure::Disordered { position, shard }, out);
                    }
                    Some(Received::Next) => {
                        // It may have been sent before the log was trimmed further.
                        self.feeds.get_mut(&shard).expect("it received").forget_below(self.next);
                        self.compare(now);
                        self.hand_over(now, out);
                    }
                }
            }
            shard::Message::ReadFailed { request, error } => {
                let feed = self.feeds.get_mut(&shard).filter(|feed| is_current(feed, request));
                if let Some(feed) = feed {
                    feed.request = None;
                    self.read_failed(now, shard, error, out);
                }
            }
            shard::Message::Fenced { .. } => self.directory.ask(now),
            // The rest are not for readers.
            _ => {}
        }
    }

    fn read_failed(&mut self, now: Time, shard: ShardId, error: ReadError, out: &mut Out) {
        match error {
            ReadError::Trimmed { first } => {
                if let Some(feed) = self.feeds.get_mut(&shard) {
                    // The records that this shard lacks below `first` are gone, also where others are still at it.
                    feed.disconnected(now);
                }
                self.trimmed(now, first, out);
            }
            ReadError::Damaged { position } => {
                self.try_next_replica(now, shard, Failure::Damaged { position, shard }, out);
            }
            ReadError::Missing { position } => {
                self.try_next_replica(now, shard, Failure::Missing { position, shard }, out);
            }
            ReadError::Lost { position, end } => {
                // Positions before it on other shards are still to be handed over.
                self.feeds.get_mut(&shard).expect("checked by the caller").lost(position, end);
                self.hand_over(now, out);
            }
            ReadError::Disk { reason } => {
                self.try_next_replica(now, shard, Failure::Disk { shard, reason }, out);
            }
            ReadError::Busy | ReadError::NotStable { .. } => {
                self.feeds.get_mut(&shard).expect("checked by the caller").refused(now);
                // A replica that is deposed and does not know may have no room for ever.
                self.directory.ask(now);
            }
        }
    }

    fn trimmed(&mut self, now: Time, first: Position, out: &mut Out) {
        if first <= self.next {
            return;
        }
        self.next = first;
        self.doubt = None;
        for feed in self.feeds.values_mut() {
            feed.forget_below(first);
        }
        self.reply(Event::Trimmed { first }, out);
        self.hand_over(now, out);
    }

    /// The other replicas hold the same records, or will; only if none of them can give out what comes next
    /// this is over.
    fn try_next_replica(&mut self, now: Time, shard: ShardId, failure: Failure, out: &mut Out) {
        let members = self.directory.view().and_then(|view| view.shard(shard));
        let Some(feed) = self.feeds.get_mut(&shard) else { return };
        let replicas = members.map_or(&[][..], |members| &members.replicas);
        feed.failures += 1;
        let rounds = feed.failures / replicas.len().max(1);
        // A replica gets what it lacks or has damaged from the others.
        let may_pass =
            matches!(failure, Failure::Missing { .. } | Failure::Damaged { .. }) && rounds < MISSING_ROUNDS;
        if replicas.is_empty() || rounds > 0 && !may_pass {
            return self.fail(failure, out);
        }
        let replica = (feed.replica + 1) % replicas.len();
        feed.request = None;
        if feed.failures % replicas.len() == 0 {
            // Another view may have somebody who holds it, or it is on its way.
            (feed.source, feed.replica) = (replicas[replica].node, replica);
            feed.refused(now);
            self.directory.ask(now);
        } else {
            feed.restart(now, replicas[replica].node, replica);
        }
    }

    fn controlled(&mut self, now: Time, message: control::Message, out: &mut Out) {
        match self.directory.receive(message) {
            Learned::Nothing => {}
            Learned::NewView => {
                (self.doubt, self.asked_again) = (None, None);
                self.enter_view(now, out);
                self.hand_over(now, out);
            }
            Learned::Same(answer) => {
                if let Some(Doubt { position, shard, .. }) = self.doubt.take_if(|doubt| answer > doubt.asked)
                {
                    self.view_confirmed(now, position, shard, out);
                }
            }
            Learned::Deleted => self.fail(Failure::Deleted(self.directory.entry().name.clone()), out),
        }
    }

    /// There is no newer view in which another shard would have the position. What the shards said may still be of a view
    /// that placed it elsewhere: they are asked again, and blamed if it does not come then.
    fn view_confirmed(&mut self, now: Time, position: Position, shard: ShardId, out: &mut Out) {
        if self.asked_again.replace(position) == Some(position) {
            return self.fail(Failure::Gap { position, shard }, out);
        }
        let shards: Vec<ShardId> = self.feeds.keys().copied().collect();
        for shard in shards {
            self.drop_subscription(now, shard, out);
        }
        self.feeds.values_mut().for_each(|feed| feed.forget_from(position));
        self.compare(now);
    }

    /// Asks the primaries of the view. What came from others before stays good: it is stable. Only where an
    /// operator accepted a loss a view starts below that.
    fn enter_view(&mut self, now: Time, out: &mut Out) {
        let Some(view) = self.directory.view() else { return };
        let steps = self.directory.entry().history.steps();
        let new = steps.iter().filter(|(number, _)| *number > self.entered).map(|(_, first)| *first);
        let first = new.min().filter(|_| self.entered != ViewNumber::NONE).unwrap_or(Position(u64::MAX));
        self.entered = view.number;
        self.feeds.values_mut().for_each(|feed| feed.forget_from(first));
        let primaries: Vec<(ShardId, NodeId)> =
            view.shards.iter().map(|members| (members.shard, members.primary().node)).collect();
        // A shard that has left had nothing more to give.
        let left: Vec<ShardId> =
            self.feeds.keys().copied().filter(|shard| view.shard(*shard).is_none()).collect();
        for shard in left {
            if let Some(Feed { source, request: Some(request), .. }) = self.feeds.remove(&shard) {
                send(source, shard, shard::Message::Cancel { request }, out);
            }
            // Its records were trimmed, whatever was handed over of them: the other shards say so to a reader that asks from
            // there.
            self.feeds.values_mut().for_each(|feed| feed.forget_from(self.next));
        }
        for (shard, primary) in primaries {
            self.drop_subscription(now, shard, out);
            let feed =
                self.feeds.entry(shard).or_insert_with(|| Feed::new(primary, self.next, now, self.window));
            feed.restart(now, primary, 0);
            feed.failures = 0;
        }
        self.compare(now);
    }

    fn disconnected(&mut self, now: Time, node: NodeId) {
        for feed in self.feeds.values_mut().filter(|feed| feed.source == node) {
            feed.disconnected(now);
            self.directory.ask(now);
        }
    }

    fn timer(&mut self, now: Time, out: &mut Out) {
        let due = |feed: &Feed| feed.deadline().is_some_and(|at| now >= at);
        let shards: Vec<ShardId> =
            self.feeds.iter().filter(|(_, feed)| due(feed)).map(|(shard, _)| *shard).collect();
        for shard in shards {
            self.subscribe(now, shard, out);
        }
        self.directory.timer(now, out);
    }

    fn subscribe(&mut self, now: Time, shard: ShardId, out: &mut Out) {
        let members = self.directory.view().and_then(|view| view.shard(shard));
        let primary = members.map(|members| members.primary().node);
        let feed = self.feeds.get_mut(&shard).expect("the caller saw it");
        let asked_before = feed.request.map(|_| feed.source);
        if let Some(request) = feed.request.take() {
            // It fell silent: a lost message, or a replica that is deposed and does not know.
            send(feed.source, shard, shard::Message::Cancel { request }, out);
            feed.was_silent();
            (feed.source, feed.replica) = (primary.unwrap_or(feed.source), 0);
            self.directory.ask(now);
        }
        self.last_request += 1;
        let (request, from) = (self.last_request, feed.upto.max(self.next));
        let continues = asked_before == Some(feed.source);
        let credit = feed.asked(now, request, from, continues);
        send(feed.source, shard, shard::Message::Subscribe { request, from, credit }, out);
        self.compare(now);
    }

    /// Ends a shard's subscription so that it is made anew with the next timer.
    fn drop_subscription(&mut self, now: Time, shard: ShardId, out: &mut Out) {
        let Some(feed) = self.feeds.get_mut(&shard) else { return };
        if let Some(request) = feed.request.take() {
            send(feed.source, shard, shard::Message::Cancel { request }, out);
        }
        feed.restart(now, feed.source, feed.replica);
    }

    /// Notes which shards are behind the others.
    fn compare(&mut self, now: Time) {
        let frontier = self.feeds.values().map(|feed| feed.upto).max().unwrap_or_default();
        for feed in self.feeds.values_mut() {
            feed.compare(now, frontier.max(self.next));
        }
    }

    /// Hands over what comes next, as far as it is there and wanted.
    fn hand_over(&mut self, now: Time, out: &mut Out) {
        if self.directory.view().is_none() {
            return;
        }
        let mut records = vec![];
        let (mut missing, mut lost) = (None, None);
        while self.next < self.end && self.wants_more() && self.doubt.is_none() {
            let (shard, taken) = self.take_next();
            match taken {
                Taken::Record(stored) => {
                    self.next = self.next.next();
                    if !stored.record.is_no_op() {
                        self.wanted_records -= 1;
                        self.wanted_bytes =
                            self.wanted_bytes.saturating_sub_unsigned(stored.record.size() as u64);
                        records.push(stored);
                    }
                }
                Taken::NotYet => break,
                Taken::Lost(end) => {
                    lost = Some(Failure::Lost { position: self.next, shard, end });
                    break;
                }
                Taken::Missing => {
                    missing = Some(shard);
                    break;
                }
            }
        }
        if let Some(shard) = missing {
            self.doubt = Some(Doubt { position: self.next, shard, asked: self.directory.asked() });
            self.directory.ask_surely(now);
        }
        if !records.is_empty() {
            self.reply(Event::Deliver { records, speculative: false }, out);
        }
        if let Some(failure) = lost {
            return self.fail(failure, out);
        }
        if self.next >= self.end {
            self.reply(Event::Finished, out);
            return self.finish(out);
        }
        self.return_credit(out);
    }

    /// The next record, or why it is not there, from the shard that has it or is to be waited for.
    fn take_next(&mut self) -> (ShardId, Taken) {
        let next = self.next;
        if let Some(shard) = self.directory.placement().map(|placement| placement.shard_of(next)) {
            let feed = self.feeds.get_mut(&shard);
            return (shard, feed.map_or(Taken::NotYet, |feed| feed.take(next)));
        }
        // Nobody says who should have it: it is missing when nobody has it.
        let mut best: Option<(ShardId, Taken)> = None;
        for (shard, feed) in &mut self.feeds {
            let taken = feed.take(next);
            if matches!(taken, Taken::Record(_)) {
                return (*shard, taken);
            }
            if best.as_ref().is_none_or(|(_, known)| taken.rank() < known.rank()) {
                best = Some((*shard, taken));
            }
        }
        best.unwrap_or((ShardId(0), Taken::NotYet))
    }

    fn wants_more(&self) -> bool {
        self.wanted_records > 0 && self.wanted_bytes > 0
    }

    fn return_credit(&mut self, out: &mut Out) {
        for (shard, feed) in &mut self.feeds {
            if let Some((request, bytes)) = feed.credit_due() {
                send(feed.source, *shard, shard::Message::Credit { request, bytes }, out);
            }
        }
    }

    fn fail(&mut self, failure: Failure, out: &mut Out) {
        self.reply(Event::Failed(failure), out);
        self.finish(out);
    }

    fn finish(&mut self, out: &mut Out) {
        self.is_over = true;
        for (shard, feed) in std::mem::take(&mut self.feeds) {
            if let Some(request) = feed.request {
                send(feed.source, shard, shard::Message::Cancel { request }, out);
            }
        }
    }

    fn reply(&self, reply: Event, out: &mut Out) {
        out.push(Effect::Reply { token: self.token, reply });
    }
}

fn send(node: NodeId, shard: ShardId, message: shard::Message, out: &mut Out) {
    out.push(Effect::Send { to: Address::Node(node, Endpoint::Shard(shard)), message: message.into() });
}

#[cfg(test)]
#[path = "subscriber_tests.rs"]
mod tests;
