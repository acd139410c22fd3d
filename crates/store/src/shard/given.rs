//! The ids of positions that are not final.

use std::cell::OnceCell;

use seriatim_model::{BoundIds, IdRun, Position, ViewHistory, ViewNumber};

use super::ids::in_order;
use super::index::Versions;
use super::runs::Visits;

#[derive(Debug, Default)]
pub(super) struct Given {
    versions: Versions<BoundIds>,
    /// Cache of the sorted ids. A replica that leaves a view discards many runs in a row, and no
    /// discard changes a position: so ids are sorted once.
    in_order: OnceCell<Vec<IdRun>>,
    visits: Visits,
}

impl Given {
    pub(super) fn versions(&self) -> &Versions<BoundIds> {
        &self.versions
    }

    /// The versions, for a change. Drops the cache of sorted ids.
    pub(super) fn change(&mut self) -> &mut Versions<BoundIds> {
        self.in_order.take();
        &mut self.versions
    }

    pub(super) fn insert(&mut self, view: ViewNumber, first: Position, named: BoundIds) {
        self.change().insert(view, first, named);
    }

    pub(super) fn hide(&mut self, history: &ViewHistory) {
        self.change().hide(history);
    }

    pub(super) fn without_position(&self, ids: IdRun) -> Vec<IdRun> {
        let given = self.in_order.get_or_init(|| {
            let named = self.versions.iter().map(|(_, _, named)| named.ids);
            in_order(named.collect())
        });
        let IdRun { session, .. } = ids;
        let (mut without, mut next, end) = (vec![], ids.first, ids.first.saturating_add(ids.count));
        let up_to = |first: u64, end: u64| IdRun { session, first, count: end.saturating_sub(first) };
        let from = given.partition_point(|ids| (ids.session, ids.end()) <= (session, next));
        for ids in given[from..].iter().take_while(|ids| ids.session == session && ids.first < end) {
            without.push(up_to(next, ids.first));
            next = ids.end();
        }
        self.visits.add(1 + without.len());
        without.push(up_to(next, end));
        without.retain(|ids| ids.count > 0);
        without
    }

    pub(super) fn visited(&self) -> u64 {
        self.versions.visited() + self.visits.count()
    }
}
