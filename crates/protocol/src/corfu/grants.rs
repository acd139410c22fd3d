//! The positions that the sequencer granted and that may not be written yet, and whether their
//! clients still write them.
//!
//! How long a record takes says nothing of its client: links, disks and processors are slow for
//! sound clients, too. The sequencer leaves a position to be filled when its client is gone, or
//! says that it does not write it any more. While a client's connection stands and positions of it
//! are late, the sequencer asks it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::limits::Limits;
use seriatim_model::{Address, Peer, Position, SessionId, Span, Time, limits};

use super::adaptive_timeout::AdaptiveTimeout;
use crate::parts::Backoff;

/// How many grants are looked at for questions, and for what answers say: those that others wait
/// for come first.
const MOST_LOOKED_AT: usize = 1024;
/// How long a client whose connection closed has to say over another one that it is there, if its
/// records may take as long.
const COME_BACK_WITHIN: Duration = Duration::from_millis(40);
/// The longest pause between two questions to a client that does not answer.
const ASK_MOST: Duration = Duration::from_secs(1);

/// The positions that were given out and are not known to be written.
///
/// Invariant: `given` are in the order of positions, and become due in that order; `holders` has
/// those that hold some of them, with how many.
#[derive(Clone, Debug)]
pub(super) struct Grants {
    given: VecDeque<Grant>,
    holders: BTreeMap<SessionId, Holder>,
    /// How long a client may leave a question unanswered: several times as long as answers have
    /// lately taken.
    silence: AdaptiveTimeout,
}

/// Positions that were given out at once.
#[derive(Clone, Copy, Debug)]
struct Grant {
    first: Position,
    end: Position,
    /// From when on it is late.
    due: Time,
    /// The session that they are granted to, and its take; none if the sequencer keeps them, or if
    /// the client does not write them any more.
    to: Option<(SessionId, u64)>,
}

/// A session that was given positions.
#[derive(Clone, Copy, Debug)]
struct Holder {
    /// Where its client was heard last.
    from: Address,
    grants: usize,
    /// Its client writes nothing any more that was given in earlier takes.
    take: u64,
    /// How long its records may take.
    fill_timeout: Duration,
    /// When its connection closed, if it did not come back.
    closed_at: Option<Time>,
    /// Since when a question is not answered.
    asked_at: Option<Time>,
    asks: Backoff,
}

/// The client that positions are given to.
#[derive(Clone, Copy, Debug)]
pub(super) struct To {
    pub(super) session: SessionId,
    pub(super) take: u64,
    pub(super) from: Address,
}

/// A question to a client: does it still write these?
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) to: Address,
    pub(super) session: SessionId,
    pub(super) take: u64,
    pub(super) spans: Vec<Span>,
}

impl Holder {
    /// Its answers may wait behind its records.
    fn is_gone(&self, now: Time, silence: Duration) -> bool {
        self.closed_at.is_some_and(|at| now >= at + self.fill_timeout.min(COME_BACK_WITHIN))
            || self.asked_at.is_some_and(|at| now >= at + silence.max(self.fill_timeout))
    }

    fn hear(&mut self, from: Address) {
        self.from = from;
        (self.closed_at, self.asked_at) = (None, None);
        self.asks.helped();
    }
}

impl Grants {
    pub(super) fn new(limits: Limits) -> Self {
        let bounds = (limits.missing_connected, limits::MISSING_MOST.max(limits.missing_connected));
        let silence = AdaptiveTimeout::within(Time::ZERO, bounds.0, bounds);
        Self { given: VecDeque::new(), holders: BTreeMap::new(), silence }
    }

    /// Nothing is late any more.
    pub(super) fn clear(&mut self) {
        self.given.clear();
        self.holders.clear();
    }

    /// When the first of the positions are late.
    pub(super) fn due(&self) -> Option<Time> {
        self.given.front().map(|grant| grant.due)
    }

    /// Positions are granted, which are late after this timeout.
    pub(super) fn give(
        &mut self,
        now: Time,
        (first, end): (Position, Position),
        fill_timeout: Duration,
        to: Option<To>,
    ) {
        // They are late in order, a few at a time.
        let due = now + fill_timeout.min(limits::FILL_AFTER_MOST);
        let due = self.given.back().map_or(due, |earlier| due.max(earlier.due));
        let named = to.map(|to| (to.session, to.take));
        let joins = |last: &&mut Grant| {
            last.end == first && last.to == named && due < last.due + limits::FILL_AFTER / 10
        };
        let is_joined = match self.given.back_mut().filter(joins) {
            Some(last) => {
                last.end = end;
                true
            }
            None => {
                let last = self.given.back().map_or(first, |last| last.end);
                assert!(
                    last <= first && first < end,
                    "{first}..{end} is granted after positions below {last}"
                );
                self.given.push_back(Grant { first, end, due, to: named });
                false
            }
        };
        let Some(to) = to else { return };
        let holder = self.holders.entry(to.session).or_insert(Holder {
            from: to.from,
            grants: 0,
            take: to.take,
            fill_timeout,
            closed_at: None,
            asked_at: None,
            asks: Backoff::new(due, limits::RESEND_AFTER, ASK_MOST),
        });
        holder.fill_timeout = fill_timeout;
        holder.grants += usize::from(!is_joined);
    }

    /// Something came of a session. Its client writes nothing any more that was given in earlier
    /// takes than this one.
    pub(super) fn hear(&mut self, from: Address, session: SessionId, take: u64) {
        if let Some(holder) = self.holders.get_mut(&session) {
            holder.hear(from);
            holder.take = holder.take.max(take);
        }
    }

    /// Another run goes on with a session: the log does not wait for what this one writes.
    pub(super) fn end(&mut self, session: SessionId) {
        if let Some(holder) = self.holders.get_mut(&session) {
            holder.take = u64::MAX;
        }
    }

    /// A client says that it is there, and which of the positions it was asked for it leaves to be
    /// filled.
    pub(super) fn answered(&mut self, now: Time, from: Address, session: SessionId, left: &[Span]) {
        let Some(holder) = self.holders.get_mut(&session) else { return };
        if let Some(asked_at) = holder.asked_at {
            self.silence.took(now, now - asked_at);
        }
        holder.hear(from);
        holder.asks.restart(now + limits::RESEND_AFTER);
        let mut let_go = 0;
        for grant in self.given.iter_mut().take(MOST_LOOKED_AT) {
            let before = left.partition_point(|span| span.first <= grant.first);
            let is_left = before > 0 && grant.end <= left[before - 1].end();
            if is_left && grant.to.is_some_and(|(of, _)| of == session) {
                grant.to = None;
                let_go += 1;
            }
        }
        self.lets_go(session, let_go);
    }

    /// A shard's replica answered after so long: what answers of clients wait for at this node,
    /// that waited for.
    pub(super) fn shard_answered(&mut self, now: Time, took: Duration) {
        self.silence.took(now, took);
    }

    /// A client's connection closed.
    pub(super) fn disconnected(&mut self, now: Time, peer: Peer) {
        let Peer::Client(connection) = peer else { return };
        for holder in self.holders.values_mut() {
            if matches!(holder.from, Address::Client(of, _) if of == connection) {
                holder.closed_at.get_or_insert(now);
            }
        }
    }

    /// The observer was late by so much, and may not have read what has arrived.
    pub(super) fn looks_late(&mut self, now: Time, by: Duration) {
        for holder in self.holders.values_mut() {
            holder.closed_at = holder.closed_at.map(|at| now.min(at + by));
            holder.asked_at = holder.asked_at.map(|at| now.min(at + by));
        }
    }

    /// Lets go of the first positions as long as they are written, or late and abandoned by their
    /// clients. Returns the new lower bound, if it let go of any.
    pub(super) fn drop_done(
        &mut self,
        now: Time,
        is_written: impl Fn(Position, Position) -> bool,
        by_the_clock: bool,
    ) -> Option<Position> {
        let mut overdue = None;
        while let Some(grant) = self.given.front().copied() {
            let is_late = now >= grant.due;
            let passes =
                is_written(grant.first, grant.end) || is_late && (by_the_clock || !self.is_held(now, &grant));
            if !passes {
                break;
            }
            overdue = Some(grant.end);
            self.given.pop_front();
            if let Some((session, _)) = grant.to {
                self.lets_go(session, 1);
            }
        }
        overdue
    }

    /// The questions that are due: for positions that have been late for a while, so that most of
    /// what is merely written late is known to be written before.
    pub(super) fn questions(
        &mut self,
        now: Time,
        is_written: impl Fn(Position, Position) -> bool,
    ) -> Vec<Question> {
        let mut late: BTreeMap<SessionId, Vec<Span>> = BTreeMap::new();
        let front = self.given.iter().take(MOST_LOOKED_AT);
        for grant in front.take_while(|grant| now >= grant.due + limits::FILL_AFTER) {
            let Some((session, take)) = grant.to else { continue };
            let Some(holder) = self.holders.get(&session) else { continue };
            let is_asked = holder.take == take && holder.closed_at.is_none() && holder.asks.is_due(now);
            if is_asked && !is_written(grant.first, grant.end) {
                let span = Span { first: grant.first, count: grant.end.since(grant.first) };
                let spans = late.entry(session).or_default();
                match spans.last_mut().filter(|last| last.end() == span.first) {
                    Some(last) => last.count += span.count,
                    None => spans.push(span),
                }
            }
        }
        let mut questions = vec![];
        for (session, spans) in late {
            let Some(holder) = self.holders.get_mut(&session) else { continue };
            holder.asked_at.get_or_insert(now);
            holder.asks.tried(now);
            questions.push(Question { to: holder.from, session, take: holder.take, spans });
        }
        questions
    }

    /// Whether the client of these positions writes them, as far as is known.
    fn is_held(&self, now: Time, grant: &Grant) -> bool {
        grant.to.is_some_and(|(session, take)| {
            let holder = self.holders.get(&session);
            holder.is_some_and(|holder| take >= holder.take && !holder.is_gone(now, self.silence.wanted()))
        })
    }

    /// So many grants of a session are not its any more.
    fn lets_go(&mut self, session: SessionId, grants: usize) {
        let Some(holder) = self.holders.get_mut(&session) else { return };
        assert!(holder.grants >= grants, "a session releases only its grants");
        holder.grants -= grants;
        if holder.grants == 0 {
            self.holders.remove(&session);
        }
    }
}
