//! Granted positions that may be unwritten, and whether their clients still write them.
//!
//! Delay proves nothing about a client: links, disks and processors may be slow. The sequencer lets
//! a position be filled when its client is gone, or abandons it. It asks connected clients about
//! late positions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::limits::Limits;
use seriatim_model::{Address, Peer, Position, SessionId, Span, Time, limits};

use super::adaptive_timeout::AdaptiveTimeout;
use crate::parts::Backoff;

/// Number of grants checked for questions and answers, the oldest first.
const MOST_LOOKED_AT: usize = 1024;
/// Time for a client to return over a new connection, unless its `fill_timeout` is shorter.
const COME_BACK_WITHIN: Duration = Duration::from_millis(40);
const ASK_MOST: Duration = Duration::from_secs(1);

/// Granted positions not known to be written.
///
/// Invariant: `given` is in order of positions, and becomes due in that order; `holders` has the
/// sessions that hold some of them, each with their number.
#[derive(Clone, Debug)]
pub(super) struct Grants {
    given: VecDeque<Grant>,
    holders: BTreeMap<SessionId, Holder>,
    /// How long a client may leave a question unanswered: a multiple of recent answer times.
    silence: AdaptiveTimeout,
}

/// Positions granted together.
#[derive(Clone, Copy, Debug)]
struct Grant {
    first: Position,
    end: Position,
    /// Time from which the grant is late.
    due: Time,
    /// The session and its take; `None` if the sequencer keeps the positions, or the client
    /// abandoned them.
    to: Option<(SessionId, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// The client's last known address.
    from: Address,
    grants: usize,
    /// The client has abandoned takes below this.
    take: u64,
    /// Time that the client's records may need to reach a head.
    fill_timeout: Duration,
    /// When the client's connection closed, unless it returned.
    closed_at: Option<Time>,
    /// Time of the first question that the client has not answered.
    asked_at: Option<Time>,
    asks: Backoff,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct To {
    pub(super) session: SessionId,
    pub(super) take: u64,
    pub(super) from: Address,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) to: Address,
    pub(super) session: SessionId,
    pub(super) take: u64,
    pub(super) spans: Vec<Span>,
}

impl Holder {
    /// Whether the client is gone. Its answers may queue behind its records.
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

    pub(super) fn clear(&mut self) {
        self.given.clear();
        self.holders.clear();
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.given.front().map(|grant| grant.due)
    }

    /// Grants positions that are late after `fill_timeout`.
    pub(super) fn give(
        &mut self,
        now: Time,
        (first, end): (Position, Position),
        fill_timeout: Duration,
        to: Option<To>,
    ) {
        // Grants become late in order.
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

    /// A session's client sent something: it has abandoned takes before `take`.
    pub(super) fn hear(&mut self, from: Address, session: SessionId, take: u64) {
        if let Some(holder) = self.holders.get_mut(&session) {
            holder.hear(from);
            holder.take = holder.take.max(take);
        }
    }

    /// Another run continues the session: abandons its grants.
    pub(super) fn end(&mut self, session: SessionId) {
        if let Some(holder) = self.holders.get_mut(&session) {
            holder.take = u64::MAX;
        }
    }

    /// A client answered: it abandons the positions in `left`.
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

    /// A shard took this long to answer; so may clients.
    pub(super) fn shard_answered(&mut self, now: Time, took: Duration) {
        self.silence.took(now, took);
    }

    pub(super) fn disconnected(&mut self, now: Time, peer: Peer) {
        let Peer::Client(connection) = peer else { return };
        for holder in self.holders.values_mut() {
            if matches!(holder.from, Address::Client(of, _) if of == connection) {
                holder.closed_at.get_or_insert(now);
            }
        }
    }

    /// The sequencer ran late, and may not have read arrived messages: extends the deadlines.
    pub(super) fn looks_late(&mut self, now: Time, by: Duration) {
        for holder in self.holders.values_mut() {
            holder.closed_at = holder.closed_at.map(|at| now.min(at + by));
            holder.asked_at = holder.asked_at.map(|at| now.min(at + by));
        }
    }

    /// Drops leading grants that are written, or late and abandoned. Returns the new lower bound,
    /// if it changed.
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

    /// Due questions. Positions must have been late for a while: most late writes are known by
    /// then.
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

    /// Whether the client presumably still writes the granted positions.
    fn is_held(&self, now: Time, grant: &Grant) -> bool {
        grant.to.is_some_and(|(session, take)| {
            let holder = self.holders.get(&session);
            holder.is_some_and(|holder| take >= holder.take && !holder.is_gone(now, self.silence.wanted()))
        })
    }

    fn lets_go(&mut self, session: SessionId, grants: usize) {
        let Some(holder) = self.holders.get_mut(&session) else { return };
        assert!(holder.grants >= grants, "a session releases only its grants");
        holder.grants -= grants;
        if holder.grants == 0 {
            self.holders.remove(&session);
        }
    }
}
