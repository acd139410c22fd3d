//! All targets of a player, with their memory and their turns.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

use seriatim_model::Position;
use seriatim_protocol::Mutation;

use super::limits::PlayerLimits;
use super::machine::{StreamNumber, TargetIndex};
use super::queue::Item;
use super::target::{State, Target, Term, Turn};

/// What a change of the queues demands of the player.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The targets whose queues changed.
    pub(super) targets: BTreeSet<usize>,
    /// Recovery streams that lost their turn.
    pub(super) closed: Vec<StreamNumber>,
}

/// All targets. A change of queues goes through [`edit`](Self::edit).
#[derive(Clone, Debug)]
pub(super) struct Targets {
    all: Vec<Target>,
    /// Memory of all targets, in bytes.
    memory: usize,
    /// Orders the recoveries that wait for a stream.
    turns: u64,
    limits: PlayerLimits,
    mutation: Option<Mutation>,
}

impl Deref for Targets {
    type Target = [Target];

    fn deref(&self) -> &[Target] {
        &self.all
    }
}

impl DerefMut for Targets {
    fn deref_mut(&mut self) -> &mut [Target] {
        &mut self.all
    }
}

impl Targets {
    pub(super) fn new(all: Vec<Target>, limits: PlayerLimits, mutation: Option<Mutation>) -> Self {
        Self { all, memory: 0, turns: 0, limits, mutation }
    }

    fn mutates(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Whether this is the target's present session.
    pub(super) fn has_term(&self, index: usize, term: Term) -> bool {
        self.all.get(index).is_some_and(|target| target.term == term)
    }

    /// Whether a target waits for the main stream.
    pub(super) fn has_ready(&self) -> bool {
        self.all.iter().any(|target| target.state == State::Ready)
    }

    /// The stopped targets.
    pub(super) fn stopped(&self) -> Vec<TargetIndex> {
        let stopped = |(index, target): (usize, &Target)| {
            matches!(target.state, State::Stopped(_)).then_some(TargetIndex(index))
        };
        self.all.iter().enumerate().filter_map(stopped).collect()
    }

    /// The lowest and the highest bound of the ready targets that start together: those within
    /// `join` of the highest.
    pub(super) fn ready_bounds(&self, tail: Position) -> (Position, Position) {
        // A target that begins above the tail waits there.
        let ready = |target: &Target| (target.state == State::Ready).then_some(target.applied.min(tail));
        let bounds: Vec<Position> = self.all.iter().filter_map(ready).collect();
        let highest = bounds.iter().copied().max().expect("a target is ready");
        let near = |bound: &Position| highest.since(*bound) <= self.limits.join;
        let lowest = bounds.into_iter().filter(near).min().expect("the highest is near");
        (lowest, highest)
    }

    /// The number of the next turn.
    pub(super) fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Lets a recovery wait for another turn. Returns the stream that it loses.
    pub(super) fn yield_turn(&mut self, index: usize) -> Option<StreamNumber> {
        let since = self.next_turn();
        let recovery = self.all[index].recovery()?;
        match std::mem::replace(&mut recovery.turn, Turn::Waiting { since }) {
            Turn::Open { stream, .. } => Some(stream),
            _ => None,
        }
    }

    /// The recovery that waits longest and has room for records.
    pub(super) fn next_waiting(&self) -> Option<usize> {
        let limits = &self.limits;
        let waiting = self.all.iter().enumerate().filter_map(|(index, target)| match &target.state {
            State::Recovering(recovery) if target.catchup.is_half_free(limits) => match recovery.turn {
                Turn::Waiting { .. } if recovery.is_refused && !target.catchup.is_empty() => None,
                Turn::Waiting { since } => Some((since, index)),
                _ => None,
            },
            _ => None,
        });
        waiting.min().map(|(_, index)| index)
    }

    /// Changes a target, and accounts for its memory.
    pub(super) fn edit<R>(&mut self, index: usize, change: impl FnOnce(&mut Target) -> R) -> R {
        let target = &mut self.all[index];
        let before = target.memory();
        let result = change(target);
        self.memory = self.memory + target.memory() - before;
        result
    }

    /// Queues an item of the main stream, or notes that the target misses it. Adds the target and
    /// those whose queues make room to `changed`.
    pub(super) fn queue(&mut self, index: usize, item: Item, changed: &mut Changed) {
        let is_unbounded = self.mutates(Mutation::QueueUnbounded);
        let has_memory = is_unbounded || self.make_room(index, item.memory(), changed);
        changed.targets.insert(index);
        let forgets = self.mutates(Mutation::OverflowForgotten);
        let joins_late = self.mutates(Mutation::JoinTooLate);
        let jumps = self.mutates(Mutation::GapJumped) && matches!(item, Item::Gap { .. });
        let limits = self.limits;
        self.edit(index, |target| {
            if jumps {
                target.normal.clear();
            }
            let fits = is_unbounded || has_memory && target.normal.has_room(item.memory(), &limits);
            match &mut target.state {
                State::Normal if fits => target.push_normal(item),
                State::Normal => target.state = State::Full { missed: item.position() },
                State::Recovering(recovery) if recovery.missed.is_none() || joins_late => {
                    if fits {
                        target.push_normal(item);
                    } else {
                        recovery.missed = (!forgets).then_some(recovery.goal);
                        target.normal.clear();
                    }
                }
                _ => {}
            }
        });
    }

    /// Frees memory for an item of a target from the fullest queues. Returns whether it fits. Adds
    /// the targets of these queues to `changed`.
    pub(super) fn make_room(&mut self, index: usize, bytes: usize, changed: &mut Changed) -> bool {
        while self.memory + bytes > self.limits.memory {
            let sizes = self.all.iter().map(Target::queued_bytes).enumerate();
            let (fullest, size) = sizes.max_by_key(|(_, size)| *size).expect("a player has targets");
            if size == 0 {
                // Only batches in flight remain. One item of each target is within the bound.
                return self.all[index].queued() == 0;
            }
            changed.closed.extend(self.evict(fullest));
            changed.targets.insert(fullest);
        }
        true
    }

    /// Drops a part of a target's queues. The target reads it again later. Returns the recovery
    /// stream to close, if the part came from there.
    fn evict(&mut self, index: usize) -> Option<StreamNumber> {
        let is_recovered = self.edit(index, |target| {
            let Target { state, normal, catchup, .. } = target;
            match state {
                State::Normal => {
                    let missed = normal.drop_half().expect("a queue with bytes has items");
                    *state = State::Full { missed };
                    false
                }
                State::Full { missed } => {
                    *missed = normal.drop_half().expect("a queue with bytes has items");
                    false
                }
                State::Recovering(recovery) if !normal.is_empty() => {
                    normal.clear();
                    recovery.missed = Some(recovery.goal);
                    false
                }
                State::Recovering(recovery) => {
                    recovery.next = catchup.drop_half().expect("a queue with bytes has items");
                    true
                }
                other => unreachable!("a target without session has empty queues: {other:?}"),
            }
        });
        if is_recovered { self.yield_turn(index) } else { None }
    }
}
