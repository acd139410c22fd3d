//! A replica's part in keeping a log to its limits: it reports how far it is, and trims as the
//! leader's node asks.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::retention::{Extent, StoreUse};
use seriatim_model::storage::StorageCommand;
use seriatim_model::wire::wire_struct;
use seriatim_model::{Address, Position, Ticket, Time, TimeIndex, ViewNumber, limits};

use super::core::{Core, send};
use super::message::Message;
use crate::mutation::Mutation;
use crate::roles::RoleEffect;

/// For how many questions at once a replica measures its store; and how many clients may wait for
/// the answer. A client whose question finds no room asks again.
const MOST_MEASURED: usize = 64;

/// The same while trimmed segments are being deleted: then the answer changes from moment to
/// moment, and somebody may wait for that.
const MEASURED_FOR_IF_GOING: Duration = Duration::from_millis(50);

/// For how long the replica answers clients with its last measurement of the store: however many
/// ask however often, it measures the store for them no oftener than this.
const MEASURED_FOR: Duration = Duration::from_secs(1);

/// How far is a replica, and what does it keep?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Names the question.
    pub request: u64,
    /// Whether all that it knows of times is wanted.
    pub times: bool,
    /// Whether it matters what the store takes on its disk.
    pub usage: bool,
}

wire_struct! { Survey { request, times, usage } }

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// The question answered.
    pub request: u64,
    /// The view that it takes part in. Of a retired shard, the last one that the shard was in, if
    /// the replica has all that this left or lacks only what the ordering layer owes it. None if it
    /// takes part in none at present.
    pub view: ViewNumber,
    /// The stable bound that it knows. Outside of views, no more than what it has in one piece.
    pub stable: Position,
    /// The trim point.
    pub trim: Position,
    /// Tells its marks above the trim point from others.
    pub digest: u64,
    /// The latest time of the log that it knows.
    pub time_ms: u64,
    /// Which position was reached when, if that was asked.
    pub times: Option<TimeIndex>,
    /// The room that its store takes, if that was asked. A client is told one extent: how much of
    /// it stays, and is not trimmed and about to be deleted.
    pub usage: Option<StoreUse>,
}

wire_struct! { Surveyed { request, view, stable as end, trim, digest, time_ms as number, times, usage } }

/// An order to a log's replicas, so that it keeps to its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retain {
    /// Names the question. It is answered as a trim is.
    pub request: u64,
    /// The view.
    pub view: ViewNumber,
    /// The first position to keep.
    pub trim: Position,
    /// Marks to be added, and the log's time.
    pub times: TimeIndex,
    /// Whether these are all marks that there are.
    pub whole: bool,
    /// Where segments end, in bytes, if the log has a limit of bytes.
    pub segment_bytes: Option<u64>,
}

wire_struct! { Retain { request, view, trim as end, times, whole, segment_bytes } }

/// How much later than the store knows a log's time may be, in milliseconds, before the replica
/// writes it down although there is no new mark: so much younger records seem to be after all nodes
/// were restarted.
const RECORD_TIME_EVERY_MS: u64 = 60_000;

/// Which position was reached when, as a replica knows it, and the addresses that wait to hear what
/// it keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Surveys {
    times: TimeIndex,
    /// The latest time that the store has.
    recorded_ms: u64,
    measuring: BTreeMap<Ticket, (Address, Survey)>,
    last: Ticket,
    clients: Clients,
    /// Where segments end, as the store has it.
    segment_bytes: Option<u64>,
}

/// Clients that want to know what the store takes: they share one look at it.
#[derive(Clone, Debug, Default)]
struct Clients {
    waiting: BTreeMap<Address, Survey>,
    /// The look that is under way for them.
    measuring: Option<Ticket>,
    /// The result of the last one, and until when that is the answer.
    found: Option<(InAll, Time)>,
}

/// The bytes of a store, in all.
#[derive(Clone, Copy, Debug)]
struct InAll {
    bytes: u64,
    /// How many of them are trimmed, and going to be deleted.
    going: u64,
}

impl InAll {
    /// The same, as told to a client: not which positions keep it, which is long. Its one extent is
    /// what stays.
    fn told(self) -> StoreUse {
        let stays =
            Extent { end: Position(limits::MAX_NUMBER), bytes: self.bytes.saturating_sub(self.going) };
        StoreUse { bytes: self.bytes, extents: vec![stays] }
    }
}

impl Surveys {
    /// After a restart. Marks above what is known to be final may be of positions that were given
    /// up.
    pub(super) fn recover(mut times: TimeIndex, stable: Position) -> Self {
        times.forget_above(stable);
        Self { recorded_ms: times.time_ms(), times, ..Self::default() }
    }
}

/// The view that a replica speaks for, and below which position it has what it knows to be stable.
fn standing(core: &Core) -> (ViewNumber, Position) {
    let speaks = core.is_open() || core.kept().is_some() && core.missing.is_none();
    let view = if speaks { core.view_number() } else { ViewNumber::NONE };
    let lacks = core.missing.filter(|range| !core.is_open() && !range.is_empty());
    (view, lacks.map_or(core.stable, |range| core.stable.min(range.from)))
}

impl Core {
    /// Which position was reached when, as far as it knows.
    pub(super) fn times(&self) -> &TimeIndex {
        &self.surveys.times
    }

    pub(super) fn surveyed(&mut self, now: Time, from: Address, survey: Survey, out: &mut Vec<RoleEffect>) {
        if !survey.usage {
            return tell_survey(self, from, survey, None, out);
        }
        if matches!(from, Address::Client(..)) {
            return surveyed_by_client(self, now, from, survey, out);
        }
        if self.surveys.measuring.len() < MOST_MEASURED {
            let ticket = self.measure(out);
            self.surveys.measuring.insert(ticket, (from, survey));
        }
    }

    pub(super) fn measure(&mut self, out: &mut Vec<RoleEffect>) -> Ticket {
        self.surveys.last.0 += 1;
        let ticket = self.surveys.last;
        out.push(RoleEffect::Measure { ticket });
        ticket
    }

    /// A controller asks this replica to hold everything that a member of this view should. Tells
    /// the controller if it does.
    pub(super) fn asked_whether_whole(&mut self, from: Address, view: ViewNumber, out: &mut Vec<RoleEffect>) {
        if !self.is_open() || view != self.view_number() {
            return;
        }
        self.catch_up.copy_all();
        if self.missing.is_none() {
            send(from, Message::Whole { view }, out);
        }
    }

    /// Keeps to the log's limits, as the node that applies them says; as part of no view, or of
    /// another, it does nothing.
    pub(super) fn retain(&mut self, from: Address, retain: Retain, out: &mut Vec<RoleEffect>) {
        let Retain { request, view, trim, mut times, whole, segment_bytes } = retain;
        if !self.is_open() || view != self.view_number() {
            return;
        }
        let is_trimmed = trim > self.trim;
        if self.options.mutates(Mutation::RetainedUnstable) {
            self.trim_below(trim, out);
        } else if trim > Position::ZERO {
            self.trim(from, request, trim, out);
        }
        // The controller has heard from every replica what is final.
        times.forget_above(self.stable);
        let surveys = &mut self.surveys;
        // A segment that is trimmed to its end is left then.
        let is_news = whole || is_trimmed || !times.marks().is_empty();
        if whole {
            let time_ms = surveys.times.time_ms();
            surveys.times = times.clone();
            surveys.times.reaches(time_ms);
        } else {
            surveys.times.merge(&times);
        }
        let ends_elsewhere = surveys.segment_bytes != segment_bytes;
        if self.options.mutates(Mutation::MarksForgotten) {
            surveys.times = TimeIndex::default();
        } else if is_news || ends_elsewhere || times.time_ms() >= surveys.recorded_ms + RECORD_TIME_EVERY_MS {
            (surveys.recorded_ms, surveys.segment_bytes) = (times.time_ms(), segment_bytes);
            self.gate.store(StorageCommand::Mark { times, whole, segment_bytes }, out);
        }
    }

    /// Positions below are gone: so are marks that only tell of them, and what the store took is
    /// not true any more.
    pub(super) fn surveys_trimmed(&mut self) {
        self.surveys.times.forget_below(self.trim);
        self.surveys.clients.found = None;
    }
}

fn surveyed_by_client(core: &mut Core, now: Time, from: Address, survey: Survey, out: &mut Vec<RoleEffect>) {
    let clients = &mut core.surveys.clients;
    if let Some((found, _)) = clients.found.filter(|(_, until)| now < *until) {
        return tell_survey(core, from, survey, Some(found.told()), out);
    }
    if clients.waiting.len() < MOST_MEASURED || clients.waiting.contains_key(&from) {
        clients.waiting.insert(from, survey);
    }
    if clients.measuring.is_none() {
        core.surveys.clients.measuring = Some(core.measure(out));
    }
}

/// The store says what it takes, as it was asked with this ticket, and how many bytes of that are
/// about to be deleted.
pub(super) fn measured(
    core: &mut Core,
    now: Time,
    ticket: Ticket,
    (usage, going): (StoreUse, u64),
    out: &mut Vec<RoleEffect>,
) {
    let clients = &mut core.surveys.clients;
    if clients.measuring == Some(ticket) {
        let found = InAll { bytes: usage.bytes, going };
        let until = now + if going > 0 { MEASURED_FOR_IF_GOING } else { MEASURED_FOR };
        (clients.measuring, clients.found) = (None, Some((found, until)));
        for (client, survey) in std::mem::take(&mut clients.waiting) {
            tell_survey(core, client, survey, Some(found.told()), out);
        }
    } else if let Some((from, survey)) = core.surveys.measuring.remove(&ticket) {
        tell_survey(core, from, survey, Some(usage), out);
    }
}

fn tell_survey(
    core: &Core,
    from: Address,
    Survey { request, times, .. }: Survey,
    usage: Option<StoreUse>,
    out: &mut Vec<RoleEffect>,
) {
    let ((view, stable), trim, known) = (standing(core), core.trim, &core.surveys.times);
    let (digest, time_ms) = (known.digest_above(trim), known.time_ms());
    let times = times.then(|| known.clone());
    let answer = Surveyed { request, view, stable, trim, digest, time_ms, times, usage };
    send(from, Message::Surveyed(answer), out);
}
