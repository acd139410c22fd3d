//! A session's unfinished appends, by number.

use std::collections::VecDeque;

use seriatim_model::{Record, RecordId, SessionId, ShardId, View};

use crate::parts::Content;
use crate::parts::appending::AppendSpec;

/// Appends from the lowest unfinished number on.
///
/// Invariant: they have the numbers from `base` on, without gaps, and `upto` rises with them. An
/// append sent out of turn ends the session.
#[derive(Clone, Debug, Default)]
pub(super) struct Appends {
    base: u64,
    pending: VecDeque<Pending>,
    /// Bytes of all records submitted.
    submitted: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) record: Record,
    /// Bytes submitted up to and including this record.
    pub(super) upto: u64,
    pub(super) spec: AppendSpec,
    /// Number of earlier ids of this record.
    pub(super) again: u32,
    pub(super) completed: bool,
    pub(super) target: Target,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    /// Shard that gets the record. `None` before the first send, and if records travel with their
    /// ids.
    pub(super) shard: Option<ShardId>,
    /// One bit per replica of the shard that holds the record in the present view.
    pub(super) stored: u16,
}

impl Appends {
    pub(super) fn new(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn end(&self) -> u64 {
        self.base + self.pending.len() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.base)?).ok()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Pending> {
        self.pending.get(self.index(number)?)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        let index = self.index(number)?;
        self.pending.get_mut(index)
    }

    /// Appends from `number` on, which lies between `base` and `end`.
    pub(super) fn from(&self, number: u64) -> impl Iterator<Item = (u64, &Pending)> {
        (number..).zip(self.pending.range((number - self.base) as usize..))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Pending)> {
        (self.base..).zip(&mut self.pending)
    }

    pub(super) fn push(&mut self, token: u64, record: Record, spec: AppendSpec, again: u32) {
        self.submitted += record.size() as u64;
        let (upto, target) = (self.submitted, Target::default());
        self.pending.push_back(Pending { token, record, upto, spec, again, completed: false, target });
    }

    /// Gives an append taken from an earlier session the next number.
    pub(super) fn push_again(&mut self, pending: Pending) {
        let last = self.pending.back().map_or(0, |last| last.upto);
        assert!(last <= pending.upto, "appends keep their order");
        self.pending.push_back(pending);
    }

    pub(super) fn release_below(&mut self, number: u64) {
        while self.base < number && self.pending.front().is_some_and(|pending| pending.completed) {
            self.pending.pop_front();
            self.base += 1;
        }
    }

    /// Removes one append. Later ones then have wrong numbers, and must not be used.
    pub(super) fn remove(&mut self, number: u64) -> Option<Pending> {
        let index = self.index(number)?;
        self.pending.remove(index)
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = Pending> + use<> {
        std::mem::take(&mut self.pending).into_iter()
    }

    /// Removes all appends; the next one is the first of another session.
    pub(super) fn restart(&mut self) -> impl Iterator<Item = Pending> + use<> {
        self.base = 0;
        self.take()
    }

    /// Message bytes of the retained numbers in `from..to`: records, or only ids.
    pub(super) fn bytes_of(&self, (from, to): (u64, u64), has_records: bool) -> usize {
        if !has_records {
            return to.saturating_sub(from) as usize * Content::NAME_BYTES;
        }
        let first = || self.pending.front().map_or(0, |first| first.upto - first.record.size() as u64);
        let below = |number: u64| match self.pending.get(number.saturating_sub(self.base + 1) as usize) {
            _ if number <= self.base => first(),
            Some(last) => last.upto,
            None => self.pending.back().map_or(0, |last| last.upto),
        };
        below(to).saturating_sub(below(from)) as usize
    }

    /// Number below which at most `upto` bytes were submitted, released appends included.
    pub(super) fn within(&self, upto: u64) -> u64 {
        self.base + self.pending.partition_point(|pending| pending.upto <= upto) as u64
    }

    /// Chooses missing shards by id or by the record's key.
    pub(super) fn choose_shards(&mut self, session: SessionId, view: &View, stripe: u64) {
        let chosen = self.pending.iter().rposition(|pending| pending.target.shard.is_some());
        let first = chosen.map_or(0, |index| index + 1);
        for (number, pending) in (self.base + first as u64..).zip(self.pending.range_mut(first..)) {
            pending.choose(RecordId { session, number }, view, stripe);
        }
    }

    /// Forgets the replicas' acknowledgements, which do not count in a new view.
    pub(super) fn none_is_stored(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.target.stored = 0);
    }

    /// Redirects records from closed shards to open ones. A record already bound on the closed
    /// shard stays bound there.
    pub(super) fn leave_closed_shards(&mut self, session: SessionId, view: &View, stripe: u64) {
        let open = view.open_shards();
        for (number, pending) in self.iter_mut() {
            if pending.target.shard.is_some_and(|shard| !open.contains(&shard)) {
                pending.choose(RecordId { session, number }, view, stripe);
            }
        }
    }
}

impl Pending {
    fn choose(&mut self, id: RecordId, view: &View, stripe: u64) {
        self.target.shard = Some(self.spec.shard.of(id, &self.record, stripe, view.open_shards()));
    }

    pub(super) fn content(&self) -> Content {
        let bytes = self.record.size() as u32;
        let put = |shard| Content::Put { shard, bytes };
        self.target.shard.map_or_else(|| self.record.clone().into(), put)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One append per payload length.
    fn appends(base: u64, lengths: &[usize]) -> Appends {
        let mut appends = Appends::new(base);
        for (token, length) in (0..).zip(lengths) {
            appends.push(token, Record::new(&vec![0; *length], 0), AppendSpec::default(), 0);
        }
        appends
    }

    fn complete_number(appends: &mut Appends, number: u64) {
        appends.get_mut(number).expect("it is not done with").completed = true;
    }

    #[test]
    fn they_are_let_go_of_from_the_front() {
        let mut appends = appends(5, &[1, 1, 1, 1]);
        assert_eq!((appends.base(), appends.end(), appends.len()), (5, 9, 4));
        complete_number(&mut appends, 6);
        appends.release_below(9);
        assert_eq!(appends.base(), 5, "6 waits for 5");
        complete_number(&mut appends, 5);
        complete_number(&mut appends, 7);
        appends.release_below(7);
        assert_eq!((appends.base(), appends.get(6).is_none()), (7, true), "7 is not committed");
        assert_eq!(appends.from(8).map(|(number, pending)| (number, pending.token)).next(), Some((8, 3)));
        assert_eq!(appends.restart().count(), 2);
        assert_eq!((appends.base(), appends.is_empty()), (0, true));
    }

    #[test]
    fn bytes_are_counted_of_those_that_are_there() {
        let mut appends = appends(0, &[10, 20, 30]);
        let size = |number| appends.get(number).map_or(0, |pending| pending.record.size());
        let sizes = [size(0), size(1), size(2)];
        assert_eq!(appends.bytes_of((0, 3), true), sizes.iter().sum::<usize>());
        assert_eq!(appends.bytes_of((1, 2), true), sizes[1]);
        assert_eq!(appends.bytes_of((1, 3), false), 2 * Content::NAME_BYTES);
        assert_eq!(appends.within((sizes[0] + sizes[1]) as u64), 2);
        complete_number(&mut appends, 0);
        appends.release_below(1);
        assert_eq!(appends.bytes_of((0, 2), true), sizes[1]);
    }

    #[test]
    #[should_panic(expected = "appends keep their order")]
    fn one_that_was_taken_out_does_not_overtake() {
        let mut appends = appends(0, &[1, 1]);
        let mut taken: Vec<Pending> = appends.take().collect();
        taken.reverse();
        taken.into_iter().for_each(|pending| appends.push_again(pending));
    }
}
