//! What must hold in every state, as `Erwin.tla` has it.
//!
//! What a view change would bring back from a replica is asked of the replica itself: a copy of it is
//! sealed and flushed. A view change may recover from any of those that the registered view names, alone,
//! at any time; so what must survive must survive in each of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use seriatim_model::{
    Address, ConnectionId, Effect, Endpoint, Input, Machine, NodeId, Position, RecordId, Time, View,
    ViewHistory, ViewNumber,
};
use seriatim_protocol::erwin::Sequencer;
use seriatim_protocol::shard::Replica;
use seriatim_protocol::{Deviation, Message, control, shard};

use crate::cluster::{Cluster, State, Views, record};
use crate::place::{Place, Placed, Store};

type Holds = fn(&Cluster, &State) -> bool;

/// A bit of [`State::broken`] for each.
pub(crate) const RULES: [(&str, Holds); 9] = [
    (DURABLE, |_, state| state.broken & LOST == 0),
    (STABLE_FIXED, |_, state| state.broken & CHANGED == 0),
    (NO_HOLE, |_, state| state.broken & EMPTY == 0),
    (NO_TWICE, |_, state| state.broken & TWICE == 0),
    (READS_FINAL, |_, state| state.broken & UNSTABLE == 0),
    (NO_AMNESIA, |_, state| state.broken & AMNESIA == 0),
    (TAIL_ABOVE, |_, state| state.broken & TAIL == 0),
    (REAL_TIME, |_, state| state.broken & REORDERED == 0),
    (ASSERTIONS, |_, state| state.broken & ASSERTION == 0),
];

pub(crate) const DURABLE: &str = "an acknowledged record is never lost";
pub(crate) const STABLE_FIXED: &str = "a stable position never changes its record";
pub(crate) const NO_HOLE: &str = "no position below an ordered bound is empty";
pub(crate) const NO_TWICE: &str = "no record is at two valid positions";
pub(crate) const READS_FINAL: &str = "no read reaches what is not final";
pub(crate) const NO_AMNESIA: &str = "nobody takes part in a view that does not name its life";
pub(crate) const TAIL_ABOVE: &str = "the tail is above every acknowledged record";
pub(crate) const REAL_TIME: &str = "a later append comes after what was acknowledged before it";
const ASSERTIONS: &str = "no machine finds an assertion broken";

const LOST: u16 = 1;
const CHANGED: u16 = 2;
const TWICE: u16 = 4;
const UNSTABLE: u16 = 8;
const AMNESIA: u16 = 16;
const TAIL: u16 = 32;
const REORDERED: u16 = 64;
pub(crate) const ASSERTION: u16 = 128;
const EMPTY: u16 = 256;

/// A claim above all others.
const PROBE: ViewNumber = ViewNumber(1_000_000);

/// What an observer knows who sees everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ghost {
    /// What had been acknowledged when a client began.
    began: BTreeMap<u64, BTreeSet<RecordId>>,
    acknowledged: BTreeSet<RecordId>,
    done: BTreeSet<u64>,
    /// What was at each position when it became stable.
    final_records: Vec<Option<RecordId>>,
    tails: BTreeMap<u64, Position>,
    pub(crate) views: Views,
}

impl Hash for Ghost {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.began, &self.acknowledged, &self.done, &self.final_records, &self.tails).hash(state);
        for view in self.views.values() {
            (view.number, view.first, &view.sequencers).hash(state);
        }
    }
}

impl Ghost {
    pub(crate) fn began(&self, client: u64) -> bool {
        self.began.contains_key(&client)
    }

    pub(crate) fn is_done(&self, client: u64) -> bool {
        self.done.contains(&client)
    }

    pub(crate) fn begin(&mut self, client: u64) {
        self.began.insert(client, self.acknowledged.clone());
    }

    pub(crate) fn appended(&mut self, client: u64, id: RecordId) {
        self.acknowledged.insert(id);
        self.done.insert(client);
    }

    pub(crate) fn answered(&mut self, client: u64, tail: Position) {
        self.tails.insert(client, tail);
        self.done.insert(client);
    }
}

/// What a view change would recover from a replica: its `ordered`, and what it would flush from there.
type Recoverable = Option<(Position, Vec<RecordId>)>;

thread_local! {
    static RECOVERABLE: RefCell<BTreeMap<(u64, ViewNumber), Recoverable>> =
        const { RefCell::new(BTreeMap::new()) };
    static READABLE: RefCell<BTreeMap<u64, Position>> = const { RefCell::new(BTreeMap::new()) };
}

/// Takes note of what became stable, when somebody is told so first.
pub(crate) fn note_stable(state: &mut State, stable: Position) {
    let known = state.ghost.final_records.len() as u64;
    if known >= stable.0 {
        return;
    }
    let history = &state.entry().history;
    let new = (known..stable.0)
        .map(|at| state.shards().find_map(|(_, _, store)| store.read(history, Position(at))));
    let new: Vec<_> = new.collect();
    Arc::make_mut(&mut state.ghost).final_records.extend(new);
}

/// Which rules do not hold.
pub(crate) fn broken(state: &State, deviation: Option<Deviation>) -> u16 {
    let Some(view) = state.entry().view.clone() else { return 0 };
    let history = &state.entry().history;
    let ghost = &state.ghost;
    let mut broken = 0;
    let mut object = |rule: u16, holds: bool| broken |= if holds { 0 } else { rule };
    for (_, replica) in state.sequencers() {
        let named = |view: &View| view.names_sequencer(replica.member());
        object(AMNESIA, !replica.is_open() || ghost.views.get(&replica.view_number()).is_some_and(named));
    }
    for (_, replica, store) in state.shards() {
        for (at, expected) in (0..replica.stable().0).zip(&ghost.final_records) {
            let found = store.read(&replica.memory().history, Position(at));
            object(CHANGED, found.is_some() && found == *expected);
        }
    }
    for (placed, replica) in state.sequencers() {
        let forgetful = deviation == Some(Deviation::AmnesiaAcknowledges);
        if !view.names_sequencer(replica.member()) && !forgetful {
            continue;
        }
        let Some((ordered, held)) = recoverable(placed, replica, &view) else { continue };
        for (placed, replica, store) in state.shards() {
            object(UNSTABLE, readable(placed, replica) <= ordered);
            if view.shards[0].replicas.iter().any(|member| Place::Shard(member.node) == placed.place) {
                let log = log_of(store, history, ordered, &held);
                judge_log(ghost, &log, &mut object);
            }
        }
    }
    broken
}

/// The order of all records, should a view change recover it now.
fn log_of(
    store: &Store,
    history: &ViewHistory,
    ordered: Position,
    held: &[RecordId],
) -> Vec<Option<RecordId>> {
    let bound = (0..ordered.0).map(|at| store.read(history, Position(at)));
    bound.chain(held.iter().copied().map(Some)).collect()
}

fn judge_log(ghost: &Ghost, log: &[Option<RecordId>], object: &mut impl FnMut(u16, bool)) {
    let place = |id: &RecordId| log.iter().position(|found| *found == Some(*id));
    object(LOST, ghost.acknowledged.iter().all(|id| place(id).is_some()));
    object(EMPTY, log.iter().all(Option::is_some));
    object(CHANGED, log.iter().zip(&ghost.final_records).all(|(found, expected)| found == expected));
    object(TWICE, log.iter().enumerate().all(|(at, id)| id.is_none() || !log[..at].contains(id)));
    for (client, before) in &ghost.began {
        if let Some(own) = place(&record(*client)) {
            object(REORDERED, before.iter().all(|id| place(id).is_some_and(|at| at < own)));
        }
        if let Some(tail) = ghost.tails.get(client) {
            object(TAIL, before.iter().filter_map(place).all(|at| (at as u64) < tail.0));
        }
    }
}

/// Seals and flushes a copy of the replica.
fn recoverable(placed: &Placed, replica: &Sequencer, view: &View) -> Recoverable {
    let key = (placed.digest, view.number);
    if let Some(known) = RECOVERABLE.with_borrow(|known| known.get(&key).cloned()) {
        return known;
    }
    let mut copy = replica.clone();
    let mut ask = |message: control::Message| {
        let from = Address::Node(NodeId(99), Endpoint::Controller);
        let mut out = vec![];
        copy.step(Time::ZERO, Input::Message { from, message: message.into() }, &mut out);
        out
    };
    let seal = control::Message::Seal { claim: PROBE, old: view.number, config: replica.config().clone() };
    let sealed = ask(seal).into_iter().find_map(|effect| match effect {
        Effect::Send {
            message: Message::Control(control::Message::Sealed { incarnation, state, .. }),
            ..
        } => state.map(|state| (incarnation, state)),
        _ => None,
    });
    let found = sealed.map(|(incarnation, state)| {
        let old = view.number;
        let flush = control::Message::Flush { claim: PROBE, old, incarnation, view: view.clone() };
        let mut held = vec![];
        for effect in ask(flush) {
            if let Effect::Send { message: Message::Shard(shard::Message::Bind { runs, .. }), .. } = effect {
                held.extend(runs.into_iter().flat_map(|run| run.records).map(|(id, _)| id));
            }
        }
        (state.ordered, held)
    });
    RECOVERABLE.with_borrow_mut(|known| known.insert(key, found.clone()));
    found
}

/// How far a reader is let.
fn readable(placed: &Placed, replica: &Replica) -> Position {
    if let Some(known) = READABLE.with_borrow(|known| known.get(&placed.digest).copied()) {
        return known;
    }
    let from = Address::Client(ConnectionId(99), 99);
    let read = shard::Message::Read {
        request: 1,
        from: Position::ZERO,
        end: Position(1000),
        max_records: 1000,
        wait_ms: 0,
    };
    let mut out = vec![];
    replica.clone().step(Time::ZERO, Input::Message { from, message: read.into() }, &mut out);
    let end = out.into_iter().find_map(|effect| match effect {
        Effect::Read { range, .. } => Some(range.end),
        _ => None,
    });
    let end = end.unwrap_or(Position::ZERO);
    READABLE.with_borrow_mut(|known| known.insert(placed.digest, end));
    end
}
