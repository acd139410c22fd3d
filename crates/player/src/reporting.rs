//! What a running player tells its operator and its control log.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use seriatim_client::{AppendOptions, Position, Record};
use seriatim_delivery::player::{Input, Message, Note, PlayerStatus, Stage, TargetIndex, TargetStatus};
use seriatim_model::limits;
use tokio::sync::mpsc;

use crate::control::{ControlLog, Event, Holder, StatusRecord, TargetRecord};
use crate::parts::Part;
use crate::runner::{Ending, Happening, PlayerError, Runner};

/// Outcomes of commands that wait for the control log.
const OUTCOMES: usize = 1024;
/// Least time between two records of a moving player, unless a target changes its state.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Least time between two records, in any case.
const STATUS_LEAST: Duration = Duration::from_millis(100);
/// Wait before a failed append to the control log or the dead-letter log is repeated.
const APPEND_AGAIN: Duration = Duration::from_secs(1);
/// How long an ending player waits for its last records.
const END_WITHIN: Duration = Duration::from_secs(3);

/// The player's records in the control log. A task of its own appends them in order, because the
/// control log may be away.
pub(crate) struct Recorder {
    events: mpsc::Sender<(Event, Position)>,
    outcomes: mpsc::Sender<Event>,
    writer: tokio::task::JoinHandle<()>,
    /// Whether a program asked for the status, or a target changed its state.
    is_asked: bool,
    recorded_at: Instant,
    stages: Vec<(Stage, Option<String>)>,
    moved: (Option<Position>, Vec<Position>),
    has_moved: bool,
    /// Positions of commands without outcome. The control log keeps them.
    open: BTreeSet<u64>,
    /// Everything below is read.
    read: Position,
    /// When the status is compared with the recorded one. None: nothing has happened since.
    compare_at: Option<Instant>,
    compared_at: Option<Instant>,
}

impl Recorder {
    pub(crate) fn start(control: ControlLog, first: Position, notices: mpsc::Sender<Happening>) -> Self {
        // A status that does not fit is dropped: a later one replaces it.
        let (events, statuses) = mpsc::channel(1);
        let (outcomes, done) = mpsc::channel(OUTCOMES);
        let writer = tokio::spawn(write(control, first, statuses, done, notices));
        Self {
            events,
            outcomes,
            writer,
            is_asked: true,
            recorded_at: Instant::now(),
            stages: vec![],
            moved: (None, vec![]),
            has_moved: false,
            open: BTreeSet::new(),
            read: Position::ZERO,
            compare_at: None,
            compared_at: None,
        }
    }

    /// Something happened: the status may have changed.
    pub(crate) fn touch(&mut self) {
        let next = self.compared_at.map_or_else(Instant::now, |at| at + STATUS_LEAST);
        self.compare_at = self.compare_at.or(Some(next));
    }

    /// Demands a record of the status.
    pub(crate) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Notes that everything up to this position is read.
    pub(crate) fn read(&mut self, position: Position) {
        self.read = position.next();
    }

    /// Notes a command without outcome.
    pub(crate) fn opened(&mut self, command: u64) {
        self.open.insert(command);
    }

    /// Records the outcome of a command.
    pub(crate) fn done(&mut self, command: u64, outcome: Result<(), String>) {
        self.open.remove(&command);
        // Without room, the control log is away for long. The next run finds the command again.
        let _ = self.outcomes.try_send(Event::Done { command, error: outcome.err() });
    }

    /// When to call [`Runner::record_status`]. None: nothing has changed.
    pub(crate) fn due(&self) -> Option<Instant> {
        [self.compare_at, self.record_at()].into_iter().flatten().min()
    }

    fn record_at(&self) -> Option<Instant> {
        let wait = match (self.is_asked, self.has_moved) {
            (true, _) => STATUS_LEAST,
            (false, true) => STATUS_EVERY,
            (false, false) => return None,
        };
        Some(self.recorded_at + wait)
    }

    fn notice(&mut self, status: &PlayerStatus) {
        let stages = status.targets.iter().map(|target| (target.stage, target.last_error.clone())).collect();
        if self.stages != stages {
            (self.stages, self.is_asked) = (stages, true);
        }
        let bounds = status.targets.iter().map(|target| target.bound).collect();
        if self.moved != (status.dispatched, bounds) {
            let bounds = status.targets.iter().map(|target| target.bound).collect();
            (self.moved, self.has_moved) = ((status.dispatched, bounds), true);
        }
    }
}

/// Appends outcomes and statuses, and repeats what fails.
async fn write(
    control: ControlLog,
    mut first: Position,
    mut statuses: mpsc::Receiver<(Event, Position)>,
    mut outcomes: mpsc::Receiver<Event>,
    notices: mpsc::Sender<Happening>,
) {
    loop {
        let (event, keep) = tokio::select! {
            biased;
            Some(event) = outcomes.recv() => (event, Position::ZERO),
            Some(status) = statuses.recv() => status,
            else => return,
        };
        let is_status = matches!(event, Event::Status(_));
        let position = loop {
            match control.append(&event).await {
                Ok(position) => break Some(position),
                Err(cause) => {
                    // A player that has ended needs no notice.
                    let _ = notices.send(Happening::Notice(cause.to_string())).await;
                    if is_status {
                        break None;
                    }
                    tokio::time::sleep(APPEND_AGAIN).await;
                }
            }
        };
        let Some(position) = position.filter(|_| is_status) else { continue };
        let upto = position.min(keep);
        match control.shorten(first, upto).await {
            Ok(is_shorter) => first = if is_shorter { upto } else { first },
            Err(cause) => {
                let _ = notices.send(Happening::Notice(cause.to_string())).await;
            }
        }
    }
}

impl Runner {
    /// Records the player's status if it is due.
    pub(crate) fn record_status(&mut self) {
        let now = Instant::now();
        if self.recorder.due().is_none_or(|at| at > now) {
            return;
        }
        (self.recorder.compare_at, self.recorder.compared_at) = (None, Some(now));
        let status = self.machine.status();
        self.recorder.notice(&status);
        if self.recorder.record_at().is_none_or(|at| at > now) {
            return;
        }
        let record = Event::Status(Box::new(self.status_record(&status)));
        let keep = self
            .recorder
            .open
            .first()
            .map_or(self.recorder.read, |first| self.recorder.read.min(Position(*first)));
        if self.recorder.events.try_send((record, keep)).is_ok() {
            (self.recorder.is_asked, self.recorder.has_moved) = (false, false);
        }
        self.recorder.recorded_at = now;
    }

    fn status_record(&self, status: &PlayerStatus) -> StatusRecord {
        let at_ms = wall_ms();
        StatusRecord {
            holder: Holder::own(),
            epoch: self.epoch,
            base: self.base,
            log: self.settings.log.clone(),
            since_ms: self.since_ms,
            at_ms,
            dispatched: status.dispatched.map(|position| position.0),
            tail: status.tail.0,
            memory: status.memory,
            targets: (status.targets.iter().zip(&self.at_least_once))
                .map(|(target, at_least_once)| TargetRecord {
                    at_least_once: *at_least_once,
                    ..target_record(target, status.tail, at_ms)
                })
                .collect(),
            unknown: status.unknown.iter().map(|(name, count, at)| (name.clone(), *count, at.0)).collect(),
            skipped: self.skipped.iter().copied().collect(),
            rules: self.rules.clone(),
            bounds: self.bounds.all(),
        }
    }

    /// Records the end, if this player still holds the stream.
    pub(crate) async fn close(self, outcome: &Result<Ending, PlayerError>) {
        let status = self.machine.status();
        let record = Event::Status(Box::new(self.status_record(&status)));
        let is_deposed = matches!(outcome, Err(PlayerError::Deposed { .. } | PlayerError::Fenced { .. }));
        let Recorder { events, outcomes, writer, .. } = self.recorder;
        if !is_deposed {
            // Without room, the control log is away, and the next player waits for silence.
            let _ = outcomes.try_send(record);
            let _ = outcomes.try_send(Event::Ended { epoch: self.epoch });
        }
        drop((events, outcomes));
        let _ = tokio::time::timeout(END_WITHIN, writer).await;
    }

    /// Appends a rejected message to the dead-letter log, and repeats that until it succeeds.
    pub(crate) fn dead_letter(&self, target: TargetIndex, message: Message, reason: String) {
        #[derive(Serialize)]
        struct DeadLetter<'a> {
            stream: String,
            target: &'a str,
            position: u64,
            reason: &'a str,
            parts: Vec<Part<'a>>,
        }
        let name =
            self.settings.dead_letter.clone().unwrap_or_else(|| format!("{}.dead", self.settings.name));
        let letter = DeadLetter {
            stream: format!("{}/{}", self.settings.log, self.settings.name),
            target: self.machine.id(target),
            position: message.position.0,
            reason: &reason,
            parts: message.parts.iter().map(|part| Part::of(part)).collect(),
        };
        let payload = serde_json::to_vec(&letter).expect("a dead letter has a JSON form");
        let (client, sender, position) = (self.client.clone(), self.sender.clone(), message.position);
        tokio::spawn(async move {
            let record = Record::from(payload);
            while let Err(cause) = append(&client, &name, &record).await {
                let notice = format!("the dead-letter log '{name}' takes no record: {cause}");
                let _ = sender.send(Happening::Notice(notice)).await;
                tokio::time::sleep(APPEND_AGAIN).await;
            }
            // A player that has ended needs no answer.
            let _ = sender.send(Happening::Machine(Input::DeadLettered { target, position })).await;
        });
    }

    /// The sentence for a note, and whether it is a problem. None: the note is routine.
    pub(crate) fn describe(&self, note: &Note) -> Option<(String, bool)> {
        let id = |target: &TargetIndex| self.machine.id(*target);
        let player = &self.settings.name;
        Some(match note {
            Note::Attached { target, bound } => {
                (format!("target {}: attached at {bound}", id(target)), false)
            }
            Note::Restored { target, from, to } => {
                let id = id(target);
                let text = format!(
                    "target {id}: its bound is {to} and was {from}: it was restored from an older state; \
                     the player continues from {to}"
                );
                (text, true)
            }
            Note::Down { target, reason } => (format!("target {}: {reason}", id(target)), true),
            Note::Stopped { target, why } => {
                let id = id(target);
                let text = format!("target {id} is stopped: {why}; see: seriatim player status {player}");
                (text, true)
            }
            Note::BeginsAbove { target, first, reason } => {
                (format!("target {}: begins at position {first}: {reason}", id(target)), false)
            }
            Note::Unknown { name, position } => {
                let text = format!(
                    "entries name the target '{name}', which is not configured, from position {position} on"
                );
                (text, true)
            }
            Note::StreamFailed { reason } => (reason.clone(), true),
            Note::Recovers { .. } | Note::CaughtUp { .. } => return None,
        })
    }
}

fn target_record(target: &TargetStatus, tail: Position, at_ms: u64) -> TargetRecord {
    TargetRecord {
        id: target.id.clone(),
        state: target.stage.to_string(),
        bound: target.bound.0,
        lag_entries: tail.since(target.bound),
        lag_ms: target.oldest_ms.map_or(0, |oldest| at_ms.saturating_sub(oldest)),
        queued: target.queued,
        sessions: target.sessions,
        rejected: target.rejected,
        at_least_once: false,
        last_error: target.last_error.clone(),
    }
}

async fn append(client: &seriatim_client::Client, name: &str, record: &Record) -> Result<(), String> {
    let log = match client.log(name).await {
        Err(seriatim_client::ControlError::NoSuchLog { .. }) => {
            let max_record_bytes = limits::MAX_RECORD_BYTES;
            let config = seriatim_client::LogConfig { max_record_bytes, ..Default::default() };
            let created = client.create(name, config).await;
            created.map_err(|cause| cause.to_string())?;
            client.log(name).await
        }
        log => log,
    };
    let log = log.map_err(|cause| cause.to_string())?;
    let appended = log.append(record.clone(), AppendOptions::default()).await;
    appended.map(|_| ()).map_err(|cause| cause.to_string())
}

pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
