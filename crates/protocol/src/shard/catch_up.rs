//! Copies records from other replicas of the shard. *Catch-up* copies records that a new replica
//! never held or that were bound while the replica was away. *Repair* copies records that its disk
//! damaged.
//!
//! These records are final: their positions are below the start of the view that the replica
//! joined. The store keeps them as versions of the view that decides their positions. Only one
//! question is in flight at a time, so that appends continue.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::storage::{MissingRange, Owned, Run, Stored};
use seriatim_model::{
    Address, Endpoint, Gap, Member, NodeId, Position, ShardId, Ticket, Time, ViewHistory, ViewNumber, limits,
};

use super::core::send;
use super::damage::Damage;
use super::former::Former;
use super::message::Message;
use crate::mutation::{Mutation, Options};
use crate::parts::timeouts::next_timeout_within;
use crate::roles::RoleEffect;

/// Delay of a new replica's catch-up, since its view may be short-lived. Repair starts at once: the
/// next view may lack the replica that has the record.
const NEW_REPLICA_WAITS: Duration = Duration::from_secs(1);
/// First and shortest timeout of a question. `CatchUp::timeout` follows the answer times, and
/// doubles with each missing answer.
const TIMEOUT: Duration = Duration::from_millis(500);
const TIMEOUT_MOST: Duration = Duration::from_secs(20);
/// Pause between questions while the node has too much to write, in multiples of the last copy's
/// duration.
const YIELDED: u32 = 3;
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Default)]
pub(super) struct CatchUp {
    /// Whether another replica has reported the trim point.
    trim_is_known: bool,
    ignorant: BTreeSet<NodeId>,
    others: Vec<NodeId>,
    pub(super) former: Former,
    damage: Damage,
    /// Whether the last question was for a repair. Catch-up is then next.
    asked_of_damage: bool,
    question: Option<Question>,
    /// Timeout of a question, measured and hence no [`Backoff`](crate::parts::Backoff). `None`
    /// before the first answer.
    timeout: Option<Duration>,
    last_request: u64,
    turn: usize,
    retry_at: Time,
    copies_from: Time,
    /// Whether the replica stands in for an absent member: it copies nothing until a controller
    /// asks it to.
    stands_by: bool,
    /// When the question of the last written answer was sent.
    copied_since: Option<Time>,
}

#[derive(Clone, Debug)]
struct Question {
    /// Number of the first request. Retries with other replicas have the next numbers, and late
    /// answers to any of them are accepted.
    first: u64,
    asked: Vec<(NodeId, Time)>,
    range: MissingRange,
    about: About,
    decided_by: Option<ViewNumber>,
    ask_again_at: Time,
    writing: Option<Writing>,
}

/// The answer's writes: tickets above `after`, up to `last`.
#[derive(Clone, Copy, Debug)]
struct Writing {
    source: NodeId,
    after: Ticket,
    last: Ticket,
    upto: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Trim,
    Missing,
    Damage,
}

impl CatchUp {
    pub(super) fn start_as_new(&mut self, now: Time, options: Options) {
        self.copies_from = now + NEW_REPLICA_WAITS;
        if options.mutates(Mutation::RepairWaits) {
            self.retry_at = self.copies_from;
        }
    }

    /// `stands_in`: the log assigns the shard to an absent node, which may return soon with all but
    /// the latest records. A copy would be wasted then.
    pub(super) fn joins(&mut self, stands_in: bool, options: Options) {
        self.stands_by = stands_in && !options.mutates(Mutation::StandInCopies);
    }

    pub(super) fn stands_by(&self) -> bool {
        self.stands_by
    }

    /// A controller asks the replica to hold everything: the member was away too long.
    pub(super) fn copy_all(&mut self) {
        self.stands_by = false;
    }

    pub(super) fn add_damaged(&mut self, position: Position) {
        self.damage.add(position);
    }

    /// Drops the question: a new view may exclude the replica that was asked.
    pub(super) fn restart(&mut self) {
        self.question = None;
        self.turn = 0;
        self.trim_is_known = false;
        self.ignorant.clear();
        self.damage.ask_anew();
    }

    pub(super) fn knows_trim(&self) -> bool {
        self.trim_is_known
    }

    /// The records to ask for now. `None`: nothing is due, or the trim point must be asked first.
    pub(super) fn wants(
        &self,
        now: Time,
        trim: Position,
        missing: Option<MissingRange>,
    ) -> Option<MissingRange> {
        self.wanted(now, trim, missing).filter(|(_, about)| *about != About::Trim).map(|(range, _)| range)
    }

    /// The next due question. Repair comes first, since another replica has the record now; after a
    /// full round without success it alternates with catch-up.
    fn wanted(
        &self,
        now: Time,
        trim: Position,
        missing: Option<MissingRange>,
    ) -> Option<(MissingRange, About)> {
        if now < self.retry_at {
            return None;
        }
        let damaged = self.damage.next().filter(|(due, _)| *due <= now);
        let missing = self.to_copy(missing).filter(|_| now >= self.copies_from);
        let missing = missing.map(|range| match self.trim_is_known {
            true => (range, About::Missing),
            false => (MissingRange { from: trim, end: trim }, About::Trim),
        });
        match damaged {
            Some((due, _)) if missing.is_some() && self.asked_of_damage && due > Time::ZERO => missing,
            Some((_, at)) => Some((MissingRange { from: at, end: at.next() }, About::Damage)),
            None => missing,
        }
    }

    /// A stand-in asks only for the trim point.
    fn to_copy(&self, missing: Option<MissingRange>) -> Option<MissingRange> {
        missing.filter(|_| !self.stands_by || !self.trim_is_known)
    }

    pub(super) fn deadline(&self, missing: Option<MissingRange>) -> Option<Time> {
        let asks_at = match &self.question {
            Some(Question { writing: Some(_), .. }) => None,
            Some(question) => Some(question.ask_again_at),
            None => {
                let damaged = self.damage.next().map(|(due, _)| due);
                let copies = self.to_copy(missing).map(|_| self.copies_from);
                let due = damaged.into_iter().chain(copies).min();
                due.map(|due| due.max(self.retry_at))
            }
        };
        let seeks = missing.is_some() || !self.damage.is_empty();
        let keeps_at = seeks.then(|| self.former.keeps_at()).flatten();
        asks_at.into_iter().chain(keeps_at).min()
    }

    /// Notifies replicas outside the view that they may be needed.
    pub(super) fn keep(
        &mut self,
        now: Time,
        of: (ShardId, Position),
        missing: Option<MissingRange>,
        out: &mut Vec<RoleEffect>,
    ) {
        let Self { former, damage, .. } = self;
        let may_have = |node, last| missing.is_some() || damage.may_be_had_from(node, last);
        former.keep(now, of, may_have, out);
    }

    /// Pauses copying while the node has too much to write: copying takes all available room, and
    /// the node would reject appends.
    pub(super) fn yield_to_appends(&mut self, now: Time) {
        if let Some(since) = self.copied_since.take() {
            let took = now - since;
            self.retry_at = self.retry_at.max(now + (took * YIELDED).min(TIMEOUT_MOST));
        }
    }

    /// Sends the next question, unless an answer is outstanding, to one of the view's `others` or a
    /// former replica that knows the view `decided_by`.
    pub(super) fn ask(
        &mut self,
        now: Time,
        shard: ShardId,
        (others, decided_by): (&[Member], Option<ViewNumber>),
        trim: Position,
        missing: Option<MissingRange>,
        out: &mut Vec<RoleEffect>,
    ) {
        let busy = self.question.as_ref().is_some_and(|q| q.writing.is_some() || now < q.ask_again_at);
        if busy {
            return;
        }
        let unanswered = self.question.take();
        if let Some(question) = &unanswered {
            let (node, _) = question.asked.last().expect("a replica was asked");
            self.former.note(*node, false);
            // A replica outside the view may be gone permanently: its silence does not count.
            if others.iter().any(|other| other.node == *node) {
                self.timeout = Some((self.timeout() * 2).min(TIMEOUT_MOST));
            }
        }
        let Some((range, about)) = self.wanted(now, trim, missing) else { return };
        self.others = others.iter().map(|member| member.node).collect();
        self.asked_of_damage = about == About::Damage;
        let outside: Vec<NodeId> = match about {
            About::Trim => vec![],
            About::Missing | About::Damage => self.former.that_answer(decided_by).collect(),
        };
        let source = match about {
            About::Damage => self.damage.source(range.from, (&self.others, &outside), decided_by),
            About::Trim | About::Missing => {
                let sources = self.others.len() + outside.len();
                let source = self.others.iter().chain(&outside).nth(self.turn % sources.max(1)).copied();
                self.turn += usize::from(source.is_some());
                source
            }
        };
        let Some(source) = source else {
            if about == About::Damage {
                self.damage.in_vain(now, range.from, self.former.that_know(decided_by));
            }
            self.retry_at = now + TIMEOUT;
            return;
        };
        self.last_request += 1;
        let request = self.last_request;
        let ask_again_at = now + self.timeout();
        let same = unanswered.filter(|question| (question.range, question.about) == (range, about));
        let (first, mut asked) = same.map_or((request, vec![]), |question| (question.first, question.asked));
        asked.push((source, now));
        let question = Question { first, asked, range, about, decided_by, ask_again_at, writing: None };
        self.question = Some(question);
        self.copied_since = None;
        let message = Message::Read {
            request,
            from: range.from,
            end: range.end,
            max_records: limits::READ_RECORDS,
            wait_ms: 0,
        };
        send(Address::Node(source, Endpoint::Shard(shard)), message, out);
    }

    fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }

    fn asked(&mut self, request: u64) -> Option<(&mut Question, NodeId, Time)> {
        let question = self.question.as_mut().filter(|question| question.writing.is_none())?;
        let (source, at) =
            *question.asked.get(usize::try_from(request.checked_sub(question.first)?).ok()?)?;
        Some((question, source, at))
    }

    fn answered(&mut self, now: Time, (source, at): (NodeId, Time)) {
        self.former.note(source, true);
        let timeout = next_timeout_within(self.timeout(), now - at, TIMEOUT..=TIMEOUT_MOST);
        self.timeout = Some(timeout);
    }

    /// Handles an answer. Returns its records to write and their first position. The caller reports
    /// the writes with [`written`](Self::written).
    pub(super) fn records(
        &mut self,
        now: Time,
        request: u64,
        records: Vec<Stored>,
        upto: Position,
    ) -> Option<(Position, Vec<Stored>)> {
        let (question, source, at) = self.asked(request)?;
        if question.about == About::Trim {
            self.learned_trim(now, request);
            return None;
        }
        if upto <= question.range.from && !question.range.is_empty() {
            // The other replica does not know these positions as final yet.
            self.refused(now, request, false);
            return None;
        }
        let from = question.range.from;
        question.writing = Some(Writing { source, after: Ticket(0), last: Ticket(0), upto });
        let about = question.about;
        self.answered(now, (source, at));
        // Asks the replica that served this copy again.
        self.turn -= usize::from(about == About::Missing);
        Some((from, records))
    }

    pub(super) fn writing(&mut self, after: Ticket, last: Ticket) {
        if let Some(Question { writing: Some(writing), .. }) = &mut self.question {
            (writing.after, writing.last) = (after, last);
        }
    }

    /// Whether to write now that nothing is missing. Rate-limited, since the store may be full.
    pub(super) fn may_finish(&mut self, now: Time) -> bool {
        let may = now >= self.retry_at;
        if may {
            self.retry_at = now + TIMEOUT;
        }
        may
    }

    pub(super) fn learned_trim(&mut self, now: Time, request: u64) {
        if let Some((_, source, at)) = self.asked(request) {
            self.answered(now, (source, at));
            self.question = None;
            self.trim_is_known = true;
            self.retry_at = self.retry_at.min(now);
        }
    }

    /// The other replica does not know or hold the range. If no member knows the trim point, an
    /// operator accepted its loss.
    pub(super) fn not_there(&mut self, now: Time, request: u64) {
        let Some((Question { about: About::Trim, .. }, source, _)) = self.asked(request) else {
            return self.refused(now, request, true);
        };
        self.ignorant.insert(source);
        if self.ignorant.len() < self.others.len() {
            return self.refused(now, request, true);
        }
        self.learned_trim(now, request);
    }

    /// The other replica cannot help now, or is outside the view and `lacks` the record. A late
    /// refusal does not end the wait for a later request.
    pub(super) fn refused(&mut self, now: Time, request: u64, lacks: bool) {
        let Some((question, source, at)) = self.asked(request) else { return };
        let (range, about, decided_by) = (question.range, question.about, question.decided_by);
        let is_outside = !self.others.contains(&source);
        if about == About::Damage && lacks && is_outside {
            self.damage.note_lack(source, range.from);
        }
        if request != self.last_request {
            return;
        }
        self.answered(now, (source, at));
        self.question = None;
        self.retry_at = now + PAUSE;
        if about == About::Damage {
            self.damage.in_vain(now, range.from, self.former.that_know(decided_by));
        }
    }

    /// A write is stored. Returns the new missing range if it shrank.
    pub(super) fn written(
        &mut self,
        ticket: Ticket,
        missing: Option<MissingRange>,
    ) -> Option<Option<MissingRange>> {
        let question = self.question.as_ref()?;
        let Writing { source, upto, .. } = question.writing.filter(|writing| writing.last <= ticket)?;
        let (range, about) = (question.range, question.about);
        self.copied_since = question.asked.last().map(|(_, at)| *at);
        self.question = None;
        if about == About::Damage {
            self.damage.mended(range.from, source);
            return None;
        }
        missing.map(|missing| missing.above(upto))
    }

    pub(super) fn failed(&mut self, now: Time, ticket: Ticket) {
        let writing = self.question.as_ref().and_then(|question| question.writing);
        if writing.is_some_and(|writing| writing.after < ticket && ticket <= writing.last) {
            self.question = None;
            self.retry_at = now + TIMEOUT;
        }
    }

    pub(super) fn leave_damage(&mut self, trim: Position, gaps: impl Iterator<Item = Gap> + Clone) {
        self.damage.retain(|position| position >= trim && !gaps.clone().any(|gap| gap.contains(position)));
    }
}

/// Groups records by deciding view, as runs for the store.
pub(super) fn as_pushed(
    history: &ViewHistory,
    records: Vec<Stored>,
) -> Vec<(seriatim_model::ViewNumber, Vec<Run>)> {
    let mut pushed: Vec<(_, Vec<Run>)> = vec![];
    for Stored { position, id, record } in records {
        let Some(view) = history.cover(position) else { continue };
        if pushed.last().is_none_or(|(last, _)| *last != view) {
            pushed.push((view, vec![]));
        }
        let runs = &mut pushed.last_mut().expect("just pushed").1;
        match runs.last_mut().filter(|run| run.end() == position) {
            Some(run) => run.records.push((id, record)),
            None => runs.push(Run { first: position, records: vec![(id, record)] }),
        }
    }
    pushed
}

/// Groups maps by deciding view, for the store.
pub(super) fn as_mapped(
    history: &ViewHistory,
    from: Position,
    owned: Vec<Owned>,
) -> Vec<(seriatim_model::ViewNumber, Position, Vec<Owned>)> {
    let mut mapped: Vec<(_, _, Vec<Owned>)> = vec![];
    let mut position = from;
    for Owned { shard, count } in owned {
        let end = position + count;
        while position < end {
            let decided_to = history.cover_end(position).map_or(end, |next| next.min(end));
            let part = Owned { shard, count: decided_to - position };
            if let Some(view) = history.cover(position) {
                match mapped.last_mut().filter(|(last, _, _)| *last == view) {
                    Some((_, _, owned)) => owned.push(part),
                    None => mapped.push((view, position, vec![part])),
                }
            }
            position = decided_to;
        }
    }
    mapped
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Incarnation, Record, RecordId, SessionId, ShardMembers};

    use super::*;

    fn stored(position: u64) -> Stored {
        let id = RecordId { session: SessionId::new(Position(0), 1), number: position };
        Stored { position: Position(position), id, record: Record::new(b"record".as_slice(), 0) }
    }

    #[test]
    fn two_damaged_records_are_got_from_the_two_replicas_that_have_one_each() {
        let members = members([1, 2]);
        let has = |node: u32, position: u64| (node, position) == (1, 0) || (node, position) == (2, 7);
        let (mut catch_up, mut now, mut asked) = (CatchUp::default(), Time(1), vec![]);
        [7, 0].iter().for_each(|position| catch_up.add_damaged(Position(*position)));
        while !catch_up.damage.is_empty() && asked.len() < 8 {
            let mut out = vec![];
            catch_up.ask(now, ShardId(0), (&members, None), Position(0), None, &mut out);
            let question = catch_up.question.as_ref().expect("something is damaged");
            let (node, position) = (question.asked[0].0.0, question.range.from);
            let request = catch_up.last_request;
            asked.push((node, position.0));
            if has(node, position.0) {
                let records = vec![stored(position.0)];
                catch_up.records(now, request, records, position.next()).expect("it is the answer");
                catch_up.writing(Ticket(0), Ticket(1));
                catch_up.written(Ticket(1), None);
            } else {
                catch_up.not_there(now, request);
            }
            now = now + PAUSE;
        }
        assert_eq!(asked, [(1, 0), (1, 7), (2, 7)]);
        // A round asks both replicas, even before either has answered.
        let (mut catch_up, mut now, mut asked) = (CatchUp::default(), Time(1), vec![]);
        [7, 0].iter().for_each(|position| catch_up.add_damaged(Position(*position)));
        while asked.len() < 4 {
            catch_up.ask(now, ShardId(0), (&members, None), Position(0), None, &mut vec![]);
            let question = catch_up.question.as_ref().expect("something is damaged");
            asked.push((question.asked[0].0.0, question.range.from.0));
            catch_up.not_there(now, catch_up.last_request);
            now = now + PAUSE;
        }
        assert_eq!(asked, [(1, 0), (2, 0), (1, 7), (2, 7)]);
    }

    #[test]
    fn what_is_copied_is_of_the_view_that_decides_and_keeps_its_gaps() {
        let mut history = ViewHistory::default();
        history.push(ViewNumber(1), Position(2));
        history.push(ViewNumber(4), Position(6));
        let records = [0, 2, 3, 5, 6, 7].map(stored).to_vec();
        let pushed = as_pushed(&history, records);
        let shown: Vec<_> = pushed
            .iter()
            .flat_map(|(view, runs)| runs.iter().map(|run| (view.0, run.first.0, run.records.len())))
            .collect();
        // No view decides about position 0 any more: it is trimmed.
        assert_eq!(shown, [(1, 2, 2), (1, 5, 1), (4, 6, 2)]);
    }

    fn members<const N: usize>(nodes: [u32; N]) -> [Member; N] {
        nodes.map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) })
    }

    /// Node 5 lacks the record. Node 9, outside the view, refuses (`answers`) or is silent until it
    /// has the record at `has` ms. Returns the numbers of questions to node 5, of questions to node
    /// 9, and of notices to node 9.
    fn sought(seconds: u64, answers: bool, has: Option<u64>) -> (CatchUp, [usize; 3]) {
        let (others, left, mut catch_up) = (members([5]), members([5, 9]), CatchUp::default());
        let named = |replicas: &[Member]| ShardMembers {
            shard: ShardId(0),
            begins: Position(0),
            replicas: replicas.to_vec(),
        };
        catch_up.former.succeed(ViewNumber(1), &named(&left), &named(&others));
        catch_up.add_damaged(Position(3));
        let mut counts = [0; 3];
        for ms in (0..1000 * seconds).step_by(10) {
            let (now, mut out) = (Time::ZERO + Duration::from_millis(ms), vec![]);
            if catch_up.deadline(None).is_none_or(|at| now < at) {
                continue;
            }
            catch_up.keep(now, (ShardId(0), Position(0)), None, &mut out);
            counts[2] += out.len();
            out.clear();
            catch_up.ask(now, ShardId(0), (&others, Some(ViewNumber(1))), Position(0), None, &mut out);
            let Some((node, _)) =
                catch_up.question.as_ref().filter(|_| !out.is_empty()).map(|q| q.asked[q.asked.len() - 1])
            else {
                continue;
            };
            let request = catch_up.last_request;
            counts[usize::from(node == NodeId(9))] += 1;
            if node == NodeId(5) {
                catch_up.refused(now, request, true);
            } else if has.is_some_and(|from| ms >= from) {
                catch_up.records(now, request, vec![stored(3)], Position(4)).expect("it is the answer");
                catch_up.writing(Ticket(0), Ticket(1));
                catch_up.written(Ticket(1), None);
            } else if answers {
                catch_up.refused(now, request, false);
            }
        }
        (catch_up, counts)
    }

    #[test]
    fn a_replica_outside_the_view_stays_as_long_as_it_may_have_what_is_damaged() {
        for answers in [true, false] {
            let (catch_up, [member, outside, kept]) = sought(60, answers, None);
            assert!(!catch_up.damage.is_empty() && kept >= 100, "it was asked {kept} times to stay");
            assert!((4..20).contains(&outside) && member < 20, "asked {member} and {outside} times");
        }
        let (catch_up, [_, _, kept]) = sought(60, true, Some(20_000));
        assert!(catch_up.damage.is_empty() && (40..100).contains(&kept), "it was asked {kept} times to stay");
    }

    #[test]
    fn a_damaged_record_that_nobody_has_is_given_up() {
        let others = members([5]);
        let (mut catch_up, mut out, mut now) = (CatchUp::default(), vec![], Time::ZERO);
        catch_up.add_damaged(Position(3));
        while let Some(at) = catch_up.deadline(None).filter(|at| *at < Time::ZERO + TIMEOUT_MOST * 3) {
            now = now.max(at);
            catch_up.ask(now, ShardId(0), (&others, None), Position::ZERO, None, &mut out);
            catch_up.refused(now, catch_up.last_request, true);
        }
        assert_eq!((out.len(), catch_up.deadline(None)), (8, None));
        catch_up.add_damaged(Position(3));
        catch_up.ask(now + TIMEOUT, ShardId(0), (&[], None), Position::ZERO, None, &mut out);
        assert_eq!((out.len(), catch_up.deadline(None)), (8, None));
    }

    #[test]
    fn who_helps_with_what_is_damaged_is_not_who_helps_with_what_is_missing() {
        // Node 1 has the missing records, and node 2 the damaged ones.
        let others = members([1, 2]);
        let (mut catch_up, mut now) = (CatchUp { trim_is_known: true, ..CatchUp::default() }, Time::ZERO);
        (0..50).for_each(|position| catch_up.add_damaged(Position(position)));
        let mut missing = Some(MissingRange { from: Position(100), end: Position(120) });
        for _ in 0..400 {
            catch_up.ask(now, ShardId(0), (&others, None), Position(0), missing, &mut vec![]);
            now = now + PAUSE;
            let Some(question) = &catch_up.question else { continue };
            let (node, position, request) =
                (question.asked[0].0.0, question.range.from, catch_up.last_request);
            if (node == 1) == (position.0 >= 100) {
                catch_up.records(now, request, vec![stored(position.0)], position.next());
                catch_up.writing(Ticket(0), Ticket(1));
                missing = catch_up.written(Ticket(1), missing).unwrap_or(missing);
            } else {
                catch_up.refused(now, request, true);
            }
        }
        assert!(catch_up.damage.is_empty() && missing.is_none(), "{missing:?}");
    }

    #[test]
    fn what_is_damaged_everywhere_does_not_hold_up_what_is_missing() {
        let (others, mut catch_up, mut asked) = (members([5]), CatchUp::default(), vec![]);
        catch_up.trim_is_known = true;
        (0..50).for_each(|position| catch_up.add_damaged(Position(position)));
        let missing = MissingRange { from: Position(100), end: Position(200) };
        let mut now = Time::ZERO;
        for _ in 0..1000 {
            catch_up.ask(now, ShardId(0), (&others, None), Position(0), Some(missing), &mut vec![]);
            asked.extend(catch_up.question.as_ref().map(|question| question.range.from.0));
            catch_up.refused(now, catch_up.last_request, false);
            now = now + PAUSE;
        }
        let of_missing = asked.iter().filter(|from| **from == 100).count();
        assert_eq!(asked[..50], (0..50).collect::<Vec<_>>());
        assert!(of_missing > 400 && of_missing < 940, "{of_missing} of {}", asked.len());
    }

    fn ask_until(catch_up: &mut CatchUp, from: u64, end: u64) -> Vec<u64> {
        let others = members([4, 5]);
        let is_asked = |ms: &u64| {
            let (mut out, now) = (vec![], Time::ZERO + Duration::from_millis(*ms));
            catch_up.ask(now, ShardId(0), (&others, None), Position::ZERO, None, &mut out);
            !out.is_empty()
        };
        (from..end).step_by(10).filter(is_asked).collect()
    }

    #[test]
    fn an_answer_fits_however_late_it_is_and_lengthens_the_timeout() {
        let mut catch_up = CatchUp::default();
        catch_up.add_damaged(Position(3));
        assert_eq!(ask_until(&mut catch_up, 0, 4000), [0, 500, 1500, 3500]);
        // The first of the four requests is answered, then a later one.
        let late = Time::ZERO + Duration::from_secs(4);
        assert!(catch_up.records(late, 1, vec![stored(3)], Position(4)).is_some());
        assert!(catch_up.records(late, 2, vec![stored(3)], Position(4)).is_none(), "it is being written");
        catch_up.writing(Ticket(0), Ticket(1));
        catch_up.written(Ticket(1), None);
        catch_up.add_damaged(Position(7));
        assert_eq!(ask_until(&mut catch_up, 4000, 20_000), [4000, 12_000]);
    }

    /// When the next question follows an answer written after 10 ms.
    fn next_after_10_ms(is_pressed: bool) -> Vec<u64> {
        let mut catch_up = CatchUp::default();
        catch_up.add_damaged(Position(3));
        assert_eq!(ask_until(&mut catch_up, 0, 10), [0]);
        let written_at = Time::ZERO + Duration::from_millis(10);
        assert!(catch_up.records(written_at, 1, vec![stored(3)], Position(4)).is_some());
        catch_up.writing(Ticket(0), Ticket(1));
        catch_up.written(Ticket(1), None);
        catch_up.add_damaged(Position(7));
        if is_pressed {
            catch_up.yield_to_appends(written_at);
            catch_up.yield_to_appends(written_at + Duration::from_millis(1));
        }
        ask_until(&mut catch_up, 10, 100)
    }

    #[test]
    fn while_the_node_does_not_keep_up_copying_leaves_time() {
        assert_eq!((next_after_10_ms(false), next_after_10_ms(true)), (vec![10], vec![40]));
    }

    #[test]
    fn a_late_refusal_ends_nothing() {
        let mut catch_up = CatchUp::default();
        catch_up.add_damaged(Position(3));
        assert_eq!(ask_until(&mut catch_up, 0, 600), [0, 500]);
        let now = Time::ZERO + Duration::from_millis(600);
        catch_up.refused(now, 1, false);
        assert!(catch_up.records(now, 2, vec![stored(3)], Position(4)).is_some());
    }
}
