//! Rules for every state of a log with windows.

use std::collections::BTreeMap;

use seriatim_model::storage::Ordered;
use seriatim_model::{Position, RecordId, ShardId};
use seriatim_protocol::cuts::window::Window;
use seriatim_protocol::{Message, cuts, shard};
use stateright::Property;

use super::closing;
use super::log::{Log, State};
use super::place::{Packet, Place};

pub(crate) const ASSERTED: u16 = 1;
pub(crate) const IN_SLOTS: u16 = 1 << 1;
/// A prediction stands however the view is closed, unless its shard is lost.
pub(crate) const STANDS: u16 = 1 << 2;
/// Every position reported to hold stands after any loss.
pub(crate) const HOLDS: u16 = 1 << 3;
pub(crate) const ONCE: u16 = 1 << 4;
pub(crate) const CLOSES: u16 = 1 << 5;

pub(crate) const RULES: [(u16, &str); 6] = [
    (ASSERTED, "no assertion is broken"),
    (IN_SLOTS, "cuts give out the slots of their windows"),
    (STANDS, "what was foretold stands, unless its shard is lost"),
    (HOLDS, "what is said to hold stands"),
    (ONCE, "no record is there twice"),
    (CLOSES, "whoever is left can close the view"),
];

pub(crate) fn name(rule: u16) -> &'static str {
    RULES.iter().find(|(known, _)| *known == rule).expect("it is one of them").1
}

pub(crate) fn properties() -> Vec<Property<Log>> {
    fn holds<const RULE: u16>(_: &Log, state: &State) -> bool {
        state.broken & RULE == 0
    }
    let conditions: [fn(&Log, &State) -> bool; 6] = [
        holds::<ASSERTED>,
        holds::<IN_SLOTS>,
        holds::<STANDS>,
        holds::<HOLDS>,
        holds::<ONCE>,
        holds::<CLOSES>,
    ];
    RULES.iter().zip(conditions).map(|((_, name), holds)| Property::always(name, holds)).collect()
}

/// Owner of a position, and its record if there is one.
pub(crate) type Slot = (ShardId, Option<RecordId>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// Owner of each position, by the windows sent to shards.
    pub(crate) slots: BTreeMap<Position, ShardId>,
    /// Predictions sent to readers.
    pub(crate) foretold: BTreeMap<Position, Slot>,
    /// End of the positions reported to hold.
    pub(crate) holds: Position,
    /// Cuts sent to shards.
    pub(crate) cuts: BTreeMap<Position, Slot>,
}

impl Ghost {
    /// Notes a message. Returns the bits of the rules that it breaks.
    pub(crate) fn sees(&mut self, packet: &Packet) -> u16 {
        match &packet.message {
            Message::CutsShard(cuts::ShardMessage::Windows { windows, .. }) => {
                windows.iter().for_each(|window| self.slots.extend(slots(window)));
            }
            Message::CutsShard(cuts::ShardMessage::Cover { batch, runs, .. }) => {
                self.cuts.extend(contents(*batch, runs));
            }
            Message::Shard(shard::Message::Predict { records, .. }) => {
                let Place::Shard(owner, _) = packet.from else { unreachable!("a shard predicts") };
                let mut broken = 0;
                for stored in records {
                    let slot = (owner, Some(stored.id));
                    let known = self.foretold.insert(stored.position, slot);
                    broken |= if known.is_none_or(|known| known == slot) { 0 } else { STANDS };
                }
                return broken;
            }
            Message::Shard(shard::Message::Holds { upto, .. }) => self.holds = self.holds.max(*upto),
            _ => {}
        }
        0
    }
}

/// Slots of a window, written out turn by turn.
fn slots(window: &Window) -> Vec<(Position, ShardId)> {
    let mut slots = vec![];
    let mut position = window.base;
    for cut in 0..window.cuts {
        for (rank, share) in (0..).zip(&window.shares) {
            if rank % window.groups == cut % window.groups {
                for _ in 0..share.quota {
                    slots.push((position, share.shard));
                    position = position.next();
                }
            }
        }
    }
    slots
}

pub(crate) fn contents(first: Position, runs: &[Ordered]) -> Vec<(Position, Slot)> {
    let slots = runs.iter().flat_map(|run| {
        run.ids.ids().map(|id| (run.shard, (run.shard != ShardId::NOBODY && !run.is_void).then_some(id)))
    });
    (first.0..).map(Position).zip(slots).collect()
}

pub(crate) fn judge(state: &State, log: &Log) -> u16 {
    let ghost = &state.ghost;
    let mut broken = 0;
    let mut object = |rule: u16, holds: bool| broken |= if holds { 0 } else { rule };
    for (position, (shard, _)) in &ghost.cuts {
        let owner = ghost.slots.get(position);
        object(IN_SLOTS, *shard == ShardId::NOBODY || owner.is_none_or(|owner| owner == shard));
    }
    for closed in closing::all(state, log) {
        object(closed.broken, closed.broken == 0);
        let mut seen: Vec<RecordId> = closed.content.values().filter_map(|(_, id)| *id).collect();
        seen.sort();
        object(ONCE, seen.windows(2).all(|two| two[0] != two[1]));
        for (position, slot) in &ghost.foretold {
            let stands = closed.content.get(position) == Some(slot);
            if *position < ghost.holds {
                object(HOLDS, stands);
            } else if !closed.lost.contains(&slot.0) {
                object(STANDS, stands);
            }
        }
    }
    broken
}
