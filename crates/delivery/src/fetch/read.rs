//! One read of a [`Fetch`](super::Fetch): which shards are asked, and what comes of it.

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

/// How long a shard is asked to wait at once. The view may change meanwhile without its noticing.
const POLL_FOR: Duration = Duration::from_secs(2);
/// How long to wait for an answer, beyond what the shard was asked to wait; doubled up to
/// [`RESEND_MOST`].
pub(crate) const RESEND_FIRST: Duration = Duration::from_millis(200);
const RESEND_MOST: Duration = Duration::from_secs(2);
/// How long to wait before all replicas are asked again for what none of those that answer gives
/// out; doubled up to [`RESEND_MOST`].
pub(crate) const MISSING_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait before a replica that disconnected is asked again; doubled up to
/// [`RESEND_MOST`].
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) type Out = Vec<Effect<Message, Reply>>;

/// The state that the reads of one log share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) directory: Directory,
    last_request: u64,
    /// The read that asked each unanswered question.
    askers: BTreeMap<u64, u64>,
}

impl Shared {
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory, last_request: 0, askers: BTreeMap::new() }
    }

    /// A number for a question.
    pub(crate) fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// The read that asked this.
    pub(crate) fn asker(&self, request: u64) -> Option<u64> {
        self.askers.get(&request).copied()
    }
}

/// The records that a caller wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The first position.
    pub(crate) from: Position,
    /// Of how many positions at most.
    pub(crate) max: u32,
    /// Until when to wait for the first record.
    pub(crate) until: Time,
    /// How long to wait, beyond that, for shards that do not answer.
    pub(crate) answer_within: Duration,
}

/// A read that is not answered yet.
#[derive(Debug)]
pub(crate) struct Read {
    token: u64,
    wanted: Wanted,
    /// The end of the positions that are asked for.
    end: Position,
    /// Until when to wait for an answer at all.
    give_up: Time,
    /// Which shards hold the range, if it is known. Only they are asked.
    owners: Option<Vec<Run>>,
    parts: BTreeMap<ShardId, ShardPart>,
    /// Of the first position.
    doubt: Doubt,
}

/// One shard's part of a read.
#[derive(Debug)]
struct ShardPart {
    node: NodeId,
    replica: usize,
    /// The replicas that cannot give out the first position, ...
    round: Round,
    /// ... the failure if all of them said so, ...
    in_vain: Option<Failure>,
    /// ... and when they are asked again for it.
    rounds: Backoff,
    request: u64,
    /// When to ask, if no answer comes before; none when it answered.
    ask_at: Option<Time>,
    /// Questions that were not answered, or not now; its pause is how long an answer may take.
    tries: Backoff,
    /// When it is asked again after its node disconnected.
    reconnects: Backoff,
    /// Whether it ever answered this read.
    answered: bool,
    /// It lost what it had of the first position, if that was its own, and up to this one.
    lost: Option<Position>,
    records: Vec<Stored>,
    /// The positions that it called empty.
    empty: Vec<Span>,
    upto: Position,
}

impl Read {
    /// A read of what is wanted up to `end`, of which `owners` hold all if they are known.
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

    /// The rest of what is wanted, where no position below `next` has a record; nothing, if that is
    /// not known of any.
    pub(crate) fn rest_from(&self, next: Position) -> Option<Wanted> {
        (next > self.wanted.from).then_some(Wanted { from: next, ..self.wanted })
    }

    pub(crate) fn deadline(&self) -> Time {
        self.parts.values().filter_map(|part| part.ask_at).fold(self.give_up, Time::min)
    }

    /// Sets up a part for each shard that holds a position in the range, at its primary.
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

    /// The shards that may hold a position in the range. If none of the view does, one that can say
    /// whether it is trimmed.
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

    /// The shard that holds `position`, or nobody, and the end of the run of positions from there
    /// on of which that is true, if that is known.
    fn run_at(&self, placement: Option<&Placement>, position: Position) -> Option<(ShardId, Position)> {
        if let Some(placement) = placement {
            return Some(placement.stripe_at(position));
        }
        let owners = self.owners.as_ref()?;
        let index = owners.partition_point(|(end, _)| *end <= position);
        owners.get(index).map(|(end, shard)| (*shard, *end))
    }

    /// Asks the shards whose time has come.
    pub(crate) fn ask_due(&mut self, now: Time, shared: &mut Shared, out: &mut Out) {
        for (shard, part) in &mut self.parts {
            if part.ask_at.is_none_or(|at| now < at) {
                continue;
            }
            if part.request != 0 {
                // No answer: a lost message, or a replica that is gone or deposed.
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

    /// A shard gave out records. Returns the answer to the whole, if that is all that was waited
    /// for.
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
            // All below that is decided: a replica that says nothing of it does not have it.
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

    /// A shard could not do it.
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
                // A replica that is deposed and does not know may have no room for ever; and of a
                // loss a view tells that is not known here, nor are the shards that it has.
                shared.directory.ask(now);
                return None;
            }
        };
        self.try_next(now, (node, shard, request), failure, shared, out)
    }

    /// One replica cannot give it out: the next of the shard is asked, which holds the same
    /// records, or will.
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
            // Another view may have a replica that holds it, or it is on its way: a replica that is
            // new, or whose log lost something, copies first. That takes as long as there is to
            // copy, so the read's own deadline counts.
            Turn::All(failure @ Failure::Missing { .. }) => part.in_vain = Some(failure),
            Turn::All(failure) => return Some(Reply::Failed(failure)),
            Turn::Again => {}
        }
        part.rounds.tried(now);
        part.rest(Some(part.rounds.at()), &mut shared.askers);
        shared.directory.ask(now);
        None
    }

    /// There is a new view. Where an operator accepted a loss, what was given out from `lost_from`
    /// on does not count.
    pub(crate) fn enter_view(&mut self, now: Time, lost_from: Position, shared: &mut Shared, out: &mut Out) {
        if lost_from < self.end {
            self.owners = None;
        }
        let view = shared.directory.view();
        let has_left = |shard: &ShardId| view.is_some_and(|view| view.holders(*shard).is_none());
        // The records of a shard that has left are trimmed: the other shards, which may have
        // answered before that, say so when they are asked again.
        let must_ask_again = self.doubt.is_open()
            || self.parts.iter().any(|(shard, part)| has_left(shard) || part.upto > lost_from);
        self.doubt.enter_view(must_ask_again.then_some(self.wanted.from));
        if must_ask_again {
            self.forget_answers(shared, out);
        }
        self.ask_shards(now, shared);
        self.ask_due(now, shared, out);
    }

    /// The register says, in answer to this question, that there is no newer view.
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

    /// All are to be asked anew.
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

    /// Nobody waits for the answers any more.
    pub(crate) fn cancel(&mut self, shared: &mut Shared, out: &mut Out) {
        for (shard, part) in self.parts.iter_mut().filter(|(_, part)| part.request != 0) {
            part.cancel(*shard, shared, out);
        }
    }

    /// Answers if the shard that holds the next position has said what it has of it.
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
                // There is something to answer with: this shard is not waited for much longer.
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
            // Nothing yet. Perhaps because the view is over and nobody told the shards.
            let from = self.wanted.from;
            let empty = self.parts.values_mut().filter(|part| part.upto == from && part.request == 0);
            empty.for_each(|part| part.ask_at = Some(now));
            shared.directory.ask(now);
            self.ask_due(now, shared, out);
            None
        } else {
            if is_first && self.parts.values().any(|other| other.upto > next) {
                // The shard may be in no view any more, and so do all reads find it.
                shared.directory.refresh(now, out);
            }
            Some(self.answer(next))
        }
    }

    /// A shard outside the view does not hear of trims: what it has counts when another has
    /// answered.
    fn is_known_untrimmed(&self, view: &View) -> bool {
        let is_outside = |shard: &ShardId| view.shard(*shard).is_none();
        let answered = |(shard, part): (&ShardId, &ShardPart)| part.answered && !is_outside(shard);
        !self.parts.keys().any(is_outside) || self.parts.iter().any(answered)
    }

    /// Whether no shard but this one can have the first position: its place says so, or all others
    /// did.
    fn is_nowhere_else(&self, shard: ShardId, places: bool) -> bool {
        let mut others = self.parts.iter().filter(|(other, _)| **other != shard);
        places || others.all(|(_, part)| part.upto > self.wanted.from || part.lost.is_some())
    }

    /// Where the run of positions ends, from the first on, of which it is known that nobody has
    /// them: the shard lost what it had up to `end`, and no other has anything before.
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

    /// The time is over: what is there must do.
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

    /// Merges what came of `from..next`.
    fn answer(&mut self, next: Position) -> Reply {
        let mut records: Vec<Stored> =
            self.parts.values_mut().flat_map(|part| std::mem::take(&mut part.records)).collect();
        records.retain(|stored| stored.position < next && !stored.record.is_no_op());
        records.sort_unstable_by_key(|stored| stored.position);
        Reply::Records { records, next }
    }

    /// The part that this answer is for.
    fn part(&mut self, node: NodeId, shard: ShardId, request: u64) -> Option<&mut ShardPart> {
        self.parts.get_mut(&shard).filter(|part| part.node == node && part.request == request)
    }

    /// The shard that has `next`, or is the first to say whether it has.
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

    /// The first position that did not come.
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
                // It may reach beyond the range: so much is known at once.
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

    /// The first position of which the shard says anything but that it has nothing there.
    fn first_there(&self) -> Position {
        let record = self.records.first().map(|stored| stored.position);
        let empty = self.empty.first().map(|span| span.first);
        record.into_iter().chain(empty).fold(self.upto, Position::min)
    }

    /// The replica that was asked is silent, or gone: there may be a view that does without it, or
    /// another one is asked.
    fn turn_away(&mut self, shard: ShardId, directory: &mut Directory, now: Time) {
        if let Some(instead) = directory.instead_of(shard, self.replica, &self.round) {
            (self.node, self.replica) = instead;
        }
        directory.ask(now);
    }

    /// Is to be asked anew, now.
    fn ask(&mut self, now: Time, askers: &mut BTreeMap<u64, u64>) {
        self.rest(Some(now), askers);
    }

    /// Waits for no answer, and is asked anew at some time, if at all.
    fn rest(&mut self, ask_at: Option<Time>, askers: &mut BTreeMap<u64, u64>) {
        askers.remove(&self.request);
        (self.request, self.ask_at) = (0, ask_at);
    }

    /// Tells whoever was asked that nobody waits for the answer.
    fn cancel(&mut self, shard: ShardId, shared: &mut Shared, out: &mut Out) {
        send(self.node, shard, shard::Message::Cancel { request: self.request }, out);
        self.rest(None, &mut shared.askers);
    }
}
