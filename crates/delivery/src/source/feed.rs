//! One shard's part of a subscription: what was asked for, what came, what may still come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use seriatim_model::storage::Stored;
use seriatim_model::{Gap, Member, NodeId, Position, Span, Time, limits};
use seriatim_protocol::parts::Backoff;

use super::credit::Credit;
use super::round::{Round, Turn};
use crate::failure::Failure;

/// How long to wait for what should come before it is asked for again; doubled each time.
pub(crate) const TIMEOUT_FIRST: Duration = Duration::from_millis(200);
/// How long to wait where nothing need come, before making sure that the subscription still stands;
/// and the longest wait for what another shard has already.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// The longest wait for a first delivery: one that takes longer than the timeout is on its way all
/// the same.
const FIRST_MOST: Duration = Duration::from_secs(8);
/// How long to wait before a node that disconnected is asked again; doubled each time up to
/// [`IDLE`].
const RECONNECT_AFTER: Duration = Duration::from_millis(20);

/// The time without an answer after which a replica counts as silent. A replica answers each
/// request, also with an empty delivery, and is asked every [`IDLE`] where it owes nothing.
const SILENT_AFTER: Duration = Duration::from_secs(2);
/// The time without an answer after which the next replica is asked. An answer may take longer than
/// one timeout.
pub(crate) const ELSEWHERE_AFTER: Duration = Duration::from_secs(3);

/// How often in a row all replicas of a shard may say that they do not hold a record yet, and get
/// nothing of what they lack, before that is believed.
pub(crate) const MISSING_ROUNDS: usize = 25;

/// Invariant: `buffer` holds the shard's records below `upto` that were not taken yet, in order,
/// and `empty` the positions below it that the shard called empty and that were not passed;
/// `credit` counts the bytes of both as kept. What is at `final_upto` or above is predicted, in the
/// view that the reader knows; `final_upto <= upto`.
#[derive(Debug)]
pub(crate) struct Feed {
    /// The node that was asked.
    pub(crate) node: NodeId,
    /// Which replica of the shard that is; 0 is the primary.
    pub(crate) replica: usize,
    /// The replicas that cannot give out what comes next, ...
    pub(crate) round: Round,
    /// ... and how often all of them said so in vain.
    pub(crate) rounds_in_vain: usize,
    /// How few positions each of them lacked of the shard, where it said so, ...
    lacking: BTreeMap<NodeId, u64>,
    /// ... and whether one of them lacks fewer than ever before.
    has_gained: bool,
    /// When all of them are asked again.
    rounds: Backoff,
    /// The subscription, once it was asked for.
    pub(crate) request: Option<u64>,
    /// The first of the requests to this node that were made because the one before was not
    /// answered in time.
    earliest: u64,
    /// Everything of this shard below it has come, ...
    pub(crate) upto: Position,
    /// ... and below this one it is final.
    pub(crate) final_upto: Position,
    /// The shard has nothing from there on, if it takes no part in the view; beyond all positions
    /// otherwise.
    until: Position,
    /// It is asked for what lies below this one.
    asked_until: Position,
    /// The positions that were given up, without asking anybody.
    given_up: Option<Gap>,
    /// The position that comes next is lost, and the shard's others below the second one.
    lost: Option<(Position, Position)>,
    buffer: VecDeque<Stored>,
    empty: VecDeque<Span>,
    credit: Credit,
    /// When it was asked or heard last; before it was asked, when to ask.
    since: Time,
    /// Since when another shard has been ahead of this one.
    owed_since: Option<Time>,
    /// How long it may stay silent. How far that grows depends on what is awaited, so it is no
    /// [`Backoff`].
    timeout: Duration,
    heard: bool,
    /// When a replica said something last; before that, when one was asked for the first time.
    answered: Option<Time>,
    /// The nodes that were asked since then.
    tried: BTreeSet<NodeId>,
    /// When it is asked again after its node disconnected.
    reconnects: Backoff,
}

/// The contents of a shard at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Record,
    NoOp,
    /// No record comes below this position.
    Empty(Position),
    NotYet,
    /// The shard passed over the position, or gave out one below it again.
    Missing,
    /// It is lost, and the shard's others below this one.
    Lost(Position),
}

impl Seen {
    /// Whether it is known what is there: the shard has it, or nobody.
    pub(crate) fn is_there(self) -> bool {
        matches!(self, Self::Record | Self::NoOp | Self::Empty(_))
    }

    /// Which answer counts, if several shards might have the position: the lowest.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Record | Self::NoOp | Self::Empty(_) => 0,
            Self::NotYet => 1,
            Self::Lost(_) => 2,
            Self::Missing => 3,
        }
    }
}

/// The verdict on a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// It continues what came before.
    Next,
    /// It came before.
    Repeated,
    /// One before it was lost.
    Hole,
    /// It is more than the shard may send.
    TooMuch,
    /// This position is not where it should be.
    Disordered(Position),
}

impl Feed {
    pub(crate) fn new(node: NodeId, from: Position, now: Time, window: u64) -> Self {
        Self {
            node,
            replica: 0,
            round: Round::default(),
            rounds_in_vain: 0,
            lacking: BTreeMap::new(),
            has_gained: false,
            rounds: Backoff::new(now, TIMEOUT_FIRST, IDLE),
            request: None,
            earliest: 0,
            upto: from,
            final_upto: from,
            until: Position(u64::MAX),
            asked_until: Position(u64::MAX),
            given_up: None,
            lost: None,
            buffer: VecDeque::new(),
            empty: VecDeque::new(),
            credit: Credit::new(window),
            since: now,
            owed_since: None,
            timeout: TIMEOUT_FIRST,
            heard: false,
            answered: None,
            tried: BTreeSet::new(),
            reconnects: Backoff::new(now, RECONNECT_AFTER, IDLE),
        }
    }

    /// When to subscribe again if nothing comes before.
    pub(crate) fn deadline(&self) -> Option<Time> {
        match self.owed_since {
            _ if self.lost.is_some() || self.is_retired() && self.final_upto >= self.asked_until => None,
            _ if self.request.is_none() => Some(self.since),
            // Where it is spent on predictions, the shard owes news of them.
            _ if self.credit.is_spent() && self.final_upto == self.upto => None,
            Some(owed_since) => Some(self.since.max(owed_since) + self.timeout),
            None if self.heard => Some(self.since + IDLE),
            None => Some(self.since + self.timeout),
        }
    }

    /// Whether the shard takes no part in the view.
    pub(crate) fn is_retired(&self) -> bool {
        self.until != Position(u64::MAX)
    }

    /// Whether the shard can have this position.
    pub(crate) fn reaches(&self, position: Position) -> bool {
        position < self.until
    }

    /// Below it everything of the shard has come and is final. One that is retired has no end
    /// beyond its own.
    pub(crate) fn final_bound(&self) -> Position {
        if self.final_upto >= self.asked_until { Position(u64::MAX) } else { self.final_upto }
    }

    /// The shard's place in the view: it has nothing from `until` on, and what was given up of it
    /// is there no more. One that `has_ended` is not asked for anything.
    pub(crate) fn ends(&mut self, until: Position, given_up: Option<Gap>, has_ended: bool) {
        (self.until, self.given_up) = (until, given_up);
        self.asked_until = match given_up {
            _ if has_ended => Position::ZERO,
            Some(gap) => gap.from,
            None => until,
        };
        self.forget_given_up();
    }

    /// A replica that does not know of it yet may give out what was given up.
    fn forget_given_up(&mut self) {
        if let Some(gap) = self.given_up.filter(|gap| gap.from < self.upto) {
            let (upto, final_upto) = (self.upto, self.final_upto);
            self.forget_from(gap.from);
            // Nobody is asked for it again.
            (self.upto, self.final_upto) = (upto, final_upto);
        }
    }

    /// Notes that it is asked, and returns the credit to ask with. If that `continues` what was
    /// asked before, answers to that are still good.
    pub(crate) fn asked(&mut self, now: Time, request: u64, from: Position, continues: bool) -> u64 {
        self.request = Some(request);
        self.earliest = if continues { self.earliest } else { request };
        (self.upto, self.final_upto) = (from, from);
        self.since = now;
        self.heard = false;
        self.answered.get_or_insert(now);
        self.tried.insert(self.node);
        self.credit.begin()
    }

    /// Nothing came for too long: the next wait is longer.
    pub(crate) fn timed_out(&mut self) {
        let was_idle = self.heard && self.owed_since.is_none();
        let most = if self.heard { IDLE } else { FIRST_MOST };
        self.timeout = if was_idle { IDLE } else { (self.timeout * 2).min(most) };
    }

    /// Whether a delivery that `node` made for `request` counts: the present subscription's, or a
    /// late one of those that it repeats.
    pub(crate) fn awaits(&self, node: NodeId, request: u64) -> bool {
        self.node == node && self.request.is_some_and(|present| (self.earliest..=present).contains(&request))
    }

    /// Asks `node` anew, as soon as possible.
    pub(crate) fn restart(&mut self, now: Time, node: NodeId, replica: usize) {
        if node != self.node {
            self.reconnects.helped();
        }
        (self.node, self.replica) = (node, replica);
        self.since = now;
        self.lost = None;
        self.timeout = TIMEOUT_FIRST;
        self.heard = false;
    }

    /// The subscription has ended. It is made anew soon.
    pub(crate) fn rest(&mut self, now: Time) {
        self.request = None;
        self.since = now + RECONNECT_AFTER;
    }

    /// The connection is gone, and with it the subscription.
    pub(crate) fn disconnected(&mut self, now: Time) {
        if now >= self.reconnects.at() + IDLE {
            // It stood for a while.
            self.reconnects.helped();
        }
        self.request = None;
        self.reconnects.tried(now);
        self.since = self.reconnects.at();
    }

    /// The next position is lost: there is nothing more to ask for.
    pub(crate) fn lost(&mut self, position: Position, end: Position) {
        self.lost = Some((position, end));
    }

    /// The replica cannot serve it at present.
    pub(crate) fn refused(&mut self, now: Time) {
        self.request = None;
        (self.since, self.answered) = (now + self.timeout, Some(now));
        self.tried.clear();
        self.timed_out();
    }

    /// From now on, at most `window` bytes of the shard are in flight or buffered. The subscription
    /// sends a new request.
    pub(crate) fn resize(&mut self, window: u64) {
        assert!(self.request.is_none(), "the credit of a subscription that stands is not taken back");
        self.credit.resize(window);
    }

    /// Something of the shard came, or may come from others.
    pub(crate) fn helped(&mut self) {
        self.round.begin();
        self.rounds_in_vain = 0;
        self.lacking.clear();
        self.has_gained = false;
        self.rounds.helped();
    }

    /// The replica that was asked lacks what comes next, and so many positions in all.
    pub(crate) fn lacks(&mut self, lacking: u64) {
        let least = self.lacking.entry(self.node).or_insert(lacking);
        self.has_gained |= lacking < *least;
        *least = lacking.min(*least);
    }

    /// The replica that was asked cannot give out what comes next.
    pub(crate) fn said_no(&mut self, failure: Failure, replicas: &[Member]) -> Turn {
        let turn = self.round.said_no(self.node, failure, replicas);
        if matches!(turn, Turn::All(_)) {
            // If one of them gets on with what it lacks, they were not asked in vain.
            let has_gained = std::mem::take(&mut self.has_gained);
            self.rounds_in_vain = if has_gained { 0 } else { self.rounds_in_vain + 1 };
        }
        turn
    }

    /// Whether no replica has answered for this long.
    pub(crate) fn is_silent_for(&self, now: Time, time: Duration) -> bool {
        self.answered.is_some_and(|at| now >= at + time)
    }

    /// The nodes that were asked and do not answer, and the nodes that lack the next position.
    /// `None`: the shard answers.
    pub(crate) fn unanswered(&self, now: Time, replicas: &[Member]) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
        let has_said_no = !self.round.is_new() || self.rounds_in_vain > 0;
        if self.lost.is_some() || !has_said_no && !self.is_silent_for(now, SILENT_AFTER) {
            return None;
        }
        // A round in vain is one in which every replica answered.
        let lacks = |node: &NodeId| self.rounds_in_vain > 0 || self.round.has_said_no(*node);
        let (lacking, others): (Vec<NodeId>, Vec<NodeId>) =
            replicas.iter().map(|replica| replica.node).partition(lacks);
        let silent = others.into_iter().filter(|node| self.tried.contains(node)).collect();
        Some((silent, lacking))
    }

    /// Asks `node` anew, after a pause.
    pub(crate) fn begin_round(&mut self, now: Time, node: NodeId, replica: usize) {
        self.restart(now, node, replica);
        self.request = None;
        self.rounds.tried(now);
        self.since = self.rounds.at();
    }

    pub(crate) fn receive(
        &mut self,
        now: Time,
        from: Position,
        found: (Vec<Stored>, Vec<Span>),
        upto: Position,
    ) -> Received {
        let (records, empty) = match beyond(self.final_upto, from, found, upto) {
            Ok(new) => new,
            Err(received) => return received,
        };
        // A replica that predicted this and says it again has forgotten what it predicted: another
        // view decides.
        self.forget_predictions();
        if !self.take_in(records, empty) {
            return Received::TooMuch;
        }
        if upto > self.upto {
            self.helped();
        }
        (self.upto, self.final_upto) = (upto, upto);
        self.forget_given_up();
        self.was_heard(now);
        Received::Next
    }

    /// Takes in predictions.
    pub(crate) fn predict(
        &mut self,
        now: Time,
        from: Position,
        found: (Vec<Stored>, Vec<Span>),
        upto: Position,
    ) -> Received {
        let (records, empty) = match beyond(self.upto, from, found, upto) {
            Ok(new) => new,
            Err(received) => return received,
        };
        if !self.take_in(records, empty) {
            return Received::TooMuch;
        }
        self.upto = upto;
        self.was_heard(now);
        Received::Next
    }

    #[must_use]
    fn take_in(&mut self, records: Vec<Stored>, empty: Vec<Span>) -> bool {
        if !self.credit.take_in(bytes_of(&records, &empty)) {
            return false;
        }
        self.buffer.extend(records);
        self.empty.extend(empty);
        true
    }

    /// It works: nothing need be asked for again.
    pub(crate) fn was_heard(&mut self, now: Time) {
        (self.since, self.heard, self.timeout, self.answered) = (now, true, TIMEOUT_FIRST, Some(now));
        self.tried.clear();
        self.reconnects.helped();
    }

    /// Predictions below `upto` are final, but for those at `void`, which are all that were passed
    /// over from `from` on. Their positions are empty from now on.
    pub(crate) fn holds_but(&mut self, now: Time, from: Position, upto: Position, void: &[Span]) -> Received {
        if from > self.final_upto {
            return Received::Hole;
        }
        if let Some(position) = disorder(from, &[], void, upto) {
            return Received::Disordered(position);
        }
        if void.last().is_some_and(|last| last.end() > self.upto) {
            return Received::Hole;
        }
        if !self.credit.take_in(bytes_of(&[], void)) {
            return Received::TooMuch;
        }
        for span in void {
            self.drop_records(*span);
            match self.add_empty(*span) {
                0 => self.credit.free(limits::SPAN_BYTES),
                // A filter left out positions within it.
                parts if !self.credit.take_in((parts - 1) * limits::SPAN_BYTES) => return Received::TooMuch,
                _ => {}
            }
        }
        self.was_heard(now);
        Received::Next
    }

    /// Forgets records that were predicted and passed over.
    pub(crate) fn drop_records(&mut self, span: Span) {
        let first = self.buffer.partition_point(|stored| stored.position < span.first);
        let end = self.buffer.partition_point(|stored| stored.position < span.end());
        for stored in self.buffer.drain(first..end) {
            self.credit.free(size(&stored));
        }
    }

    /// Notes that positions are empty, as far as that is not known. Says how many spans there are
    /// more.
    fn add_empty(&mut self, span: Span) -> u64 {
        let (mut first, mut added) = (span.first, 0);
        while first < span.end() {
            let at = self.empty.partition_point(|known| known.end() <= first);
            let next = self.empty.get(at).copied();
            if let Some(known) = next.filter(|known| known.first <= first) {
                first = known.end();
                continue;
            }
            let end = next.map_or(span.end(), |next| next.first.min(span.end()));
            self.empty.insert(at, Span { first, count: end - first });
            (first, added) = (end, added + 1);
        }
        added
    }

    /// Predictions below `upto` are final.
    pub(crate) fn holds(&mut self, upto: Position) {
        self.final_upto = self.final_upto.max(upto.min(self.upto));
    }

    /// All that is predicted is final.
    pub(crate) fn confirm_predictions(&mut self) {
        self.final_upto = self.upto;
    }

    /// Predictions are to come again.
    pub(crate) fn forget_predictions(&mut self) {
        if self.final_upto < self.upto {
            self.forget_from(self.final_upto);
        }
    }

    /// Looks what there is at `position`, in any order.
    pub(crate) fn at(&self, position: Position) -> Seen {
        if let Some(gap) = self.given_up.filter(|gap| gap.contains(position)) {
            return Seen::Lost(gap.end);
        }
        let spans = self.empty.partition_point(|span| span.end() <= position);
        if let Some(span) = self.empty.get(spans).filter(|span| span.contains(position)) {
            return Seen::Empty(span.end());
        }
        let index = self.buffer.partition_point(|stored| stored.position < position);
        match (self.buffer.get(index), self.lost) {
            (Some(stored), _) if stored.position == position => match stored.record.is_no_op() {
                true => Seen::NoOp,
                false => Seen::Record,
            },
            (None, Some((lost, end))) if lost <= position && position < end => Seen::Lost(end),
            _ if self.upto <= position && position < self.asked_until => Seen::NotYet,
            _ => Seen::Missing,
        }
    }

    /// The first position at `position` or above it of which more is known than that it is not this
    /// shard's.
    pub(crate) fn next_from(&self, position: Position) -> Position {
        let index = self.buffer.partition_point(|stored| stored.position < position);
        let upto = if self.upto >= self.asked_until { Position(u64::MAX) } else { self.upto };
        let lost = self.given_up.filter(|gap| position < gap.end).map(|gap| gap.from.max(position));
        let upto = lost.map_or(upto, |lost| lost.min(upto));
        let record = self.buffer.get(index).map_or(upto, |stored| stored.position);
        let spans = self.empty.partition_point(|span| span.end() <= position);
        let span = self.empty.get(spans).map_or(upto, |span| span.first);
        record.min(span)
    }

    /// The record at `position`.
    ///
    /// # Panics
    /// If it is not kept.
    pub(crate) fn record(&self, position: Position) -> &Stored {
        let index = self.buffer.partition_point(|stored| stored.position < position);
        let stored = self.buffer.get(index).filter(|stored| stored.position == position);
        stored.expect("a record is looked for after it was seen")
    }

    /// A copy of it.
    pub(crate) fn copy(&self, position: Position) -> Stored {
        self.record(position).clone()
    }

    /// Another shard is at `frontier`: if this one is not, something should come from it.
    pub(crate) fn compare(&mut self, now: Time, frontier: Position) {
        let is_behind = self.final_upto < frontier.min(self.asked_until);
        self.owed_since = is_behind.then(|| self.owed_since.unwrap_or(now));
    }

    /// Looks what there is at `position`, when everything below it was taken, or is with other
    /// shards.
    pub(crate) fn look(&mut self, position: Position) -> Seen {
        // Other shards had what lies before its end.
        self.lost = self.lost.filter(|(_, end)| position < *end);
        self.pass_empty(position);
        if let Some(gap) = self.given_up.filter(|gap| gap.contains(position)) {
            return Seen::Lost(gap.end);
        }
        if let Some(span) = self.empty.front().filter(|span| span.contains(position)) {
            return Seen::Empty(span.end());
        }
        match (self.buffer.front(), self.lost) {
            (Some(front), _) if front.position == position => {
                if front.record.is_no_op() {
                    Seen::NoOp
                } else {
                    Seen::Record
                }
            }
            (None, Some((lost, end))) if lost <= position && position < end => Seen::Lost(end),
            (None, _) if self.upto <= position && position < self.asked_until => Seen::NotYet,
            _ => Seen::Missing,
        }
    }

    /// Forgets the spans of empty positions that end at `position` or before.
    pub(crate) fn pass_empty(&mut self, position: Position) {
        while self.empty.front().is_some_and(|span| span.end() <= position) {
            self.empty.pop_front();
            self.credit.free(limits::SPAN_BYTES);
        }
    }

    /// Takes the record at `position`.
    ///
    /// # Panics
    /// If it is not the first that is kept.
    pub(crate) fn take(&mut self, position: Position) -> Stored {
        let stored = self.buffer.pop_front().expect("a record is taken after it was seen");
        assert_eq!(stored.position, position, "a record is taken after it was seen");
        self.credit.free(size(&stored));
        stored
    }

    /// Positions from `first` on are given anew: an operator accepted that what was final there is
    /// lost.
    pub(crate) fn forget_from(&mut self, first: Position) {
        while self.buffer.back().is_some_and(|back| back.position >= first) {
            let stored = self.buffer.pop_back().expect("the back was just seen");
            self.credit.free(size(&stored));
        }
        while let Some(back) = self.empty.back_mut().filter(|back| back.end() > first) {
            match back.within(back.first, first) {
                Some(rest) => *back = rest,
                None => {
                    self.empty.pop_back();
                    self.credit.free(limits::SPAN_BYTES);
                }
            }
        }
        self.upto = self.upto.min(first);
        self.final_upto = self.final_upto.min(first);
        self.lost = self.lost.filter(|(position, _)| *position < first);
    }

    /// Forgets what lies below `first`.
    pub(crate) fn forget_below(&mut self, first: Position) {
        while self.buffer.front().is_some_and(|front| front.position < first) {
            let stored = self.buffer.pop_front().expect("the front was just seen");
            self.credit.free(size(&stored));
        }
        self.pass_empty(first);
        self.lost = self.lost.filter(|(_, end)| *end > first);
    }

    /// The credit to give back now, and for which request, if it is enough to be worth a message.
    pub(crate) fn credit_due(&mut self) -> Option<(u64, u64)> {
        let request = self.request?;
        self.credit.due().map(|bytes| (request, bytes))
    }
}

fn size(stored: &Stored) -> u64 {
    stored.record.memory() as u64
}

fn bytes_of(records: &[Stored], empty: &[Span]) -> u64 {
    records.iter().map(size).sum::<u64>() + limits::SPAN_BYTES * empty.len() as u64
}

/// The part of `from..upto` from `known` on, if it is new there, in order, and leaves nothing out:
/// a late delivery may have brought what is below.
fn beyond(
    known: Position,
    from: Position,
    (mut records, mut empty): (Vec<Stored>, Vec<Span>),
    upto: Position,
) -> Result<(Vec<Stored>, Vec<Span>), Received> {
    if from > known {
        return Err(Received::Hole);
    }
    if from < known {
        if upto <= known {
            return Err(Received::Repeated);
        }
        not_below(known, &mut records, &mut empty);
    }
    match disorder(known, &records, &empty, upto) {
        Some(position) => Err(Received::Disordered(position)),
        None => Ok((records, empty)),
    }
}

/// Leaves out what lies below `from`.
fn not_below(from: Position, records: &mut Vec<Stored>, empty: &mut Vec<Span>) {
    records.retain(|stored| stored.position >= from);
    *empty = empty.iter().filter_map(|span| span.within(from, span.end())).collect();
}

/// The first position of `records` or `empty` that is not above the one before it, or not within
/// `from..upto`, or in both.
pub(crate) fn disorder(
    from: Position,
    records: &[Stored],
    empty: &[Span],
    upto: Position,
) -> Option<Position> {
    let (mut records, mut empty) = (records.iter().peekable(), empty.iter().peekable());
    let mut lowest = from;
    loop {
        let record = records.peek().map(|stored| Span { first: stored.position, count: 1 });
        let next = match (record, empty.peek()) {
            (Some(record), Some(span)) if record.first < span.first => records.next().map(|_| record),
            (Some(record), None) => records.next().map(|_| record),
            _ => empty.next().copied(),
        };
        let Some(next) = next else { break };
        if next.first < lowest || next.end() > upto {
            return Some(next.first);
        }
        lowest = next.end();
    }
    (upto < from).then_some(upto)
}
