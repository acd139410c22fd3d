//! One subscription: its progress, filter and predictions.

use std::ops::Range;

use seriatim_model::storage::{Found, Stored};
use seriatim_model::{Filter, Position, Span, Ticket, ViewNumber, limits};

use super::message::Message;
use super::readers::Bounds;

/// Invariant: the reader received everything up to `next`; the final part ends at
/// `Predictions::confirmed`, which is at most `next`.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    pub(super) next: Position,
    pub(super) credit: u64,
    /// The read in progress, which starts at `next`. `None`: no read is in progress.
    pub(super) reading: Option<Ticket>,
    filter: Option<Filter>,
    predictions: Option<Predictions>,
}

#[derive(Clone, Copy, Debug)]
struct Predictions {
    /// Bound below which everything sent is final.
    confirmed: Position,
    held: Position,
}

impl Subscription {
    /// A subscription to final records from `first`, with `credit` bytes.
    pub(super) fn new(first: Position, credit: u64) -> Self {
        Self { next: first, credit, reading: None, filter: None, predictions: None }
    }

    pub(super) fn with(self, speculative: bool, filter: Option<Filter>) -> Self {
        let predictions = Predictions { confirmed: self.next, held: Position::ZERO };
        Self { filter, predictions: speculative.then_some(predictions), ..self }
    }

    /// The end of records to send from the store.
    pub(super) fn goal(&self, bounds: &Bounds) -> Position {
        match self.predictions {
            Some(_) if bounds.memory.is_none() => bounds.readable.max(bounds.predictable),
            _ => bounds.readable,
        }
    }

    /// The next predictions from memory. Empty without credit, or while earlier records must come
    /// from the store.
    pub(super) fn foretell(&mut self, request: u64, bounds: &Bounds, most: u32, early: bool) -> Vec<Message> {
        let Some(memory) = bounds.memory.filter(|_| self.predictions.is_some()) else { return vec![] };
        let is_there = bounds.readable <= self.next && self.next < bounds.predictable;
        if self.reading.is_some() || self.credit == 0 || !is_there {
            return vec![];
        }
        let most = most.min(u32::try_from(self.credit).unwrap_or(u32::MAX));
        let found = memory.foretold(self.next, limits::READ_RECORDS, most);
        self.found(request, found, bounds, early)
    }

    /// Messages for a read's result, limited to positions still known. `early` is a mutation: it
    /// confirms everything.
    pub(super) fn found(&mut self, request: u64, found: Found, bounds: &Bounds, early: bool) -> Vec<Message> {
        self.reading = None;
        let Found { records, empty, upto } = self.chosen(found);
        let Some(predictions) = &mut self.predictions else {
            let from = std::mem::replace(&mut self.next, upto);
            self.credit = self.credit.saturating_sub(size_of(&records, &empty));
            return vec![deliver(request, bounds.decides_below(upto), from, (records, empty), upto)];
        };
        // A write may have failed meanwhile.
        let upto = upto.min(bounds.readable.max(bounds.predictable));
        let from = self.next;
        if upto <= from {
            return vec![];
        }
        let split = bounds.committed.clamp(from, upto);
        let (mut messages, mut sent) = (vec![], 0);
        for (is_final, from, upto) in [(true, from, split), (false, split, upto)] {
            if from >= upto {
                continue;
            }
            let part = records.iter().filter(|stored| stored.position >= from && stored.position < upto);
            let part: Vec<Stored> = part.cloned().collect();
            let gone: Vec<Span> = empty.iter().filter_map(|span| span.within(from, upto)).collect();
            sent += size_of(&part, &gone);
            messages.push(match is_final {
                true => deliver(request, bounds.decides_below(upto), from, (part, gone), upto),
                false => {
                    Message::Predict { request, view: bounds.view, from, records: part, empty: gone, upto }
                }
            });
        }
        if predictions.confirmed == from {
            predictions.confirmed = split;
        }
        predictions.assert_told(upto);
        if early {
            messages.push(holds(request, bounds.view, Position::ZERO..upto, vec![]));
        }
        self.next = upto;
        self.credit = self.credit.saturating_sub(sent);
        messages
    }

    fn chosen(&self, found: Found) -> Found {
        let Some(filter) = &self.filter else { return found };
        let Found { records, mut empty, upto } = found;
        let (wanted, others): (Vec<Stored>, Vec<Stored>) =
            records.into_iter().partition(|stored| filter.matches(&stored.record));
        empty.extend(Span::of(others.iter().map(|stored| stored.position)));
        Found { records: wanted, empty: Span::joined(empty), upto }
    }

    pub(super) fn hold(&mut self, request: u64, bounds: &Bounds) -> Vec<Message> {
        let Some(predictions) = self.predictions.as_mut() else { return vec![] };
        let (before, committed) = (predictions.confirmed, bounds.committed);
        let has_predicted = before < self.next;
        predictions.confirmed = self.next.min(committed).max(before);
        predictions.assert_told(self.next);
        // Skipped positions above `next` are sent later, with the predictions around them.
        let upto = if bounds.memory.is_some() { committed.min(self.next) } else { committed };
        if !has_predicted || upto <= predictions.held.max(before) {
            return vec![];
        }
        predictions.held = upto;
        let Some(memory) = bounds.memory else {
            return vec![holds(request, bounds.view, Position::ZERO..upto, vec![])];
        };
        let void = memory.passed_over(before, upto);
        self.credit = self.credit.saturating_sub(limits::SPAN_BYTES * void.len() as u64);
        let (mut from, mut rest, mut messages) = (before, void.as_slice(), vec![]);
        while rest.len() > limits::READ_SPANS {
            let (part, others) = rest.split_at(limits::READ_SPANS);
            messages.push(holds(request, bounds.view, from..others[0].first, part.to_vec()));
            (from, rest) = (others[0].first, others);
        }
        messages.push(holds(request, bounds.view, from..upto, rest.to_vec()));
        messages
    }

    /// Predicted positions are sent again. Forgets the read in progress: it may begin above the new
    /// `next`.
    pub(super) fn forget_predictions(&mut self) {
        if let Some(predictions) = &mut self.predictions {
            (self.next, self.reading) = (predictions.confirmed, None);
            predictions.held = Position::ZERO;
        }
    }
}

impl Predictions {
    fn assert_told(&self, next: Position) {
        assert!(self.confirmed <= next, "told up to {next}, and up to {} as final", self.confirmed);
    }
}

fn size_of(records: &[Stored], empty: &[Span]) -> u64 {
    let bytes: u64 = records.iter().map(|stored| stored.record.memory() as u64).sum();
    bytes + limits::SPAN_BYTES * empty.len() as u64
}

fn deliver(
    request: u64,
    view: ViewNumber,
    from: Position,
    (records, empty): (Vec<Stored>, Vec<Span>),
    upto: Position,
) -> Message {
    match empty.is_empty() {
        true => Message::Deliver { request, view, from, records, upto },
        false => Message::DeliverWith { request, view, from, records, empty, upto },
    }
}

fn holds(request: u64, view: ViewNumber, Range { start, end }: Range<Position>, void: Vec<Span>) -> Message {
    Message::Holds { request, view, from: start, upto: end, void }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Record, RecordId, SessionId, ViewHistory};

    use super::*;

    fn stored(position: u64, key: &[u8]) -> Stored {
        let id = RecordId { session: SessionId(1), number: position };
        Stored { position: Position(position), id, record: Record::build(b"", 0, Some(key), &[]) }
    }

    fn found(keys: &[&[u8]], upto: u64) -> Found {
        let records = (0..).zip(keys).map(|(position, key)| stored(position, key)).collect();
        Found { records, empty: vec![], upto: Position(upto) }
    }

    fn bounds(readable: u64, predictable: u64) -> Bounds<'static> {
        let mut history = ViewHistory::default();
        history.push(ViewNumber(1), Position(0));
        history.push(ViewNumber(3), Position(3));
        Bounds {
            readable: Position(readable),
            predictable: Position(predictable),
            committed: Position(readable),
            memory: None,
            mappable: Position(readable),
            trim: Position::ZERO,
            trim_is_known: true,
            missing: None,
            lost: None,
            is_mapped: true,
            view: ViewNumber(3),
            history,
        }
    }

    fn positions(records: &[Stored]) -> Vec<u64> {
        records.iter().map(|stored| stored.position.0).collect()
    }

    #[test]
    fn what_is_final_and_what_is_not_are_told_apart() {
        let mut subscription = Subscription::new(Position(0), 100).with(true, None);
        assert_eq!(subscription.goal(&bounds(2, 4)), Position(4));
        let told = subscription.found(7, found(&[b"a".as_slice(); 4], 4), &bounds(2, 4), false);
        let [Message::Deliver { records: first, .. }, Message::Predict { view, from, records, upto, .. }] =
            &told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!((positions(first), positions(records)), (vec![0, 1], vec![2, 3]));
        assert_eq!((*view, *from, *upto), (ViewNumber(3), Position(2), Position(4)));
        let told = subscription.hold(7, &bounds(3, 4));
        let expected = holds(7, ViewNumber(3), Position::ZERO..Position(3), vec![]);
        assert_eq!(told, [expected]);
        assert_eq!(subscription.hold(7, &bounds(3, 4)), [], "it was told");
        subscription.forget_predictions();
        assert_eq!(subscription.next, Position(3), "final records are not sent again");
    }

    #[test]
    fn a_delivery_names_the_latest_view_that_decides_about_one_of_its_positions() {
        let mut subscription = Subscription::new(Position(0), 1000);
        let mut named = |upto| match &subscription.found(7, found(&[], upto), &bounds(9, 9), false)[..] {
            [Message::Deliver { view, .. }] => view.0,
            told => panic!("{told:?}"),
        };
        assert_eq!([2, 3, 4, 9].map(&mut named), [1, 1, 3, 3]);
    }

    #[test]
    fn a_write_that_failed_meanwhile_is_not_told() {
        let mut subscription = Subscription::new(Position(0), 100).with(true, None);
        let told = subscription.found(7, found(&[b"a".as_slice(); 4], 4), &bounds(0, 2), false);
        assert!(matches!(&told[..], [Message::Predict { upto: Position(2), .. }]), "{told:?}");
        assert_eq!(subscription.next, Position(2));
    }

    #[test]
    fn records_that_a_filter_leaves_out_are_told_as_empty() {
        let filter = Some(Filter::key_prefix("b"));
        let mut subscription = Subscription::new(Position(0), 1000).with(false, filter);
        let told = subscription.found(7, found(&[b"a", b"a", b"b", b"c"], 5), &bounds(5, 9), false);
        let [Message::DeliverWith { records, empty, upto, .. }] = &told[..] else { panic!("{told:?}") };
        let spans = vec![Span { first: Position(0), count: 2 }, Span { first: Position(3), count: 1 }];
        assert_eq!((positions(records), empty, *upto), (vec![2], &spans, Position(5)));
        let size = records[0].record.memory() as u64;
        assert_eq!(subscription.credit, 1000 - size - 2 * limits::SPAN_BYTES);
        assert_eq!(subscription.goal(&bounds(5, 9)), Position(5), "it takes no predictions");
    }
}
