//! The input of a reader: one subscription per shard of a log.
//!
//! [`Source`] maintains these subscriptions (credit, retransmission, changes of replica and view)
//! and buffers their records. For a position it returns an [`Answer`]. A [policy](crate::policy)
//! chooses the positions and uses their records.
//!
//! Single reads share [`Directory`] (the register's entry), [`Doubt`] (whether a missing position
//! is a gap) and [`Round`] (whether no replica can serve a position).

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::storage::Stored;
use seriatim_model::{Address, Effect, Endpoint, NodeId, Position, ShardId, Span, Time, ViewNumber, limits};
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::roles::Message;
use seriatim_protocol::shard::{self, ReadError};
use seriatim_protocol::{Mutation, Options};

mod credit;
mod directory;
mod doubt;
pub(crate) mod feed;
mod predictions;
mod round;

pub(crate) use directory::{Directory, Learned};
pub(crate) use doubt::{Doubt, Verdict};
use feed::{ELSEWHERE_AFTER, Feed, IDLE, MISSING_ROUNDS, Received, Seen};
pub use predictions::Selection;
pub(crate) use predictions::{Basis, Known};
pub(crate) use round::{Round, Turn};

use crate::failure::Failure;
use crate::subscriber::Unanswered;

/// The subscriptions to all shards of one log.
///
/// Promises: it returns each record at most once, and only final. Each shard's data in flight and
/// buffered stays within its share of the window, plus the last record. A position is lost only if
/// its shard says so, and missing only after the register and all shards were asked again. At or
/// above the start of an unknown view it skips no position of shards that were not chosen.
///
/// Invariant: nothing below `wanted_from` is asked for or given out.
#[derive(Debug)]
pub(crate) struct Source {
    directory: Directory,
    selection: Selection,
    /// Bytes in flight and buffered for all shards; see [`share`].
    window: u64,
    feeds: BTreeMap<ShardId, Feed>,
    wanted_from: Position,
    /// Position and shard of the record that the last `ask` found.
    found: Option<(Position, ShardId)>,
    last_request: u64,
    doubt: Doubt,
    /// Time of the next register question about a chosen shard that has not joined.
    joined_asked_at: Option<Time>,
    options: Options,
}

/// Knowledge of a position. Except `NotYet`, it changes only by a trim or an accepted loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Record,
    /// No record at the position and below `end`: these are no-ops, or no shard owns them.
    Empty {
        end: Position,
    },
    /// Unknown. Some shard has served everything below `frontier`.
    NotYet {
        frontier: Position,
    },
    /// The record is lost, and an operator accepted the loss.
    Lost {
        /// The former owner.
        shard: ShardId,
        /// Exclusive end: no shard has a record from the loss to here.
        end: Position,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    Changed,
    /// Final data arrived for these positions; delivered predictions there may be wrong.
    Final {
        from: Position,
        upto: Position,
    },
    /// As `Changed`, with a newer view.
    Entered {
        /// First position whose records were replaced after an accepted loss. None: no such loss.
        reassigned_from: Option<Position>,
    },
    /// All predictions of this view below `upto` are final, except skipped records.
    Holds {
        view: ViewNumber,
        upto: Position,
        /// First skipped position: predictions from there on may be wrong.
        void: Option<Position>,
    },
    Trimmed {
        first: Position,
    },
    Failed(Failure),
}

impl Source {
    pub(crate) fn new(
        control: NodeId,
        entry: LogEntry,
        from: Position,
        window: u64,
        selection: Selection,
        options: Options,
    ) -> Self {
        let mut source = Self {
            directory: Directory::new(control, entry),
            selection,
            window,
            feeds: BTreeMap::new(),
            wanted_from: from,
            found: None,
            last_request: 0,
            doubt: Doubt::default(),
            joined_asked_at: None,
            options,
        };
        source.enter_view::<()>(Time::ZERO, Position(u64::MAX), &mut vec![]);
        source.await_joining(Time::ZERO);
        source
    }

    pub(crate) fn entry(&self) -> &LogEntry {
        self.directory.entry()
    }

    /// Shards that block `position`: they may own it, but their replicas are silent or lack it.
    pub(crate) fn unanswered(&self, now: Time, position: Position) -> Vec<Unanswered> {
        let Some(view) = self.directory.view() else { return vec![] };
        let placed = self.directory.placement().map(|placement| placement.shard_of(position));
        let holds_up = |shard: &ShardId, feed: &Feed| {
            placed.is_none_or(|placed| placed == *shard)
                && feed.reaches(position)
                && feed.final_bound() <= position
        };
        let waited_for = self.feeds.iter().filter(|(shard, feed)| holds_up(shard, feed));
        let unanswered = waited_for.filter_map(|(shard, feed)| {
            let replicas = &view.holders(*shard)?.replicas;
            let (silent, lacking) = feed.unanswered(now, replicas)?;
            Some(Unanswered { shard: *shard, silent, lacking, is_joining: false })
        });
        let joining = self.joining().map(Unanswered::joining);
        unanswered.chain(joining).collect()
    }

    /// Whether the log has a view. Without a view every position is unknown.
    pub(crate) fn has_view(&self) -> bool {
        self.directory.view().is_some()
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let of_feeds = self.feeds.values().filter_map(Feed::deadline);
        of_feeds.chain(self.directory.deadline()).chain(self.joined_asked_at).min()
    }

    /// Returns the knowledge of `position`. Positions below it, and below the end of an empty
    /// answer, are no longer wanted.
    ///
    /// # Panics
    /// If `position` was taken, found empty, or trimmed before.
    pub(crate) fn ask(&mut self, now: Time, position: Position) -> Answer {
        assert!(
            position >= self.wanted_from,
            "{position} is wanted again, and all below {}",
            self.wanted_from
        );
        (self.wanted_from, self.found) = (position, None);
        if self.doubt.is_open() || !self.has_view() {
            return Answer::NotYet { frontier: self.frontier() };
        }
        let (shard, seen) = self.look(position);
        match seen {
            Seen::Record => {
                self.found = Some((position, shard));
                Answer::Record
            }
            Seen::NoOp => {
                self.take_from(shard, position);
                Answer::Empty { end: self.wanted_from }
            }
            Seen::Empty(end) => {
                self.wanted_from = end;
                Answer::Empty { end }
            }
            Seen::Lost(end) => Answer::Lost { shard, end: self.lost_to(shard, position, end) },
            Seen::NotYet => Answer::NotYet { frontier: self.frontier() },
            Seen::Missing => {
                self.doubt.raise(now, position, shard, &mut self.directory);
                Answer::NotYet { frontier: self.frontier() }
            }
        }
    }

    /// Takes the record found by the last [`ask`](Self::ask), without other input between.
    ///
    /// # Panics
    /// If `ask` found none.
    pub(crate) fn take(&mut self) -> Stored {
        let (position, shard) = self.found.take().expect("a record is taken once, after it was found");
        self.take_from(shard, position)
    }

    fn take_from(&mut self, shard: ShardId, position: Position) -> Stored {
        self.wanted_from = position.next();
        self.feeds.get_mut(&shard).expect("it was seen there").take(position)
    }

    /// Looks up `position` at its owner, or at the shard to wait for.
    fn look(&mut self, position: Position) -> (ShardId, Seen) {
        if let Some(shard) = self.directory.placement().map(|placement| placement.shard_of(position)) {
            let feed = self.feeds.get_mut(&shard);
            return (shard, feed.map_or(Seen::NotYet, |feed| feed.look(position)));
        }
        // Without a placement, a position is missing only if every shard lacks it.
        let mut best: Option<(ShardId, Seen)> = None;
        let is_untrimmed = self.is_known_untrimmed(position);
        for (shard, feed) in self.feeds.iter_mut().filter(|(_, feed)| feed.reaches(position)) {
            let seen = feed.look(position);
            let seen = if feed.is_retired() && !is_untrimmed { Seen::NotYet } else { seen };
            if seen.is_there() {
                return (*shard, seen);
            }
            if best.is_none_or(|(_, known)| seen.rank() < known.rank()) {
                best = Some((*shard, seen));
            }
        }
        best.unwrap_or((ShardId(0), Seen::NotYet))
    }

    /// End of the range without records, which begins at `position`: the end of the shard's loss,
    /// or the next record of another shard before it.
    fn lost_to(&self, shard: ShardId, position: Position, end: Position) -> Position {
        let others = self.feeds.iter().filter(|(other, feed)| **other != shard && feed.reaches(position));
        let placement = self.directory.placement();
        let next = others.filter_map(|(other, feed)| match (placement, feed.at(position)) {
            _ if self.options.mutates(Mutation::LostBeyondOthers) => None,
            (Some(placement), _) => placement.first_of(*other, position, end),
            (None, Seen::Lost(end)) => Some(end),
            (None, _) => Some(feed.next_from(position)),
        });
        next.min().map_or(end, |next| next.min(end))
    }

    /// Retired shards receive no trims, so their records count only after another wanted shard has
    /// passed the position.
    fn believed(&self, is_retired: bool, position: Position, seen: Seen) -> Seen {
        if is_retired && !self.is_known_untrimmed(position) { Seen::NotYet } else { seen }
    }

    fn is_known_untrimmed(&self, position: Position) -> bool {
        let mut others = self.feeds.values().filter(|feed| !feed.is_retired()).peekable();
        others.peek().is_none() || others.any(|feed| feed.upto > position)
    }

    fn frontier(&self) -> Position {
        self.feeds.values().map(|feed| feed.upto).max().unwrap_or_default()
    }

    /// Returns the credit of taken records to the shards, if it is worth a message.
    pub(crate) fn return_credit<R>(&mut self, out: &mut Vec<Effect<Message, R>>) {
        let wanted_from = self.wanted_from;
        self.feeds.retain(|shard, feed| {
            let is_over = !feed.reaches(wanted_from);
            if is_over {
                cancel(*shard, feed.node, feed.request.take(), out);
            }
            !is_over
        });
        for (shard, feed) in &mut self.feeds {
            // Several shards may have reported the same empty positions.
            feed.pass_empty(self.wanted_from);
            if let Some((request, bytes)) = feed.credit_due() {
                send(feed.node, *shard, shard::Message::Credit { request, bytes }, out);
            }
        }
    }

    pub(crate) fn close<R>(&mut self, out: &mut Vec<Effect<Message, R>>) {
        for (shard, feed) in std::mem::take(&mut self.feeds) {
            cancel(shard, feed.node, feed.request, out);
        }
    }

    pub(crate) fn receive<R>(
        &mut self,
        now: Time,
        (node, shard): (NodeId, ShardId),
        message: shard::Message,
        out: &mut Vec<Effect<Message, R>>,
    ) -> News {
        match message {
            shard::Message::Deliver { request, view, from, records, upto } => {
                self.delivered(now, (node, shard, request), (view, from), (records, vec![]), upto, out)
            }
            shard::Message::DeliverWith { request, view, from, records, empty, upto } => {
                self.delivered(now, (node, shard, request), (view, from), (records, empty), upto, out)
            }
            shard::Message::Predict { request, view, from, records, empty, upto } => {
                self.predicted(now, (node, shard, request), (view, from), (records, empty), upto, out)
            }
            shard::Message::Holds { request, view, from, upto, void } => {
                self.holds(now, (node, shard, request), view, (from, upto, void), out)
            }
            shard::Message::ReadFailed { request, error } => {
                let is_current = |feed: &&mut Feed| feed.node == node && feed.request == Some(request);
                let Some(feed) = self.feeds.get_mut(&shard).filter(is_current) else { return News::Nothing };
                feed.request = None;
                self.read_failed(now, shard, error)
            }
            shard::Message::Fenced { .. } => {
                self.directory.ask(now);
                News::Nothing
            }
            _ => News::Nothing,
        }
    }

    fn delivered<R>(
        &mut self,
        now: Time,
        (node, shard, request): (NodeId, ShardId, u64),
        (view, from): (ViewNumber, Position),
        found: (Vec<Stored>, Vec<Span>),
        upto: Position,
        out: &mut Vec<Effect<Message, R>>,
    ) -> News {
        let (wanted_from, must_ask) = (self.wanted_from, self.must_ask_first(view));
        let feed = self.feeds.get_mut(&shard).filter(|feed| feed.awaits(node, request));
        let Some(feed) = feed else { return News::Nothing };
        if must_ask {
            // The shard sends it again after the view is known.
            feed.was_heard(now);
            self.directory.ask(now);
            return News::Nothing;
        }
        match feed.receive(now, from, found, upto) {
            Received::Next => {
                // The sender may not have known of a trim.
                feed.forget_below(wanted_from);
                self.compare(now);
                News::Final { from, upto }
            }
            received => self.refuse(now, (shard, request), received, out),
        }
    }

    fn refuse<R>(
        &mut self,
        now: Time,
        (shard, request): (ShardId, u64),
        received: Received,
        out: &mut Vec<Effect<Message, R>>,
    ) -> News {
        match received {
            Received::Next | Received::Repeated => News::Nothing,
            Received::Hole | Received::TooMuch => {
                // If the delivery belongs to an earlier request, the current subscription stays.
                if self.feeds[&shard].request == Some(request) {
                    self.drop_subscription(now, shard, out);
                }
                News::Nothing
            }
            Received::Disordered(position) => News::Failed(Failure::Disordered { position, shard }),
        }
    }

    fn read_failed(&mut self, now: Time, shard: ShardId, error: ReadError) -> News {
        let feed = self.feeds.get_mut(&shard).expect("the caller saw it");
        match error {
            ReadError::Trimmed { first } => {
                // The log is trimmed below `first`, even if other shards still serve records there.
                feed.rest(now);
                self.trimmed(first)
            }
            ReadError::Damaged { position } => {
                self.try_next_replica(now, shard, Failure::Damaged { position, shard })
            }
            ReadError::Missing { position, lacking } => {
                feed.lacks(lacking);
                self.try_next_replica(now, shard, Failure::Missing { position, shard })
            }
            // Other shards' records have reached `end`, or an earlier delivery was lost: subscribe
            // again.
            ReadError::Lost { position, end } if end <= self.wanted_from || position > feed.final_upto => {
                feed.restart(now, feed.node, feed.replica);
                News::Nothing
            }
            ReadError::Lost { position, end } if self.directory.tells_lost(shard, position, end) => {
                // Other shards' positions before it remain to be taken.
                feed.lost(position, end);
                News::Changed
            }
            ReadError::Lost { .. } => {
                // The reader does not know the view with the accepted loss. That view may have
                // shards with records there, and decides earlier predictions.
                feed.refused(now);
                self.directory.ask(now);
                News::Nothing
            }
            ReadError::Disk { reason } => self.try_next_replica(now, shard, Failure::Disk { shard, reason }),
            ReadError::Busy | ReadError::NotStable { .. } => {
                feed.refused(now);
                // A deposed replica may stay busy forever.
                self.directory.ask(now);
                News::Nothing
            }
        }
    }

    fn trimmed(&mut self, first: Position) -> News {
        if first <= self.wanted_from {
            return News::Nothing;
        }
        self.wanted_from = first;
        self.doubt.let_go();
        self.feeds.values_mut().for_each(|feed| feed.forget_below(first));
        News::Trimmed { first }
    }

    /// After a refusal, asks the shard's next replica. Fails only if no replica can serve the next
    /// position.
    fn try_next_replica(&mut self, now: Time, shard: ShardId, failure: Failure) -> News {
        let feed = self.feeds.get_mut(&shard).expect("the caller saw it");
        let Some((node, replica)) = self.directory.next_to(shard, feed.replica) else {
            return News::Failed(failure);
        };
        match feed.said_no(failure, self.directory.replicas(shard)) {
            Turn::Next => {
                feed.restart(now, node, replica);
                return News::Nothing;
            }
            Turn::All(failure) if feed.rounds_in_vain > 0 => {
                // A replica copies missing and damaged records from the others.
                let may_pass = matches!(failure, Failure::Missing { .. } | Failure::Damaged { .. });
                if !may_pass || feed.rounds_in_vain >= MISSING_ROUNDS {
                    return News::Failed(failure);
                }
            }
            Turn::All(_) | Turn::Again => {}
        }
        // Another view may have a replica with the record, or a copy is in progress.
        feed.begin_round(now, node, replica);
        self.directory.ask(now);
        News::Nothing
    }

    pub(crate) fn controlled<R>(
        &mut self,
        now: Time,
        message: control::Message,
        out: &mut Vec<Effect<Message, R>>,
    ) -> News {
        let learned = self.directory.receive(message);
        self.await_joining(now + IDLE);
        match learned {
            Learned::Nothing => News::Nothing,
            Learned::NewView { lost_from, reassigned_from } => {
                self.enter_view(now, lost_from, out);
                let reassigned_from =
                    reassigned_from.filter(|_| !self.options.mutates(Mutation::ReassignedIgnored));
                News::Entered { reassigned_from }
            }
            Learned::Same(answer) => match self.doubt.view_confirmed(answer) {
                // The awaited shard may leave before it joins.
                None if self.left().is_some() => News::Changed,
                None => News::Nothing,
                Some(Verdict::Gap(gap)) => News::Failed(gap),
                Some(Verdict::AskAgain(position)) => {
                    self.ask_all_again(now, position, out);
                    News::Nothing
                }
            },
            Learned::Deleted => News::Failed(Failure::Deleted(self.entry().name.clone())),
        }
    }

    fn ask_all_again<R>(&mut self, now: Time, position: Position, out: &mut Vec<Effect<Message, R>>) {
        let shards: Vec<ShardId> = self.feeds.keys().copied().collect();
        for shard in shards {
            self.drop_subscription(now, shard, out);
        }
        self.feeds.values_mut().for_each(|feed| feed.forget_from(position));
        self.compare(now);
    }

    /// Subscribes to the view's primaries. Buffered records stay valid, because they are stable,
    /// except from `lost_from` on after an accepted loss.
    fn enter_view<R>(&mut self, now: Time, lost_from: Position, out: &mut Vec<Effect<Message, R>>) {
        let Some(view) = self.directory.view() else { return };
        self.doubt.enter_view(None);
        self.feeds.values_mut().for_each(|feed| feed.forget_from(lost_from));
        // The remaining predictions are at positions that the previous view decides, so they are
        // final. But drop them if the ordering may have skipped some, or if the known history
        // begins above them: shards then send them again as final, or report a trim.
        let (may_pass_over, told_from) = (self.may_pass_over(), self.entry().history.start());
        for feed in self.feeds.values_mut() {
            match may_pass_over || feed.final_upto < told_from {
                true => feed.forget_predictions(),
                false => feed.confirm_predictions(),
            }
        }
        let retired = view.retired.iter().map(|retired| (retired.copies(), retired.until));
        let all = view.shards.iter().map(|members| (members, Position(u64::MAX))).chain(retired);
        let all = all.map(|(members, until)| (members.shard, members.primary().node, until));
        // Ended shards have only positions given up: they need no subscription.
        let ended = self.directory.ended().map(|gap| (gap.shard, view.leader, gap.end));
        let is_wanted = |(shard, _, until): &(ShardId, NodeId, Position)| {
            self.selection.chooses(*shard) && *until > self.wanted_from
        };
        let primaries: Vec<(ShardId, NodeId, Position)> = all.chain(ended).filter(is_wanted).collect();
        // Shards that left, or that end below `wanted_from`: no more records come from them.
        let has_left = |shard: &ShardId| view.holders(*shard).is_none();
        let is_over =
            |shard: &&ShardId| has_left(shard) || primaries.iter().all(|(wanted, ..)| wanted != *shard);
        let over: Vec<(ShardId, bool)> =
            self.feeds.keys().filter(is_over).map(|shard| (*shard, has_left(shard))).collect();
        let has_ended: BTreeSet<ShardId> = self.directory.ended().map(|gap| gap.shard).collect();
        for (shard, has_left) in over {
            if let Some(feed) = self.feeds.remove(&shard) {
                cancel(shard, feed.node, feed.request, out);
            }
            if has_left {
                // The records of a shard that left were trimmed. Ask the other shards again: they
                // report the trim.
                self.feeds.values_mut().for_each(|feed| feed.forget_from(self.wanted_from));
            }
        }
        let window = share(self.window, primaries.len());
        for (shard, primary, until) in primaries {
            self.drop_subscription(now, shard, out);
            let new = || Feed::new(primary, self.wanted_from, now, window);
            let feed = self.feeds.entry(shard).or_insert_with(new);
            feed.resize(window);
            feed.restart(now, primary, 0);
            feed.helped();
            feed.ends(until, self.directory.given_up(shard), has_ended.contains(&shard));
        }
        self.compare(now);
    }

    pub(crate) fn disconnected(&mut self, now: Time, node: NodeId) {
        for (shard, feed) in self.feeds.iter_mut().filter(|(_, feed)| feed.node == node) {
            feed.disconnected(now);
            if let Some(instead) = self.directory.instead_of(*shard, feed.replica, &feed.round) {
                (feed.node, feed.replica) = instead;
            }
            self.directory.ask(now);
        }
    }

    pub(crate) fn timer<R>(&mut self, now: Time, out: &mut Vec<Effect<Message, R>>) {
        let due = |feed: &Feed| feed.deadline().is_some_and(|at| now >= at);
        let shards: Vec<ShardId> =
            self.feeds.iter().filter(|(_, feed)| due(feed)).map(|(shard, _)| *shard).collect();
        for shard in shards {
            self.subscribe(now, shard, out);
        }
        self.ask_whether_joined(now);
        self.directory.timer(now, out);
    }

    fn subscribe<R>(&mut self, now: Time, shard: ShardId, out: &mut Vec<Effect<Message, R>>) {
        let members = self.directory.view().and_then(|view| view.holders(shard));
        let primary = members.map(|members| members.primary().node);
        let feed = self.feeds.get_mut(&shard).expect("the caller saw it");
        let asked_before = feed.request.map(|_| feed.node);
        if let Some(request) = feed.request.take() {
            // Silence: a lost message, or a deposed replica.
            cancel(shard, feed.node, Some(request), out);
            feed.timed_out();
            let instead = match feed.is_silent_for(now, ELSEWHERE_AFTER) {
                true => self.directory.next_to(shard, feed.replica),
                false => self.directory.instead_of(shard, feed.replica, &feed.round),
            };
            (feed.node, feed.replica) = instead.unwrap_or((primary.unwrap_or(feed.node), 0));
            self.directory.ask(now);
        }
        // The replica sends predictions again, or final records in their place.
        feed.forget_predictions();
        self.last_request += 1;
        let (request, from) = (self.last_request, feed.upto.max(self.wanted_from));
        let continues = asked_before == Some(feed.node);
        let credit = feed.asked(now, request, from, continues);
        let Selection { speculative, filter, .. } = &self.selection;
        let message = match (*speculative, filter.clone()) {
            (false, None) => shard::Message::Subscribe { request, from, credit },
            (speculative, filter) => {
                shard::Message::SubscribeWith { request, from, credit, speculative, filter }
            }
        };
        send(feed.node, shard, message, out);
        self.compare(now);
    }

    /// Ends a subscription; the next timer renews it.
    fn drop_subscription<R>(&mut self, now: Time, shard: ShardId, out: &mut Vec<Effect<Message, R>>) {
        let Some(feed) = self.feeds.get_mut(&shard) else { return };
        cancel(shard, feed.node, feed.request.take(), out);
        feed.restart(now, feed.node, feed.replica);
    }

    /// Records which shards are behind the others.
    fn compare(&mut self, now: Time) {
        let frontier = self.feeds.values().map(|feed| feed.final_upto).max().unwrap_or_default();
        let frontier = frontier.max(self.wanted_from);
        self.feeds.values_mut().for_each(|feed| feed.compare(now, frontier));
    }
}

/// Each shard's share of the window: an equal part, at least [`limits::SUBSCRIPTION_BYTES_LEAST`]
/// and at most [`limits::SUBSCRIPTION_BYTES`].
fn share(window: u64, shards: usize) -> u64 {
    let least = limits::SUBSCRIPTION_BYTES_LEAST.min(window);
    (window / shards.max(1) as u64).clamp(least, limits::SUBSCRIPTION_BYTES)
}

pub(crate) fn send<R>(
    node: NodeId,
    shard: ShardId,
    message: shard::Message,
    out: &mut Vec<Effect<Message, R>>,
) {
    out.push(Effect::Send { to: Address::Node(node, Endpoint::Shard(shard)), message: message.into() });
}

fn cancel<R>(shard: ShardId, node: NodeId, request: Option<u64>, out: &mut Vec<Effect<Message, R>>) {
    if let Some(request) = request {
        send(node, shard, shard::Message::Cancel { request }, out);
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
