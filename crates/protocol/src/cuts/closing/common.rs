//! The common part of a shard's local log: the records that all its answering replicas have.

use crate::cuts::shard::{Rest, Submitted};
use crate::parts::IdSet;

#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    /// Common part of the replicas that know the order: index of its first record, and ids.
    ordered: Option<(u64, Vec<Submitted>)>,
    /// For each restarted replica, which does not know the order: the ids that it holds.
    held: Vec<IdSet>,
}

impl Common {
    pub(super) fn add(&mut self, rest: Rest) {
        match rest {
            Rest::LocalLog { from, names } => {
                self.ordered = Some(match self.ordered.take() {
                    Some(known) => common_part(known, (from, names)),
                    None => (from, names),
                });
            }
            Rest::Held { names } => self.held.push(names.into_iter().collect()),
        }
    }

    /// Common ids from index `decided` on. An answer may begin lower, if the replica has not
    /// received all cuts of the member, but never higher: a replica drops only decided records.
    pub(super) fn undecided(&self, decided: u64) -> Vec<Submitted> {
        let Some((from, names)) = &self.ordered else { return vec![] };
        part_of((*from, names), decided, u64::MAX)
    }

    /// Index behind the last common record. `None`: no replica knows the order.
    pub(super) fn length(&self) -> Option<u64> {
        self.ordered.as_ref().map(length)
    }

    /// Common ids with indexes in `from..end`, and the index of the first.
    pub(super) fn within(&self, from: u64, end: u64) -> (u64, Vec<Submitted>) {
        let Some((first, names)) = &self.ordered else { return (from, vec![]) };
        (from.max(*first), part_of((*first, names), from, end))
    }

    /// The prefix of `names` that all restarted replicas hold.
    pub(super) fn held_of(&self, names: Submitted) -> Submitted {
        let gaps = self.held.iter().filter_map(|held| held.missing(names.ids).first().copied());
        let end = gaps.map(|gap| gap.first).min().unwrap_or(names.ids.end());
        names.head(end - names.ids.first)
    }
}

fn common_part(one: (u64, Vec<Submitted>), other: (u64, Vec<Submitted>)) -> (u64, Vec<Submitted>) {
    let from = one.0.max(other.0);
    let end = length(&one).min(length(&other)).max(from);
    let part = part_of((one.0, &one.1), from, end);
    let same = part_of((other.0, &other.1), from, end);
    assert!(singly(&same).eq(singly(&part)), "a shard's local logs differ: {one:?}, {other:?}");
    (from, part)
}

fn length((from, names): &(u64, Vec<Submitted>)) -> u64 {
    names.iter().fold(*from, |length, names| length.saturating_add(names.ids.count))
}

fn singly(names: &[Submitted]) -> impl Iterator<Item = seriatim_model::RecordId> {
    names.iter().flat_map(|names| names.ids.ids())
}

fn part_of((mut index, names): (u64, &[Submitted]), from: u64, end: u64) -> Vec<Submitted> {
    let mut part = vec![];
    for names in names {
        let next = index.saturating_add(names.ids.count);
        let (first, last) = (from.max(index), end.min(next));
        if first < last {
            part.push(names.tail(first - index).head(last - first));
        }
        index = next;
    }
    part
}

#[cfg(test)]
mod tests {
    use seriatim_model::{IdRun, SessionId};

    use super::*;

    fn names(session: u64, first: u64, count: u64) -> Submitted {
        Submitted { ids: IdRun { session: SessionId(session.into()), first, count }, lowest: 0 }
    }

    fn log(from: u64, names: &[Submitted]) -> Rest {
        Rest::LocalLog { from, names: names.to_vec() }
    }

    fn common(rests: &[Rest]) -> Common {
        let mut common = Common::default();
        rests.iter().cloned().for_each(|rest| common.add(rest));
        common
    }

    #[test]
    fn what_all_have_is_covered_from_where_nothing_is_decided() {
        let (a, b, c) = (names(1, 0, 3), names(2, 0, 2), names(1, 3, 4));
        let (long, short) = (log(0, &[a, b, c]), log(3, &[b]));
        let both = common(&[long.clone(), short.clone()]);
        assert_eq!(both.undecided(0), [b], "one replica dropped a decided part");
        assert_eq!(both.undecided(7), []);
        let alone = common(std::slice::from_ref(&long));
        assert_eq!(alone.undecided(0), [a, b, c]);
        assert_eq!(alone.undecided(6), [c.tail(1)], "cuts decide within a run");
        assert_eq!(common(&[long.clone(), log(7, &[c.tail(2)])]).undecided(0), [c.tail(2)]);
        assert_eq!(common(&[short, long, log(5, &[])]).undecided(0), []);
        assert_eq!(common(&[]).undecided(4), []);
    }

    #[test]
    fn a_replica_that_let_go_of_more_than_another_has_leaves_nothing_to_cover() {
        let (a, b) = (names(1, 0, 3), names(2, 0, 2));
        assert_eq!(common(&[log(0, &[a]), log(3, &[b])]).undecided(0), []);
        assert_eq!(common(&[log(0, &[a]), log(5, &[])]).undecided(0), []);
    }

    #[test]
    fn a_record_that_a_restarted_replica_lacks_is_not_covered() {
        let a = names(1, 3, 4);
        let held = |first, count| Rest::Held { names: vec![names(1, first, count).ids] };
        assert_eq!(common(&[log(0, &[a]), held(0, 9)]).held_of(a), a);
        assert_eq!(common(&[log(0, &[a]), held(0, 9), held(0, 5)]).held_of(a), a.head(2));
        assert_eq!(common(&[log(0, &[a]), held(4, 9)]).held_of(a).ids.count, 0);
        assert_eq!(common(&[held(0, 9)]).undecided(0), [], "no replica knows the order");
    }

    #[test]
    #[should_panic(expected = "local logs differ")]
    fn two_local_logs_of_a_shard_are_one() {
        common(&[log(0, &[names(1, 0, 2)]), log(0, &[names(2, 0, 2)])]);
    }
}
