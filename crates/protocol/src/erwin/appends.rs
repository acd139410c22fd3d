//! The appends of a client's session that are not done with, by their numbers.

use std::collections::VecDeque;

use seriatim_model::{Record, RecordId, SessionId, ShardId, View};

use crate::parts::Content;
use crate::parts::appending::AppendSpec;

/// The appends of a session from the lowest number on that is not done with.
///
/// Invariant: they have the numbers from `base` on, without gaps, and `upto` rises with them. An
/// append that goes out of turn ends the session.
#[derive(Clone, Debug, Default)]
pub(super) struct Appends {
    base: u64,
    pending: VecDeque<Pending>,
    /// How many bytes of records were submitted.
    submitted: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) record: Record,
    /// How many bytes of records this client has submitted with it and before it.
    pub(super) upto: u64,
    pub(super) spec: AppendSpec,
    /// How many ids it had before.
    pub(super) again: u32,
    pub(super) completed: bool,
    pub(super) target: Target,
}

/// Where an append's record goes, and how far it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    /// Nothing until the append is first sent, or if records travel with their ids.
    pub(super) shard: Option<ShardId>,
    /// A bit for each of the shard's replicas that hold it in the present view.
    pub(super) stored: u16,
}

impl Appends {
    /// None; the next one has number `base`.
    pub(super) fn new(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    /// The lowest number that is not done with.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The number of the next one.
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

    /// The appends from this number on, which is not below the lowest one, nor above the next.
    pub(super) fn from(&self, number: u64) -> impl Iterator<Item = (u64, &Pending)> {
        (number..).zip(self.pending.range((number - self.base) as usize..))
    }

    /// All of them, with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Pending)> {
        (self.base..).zip(&mut self.pending)
    }

    /// The record gets the session's next number.
    pub(super) fn push(&mut self, token: u64, record: Record, spec: AppendSpec, again: u32) {
        self.submitted += record.size() as u64;
        let (upto, target) = (self.submitted, Target::default());
        self.pending.push_back(Pending { token, record, upto, spec, again, completed: false, target });
    }

    /// One that was taken out gets the next number: of a session in which none has one yet.
    pub(super) fn push_again(&mut self, pending: Pending) {
        let last = self.pending.back().map_or(0, |last| last.upto);
        assert!(last <= pending.upto, "appends keep their order");
        self.pending.push_back(pending);
    }

    /// Lets go of those at the front that are completed, below this number.
    pub(super) fn release_below(&mut self, number: u64) {
        while self.base < number && self.pending.front().is_some_and(|pending| pending.completed) {
            self.pending.pop_front();
            self.base += 1;
        }
    }

    /// Takes one out. Those that follow must not be used any more.
    pub(super) fn remove(&mut self, number: u64) -> Option<Pending> {
        let index = self.index(number)?;
        self.pending.remove(index)
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Pending> + use<> {
        std::mem::take(&mut self.pending).into_iter()
    }

    /// Takes all of them out; the next one is the first of another session.
    pub(super) fn restart(&mut self) -> impl Iterator<Item = Pending> + use<> {
        self.base = 0;
        self.take()
    }

    /// How many bytes the numbers in `from..to` that are not forgotten take in messages to
    /// sequencing replicas: their records, or only their ids.
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

    /// The number below which at most so many bytes of records were submitted, those of earlier
    /// numbers included.
    pub(super) fn within(&self, upto: u64) -> u64 {
        self.base + self.pending.partition_point(|pending| pending.upto <= upto) as u64
    }

    /// Chooses shards for those that have none. The choice follows from the id, or the record's
    /// key.
    pub(super) fn choose_shards(&mut self, session: SessionId, view: &View, stripe: u64) {
        let chosen = self.pending.iter().rposition(|pending| pending.target.shard.is_some());
        let first = chosen.map_or(0, |index| index + 1);
        for (number, pending) in (self.base + first as u64..).zip(self.pending.range_mut(first..)) {
            pending.choose(RecordId { session, number }, view, stripe);
        }
    }

    /// In a new view, what the replicas of another one hold does not count.
    pub(super) fn none_is_stored(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.target.stored = 0);
    }

    /// A shard that takes no new records is not waited for. Its records go to another one: if they
    /// were bound where they were first put, they still are.
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

    /// The content as the sequencing replicas get it.
    pub(super) fn content(&self) -> Content {
        let bytes = self.record.size() as u32;
        let put = |shard| Content::Put { shard, bytes };
        self.target.shard.map_or_else(|| self.record.clone().into(), put)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One append for each of these lengths of payloads.
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
