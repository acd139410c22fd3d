//! Positions (slots) that windows assign to shards in advance, collected from the nodes' messages
//! about windows, cuts and predictions.

use std::collections::BTreeMap;

use seriatim_host::Outgoing;
use seriatim_model::storage::Ordered;
use seriatim_model::{Endpoint, Position, RecordId, ShardId, Span, ViewNumber};
use seriatim_protocol::Message;
use seriatim_protocol::shard::{self, Placed, Turns, Unplaced};

/// All slots announced in a run.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Windows of each view by number, as sent to shard replicas.
    pub windows: BTreeMap<(ViewNumber, u32), Turns>,
    /// Windows announced twice with different contents.
    pub conflicts: Vec<String>,
    /// Committed cuts of each view, as its leader sent them.
    pub cuts: BTreeMap<(ViewNumber, Position), Vec<Ordered>>,
    /// Parts of the cuts with which each claim closes the old view.
    pub closings: BTreeMap<(ViewNumber, Position), Vec<Ordered>>,
    /// Each shard's local log per view, as its primary sent it. Padding has ids of no session.
    pub names: BTreeMap<(ViewNumber, ShardId), Vec<RecordId>>,
    /// The primaries' predictions.
    pub predictions: Vec<Prediction>,
}

/// A primary's prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Its view.
    pub view: ViewNumber,
    /// Its shard.
    pub shard: ShardId,
    /// First position covered.
    pub from: Position,
    /// Predicted records.
    pub records: Vec<(Position, RecordId)>,
    /// Positions predicted empty.
    pub empty: Vec<Span>,
    /// Position after the last one covered.
    pub upto: Position,
}

/// Numbers of positions in a window: of its turns, and of shards without turns.
#[must_use]
pub fn sizes(window: &Turns) -> (u64, u64) {
    let in_cut = |cut: u32| {
        let turns = (0_u32..)
            .zip(&window.shares)
            .filter(move |(rank, _)| rank % window.groups == cut % window.groups);
        turns.map(|(_, (_, quota, _))| u64::from(*quota)).sum::<u64>()
    };
    let rooms = window.rooms.iter().map(|(_, room)| u64::from(*room));
    ((0..window.cuts).map(in_cut).sum(), rooms.sum())
}

impl Slots {
    /// Notes the positions in a sent message.
    pub fn sent(&mut self, outgoing: &Outgoing) {
        if let Endpoint::Shard(shard) = outgoing.from {
            self.told_by(shard, &outgoing.message);
        }
        let placed = outgoing.message.placed();
        match placed {
            Some(Placed::Windows { view, windows }) => {
                windows.into_iter().for_each(|window| self.learn(view, window));
            }
            Some(Placed::Cut { view, first, runs }) => _ = self.cuts.entry((view, first)).or_insert(runs),
            Some(Placed::Closing { claim, first, runs }) => {
                _ = self.closings.entry((claim, first)).or_insert(runs)
            }
            None => {}
        }
    }

    fn learn(&mut self, view: ViewNumber, window: Turns) {
        let known = self.windows.entry((view, window.number)).or_insert_with(|| window.clone());
        if *known != window {
            self.conflicts.push(format!("in view {view}, {known:?} and {window:?}"));
        }
    }

    fn told_by(&mut self, shard: ShardId, message: &Message) {
        if let Message::Shard(shard::Message::Predict { view, from, records, empty, upto, .. }) = message {
            let records = records.iter().map(|stored| (stored.position, stored.id)).collect();
            let (view, from, empty, upto) = (*view, *from, empty.clone(), *upto);
            let prediction = Prediction { view, shard, from, records, empty, upto };
            if self.predictions.last() != Some(&prediction) {
                self.predictions.push(prediction);
            }
        }
        let Some(Unplaced { view, from, names, .. }) = message.unplaced() else { return };
        let known = self.names.entry((view, shard)).or_default();
        for (index, id) in (from..).zip(names.iter().flat_map(|ids| ids.ids())) {
            if index == known.len() as u64 {
                known.push(id);
            }
        }
    }

    /// Slots of a view below `end`, from its known windows: shard and index of each position.
    #[must_use]
    pub fn of_view(&self, view: ViewNumber, end: Position) -> BTreeMap<Position, (ShardId, u64)> {
        let mut slots = BTreeMap::new();
        let windows = self.windows.range((view, 0)..=(view, u32::MAX));
        for (expected, ((_, number), window)) in (0..).zip(windows) {
            let mut position = window.base;
            if *number != expected || position >= end {
                break;
            }
            let mut next: BTreeMap<ShardId, u64> =
                window.shares.iter().map(|(shard, _, index)| (*shard, *index)).collect();
            for cut in 0..window.cuts {
                for (rank, (shard, quota, _)) in (0_u32..).zip(&window.shares) {
                    if rank % window.groups != cut % window.groups {
                        continue;
                    }
                    let index = next.get_mut(shard).expect("every shard is there");
                    for _ in 0..*quota {
                        slots.insert(position, (*shard, *index));
                        *index += 1;
                        position += 1;
                    }
                }
                if position >= end {
                    break;
                }
            }
        }
        slots
    }

    /// Whether no shard has a turn at a position, by the known windows: it belongs to a shard or
    /// window without turns, or lies above all windows.
    #[must_use]
    pub fn has_no_turn(&self, view: ViewNumber, position: Position) -> bool {
        let of_view = || self.windows.range((view, 0)..=(view, u32::MAX)).map(|(_, window)| window);
        let begun = of_view().rev().find(|window| window.base <= position);
        begun.is_none_or(|window| {
            let is_last = of_view().next_back() == Some(window);
            let (turns, room) = sizes(window);
            window.shares.is_empty()
                || position >= window.base + turns && (is_last || position < window.base + turns + room)
        })
    }

    /// Whether a cut of the view, or a closing cut after it, skipped the record at a position.
    #[must_use]
    pub fn was_passed_over(&self, view: ViewNumber, position: Position, id: RecordId) -> bool {
        let passes_over = |part: Option<(&(ViewNumber, Position), &Vec<Ordered>)>| {
            let Some(((_, first), runs)) = part else { return false };
            let mut next = *first;
            let found = runs.iter().find(|run| {
                next += run.ids.count;
                position < next
            });
            found.is_some_and(|run| run.shard == ShardId::NOBODY && run.ids.session == id.session)
        };
        let mut claims: Vec<ViewNumber> = self.closings.keys().map(|(claim, _)| *claim).collect();
        claims.dedup();
        let closing = |claim| self.closings.range((claim, Position::ZERO)..=(claim, position)).next_back();
        passes_over(self.cuts.range((view, Position::ZERO)..=(view, position)).next_back())
            || claims.into_iter().filter(|claim| *claim > view).any(|claim| passes_over(closing(claim)))
    }

    /// The id at an index of a shard's local log, if announced.
    #[must_use]
    pub fn name(&self, view: ViewNumber, shard: ShardId, index: u64) -> Option<RecordId> {
        let index = usize::try_from(index).ok()?;
        self.names.get(&(view, shard))?.get(index).copied()
    }
}
