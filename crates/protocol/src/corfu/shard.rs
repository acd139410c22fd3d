//! Positions that clients write, down the chain of replicas (Corfu §3).
//!
//! A shard's *chain* is its replicas from the last to the first: its *head* is the last backup, its
//! other end the primary, which serves reads. A client writes to each in turn. So all replicas have
//! what the primary has, and the head decides a position's content in that view.
//!
//! A position is written once. Memory has the written positions from the stable bound on: a view
//! begins with everything below its start written, and a restarted replica waits for the next view.
//! For lower positions the replica asks the store.
//!
//! Below the primary's *stable* bound, every position of the shard is durable on all replicas. For
//! overdue positions the primary asks the head, which passes its record down the chain, or writes
//! junk. Readers skip junk as a no-op.

mod message;
mod seeking;
mod vacancies;

pub use message::Message;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use seriatim_model::storage::{Run, StorageCommand, Stored};
use seriatim_model::{
    Address, Endpoint, Member, NodeId, Peer, Placement, Position, RecordId, SessionId, ShardId, Span, Ticket,
    Time, View, ViewNumber, limits,
};

use crate::mutation::Mutation;
use crate::parts::Retransmit;
use crate::parts::junk::{self, junk};
use crate::roles::{self, RoleEffect};
use crate::shard::{self, Applied, Core, DataPath, OwnOutcome, send};
use seeking::sought;
use vacancies::{Vacancy, Writers, by_position, filled};

/// Maximum number of positions per fill or flush part.
const MOST_POSITIONS: u64 = limits::READ_RECORDS as u64;

/// Data path for positions that clients write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    /// Records written under this claim from the stable bound on, with tickets.
    at: BTreeMap<Position, (RecordId, Ticket)>,
    /// Bound of permanent placement: the position right below is on a whole chain of some shard in
    /// this view, so no later view places lower positions differently.
    placed_below: Position,
    /// Writes in progress, each with its sender.
    writes: VecDeque<(Ticket, Address, ViewNumber, Vec<Span>)>,
    reads: BTreeMap<u64, OwnRead>,
    last_read: u64,
    filling: Option<Filling>,
    /// Timer of the question to the head.
    fill_timer: Retransmit,
    flushing: Option<Flushing>,
    /// Claim of the last fence since the process started. Each claim decides once what to flush.
    fenced: ViewNumber,
    writers: Writers,
    /// The stable bound last sent to the backups.
    passed_on: Position,
}

#[derive(Clone, Debug)]
pub(super) enum OwnRead {
    /// A client writes at final positions.
    Check {
        client: Address,
        view: ViewNumber,
        wanted: Vec<(Position, RecordId)>,
    },
    Fill {
        primary: Address,
        view: ViewNumber,
    },
    Seek {
        client: Address,
        view: ViewNumber,
        session: SessionId,
        from: Position,
    },
    Flush,
}

/// Primary: holes being filled.
#[derive(Clone, Debug)]
struct Filling {
    /// The next fill starts when everything below is written, or the head times out.
    end: Position,
    /// Runs sent to the middle of the chain, each with the replicas that lack it.
    runs: Vec<(Run, BTreeSet<NodeId>)>,
}

#[derive(Clone, Debug)]
struct Flushing {
    claim: ViewNumber,
    controller: Address,
    placement: Placement,
    backups: Vec<Member>,
    next: Position,
    end: Position,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Reads,
    /// Clients are asked for records for its vacant positions.
    Asks(Vacancy),
    /// The part is being written to all replicas; it ends at this position.
    Writes(Position, Vec<Run>),
}

impl DataPath for Chain {
    fn boxed(&self) -> Box<dyn DataPath> {
        Box::new(self.clone())
    }

    fn receive(
        &mut self,
        core: &mut Core,
        now: Time,
        from: Address,
        message: roles::Message,
        out: &mut Vec<RoleEffect>,
    ) {
        let message = match message {
            roles::Message::CorfuShard(message) => message,
            roles::Message::Shard(message) => return self.receive_common(core, from, message, out),
            _ => return,
        };
        match message {
            Message::Write { view, runs } => {
                self.note_writer(core, now, from, out);
                self.write(core, from, view, runs, out);
            }
            Message::Offer { claim, upto, runs } => {
                self.offered(core, now, from, claim, (upto, runs), out);
            }
            Message::Written { view, spans, .. } => self.filled_at(core, from, view, &spans, out),
            Message::FillRequest { view, written, overdue } if serves(core, from, view, out) => {
                self.overdue(core, now, from, (written, overdue), out);
            }
            Message::Fill { view, spans } if serves(core, from, view, out) => {
                self.fill_as_head(core, from, view, &spans, out);
            }
            Message::Filled { view, run } if serves(core, from, view, out) => {
                self.filled(core, view, run, out)
            }
            Message::Confirm { request, view } if serves(core, from, view, out) => {
                send(from, Message::Confirmed { request, view }, out);
            }
            Message::Seek { view, session, from: first, end } if serves(core, from, view, out) => {
                self.seek(core, from, (view, session), (first, end), out);
            }
            _ => {}
        }
    }

    fn persisted(&mut self, core: &mut Core, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        while self.writes.front().is_some_and(|(written, ..)| *written <= ticket) {
            let (.., spans) = self.writes.pop_front().expect("the front was just seen");
            let end = spans.into_iter().map(Span::end).max().unwrap_or_default();
            if core.is_primary() {
                // All replicas have the primary's records.
                self.placed_below = self.placed_below.max(end);
            }
        }
        self.advance_written(core, out);
    }

    /// No room: the sender repeats the write.
    fn failed(&mut self, _: &mut Core, _: Time, ticket: Ticket, out: &mut Vec<RoleEffect>) {
        let Some(index) = self.writes.iter().position(|(written, ..)| *written == ticket) else {
            return;
        };
        let Some((_, from, view, spans)) = self.writes.remove(index) else { return };
        for position in spans.iter().flat_map(|span| span.positions()) {
            if self.at.get(&position).is_some_and(|(_, written)| *written == ticket) {
                self.at.remove(&position);
            }
        }
        send(from, Message::Retry { view, spans, disk_full: true }, out);
    }

    fn taken_back(&mut self, core: &mut Core, _: Option<Applied>) {
        // The replica's own reads may be wrong.
        self.reads.clear();
        core.sit_out();
    }

    fn stopped(&mut self, _: &mut Core, _: &mut Vec<RoleEffect>) {
        self.at.clear();
        self.writes.clear();
        self.reads.clear();
        (self.filling, self.flushing) = (None, None);
    }

    /// A flush writes part after part, each to all replicas, and nothing else is written under the
    /// view's number before registration. So the last part implies the others.
    fn has_flushed(&self, core: &Core, view: &View) -> bool {
        let written = core.end_under(view.number).max(view.first);
        view.placement.first_of(core.shard, written, view.start).is_none()
    }

    fn learned(&mut self, view: &View) {
        (self.placed_below, self.passed_on) = (view.start, Position::ZERO);
        self.flushing = None;
        self.writers.begin();
    }

    fn fenced(&mut self, claim: ViewNumber) {
        self.fenced = claim;
    }

    /// Forgets final positions, which the store knows.
    fn stable_raised(&mut self, core: &mut Core, _: &mut Vec<RoleEffect>) {
        if self.at.first_key_value().is_some_and(|(first, _)| *first < core.stable) {
            self.at = self.at.split_off(&core.stable);
        }
    }

    fn written_below(&self, core: &Core) -> Position {
        let Some(view) = core.memory.view.as_ref() else { return core.stable };
        let end = core.end_under(view.number);
        self.first_unwritten((core.shard, &view.placement), (core.stable, end), |_| true)
    }

    fn deadline(&self, core: &Core) -> Option<Time> {
        match &self.flushing {
            Some(Flushing { stage: Stage::Asks(vacancy), .. }) => {
                Some(vacancy.deadline(core.options.limits.missing_connected))
            }
            _ => None,
        }
    }

    fn timer(&mut self, core: &mut Core, now: Time, out: &mut Vec<RoleEffect>) {
        self.decide_vacant(core, now, out);
    }

    fn disconnected(&mut self, _: Time, peer: Peer) {
        self.writers.disconnected(peer);
        if let Some(Flushing { stage: Stage::Asks(vacancy), .. }) = &mut self.flushing {
            vacancy.disconnected(peer);
        }
    }

    fn looked_up(&mut self, core: &mut Core, question: u64, outcome: OwnOutcome, out: &mut Vec<RoleEffect>) {
        match (self.reads.remove(&question), outcome) {
            (Some(OwnRead::Check { client, view, wanted }), outcome) => {
                checked(client, view, wanted, outcome, out);
            }
            (Some(OwnRead::Fill { primary, view }), Ok((records, _))) => {
                let mut runs = vec![];
                for Stored { position, id, record } in records {
                    junk::push(&mut runs, position, (id, record));
                }
                for run in runs {
                    core.gate.confirm(primary, Message::Filled { view, run }, out);
                }
            }
            (Some(OwnRead::Seek { client, view, session, from }), outcome) => {
                sought(core, client, (view, session), from, outcome, out);
            }
            (Some(OwnRead::Flush), outcome) => self.flush_read(core, outcome, out),
            (Some(OwnRead::Fill { .. }), Err(_)) | (None, _) => {}
        }
    }
}

impl Chain {
    fn receive_common(
        &mut self,
        core: &mut Core,
        from: Address,
        message: shard::Message,
        out: &mut Vec<RoleEffect>,
    ) {
        match message {
            shard::Message::Flush { claim, incarnation, first, end, placement, backups }
                if claim == core.memory.claim && incarnation == core.me().incarnation =>
            {
                if self.fenced != claim {
                    // It may have flushed a part before a restart, and clients may offer other
                    // records now.
                    return send(from, shard::Message::FlushFailed { claim }, out);
                }
                if self.flushing.is_none() {
                    let (controller, next, stage) = (from, first, Stage::Reads);
                    let flushing = Flushing { claim, controller, placement, backups, next, end, stage };
                    self.flushing = Some(flushing);
                }
                self.flush_on(core, out);
            }
            shard::Message::Flush { .. } => {
                // Wait until the claim is durable: a controller at a later attempt may count this
                // as its answer.
                let fenced = core.fenced();
                core.gate.confirm(from, fenced, out);
            }
            shard::Message::Bound { view, batch, .. } => self.flush_bound(core, view, batch, out),
            _ => {}
        }
    }

    /// Starts a read. `None` if too many reads are in progress.
    pub(super) fn read_for_client(&mut self, read: OwnRead, most: usize) -> Option<u64> {
        (self.reads.len() < most).then(|| self.read(read))
    }

    fn read(&mut self, read: OwnRead) -> u64 {
        self.last_read += 1;
        self.reads.insert(self.last_read, read);
        self.last_read
    }

    /// The shard's first position from `from` on without a write that `counts`; at most `end`, the
    /// bound of permanent placement.
    fn first_unwritten(
        &self,
        (shard, placement): (ShardId, &Placement),
        (from, end): (Position, Position),
        counts: impl Fn(Ticket) -> bool,
    ) -> Position {
        let is_written =
            |position: Position| self.at.get(&position).is_some_and(|(_, ticket)| counts(*ticket));
        own_positions(placement, shard, from, end)
            .find(|position| !is_written(*position))
            .unwrap_or(end.max(from))
    }

    /// Writes each position once.
    fn write(
        &mut self,
        core: &mut Core,
        from: Address,
        view: ViewNumber,
        runs: Vec<Run>,
        out: &mut Vec<RoleEffect>,
    ) {
        if !serves(core, from, view, out) {
            if view == core.memory.claim {
                // The view's start, and so the written positions, will be known soon.
                let spans = runs.iter().map(span_of).collect();
                send(from, Message::Retry { view, spans, disk_full: false }, out);
            }
            return;
        }
        let named = runs.iter().flat_map(|run| &run.records);
        if named.clone().any(|(_, record)| core.memory.config.is_too_large(record)) {
            // Our clients never send too large a record.
            return;
        }
        let (mut fresh, mut written, mut others, mut wanted) = (vec![], vec![], vec![], vec![]);
        // Refuse positions far ahead: an invented position must not force all lower ones to be
        // filled.
        let too_far = core.stable + limits::MOST_AHEAD;
        let (runs, far): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(|run| run.end() <= too_far);
        if !far.is_empty() {
            let spans = far.iter().map(span_of).collect();
            send(from, Message::Retry { view, spans, disk_full: false }, out);
        }
        for run in runs {
            for (position, (id, record)) in (run.first.0..).map(Position).zip(run.records) {
                if position < core.stable {
                    wanted.push((position, id));
                    continue;
                }
                if !owns(core, position) {
                    // The position is another shard's.
                    continue;
                }
                written.push(position);
                match self.at.get(&position) {
                    None => junk::push(&mut fresh, position, (id, record)),
                    Some((other, _)) if *other != id => others.push((position, *other)),
                    Some(_) => {}
                }
            }
        }
        self.check(core, from, view, wanted, out);
        if core.pressed && !fresh.is_empty() && matches!(from, Address::Client(..)) {
            send(from, Message::Pressed { view }, out);
        }
        self.take(core, from, view, fresh, out);
        if !written.is_empty() {
            let spans = Span::of(written.into_iter());
            core.gate.confirm(from, Message::Written { view, spans, others }, out);
        }
    }

    fn take(
        &mut self,
        core: &mut Core,
        from: Address,
        view: ViewNumber,
        runs: Vec<Run>,
        out: &mut Vec<RoleEffect>,
    ) {
        if runs.is_empty() {
            return;
        }
        let spans: Vec<Span> = runs.iter().map(span_of).collect();
        let named: Vec<(Position, RecordId)> = runs
            .iter()
            .flat_map(|run| (run.first.0..).map(Position).zip(run.records.iter().map(|(id, _)| *id)))
            .collect();
        let end = runs.iter().map(Run::end).max().unwrap_or_default();
        let ticket = core.gate.store(StorageCommand::Bind { view, runs }, out);
        self.at.extend(named.into_iter().map(|(position, id)| (position, (id, ticket))));
        core.note_end(view, end);
        self.writes.push_back((ticket, from, view, spans));
        if core.gate.is_durable(ticket) {
            self.persisted(core, ticket, out);
        }
    }

    /// A client writes final positions: looks them up.
    fn check(
        &mut self,
        core: &mut Core,
        client: Address,
        view: ViewNumber,
        wanted: Vec<(Position, RecordId)>,
        out: &mut Vec<RoleEffect>,
    ) {
        for part in wanted.chunk_by(|(one, _), (next, _)| one.next() == *next) {
            let (from, end) = (part[0].0, part[part.len() - 1].0.next());
            let question = self.read(OwnRead::Check { client, view, wanted: part.to_vec() });
            core.look_up(question, from, end, out);
        }
    }

    /// Primary: raises the stable bound to the first unwritten position. All replicas have the
    /// records below.
    fn advance_written(&mut self, core: &mut Core, out: &mut Vec<RoleEffect>) {
        if !core.is_primary() || !core.is_open() {
            if core.options.mutates(Mutation::ReadFromHead) {
                core.feed_readers(self, out);
            }
            return;
        }
        let Some(view) = core.memory.view.as_ref() else { return };
        let (place, range) = ((core.shard, &view.placement), (core.stable, self.placed_below));
        let stable = self.first_unwritten(place, range, |ticket| core.gate.is_durable(ticket));
        core.advance_stable(self, stable, out);
    }

    /// Primary: fills overdue positions, and reports the written bound to the sequencer.
    fn overdue(
        &mut self,
        core: &mut Core,
        now: Time,
        from: Address,
        (written, overdue): (Position, Position),
        out: &mut Vec<RoleEffect>,
    ) {
        let view = core.view_number();
        self.placed_below = self.placed_below.max(written);
        self.advance_written(core, out);
        if core.stable < overdue {
            self.fill(core, now, view, overdue, out);
        }
        if core.stable > self.passed_on {
            self.passed_on = core.stable;
            core.pass_on_stable(view, out);
        }
        send(from, shard::Message::StableKnown { view, stable: core.stable }, out);
    }

    /// Primary: asks the head about unwritten positions below `overdue`.
    fn fill(
        &mut self,
        core: &Core,
        now: Time,
        view: ViewNumber,
        overdue: Position,
        out: &mut Vec<RoleEffect>,
    ) {
        match &self.filling {
            Some(filling) if core.stable < filling.end => {
                if !self.fill_timer.expires(now) {
                    return;
                }
            }
            Some(_) => {
                self.fill_timer.answered(now);
                self.fill_timer.start(now);
            }
            None => self.fill_timer.start(now),
        }
        let Some(known) = core.memory.view.as_ref() else { return };
        let Some(head) = core.members().and_then(|members| members.replicas.last()).copied() else {
            return;
        };
        let end = overdue.min(core.stable + MOST_POSITIONS);
        let missing = own_positions(&known.placement, core.shard, core.stable, end)
            .filter(|position| !self.at.contains_key(position));
        let spans = Span::of(missing);
        let Some(last) = spans.last().copied() else { return };
        self.filling = Some(Filling { end: last.end(), runs: vec![] });
        let head = Address::Node(head.node, Endpoint::Shard(core.shard));
        send(head, Message::Fill { view, spans }, out);
    }

    /// Head: writes junk into holes, and sends the content.
    fn fill_as_head(
        &mut self,
        core: &mut Core,
        from: Address,
        view: ViewNumber,
        spans: &[Span],
        out: &mut Vec<RoleEffect>,
    ) {
        let over_value = core.options.mutates(Mutation::JunkOverValue);
        let mut runs = vec![];
        for position in spans.iter().flat_map(|span| span.positions()) {
            if position >= core.stable && (over_value || !self.at.contains_key(&position)) {
                junk::push(&mut runs, position, junk(position));
            }
        }
        self.take(core, from, view, runs, out);
        for span in spans {
            let question = self.read(OwnRead::Fill { primary: from, view });
            core.look_up(question, span.first, span.end(), out);
        }
    }

    /// Primary: passes the head's records on.
    fn filled(&mut self, core: &mut Core, view: ViewNumber, run: Run, out: &mut Vec<RoleEffect>) {
        let Some(members) = core.members() else { return };
        let middle = members.replicas.iter().skip(1).take(members.replicas.len().saturating_sub(2));
        let waiting: BTreeSet<NodeId> = middle.map(|member| member.node).collect();
        if waiting.is_empty() {
            return self.take_filled(core, view, run, out);
        }
        for node in &waiting {
            let to = Address::Node(*node, Endpoint::Shard(core.shard));
            send(to, Message::Write { view, runs: vec![run.clone()] }, out);
        }
        if let Some(filling) = &mut self.filling {
            filling.runs.push((run, waiting));
        }
    }

    /// Primary: a middle replica has these records.
    fn filled_at(
        &mut self,
        core: &mut Core,
        from: Address,
        view: ViewNumber,
        spans: &[Span],
        out: &mut Vec<RoleEffect>,
    ) {
        let (Address::Node(node, _), Some(filling)) = (from, &mut self.filling) else { return };
        let covers = |span: &Span, run: &Run| span.first <= run.first && run.end() <= span.end();
        let mut done = vec![];
        filling.runs.retain_mut(|(run, waiting)| {
            if spans.iter().any(|span| covers(span, run)) {
                waiting.remove(&node);
            }
            if waiting.is_empty() {
                done.push(run.clone());
            }
            !waiting.is_empty()
        });
        if serves(core, from, view, out) {
            done.into_iter().for_each(|run| self.take_filled(core, view, run, out));
        }
    }

    /// Primary: takes the records that all others have.
    fn take_filled(&mut self, core: &mut Core, view: ViewNumber, run: Run, out: &mut Vec<RoleEffect>) {
        let mut fresh = vec![];
        for (position, named) in (run.first.0..).map(Position).zip(run.records) {
            if position >= core.stable && !self.at.contains_key(&position) {
                junk::push(&mut fresh, position, named);
            }
        }
        let me = Address::Node(core.me().node, Endpoint::Shard(core.shard));
        self.take(core, me, view, fresh, out);
    }

    /// Reports progress, and continues or repeats the next part.
    fn flush_on(&mut self, core: &mut Core, out: &mut Vec<RoleEffect>) {
        let Some(Flushing { claim, controller, next, end, stage, backups, .. }) = &self.flushing else {
            return;
        };
        let (claim, controller, next, end) = (*claim, *controller, *next, *end);
        send(controller, shard::Message::Flushed { claim, upto: next }, out);
        match stage {
            _ if next >= end => {}
            Stage::Reads => {
                self.reads.retain(|_, read| !matches!(read, OwnRead::Flush));
                let question = self.read(OwnRead::Flush);
                core.look_up(question, next, end.min(next + MOST_POSITIONS), out);
            }
            Stage::Asks(vacancy) => vacancy.ask(out),
            Stage::Writes(_, runs) => {
                let (backups, runs) = (backups.clone(), runs.clone());
                self.flush_part(core, claim, next, &backups, runs, out);
            }
        }
    }

    /// Asks clients about the part's vacant positions.
    fn flush_read(&mut self, core: &mut Core, outcome: OwnOutcome, out: &mut Vec<RoleEffect>) {
        let old = core.view_number();
        let Some(flushing) = &mut self.flushing else { return };
        let (claim, next) = (flushing.claim, flushing.next);
        let Ok((records, upto)) = outcome else {
            return send(flushing.controller, shard::Message::FlushFailed { claim }, out);
        };
        let own = own_positions(&flushing.placement, core.shard, next, upto);
        let asks = !core.options.mutates(Mutation::VacantUnasked);
        let writers = Some(&self.writers).filter(|_| asks);
        let vacancy =
            writers.and_then(|writers| Vacancy::new((claim, old), (next, upto), &records, own, writers));
        if let Some(vacancy) = vacancy {
            vacancy.ask(out);
            flushing.stage = Stage::Asks(vacancy);
            return;
        }
        let own = own_positions(&flushing.placement, core.shard, next, upto);
        let runs = filled(own, by_position(&records));
        self.flush_decided(core, upto, runs, out);
    }

    fn offered(
        &mut self,
        core: &mut Core,
        now: Time,
        from: Address,
        claim: ViewNumber,
        (upto, runs): (Position, Vec<Run>),
        out: &mut Vec<RoleEffect>,
    ) {
        let mut named = runs.iter().flat_map(|run| &run.records);
        if named.any(|(_, record)| core.memory.config.is_too_large(record)) {
            // Our clients never send too large a record.
            return;
        }
        if let Some(Flushing { stage: Stage::Asks(vacancy), .. }) =
            self.flushing.as_mut().filter(|flushing| flushing.claim == claim)
        {
            vacancy.offered(now, from, upto, runs);
            self.decide_vacant(core, now, out);
        }
    }

    fn note_writer(&mut self, core: &Core, now: Time, from: Address, out: &mut Vec<RoleEffect>) {
        self.writers.note(from, core.options.limits.waiting_reads);
        if let Some(Flushing { stage: Stage::Asks(vacancy), .. }) = &mut self.flushing {
            vacancy.comes(now, from, &self.writers, out);
        }
    }

    /// Decides the part once no offers are awaited.
    fn decide_vacant(&mut self, core: &mut Core, now: Time, out: &mut Vec<RoleEffect>) {
        let timeout = core.options.limits.missing_connected;
        let Some(flushing) = &mut self.flushing else { return };
        let Stage::Asks(vacancy) = &mut flushing.stage else { return };
        vacancy.begin(now);
        if !vacancy.is_decided(now, timeout) {
            return;
        }
        let Stage::Asks(vacancy) = std::mem::replace(&mut flushing.stage, Stage::Reads) else { return };
        let own = own_positions(&flushing.placement, core.shard, flushing.next, flushing.end);
        let (upto, runs) = vacancy.decide(own);
        self.flush_decided(core, upto, runs, out);
    }

    fn flush_decided(&mut self, core: &mut Core, upto: Position, runs: Vec<Run>, out: &mut Vec<RoleEffect>) {
        let Some(flushing) = &mut self.flushing else { return };
        let (claim, first, backups) = (flushing.claim, flushing.next, flushing.backups.clone());
        flushing.stage = Stage::Writes(upto, runs.clone());
        self.flush_part(core, claim, first, &backups, runs, out);
    }

    fn flush_part(
        &mut self,
        core: &mut Core,
        claim: ViewNumber,
        first: Position,
        backups: &[Member],
        runs: Vec<Run>,
        out: &mut Vec<RoleEffect>,
    ) {
        if runs.is_empty() {
            return self.flush_bound(core, claim, first, out);
        }
        let me = Address::Node(core.me().node, Endpoint::Shard(core.shard));
        core.bind(self, me, (claim, first), backups, runs, out);
    }

    fn flush_bound(&mut self, core: &mut Core, view: ViewNumber, batch: Position, out: &mut Vec<RoleEffect>) {
        let Some(flushing) = self.flushing.as_mut().filter(|flushing| flushing.claim == view) else {
            return;
        };
        let Stage::Writes(upto, _) = &flushing.stage else { return };
        if flushing.next != batch {
            return;
        }
        (flushing.next, flushing.stage) = (*upto, Stage::Reads);
        self.flush_on(core, out);
    }
}

/// Whether this replica takes part in the registered view; otherwise informs the sender.
fn serves(core: &Core, from: Address, view: ViewNumber, out: &mut Vec<RoleEffect>) -> bool {
    let fenced = core.options.mutates(Mutation::WrittenWhileFenced) && view == core.view_number();
    fenced || core.accepts(from, view, out) && core.is_open() && view == core.view_number()
}

fn owns(core: &Core, position: Position) -> bool {
    core.memory.view.as_ref().is_some_and(|view| view.placement.shard_of(position) == core.shard)
}

/// Answers a lookup. Missing or damaged content is unreadable.
fn checked(
    client: Address,
    view: ViewNumber,
    wanted: Vec<(Position, RecordId)>,
    outcome: OwnOutcome,
    out: &mut Vec<RoleEffect>,
) {
    let (records, upto) = outcome.unwrap_or_default();
    let there: BTreeMap<Position, RecordId> =
        records.into_iter().map(|stored| (stored.position, stored.id)).collect();
    let (mut written, mut unreadable, mut others) = (vec![], vec![], vec![]);
    for (position, id) in wanted {
        match there.get(&position) {
            Some(found) => {
                written.push(position);
                others.extend((*found != id).then_some((position, *found)));
            }
            // Beyond one read: the client asks for these positions again.
            None if position >= upto && upto > Position::ZERO => {}
            None => unreadable.push(position),
        }
    }
    let (written, spans) = (Span::of(written.into_iter()), Span::of(unreadable.into_iter()));
    if !written.is_empty() {
        send(client, Message::Written { view, spans: written, others }, out);
    }
    if !spans.is_empty() {
        send(client, Message::Unreadable { view, spans }, out);
    }
}

fn span_of(run: &Run) -> Span {
    Span { first: run.first, count: run.records.len() as u64 }
}

pub(super) fn own_positions(
    placement: &Placement,
    shard: ShardId,
    from: Position,
    end: Position,
) -> impl Iterator<Item = Position> + use<'_> {
    let mut next = from;
    std::iter::from_fn(move || {
        let position = placement.first_of(shard, next, end)?;
        next = position.next();
        Some(position)
    })
}
