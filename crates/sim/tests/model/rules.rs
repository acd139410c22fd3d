//! Rules for every state, as in `Erwin.tla`.
//!
//! The model seals and flushes a copy of a replica to learn what a view change would recover from
//! it. A view change may recover from any single replica of the registered view at any time: each
//! of them must have everything that must survive.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use seriatim_model::{
    Address, ConnectionId, Effect, Endpoint, Input, Machine, Member, NodeId, Position, RecordId, Time, View,
    ViewHistory, ViewNumber,
};
use seriatim_protocol::erwin::Sequencer;
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::shard::Replica;
use seriatim_protocol::{Message, Mutation, control, shard};
use stateright::{Model, Property};

use crate::cluster::{State, Views, record};
use crate::place::{Place, Placed, Store};

/// Properties, one bit of [`State::broken`] each.
pub(crate) fn properties<M: Model<State = State>>() -> Vec<Property<M>> {
    vec![
        Property::always(DURABLE, holds::<M, LOST>),
        Property::always(STABLE_FIXED, holds::<M, CHANGED>),
        Property::always(NO_HOLE, holds::<M, EMPTY>),
        Property::always(NO_TWICE, holds::<M, TWICE>),
        Property::always(READS_FINAL, holds::<M, UNSTABLE>),
        Property::always(NO_AMNESIA, holds::<M, AMNESIA>),
        Property::always(TAIL_ABOVE, holds::<M, TAIL>),
        Property::always(REAL_TIME, holds::<M, REORDERED>),
        Property::always(ASSERTIONS, holds::<M, ASSERTION>),
        Property::always(DEAF, holds::<M, HEARD>),
        Property::always(ANEW, holds::<M, KEPT>),
    ]
}

fn holds<M, const RULE: u16>(_: &M, state: &State) -> bool {
    state.broken & RULE == 0
}

pub(crate) const DURABLE: &str = "an acknowledged record is never lost";
pub(crate) const STABLE_FIXED: &str = "a stable position never changes its record";
pub(crate) const NO_HOLE: &str = "no position below an ordered bound is empty";
pub(crate) const NO_TWICE: &str = "no record is at two valid positions";
pub(crate) const READS_FINAL: &str = "no read reaches what is not final";
pub(crate) const NO_AMNESIA: &str = "nobody takes part in a view that does not name its incarnation";
pub(crate) const TAIL_ABOVE: &str = "the tail is above every acknowledged record";
pub(crate) const REAL_TIME: &str = "a later append comes after what was acknowledged before it";
const ASSERTIONS: &str = "no machine finds an assertion broken";
pub(crate) const ANEW: &str = "who starts a view keeps nothing of its own from before";
pub(crate) const DEAF: &str = "who obeyed a claim is deaf to the views before it";

const LOST: u16 = 1;
const CHANGED: u16 = 2;
const TWICE: u16 = 4;
const UNSTABLE: u16 = 8;
const AMNESIA: u16 = 16;
const TAIL: u16 = 32;
const REORDERED: u16 = 64;
pub(crate) const ASSERTION: u16 = 128;
const EMPTY: u16 = 256;
pub(crate) const HEARD: u16 = 512;
pub(crate) const KEPT: u16 = 1024;

/// A claim above all others, for trial view changes.
const PROBE: ViewNumber = ViewNumber(1_000_000);

/// Knowledge of an observer that sees everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ghost {
    /// Records acknowledged before each client began.
    began: BTreeMap<u64, BTreeSet<RecordId>>,
    acknowledged: BTreeSet<RecordId>,
    done: BTreeSet<u64>,
    /// Record at each position when it became stable.
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

    /// Notes that every member of a view acknowledged a record; its client may not know.
    pub(crate) fn acknowledge(&mut self, id: RecordId) {
        self.acknowledged.insert(id);
    }

    pub(crate) fn is_acknowledged(&self, id: RecordId) -> bool {
        self.acknowledged.contains(&id)
    }

    pub(crate) fn answered(&mut self, client: u64, tail: Position) {
        self.tails.insert(client, tail);
        self.done.insert(client);
    }
}

/// A replica's `ordered`, and the entries that it would flush from there.
type Recoverable = Option<(Position, Vec<RecordId>)>;

thread_local! {
    static RECOVERABLE: RefCell<BTreeMap<(u64, ViewNumber), Recoverable>> =
        const { RefCell::new(BTreeMap::new()) };
    static READABLE: RefCell<BTreeMap<u64, Position>> = const { RefCell::new(BTreeMap::new()) };
}

/// Notes new stable records at their first announcement.
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

pub(crate) fn broken(state: &State, mutation: Option<Mutation>) -> u16 {
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
    let forgetful = mutation == Some(Mutation::AmnesiaAcknowledges);
    for (_, ordered, held) in recoveries(state, &view, forgetful) {
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

/// Replicas to start a view change from, as in [`Recoverable`].
fn recoveries(
    state: &State,
    view: &View,
    forgetful: bool,
) -> impl Iterator<Item = (Member, Position, Vec<RecordId>)> {
    state.sequencers().filter_map(move |(placed, replica)| {
        let counts = forgetful || view.names_sequencer(replica.member());
        let (ordered, held) = recoverable(placed, replica, view).filter(|_| counts)?;
        Some((replica.member(), ordered, held))
    })
}

/// The state that a view change would find, except for the view's number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prospect {
    members: Vec<Member>,
    leader: NodeId,
    first: Position,
    start: Position,
    recovered_from: Member,
    ordered: Position,
    log: Vec<Option<RecordId>>,
}

impl Prospect {
    pub(crate) fn renamed(mut self, name: impl Fn(RecordId) -> RecordId) -> Self {
        self.log = self.log.into_iter().map(|id| id.map(&name)).collect();
        self
    }
}

/// Promises that a view change must keep: acknowledged records, and final ones.
pub(crate) type Promises = (BTreeSet<RecordId>, Vec<Option<RecordId>>);

/// All prospects of a state, and its promises.
pub(crate) fn prospects(state: &State) -> (Vec<Prospect>, Promises) {
    let entry = state.entry();
    let ghost = &state.ghost;
    let promises = (ghost.acknowledged.clone(), ghost.final_records.clone());
    let Some(view) = &entry.view else { return (vec![], promises) };
    let found = recoveries(state, view, false).flat_map(|(recovered_from, ordered, held)| {
        state.shards().map(move |(_, _, store)| Prospect {
            members: view.sequencers.clone(),
            leader: view.leader,
            first: view.first,
            start: view.start,
            recovered_from,
            ordered,
            log: log_of(store, &entry.history, ordered, &held),
        })
    });
    (found.collect(), promises)
}

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

/// End of the positions that a reader gets.
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
