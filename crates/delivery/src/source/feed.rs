//! One shard's subscription: its request, its buffer, its expected deliveries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use seriatim_model::storage::Stored;
use seriatim_model::{Gap, Member, NodeId, Position, Span, Time, limits};
use seriatim_protocol::parts::Backoff;

use super::credit::Credit;
use super::round::{Round, Turn};
use crate::failure::Failure;

/// First retransmission timeout; doubles each time.
pub(crate) const TIMEOUT_FIRST: Duration = Duration::from_millis(200);
/// Interval after which an idle subscription is renewed, and longest timeout if the shard is behind
/// another one.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// Longest timeout for the first delivery after a request.
const FIRST_MOST: Duration = Duration::from_secs(8);
/// Pause before asking a disconnected node again; doubles up to [`IDLE`].
const RECONNECT_AFTER: Duration = Duration::from_millis(20);

/// Silence after which a replica counts as silent. It answers every request, if only with an empty
/// delivery, and an idle one is asked every [`IDLE`].
const SILENT_AFTER: Duration = Duration::from_secs(2);
/// Silence after which the reader asks the next replica. Longer than a timeout, as answers may be
/// slow.
pub(crate) const ELSEWHERE_AFTER: Duration = Duration::from_secs(3);

/// Rounds without progress after which a record counts as missing. In such a round all replicas
/// lack the record, and none copies records.
pub(crate) const MISSING_ROUNDS: usize = 25;

/// Invariant: `buffer` holds the shard's records below `upto` that were not taken, in order;
/// `empty` holds its empty positions below `upto` that were not passed; `credit` counts the bytes
/// of both. Data at or above `final_upto` is predicted in the view that the reader knows;
/// `final_upto <= upto`.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) node: NodeId,
    /// Index of its replica; 0 is the primary.
    pub(crate) replica: usize,
    /// The replicas' refusals to serve the next position.
    pub(crate) round: Round,
    pub(crate) rounds_in_vain: usize,
    /// Fewest missing records that each replica has reported.
    lacking: BTreeMap<NodeId, u64>,
    /// Whether, in this round, a replica reported fewer missing records than ever before.
    has_gained: bool,
    rounds: Backoff,
    pub(crate) request: Option<u64>,
    /// First of the consecutive requests to this node that repeat each other after timeouts.
    earliest: u64,
    /// Exclusive end of the received data, final or predicted.
    pub(crate) upto: Position,
    pub(crate) final_upto: Position,
    /// Exclusive end of the records of a shard outside the view; u64::MAX inside.
    until: Position,
    /// Exclusive end of the requested positions.
    asked_until: Position,
    /// Positions whose records an operator gave up; no replica is asked for them.
    given_up: Option<Gap>,
    /// The next position, if its record is lost, and the exclusive end of the loss.
    lost: Option<(Position, Position)>,
    buffer: VecDeque<Stored>,
    empty: VecDeque<Span>,
    credit: Credit,
    /// Time of the last request or message, or the planned time of the next request.
    since: Time,
    /// Since when another shard is ahead of this one. `None`: this shard owes no delivery.
    owed_since: Option<Time>,
    /// Current timeout; no [`Backoff`], as its maximum depends on the expected delivery.
    timeout: Duration,
    heard: bool,
    /// Time of the last answer of any replica; before any, of the first request.
    answered: Option<Time>,
    tried: BTreeSet<NodeId>,
    /// Time of the next request after a disconnect.
    reconnects: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Record,
    NoOp,
    /// Empty, with all positions below this one.
    Empty(Position),
    NotYet,
    /// The shard skipped the position, or sent a lower one again.
    Missing,
    /// Lost, with all the shard's positions below this one.
    Lost(Position),
}

impl Seen {
    /// Whether the shard has decided the position: a record, a no-op, or empty.
    pub(crate) fn is_there(self) -> bool {
        matches!(self, Self::Record | Self::NoOp | Self::Empty(_))
    }

    /// Rank among the knowledge of several shards of one position; the lowest wins.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Record | Self::NoOp | Self::Empty(_) => 0,
            Self::NotYet => 1,
            Self::Lost(_) => 2,
            Self::Missing => 3,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Next,
    Repeated,
    /// An earlier delivery is missing.
    Hole,
    /// The delivery exceeds the shard's credit.
    TooMuch,
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

    pub(crate) fn deadline(&self) -> Option<Time> {
        match self.owed_since {
            _ if self.lost.is_some() || self.is_retired() && self.final_upto >= self.asked_until => None,
            _ if self.request.is_none() => Some(self.since),
            // If predictions used up the credit, the shard still owes their confirmation.
            _ if self.credit.is_spent() && self.final_upto == self.upto => None,
            Some(owed_since) => Some(self.since.max(owed_since) + self.timeout),
            None if self.heard => Some(self.since + IDLE),
            None => Some(self.since + self.timeout),
        }
    }

    /// Whether the shard has no part in the view.
    pub(crate) fn is_retired(&self) -> bool {
        self.until != Position(u64::MAX)
    }

    pub(crate) fn reaches(&self, position: Position) -> bool {
        position < self.until
    }

    /// Bound of final data; unlimited after all data of a retired shard.
    pub(crate) fn final_bound(&self) -> Position {
        if self.final_upto >= self.asked_until { Position(u64::MAX) } else { self.final_upto }
    }

    /// Sets the end of the shard's records, and the positions given up, as the view says. A shard
    /// that `has_ended` is not asked.
    pub(crate) fn ends(&mut self, until: Position, given_up: Option<Gap>, has_ended: bool) {
        (self.until, self.given_up) = (until, given_up);
        self.asked_until = match given_up {
            _ if has_ended => Position::ZERO,
            Some(gap) => gap.from,
            None => until,
        };
        self.forget_given_up();
    }

    /// A replica that does not know of the accepted loss may send records given up.
    fn forget_given_up(&mut self) {
        if let Some(gap) = self.given_up.filter(|gap| gap.from < self.upto) {
            let (upto, final_upto) = (self.upto, self.final_upto);
            self.forget_from(gap.from);
            // They are not requested again.
            (self.upto, self.final_upto) = (upto, final_upto);
        }
    }

    /// Notes a sent request and returns the credit to grant. If it `continues` the previous
    /// request, late answers to that one count too.
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

    pub(crate) fn timed_out(&mut self) {
        let was_idle = self.heard && self.owed_since.is_none();
        let most = if self.heard { IDLE } else { FIRST_MOST };
        self.timeout = if was_idle { IDLE } else { (self.timeout * 2).min(most) };
    }

    /// Whether a delivery counts: its request is current, or repeated by the current one.
    pub(crate) fn awaits(&self, node: NodeId, request: u64) -> bool {
        self.node == node && self.request.is_some_and(|present| (self.earliest..=present).contains(&request))
    }

    /// Subscribes at `node` as soon as possible.
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

    /// The subscription ended; a new one follows after a pause.
    pub(crate) fn rest(&mut self, now: Time) {
        self.request = None;
        self.since = now + RECONNECT_AFTER;
    }

    pub(crate) fn disconnected(&mut self, now: Time) {
        if now >= self.reconnects.at() + IDLE {
            // The connection was stable, so reset the backoff.
            self.reconnects.helped();
        }
        self.request = None;
        self.reconnects.tried(now);
        self.since = self.reconnects.at();
    }

    /// The record at the next position is lost. The feed requests nothing more until it restarts.
    pub(crate) fn lost(&mut self, position: Position, end: Position) {
        self.lost = Some((position, end));
    }

    /// The replica cannot serve the subscription now.
    pub(crate) fn refused(&mut self, now: Time) {
        self.request = None;
        (self.since, self.answered) = (now + self.timeout, Some(now));
        self.tried.clear();
        self.timed_out();
    }

    /// Sets the window in bytes, after the subscription ended.
    pub(crate) fn resize(&mut self, window: u64) {
        assert!(self.request.is_none(), "the credit of a subscription that stands is not taken back");
        self.credit.resize(window);
    }

    /// Resets the rounds of refusals: data arrived, or the replicas have changed.
    pub(crate) fn helped(&mut self) {
        self.round.begin();
        self.rounds_in_vain = 0;
        self.lacking.clear();
        self.has_gained = false;
        self.rounds.helped();
    }

    /// The node lacks the record at the next position, and `lacking` records in all.
    pub(crate) fn lacks(&mut self, lacking: u64) {
        let least = self.lacking.entry(self.node).or_insert(lacking);
        self.has_gained |= lacking < *least;
        *least = lacking.min(*least);
    }

    pub(crate) fn said_no(&mut self, failure: Failure, replicas: &[Member]) -> Turn {
        let turn = self.round.said_no(self.node, failure, replicas);
        if matches!(turn, Turn::All(_)) {
            // If a replica's copying progresses, the round counts as progress.
            let has_gained = std::mem::take(&mut self.has_gained);
            self.rounds_in_vain = if has_gained { 0 } else { self.rounds_in_vain + 1 };
        }
        turn
    }

    pub(crate) fn is_silent_for(&self, now: Time, time: Duration) -> bool {
        self.answered.is_some_and(|at| now >= at + time)
    }

    /// Silent nodes, and nodes that lack the next position. None: the shard answers.
    pub(crate) fn unanswered(&self, now: Time, replicas: &[Member]) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
        let has_said_no = !self.round.is_new() || self.rounds_in_vain > 0;
        if self.lost.is_some() || !has_said_no && !self.is_silent_for(now, SILENT_AFTER) {
            return None;
        }
        // After a finished round, every replica has refused.
        let lacks = |node: &NodeId| self.rounds_in_vain > 0 || self.round.has_said_no(*node);
        let (lacking, others): (Vec<NodeId>, Vec<NodeId>) =
            replicas.iter().map(|replica| replica.node).partition(lacks);
        let silent = others.into_iter().filter(|node| self.tried.contains(node)).collect();
        Some((silent, lacking))
    }

    /// Subscribes at `node` after a pause.
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
        // The replica sends its predicted positions again as final: another view may have decided
        // them.
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

    /// The subscription works: cancels retransmission.
    pub(crate) fn was_heard(&mut self, now: Time) {
        (self.since, self.heard, self.timeout, self.answered) = (now, true, TIMEOUT_FIRST, Some(now));
        self.tried.clear();
        self.reconnects.helped();
    }

    /// Handles a report that predictions below `upto` are final, except skipped records: their
    /// spans from `from` on (`void`) become empty.
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
                // The span was added in parts: it contained empty positions already.
                parts if !self.credit.take_in((parts - 1) * limits::SPAN_BYTES) => return Received::TooMuch,
                _ => {}
            }
        }
        self.was_heard(now);
        Received::Next
    }

    pub(crate) fn drop_records(&mut self, span: Span) {
        let first = self.buffer.partition_point(|stored| stored.position < span.first);
        let end = self.buffer.partition_point(|stored| stored.position < span.end());
        for stored in self.buffer.drain(first..end) {
            self.credit.free(size(&stored));
        }
    }

    /// Adds the parts of a span that are not yet empty; returns their number.
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

    pub(crate) fn holds(&mut self, upto: Position) {
        self.final_upto = self.final_upto.max(upto.min(self.upto));
    }

    pub(crate) fn confirm_predictions(&mut self) {
        self.final_upto = self.upto;
    }

    /// Drops predictions; the shard sends them again.
    pub(crate) fn forget_predictions(&mut self) {
        if self.final_upto < self.upto {
            self.forget_from(self.final_upto);
        }
    }

    /// Looks up `position`; positions may come in any order.
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

    /// First position from `position` on with a record, an empty span, a loss, or no knowledge.
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

    /// Returns the record at `position`.
    ///
    /// # Panics
    /// If it is not buffered.
    pub(crate) fn record(&self, position: Position) -> &Stored {
        let index = self.buffer.partition_point(|stored| stored.position < position);
        let stored = self.buffer.get(index).filter(|stored| stored.position == position);
        stored.expect("a record is looked for after it was seen")
    }

    pub(crate) fn copy(&self, position: Position) -> Stored {
        self.record(position).clone()
    }

    /// Another shard has reached `frontier`. If this one has not, it owes a delivery.
    pub(crate) fn compare(&mut self, now: Time, frontier: Position) {
        let is_behind = self.final_upto < frontier.min(self.asked_until);
        self.owed_since = is_behind.then(|| self.owed_since.unwrap_or(now));
    }

    /// Looks up `position`; everything below it was taken or belongs to other shards.
    pub(crate) fn look(&mut self, position: Position) -> Seen {
        // Other shards had the positions before the loss's end.
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

    pub(crate) fn pass_empty(&mut self, position: Position) {
        while self.empty.front().is_some_and(|span| span.end() <= position) {
            self.empty.pop_front();
            self.credit.free(limits::SPAN_BYTES);
        }
    }

    /// Takes the record at `position`.
    ///
    /// # Panics
    /// If it is not the first in the buffer.
    pub(crate) fn take(&mut self, position: Position) -> Stored {
        let stored = self.buffer.pop_front().expect("a record is taken after it was seen");
        assert_eq!(stored.position, position, "a record is taken after it was seen");
        self.credit.free(size(&stored));
        stored
    }

    /// Drops everything from `first` on: after an accepted loss these positions get new records.
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

    pub(crate) fn forget_below(&mut self, first: Position) {
        while self.buffer.front().is_some_and(|front| front.position < first) {
            let stored = self.buffer.pop_front().expect("the front was just seen");
            self.credit.free(size(&stored));
        }
        self.pass_empty(first);
        self.lost = self.lost.filter(|(_, end)| *end > first);
    }

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

/// The part of a delivery `from..upto` above `known`; a late delivery may overlap. Fails if nothing
/// is new, data is out of order, or a hole precedes it.
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

fn not_below(from: Position, records: &mut Vec<Stored>, empty: &mut Vec<Span>) {
    records.retain(|stored| stored.position >= from);
    *empty = empty.iter().filter_map(|span| span.within(from, span.end())).collect();
}

/// The first position that is out of order, outside `from..upto`, or in both lists.
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
