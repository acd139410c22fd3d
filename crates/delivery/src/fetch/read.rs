//! One read of a [`Fetch`](super::Fetch): its questions to shards, and their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::storage::Stored;
use seriatim_model::{Effect, NodeId, Placement, Position, ShardId, Span, Time, View};
use seriatim_protocol::parts::Backoff;
use seriatim_protocol::roles::Message;
use seriatim_protocol::shard::{self, ReadError};

use super::Reply;
use super::map::Run;
use crate::failure::Failure;
use crate::source::{Directory, Doubt, Round, Turn, Verdict, feed::disorder, send};

/// Longest time that a question lets the shard wait for records: the shard may miss a view change
/// meanwhile.
const POLL_FOR: Duration = Duration::from_secs(2);
/// First timeout beyond the shard's wait; doubles up to [`RESEND_MOST`].
pub(crate) const RESEND_FIRST: Duration = Duration::from_millis(200);
const RESEND_MOST: Duration = Duration::from_secs(2);
/// First pause before asking all replicas again; doubles up to [`RESEND_MOST`].
pub(crate) const MISSING_PAUSE: Duration = Duration::from_millis(100);
/// First pause before asking a disconnected replica again; doubles up to [`RESEND_MOST`].
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) type Out = Vec<Effect<Message, Reply>>;

/// State shared by the reads of one log.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) directory: Directory,
    last_request: u64,
    /// Token of the asking read, for each unanswered question.
    askers: BTreeMap<u64, u64>,
}

impl Shared {
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory, last_request: 0, askers: BTreeMap::new() }
    }

    pub(crate) fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    pub(crate) fn asker(&self, request: u64) -> Option<u64> {
        self.askers.get(&request).copied()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) from: Position,
    pub(crate) max: u32,
    /// Time limit for the first record; until then shards wait for it.
    pub(crate) until: Time,
    /// Additional time limit for the answers of slow shards.
    pub(crate) answer_within: Duration,
}

#[derive(Debug)]
pub(crate) struct Read {
    token: u64,
    wanted: Wanted,
    end: Position,
    /// Time limit for the whole read.
    give_up: Time,
    /// Owners of the range. Only these shards are asked. None: unknown.
    owners: Option<Vec<Run>>,
    parts: BTreeMap<ShardId, ShardPart>,
    /// Whether the first position is a gap, or the known view outdated.
    doubt: Doubt,
}

#[derive(Debug)]
struct ShardPart {
    node: NodeId,
    replica: usize,
    /// Replicas that answered that they cannot serve the first position.
    round: Round,
    /// The failure, if all replicas lack the record. The part continues to ask.
    in_vain: Option<Failure>,
    rounds: Backoff,
    request: u64,
    /// Time of the next question; None after an answer.
    ask_at: Option<Time>,
    /// Count and pause of the question's repetitions; the pause is the answer timeout.
    tries: Backoff,
    reconnects: Backoff,
    answered: bool,
    /// Exclusive end of the shard's loss, if it lost its record at the first position.
    lost: Option<Position>,
    records: Vec<Stored>,
    empty: Vec<Span>,
    upto: Position,
}

impl Read {
    pub(crate) fn new(
        now: Time,
        token: u64,
        wanted: Wanted,
        end: Position,
        owners: Option<Vec<Run>>,
    ) -> Self {
        let give_up = wanted.until.max(now) + wanted.answer_within;
        Self { token, wanted, end, give_up, owners, parts: BTreeMap::new(), doubt: Doubt::default() }
    }

    /// The read from `next` on, after positions without records. None: `next` is the first position
    /// of this read.
    pub(crate) fn rest_from(&self, next: Position) -> Option<Wanted> {
        (next > self.wanted.from).then_some(Wanted { from: next, ..self.wanted })
    }

    pub(crate) fn deadline(&self) -> Time {
        self.parts.values().filter_map(|part| part.ask_at).fold(self.give_up, Time::min)
    }

    /// Adds a question to the primary of each shard of the range.
    pub(crate) fn ask_shards(&mut self, now: Time, shared: &mut Shared) {
        let Some(view) = shared.directory.view() else { return };
        let is_gone = |shard: ShardId| shard != ShardId::NOBODY && view.holders(shard).is_none();
        if self.owners.iter().flatten().any(|(_, shard)| is_gone(*shard)) {
            self.owners = None;
        }
        let shards = self.shards(&shared.directory, view);
        let askers = &mut shared.askers;
        self.parts.retain(|shard, part| {
            let ends_before = view.retired(*shard).is_some_and(|retired| retired.until <= self.wanted.from);
            if ends_before {
                askers.remove(&part.request);
            }
            !ends_before
        });
        for shard in shards {
            let given_up = shared.directory.given_up(shard).filter(|gap| gap.contains(self.wanted.from));
            if let Some(gap) = given_up {
                let part = ShardPart::new(view.leader, self.wanted.from);
                self.parts.insert(shard, ShardPart { answered: true, lost: Some(gap.end), ..part });
                continue;
            }
            let Some(members) = view.holders(shard) else { continue };
            let primary = members.primary().node;
            let part = self.parts.entry(shard).or_insert_with(|| ShardPart::new(primary, self.wanted.from));
            if part.upto == self.wanted.from {
                (part.node, part.replica) = (primary, 0);
                part.round.begin();
                part.ask(now, &mut shared.askers);
            }
        }
    }

    /// Shards that may hold a position of the range; if there is none, a shard that can report a
    /// trim.
    fn shards(&self, directory: &Directory, view: &View) -> Vec<ShardId> {
        let placement = directory.placement();
        let retired = view.retired.iter().filter(|retired| self.wanted.from < retired.until);
        let most = view.shards.len() + view.retired.len();
        let mut shards = vec![];
        let mut position = self.wanted.from;
        while position < self.end && shards.len() < most {
            let Some((shard, run_end)) = self.run_at(placement, position) else {
                let shards = view.shards.iter().map(|members| members.shard);
                let ended = directory.ended().map(|gap| gap.shard);
                return shards.chain(retired.map(|retired| retired.shard)).chain(ended).collect();
            };
            if shard != ShardId::NOBODY && !shards.contains(&shard) {
                shards.push(shard);
            }
            position = run_end;
        }
        if shards.iter().all(|shard| view.shard(*shard).is_none()) {
            shards.extend(view.shards.first().map(|members| members.shard));
        }
        shards
    }

    /// The owner of `position` (possibly no shard) and the end of its run, if known.
    fn run_at(&self, placement: Option<&Placement>, position: Position) -> Option<(ShardId, Position)> {
        if let Some(placement) = placement {
            return Some(placement.stripe_at(position));
        }
        let owners = self.owners.as_ref()?;
        let index = owners.partition_point(|(end, _)| *end <= position);
        owners.get(index).map(|(end, shard)| (*shard, *end))
    }

    pub(crate) fn ask_due(&mut self, now: Time, shared: &mut Shared, out: &mut Out) {
        for (shard, part) in &mut self.parts {
            if part.ask_at.is_none_or(|at| now < at) {
                continue;
            }
            if part.request != 0 {
                // No answer in time: a lost message, or a replica that is down or deposed.
                part.cancel(*shard, shared, out);
                part.tries.tried(now);
                part.turn_away(*shard, &mut shared.directory, now);
            }
            let wait = self.wanted.until.since(now).min(POLL_FOR);
            part.request = shared.next_request();
            shared.askers.insert(part.request, self.token);
            part.ask_at = Some(now + wait + part.tries.pause());
            let message = shard::Message::Read {
                request: part.request,
                from: self.wanted.from,
                end: self.end,
                max_records: u32::try_from(self.end - self.wanted.from).unwrap_or(u32::MAX),
                wait_ms: wait.as_millis() as u32,
            };
            send(part.node, *shard, message, out);
        }
    }

    /// Handles a shard's records. Returns the answer of the read if it is complete.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        (node, shard, request): (NodeId, ShardId, u64),
        (records, empty, upto): (Vec<Stored>, Vec<Span>, Position),
        shared: &mut Shared,
        out: &mut Out,
    ) -> Option<Reply> {
        let position = self.wanted.from;
        let ends_at =
            shared.directory.view().and_then(|view| view.retired(shard)).map(|retired| retired.until);
        if upto == position && ends_at.is_some_and(|ends_at| position < ends_at) {
            // Everything below `upto` is decided, so this replica lacks the record at `position`.
            let failure = Failure::Missing { position, shard };
            return self.try_next(now, (node, shard, request), failure, shared, out);
        }
        let part = self.part(node, shard, request)?;
        if let Some(position) = disorder(part.upto, &records, &empty, upto) {
            return Some(Reply::Failed(Failure::Disordered { position, shard }));
        }
        part.rest(None, &mut shared.askers);
        (part.records, part.empty, part.upto) = (records, empty, upto);
        (part.answered, part.lost) = (true, None);
        part.round.begin();
        self.conclude(now, shared, out)
    }

    pub(crate) fn failed(
        &mut self,
        now: Time,
        (node, shard, request): (NodeId, ShardId, u64),
        error: ReadError,
        shared: &mut Shared,
        out: &mut Out,
    ) -> Option<Reply> {
        let part = self.part(node, shard, request)?;
        let failure = match error {
            ReadError::Trimmed { first } => return Some(Reply::Failed(Failure::Trimmed { first })),
            ReadError::Lost { position, end } if shared.directory.tells_lost(shard, position, end) => {
                part.rest(None, &mut shared.askers);
                (part.answered, part.lost) = (true, Some(end));
                return self.conclude(now, shared, out);
            }
            ReadError::Damaged { position } => Failure::Damaged { position, shard },
            ReadError::Missing { position, .. } => Failure::Missing { position, shard },
            ReadError::Disk { reason } => Failure::Disk { shard, reason },
            ReadError::Busy | ReadError::NotStable { .. } | ReadError::Lost { .. } => {
                part.tries.tried(now);
                part.rest(Some(part.tries.at()), &mut shared.askers);
                // A deposed replica may stay busy forever, and an accepted loss may be in an
                // unknown view.
                shared.directory.ask(now);
                return None;
            }
        };
        self.try_next(now, (node, shard, request), failure, shared, out)
    }

    /// Asks the shard's next replica, which has the same records or will copy them.
    fn try_next(
        &mut self,
        now: Time,
        (node, shard, request): (NodeId, ShardId, u64),
        failure: Failure,
        shared: &mut Shared,
        out: &mut Out,
    ) -> Option<Reply> {
        let part = self.part(node, shard, request)?;
        if let Some(next) = shared.directory.next_to(shard, part.replica) {
            (part.node, part.replica) = next;
        }
        match part.round.said_no(node, failure, shared.directory.replicas(shard)) {
            Turn::Next => {
                part.ask(now, &mut shared.askers);
                self.ask_due(now, shared, out);
                return None;
            }
            // Another view may have a replica with the record, or a replica may be copying it:
            // continue to ask until the read's deadline.
            Turn::All(failure @ Failure::Missing { .. }) => part.in_vain = Some(failure),
            Turn::All(failure) => return Some(Reply::Failed(failure)),
            Turn::Again => {}
        }
        part.rounds.tried(now);
        part.rest(Some(part.rounds.at()), &mut shared.askers);
        shared.directory.ask(now);
        None
    }

    /// Enters a newer view. Answers from `lost_from` on are void after an accepted loss.
    pub(crate) fn enter_view(&mut self, now: Time, lost_from: Position, shared: &mut Shared, out: &mut Out) {
        if lost_from < self.end {
            self.owners = None;
        }
        let view = shared.directory.view();
        let has_left = |shard: &ShardId| view.is_some_and(|view| view.holders(*shard).is_none());
        // Records of a shard that left are trimmed, and other shards' answers may predate the trim:
        // ask again.
        let must_ask_again = self.doubt.is_open()
            || self.parts.iter().any(|(shard, part)| has_left(shard) || part.upto > lost_from);
        self.doubt.enter_view(must_ask_again.then_some(self.wanted.from));
        if must_ask_again {
            self.forget_answers(shared, out);
        }
        self.ask_shards(now, shared);
        self.ask_due(now, shared, out);
    }

    /// The register confirmed the known view in its answer to question number `answer`.
    pub(crate) fn view_confirmed(
        &mut self,
        now: Time,
        answer: u64,
        shared: &mut Shared,
        out: &mut Out,
    ) -> Option<Reply> {
        if let Verdict::Gap(gap) = self.doubt.view_confirmed(answer)? {
            return Some(Reply::Failed(gap));
        }
        self.forget_answers(shared, out);
        self.ask_shards(now, shared);
        self.ask_due(now, shared, out);
        None
    }

    fn forget_answers(&mut self, shared: &mut Shared, out: &mut Out) {
        self.cancel(shared, out);
        self.parts.clear();
    }

    pub(crate) fn disconnected(&mut self, now: Time, node: NodeId, shared: &mut Shared) {
        let asks = |part: &ShardPart| part.node == node && part.request != 0;
        for (shard, part) in self.parts.iter_mut().filter(|(_, part)| asks(part)) {
            part.reconnects.tried(now);
            part.rest(Some(part.reconnects.at()), &mut shared.askers);
            part.turn_away(*shard, &mut shared.directory, now);
        }
    }

    pub(crate) fn timer(&mut self, now: Time, shared: &mut Shared, out: &mut Out) -> Option<Reply> {
        if now >= self.give_up {
            return Some(self.give_up(&shared.directory));
        }
        self.ask_due(now, shared, out);
        None
    }

    pub(crate) fn cancel(&mut self, shared: &mut Shared, out: &mut Out) {
        for (shard, part) in self.parts.iter_mut().filter(|(_, part)| part.request != 0) {
            part.cancel(*shard, shared, out);
        }
    }

    /// Answers the read, once the shard that owns the next position has answered.
    fn conclude(&mut self, now: Time, shared: &mut Shared, out: &mut Out) -> Option<Reply> {
        if !self.is_known_untrimmed(shared.directory.view()?) {
            return None;
        }
        let next = self.reach(shared.directory.placement());
        let shard = self.holder(shared.directory.placement(), next);
        let Some(part) = self.parts.get(&shard).filter(|_| next < self.end) else {
            return Some(self.answer(next));
        };
        let is_first = next == self.wanted.from;
        let places = shared.directory.placement().is_some();
        if part.ask_at.is_some() {
            if !is_first {
                // Some records can be returned already: shorten the wait for this shard.
                self.give_up = self.give_up.min(now + RESEND_FIRST);
            }
            None
        } else if let Some(end) = part.lost.filter(|_| is_first && self.is_nowhere_else(shard, places)) {
            let end = self.lost_to(shard, end, &shared.directory);
            Some(Reply::Failed(Failure::Lost { position: next, shard, end }))
        } else if is_first && part.upto > next {
            self.doubt.raise(now, next, shard, &mut shared.directory);
            None
        } else if is_first && now < self.wanted.until {
            // No record yet: ask again. The view may have ended without the shards' knowledge.
            let from = self.wanted.from;
            let empty = self.parts.values_mut().filter(|part| part.upto == from && part.request == 0);
            empty.for_each(|part| part.ask_at = Some(now));
            shared.directory.ask(now);
            self.ask_due(now, shared, out);
            None
        } else {
            if is_first && self.parts.values().any(|other| other.upto > next) {
                // The shard may have left the view unknowingly; then every read would end here.
                shared.directory.refresh(now, out);
            }
            Some(self.answer(next))
        }
    }

    /// Whether the answers reflect trims. Shards outside the view receive none: they count after
    /// another shard has answered.
    fn is_known_untrimmed(&self, view: &View) -> bool {
        let is_outside = |shard: &ShardId| view.shard(*shard).is_none();
        let answered = |(shard, part): (&ShardId, &ShardPart)| part.answered && !is_outside(shard);
        !self.parts.keys().any(is_outside) || self.parts.iter().any(answered)
    }

    /// Whether only this shard can have the first position, by placement or by the others' answers.
    fn is_nowhere_else(&self, shard: ShardId, places: bool) -> bool {
        let mut others = self.parts.iter().filter(|(other, _)| **other != shard);
        places || others.all(|(_, part)| part.upto > self.wanted.from || part.lost.is_some())
    }

    /// End of the run without records: the shard's loss, up to the next record of another shard.
    fn lost_to(&self, shard: ShardId, end: Position, directory: &Directory) -> Position {
        let from = self.wanted.from;
        if let (Some(placement), Some(view)) = (directory.placement(), directory.view()) {
            let others = view.shards.iter().map(|members| members.shard).filter(|other| *other != shard);
            return others.filter_map(|other| placement.first_of(other, from, end)).min().unwrap_or(end);
        }
        let run_end = self.run_at(None, from).map(|(_, run_end)| run_end);
        let others = self.parts.iter().filter(|(other, _)| **other != shard).map(|(_, part)| part);
        let next = others.map(|part| part.lost.unwrap_or_else(|| part.first_there()));
        next.chain(run_end).fold(end, Position::min)
    }

    /// The deadline passed: answers with the received records, or a failure.
    fn give_up(&mut self, directory: &Directory) -> Reply {
        let why = directory.entry().unavailable.clone();
        if directory.view().is_none() {
            return Reply::Failed(Failure::NoView { why });
        }
        let next = self.reach(directory.placement());
        let shard = self.holder(directory.placement(), next);
        match self.parts.get(&shard) {
            Some(part) if next == self.wanted.from && !part.answered => {
                let node = part.round.silent(part.node, directory.replicas(shard));
                Reply::Failed(part.in_vain.clone().unwrap_or(Failure::Unanswered { shard, node, why }))
            }
            _ => self.answer(next),
        }
    }

    fn answer(&mut self, next: Position) -> Reply {
        let mut records: Vec<Stored> =
            self.parts.values_mut().flat_map(|part| std::mem::take(&mut part.records)).collect();
        records.retain(|stored| stored.position < next && !stored.record.is_no_op());
        records.sort_unstable_by_key(|stored| stored.position);
        Reply::Records { records, next }
    }

    fn part(&mut self, node: NodeId, shard: ShardId, request: u64) -> Option<&mut ShardPart> {
        self.parts.get_mut(&shard).filter(|part| part.node == node && part.request == request)
    }

    /// The owner of `next`. If unknown: the first shard whose answer may show it.
    fn holder(&self, placement: Option<&Placement>, next: Position) -> ShardId {
        let known = self.run_at(placement, next).map(|(shard, _)| shard);
        if let Some(shard) = known.filter(|shard| *shard != ShardId::NOBODY) {
            return shard;
        }
        let is_unanswered = |part: &ShardPart| part.ask_at.is_some() && part.upto <= next;
        let unanswered = self.parts.iter().find(|(_, part)| is_unanswered(part));
        let behind = self.parts.iter().find(|(_, part)| part.upto <= next);
        unanswered.or(behind).or(self.parts.iter().next()).map_or(ShardId(0), |(shard, _)| *shard)
    }

    /// The first position of the range that the received answers do not decide.
    fn reach(&self, placement: Option<&Placement>) -> Position {
        let mut taken: BTreeMap<ShardId, std::slice::Iter<'_, Stored>> =
            self.parts.iter().map(|(shard, part)| (*shard, part.records.iter())).collect();
        let mut empty: Vec<Span> = self.parts.values().flat_map(|part| part.empty.iter().copied()).collect();
        empty.sort_unstable_by_key(|span| span.first);
        let mut empty = empty.into_iter().peekable();
        let has = |records: &std::slice::Iter<'_, Stored>, next: Position| {
            records.as_slice().first().is_some_and(|stored| stored.position == next)
        };
        let mut next = self.wanted.from;
        while next < self.end {
            while empty.next_if(|span| span.end() <= next).is_some() {}
            if let Some(span) = empty.peek().filter(|span| span.contains(next)) {
                // The span may end beyond the range.
                next = span.end();
                continue;
            }
            let (records, stop) = match self.run_at(placement, next) {
                Some((ShardId::NOBODY, run_end)) => {
                    next = run_end.min(self.end);
                    continue;
                }
                Some((shard, run_end)) => (taken.get_mut(&shard), run_end.min(self.end)),
                None => (taken.values_mut().find(|records| has(records, next)), next.next()),
            };
            let Some(records) = records else { break };
            while next < stop && has(records, next) {
                records.next();
                next = next.next();
            }
            if next < stop {
                break;
            }
        }
        next
    }
}

impl ShardPart {
    fn new(node: NodeId, from: Position) -> Self {
        Self {
            node,
            replica: 0,
            round: Round::default(),
            in_vain: None,
            rounds: Backoff::new(Time::ZERO, MISSING_PAUSE, RESEND_MOST),
            request: 0,
            ask_at: None,
            tries: Backoff::new(Time::ZERO, RESEND_FIRST, RESEND_MOST),
            reconnects: Backoff::new(Time::ZERO, PAUSE, RESEND_MOST),
            answered: false,
            lost: None,
            records: vec![],
            empty: vec![],
            upto: from,
        }
    }

    /// First position with a record or empty span; if there is none, the end of the answer.
    fn first_there(&self) -> Position {
        let record = self.records.first().map(|stored| stored.position);
        let empty = self.empty.first().map(|span| span.first);
        record.into_iter().chain(empty).fold(self.upto, Position::min)
    }

    /// Moves on from a silent or disconnected replica: asks the register, or another replica.
    fn turn_away(&mut self, shard: ShardId, directory: &mut Directory, now: Time) {
        if let Some(instead) = directory.instead_of(shard, self.replica, &self.round) {
            (self.node, self.replica) = instead;
        }
        directory.ask(now);
    }

    fn ask(&mut self, now: Time, askers: &mut BTreeMap<u64, u64>) {
        self.rest(Some(now), askers);
    }

    /// Stops waiting for the current answer. Asks again at `ask_at`; None: not at all.
    fn rest(&mut self, ask_at: Option<Time>, askers: &mut BTreeMap<u64, u64>) {
        askers.remove(&self.request);
        (self.request, self.ask_at) = (0, ask_at);
    }

    fn cancel(&mut self, shard: ShardId, shared: &mut Shared, out: &mut Out) {
        send(self.node, shard, shard::Message::Cancel { request: self.request }, out);
        self.rest(None, &mut shared.askers);
    }
}
