//! A program that takes records in batches and announces its room for more.

use std::ops::Range;

use seriatim_model::storage::Stored;
use seriatim_model::{Effect, Position, ShardId};

use crate::failure::Failure;

/// An event for the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The next records, without no-ops. Deliveries cover every other position once, in order.
    Deliver {
        /// Never empty.
        records: Vec<Stored>,
        /// Whether the records are predicted and may fail.
        speculative: bool,
    },
    /// Everything delivered below `upto` is final; at least one record is newly final.
    Confirm {
        /// Exclusive bound.
        upto: Position,
    },
    /// All records below `upto` were delivered and are final, and none above was delivered. Uses
    /// the room of one record.
    Passed {
        /// Exclusive bound.
        upto: Position,
    },
    /// Everything delivered at `after` or above, at least one record, is void. The replacement
    /// follows.
    Fail {
        /// First void position.
        after: Position,
    },
    /// The next records were trimmed; delivery continues at `first` or above.
    Trimmed {
        /// First remaining position.
        first: Position,
    },
    /// The shard lost all its records at these positions, an operator accepted the loss, and no
    /// other wanted shard has a record there. Everything below is final and reported. Uses the room
    /// of one record. Sent only with [`skips_lost`](crate::Selection::skips_lost).
    Lost {
        /// The shard; others may have lost records there too.
        shard: ShardId,
        /// First lost position.
        from: Position,
        /// Position after the last lost one, where delivery continues.
        end: Position,
    },
    /// The requested end is reached; the last event.
    Finished,
    /// Delivery cannot continue; the last event.
    Failed(Failure),
}

/// The reader's side of a subscription.
///
/// Promises: a record is given only while the reader wants both records and bytes, so only the last
/// may exceed them. Positions strictly increase, except after a failure, which is never below the
/// confirmed bound. Events keep their order, and none follows the end.
///
/// Invariant: every record that was given lies below `above`, and those of `batch` are the last of
/// them, in order.
#[derive(Debug)]
pub(crate) struct Application {
    token: u64,
    wanted_records: u64,
    /// Bytes of free room. Negative if the last record exceeded it.
    wanted_bytes: i64,
    above: Position,
    confirmed: Position,
    /// Records that the policy gave and the reader has not received. Either all may fail, or none.
    batch: Vec<Stored>,
    is_speculative: bool,
    has_ended: bool,
}

impl Application {
    pub(crate) fn new(from: Position) -> Self {
        Self {
            token: 0,
            wanted_records: 0,
            wanted_bytes: 0,
            above: from,
            confirmed: from,
            batch: vec![],
            is_speculative: false,
            has_ended: false,
        }
    }

    /// Adds room. Later events carry this token.
    pub(crate) fn want(&mut self, token: u64, records: u64, bytes: u64) {
        self.token = token;
        self.wanted_records = self.wanted_records.saturating_add(records);
        self.wanted_bytes = self.wanted_bytes.saturating_add_unsigned(bytes);
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.wanted_records > 0 && self.wanted_bytes > 0
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes a record. The reader receives it with the next [`flush`](Self::flush) or other event.
    ///
    /// # Panics
    /// If it has no room, has ended, or was given a record at this position or above.
    pub(crate) fn give(&mut self, stored: Stored) {
        assert!(self.wants_more() && !self.has_ended, "a record came that was not wanted");
        assert!(stored.position >= self.above, "{} was given below {}", stored.position, self.above);
        self.above = stored.position.next();
        self.wanted_records -= 1;
        self.wanted_bytes = self.wanted_bytes.saturating_sub_unsigned(stored.record.memory() as u64);
        self.batch.push(stored);
    }

    /// As `give`, for a record that may be `speculative`.
    pub(crate) fn give_with<M>(
        &mut self,
        stored: Stored,
        speculative: bool,
        out: &mut Vec<Effect<M, Event>>,
    ) {
        if speculative != self.is_speculative {
            self.flush(out);
            self.is_speculative = speculative;
        }
        self.give(stored);
    }

    /// Reports that everything below `upto` is final.
    ///
    /// # Panics
    /// If `upto` was confirmed before.
    pub(crate) fn confirm<M>(&mut self, upto: Position, out: &mut Vec<Effect<M, Event>>) {
        assert!(upto > self.confirmed, "{upto} is confirmed after {}", self.confirmed);
        self.flush(out);
        self.confirmed = upto;
        self.tell(Event::Confirm { upto }, out);
    }

    /// Reports that everything below `upto` is final, unless speculative records above were given:
    /// then the next confirmation covers it. Uses the room of one record, so that an idle reader
    /// gets no more than it wanted.
    pub(crate) fn pass<M>(&mut self, upto: Position, out: &mut Vec<Effect<M, Event>>) {
        if upto > self.confirmed && upto >= self.above && self.wants_more() {
            self.flush(out);
            self.confirmed = upto;
            self.wanted_records -= 1;
            self.tell(Event::Passed { upto }, out);
        }
    }

    /// Voids everything given at `after` or above.
    ///
    /// # Panics
    /// If `after` lies below the confirmed bound.
    pub(crate) fn take_back<M>(&mut self, after: Position, out: &mut Vec<Effect<M, Event>>) {
        assert!(after >= self.confirmed, "{after} fails after {} was confirmed", self.confirmed);
        self.flush(out);
        self.above = self.above.min(after);
        self.tell(Event::Fail { after }, out);
    }

    /// Lowers the next position: no valid record was given from there on.
    pub(crate) fn rewind(&mut self, next: Position) {
        assert!(next >= self.confirmed, "{next} comes after {} was confirmed", self.confirmed);
        self.above = self.above.min(next);
    }

    pub(crate) fn flush<M>(&mut self, out: &mut Vec<Effect<M, Event>>) {
        if !self.batch.is_empty() {
            let records = std::mem::take(&mut self.batch);
            self.tell(Event::Deliver { records, speculative: self.is_speculative }, out);
        }
    }

    pub(crate) fn skip<M>(&mut self, first: Position, out: &mut Vec<Effect<M, Event>>) {
        assert!(first > self.above, "records below {} were given, and {first} is the first", self.above);
        self.flush(out);
        (self.above, self.confirmed) = (first, self.confirmed.max(first));
        self.tell(Event::Trimmed { first }, out);
    }

    /// Reports a shard's loss. Uses the room of one record.
    ///
    /// # Panics
    /// If the reader has no room, or has a record there.
    pub(crate) fn lose<M>(
        &mut self,
        shard: ShardId,
        Range { start: from, end }: Range<Position>,
        out: &mut Vec<Effect<M, Event>>,
    ) {
        assert!(self.wants_more(), "a loss that was not wanted");
        assert!(from >= self.above, "{from} is lost, and all below {} was given", self.above);
        self.flush(out);
        self.above = end;
        self.wanted_records -= 1;
        self.tell(Event::Lost { shard, from, end }, out);
    }

    /// Ends delivery with the event `last`. None: the reader left.
    pub(crate) fn end<M>(&mut self, last: Option<Event>, out: &mut Vec<Effect<M, Event>>) {
        self.flush(out);
        if let Some(last) = last {
            self.tell(last, out);
        }
        self.has_ended = true;
    }

    fn tell<M>(&self, event: Event, out: &mut Vec<Effect<M, Event>>) {
        assert!(!self.has_ended, "nothing comes after the end");
        out.push(Effect::Reply { token: self.token, reply: event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{replies, stored};

    type Out = Vec<Effect<seriatim_protocol::Message, Event>>;

    fn deliver(positions: &[u64]) -> Event {
        let records = positions.iter().map(|position| stored(*position)).collect();
        Event::Deliver { records, speculative: false }
    }

    #[test]
    fn it_takes_as_many_records_and_bytes_as_it_wants_but_for_the_last_one() {
        let mut application = Application::new(Position(0));
        assert!(!application.wants_more());
        let size = stored(0).record.memory() as u64;
        application.want(1, 9, size + 1);
        for position in [0, 1] {
            assert!(application.wants_more());
            application.give(stored(position));
        }
        assert!(!application.wants_more(), "no more bytes");
        application.want(1, 0, size - 1);
        assert!(!application.wants_more(), "it had these already");
        application.want(1, 0, 1);
        assert!(application.wants_more());
        let mut application = Application::new(Position(0));
        application.want(1, 1, u64::MAX);
        application.give(stored(0));
        assert!(!application.wants_more(), "no more records");
    }

    #[test]
    fn what_happened_is_told_in_its_order_with_the_latest_token() {
        let mut application = Application::new(Position(2));
        let mut out: Out = vec![];
        application.want(1, 9, 1 << 20);
        application.flush(&mut out);
        assert!(out.is_empty(), "there is no empty batch");
        application.give(stored(2));
        application.give(stored(4));
        application.want(7, 9, 1 << 20);
        application.skip(Position(6), &mut out);
        application.give(stored(6));
        application.end(Some(Event::Finished), &mut out);
        let told = [deliver(&[2, 4]), Event::Trimmed { first: Position(6) }, deliver(&[6]), Event::Finished];
        assert_eq!(replies(&out), told);
        assert!(out.iter().all(|effect| matches!(effect, Effect::Reply { token: 7, .. })));
        assert!(application.has_ended());
    }

    #[test]
    fn a_reader_that_has_all_hears_of_positions_without_a_record_as_far_as_it_has_room() {
        let mut application = Application::new(Position(0));
        let mut out: Out = vec![];
        application.pass(Position(3), &mut out);
        assert!(out.is_empty(), "it wants nothing");
        application.want(1, 3, 1 << 20);
        application.pass(Position(3), &mut out);
        application.pass(Position(3), &mut out);
        application.give_with(stored(5), true, &mut out);
        application.pass(Position(5), &mut out);
        application.confirm(Position(6), &mut out);
        application.pass(Position(8), &mut out);
        application.pass(Position(9), &mut out);
        let passed = |upto| Event::Passed { upto: Position(upto) };
        let speculative = Event::Deliver { records: vec![stored(5)], speculative: true };
        let told = [passed(3), speculative, Event::Confirm { upto: Position(6) }, passed(8)];
        assert_eq!(replies(&out), told, "once, and not beside a record that is not final, nor without room");
        application.want(1, 1, 0);
        application.pass(Position(9), &mut out);
        assert_eq!(replies(&out).last(), Some(&passed(9)));
    }

    #[test]
    fn a_reader_that_leaves_is_told_nothing() {
        let mut application = Application::new(Position(2));
        let mut out: Out = vec![];
        application.end(None, &mut out);
        assert!(out.is_empty() && application.has_ended());
    }

    #[test]
    #[should_panic(expected = "was given below")]
    fn no_record_comes_twice() {
        let mut application = Application::new(Position(2));
        application.want(1, 9, 1 << 20);
        application.give(stored(2));
        application.give(stored(2));
    }

    #[test]
    #[should_panic(expected = "not wanted")]
    fn no_record_comes_that_was_not_wanted() {
        Application::new(Position(2)).give(stored(2));
    }

    #[test]
    #[should_panic(expected = "nothing comes after the end")]
    fn nothing_comes_after_the_end() {
        let mut application = Application::new(Position(2));
        let mut out: Out = vec![];
        application.end(Some(Event::Finished), &mut out);
        application.end(Some(Event::Finished), &mut out);
    }
}
