//! The scene of a run: plan, time, scheduled events, randomness and records.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;

use bytes::Bytes;
use seriatim_model::{LogId, NodeId, RetentionChange, Time, View, ViewNumber};

use seriatim_protocol::control::LogEntry;

use super::faults::Mend;
use super::limits::BEGAN_MS;
use super::players::Play;
use crate::coverage::Coverage;
use crate::history::History;
use crate::network::{Connection, Party};
use crate::plan::{Clocks, Departure, Fault, PinChange, Plan, Reshape};
use crate::random::Random;
use crate::trace::Trace;

/// Most events of a run without clients' own wakeups: more are a storm of messages.
const MOST_EVENTS: u64 = 1_000_000;
/// Most events in total.
const MOST_EVENTS_AND_WAKES: u64 = 5_000_000;

#[derive(Debug)]
pub(super) enum Happening {
    Arrive(Flight),
    Lost { connection: Connection, at: Party, other: Party, incarnation: u64 },
    NodeWakes(NodeId),
    NodeBeats(NodeId),
    ClientWakes(u32),
    ClientReads(u32),
    NodeStalls(NodeId),
    ClientStalls(u32),
    ClientLosesAll(u32),
    LoadEnds,
    Written(NodeId, u64),
    Synced(NodeId, u64),
    NodeStarts(NodeId, u64),
    ClientStarts(u32),
    Strike(Fault),
    Mend(Mend),
    Reshape(Reshape),
    SetLimits(RetentionChange),
    ChangePins(PinChange),
    Departs(Departure),
    DeparturesGoOn,
    OperatorLooks,
    LogComes(u64),
    LogGoes(u64),
    Play(Play),
}

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) connection: Connection,
    pub(super) from: Party,
    pub(super) to: Party,
    pub(super) frame: Bytes,
    /// Whether it arrives although its connection broke.
    pub(super) straggles: bool,
}

#[derive(Debug)]
struct Scheduled {
    at: Time,
    sequence: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Everything of a run that is not simulated itself.
#[derive(Debug)]
pub struct Scene {
    pub(super) plan: Plan,
    pub(super) now: Time,
    sequence: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    pub(super) random: Random,
    pub(super) log: LogId,
    pub(super) second: Option<LogId>,
    /// First register entry of the tested log.
    pub(super) first_entry: Option<LogEntry>,
    pub(super) began: Time,
    /// Whether a problem makes it pointless to continue.
    pub(super) is_over: bool,
    /// History for the checkers.
    pub history: History,
    /// Coverage of the run.
    pub coverage: Coverage,
    /// Trace of the events.
    pub trace: Trace,
}

impl Scene {
    pub(super) fn new(plan: Plan, random: Random, readable: bool) -> Self {
        let mut history = History::new(plan.config.clone());
        history.keyed = plan.workload.keyed;
        history.unordered = plan.workload.unordered;
        history.clocks_behind_ms = plan.clocks.as_ref().map_or(0, Clocks::most_behind_ms);
        Self {
            plan,
            now: Time::ZERO,
            sequence: 0,
            queue: BinaryHeap::new(),
            random,
            log: LogId(0),
            second: None,
            first_entry: None,
            began: Time::ZERO,
            is_over: false,
            history,
            coverage: Coverage { runs: 1, ..Coverage::default() },
            trace: Trace::new(readable),
        }
    }

    pub(super) fn schedule(&mut self, at: Time, what: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse(Scheduled { at: at.max(self.now), sequence: self.sequence, what }));
    }

    /// Takes the next event up to `end`, and advances the time to it.
    pub(super) fn next_until(&mut self, end: Time) -> Option<Happening> {
        self.queue.peek().filter(|Reverse(next)| next.at <= end)?;
        let Reverse(Scheduled { at, what, .. }) = self.queue.pop()?;
        self.now = at;
        self.history.now = at;
        Some(what)
    }

    /// Counts an event. Returns whether the events are a storm.
    pub(super) fn count(&mut self, what: &Happening) -> bool {
        self.coverage.events += 1;
        self.coverage.wakes += u64::from(matches!(what, Happening::ClientWakes(_)));
        let of_protocols = self.coverage.events - self.coverage.wakes;
        of_protocols > MOST_EVENTS || self.coverage.events > MOST_EVENTS_AND_WAKES
    }

    /// A number for a question to the register. It is new unless two questions are asked at the
    /// same event.
    pub(super) fn question(&self) -> u64 {
        self.sequence
    }

    pub(super) fn tell(&mut self, what: fmt::Arguments<'_>) {
        self.trace.line(self.now, what);
    }

    /// Notes a violation that needs no checker.
    pub(super) fn note_problem(&mut self, problem: String) {
        self.history.problems.push(problem);
    }

    pub(super) fn latest_view(&self) -> Option<&View> {
        self.history.views.values().next_back().map(|registered| &registered.view)
    }

    /// Time on a node's wall clock, in milliseconds since 1970. `None`: the plan has no wall
    /// clocks.
    pub(super) fn wall_ms(&self, node: NodeId) -> Option<u64> {
        let clocks = self.plan.clocks.as_ref()?;
        let right = BEGAN_MS + (self.now - Time::ZERO).as_millis() as u64;
        Some(right.saturating_add_signed(clocks.ahead_ms(node, self.now - self.began)))
    }

    pub(super) fn view_number(&self) -> ViewNumber {
        self.latest_view().map_or(ViewNumber::NONE, |view| view.number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim_model::Order;

    use super::*;
    use crate::profiles;

    #[test]
    fn events_happen_by_time_and_then_in_the_order_in_which_they_were_scheduled() {
        let plan = profiles::ANY.plan(1, Order::ALL[0]);
        let mut scene = Scene::new(plan, Random::new(1), false);
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        for (ms, number) in [(3, 1), (2, 2), (3, 3)] {
            scene.schedule(at(ms), Happening::LogComes(number));
        }
        assert!(scene.next_until(at(1)).is_none());
        let mut told = vec![];
        while let Some(Happening::LogComes(number)) = scene.next_until(at(5)) {
            told.push((scene.now, number));
            if number == 1 {
                scene.schedule(at(0), Happening::LogComes(4));
            }
        }
        assert_eq!(told, [(at(2), 2), (at(3), 1), (at(3), 3), (at(3), 4)], "time does not go back");
    }
}
