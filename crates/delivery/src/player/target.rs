//! One target: its session, its bounds and its queues.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use seriatim_model::{Position, Time};
use seriatim_protocol::Mutation;

use super::commands::Waiting;
use super::limits::PlayerLimits;
use super::machine::StreamNumber;
use super::message::{Batch, Message, Stream};
use super::queue::{self, Item, Queue};

/// First wait after a failed session.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest wait after a failed session.
const RETRY_MOST: Duration = Duration::from_secs(30);

/// One session with a target. Answers of earlier terms are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Settings of one target.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The target's id.
    pub id: String,
    /// Most unanswered batches.
    pub unanswered: usize,
    /// Whether a rejected message goes to the dead-letter log, instead of stopping the target.
    pub dead_letters: bool,
}

/// What a target does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No session; the player attaches at this time.
    Down { attach_at: Time },
    /// The player waits for the answer to its attach.
    Attaching { since: Time },
    /// The target's bound is above the known tail; the player asks for the tail again.
    Doubted { bound: Position },
    /// Attached, and the main stream is not open yet.
    Ready,
    /// An empty batch moves the bound to `upto`. `skips` is the command that demanded it.
    Moving { upto: Position, skips: Option<u64> },
    /// Receives messages from the main stream.
    Normal,
    /// Receives older messages from a recovery stream.
    Recovering(Recovery),
    /// Its queue was full: sends the queue, then recovers from `missed`.
    Full { missed: Position },
    /// Waits for an operator.
    Stopped(Why),
    /// An operator paused it.
    Paused,
}

/// Why a target waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The target cannot apply the message.
    Rejected {
        /// The message.
        message: Message,
        /// The target's reason.
        reason: String,
    },
    /// The positions from the target's bound to `end` can no longer be read.
    Gap {
        /// The first position that can be read again.
        end: Position,
        /// Whether they are trimmed or lost.
        reason: String,
    },
    /// The target has a bound for another log.
    OtherStream {
        /// The stream of that bound.
        stream: Stream,
    },
    /// The target's bound is lost or has no use.
    Unusable {
        /// What happened, and what to do.
        reason: String,
    },
    /// The target's bound is above the log's tail.
    AboveTail {
        /// The target's bound.
        bound: Position,
        /// The log's tail.
        tail: Position,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { message, reason } => {
                write!(f, "it rejected the entry at position {}: {reason}", message.position)
            }
            Self::Gap { end, reason } => write!(f, "{reason}; 'skip' continues at position {end}"),
            Self::OtherStream { stream } => write!(
                f,
                "it has a bound of another log ({stream}); 'adopt' with a position replaces that bound"
            ),
            Self::Unusable { reason } => f.write_str(reason),
            Self::AboveTail { bound, tail } => write!(
                f,
                "its bound {bound} is above the log's tail {tail}: this log lost records that the target has \
                 applied; restore the target"
            ),
        }
    }
}

/// A recovery: the target receives its missing entries below `goal` from a stream of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    /// End of the recovery stream.
    pub(super) goal: Position,
    /// From here on, messages of the main stream were not queued. None: all from `goal` on are.
    pub(super) missed: Option<Position>,
    /// Every message below is applied, in flight or in `catchup`.
    pub(super) next: Position,
    pub(super) turn: Turn,
    /// Whether the queue had no room for the record at `next`: the next turn waits until the queue
    /// is empty.
    pub(super) is_refused: bool,
}

/// A recovery's claim to one of the few recovery streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// No stream. Earlier ones come first.
    Waiting { since: u64 },
    /// The stream, since when the queue has had no room for more, and when the turn ends if another
    /// recovery waits.
    Open { stream: StreamNumber, stalled: Option<Time>, until: Time },
    /// The stream reached the goal.
    Complete,
}

/// The bound of a target without messages.
pub(super) enum Quiet {
    /// An empty batch moves it now.
    Moves(Position),
    /// An empty batch moves it at this time.
    Waits(Time),
}

/// A batch without answer.
#[derive(Clone, Debug)]
struct Flight {
    batch: Arc<Batch>,
    bytes: usize,
    at: Time,
}

/// One target.
///
/// Invariant: `applied <= sent`, and `sent` is not above any queued position. Queued messages are
/// in `catchup` below the recovery's goal, and in `normal` at or above it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) config: TargetConfig,
    pub(super) state: State,
    pub(super) term: Term,
    /// Position of the first entry for the target.
    pub(super) first: Position,
    /// Everything below is applied.
    pub(super) applied: Position,
    /// Everything below is applied or in flight.
    pub(super) sent: Position,
    /// Highest bound that the target acknowledged to this player. A lower bound at an attach means
    /// that the target was restored.
    pub(super) acknowledged: Position,
    pub(super) normal: Queue,
    pub(super) catchup: Queue,
    flights: VecDeque<Flight>,
    flying_bytes: usize,
    retry_after: Duration,
    /// Most messages of a batch: half as many after a late answer, twice as many after an answer.
    batch_messages: usize,
    /// Time of the last batch, or of the attach.
    pub(super) active_at: Time,
    pub(super) adopts: Option<Position>,
    /// The last ended session, until it has ended at the target, too: a call of it may still run.
    pub(super) detaching: Option<Term>,
    /// Skip after the next attach: from the first position to the second, by a command.
    pub(super) skip: Option<(Position, Position, Option<u64>)>,
    /// Commands that wait for a state in which they apply.
    pub(super) commands: Vec<super::commands::Waiting>,
    /// Number of sessions so far.
    pub(super) sessions: u64,
    /// Number of rejected messages so far.
    pub(super) rejected: u64,
    pub(super) last_error: Option<String>,
    /// Time of the last message read for the target, in milliseconds since 1970.
    pub(super) read_ms: u64,
    /// Whether the invariants are asserted: false only with a deliberate defect.
    is_checked: bool,
    /// Whether it receives the recovery streams of earlier sessions: a deliberate defect.
    hears_earlier: bool,
}

impl Target {
    pub(super) fn new(config: TargetConfig, first: Position, now: Time, mutation: Option<Mutation>) -> Self {
        assert!(config.unanswered > 0, "target {} may have a batch in flight", config.id);
        Self {
            is_checked: mutation.is_none(),
            hears_earlier: mutation == Some(Mutation::NoTerm),
            config,
            state: State::Down { attach_at: now },
            term: Term(0),
            first,
            applied: Position::ZERO,
            sent: Position::ZERO,
            acknowledged: Position::ZERO,
            normal: Queue::default(),
            catchup: Queue::default(),
            flights: VecDeque::new(),
            flying_bytes: 0,
            retry_after: RETRY_FIRST,
            batch_messages: usize::MAX,
            active_at: now,
            adopts: None,
            detaching: None,
            skip: None,
            commands: vec![],
            sessions: 0,
            rejected: 0,
            last_error: None,
            read_ms: 0,
        }
    }

    /// Memory of queued and flying messages, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.queued_bytes() + self.flying_bytes
    }

    /// Memory of queued messages, in bytes.
    pub(super) fn queued_bytes(&self) -> usize {
        self.normal.bytes() + self.catchup.bytes()
    }

    pub(super) fn queued(&self) -> usize {
        self.normal.len() + self.catchup.len()
    }

    pub(super) fn is_flying(&self) -> bool {
        !self.flights.is_empty()
    }

    /// When the oldest batch was sent.
    pub(super) fn flying_since(&self) -> Option<Time> {
        self.flights.front().map(|flight| flight.at)
    }

    pub(super) fn may_send(&self) -> bool {
        self.flights.len() < self.config.unanswered
    }

    /// Whether the target has a session, or waits for one.
    pub(super) fn has_session(&self) -> bool {
        !matches!(self.state, State::Down { .. } | State::Stopped(_) | State::Paused)
    }

    pub(super) fn recovery(&mut self) -> Option<&mut Recovery> {
        match &mut self.state {
            State::Recovering(recovery) => Some(recovery),
            _ => None,
        }
    }

    /// The queue to send from, if the state sends.
    pub(super) fn source(&mut self) -> Option<&mut Queue> {
        match self.state {
            State::Normal | State::Full { .. } => Some(&mut self.normal),
            State::Recovering(_) => Some(&mut self.catchup),
            _ => None,
        }
    }

    /// Whether the target receives this recovery stream.
    pub(super) fn hears(&self, stream: StreamNumber) -> bool {
        match &self.state {
            State::Recovering(Recovery { turn: Turn::Open { stream: own, .. }, .. }) => {
                *own == stream || self.hears_earlier
            }
            _ => false,
        }
    }

    /// When the recovery stream makes way for a waiting one.
    pub(super) fn yields_at(&self, yield_after: Duration) -> Option<Time> {
        match &self.state {
            State::Recovering(Recovery { turn: Turn::Open { stalled, until, .. }, .. }) => {
                Some(stalled.map_or(*until, |since| (since + yield_after).min(*until)))
            }
            _ => None,
        }
    }

    /// Whether the recovery stream has reached its goal.
    pub(super) fn is_complete(&self) -> bool {
        matches!(&self.state, State::Recovering(recovery) if recovery.turn == Turn::Complete)
    }

    /// The bound up to which the target has been sent everything, if its source is empty.
    pub(super) fn covered(&mut self, dispatched: Position) -> Option<Position> {
        if !self.source()?.is_empty() {
            return None;
        }
        match &self.state {
            State::Normal => Some(dispatched),
            State::Recovering(recovery) => Some(recovery.next),
            State::Full { missed } => Some(*missed),
            _ => None,
        }
    }

    /// Whether an answer to an attach, or to an empty batch, is due.
    pub(super) fn is_pending(&self) -> bool {
        match self.state {
            State::Attaching { .. } | State::Doubted { .. } | State::Moving { .. } => true,
            State::Down { .. } => self.last_error.is_none(),
            _ => false,
        }
    }

    /// Whether the target has everything below `until`, or is stopped.
    pub(super) fn is_at(&self, until: Position) -> bool {
        let is_dead_letter = |waiting: &Waiting| matches!(waiting, Waiting::DeadLetter { .. });
        match &self.state {
            // The message is on its way to the dead-letter log.
            State::Stopped(Why::Rejected { .. }) if self.config.dead_letters => false,
            State::Stopped(_) => !self.commands.iter().any(is_dead_letter),
            State::Normal => self.applied >= until && self.queued() == 0,
            _ => false,
        }
    }

    /// Whether an answer is late.
    pub(super) fn is_late(&self, now: Time, within: Duration) -> bool {
        let is_down = matches!(self.state, State::Down { .. });
        !is_down && self.deadline(within).is_some_and(|at| now >= at)
    }

    /// When the player must attach, or an answer is late.
    pub(super) fn deadline(&self, within: Duration) -> Option<Time> {
        match self.state {
            State::Down { attach_at } => Some(attach_at),
            State::Attaching { since } => Some(since + within),
            _ => self.flying_since().map(|since| since + within),
        }
    }

    /// What a search for quiet targets does with the bound. None: the target is busy, or its bound
    /// is at the end. With `ends`, the bound does not wait.
    pub(super) fn quiet(
        &mut self,
        now: Time,
        dispatched: Position,
        ends: bool,
        limits: &PlayerLimits,
    ) -> Option<Quiet> {
        let covered = self.covered(dispatched).filter(|covered| *covered > self.sent && !self.is_flying())?;
        let at = self.active_at + limits.quiet_for;
        let is_due = ends || now >= at || covered.since(self.sent) >= limits.quiet_positions;
        Some(if is_due { Quiet::Moves(covered) } else { Quiet::Waits(at) })
    }

    /// Why the target may not adopt a bound. None: it may.
    pub(super) fn refuses(&self, bound: Position, tail: Position) -> Option<String> {
        match &self.state {
            State::Stopped(Why::OtherStream { .. } | Why::Unusable { .. }) => {
                (bound > tail).then(|| format!("position {bound} is above the log's tail {tail}"))
            }
            _ => Some("the target has a bound of this log; 'adopt' replaces only a foreign one".into()),
        }
    }

    /// Queues positions that the recovery stream cannot read. With a deliberate defect, it `jumps`
    /// over the messages queued before them.
    pub(super) fn recover_gap(&mut self, (from, end): (Position, Position), reason: &str, jumps: bool) {
        let State::Recovering(recovery) = &mut self.state else { return };
        let end = end.min(recovery.goal);
        let from = from.max(recovery.next);
        if from < end {
            recovery.next = end;
            if jumps {
                self.catchup.clear();
            }
            self.push_catchup(Item::Gap { from, end, reason: reason.to_string() });
        }
    }

    /// Queues an item of the main stream.
    pub(super) fn push_normal(&mut self, item: Item) {
        let (last, goal) = (self.normal.last(), self.recovery().map(|recovery| recovery.goal));
        let least = last.max(goal).unwrap_or(self.sent);
        assert!(item.position() >= least || !self.is_checked, "main messages are queued in order");
        self.normal.push(item);
    }

    /// Queues an item of the recovery stream.
    pub(super) fn push_catchup(&mut self, item: Item) {
        let goal = self.recovery().map(|recovery| recovery.goal).expect("only a recovery has such items");
        let least = self.catchup.last().unwrap_or(self.sent);
        let is_in_place = item.position() >= least && item.position() < goal;
        assert!(is_in_place || !self.is_checked, "recovered messages are queued in order, below the goal");
        self.catchup.push(item);
    }

    /// Ends the session: drops queues and batches in flight. The caller closes the recovery stream.
    /// With a deliberate defect, `keeps` the queue of the main stream.
    pub(super) fn end_session(&mut self, keeps: bool) {
        if !keeps {
            self.normal.clear();
        }
        self.catchup.clear();
        self.flights.clear();
        self.flying_bytes = 0;
        self.sent = self.applied;
        self.term = Term(self.term.0 + 1);
    }

    /// Halves the batches of a target that did not answer in time.
    pub(super) fn shrink_batches(&mut self) {
        let largest = self.flights.iter().map(|flight| flight.batch.messages.len()).max();
        self.batch_messages = largest.map_or(self.batch_messages, |largest| (largest / 2).max(1));
    }

    /// The limits with the target's own limit of a batch.
    pub(super) fn batch_limits(&self, limits: &PlayerLimits) -> PlayerLimits {
        PlayerLimits { batch_messages: limits.batch_messages.min(self.batch_messages), ..*limits }
    }

    /// The wait until the next attempt. Doubles with each call until a batch is applied.
    pub(super) fn back_off(&mut self) -> Duration {
        let wait = self.retry_after;
        self.retry_after = (wait * 2).min(RETRY_MOST);
        wait
    }

    pub(super) fn attached(&mut self, now: Time, bound: Position) {
        (self.applied, self.sent, self.active_at) = (bound, bound, now);
        self.adopts = None;
    }

    /// Takes a batch into flight.
    pub(super) fn fly(&mut self, now: Time, upto: Position, messages: Vec<Message>) -> Arc<Batch> {
        let batch = Arc::new(Batch { after: self.sent, upto, messages });
        assert!(batch.upto > batch.after || !self.is_checked, "a batch moves the bound");
        let first = batch.messages.first().map(|message| message.position);
        let is_above = first.is_none_or(|first| first >= batch.after);
        assert!(is_above || !self.is_checked, "a batch holds no position below its start");
        let queued = [&self.normal, &self.catchup].into_iter().filter_map(Queue::front);
        let next = queued.map(Item::position).min();
        let is_free = next.is_none_or(|next| next >= upto);
        assert!(is_free || !self.is_checked, "no queued message lies below the sent bound");
        (self.sent, self.active_at) = (upto, now);
        let bytes = queue::memory(&batch);
        self.flying_bytes += bytes;
        self.flights.push_back(Flight { batch: batch.clone(), bytes, at: now });
        batch
    }

    /// Notes that everything below `upto` is applied. Returns whether a batch in flight ends there.
    pub(super) fn apply(&mut self, now: Time, upto: Position) -> bool {
        if !self.flights.iter().any(|flight| flight.batch.upto == upto) {
            return false;
        }
        let applied = self.flights.partition_point(|flight| flight.batch.upto <= upto);
        for flight in self.flights.drain(..applied) {
            self.flying_bytes -= flight.bytes;
        }
        assert!(upto <= self.sent, "a target applies only sent batches");
        if let Some(next) = self.flights.front_mut() {
            // The target began with it only now.
            next.at = next.at.max(now);
        }
        (self.applied, self.acknowledged) = (upto, self.acknowledged.max(upto));
        (self.retry_after, self.last_error) = (RETRY_FIRST, None);
        self.batch_messages = self.batch_messages.saturating_mul(2);
        true
    }

    /// The message in flight at this position, with everything before it applied.
    pub(super) fn reject(&mut self, position: Position) -> Option<Message> {
        let messages = self.flights.iter().flat_map(|flight| &flight.batch.messages);
        let message = messages.clone().find(|message| message.position == position)?.clone();
        (self.applied, self.acknowledged) = (position, self.acknowledged.max(position));
        self.rejected += 1;
        Some(message)
    }

    /// Append time of the oldest entry that the target has not applied, in milliseconds since 1970.
    /// None: no such entry is known.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        let flying = self.flights.iter().flat_map(|flight| flight.batch.messages.first());
        let queued = [&self.catchup, &self.normal].into_iter().filter_map(|queue| match queue.front() {
            Some(Item::Message(message)) => Some(message),
            _ => None,
        });
        let known = flying.chain(queued).next().map(|message| message.appended_ms);
        let is_behind = matches!(self.state, State::Recovering(_) | State::Full { .. });
        known.or_else(|| (is_behind && self.read_ms > 0).then_some(self.read_ms))
    }

    /// Whether the target never applied an entry.
    pub(super) fn is_new(&self) -> bool {
        self.applied <= self.first
    }
}
