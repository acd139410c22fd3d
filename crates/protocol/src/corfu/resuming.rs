//! How a client goes on with the session of an earlier run.
//!
//! Nobody remembers what a session was given. So the sequencer is told to give it nothing more, what it was given is
//! written or filled, and then the replicas look what of it is there. That the session has ended, with which record, and
//! where this run goes on, is put into the register's entry of the log, which every later view is made from: no sequencer
//! gives the session anything any more. The register takes it only while the view stands in which the session was closed;
//! otherwise all begins again.
//!
//! ```text
//! client                    sequencer     shards      register
//!   |--- Close a ------------->|             |            |
//!   |<-- Closed a below 40 ----|             |            |
//!   |--- Seek a in 32..40 ------------------>|            |
//!   |<-- Sought: a4 at 33, a6 at 35 ---------|            |     final, and nothing else of the session will be
//!   |--- EndSession a at 7, successor c ----------------->|
//!   |<-- Current: a ended at 7, successor c --------------|     if it says b, an earlier run was faster: b is closed
//! ```

use std::collections::BTreeMap;

use seriatim_model::{Address, Endpoint, NodeId, Position, RecordId, SessionId, ShardId, Time};

use super::client::{LogClient, Out, send};
use super::message::Message;
use super::search::{Progress, Question, Search};
use crate::control::{self, EndedSession, EndedSessions, LogEntry};
use crate::deviation::Deviation;
use crate::parts::appending::{ClientEffect, Failure, Reply, reply};
use crate::parts::{Past, Resuming};
use crate::shard;

/// The sessions of earlier runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier {
    /// The sessions that are being ended.
    pub(super) resuming: Option<Resuming>,
    stage: Stage,
    /// The sessions that the register says have ended.
    ended: EndedSessions,
    /// Nothing of the session that is being ended is below.
    lowest: Position,
    /// The sessions whose records are found.
    searched: Vec<SessionId>,
    /// The records of earlier runs that are asked for again.
    places: BTreeMap<RecordId, Position>,
    /// The appends among them that are asked for again.
    pub(super) past: Past,
}

/// The step in which the session that is being ended is.
#[derive(Clone, Debug, Default)]
enum Stage {
    /// It is looked which that is.
    #[default]
    Begin,
    /// It is closed.
    Close,
    /// Its records are looked for; it may have ended before.
    Search(Search, Option<EndedSession>),
    /// The register is told; and where its last record is.
    End(EndedSession, Position),
}

impl Earlier {
    /// Goes on with such a session, if there is one.
    pub(super) fn new(resume: Option<(SessionId, u64)>) -> Self {
        let resuming = resume.map(|(session, number)| Resuming::new(session, number));
        Self { resuming, ..Self::default() }
    }

    /// Nothing counts that was not in the register before this view.
    pub(super) fn enter_view(&mut self, entry: &LogEntry) {
        if let Some(resuming) = &self.resuming {
            self.lowest = resuming.session().opened_at();
            self.ended.clone_from(&entry.ended);
            self.stage = Stage::Begin;
            self.searched.clear();
            self.places.clear();
        }
    }

    /// When to go on, if nothing is heard.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.resuming.as_ref().and_then(Resuming::deadline)
    }
}

impl LogClient {
    /// Says what is to be said about sessions of earlier runs.
    pub(super) fn go_on_resuming(&mut self, now: Time, out: &mut Out) {
        self.answer_past(now, out);
        let number = self.log.view_number();
        let Some(resuming) = self.earlier.resuming.as_mut().filter(|resuming| resuming.successor().is_some())
        else {
            return;
        };
        if self.log.view().is_none() {
            return;
        }
        resuming.enter_view(number);
        let Some(is_repeated) = resuming.ask(now, number) else { return };
        if matches!(self.earlier.stage, Stage::Begin) {
            self.follow(out);
            if let Some(resuming) = &mut self.earlier.resuming {
                resuming.was_heard(now);
            }
        }
        self.say_about_earlier(out);
        if is_repeated {
            self.log.wonder(out);
        }
    }

    /// Goes from session to session, as far as the register says that they have ended, and what of them is asked for again
    /// is found.
    fn follow(&mut self, out: &mut Out) {
        let (view, batch) = (self.log.view_number(), self.config.options.limits.batch_records);
        // No session ends twice.
        for _ in 0..=self.earlier.ended.sessions.len() {
            let Some(resuming) = &mut self.earlier.resuming else { return };
            let Some(session) = resuming.closing() else { return self.go_on_after(out) };
            let wanted = resuming.left();
            let Some(ended) = self.earlier.ended.of(session) else {
                self.earlier.stage = Stage::Close;
                return;
            };
            if wanted < ended.end && !self.earlier.searched.contains(&session) {
                let range = (self.earlier.lowest, ended.below);
                self.earlier.stage = Stage::Search(Search::new(session, wanted, range, batch), Some(ended));
                return;
            }
            resuming.note_ended(view, session, ended.end, Some(ended.successor));
            self.earlier.lowest = ended.below;
        }
        match &self.earlier.resuming {
            Some(resuming) if resuming.closing().is_none() => self.go_on_after(out),
            _ => self.resume_failed(out),
        }
    }

    fn say_about_earlier(&mut self, out: &mut Out) {
        let Some(view) = self.log.view() else { return };
        let Some(session) = self.earlier.resuming.as_ref().and_then(Resuming::closing) else { return };
        match &mut self.earlier.stage {
            Stage::Begin => {}
            Stage::Close => out.push(send(view.leader, Message::Close { view: view.number, session })),
            Stage::Search(search, _) if search.has_begun() => {
                let questions = search.again(view);
                self.seek(session, questions, out);
            }
            Stage::Search(search, _) => {
                let progress = search.go_on(view);
                self.search_goes_on(progress, out);
            }
            Stage::End(ended, since) => {
                let (log, view) = (self.log.entry().id, view.number);
                let message = control::Message::EndSession { log, view, ended: *ended, since: *since };
                let to = Address::Node(self.config.control, Endpoint::Register);
                out.push(ClientEffect::Send { to, message: message.into() });
            }
        }
    }

    fn seek(&self, session: SessionId, questions: Vec<Question>, out: &mut Out) {
        let view = self.log.view_number();
        for Question { shard, node, from, end } in questions {
            let to = Address::Node(node, Endpoint::Shard(shard));
            let message = shard::Message::Seek { view, session, from, end };
            out.push(ClientEffect::Send { to, message: message.into() });
        }
    }

    /// The sequencer gives a session nothing any more. What it gave is below.
    pub(super) fn closed(&mut self, session: SessionId, below: Position) {
        let Some(resuming) = &mut self.earlier.resuming else { return };
        if !matches!(self.earlier.stage, Stage::Close) || resuming.closing() != Some(session) {
            return;
        }
        let (range, batch) = ((self.earlier.lowest, below), self.config.options.limits.batch_records);
        self.earlier.stage = Stage::Search(Search::new(session, resuming.left(), range, batch), None);
        resuming.hurry();
        self.work_is_due = true;
    }

    /// A replica says where records of a session are.
    pub(super) fn sought(
        &mut self,
        now: Time,
        replica: (NodeId, ShardId),
        session: SessionId,
        span: (Position, Position),
        (trim, found): (Position, &[(Position, RecordId)]),
        out: &mut Out,
    ) {
        let (Some(view), Stage::Search(search, _)) = (self.log.view(), &mut self.earlier.stage) else {
            return;
        };
        if search.session() != session {
            return;
        }
        let progress = search.answered(view, replica, span, trim, found);
        if progress != Progress::None
            && let Some(resuming) = &mut self.earlier.resuming
        {
            // A question that is asked now is asked again when it is late itself.
            resuming.was_heard(now);
        }
        self.search_goes_on(progress, out);
    }

    fn search_goes_on(&mut self, progress: Progress, out: &mut Out) {
        match (progress, &self.earlier.stage) {
            (Progress::Ask(questions), Stage::Search(search, _)) => {
                self.seek(search.session(), questions, out);
            }
            (Progress::Done, _) => self.search_ends(out),
            (Progress::Lost, _) => self.resume_failed(out),
            (Progress::None | Progress::Ask(_), _) => {}
        }
    }

    /// Everything of a session that is in the log is found.
    fn search_ends(&mut self, out: &mut Out) {
        let Some(resuming) = &mut self.earlier.resuming else { return };
        let (stage, successor) = (std::mem::take(&mut self.earlier.stage), resuming.successor());
        let (Stage::Search(search, known), Some(successor)) = (stage, successor) else { return };
        let (session, below) = (search.session(), search.below());
        let Some(findings) = search.findings(known.map(|ended| ended.end)) else {
            return self.resume_failed(out);
        };
        resuming.hurry();
        let named = |(number, position)| (RecordId { session, number }, position);
        self.earlier.places.extend(findings.places.into_iter().map(named));
        self.earlier.searched.push(session);
        if known.is_none() {
            let ended = EndedSession { session, end: findings.end, below, successor };
            self.earlier.stage = Stage::End(ended, findings.since);
            if self.config.options.deviates(Deviation::EndUnregistered) {
                self.earlier.ended.sessions.push(ended);
                self.earlier.stage = Stage::Begin;
            }
        }
        self.work_is_due = true;
    }

    /// The register says which sessions have ended.
    pub(super) fn register_says(&mut self, entry: &LogEntry, out: &mut Out) {
        let (Some(resuming), Stage::End(ended, since)) = (&mut self.earlier.resuming, &self.earlier.stage)
        else {
            return;
        };
        if entry.ended.of(ended.session).is_some() {
            self.earlier.ended.clone_from(&entry.ended);
            self.earlier.stage = Stage::Begin;
            resuming.hurry();
            self.work_is_due = true;
        } else if *since < entry.ended.floor {
            // It may have ended before, and been forgotten.
            self.resume_failed(out);
        }
    }

    /// The session is not known any more, or nobody can tell what became of some append. If no append is told so, the next
    /// one is.
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

    /// The sessions of earlier runs have ended: this one appends.
    fn go_on_after(&mut self, out: &mut Out) {
        let Some(resuming) = &self.earlier.resuming else { return };
        let (Some(successor), Some(names)) = (resuming.successor(), resuming.names()) else {
            return self.resume_failed(out);
        };
        self.earlier.past = Past::new(names, resuming.pace());
        (self.earlier.resuming, self.session, self.is_opening) = (None, Some(successor), false);
        for pending in std::mem::take(&mut self.pending) {
            if self.earlier.past.claim(pending.token, true) {
                continue;
            }
            match self.objection(&pending.record, pending.terms) {
                Some(failure) => out.push(reply(pending.token, Reply::Failed(failure))),
                None => self.pending.push_back(pending),
            }
        }
        self.work_is_due = true;
    }

    /// Answers what earlier runs appended, and this one appended again.
    fn answer_past(&mut self, now: Time, out: &mut Out) {
        let Earlier { past, places, .. } = &mut self.earlier;
        for id in past.questions(now, self.log.view_number()).ids {
            let what = places.remove(&id).ok_or(Failure::NotAppended(id));
            past.settled(id, what, out);
        }
    }
}
