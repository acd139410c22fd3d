//! The readers of a shard replica: reads that wait for final positions, and subscriptions.
//!
//! The stable bound comes from the leader in Erwin, and from the data path in Corfu and Scalog.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::storage::{Found, MissingRange, Owned, ReadFailure, ReadOutcome, ReadRange, Stored};
use seriatim_model::{
    Address, Gap, Peer, Placement, Position, Ticket, Time, ViewHistory, ViewNumber, limits,
};

use super::core::send;
use super::message::Message;
use super::path::Foretold;
use super::read_error::ReadError;
use super::subscription::Subscription;
use crate::mutation::{Mutation, Options};
use crate::parts::Shares;
use crate::roles::RoleEffect;

const SCRUB_BYTES: u32 = 256 << 10;

/// The reader's address and its request number name one read or subscription.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    /// A mutation: calls too many positions empty.
    calls_too_much_empty: bool,
    /// A mutation: accepts reads that the subscription does not wait for.
    takes_stale_reads: bool,
    read_bytes: u32,
    waiting: BTreeMap<(Address, u64), WaitingRead>,
    subscriptions: BTreeMap<(Address, u64), Subscription>,
    speculative: BTreeSet<(Address, u64)>,
    /// Waiting reads and subscriptions of each client, at most `most`.
    shares: Shares<Peer>,
    most: u64,
    reading: BTreeMap<Ticket, Reading>,
    mapping: BTreeMap<Ticket, Mapping>,
    last_ticket: Ticket,
    /// A mutation: confirms predictions that are not final.
    holds_early: bool,
}

#[derive(Clone, Debug)]
struct WaitingRead {
    from: Position,
    end: Position,
    max_records: u32,
    until: Time,
}

#[derive(Clone, Debug)]
enum Mapping {
    Copy(MappedAnswer),
    /// A map look-up for a reader, with the view and stable bound at that time.
    Alone {
        reader: Address,
        request: u64,
        from: Position,
        view: ViewNumber,
        stable: Position,
    },
}

#[derive(Clone, Debug)]
struct MappedAnswer {
    reader: Address,
    request: u64,
    records: Vec<Stored>,
    from: Position,
    upto: Position,
}

#[derive(Clone, Debug)]
struct Reading {
    reader: Address,
    request: u64,
    kind: ReadKind,
    range: ReadRange,
    /// Bound of the empty positions that the reader may receive, even beyond the range.
    empty_to: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadKind {
    Read,
    Subscription,
    Scrub,
    Own,
}

/// Limits on readers' positions.
#[derive(Clone, Debug)]
pub(super) struct Bounds<'a> {
    /// Readers may receive records below this.
    pub(super) readable: Position,
    /// Readers of predictions may receive this shard's records below this.
    pub(super) predictable: Position,
    /// Source of predictions; `None` means the store.
    pub(super) memory: Option<&'a dyn Foretold>,
    /// Everything below this is final, perhaps not yet readable.
    pub(super) committed: Position,
    /// Readers may receive the shards of positions below this.
    pub(super) mappable: Position,
    pub(super) trim: Position,
    /// Whether clients may rely on `trim`. Other replicas may read anyway.
    pub(super) trim_is_known: bool,
    pub(super) missing: Option<MissingRange>,
    pub(super) lost: Option<Lost>,
    pub(super) is_mapped: bool,
    pub(super) view: ViewNumber,
    /// Registered views up to `view`.
    pub(super) history: ViewHistory,
}

#[derive(Clone, Debug)]
pub(super) struct Lost {
    /// Places the shard's positions. `None`: any may be its own.
    pub(super) placement: Option<Placement>,
    pub(super) gaps: Vec<Gap>,
}

impl Reading {
    fn for_nobody(request: u64, kind: ReadKind, range: ReadRange) -> Self {
        let reader = Address::Client(seriatim_model::ConnectionId(0), 0);
        Self { reader, request, kind, range, empty_to: range.end }
    }

    fn is_for_client(&self) -> bool {
        matches!(self.kind, ReadKind::Read | ReadKind::Subscription)
            && matches!(self.reader, Address::Client(..))
    }
}

impl Lost {
    /// The first lost position at or above `from`, and the end of its gap.
    fn next(&self, from: Position) -> Option<(Position, Position)> {
        let first = |gap: &Gap| {
            let from = gap.from.max(from);
            let position = match &self.placement {
                Some(placement) => placement.first_of(gap.shard, from, gap.end)?,
                None => Some(from).filter(|from| *from < gap.end)?,
            };
            Some((position, gap.end))
        };
        self.gaps.iter().find_map(first)
    }
}

impl Bounds<'_> {
    /// The valid part of a read's result: positions may have become lost or missing meanwhile.
    fn known_of(
        &self,
        reader: Address,
        from: Position,
        most: Position,
        mut found: Found,
    ) -> Result<Found, ReadError> {
        let end = self.end_from(reader, from, most)?;
        found.records.retain(|stored| stored.position < end);
        Ok(found.below(end))
    }

    /// The latest view that decides about a position below the final bound `upto`.
    pub(super) fn decides_below(&self, upto: Position) -> ViewNumber {
        self.history.decides_below(upto)
    }

    fn missing_at(&self, position: Position) -> ReadError {
        ReadError::Missing { position, lacking: self.missing.map_or(0, MissingRange::count) }
    }

    /// The end of a read at `from`, at most `most`, or why `from` is unreadable.
    fn end_from(&self, reader: Address, from: Position, most: Position) -> Result<Position, ReadError> {
        let is_replica = matches!(reader, Address::Node(..));
        if !self.trim_is_known && !is_replica {
            return Err(self.missing_at(from));
        }
        let lost = self.lost.as_ref().and_then(|lost| lost.next(from));
        match (lost, self.missing) {
            (Some((position, end)), _) if position == from => Err(ReadError::Lost { position, end }),
            (_, Some(missing)) if missing.contains(from) => Err(self.missing_at(from)),
            (lost, missing) => {
                let missing = missing.map(|range| range.from).filter(|missing| *missing > from);
                let lost = lost.map(|(position, _)| position);
                Ok([missing, lost].into_iter().flatten().fold(most, Position::min))
            }
        }
    }
}

/// Outcome of the data path's own read: records, complete up to a position.
pub(crate) type OwnOutcome = Result<(Vec<Stored>, Position), ReadFailure>;

#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) damaged: Option<Position>,
    pub(super) scrubbed: Option<Position>,
    /// The data path's question, and its outcome.
    pub(super) own: Option<(u64, OwnOutcome)>,
}

impl Readers {
    /// A read returns at most one message of records.
    pub(super) fn new(options: Options) -> Self {
        let limits = options.limits;
        let batch_bytes = u32::try_from(limits.batch_bytes).unwrap_or(u32::MAX);
        Self {
            calls_too_much_empty: options.mutates(Mutation::EmptyTooFar),
            takes_stale_reads: options.mutates(Mutation::StaleReadTaken),
            read_bytes: limits::READ_BYTES.min(batch_bytes),
            waiting: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            speculative: BTreeSet::new(),
            shares: Shares::default(),
            most: limits.waiting_reads as u64,
            reading: BTreeMap::new(),
            mapping: BTreeMap::new(),
            last_ticket: Ticket(0),
            holds_early: options.mutates(Mutation::HoldsUncommitted),
        }
    }

    pub(super) fn receive(
        &mut self,
        now: Time,
        from: Address,
        message: Message,
        bounds: &Bounds,
        out: &mut Vec<RoleEffect>,
    ) {
        let (stable, trim) = (bounds.readable, bounds.trim);
        match message {
            Message::Read { request, from: first, end, max_records, wait_ms } => {
                if first < trim {
                    return fail(from, request, ReadError::Trimmed { first: trim }, out);
                }
                let until = now + Duration::from_millis(wait_ms.into());
                let read = WaitingRead { from: first, end, max_records, until };
                if first < stable || first >= end {
                    self.start_read(from, request, &read, bounds, out);
                } else if wait_ms == 0 {
                    send(from, Message::Records { request, records: vec![], upto: first }, out);
                } else if !self.has_room((from, request)) {
                    fail(from, request, ReadError::Busy, out);
                } else if self.waiting.insert((from, request), read).is_none() {
                    self.shares.take(from.peer(), 1);
                }
            }
            Message::Map { request, from: first, end } => {
                self.map_alone(from, request, (first, end), bounds, out);
            }
            Message::Subscribe { request, from: first, credit } => {
                let subscription = Subscription::new(first, credit);
                self.subscribe((from, request), subscription, bounds, out);
            }
            Message::SubscribeWith { request, from: first, credit, speculative, filter } => {
                let subscription = Subscription::new(first, credit).with(speculative, filter);
                if self.subscribe((from, request), subscription, bounds, out) && speculative {
                    self.speculative.insert((from, request));
                    self.feed(from, request, bounds, out);
                }
            }
            Message::Credit { request, bytes } => {
                if let Some(subscription) = self.subscriptions.get_mut(&(from, request)) {
                    subscription.credit = subscription.credit.saturating_add(bytes);
                    self.feed(from, request, bounds, out);
                }
            }
            Message::Cancel { request } => {
                self.end_wait((from, request));
                self.unsubscribe((from, request));
            }
            _ => {}
        }
    }

    /// Returns whether the subscription exists afterwards.
    fn subscribe(
        &mut self,
        (reader, request): (Address, u64),
        subscription: Subscription,
        bounds: &Bounds,
        out: &mut Vec<RoleEffect>,
    ) -> bool {
        if subscription.next < bounds.trim {
            fail(reader, request, ReadError::Trimmed { first: bounds.trim }, out);
            return false;
        }
        if !self.end_former(reader, request) {
            return false;
        }
        if !self.has_room((reader, request)) {
            fail(reader, request, ReadError::Busy, out);
            return false;
        }
        let next = subscription.next;
        if self.subscriptions.insert((reader, request), subscription).is_none() {
            self.shares.take(reader.peer(), 1);
        }
        let before = out.len();
        self.feed(reader, request, bounds, out);
        if out.len() == before {
            // Shows the reader that the replica answers and has nothing to send.
            let view = bounds.decides_below(next);
            send(reader, Message::Deliver { request, view, from: next, records: vec![], upto: next }, out);
        }
        self.subscriptions.contains_key(&(reader, request))
    }

    /// Whether a reader may start or continue to wait. A client's limit affects only itself.
    fn has_room(&self, reader: (Address, u64)) -> bool {
        let is_known = self.waiting.contains_key(&reader) || self.subscriptions.contains_key(&reader);
        is_known || self.shares.has_room(reader.0.peer(), self.most)
    }

    fn end_wait(&mut self, reader: (Address, u64)) -> Option<WaitingRead> {
        let read = self.waiting.remove(&reader)?;
        self.shares.give_back(reader.0.peer(), 1);
        Some(read)
    }

    fn unsubscribe(&mut self, reader: (Address, u64)) {
        self.speculative.remove(&reader);
        if self.subscriptions.remove(&reader).is_some() {
            self.shares.give_back(reader.0.peer(), 1);
        }
    }

    /// Ends the subscriber's earlier subscriptions: it subscribes again after silence. Returns
    /// `false` if `request` is older than a known one.
    fn end_former(&mut self, reader: Address, request: u64) -> bool {
        let own = self.subscriptions.range((reader, 0)..=(reader, u64::MAX)).map(|((_, own), _)| *own);
        let own: Vec<u64> = own.collect();
        for former in own.iter().filter(|own| **own < request) {
            self.unsubscribe((reader, *former));
        }
        own.iter().all(|own| *own <= request)
    }

    fn start_read(
        &mut self,
        reader: Address,
        request: u64,
        read: &WaitingRead,
        bounds: &Bounds,
        out: &mut Vec<RoleEffect>,
    ) {
        // An empty range asks for the trim point.
        let end = if read.from < read.end {
            bounds.end_from(reader, read.from, bounds.readable)
        } else if bounds.trim_is_known {
            Ok(read.end)
        } else {
            Err(bounds.missing_at(read.from))
        };
        let is_client = matches!(reader, Address::Client(..));
        let known = match end {
            Ok(_) if is_client && self.is_busy() => return fail(reader, request, ReadError::Busy, out),
            Ok(known) => known,
            Err(error) => return fail(reader, request, error, out),
        };
        let end = read.end.min(known);
        let range = ReadRange {
            from: read.from,
            end,
            max_records: read.max_records.clamp(1, limits::READ_RECORDS),
            max_bytes: self.read_bytes,
        };
        // Another replica asks about its range, a client about the next records.
        let empty_to = if is_client { known } else { end };
        self.read_store(Reading { reader, request, kind: ReadKind::Read, range, empty_to }, out);
    }

    /// Whether too many store reads are in flight: each retry of a client adds one.
    fn is_busy(&self) -> bool {
        self.reading.len() as u64 >= self.most
    }

    fn read_store(&mut self, reading: Reading, out: &mut Vec<RoleEffect>) -> Ticket {
        self.last_ticket.0 += 1;
        out.push(RoleEffect::Read {
            ticket: self.last_ticket,
            range: reading.range,
            is_for_client: reading.is_for_client(),
        });
        self.reading.insert(self.last_ticket, reading);
        self.last_ticket
    }

    fn feed(&mut self, reader: Address, request: u64, bounds: &Bounds, out: &mut Vec<RoleEffect>) {
        let is_busy = self.is_busy();
        let Some(subscription) = self.subscriptions.get_mut(&(reader, request)) else { return };
        loop {
            let foretold = subscription.foretell(request, bounds, self.read_bytes, self.holds_early);
            if foretold.is_empty() {
                break;
            }
            foretold.into_iter().for_each(|message| send(reader, message, out));
        }
        let (next, goal) = (subscription.next, subscription.goal(bounds));
        if subscription.reading.is_some() || subscription.credit == 0 || next >= goal {
            return;
        }
        let end = if is_busy { Err(ReadError::Busy) } else { bounds.end_from(reader, next, goal) };
        let end = match end {
            Ok(end) => end,
            Err(error) => {
                self.unsubscribe((reader, request));
                return fail(reader, request, error, out);
            }
        };
        let range = ReadRange {
            from: next,
            end,
            max_records: limits::SERVED_RECORDS,
            max_bytes: self.read_bytes.min(u32::try_from(subscription.credit).unwrap_or(u32::MAX)),
        };
        let reading = Reading { reader, request, kind: ReadKind::Subscription, range, empty_to: end };
        let ticket = self.read_store(reading, out);
        self.subscriptions.get_mut(&(reader, request)).expect("it was just seen").reading = Some(ticket);
    }

    pub(super) fn scrub(&mut self, from: Position, end: Position, out: &mut Vec<RoleEffect>) {
        let (max_records, max_bytes) = (limits::READ_RECORDS, SCRUB_BYTES);
        let range = ReadRange { from, end, max_records, max_bytes };
        self.read_store(Reading::for_nobody(0, ReadKind::Scrub, range), out);
    }

    /// Starts at most one store read for the data path. `question` comes back with the outcome.
    pub(super) fn read_own(
        &mut self,
        question: u64,
        from: Position,
        end: Position,
        out: &mut Vec<RoleEffect>,
    ) {
        let (max_records, max_bytes) = (limits::READ_RECORDS, self.read_bytes);
        let range = ReadRange { from, end, max_records, max_bytes };
        self.read_store(Reading::for_nobody(question, ReadKind::Own, range), out);
    }

    pub(super) fn read(
        &mut self,
        ticket: Ticket,
        outcome: ReadOutcome,
        bounds: &Bounds,
        out: &mut Vec<RoleEffect>,
    ) -> Outcome {
        let Some(reading) = self.reading.remove(&ticket) else {
            return Outcome::default();
        };
        let Reading { reader, request, kind, range, empty_to } = reading;
        let outcome = outcome.map(|found| found.below(empty_to.max(range.from)));
        let damaged = match &outcome {
            Err(ReadFailure::Damaged(position)) => Some(*position),
            _ => None,
        };
        let trim = bounds.trim;
        if kind == ReadKind::Scrub {
            let upto = outcome.map_or_else(|_| damaged.map(Position::next), |found| Some(found.upto));
            // A failing disk has larger problems than damage: skip the range.
            return Outcome { damaged, scrubbed: Some(upto.unwrap_or(range.end)), own: None };
        }
        if kind == ReadKind::Own {
            let outcome = outcome.map(|found| (found.records, found.upto));
            return Outcome { damaged, scrubbed: None, own: Some((request, outcome)) };
        }
        // A replaced or reset subscription ignores earlier reads.
        let takes_any = self.takes_stale_reads;
        let wants = |subscription: &Subscription| takes_any || subscription.reading == Some(ticket);
        if kind == ReadKind::Subscription && !self.subscriptions.get(&(reader, request)).is_some_and(wants) {
            self.feed(reader, request, bounds, out);
            return Outcome { damaged, ..Outcome::default() };
        }
        let outcome = if self.calls_too_much_empty { outcome.map(call_too_much_empty) } else { outcome };
        let answer = outcome.map_err(error_of).and_then(|found| {
            if range.from < range.end {
                bounds.known_of(reader, range.from, empty_to, found)
            } else {
                Ok(found)
            }
        });
        let answer = if range.from < trim { Err(ReadError::Trimmed { first: trim }) } else { answer };
        match (kind, answer) {
            (ReadKind::Read, Ok(Found { records, empty, upto })) => {
                if bounds.is_mapped && matches!(reader, Address::Node(..)) {
                    let answer = MappedAnswer { reader, request, records, from: range.from, upto };
                    self.map(Mapping::Copy(answer), range.from, upto, out);
                } else if empty.is_empty() {
                    send(reader, Message::Records { request, records, upto }, out);
                } else {
                    send(reader, Message::RecordsWith { request, records, empty, upto }, out);
                }
            }
            (ReadKind::Subscription, Ok(found)) => {
                let Some(subscription) = self.subscriptions.get_mut(&(reader, request)) else {
                    return Outcome::default();
                };
                for message in subscription.found(request, found, bounds, self.holds_early) {
                    send(reader, message, out);
                }
                self.feed(reader, request, bounds, out);
            }
            (_, Err(error)) => {
                self.unsubscribe((reader, request));
                fail(reader, request, error, out);
            }
            (ReadKind::Scrub | ReadKind::Own, Ok(_)) => unreachable!("seen above"),
        }
        Outcome { damaged, ..Outcome::default() }
    }

    /// Looks up owners of final positions that this replica has.
    fn map_alone(
        &mut self,
        reader: Address,
        request: u64,
        (from, end): (Position, Position),
        bounds: &Bounds,
        out: &mut Vec<RoleEffect>,
    ) {
        if from < bounds.trim {
            return fail(reader, request, ReadError::Trimmed { first: bounds.trim }, out);
        }
        let known = match bounds.end_from(reader, from, bounds.mappable) {
            Ok(known) => known,
            Err(error) => return fail(reader, request, error, out),
        };
        let most = Position(from.0.saturating_add(limits::MAP_POSITIONS));
        let (view, stable) = (bounds.view, bounds.readable);
        let answer = Mapping::Alone { reader, request, from, view, stable };
        self.map(answer, from, end.min(most).min(known), out);
    }

    fn map(&mut self, answer: Mapping, from: Position, end: Position, out: &mut Vec<RoleEffect>) {
        self.last_ticket.0 += 1;
        let ticket = self.last_ticket;
        self.mapping.insert(ticket, answer);
        out.push(RoleEffect::Map { ticket, from, end: end.max(from) });
    }

    pub(super) fn mapped(
        &mut self,
        ticket: Ticket,
        owned: Vec<Owned>,
        bounds: &Bounds,
        out: &mut Vec<RoleEffect>,
    ) {
        match self.mapping.remove(&ticket) {
            Some(Mapping::Copy(answer)) => {
                let MappedAnswer { reader, request, mut records, from, upto } = answer;
                let upto = upto.min(from + owned.iter().map(|owned| owned.count).sum::<u64>());
                records.retain(|stored| stored.position < upto);
                send(reader, Message::MappedRecords { request, records, owned, upto }, out);
            }
            Some(Mapping::Alone { reader, request, from, .. }) if from < bounds.trim => {
                fail(reader, request, ReadError::Trimmed { first: bounds.trim }, out);
            }
            Some(Mapping::Alone { reader, request, view, stable, .. }) => {
                send(reader, Message::Mapped { request, view, stable, owned }, out);
            }
            None => {}
        }
    }

    /// The store refused a write that these reads rely on. Subscriptions continue when the stable
    /// bound rises; readers retry.
    pub(super) fn discard_reads(&mut self) {
        self.mapping.clear();
        for Reading { reader, request, kind, .. } in std::mem::take(&mut self.reading).into_values() {
            if kind == ReadKind::Subscription
                && let Some(subscription) = self.subscriptions.get_mut(&(reader, request))
            {
                subscription.reading = None;
            }
        }
    }

    pub(super) fn stable_advanced(&mut self, bounds: &Bounds, out: &mut Vec<RoleEffect>) {
        let (stable, trim) = (bounds.readable, bounds.trim);
        let ready: Vec<_> =
            self.waiting.iter().filter(|(_, read)| read.from < stable).map(|(key, _)| *key).collect();
        for (reader, request) in ready {
            let read = self.end_wait((reader, request)).expect("just seen");
            if read.from < trim {
                fail(reader, request, ReadError::Trimmed { first: trim }, out);
            } else {
                self.start_read(reader, request, &read, bounds, out);
            }
        }
        let keys: Vec<_> = self.subscriptions.keys().copied().collect();
        for (reader, request) in keys {
            self.hold(reader, request, bounds, out);
            self.feed(reader, request, bounds, out);
        }
    }

    fn hold(&mut self, reader: Address, request: u64, bounds: &Bounds, out: &mut Vec<RoleEffect>) {
        if let Some(subscription) = self.subscriptions.get_mut(&(reader, request)) {
            let held = subscription.hold(request, bounds);
            held.into_iter().for_each(|message| send(reader, message, out));
        }
    }

    pub(super) fn take_predictions(&self) -> bool {
        !self.speculative.is_empty()
    }

    pub(super) fn predicted(&mut self, bounds: &Bounds, out: &mut Vec<RoleEffect>) {
        for (reader, request) in self.speculative.iter().copied().collect::<Vec<_>>() {
            self.hold(reader, request, bounds, out);
            self.feed(reader, request, bounds, out);
        }
    }

    /// Drops predictions: their view may be over. Readers learn that from the register.
    pub(super) fn forget_predictions(&mut self, stable: Position) {
        self.discard_reads_beyond(stable);
        for reader in &self.speculative {
            if let Some(subscription) = self.subscriptions.get_mut(reader) {
                subscription.forget_predictions();
            }
        }
    }

    pub(super) fn discard_reads_beyond(&mut self, stable: Position) {
        for reader in &self.speculative {
            let Some(subscription) = self.subscriptions.get_mut(reader) else { continue };
            let is_beyond = |reading: &Reading| {
                let is_own = (reading.reader, reading.request) == *reader;
                is_own && reading.kind == ReadKind::Subscription && reading.range.end > stable
            };
            self.reading.retain(|_, reading| !is_beyond(reading));
            subscription.reading = subscription.reading.filter(|ticket| self.reading.contains_key(ticket));
        }
    }

    pub(super) fn trimmed(&mut self, trim: Position, out: &mut Vec<RoleEffect>) {
        let gone = |position: Position| position < trim;
        let keys: Vec<_> =
            self.subscriptions.iter().filter(|(_, s)| gone(s.next)).map(|(key, _)| *key).collect();
        for (reader, request) in keys {
            self.unsubscribe((reader, request));
            fail(reader, request, ReadError::Trimmed { first: trim }, out);
        }
    }

    pub(super) fn awaits(&self, ticket: Ticket) -> bool {
        self.reading.contains_key(&ticket)
    }

    pub(super) fn forget(&mut self, peer: Peer) {
        self.reading.retain(|_, reading| !reading.is_for_client() || reading.reader.peer() != peer);
        self.waiting.retain(|(reader, _), _| reader.peer() != peer);
        self.subscriptions.retain(|(reader, _), _| reader.peer() != peer);
        self.speculative.retain(|(reader, _)| reader.peer() != peer);
        self.shares.give_back(peer, self.shares.of(peer));
    }

    pub(super) fn expire(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        let over: Vec<_> =
            self.waiting.iter().filter(|(_, read)| now >= read.until).map(|(key, _)| *key).collect();
        for (reader, request) in over {
            let read = self.end_wait((reader, request)).expect("just seen");
            send(reader, Message::Records { request, records: vec![], upto: read.from }, out);
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.values().map(|read| read.until).min()
    }
}

/// The history for readers; empty under a mutation.
pub(super) fn deciding(history: &ViewHistory, options: &Options) -> ViewHistory {
    if options.mutates(Mutation::DecidingViewUntold) { ViewHistory::default() } else { history.clone() }
}

/// A mutation: the position after the last empty span is empty too.
fn call_too_much_empty(mut found: Found) -> Found {
    if let Some(last) = found.empty.last_mut().filter(|last| last.end() < found.upto) {
        last.count += 1;
        found.records.retain(|stored| !last.contains(stored.position));
    }
    found
}

fn error_of(failure: ReadFailure) -> ReadError {
    match failure {
        ReadFailure::Damaged(position) => ReadError::Damaged { position },
        ReadFailure::Disk(reason) => ReadError::Disk { reason },
    }
}

fn fail(reader: Address, request: u64, error: ReadError, out: &mut Vec<RoleEffect>) {
    send(reader, Message::ReadFailed { request, error }, out);
}
