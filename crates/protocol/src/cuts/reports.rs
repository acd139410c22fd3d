//! The local logs of the shards, as reported to the leader (Scalog §3.3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::{IdRun, NodeId, ShardId, ShardMembers, Time};

use super::shard::Submitted;
use crate::mutation::{Mutation, Options};
use crate::parts::junk::is_of_nobody;

#[derive(Clone, Debug)]
pub(super) struct Reports {
    shards: BTreeMap<ShardId, ReportedLog>,
    options: Options,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ReportedLog {
    lengths: BTreeMap<NodeId, u64>,
    /// Replicas known to have entered the view. Before, they accept nothing.
    there: BTreeSet<NodeId>,
    primary: NodeId,
    names: Undecided,
    named_at: Option<Time>,
}

/// Ids of a local log that no cut has decided.
///
/// Invariant: `runs` are the names of the indexes in `decided..named`, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Undecided {
    runs: VecDeque<Named>,
    decided: u64,
    named: u64,
    /// Undecided padding: first index and end. No two spans touch.
    padding: BTreeMap<u64, u64>,
}

/// Names of consecutive indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    names: Submitted,
    /// Index after the last name.
    end: u64,
    at: Time,
}

impl Named {
    fn is_padding(&self) -> bool {
        is_of_nobody(self.names.ids.session)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// The replica has just entered the view: it may have missed earlier messages.
    pub(super) enters: bool,
    /// Decided length to acknowledge again, if necessary.
    pub(super) ack: Option<u64>,
}

impl Undecided {
    /// Adds names from index `from` on, except known ones and those behind a gap. Returns whether
    /// records are new.
    pub(super) fn tell(&mut self, now: Time, from: u64, runs: Vec<Submitted>) -> bool {
        let (mut index, mut are_records_new) = (from, false);
        for run in runs {
            let end = index + run.ids.count;
            if index <= self.named && self.named < end {
                let new = Named { names: run.tail(self.named - index), end, at: now };
                self.note_padding(new.names.ids);
                are_records_new |= !new.is_padding();
                self.runs.push_back(new);
                self.named = end;
            }
            index = end;
        }
        self.assert_undecided();
        are_records_new
    }

    fn assert_undecided(&self) {
        let Self { runs, decided, named, .. } = self;
        let is_any = decided < named;
        assert!(decided <= named && is_any != runs.is_empty(), "{decided} of {named} in {} runs", runs.len());
    }

    /// Decides the next names below an index: at most one run.
    pub(super) fn decide_next(&mut self, end: u64) -> Option<Submitted> {
        let room = end.checked_sub(self.decided).filter(|room| *room > 0)?;
        let run = self.runs.pop_front()?;
        let next = run.names.head(room.min(run.names.ids.count));
        if next.ids.count < run.names.ids.count {
            self.runs.push_front(Named { names: run.names.tail(next.ids.count), ..run });
        }
        self.decided += next.ids.count;
        while self.padding.first_key_value().is_some_and(|(_, end)| *end <= self.decided) {
            self.padding.pop_first();
        }
        self.assert_undecided();
        Some(next)
    }

    fn note_padding(&mut self, ids: IdRun) {
        if !is_of_nobody(ids.session) {
            return;
        }
        let end = self.named + ids.count;
        match self.padding.last_entry().filter(|last| *last.get() == self.named) {
            Some(mut last) => *last.get_mut() = end,
            None => _ = self.padding.insert(self.named, end),
        }
    }

    /// End of the padding at an index, or the index itself.
    fn over_padding(&self, index: u64) -> u64 {
        let span = self.padding.range(..=index).next_back();
        span.map_or(index, |(_, end)| index.max(*end))
    }

    /// Index behind the last undecided record. `None`: all records are decided.
    fn records_end(&self) -> Option<u64> {
        let end = match self.padding.last_key_value() {
            Some((first, end)) if *end == self.named => *first,
            _ => self.named,
        };
        Some(end).filter(|end| *end > self.decided)
    }

    /// Index behind the last undecided record that was named at `time` or before.
    fn records_end_by(&self, time: Time) -> Option<u64> {
        let by_then = self.runs.partition_point(|run| run.at <= time);
        self.runs.range(..by_then).rev().find(|run| !run.is_padding()).map(|run| run.end)
    }

    /// When the first undecided record after `time` was named.
    fn first_record_after(&self, time: Time) -> Option<Time> {
        let by_then = self.runs.partition_point(|run| run.at <= time);
        self.runs.range(by_then..).find(|run| !run.is_padding()).map(|run| run.at)
    }

    /// The deliberate defect: decides unnamed indexes below `end`. Returns their number.
    pub(super) fn give_up_below(&mut self, end: u64) -> u64 {
        let missing = end.saturating_sub(self.decided);
        (self.decided, self.named) = (self.decided + missing, self.named + missing);
        missing
    }

    /// Named length: all lower indexes are named.
    pub(super) fn end(&self) -> u64 {
        self.named
    }

    /// Decided length: each lower index has its position, or never gets one.
    pub(super) fn decided(&self) -> u64 {
        self.decided
    }
}

impl ReportedLog {
    /// Named length that all replicas have.
    fn length(&self, options: Options) -> u64 {
        let unreplicated = options.mutates(Mutation::CutUnreplicated);
        let lengths = self.lengths.values().copied();
        let length = if unreplicated { lengths.max() } else { lengths.min() };
        length.unwrap_or(0).min(self.names.end())
    }

    /// Length that all replicas have. Padding and decided indexes need no report of the backups.
    fn everywhere(&self, options: Options) -> u64 {
        let counts_padding = !options.mutates(Mutation::PaddingUncounted);
        let lengths = self.lengths.values().map(|length| match counts_padding {
            true => {
                self.names.over_padding(length.max(&self.names.decided).min(&self.names.named).to_owned())
            }
            false => length.min(&self.names.named).to_owned(),
        });
        let unreplicated = options.mutates(Mutation::CutUnreplicated);
        let length = if unreplicated { lengths.max() } else { lengths.min() };
        length.unwrap_or(0)
    }
}

impl Reports {
    pub(super) fn new(shards: &[ShardMembers], options: Options) -> Self {
        let of = |members: &ShardMembers| {
            let lengths = members.replicas.iter().map(|member| (member.node, 0)).collect();
            let primary = members.primary().node;
            (members.shard, ReportedLog { lengths, primary, ..ReportedLog::default() })
        };
        Self { shards: shards.iter().map(of).collect(), options }
    }

    pub(super) fn replicas(&self) -> impl Iterator<Item = (ShardId, NodeId)> {
        self.shards.iter().flat_map(|(shard, log)| log.lengths.keys().map(|node| (*shard, *node)))
    }

    /// Notes a report. The replica gets a `CutAck` if it repeats decided indexes, or if names are
    /// missing. `None`: it is not in the view.
    pub(super) fn note(
        &mut self,
        now: Time,
        (shard, node): (ShardId, NodeId),
        length: u64,
        (from, names): (u64, Vec<Submitted>),
    ) -> Option<Heard> {
        let log = self.shards.get_mut(&shard)?;
        let known = log.lengths.get_mut(&node)?;
        let is_primary = node == log.primary;
        let misses_names = is_primary && from > log.names.end();
        let decided = log.names.decided();
        let says_again = decided > 0 && length <= decided;
        *known = length.max(*known);
        if is_primary {
            let are_records_new = log.names.tell(now, from, names);
            log.named_at = if are_records_new { Some(now) } else { log.named_at };
        }
        let enters = log.there.insert(node);
        Some(Heard { enters, ack: (says_again || misses_names).then_some(decided) })
    }

    pub(super) fn primary(&self, shard: ShardId) -> NodeId {
        self.shards[&shard].primary
    }

    pub(super) fn is_any_new(&self) -> bool {
        self.shards.values().any(|log| log.length(self.options) > log.names.decided())
    }

    /// Shards in order, each with the length that all replicas have, and the names.
    pub(super) fn by_shard(&mut self) -> impl Iterator<Item = (ShardId, u64, &mut Undecided)> {
        let options = self.options;
        self.shards.iter_mut().map(move |(shard, log)| (*shard, log.length(options), &mut log.names))
    }

    pub(super) fn everywhere(&self, shard: ShardId) -> u64 {
        let goes_on = self.options.mutates(Mutation::CutUnmet) && self.is_idle(shard);
        if goes_on && self.shards.keys().any(|other| !self.is_idle(*other)) {
            return u64::MAX / 2;
        }
        self.shards.get(&shard).map_or(0, |log| log.everywhere(self.options))
    }

    pub(super) fn names(&mut self, shard: ShardId) -> &mut Undecided {
        &mut self.shards.get_mut(&shard).expect("the shard is one of the view").names
    }

    pub(super) fn decided(&self) -> impl Iterator<Item = (ShardId, u64)> {
        self.shards.iter().map(|(shard, log)| (*shard, log.names.decided()))
    }

    pub(super) fn named(&self) -> impl Iterator<Item = (ShardId, u64)> {
        self.shards.iter().map(|(shard, log)| (*shard, log.names.end()))
    }

    pub(super) fn named_end(&self, shard: ShardId) -> u64 {
        self.shards.get(&shard).map_or(0, |log| log.names.end())
    }

    pub(super) fn records_end(&self, shard: ShardId) -> Option<u64> {
        self.shards.get(&shard)?.names.records_end()
    }

    pub(super) fn records_end_by(&self, shard: ShardId, time: Time) -> Option<u64> {
        self.shards.get(&shard)?.names.records_end_by(time)
    }

    pub(super) fn first_record_after(&self, shard: ShardId, time: Time) -> Option<Time> {
        self.shards.get(&shard)?.names.first_record_after(time)
    }

    /// Whether all named indexes of a shard are decided.
    pub(super) fn is_idle(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_none_or(|log| log.names.end() == log.names.decided())
    }

    /// For an idle shard: when a record was last named, if ever. `None`: the shard is not idle.
    pub(super) fn idle_since(&self, shard: ShardId) -> Option<Option<Time>> {
        let log = self.shards.get(&shard)?;
        self.is_idle(shard).then_some(log.named_at)
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{IdRun, RecordId, SessionId};

    use super::*;

    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    fn drawn(numbers: &mut Numbers) -> Vec<Submitted> {
        let mut next = [0; 3];
        let run = |_| {
            let (session, count) = (numbers.below(3), 1 + numbers.below(5));
            let first = next[session as usize];
            next[session as usize] += count;
            let ids = IdRun { session: SessionId(session.into()), first, count };
            Submitted { ids, lowest: numbers.below(first + 1) }
        };
        (0..12).map(run).collect()
    }

    fn singly(runs: &[Submitted]) -> Vec<(RecordId, u64)> {
        runs.iter().flat_map(|run| run.ids.ids().map(|id| (id, run.lowest))).collect()
    }

    fn part(runs: &[Submitted], from: u64, end: u64) -> Vec<Submitted> {
        let mut index = 0;
        let mut parts = vec![];
        for run in runs {
            let next = index + run.ids.count;
            let (skip, upto) = (from.max(index), end.min(next));
            if skip < upto {
                parts.push(run.tail(skip - index).head(upto - skip));
            }
            index = next;
        }
        parts
    }

    /// Runs are divided at arbitrary indexes.
    #[test]
    fn names_are_decided_once_and_in_order_wherever_runs_are_divided() {
        for seed in 0..500 {
            let mut numbers = Numbers(seed);
            let log = drawn(&mut numbers);
            let (all, mut names, mut decided) = (singly(&log), Undecided::default(), vec![]);
            let length = all.len() as u64;
            while names.decided() < length {
                let from = numbers.below(names.end() + 2).min(length);
                names.tell(Time::ZERO, from, part(&log, from, (from + numbers.below(9)).min(length)));
                let end = numbers.below(names.end() + 1);
                while let Some(run) = names.decide_next(end) {
                    decided.extend(singly(&[run]));
                    assert!(names.decided() <= end, "{names:?} is decided beyond {end}");
                }
                assert_eq!(names.decided(), decided.len() as u64);
                assert_eq!(decided, all[..decided.len()], "seed {seed}");
                let left: u64 = names.runs.iter().map(|run| run.names.ids.count).sum();
                assert_eq!(names.decided() + left, names.end());
            }
        }
    }

    #[test]
    fn a_run_is_divided_and_keeps_what_its_client_waits_for() {
        let ids = IdRun { session: SessionId(7), first: 10, count: 5 };
        let run = Submitted { ids, lowest: 9 };
        assert_eq!(run.head(2), Submitted { ids: ids.head(2), lowest: 9 });
        assert_eq!(run.tail(2), Submitted { ids: ids.tail(2), lowest: 9 });
    }
}
