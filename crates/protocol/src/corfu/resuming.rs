//! How a client resumes the session of an earlier run.
//!
//! No role remembers a session's grants. So the sequencer stops granting it positions; all granted
//! positions are written or filled; and then the replicas search for its records. The client
//! registers the session's end and its successor in the log's register entry. Later views start
//! from that entry, so no sequencer grants the session anything again. The register accepts this
//! only in the view in which the session was closed; otherwise the client starts over.
//!
//! ```text
//! client                    sequencer     shards      register
//!   |--- Close a ------------->|             |            |
//!   |<-- Closed a below 40 ----|             |            |
//!   |--- Seek a in 32..40 ------------------>|            |
//!   |<-- Sought: a4 at 33, a6 at 35 ---------|            |     final: a gets no other records
//!   |--- EndSession a at 7, successor c ----------------->|
//!   |<-- Current: a ended at 7, successor c --------------| successor b: an earlier run won
//! ```

use std::collections::BTreeMap;

use seriatim_model::{
    Address, Endpoint, NodeId, Position, RecordId, SessionId, ShardId, Time, View, ViewNumber,
};

use super::ShardMessage;
use super::client::{LogClient, Out, send};
use super::message::Message;
use super::search::{Progress, Question, Search};
use crate::control::{self, EndedSession, EndedSessions, LogEntry};
use crate::mutation::{Mutation, Options};
use crate::parts::appending::{ClientEffect, Failure, LogClientConfig, Reply, reply};
use crate::parts::{KnownLog, Past, Resuming};

/// Earlier runs' sessions: the one being ended, its stage, and the records found.
///
/// Invariant: only an answer to a stage's question advances it; there is a `stage` beyond the first
/// one only while a session is being ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier {
    pub(super) resuming: Option<Resuming>,
    stage: Stage,
    /// Sessions whose end is registered.
    ended: EndedSessions,
    /// The session being ended has no record below this.
    lowest: Position,
    /// Sessions with completed searches.
    searched: Vec<SessionId>,
    /// Positions of earlier runs' records that this run appends again.
    places: BTreeMap<RecordId, Position>,
    pub(super) past: Past,
}

/// A stage's consequence for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Outcome {
    /// Awaits an answer.
    Waits,
    /// The next question is due.
    Due,
    /// All have ended: this run appends.
    Ended,
    /// No replica can tell the outcome of earlier appends.
    Lost,
}

#[derive(Clone, Debug, Default)]
enum Stage {
    /// Selects the session.
    #[default]
    Begin,
    Close,
    /// Searches for its records; its end, if registered already.
    Search(Search, Option<EndedSession>),
    /// Registers the end; the position of the session's last record.
    End(EndedSession, Position),
}

impl Earlier {
    pub(super) fn new(resume: Option<(SessionId, u64)>) -> Self {
        let resuming = resume.map(|(session, number)| Resuming::new(session, number));
        Self { resuming, ..Self::default() }
    }

    /// Starts over: only registered ends count in a new view.
    pub(super) fn enter_view(&mut self, entry: &LogEntry) {
        if let Some(resuming) = &self.resuming {
            self.lowest = resuming.session().opened_at();
            self.ended.clone_from(&entry.ended);
            self.stage = Stage::Begin;
            self.searched.clear();
            self.places.clear();
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.resuming.as_ref().and_then(Resuming::deadline)
    }

    /// `Some` if a question is due now: whether it is a repetition.
    fn ask(&mut self, now: Time, log: &KnownLog) -> Option<bool> {
        let resuming = self.resuming.as_mut().filter(|resuming| resuming.successor().is_some())?;
        let view = log.view()?.number;
        resuming.enter_view(view);
        resuming.ask(now, view)
    }

    /// Goes from each ended session to the successor that the register names, until a session must
    /// still be ended, or searched for records that the program did not see acknowledged.
    fn follow(&mut self, view: ViewNumber, batch: usize) -> Outcome {
        // Each session ends once.
        for _ in 0..=self.ended.sessions.len() {
            let Some(resuming) = &mut self.resuming else { return Outcome::Waits };
            let Some(session) = resuming.closing() else { return Outcome::Ended };
            let wanted = resuming.left();
            let Some(ended) = self.ended.of(session) else {
                self.stage = Stage::Close;
                return Outcome::Waits;
            };
            if wanted < ended.end && !self.searched.contains(&session) {
                let range = (self.lowest, ended.below);
                self.stage = Stage::Search(Search::new(session, wanted, range, batch), Some(ended));
                return Outcome::Waits;
            }
            resuming.note_ended(view, session, ended.end, Some(ended.successor));
            self.lowest = ended.below;
        }
        match &self.resuming {
            Some(resuming) if resuming.closing().is_none() => Outcome::Ended,
            _ => Outcome::Lost,
        }
    }

    fn say(&mut self, log: &KnownLog, config: &LogClientConfig, out: &mut Out) -> Outcome {
        let Some(view) = log.view() else { return Outcome::Waits };
        let Some(session) = self.resuming.as_ref().and_then(Resuming::closing) else { return Outcome::Waits };
        match &mut self.stage {
            Stage::Begin => {}
            Stage::Close => out.push(send(view.leader, Message::Close { view: view.number, session })),
            Stage::Search(search, _) if search.has_begun() => {
                seek(view.number, session, search.again(view), out);
            }
            Stage::Search(search, _) => {
                let progress = search.go_on(view);
                return self.search_goes_on(view.number, progress, config.options, out);
            }
            Stage::End(ended, since) => {
                let (log, view) = (log.entry().id, view.number);
                let message = control::Message::EndSession { log, view, ended: *ended, since: *since };
                let to = Address::Node(config.control, Endpoint::Register);
                out.push(ClientEffect::Send { to, message: message.into() });
            }
        }
        Outcome::Waits
    }

    /// The sequencer has closed a session; all positions granted to it are below `below`.
    pub(super) fn closed(&mut self, session: SessionId, below: Position, batch: usize) -> Outcome {
        let Some(resuming) = &mut self.resuming else { return Outcome::Waits };
        if !matches!(self.stage, Stage::Close) || resuming.closing() != Some(session) {
            return Outcome::Waits;
        }
        let range = (self.lowest, below);
        self.stage = Stage::Search(Search::new(session, resuming.left(), range, batch), None);
        resuming.hurry();
        Outcome::Due
    }

    pub(super) fn sought(
        &mut self,
        now: Time,
        (view, options): (&View, Options),
        session: SessionId,
        answer: Sought<'_>,
        out: &mut Out,
    ) -> Outcome {
        let Stage::Search(search, _) = &mut self.stage else { return Outcome::Waits };
        if search.session() != session {
            return Outcome::Waits;
        }
        let Sought { replica, span, trim, found } = answer;
        let progress = search.answered(view, replica, span, trim, found);
        if progress != Progress::None
            && let Some(resuming) = &mut self.resuming
        {
            // Restarts the timeout of the question sent now.
            resuming.was_heard(now);
        }
        self.search_goes_on(view.number, progress, options, out)
    }

    fn search_goes_on(
        &mut self,
        view: ViewNumber,
        progress: Progress,
        options: Options,
        out: &mut Out,
    ) -> Outcome {
        match (progress, &self.stage) {
            (Progress::Ask(questions), Stage::Search(search, _)) => {
                seek(view, search.session(), questions, out);
                Outcome::Waits
            }
            (Progress::Done, _) => self.search_ends(options),
            (Progress::Lost, _) => Outcome::Lost,
            (Progress::None | Progress::Ask(_), _) => Outcome::Waits,
        }
    }

    fn search_ends(&mut self, options: Options) -> Outcome {
        let Some(resuming) = &mut self.resuming else { return Outcome::Waits };
        let (stage, successor) = (std::mem::take(&mut self.stage), resuming.successor());
        let (Stage::Search(search, known), Some(successor)) = (stage, successor) else {
            return Outcome::Waits;
        };
        let (session, below) = (search.session(), search.below());
        assert_eq!(resuming.closing(), Some(session), "the records of the session that is being ended");
        let Some(findings) = search.findings(known.map(|ended| ended.end)) else { return Outcome::Lost };
        resuming.hurry();
        let named = |(number, position)| (RecordId { session, number }, position);
        self.places.extend(findings.places.into_iter().map(named));
        self.searched.push(session);
        if known.is_none() {
            let ended = EndedSession { session, end: findings.end, below, successor };
            self.stage = Stage::End(ended, findings.since);
            if options.mutates(Mutation::EndUnregistered) {
                self.ended.sessions.push(ended);
                self.stage = Stage::Begin;
            }
        }
        Outcome::Due
    }

    /// Handles the register's ended sessions.
    pub(super) fn register_says(&mut self, entry: &LogEntry) -> Outcome {
        let (Some(resuming), Stage::End(ended, since)) = (&mut self.resuming, &self.stage) else {
            return Outcome::Waits;
        };
        if entry.ended.of(ended.session).is_some() {
            self.ended.clone_from(&entry.ended);
            self.stage = Stage::Begin;
            resuming.hurry();
            Outcome::Due
        } else if *since < entry.ended.floor {
            // The session may have ended before, and been forgotten.
            Outcome::Lost
        } else {
            Outcome::Waits
        }
    }

    /// Answers earlier runs' appends that this run repeats.
    fn answer_past(&mut self, now: Time, view: ViewNumber, out: &mut Out) {
        for id in self.past.questions(now, view).ids {
            let what = self.places.remove(&id).ok_or(Failure::NotAppended(id));
            self.past.record_outcome(id, what, out);
        }
    }
}

pub(super) struct Sought<'a> {
    pub(super) replica: (NodeId, ShardId),
    pub(super) span: (Position, Position),
    /// The replica has no records below this.
    pub(super) trim: Position,
    pub(super) found: &'a [(Position, RecordId)],
}

fn seek(view: ViewNumber, session: SessionId, questions: Vec<Question>, out: &mut Out) {
    for Question { shard, node, from, end } in questions {
        let to = Address::Node(node, Endpoint::Shard(shard));
        let message = ShardMessage::Seek { view, session, from, end };
        out.push(ClientEffect::Send { to, message: message.into() });
    }
}

impl LogClient {
    pub(super) fn go_on_resuming(&mut self, now: Time, out: &mut Out) {
        self.earlier.answer_past(now, self.log.view_number(), out);
        let Some(is_repeated) = self.earlier.ask(now, &self.log) else { return };
        if matches!(self.earlier.stage, Stage::Begin) {
            let batch = self.config.options.limits.batch_records;
            let outcome = self.earlier.follow(self.log.view_number(), batch);
            self.conclude(outcome, out);
            if let Some(resuming) = &mut self.earlier.resuming {
                resuming.was_heard(now);
            }
        }
        let outcome = self.earlier.say(&self.log, &self.config, out);
        self.conclude(outcome, out);
        if is_repeated {
            self.log.wonder(out);
        }
    }

    pub(super) fn conclude(&mut self, outcome: Outcome, out: &mut Out) {
        match outcome {
            Outcome::Waits => {}
            Outcome::Due => self.work_is_due = true,
            Outcome::Ended => self.go_on_after(out),
            Outcome::Lost => self.resume_failed(out),
        }
    }

    /// No replica can tell an outcome. Fails the waiting appends, or else the next one.
    fn resume_failed(&mut self, out: &mut Out) {
        let Some(resuming) = self.earlier.resuming.take() else { return };
        let is_told = self.in_flight() > 0;
        for token in self.askers.give_up() {
            out.push(reply(token, Reply::Failed(Failure::SessionExpired(resuming.session()))));
        }
        self.lose(resuming.session(), out);
        (self.earlier.resuming, self.is_opening) = ((!is_told).then(|| resuming.anew()), false);
        self.earlier.enter_view(self.log.entry());
    }

    /// Earlier sessions have ended: this run appends.
    fn go_on_after(&mut self, out: &mut Out) {
        let Some(resuming) = &self.earlier.resuming else { return };
        let (Some(successor), Some(ids)) = (resuming.successor(), resuming.ids()) else {
            return self.resume_failed(out);
        };
        self.earlier.past = Past::new(ids, resuming.pace());
        (self.earlier.resuming, self.session, self.is_opening) = (None, Some(successor), false);
        for pending in std::mem::take(&mut self.pending) {
            if self.earlier.past.claim(pending.token, true) {
                continue;
            }
            match self.objection(&pending.record, pending.spec) {
                Some(failure) => out.push(reply(pending.token, Reply::Failed(failure))),
                None => self.pending.push_back(pending),
            }
        }
        self.work_is_due = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(7);
    const B: SessionId = SessionId(8);
    const VIEW: ViewNumber = ViewNumber(1);
    const BATCH: usize = 8;

    /// The application resumes at number 3; this run's own session has an id.
    fn earlier() -> Earlier {
        let mut earlier = Earlier::new(Some((A, 3)));
        let resuming = earlier.resuming.as_mut().expect("there is a session to continue with");
        resuming.begin(B);
        resuming.enter_view(VIEW);
        assert!(resuming.ask(Time::ZERO, VIEW).is_some());
        earlier
    }

    #[test]
    fn a_session_is_closed_before_its_records_are_looked_for() {
        let mut earlier = earlier();
        assert_eq!(earlier.closed(A, Position(9), BATCH), Outcome::Waits, "nobody asked");
        assert_eq!(earlier.follow(VIEW, BATCH), Outcome::Waits);
        assert_eq!(earlier.closed(B, Position(9), BATCH), Outcome::Waits, "another one is closed");
        assert_eq!(earlier.closed(A, Position(9), BATCH), Outcome::Due);
        assert_eq!(earlier.closed(A, Position(9), BATCH), Outcome::Waits, "it came twice");
        assert!(matches!(earlier.stage, Stage::Search(..)));
    }

    #[test]
    fn a_session_that_the_register_says_has_ended_is_passed_over() {
        let mut earlier = earlier();
        let ended = EndedSession { session: A, end: 3, below: Position(9), successor: B };
        earlier.ended.sessions.push(ended);
        assert_eq!(earlier.follow(VIEW, BATCH), Outcome::Ended, "nothing of it is asked for again");
        assert_eq!(earlier.lowest, Position(9));
    }

    #[test]
    #[should_panic(expected = "the session that is being ended")]
    fn records_of_another_session_are_not_taken_for_its_own() {
        let mut earlier = earlier();
        let range = (Position::ZERO, Position(9));
        earlier.stage = Stage::Search(Search::new(B, 0, range, BATCH), None);
        let _ = earlier.search_ends(Options::default());
    }
}
