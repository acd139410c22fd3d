//! A replica's damaged records: the order of repair, and the replicas that lack them too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{NodeId, Position, Time, ViewNumber};

use crate::parts::Backoff;

/// Limit of remembered damaged records. A later read finds the others again.
const MOST: usize = 1024;
/// Pause after a round of all replicas without success; doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(20);
/// Rounds of questions for a record that no outside replica may have: 12.7 seconds of pauses, in
/// which a member may repair its own copy.
const MOST_ROUNDS: u32 = 8;

/// Invariant: at most [`MOST`] records.
#[derive(Clone, Debug, Default)]
pub(super) struct Damage {
    /// Searches by due time: records without a full round come first.
    sought: BTreeMap<(Time, Position), Sought>,
    /// The replica that served the last repair is asked first.
    helper: Option<NodeId>,
}

#[derive(Clone, Debug)]
struct Sought {
    /// Replicas asked in this round; `sources` is the size of the round.
    asked: usize,
    sources: usize,
    rounds: u32,
    backoff: Backoff,
    /// The view that decides about the position, once known. An outside replica has the record only
    /// if it knows that view.
    decided_by: Option<ViewNumber>,
    /// Outside replicas that lack the record. They do not copy it any more.
    lacking: BTreeSet<NodeId>,
}

impl Default for Sought {
    fn default() -> Self {
        let backoff = Backoff::new(Time::ZERO, PAUSE_FIRST, PAUSE_MOST);
        Self { asked: 0, sources: 0, rounds: 0, backoff, decided_by: None, lacking: BTreeSet::new() }
    }
}

impl Damage {
    /// A full list drops the record with the longest pause, if any.
    pub(super) fn add(&mut self, position: Position) {
        if self.key(position).is_some() {
            return;
        }
        if self.sought.len() == MOST {
            let Some(last) = self.sought.last_entry().filter(|last| last.key().0 > Time::ZERO) else {
                return;
            };
            last.remove();
        }
        self.sought.insert((Time::ZERO, position), Sought::default());
        assert!(self.sought.len() <= MOST, "{} damaged records are remembered", self.sought.len());
    }

    fn key(&self, position: Position) -> Option<(Time, Position)> {
        self.sought.keys().find(|(_, damaged)| *damaged == position).copied()
    }

    pub(super) fn next(&self) -> Option<(Time, Position)> {
        self.sought.keys().next().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sought.is_empty()
    }

    /// Whether an outside replica, last named by view `last`, may have one of the records.
    pub(super) fn may_be_had_from(&self, node: NodeId, last: ViewNumber) -> bool {
        let may_have = |sought: &Sought| {
            !sought.lacking.contains(&node) && sought.decided_by.is_none_or(|view| view <= last)
        };
        self.sought.values().any(may_have)
    }

    /// The replica to ask next. A round asks each of `members` and `outside` once.
    pub(super) fn source(
        &mut self,
        position: Position,
        (members, outside): (&[NodeId], &[NodeId]),
        decided_by: Option<ViewNumber>,
    ) -> Option<NodeId> {
        let key = self.key(position)?;
        let sought = self.sought.get_mut(&key)?;
        sought.decided_by = decided_by;
        let outside = outside.iter().filter(|node| !sought.lacking.contains(node));
        let mut sources: Vec<NodeId> = members.iter().chain(outside).copied().collect();
        sources.sort_by_key(|node| Some(*node) != self.helper);
        sought.sources = sources.len();
        let source = sources.get(sought.asked % sources.len().max(1)).copied();
        sought.asked += 1;
        source
    }

    pub(super) fn note_lack(&mut self, node: NodeId, position: Position) {
        if let Some(sought) = self.key(position).and_then(|key| self.sought.get_mut(&key)) {
            sought.lacking.insert(node);
        }
    }

    /// The record was not served. At the end of a round, schedules the next one or, after
    /// [`MOST_ROUNDS`], drops the record if no replica in `outside` may have it. `outside` lists
    /// the former replicas that know the deciding view.
    pub(super) fn in_vain(
        &mut self,
        now: Time,
        position: Position,
        mut outside: impl Iterator<Item = NodeId>,
    ) {
        let Some(key) = self.key(position) else { return };
        let Some(sought) = self.sought.get_mut(&key).filter(|sought| sought.asked >= sought.sources) else {
            return;
        };
        sought.asked = 0;
        sought.rounds += 1;
        sought.backoff.tried(now);
        let may_come_from_members = sought.sources > 0 && sought.rounds < MOST_ROUNDS;
        let may_come = may_come_from_members || outside.any(|node| !sought.lacking.contains(&node));
        let (sought, due) = (sought.clone(), sought.backoff.at());
        self.sought.remove(&key);
        if may_come {
            self.sought.insert((due, position), sought);
        }
    }

    pub(super) fn mended(&mut self, position: Position, helper: NodeId) {
        self.helper = Some(helper);
        self.retain(|damaged| damaged != position);
    }

    pub(super) fn ask_anew(&mut self) {
        let positions = std::mem::take(&mut self.sought).into_keys().map(|(_, position)| position);
        self.sought = positions.map(|position| ((Time::ZERO, position), Sought::default())).collect();
    }

    pub(super) fn retain(&mut self, is_needed: impl Fn(Position) -> bool) {
        self.sought.retain(|(_, position), _| is_needed(*position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: Option<ViewNumber> = Some(ViewNumber(3));

    fn positions(damage: &Damage) -> Vec<u64> {
        damage.sought.keys().map(|(_, position)| position.0).collect()
    }

    fn nodes<const N: usize>(nodes: [u32; N]) -> [NodeId; N] {
        nodes.map(NodeId)
    }

    fn round(damage: &mut Damage, now: Time, members: &[NodeId], outside: &[NodeId]) -> Vec<u32> {
        let Some((_, position)) = damage.next() else { return vec![] };
        let mut asked = vec![];
        for _ in 0..members.len() + outside.len() {
            let Some(source) = damage.source(position, (members, outside), VIEW) else { break };
            asked.push(source.0);
            damage.in_vain(now, position, outside.iter().copied());
        }
        asked
    }

    #[test]
    fn no_more_is_remembered_than_the_limit() {
        let mut damage = Damage::default();
        (0..=MOST as u64).for_each(|position| damage.add(Position(position)));
        assert_eq!((damage.sought.len(), positions(&damage).last()), (MOST, Some(&(MOST as u64 - 1))));
        // A record that no replica serves makes room.
        round(&mut damage, Time(1), &nodes([2]), &[]);
        damage.add(Position(5000));
        assert_eq!((damage.sought.len(), positions(&damage).last()), (MOST, Some(&5000)));
        damage.retain(|position| position >= Position(10));
        assert_eq!(damage.next(), Some((Time::ZERO, Position(10))));
    }

    #[test]
    fn a_record_is_given_up_when_all_outside_lack_it_and_members_did_not_get_it() {
        let (mut damage, members, outside) = (Damage::default(), nodes([2]), nodes([3, 4]));
        damage.add(Position(4));
        damage.note_lack(NodeId(3), Position(4));
        // Node 4 never reports lacking it.
        for _ in 0..4 * MOST_ROUNDS {
            damage.source(Position(4), (&members, &outside), VIEW);
            damage.in_vain(Time(0), Position(4), outside.into_iter());
        }
        assert_eq!(damage.next(), Some((Time::ZERO + PAUSE_MOST, Position(4))));
        assert!(!damage.may_be_had_from(NodeId(3), ViewNumber(3)));
        assert!(damage.may_be_had_from(NodeId(4), ViewNumber(3)));
        assert!(!damage.may_be_had_from(NodeId(4), ViewNumber(2)), "it does not know what decides there");
        damage.note_lack(NodeId(4), Position(4));
        damage.source(Position(4), (&members, &outside), VIEW);
        damage.in_vain(Time(0), Position(4), outside.into_iter());
        assert!(damage.is_empty());
    }

    #[test]
    fn one_that_no_member_gives_out_is_asked_for_less_and_less_often_and_then_given_up() {
        let (mut damage, mut now, mut asked) = (Damage::default(), Time::ZERO, vec![]);
        damage.add(Position(4));
        while let Some((due, position)) = damage.next() {
            now = now.max(due);
            asked.push((now - Time::ZERO).as_millis());
            assert_eq!((position, round(&mut damage, now, &nodes([2, 5]), &[])), (Position(4), vec![2, 5]));
        }
        assert_eq!(asked, [0, 100, 300, 700, 1500, 3100, 6300, 12_700]);
        damage.add(Position(4));
        round(&mut damage, now, &nodes([2]), &[]);
        damage.add(Position(9));
        assert_eq!(damage.next(), Some((Time::ZERO, Position(9))), "a fresh one comes first");
        damage.mended(Position(9), NodeId(5));
        damage.ask_anew();
        assert_eq!(damage.next(), Some((Time::ZERO, Position(4))));
        assert_eq!(round(&mut damage, now, &nodes([2, 5]), &nodes([7])), [5, 2, 7]);
    }
}
