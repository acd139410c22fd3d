//! A replica's part in retention: it reports its progress, and trims when the leader's node asks.

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

/// Limit of waiting controllers, and of waiting clients. Others must ask again.
const MOST_MEASURED: usize = 64;

/// Like [`MEASURED_FOR`] while segments are being deleted: the result changes quickly, and a client
/// may wait for that.
const MEASURED_FOR_IF_GOING: Duration = Duration::from_millis(50);

/// How long clients receive the same measurement, which limits the rate of measurements.
const MEASURED_FOR: Duration = Duration::from_secs(1);

/// Asks for a replica's progress and storage use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Names the question.
    pub request: u64,
    /// Whether to include the marks, which are times of positions.
    pub times: bool,
    /// Whether to include disk use.
    pub usage: bool,
}

wire_struct! { Survey { request, times, usage } }

/// Answers [`Survey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// Names the question.
    pub request: u64,
    /// The replica's view; [`ViewNumber::NONE`] outside of views. For a retired shard: its last
    /// view, if the replica misses nothing but decisions of the ordering layer.
    pub view: ViewNumber,
    /// Stable bound. Outside of views, at most the end of the prefix without a gap.
    pub stable: Position,
    /// The trim point.
    pub trim: Position,
    /// Digest of the marks above the trim point.
    pub digest: u64,
    /// The latest known time of the log, in ms.
    pub time_ms: u64,
    /// The marks, if requested.
    pub times: Option<TimeIndex>,
    /// Disk use, if requested. A client receives one extent: the bytes that stay after pending
    /// deletions.
    pub usage: Option<StoreUse>,
}

wire_struct! { Surveyed { request, view, stable as end, trim, digest, time_ms as number, times, usage } }

/// Applies a log's retention limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retain {
    /// Names the request, which is answered like a trim.
    pub request: u64,
    /// The view of the sender.
    pub view: ViewNumber,
    /// The first position to keep.
    pub trim: Position,
    /// Marks to add, and the log's time.
    pub times: TimeIndex,
    /// Whether `times` contains all marks.
    pub whole: bool,
    /// Segment size in bytes, if the log has a limit of bytes.
    pub segment_bytes: Option<u64>,
}

wire_struct! { Retain { request, view, trim as end, times, whole, segment_bytes } }

/// Maximum lag, in milliseconds, of the stored time behind the log's time. After a restart of all
/// nodes, records may seem younger by up to this much.
const RECORD_TIME_EVERY_MS: u64 = 60_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Surveys {
    times: TimeIndex,
    recorded_ms: u64,
    measuring: BTreeMap<Ticket, (Address, Survey)>,
    last: Ticket,
    clients: Clients,
    segment_bytes: Option<u64>,
}

/// Clients share one measurement.
#[derive(Clone, Debug, Default)]
struct Clients {
    waiting: BTreeMap<Address, Survey>,
    measuring: Option<Ticket>,
    found: Option<(InAll, Time)>,
}

#[derive(Clone, Copy, Debug)]
struct InAll {
    bytes: u64,
    going: u64,
}

impl InAll {
    /// One extent with the remaining bytes, since the full list is long.
    fn told(self) -> StoreUse {
        let stays =
            Extent { end: Position(limits::MAX_NUMBER), bytes: self.bytes.saturating_sub(self.going) };
        StoreUse { bytes: self.bytes, extents: vec![stays] }
    }
}

impl Surveys {
    /// Drops marks above the stable bound: an operator may have given up their positions.
    pub(super) fn recover(mut times: TimeIndex, stable: Position) -> Self {
        times.forget_above(stable);
        Self { recorded_ms: times.time_ms(), times, ..Self::default() }
    }
}

/// The replica's view, and the end of its final prefix.
fn standing(core: &Core) -> (ViewNumber, Position) {
    let speaks = core.is_open() || core.kept().is_some() && core.missing.is_none();
    let view = if speaks { core.view_number() } else { ViewNumber::NONE };
    let lacks = core.missing.filter(|range| !core.is_open() && !range.is_empty());
    (view, lacks.map_or(core.stable, |range| core.stable.min(range.from)))
}

impl Core {
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

    pub(super) fn asked_whether_whole(&mut self, from: Address, view: ViewNumber, out: &mut Vec<RoleEffect>) {
        if !self.is_open() || view != self.view_number() {
            return;
        }
        self.catch_up.copy_all();
        if self.missing.is_none() {
            send(from, Message::Whole { view }, out);
        }
    }

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
        // The stable bound here may be lower than the controller's.
        times.forget_above(self.stable);
        let surveys = &mut self.surveys;
        // A trim may complete a segment for deletion.
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
