//! Requests, answers and reads of all clients, and the checks on them.
//!
//! Moments are counters: an event with a lower moment happened earlier. A read is compared at once
//! with earlier reads of the position, so that only one is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use seriatim_client::{Order, Position, RecordId};
use tokio::sync::watch;

#[derive(Clone, Debug)]
struct Append {
    session: usize,
    payload: Bytes,
    invoked: u64,
    acknowledged: Option<Acknowledged>,
    refused: bool,
}

#[derive(Clone, Debug)]
struct Acknowledged {
    at: u64,
    /// Id and position, if its client received them.
    id: Option<RecordId>,
    position: Option<Position>,
    /// Number of earlier ids of the append, which became no-ops.
    again: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    id: RecordId,
    payload: Bytes,
}

#[derive(Debug)]
struct Inner {
    order: Order,
    moment: u64,
    sessions: usize,
    appends: Vec<Append>,
    tails: Vec<(u64, Position)>,
    seen: BTreeMap<Position, Seen>,
    /// Ranges that a subscriber skipped: first position, and position after the last.
    skipped: BTreeSet<(Position, Position)>,
    /// Violations found before the final check.
    violations: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    inner: Arc<Mutex<Inner>>,
    acknowledged: watch::Sender<u64>,
}

impl History {
    pub(crate) fn new(order: Order) -> Self {
        let inner = Inner {
            order,
            moment: 0,
            sessions: 0,
            appends: vec![],
            tails: vec![],
            seen: BTreeMap::new(),
            skipped: BTreeSet::new(),
            violations: vec![],
        };
        Self { inner: Arc::new(Mutex::new(inner)), acknowledged: watch::Sender::new(0) }
    }

    pub(crate) fn may_have_no_ops(&self) -> bool {
        may_have_no_ops(self.lock().order)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open_session(&self) -> usize {
        let mut inner = self.lock();
        inner.sessions += 1;
        inner.sessions
    }

    /// Records an append before its submission. Payloads are unique.
    pub(crate) fn invoke(&self, session: usize, payload: Bytes) -> usize {
        let mut inner = self.lock();
        let invoked = inner.tick();
        inner.appends.push(Append { session, payload, invoked, acknowledged: None, refused: false });
        inner.appends.len() - 1
    }

    /// Records an acknowledgement; `again` counts repeated appends.
    pub(crate) fn acknowledge(
        &self,
        append: usize,
        id: Option<RecordId>,
        position: Option<Position>,
        again: u32,
    ) {
        let mut inner = self.lock();
        let at = inner.tick();
        let before = inner.appends[append].acknowledged.replace(Acknowledged { at, id, position, again });
        assert!(before.is_none(), "an application waits once for each append");
        drop(inner);
        self.acknowledged.send_modify(|count| *count += 1);
    }

    pub(crate) fn refuse(&self, append: usize) {
        self.lock().appends[append].refused = true;
    }

    /// A subscriber received nothing between `from` and `to`.
    pub(crate) fn skip(&self, from: Position, to: Position) {
        self.lock().skipped.insert((from, to));
    }

    pub(crate) fn ask_tail(&self) -> u64 {
        self.lock().tick()
    }

    pub(crate) fn tail(&self, asked: u64, tail: Position) {
        self.lock().tails.push((asked, tail));
    }

    pub(crate) fn observe(&self, position: Position, id: RecordId, payload: Bytes) {
        let mut inner = self.lock();
        let now = Seen { id, payload };
        match inner.seen.get(&position) {
            None => drop(inner.seen.insert(position, now)),
            Some(before) if *before == now => {}
            Some(before) => {
                let text = format!("position {position} changed from {before:?} to {now:?}");
                inner.violations.push(text);
            }
        }
    }

    pub(crate) fn violation(&self, text: String) {
        self.lock().violations.push(text);
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        *self.acknowledged.borrow()
    }

    pub(crate) async fn wait_for(&self, count: u64) {
        let mut counts = self.acknowledged.subscribe();
        counts.wait_for(|known| *known >= count).await.expect("the sender is ours");
    }

    pub(crate) fn check(&self, end: Position) -> Vec<String> {
        let inner = self.lock();
        let mut wrong = inner.violations.clone();
        inner.no_gap(end, &mut wrong);
        let places = inner.places(&mut wrong);
        inner.durable_and_named(&places, &mut wrong);
        inner.tails_are_above(&places, &mut wrong);
        let mut order: Vec<(Position, &Append)> =
            places.iter().map(|(index, position)| (*position, &inner.appends[*index])).collect();
        order.sort_by_key(|(position, _)| *position);
        real_time_order(&order, &mut wrong);
        session_order(&places, &inner.appends, &mut wrong);
        inner.session_numbers(&mut wrong);
        wrong
    }
}

impl Inner {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Every position below the end has a record, and none above. Where clients put records on
    /// shards, there is at least one no-op per definite failure and per failed id.
    fn no_gap(&self, end: Position, wrong: &mut Vec<String>) {
        let mut next = Position(0);
        let mut missing = 0;
        for position in self.seen.keys().copied().chain([end]) {
            if position < next {
                wrong.push(format!("the log was read up to {next}, and ends at {end}"));
            } else if position > next && !may_have_no_ops(self.order) {
                wrong
                    .push(format!("gap: nothing at {next}, the next record is at {position}, the end {end}"));
            }
            missing += position.since(next);
            next = position + 1;
        }
        let again = |append: &Append| append.acknowledged.as_ref().map_or(0, |told| u64::from(told.again));
        let no_ops = |append: &Append| u64::from(append.refused) + again(append);
        let least: u64 = self.appends.iter().map(no_ops).sum();
        let is_open = |append: &&Append| append.acknowledged.is_none() && !append.refused;
        let open = self.appends.iter().filter(is_open).count() as u64;
        // An append that gets its position first may use several, and padding may have any length.
        let is_bounded = !self.order.places_first() && !self.order.has_quotas();
        let most = if is_bounded { least + open } else { u64::MAX };
        if may_have_no_ops(self.order) && !(least..=most).contains(&missing) {
            wrong.push(format!("gap: {missing} positions hold nothing, and {least} appends failed"));
        }
        for (from, to) in &self.skipped {
            if let Some((position, seen)) = self.seen.range(from..to).next() {
                wrong.push(format!("a subscriber was given nothing at {position}: {seen:?}"));
            }
        }
    }

    /// Position of each append. Payloads are unique and known.
    fn places(&self, wrong: &mut Vec<String>) -> BTreeMap<usize, Position> {
        let by_payload: BTreeMap<&Bytes, usize> =
            self.appends.iter().enumerate().map(|(index, append)| (&append.payload, index)).collect();
        let mut places = BTreeMap::new();
        for (position, seen) in &self.seen {
            match by_payload.get(&seen.payload) {
                None => wrong.push(format!("nobody appended what is at {position}: {seen:?}")),
                Some(index) => {
                    if let Some(other) = places.insert(*index, *position) {
                        wrong.push(format!("twice: {seen:?} at {other} and at {position}"));
                    }
                }
            }
        }
        places
    }

    /// Acknowledged records have the reported id and position; failed ones are absent.
    fn durable_and_named(&self, places: &BTreeMap<usize, Position>, wrong: &mut Vec<String>) {
        for (index, append) in self.appends.iter().enumerate() {
            if append.refused && places.contains_key(&index) {
                wrong.push(format!("it failed, and is there: {append:?}"));
            }
            let Some(told) = &append.acknowledged else { continue };
            let Some(place) = places.get(&index) else {
                wrong.push(format!("lost: {append:?}"));
                continue;
            };
            if told.position.is_some_and(|position| position != *place) {
                wrong.push(format!("moved to {place}: {append:?}"));
            }
            let seen = self.seen.get(place).map(|seen| seen.id);
            if told.id.is_some() && told.id != seen {
                wrong.push(format!("read under the name {seen:?}: {append:?}"));
            }
        }
    }

    /// A tail lies above all appends acknowledged before the question.
    fn tails_are_above(&self, places: &BTreeMap<usize, Position>, wrong: &mut Vec<String>) {
        let mut acknowledged: Vec<(u64, Position)> = places
            .iter()
            .filter_map(|(index, place)| Some((self.appends[*index].acknowledged.as_ref()?.at, *place)))
            .collect();
        acknowledged.sort_unstable();
        let mut tails = self.tails.clone();
        tails.sort_unstable();
        let mut known = acknowledged.iter().peekable();
        let mut highest = None;
        for (asked, tail) in tails {
            while let Some((_, place)) = known.next_if(|(at, _)| *at < asked) {
                highest = highest.max(Some(*place));
            }
            if highest.is_some_and(|highest| highest >= tail) {
                wrong.push(format!("the tail was {tail} at {asked}, below the acknowledged {highest:?}"));
            }
        }
    }

    /// A session's numbers ascend from 0. A missing number is a no-op at a position between its
    /// neighbours.
    fn session_numbers(&self, wrong: &mut Vec<String>) {
        let mut next = BTreeMap::new();
        for (held, (position, Seen { id, .. })) in self.seen.iter().enumerate() {
            // Number of lower positions without a record.
            let empty = position.0 - held as u64;
            let (expected, empty_before) = next.entry(id.session).or_insert((0, 0));
            if id.number < *expected || id.number - *expected > empty - *empty_before {
                wrong.push(format!("number {} of its session at {position}, not {expected}", id.number));
            }
            (*expected, *empty_before) = (id.number + 1, empty);
        }
    }
}

/// Whether logs of this order have positions without records: no-ops or padding.
pub(crate) fn may_have_no_ops(order: Order) -> bool {
    order.properties().fills_late || order.has_quotas()
}

/// An append acknowledged before another was invoked has the lower position. Scans from the end.
fn real_time_order(order: &[(Position, &Append)], wrong: &mut Vec<String>) {
    let mut earliest: Option<(u64, Position)> = None;
    for (position, append) in order.iter().rev() {
        if let Some((at, behind)) = earliest
            && at < append.invoked
        {
            wrong.push(format!(
                "{position} was asked for at {}, after {behind} was acknowledged at {at}",
                append.invoked
            ));
        }
        if let Some(told) = &append.acknowledged
            && earliest.is_none_or(|(at, _)| told.at < at)
        {
            earliest = Some((told.at, *position));
        }
    }
}

/// A session's positions follow the order of first submission.
fn session_order(places: &BTreeMap<usize, Position>, appends: &[Append], wrong: &mut Vec<String>) {
    let mut last: BTreeMap<usize, Position> = BTreeMap::new();
    for (index, position) in places {
        let session = appends[*index].session;
        if let Some(before) = last.insert(session, *position)
            && before > *position
        {
            wrong.push(format!("session {session}: {position} was submitted after {before}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_client::SessionId;

    use super::*;

    fn good() -> History {
        let history = History::new(Order::ErwinBb);
        for (session, number, position) in [(1, 0, 0), (2, 0, 1), (1, 1, 2)] {
            let append = history.invoke(session, payload(position));
            history.acknowledge(append, Some(id(session, number)), Some(Position(position)), 0);
            history.observe(Position(position), id(session, number), payload(position));
        }
        let asked = history.ask_tail();
        history.tail(asked, Position(3));
        history
    }

    fn id(session: usize, number: u64) -> RecordId {
        RecordId { session: SessionId(session as u128), number }
    }

    fn payload(number: u64) -> Bytes {
        number.to_string().into()
    }

    fn broken(change: impl FnOnce(&mut Inner)) -> String {
        let history = good();
        change(&mut history.lock());
        history.check(Position(3)).join("; ")
    }

    #[test]
    fn a_good_history_passes() {
        assert_eq!(good().check(Position(3)), [""; 0]);
    }

    #[test]
    fn each_violation_is_found() {
        assert!(broken(|inner| drop(inner.seen.remove(&Position(1)))).contains("lost"));
        assert!(broken(|inner| drop(inner.seen.remove(&Position(1)))).contains("gap"));
        assert!(broken(|inner| inner.appends[1].payload = payload(7)).contains("nobody appended"));
        let twice = Seen { id: id(2, 1), payload: payload(0) };
        assert!(broken(|inner| drop(inner.seen.insert(Position(3), twice))).contains("twice"));
        let moved = |inner: &mut Inner| {
            inner.appends[0].acknowledged.as_mut().expect("it was").position = Some(Position(1));
        };
        assert!(broken(moved).contains("moved"));
        let renamed = |inner: &mut Inner| inner.seen.get_mut(&Position(1)).expect("it is").id.number = 4;
        assert!(broken(renamed).contains("under the name"));
        assert!(broken(renamed).contains("number 4"));
        assert!(broken(|inner| inner.tails[0].1 = Position(2)).contains("the tail was 2"));
        let swap = |inner: &mut Inner, a: u64, b: u64| {
            let (first, second) = (inner.seen[&Position(a)].clone(), inner.seen[&Position(b)].clone());
            inner.seen.insert(Position(a), second);
            inner.seen.insert(Position(b), first);
        };
        assert!(broken(|inner| swap(inner, 0, 1)).contains("after 1 was acknowledged"));
        assert!(broken(|inner| swap(inner, 0, 2)).contains("session 1: 0 was submitted after 2"));
    }

    #[test]
    fn a_position_that_changes_is_found_at_once() {
        let history = good();
        history.observe(Position(1), id(9, 0), payload(1));
        assert!(history.check(Position(3)).join("; ").contains("position 1 changed"));
    }

    /// A session whose second append failed and whose third was repeated, with no-ops between.
    fn with_no_ops(order: Order) -> History {
        let history = History::new(order);
        let appends: Vec<usize> = (0..3).map(|number| history.invoke(1, payload(number))).collect();
        history.acknowledge(appends[0], Some(id(1, 0)), Some(Position(0)), 0);
        history.refuse(appends[1]);
        history.acknowledge(appends[2], Some(id(1, 3)), Some(Position(3)), 1);
        history.observe(Position(0), id(1, 0), payload(0));
        history.observe(Position(3), id(1, 3), payload(2));
        history.skip(Position(1), Position(3));
        history
    }

    #[test]
    fn positions_may_hold_no_ops_where_clients_put_records_themselves() {
        assert_eq!(with_no_ops(Order::ErwinSt).check(Position(4)), [""; 0]);
        let elsewhere = with_no_ops(Order::ErwinBb).check(Position(4)).join("; ");
        assert!(elsewhere.contains("gap"), "{elsewhere}");
    }

    #[test]
    fn each_violation_is_found_beside_no_ops() {
        let broken = |end: u64, change: fn(&mut Inner)| {
            let history = with_no_ops(Order::ErwinSt);
            change(&mut history.lock());
            history.check(Position(end)).join("; ")
        };
        let lost = broken(4, |inner| drop(inner.seen.remove(&Position(3))));
        assert!(lost.contains("lost") && lost.contains("gap: 3"), "{lost}");
        assert!(broken(5, |_| ()).contains("gap: 3 positions hold nothing, and 2"));
        assert!(broken(4, |inner| inner.appends[1].refused = false).is_empty(), "it may have been a no-op");
        let there = |inner: &mut Inner| {
            inner.seen.insert(Position(1), Seen { id: id(1, 1), payload: payload(1) });
        };
        assert!(broken(4, there).contains("it failed, and is there"));
        assert!(broken(4, there).contains("a subscriber was given nothing at 1"));
        let far = |inner: &mut Inner| inner.seen.get_mut(&Position(3)).expect("it is").id.number = 4;
        assert!(broken(4, far).contains("number 4"));
    }

    #[test]
    fn what_was_not_acknowledged_may_be_missing() {
        let history = good();
        history.invoke(1, payload(9));
        assert_eq!(history.check(Position(3)), [""; 0]);
    }
}
