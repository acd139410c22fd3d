//! Targets of players: each stores its bound and its effects in one transaction, and sometimes
//! fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use seriatim_delivery::player::{ApplyError, AttachError, Batch, Input, Stream, TargetIndex, Term};
use seriatim_model::{LogId, Position, Time};
use seriatim_protocol::Mutation;

use crate::history::Moment;
use crate::playing::{Database, Played, PlayersPlan, Transaction};
use crate::random::Random;

/// Most older copies of a target.
const COPIES: usize = 4;

/// A session: the client number of the player's process, and the term.
pub(super) type Session = (u32, Term);

/// A request of a player.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Attach { epoch: u64, adopts: Option<Position> },
    Apply { epoch: u64, batch: Arc<Batch> },
    Detach,
}

/// A request that a target handles.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) session: Session,
    request: Request,
    /// The target's run at the time of the request.
    run: u64,
    pub(super) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    None,
    KilledBefore,
    KilledWithin,
    KilledAfter,
    /// The connection breaks, and the target handles the request later.
    Late,
    /// The target handles the request, and the connection breaks.
    AnswerLost,
    /// The connection is broken.
    Orphaned,
}

impl Call {
    /// Whether it is a batch over a connection that is not broken.
    pub(super) fn is_batch_in_time(&self) -> bool {
        matches!(self.request, Request::Apply { .. }) && self.fault != Fault::Orphaned
    }
}

/// The consequences of a request: an answer, and a request that the target handles later.
#[derive(Debug, Default)]
pub(super) struct Handled {
    pub(super) answer: Option<Input>,
    pub(super) later: Option<Call>,
}

#[derive(Debug, Default)]
struct Channel {
    /// When the target has handled all requests of the session so far.
    free_at: Time,
    /// When the last answer arrives.
    answered_at: Time,
    is_broken: bool,
}

/// One target.
#[derive(Debug)]
pub(super) struct Target {
    index: TargetIndex,
    /// Its stored state, and its history.
    pub(super) played: Played,
    copies: Vec<Database>,
    /// Whether no process has attached since it was restored.
    is_restored: bool,
    /// When it starts. None: it is up.
    pub(super) starts_at: Option<Time>,
    run: u64,
    channels: BTreeMap<Session, Channel>,
    /// Refused entries that it accepts after a repair.
    repaired: BTreeSet<Position>,
    /// When its last fault ended.
    pub(super) well_since: Time,
    pub(super) is_slow: bool,
    mutation: Option<Mutation>,
}

impl Target {
    pub(super) fn new(index: usize, played: Played, is_slow: bool, mutation: Option<Mutation>) -> Self {
        Self {
            index: TargetIndex(index),
            played,
            copies: vec![],
            is_restored: false,
            starts_at: None,
            run: 0,
            channels: BTreeMap::new(),
            repaired: BTreeSet::new(),
            well_since: Time::ZERO,
            is_slow,
            mutation,
        }
    }

    fn mutates(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether it is up and not slow.
    pub(super) fn is_well(&self) -> bool {
        self.starts_at.is_none() && !self.is_slow
    }

    /// Takes a request. Returns when the target has handled it. With a plan, faults may strike.
    pub(super) fn takes(
        &mut self,
        now: Time,
        (session, request): (Session, Request),
        plan: Option<&PlayersPlan>,
        random: &mut Random,
    ) -> (Time, Call) {
        let fault = plan.map_or(Fault::None, |plan| Self::fault(plan, random));
        let is_adoption = matches!(request, Request::Attach { adopts: Some(_), .. });
        // The rare call needs its rare fault more often.
        let is_late = is_adoption && plan.is_some() && Random::new(now.0).percent(40);
        let fault = if is_late { Fault::Late } else { fault };
        let takes = match plan {
            Some(_) if self.is_slow => random.millis(5, 40),
            Some(plan) if random.permille(plan.slow_permille) => {
                let most = plan.limits.apply_within * 2;
                self.well_since = self.well_since.max(now + most);
                random.micros(1000, most.as_micros() as u64)
            }
            _ => random.micros(50, 800),
        };
        let channel = self.channels.entry(session).or_default();
        channel.free_at = channel.free_at.max(now + random.micros(50, 1000)) + takes;
        (channel.free_at, Call { session, request, run: self.run, fault })
    }

    fn fault(plan: &PlayersPlan, random: &mut Random) -> Fault {
        if random.permille(plan.kill_permille) {
            random.pick(&[Fault::KilledBefore, Fault::KilledWithin, Fault::KilledAfter])
        } else if random.permille(plan.lost_permille) {
            random.pick(&[Fault::Late, Fault::AnswerLost])
        } else {
            Fault::None
        }
    }

    /// When an answer that is ready now arrives, after earlier answers of the session.
    pub(super) fn answers_at(&mut self, now: Time, session: Session, random: &mut Random) -> Time {
        let channel = self.channels.entry(session).or_default();
        channel.answered_at = channel.answered_at.max(now + random.micros(20, 1000));
        channel.answered_at
    }

    /// Handles a request.
    pub(super) fn handles(
        &mut self,
        (now, at): (Time, Moment),
        call: Call,
        plan: &PlayersPlan,
        random: &mut Random,
    ) -> Handled {
        let Call { session, request, run, fault } = call;
        if let Request::Detach = request {
            let (target, term) = (self.index, session.1);
            return Handled { answer: Some(Input::Detached { target, term }), later: None };
        }
        if fault == Fault::Orphaned {
            if run == self.run && self.starts_at.is_none() {
                self.serves(at, session, &request, plan);
            }
            return Handled::default();
        }
        if self.starts_at.is_some() || run != self.run {
            return self.fails(session, &request, "it is down", random.percent(80));
        }
        if self.channels.entry(session).or_default().is_broken {
            return Handled::default();
        }
        let orphan = |request| Call { session, request, run, fault: Fault::Orphaned };
        if let Request::Apply { batch, .. } = &request
            && self.mutates(Mutation::AckBeforeEffect)
            && fault == Fault::None
        {
            let answer = self.acknowledges(session, batch.upto);
            return Handled { answer: Some(answer), later: Some(orphan(request)) };
        }
        if fault != Fault::None {
            self.well_since = self.well_since.max(now);
        }
        match fault {
            Fault::KilledBefore => {}
            Fault::KilledWithin => self.stores_a_part(&request),
            Fault::Late => {
                let failed = self.fails(session, &request, "the connection broke", true);
                return Handled { later: Some(orphan(request)), ..failed };
            }
            Fault::None | Fault::KilledAfter | Fault::AnswerLost | Fault::Orphaned => {
                let answer = self.serves(at, session, &request, plan);
                if fault == Fault::None {
                    self.copy(random);
                    return Handled { answer: Some(answer), later: None };
                }
            }
        }
        if matches!(fault, Fault::KilledBefore | Fault::KilledWithin | Fault::KilledAfter) {
            self.dies(now, plan, random);
        }
        self.fails(session, &request, "the connection broke", random.percent(70))
    }

    /// What remains of an interrupted transaction: nothing, without a defect.
    fn stores_a_part(&mut self, request: &Request) {
        if let Request::Apply { batch, epoch } = request
            && self.mutates(Mutation::BoundBeforeEffect)
            && batch.after == self.played.database.bound
            && *epoch == self.played.database.epoch
        {
            self.played.database.bound = batch.upto;
        }
    }

    fn dies(&mut self, now: Time, plan: &PlayersPlan, random: &mut Random) {
        let most = random.pick(&[20, 300]);
        let lasting = random.millis(1, most);
        self.starts_at = Some(now + lasting);
        self.well_since = self.well_since.max(now + lasting);
        self.run += 1;
        if !self.copies.is_empty() && random.percent(plan.restore_percent) {
            self.restore(random);
        }
    }

    /// Replaces the database with an older copy, if there is one.
    pub(super) fn restore(&mut self, random: &mut Random) {
        if !self.copies.is_empty() {
            let kept = random.below(self.copies.len() as u64) as usize;
            self.copies.truncate(kept + 1);
            self.played.database = self.copies[kept].clone();
            self.is_restored = true;
        }
    }

    /// The last session of a process.
    pub(super) fn last_session(&self, process: u32) -> Option<Session> {
        self.channels.keys().rfind(|session| session.0 == process).copied()
    }

    /// The end of the process's session, if the target was restored since, and is up.
    pub(super) fn breaks_restored(&mut self, process: u32) -> Option<Input> {
        let is_noticed = self.is_restored && self.starts_at.is_none();
        let (session, channel) = self.channels.iter_mut().rfind(|(session, _)| session.0 == process)?;
        if !is_noticed || channel.is_broken {
            return None;
        }
        (self.is_restored, channel.is_broken) = (false, true);
        let error = ApplyError::Broken { reason: "the connection broke".into() };
        Some(Input::NotApplied { target: self.index, term: session.1, error })
    }

    /// Keeps an older copy of the database at times.
    fn copy(&mut self, random: &mut Random) {
        if random.percent(10) {
            if self.copies.len() == COPIES {
                self.copies.remove(random.below(COPIES as u64) as usize);
            }
            self.copies.push(self.played.database.clone());
        }
    }

    /// A session ends without an answer from the target. The player notices that, or waits.
    fn fails(&mut self, session: Session, request: &Request, reason: &str, is_noticed: bool) -> Handled {
        self.channels.entry(session).or_default().is_broken = true;
        let (target, term, reason) = (self.index, session.1, reason.to_string());
        let answer = match request {
            Request::Attach { .. } => {
                Input::Attached { target, term, outcome: Err(AttachError::Broken { reason }) }
            }
            _ => Input::NotApplied { target, term, error: ApplyError::Broken { reason } },
        };
        Handled { answer: is_noticed.then_some(answer), later: None }
    }

    /// Whether the target refuses the message at this position.
    fn refuses(&self, position: Position, plan: &PlayersPlan) -> bool {
        let seed = position.0 << 8 | self.index.0 as u64;
        !self.repaired.contains(&position) && Random::new(seed ^ 0x4EF5).permille(plan.refuse_permille)
    }

    /// Makes the target accept a message that it refused.
    pub(super) fn repair(&mut self, position: Position) {
        self.repaired.insert(position);
    }

    fn acknowledges(&mut self, session: Session, upto: Position) -> Input {
        let stored = self.played.database.bound;
        if stored < upto {
            self.played.untrue.push((upto, stored));
        }
        Input::Applied { target: self.index, term: session.1, upto }
    }

    fn serves(&mut self, at: Moment, session: Session, request: &Request, plan: &PlayersPlan) -> Input {
        let (target, term) = (self.index, session.1);
        match request {
            Request::Attach { epoch, adopts } => {
                let outcome = self.attaches(*epoch, *adopts);
                self.channels.entry(session).or_default().is_broken = outcome.is_err();
                Input::Attached { target, term, outcome }
            }
            Request::Apply { epoch, batch } => match self.applies(at, *epoch, batch, plan) {
                Ok(()) => self.acknowledges(session, batch.upto),
                Err(error) => {
                    self.channels.entry(session).or_default().is_broken = true;
                    Input::NotApplied { target, term, error }
                }
            },
            Request::Detach => unreachable!("the caller answers it"),
        }
    }

    fn attaches(&mut self, epoch: u64, adopts: Option<Position>) -> Result<Position, AttachError> {
        let database = &mut self.played.database;
        if database.epoch > epoch {
            return Err(AttachError::Fenced { epoch: database.epoch });
        }
        match adopts {
            None if database.is_foreign => {
                let stream = Stream { log: LogId(0), player: String::new() };
                return Err(AttachError::OtherStream { stream });
            }
            Some(bound) if database.is_foreign => {
                (database.is_foreign, database.bound) = (false, bound);
                self.played.skipped.push((Position::ZERO, bound));
            }
            _ => {}
        }
        database.epoch = epoch;
        self.is_restored = false;
        Ok(database.bound)
    }

    /// One transaction: the check of bound and epoch, the effects, and the new bound.
    fn applies(
        &mut self,
        at: Moment,
        epoch: u64,
        batch: &Batch,
        plan: &PlayersPlan,
    ) -> Result<(), ApplyError> {
        let (known, bound) = (self.played.database.epoch, self.played.database.bound);
        if self.played.database.is_foreign {
            return Err(ApplyError::Broken { reason: "it has a bound of another log".into() });
        }
        if epoch < known && !self.mutates(Mutation::OldEpochServed) {
            return Err(ApplyError::Fenced { epoch: known });
        }
        if batch.after != bound && !self.mutates(Mutation::AfterUnchecked) {
            return Err(ApplyError::Moved { applied: bound });
        }
        self.played.transactions.push(Transaction { at, epoch, known });
        for message in &batch.messages {
            if self.refuses(message.position, plan) {
                self.played.database.bound = message.position;
                let reason = "it does not fit".into();
                return Err(ApplyError::Rejected { position: message.position, reason });
            }
            self.played.database.effects.push((message.position, message.parts.clone()));
        }
        self.played.database.bound = batch.upto;
        Ok(())
    }

    /// Ends its faults.
    pub(super) fn calm(&mut self) {
        (self.is_slow, self.starts_at) = (false, None);
    }
}

/// How long a request may wait at a broken connection.
pub(super) fn lateness(random: &mut Random) -> Duration {
    random.pick(&[Duration::from_millis(1), Duration::from_millis(30), Duration::from_millis(150)])
}
