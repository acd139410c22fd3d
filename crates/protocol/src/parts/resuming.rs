//! The client's knowledge of the sessions of earlier runs that it goes on with, where a session
//! that is resumed ends and goes on in another one.
//!
//! The first appends of a run are those of the earlier runs again, in their order, and each is
//! answered by what became of its number. The rest goes to the session of this run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::{IdRun, Position, RecordId, SessionId, Time, ViewNumber, limits};

use super::appending::{ClientEffect, Failure, Reply, reply};
use super::timeouts::RESEND_FIRST;

/// A session of an earlier run, on its way to its end.
#[derive(Clone, Debug)]
pub struct Resuming {
    /// The session that the application knows.
    session: SessionId,
    /// The number in it, or in those that came after it, that the application goes on with.
    number: u64,
    /// The session of this run, once it has an id.
    successor: Option<SessionId>,
    /// The session that is being ended; none if all have ended.
    closing: Option<SessionId>,
    /// The sessions that have ended, in order.
    ended: Vec<Ended>,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    session: SessionId,
    /// The number after the last.
    end: u64,
    /// Whether its last number has its final position, or never gets one.
    is_completed: bool,
}

/// When something was said last, and when it is to be said again.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    view: ViewNumber,
    say_at: Time,
}

impl Pace {
    const AT_ONCE: Self = Self { view: ViewNumber::NONE, say_at: Time::ZERO };

    /// Whether it is to be said, or said again, in this view.
    fn is_due(self, now: Time, view: ViewNumber) -> bool {
        self.view != view || now >= self.say_at
    }

    /// Whether it was said in this view already, and not answered.
    fn is_repeated(self, view: ViewNumber) -> bool {
        self.view == view && self.say_at > Time::ZERO
    }

    fn said(now: Time, view: ViewNumber) -> Self {
        Self { view, say_at: now + RESEND_FIRST }
    }
}

/// The appends of this run that an earlier one made.
#[derive(Clone, Debug)]
pub struct Past {
    /// The ids that no append has claimed yet.
    ids: VecDeque<IdRun>,
    /// The appends that were claimed and are not answered.
    asked: BTreeMap<RecordId, Asked>,
    /// The appends of these that the client has not asked the leader about yet.
    unsaid: Vec<RecordId>,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    token: u64,
    sync: bool,
}

/// The questions that a client is to ask about appends of earlier runs.
#[derive(Debug, Default)]
pub struct Questions {
    /// The appends, in order.
    pub ids: BTreeSet<RecordId>,
    /// Whether it is the first time in this view.
    pub is_new_view: bool,
    /// Whether it was asked before, and not answered.
    pub is_repeated: bool,
}

impl Default for Past {
    fn default() -> Self {
        Self { ids: VecDeque::new(), asked: BTreeMap::new(), unsaid: vec![], pace: Pace::AT_ONCE }
    }
}

impl Past {
    /// The ids under which earlier runs appended, from the one on with which this run goes on. The
    /// client last asked at that pace what became of them.
    #[must_use]
    pub fn new(ids: VecDeque<IdRun>, pace: Pace) -> Self {
        Self { ids, pace, ..Self::default() }
    }

    /// The id of the next append, if an earlier run made it.
    #[must_use]
    pub fn next(&self) -> Option<(SessionId, u64)> {
        self.ids.front().map(|ids| (ids.session, ids.first))
    }

    /// An append is made again. Says whether an earlier run made it.
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

    /// How many appends wait for an answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    /// Whether an append of this session waits for an answer.
    #[must_use]
    pub fn concerns(&self, session: SessionId) -> bool {
        self.from(RecordId { session, number: 0 }).next().is_some()
    }

    /// The appends of a session that wait for an answer, from this one on.
    pub fn from(&self, first: RecordId) -> impl Iterator<Item = RecordId> + use<'_> {
        let last = RecordId { number: u64::MAX, ..first };
        self.asked.range(first..=last).map(|(id, _)| *id)
    }

    /// When to ask again.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (!self.asked.is_empty()).then_some(self.pace.say_at)
    }

    /// The questions that are to be asked now.
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

    /// It is known what became of an append: answers it, if it was made again and waits for that.
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

    /// Gives up: the tokens of the requests that wait.
    pub fn give_up(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(self).asked.into_values().map(|asked| asked.token)
    }
}

impl Resuming {
    /// The application goes on with this number of the session, or of those that came after it.
    #[must_use]
    pub fn new(session: SessionId, number: u64) -> Self {
        let pace = Pace::AT_ONCE;
        Self { session, number, successor: None, closing: Some(session), ended: vec![], pace }
    }

    /// From the beginning.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.session, self.number)
    }

    /// The session that the application knows.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The session of this run has an id.
    pub fn begin(&mut self, successor: SessionId) {
        self.successor = Some(successor);
    }

    /// The session of this run, once it has an id.
    #[must_use]
    pub fn successor(&self) -> Option<SessionId> {
        self.successor
    }

    /// The session that is being ended; none if all have ended.
    #[must_use]
    pub fn closing(&self) -> Option<SessionId> {
        self.closing
    }

    /// Whether the client is asking what became of a session.
    #[must_use]
    pub fn concerns(&self, session: SessionId) -> bool {
        self.closing == Some(session) || self.ended.iter().any(|ended| ended.session == session)
    }

    /// When to ask again.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.successor.map(|_| self.pace.say_at)
    }

    /// Asks the next question at once.
    pub fn hurry(&mut self) {
        self.pace.say_at = Time::ZERO;
    }

    /// An answer came, and more was asked.
    pub fn was_heard(&mut self, now: Time) {
        self.pace = Pace::said(now, self.pace.view);
    }

    /// The number that the application goes on with, counted from the end of the last session that
    /// has ended.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.ended.iter().fold(self.number, |left, ended| left.saturating_sub(ended.end))
    }

    /// At which pace it was asked.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// The ids from the one on that the application goes on with; nothing if there never were so
    /// many.
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

    /// Nothing is taken for granted that was said in another view, which may have been lost.
    pub fn enter_view(&mut self, view: ViewNumber) {
        if self.pace.view != view {
            self.closing = Some(self.session);
            self.ended.clear();
        }
    }

    /// Whether something is to be asked now, and if so, whether it was asked before and not
    /// answered.
    pub fn ask(&mut self, now: Time, view: ViewNumber) -> Option<bool> {
        if !self.pace.is_due(now, view) {
            return None;
        }
        let is_repeated = self.pace.is_repeated(view);
        self.pace = Pace::said(now, view);
        Some(is_repeated)
    }

    /// The last number of each ended session, unless it is known what became of it.
    pub fn uncompleted(&self) -> impl Iterator<Item = RecordId> + use<'_> {
        let uncompleted = self.ended.iter().filter(|ended| !ended.is_completed && ended.end > 0);
        uncompleted.map(|ended| RecordId { session: ended.session, number: ended.end - 1 })
    }

    /// A session has ended, or turned out to have ended earlier than it was said before.
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

    /// The last number of a session has come to its end, and so have all before it.
    pub fn note_completed(&mut self, session: SessionId, number: u64) {
        if let Some(ended) = self.of(session).filter(|ended| number + 1 == ended.end) {
            ended.is_completed = true;
        }
    }

    fn of(&mut self, session: SessionId) -> Option<&mut Ended> {
        self.ended.iter_mut().find(|ended| ended.session == session)
    }
}
