//! The sessions of earlier runs that a client resumes, in orderings where a new session succeeds
//! the resumed one.
//!
//! The first appends of a run repeat those of earlier runs, in order, and receive their outcomes.
//! Later appends go to the session of this run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::{IdRun, Position, RecordId, SessionId, Time, ViewNumber, limits};

use super::appending::{ClientEffect, Failure, Reply, reply};
use super::timeouts::RESEND_FIRST;

/// The session of an earlier run that this run resumes, and its successors: the client ends them
/// all.
#[derive(Clone, Debug)]
pub struct Resuming {
    session: SessionId,
    /// The number at which the application resumes, counted across the session and its successors.
    number: u64,
    /// The session of this run. `None` before it has an id.
    successor: Option<SessionId>,
    closing: Option<SessionId>,
    ended: Vec<Ended>,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    session: SessionId,
    /// The number after the session's last.
    end: u64,
    /// Whether the outcome of its last number is final.
    is_completed: bool,
}

/// The view in which a question was last sent, and when to repeat it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    view: ViewNumber,
    say_at: Time,
}

impl Pace {
    const AT_ONCE: Self = Self { view: ViewNumber::NONE, say_at: Time::ZERO };

    fn is_due(self, now: Time, view: ViewNumber) -> bool {
        self.view != view || now >= self.say_at
    }

    /// Whether the question was sent in this view, and not answered.
    fn is_repeated(self, view: ViewNumber) -> bool {
        self.view == view && self.say_at > Time::ZERO
    }

    fn said(now: Time, view: ViewNumber) -> Self {
        Self { view, say_at: now + RESEND_FIRST }
    }
}

/// Appends of this run that repeat appends of earlier runs.
#[derive(Clone, Debug)]
pub struct Past {
    /// Ids of earlier runs that this run has not repeated yet.
    ids: VecDeque<IdRun>,
    /// Repeated appends without an outcome.
    asked: BTreeMap<RecordId, Asked>,
    /// Repeated appends about which no question was sent.
    unsaid: Vec<RecordId>,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    token: u64,
    sync: bool,
}

/// A client's questions about appends of earlier runs.
#[derive(Debug, Default)]
pub struct Questions {
    /// The ids of the appends, in order.
    pub ids: BTreeSet<RecordId>,
    /// Whether these are the first questions in this view.
    pub is_new_view: bool,
    /// Whether they repeat unanswered questions.
    pub is_repeated: bool,
}

impl Default for Past {
    fn default() -> Self {
        Self { ids: VecDeque::new(), asked: BTreeMap::new(), unsaid: vec![], pace: Pace::AT_ONCE }
    }
}

impl Past {
    /// `ids` are the ids of earlier runs from the resumed number on. `pace` is the pace of the
    /// questions that found them.
    #[must_use]
    pub fn new(ids: VecDeque<IdRun>, pace: Pace) -> Self {
        Self { ids, pace, ..Self::default() }
    }

    /// The id that the next append repeats. `None` if it repeats none.
    #[must_use]
    pub fn next(&self) -> Option<(SessionId, u64)> {
        self.ids.front().map(|ids| (ids.session, ids.first))
    }

    /// Handles the application's next append. Returns whether it repeats one of an earlier run.
    pub fn claim(&mut self, token: u64, sync: bool) -> bool {
        let Some(ids) = self.ids.front_mut() else { return false };
        let id = RecordId { session: ids.session, number: ids.first };
        *ids = ids.tail(1);
        if ids.count == 0 {
            self.ids.pop_front();
        }
        self.asked.insert(id, Asked { token, sync });
        self.unsaid.push(id);
        true
    }

    /// Number of unanswered appends.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Whether an append of this session is unanswered.
    #[must_use]
    pub fn concerns(&self, session: SessionId) -> bool {
        self.from(RecordId { session, number: 0 }).next().is_some()
    }

    /// The unanswered appends of a session, from `first`.
    pub fn from(&self, first: RecordId) -> impl Iterator<Item = RecordId> + use<'_> {
        let last = RecordId { number: u64::MAX, ..first };
        self.asked.range(first..=last).map(|(id, _)| *id)
    }

    /// When to repeat the questions.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (!self.asked.is_empty()).then_some(self.pace.say_at)
    }

    /// The questions due now.
    pub fn questions(&mut self, now: Time, view: ViewNumber) -> Questions {
        let mut ids: BTreeSet<RecordId> = std::mem::take(&mut self.unsaid).into_iter().collect();
        let is_due = !self.asked.is_empty() && self.pace.is_due(now, view);
        let is_new_view = is_due && self.pace.view != view;
        let mut is_repeated = false;
        if is_due {
            is_repeated = self.pace.is_repeated(view) && ids.is_empty();
            ids.extend(self.asked.keys().take(limits::BATCH_RECORDS));
        }
        if !ids.is_empty() {
            self.pace = Pace::said(now, view);
        }
        Questions { ids, is_new_view, is_repeated }
    }

    /// The outcome of an append is known: answers the caller that repeated it, if any.
    pub fn record_outcome(
        &mut self,
        id: RecordId,
        what: Result<Position, Failure>,
        out: &mut Vec<ClientEffect>,
    ) {
        let Some(Asked { token, sync }) = self.asked.remove(&id) else { return };
        let answer = match what {
            Ok(position) => Reply::Appended { id, position: Some(position).filter(|_| sync), again: 0 },
            Err(failure) => Reply::Failed(failure),
        };
        out.push(reply(token, answer));
    }

    /// Drops the unanswered requests and returns their tokens.
    pub fn give_up(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(self).asked.into_values().map(|asked| asked.token)
    }
}

impl Resuming {
    /// Resumes at `number`, counted across `session` and its successors.
    #[must_use]
    pub fn new(session: SessionId, number: u64) -> Self {
        let pace = Pace::AT_ONCE;
        Self { session, number, successor: None, closing: Some(session), ended: vec![], pace }
    }

    /// A fresh copy, without progress.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.session, self.number)
    }

    /// The session that the application knows.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Sets the id of this run's session.
    pub fn begin(&mut self, successor: SessionId) {
        self.successor = Some(successor);
    }

    /// The session of this run. `None` before it has an id.
    #[must_use]
    pub fn successor(&self) -> Option<SessionId> {
        self.successor
    }

    /// The session being ended. `None` if all have ended.
    #[must_use]
    pub fn closing(&self) -> Option<SessionId> {
        self.closing
    }

    /// Whether the client asks about this session.
    #[must_use]
    pub fn concerns(&self, session: SessionId) -> bool {
        self.closing == Some(session) || self.ended.iter().any(|ended| ended.session == session)
    }

    /// When to repeat the question.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.successor.map(|_| self.pace.say_at)
    }

    /// Makes the next question due at once.
    pub fn hurry(&mut self) {
        self.pace.say_at = Time::ZERO;
    }

    /// An answer arrived, and the next question was sent: restarts the timeout.
    pub fn was_heard(&mut self, now: Time) {
        self.pace = Pace::said(now, self.pace.view);
    }

    /// The resumed number, less the numbers of the ended sessions.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.ended.iter().fold(self.number, |left, ended| left.saturating_sub(ended.end))
    }

    /// The pace of the questions.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// The ids of earlier runs from the resumed number on. `None` if the ended sessions have fewer
    /// numbers.
    #[must_use]
    pub fn ids(&self) -> Option<VecDeque<IdRun>> {
        let mut skip = self.number;
        let mut ids = VecDeque::new();
        for ended in &self.ended {
            let run = IdRun { session: ended.session, first: 0, count: ended.end };
            let skipped = skip.min(run.count);
            skip -= skipped;
            ids.push_back(run.tail(skipped));
        }
        ids.retain(|ids| ids.count > 0);
        (skip == 0).then_some(ids)
    }

    /// Restarts in a new view, since answers of an earlier view may have been lost with it.
    pub fn enter_view(&mut self, view: ViewNumber) {
        if self.pace.view != view {
            self.closing = Some(self.session);
            self.ended.clear();
        }
    }

    /// Whether to send a question now: `Some(true)` repeats an unanswered one.
    pub fn ask(&mut self, now: Time, view: ViewNumber) -> Option<bool> {
        if !self.pace.is_due(now, view) {
            return None;
        }
        let is_repeated = self.pace.is_repeated(view);
        self.pace = Pace::said(now, view);
        Some(is_repeated)
    }

    /// The last number of each ended session whose outcomes may not be final.
    pub fn uncompleted(&self) -> impl Iterator<Item = RecordId> + use<'_> {
        let uncompleted = self.ended.iter().filter(|ended| !ended.is_completed && ended.end > 0);
        uncompleted.map(|ended| RecordId { session: ended.session, number: ended.end - 1 })
    }

    /// `session` has ended before number `end`, perhaps earlier than reported before.
    pub fn note_ended(
        &mut self,
        view: ViewNumber,
        session: SessionId,
        end: u64,
        successor: Option<SessionId>,
    ) {
        if self.pace.view != view {
            return;
        }
        if self.closing == Some(session) && successor.is_some() {
            self.closing = successor.filter(|_| successor != self.successor);
            self.ended.push(Ended { session, end, is_completed: false });
            self.pace.say_at = Time::ZERO;
        } else if let Some(known) = self.of(session).filter(|known| end < known.end) {
            known.end = end;
            self.pace.say_at = Time::ZERO;
        }
    }

    /// The outcomes of `number` and of all earlier numbers of the session are final.
    pub fn note_completed(&mut self, session: SessionId, number: u64) {
        if let Some(ended) = self.of(session).filter(|ended| number + 1 == ended.end) {
            ended.is_completed = true;
        }
    }

    fn of(&mut self, session: SessionId) -> Option<&mut Ended> {
        self.ended.iter_mut().find(|ended| ended.session == session)
    }
}
