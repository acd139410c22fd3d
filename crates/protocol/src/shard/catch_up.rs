//! Getting records from another replica of the shard. *Catch-up* gets the ones that a new replica never held, or that
//! were bound while the replica was away; *repair* gets the ones that its disk damaged.
//!
//! These records are final: their positions are below the start of the view that the replica joined. They are
//! stored as versions of the view that decides there, like pushed ones. One question is in flight at a time, so
//! this takes no more than one answer's room, and appends go on beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::storage::{MissingRange, Owned, Run, Stored};
use seriatim_model::{
    Address, Endpoint, Member, NodeId, Position, ShardId, Ticket, Time, ViewHistory, limits,
};

use super::core::send;
use super::former::Former;
use super::message::Message;
use crate::mutation::{Mutation, Options};
use crate::parts::timeouts::next_timeout_within;
use crate::roles::RoleEffect;

/// How long a new replica waits before it catches up: the replica that it stands in for may be back soon. It repairs
/// damaged records at once: another replica has them now, and the next view may be without that one.
const NEW_REPLICA_WAITS: Duration = Duration::from_secs(1);
/// How long to wait for an answer before asking another replica; twice what answers take of late, twice as long after
/// each that did not come, and [`TIMEOUT_MOST`] at most.
const TIMEOUT: Duration = Duration::from_millis(500);
const TIMEOUT_MOST: Duration = Duration::from_secs(20);
/// How long to wait after a replica had nothing to give.
const PAUSE: Duration = Duration::from_millis(50);
/// How often others are asked for a damaged record before it is given up.
const MOST_IN_VAIN: u32 = 16;
/// How many damaged positions are remembered at once; others are found again when they are read.
const MOST_DAMAGED: usize = 1024;

/// A replica's catch-up and repair.
#[derive(Clone, Debug, Default)]
pub(super) struct CatchUp {
    /// Whether another replica said where the trim point is.
    trim_is_known: bool,
    /// Replicas that said that they do not know where the trim point is.
    ignorant: BTreeSet<NodeId>,
    /// How many others there are.
    others: usize,
    /// The replicas that the view does without.
    pub(super) former: Former,
    /// Positions that were found damaged, and how often each was asked for in vain.
    damaged: BTreeMap<Position, u32>,
    /// The damaged position to ask for next, or the first one after it: a replica that misses one may have another. Its turn
    /// ends when all were asked for it: two records that take turns with two replicas would each be asked of the same one for ever.
    next_damaged: Position,
    /// How many replicas can be asked for what was asked for last.
    sources: usize,
    question: Option<Question>,
    /// How long an answer may take, as earlier ones taught; nothing before the first. It is measured, and so no
    /// [`Backoff`](crate::parts::Backoff).
    timeout: Option<Duration>,
    last_request: u64,
    /// Which of the others to ask next.
    turn: usize,
    /// The replica asks for nothing earlier, ...
    retry_at: Time,
    /// ... and what is missing not before this either.
    copies_from: Time,
}

#[derive(Clone, Debug)]
struct Question {
    /// The number of the first message that asked it; the next numbers ask the same of others, whose answers fit as well,
    /// however late they are.
    first: u64,
    /// The replicas that were asked, in order, and when.
    asked: Vec<(NodeId, Time)>,
    range: MissingRange,
    about: About,
    ask_again_at: Time,
    /// The answer is being written.
    writing: Option<Writing>,
}

/// The writes of an answer: those after one ticket and up to another.
#[derive(Clone, Copy, Debug)]
struct Writing {
    after: Ticket,
    last: Ticket,
    /// How far the answer reaches.
    upto: Position,
}

/// The subject of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// Where the trim point is.
    Trim,
    Missing,
    Damage,
}

impl CatchUp {
    /// The replica was made anew: there is time to copy.
    pub(super) fn start_as_new(&mut self, now: Time, options: Options) {
        self.copies_from = now + NEW_REPLICA_WAITS;
        if options.mutates(Mutation::RepairWaits) {
            self.retry_at = self.copies_from;
        }
    }

    /// A record was found damaged.
    pub(super) fn add_damaged(&mut self, position: Position) {
        if self.damaged.len() < MOST_DAMAGED {
            self.damaged.entry(position).or_default();
        }
    }

    /// A new view: the replica that was asked may not be there any more.
    pub(super) fn restart(&mut self) {
        self.question = None;
        self.turn = 0;
        self.trim_is_known = false;
        self.ignorant.clear();
    }

    /// Whether another replica said where the trim point is.
    pub(super) fn knows_trim(&self) -> bool {
        self.trim_is_known
    }

    /// Which records are wanted next.
    pub(super) fn wants(&self, trim: Position, missing: Option<MissingRange>) -> Option<MissingRange> {
        self.wanted(trim, missing).filter(|(_, about)| *about != About::Trim).map(|(range, _)| range)
    }

    fn wanted(&self, trim: Position, missing: Option<MissingRange>) -> Option<(MissingRange, About)> {
        let mut damaged = self.damaged.range(self.next_damaged..).chain(&self.damaged);
        let damaged =
            damaged.next().map(|(at, _)| (MissingRange { from: *at, end: at.next() }, About::Damage));
        let missing = missing.map(|range| match self.trim_is_known {
            true => (range, About::Missing),
            false => (MissingRange { from: trim, end: trim }, About::Trim),
        });
        damaged.or(missing)
    }

    /// When to look again.
    pub(super) fn deadline(&self, missing: Option<MissingRange>) -> Option<Time> {
        match &self.question {
            Some(Question { writing: Some(_), .. }) => None,
            Some(question) => Some(question.ask_again_at),
            None => self.wanted(Position::ZERO, missing).map(|(_, about)| self.due(about)),
        }
    }

    /// When what is wanted may be asked for.
    fn due(&self, about: About) -> Time {
        match about {
            About::Damage => self.retry_at,
            About::Trim | About::Missing => self.retry_at.max(self.copies_from),
        }
    }

    /// Asks the next of the `others` for what is wanted first, unless an answer is still awaited: the view's other replicas,
    /// and where it is about records, the `former` ones that know them.
    pub(super) fn ask(
        &mut self,
        now: Time,
        shard: ShardId,
        (others, former): (&[Member], &[Member]),
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
            let (node, _) = question.asked.last().expect("a question was put to somebody");
            self.former.note(*node, false);
            // A replica outside the view may be gone for good. That says nothing of how long the others take.
            if others.iter().any(|other| other.node == *node) {
                self.timeout = Some((self.timeout() * 2).min(TIMEOUT_MOST));
            }
        }
        let Some((range, about)) = self.wanted(trim, missing) else { return };
        if now < self.due(about) {
            return;
        }
        self.others = others.len();
        let former = if about == About::Trim { &[] } else { former };
        let sources: Vec<&Member> = others.iter().chain(former).collect();
        if sources.is_empty() {
            self.damaged.clear();
            self.retry_at = now + TIMEOUT;
            return;
        }
        let source = sources[self.turn % sources.len()].node;
        self.sources = sources.len();
        self.turn += 1;
        self.last_request += 1;
        let request = self.last_request;
        let ask_again_at = now + self.timeout();
        let same = unanswered.filter(|question| (question.range, question.about) == (range, about));
        let (first, mut asked) = same.map_or((request, vec![]), |question| (question.first, question.asked));
        asked.push((source, now));
        self.question = Some(Question { first, asked, range, about, ask_again_at, writing: None });
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

    /// The question that this answers, the node that was asked, and when.
    fn asked(&mut self, request: u64) -> Option<(&mut Question, NodeId, Time)> {
        let question = self.question.as_mut().filter(|question| question.writing.is_none())?;
        let (source, at) =
            *question.asked.get(usize::try_from(request.checked_sub(question.first)?).ok()?)?;
        Some((question, source, at))
    }

    /// An answer came from this node to what it was asked at `at`.
    fn answered(&mut self, now: Time, (source, at): (NodeId, Time)) {
        self.former.note(source, true);
        let timeout = next_timeout_within(self.timeout(), now - at, TIMEOUT..=TIMEOUT_MOST);
        self.timeout = Some(timeout);
    }

    /// Another replica answered with records. Returns those that are to be written and then reported with
    /// [`written`](Self::written), and from which position on they are all.
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
            // It does not know yet that this is final.
            self.refused(now, request);
            return None;
        }
        let from = question.range.from;
        question.writing = Some(Writing { after: Ticket(0), last: Ticket(0), upto });
        self.answered(now, (source, at));
        // A replica that answers well is asked again.
        self.turn -= 1;
        Some((from, records))
    }

    /// Copied records are being written, with the tickets after `after` up to `last`.
    pub(super) fn writing(&mut self, after: Ticket, last: Ticket) {
        if let Some(Question { writing: Some(writing), .. }) = &mut self.question {
            (writing.after, writing.last) = (after, last);
        }
    }

    /// Whether it may be written now that nothing is missing any more. If there is no room for that, it is
    /// tried again later.
    pub(super) fn may_finish(&mut self, now: Time) -> bool {
        let may = now >= self.retry_at;
        if may {
            self.retry_at = now + TIMEOUT;
        }
        may
    }

    /// The other replica's trim point is known now.
    pub(super) fn learned_trim(&mut self, now: Time, request: u64) {
        if let Some((_, source, at)) = self.asked(request) {
            self.answered(now, (source, at));
            self.question = None;
            self.trim_is_known = true;
            self.retry_at = self.retry_at.min(now);
        }
    }

    /// Another replica does not know, or hold, what it was asked for. A position that no member of the view knows is
    /// lost:
    /// an operator accepted that.
    pub(super) fn not_there(&mut self, now: Time, request: u64) {
        let Some((Question { about: About::Trim, .. }, source, _)) = self.asked(request) else {
            return self.refused(now, request);
        };
        self.ignorant.insert(source);
        if self.ignorant.len() < self.others {
            return self.refused(now, request);
        }
        self.learned_trim(now, request);
    }

    /// Another replica cannot help with this. One that says so late does not end what others are asked.
    pub(super) fn refused(&mut self, now: Time, request: u64) {
        if request != self.last_request {
            return;
        }
        let Some((Question { about, range, .. }, source, at)) = self.asked(request) else { return };
        let (about, range) = (*about, *range);
        self.answered(now, (source, at));
        self.question = None;
        self.retry_at = now + PAUSE;
        if about == About::Damage {
            let Some(in_vain) = self.damaged.get_mut(&range.from) else { return };
            *in_vain += 1;
            let all_were_asked = (*in_vain as usize).is_multiple_of(self.sources);
            self.next_damaged = if all_were_asked { range.end } else { range.from };
            if *in_vain == MOST_IN_VAIN {
                // No replica has it. A read finds it damaged again.
                self.damaged.remove(&range.from);
            }
        }
    }

    /// All writes up to `ticket` are done. Returns what is still missing if that became less.
    pub(super) fn written(
        &mut self,
        ticket: Ticket,
        missing: Option<MissingRange>,
    ) -> Option<Option<MissingRange>> {
        let question = self.question.as_ref()?;
        let upto = question.writing.filter(|writing| writing.last <= ticket)?.upto;
        let (range, about) = (question.range, question.about);
        self.question = None;
        if about == About::Damage {
            self.damaged.remove(&range.from);
            return None;
        }
        missing.map(|missing| missing.above(upto))
    }

    /// A write was refused. If it was one of an answer's, all of that comes again.
    pub(super) fn failed(&mut self, now: Time, ticket: Ticket) {
        let writing = self.question.as_ref().and_then(|question| question.writing);
        if writing.is_some_and(|writing| writing.after < ticket && ticket <= writing.last) {
            self.question = None;
            self.retry_at = now + TIMEOUT;
        }
    }

    /// Positions below are gone, and need not be got.
    pub(super) fn trimmed(&mut self, trim: Position) {
        self.damaged = self.damaged.split_off(&trim);
    }
}

/// Final records as they are stored: consecutive ones of one view together.
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

/// A map of final positions as it is stored: by the views that decide about them.
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
    use seriatim_model::{Incarnation, NodeId, Record, RecordId, SessionId, ViewNumber};

    use super::*;

    fn stored(position: u64) -> Stored {
        let id = RecordId { session: SessionId::new(Position(0), 1), number: position };
        Stored { position: Position(position), id, record: Record::new(b"record".as_slice(), 0) }
    }

    #[test]
    fn two_damaged_records_are_got_from_the_two_replicas_that_have_one_each() {
        let members = [1, 2].map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) });
        let has = |node: u32, position: u64| (node, position) == (1, 0) || (node, position) == (2, 7);
        let (mut catch_up, mut now, mut asked) = (CatchUp::default(), Time(1), vec![]);
        [7, 0].iter().for_each(|position| catch_up.add_damaged(Position(*position)));
        while !catch_up.damaged.is_empty() && asked.len() < 8 {
            let mut out = vec![];
            catch_up.ask(now, ShardId(0), (&members[..1], &members[1..]), Position(0), None, &mut out);
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
        // The first to be asked is another one.
        let (mut catch_up, mut now, mut asked) = (CatchUp { turn: 1, ..CatchUp::default() }, Time(1), vec![]);
        [7, 0].iter().for_each(|position| catch_up.add_damaged(Position(*position)));
        while asked.len() < 4 {
            catch_up.ask(now, ShardId(0), (&members[..1], &members[1..]), Position(0), None, &mut vec![]);
            let question = catch_up.question.as_ref().expect("something is damaged");
            asked.push((question.asked[0].0.0, question.range.from.0));
            catch_up.not_there(now, catch_up.last_request);
            now = now + PAUSE;
        }
        assert_eq!(asked, [(2, 0), (1, 0), (2, 7), (1, 7)]);
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
        // Nobody decides about 0 any more: it is trimmed.
        assert_eq!(shown, [(1, 2, 2), (1, 5, 1), (4, 6, 2)]);
    }

    #[test]
    fn a_damaged_record_that_nobody_has_is_given_up() {
        let others = [Member { node: NodeId(5), incarnation: Incarnation(1) }];
        let mut catch_up = CatchUp::default();
        let mut now = Time::ZERO;
        catch_up.add_damaged(Position(3));
        let mut asked = 0;
        for _ in 0..100 {
            let mut out = vec![];
            catch_up.ask(now, ShardId(0), (&others, &[]), Position::ZERO, None, &mut out);
            asked += out.len();
            catch_up.refused(now, catch_up.last_request);
            now = now + PAUSE;
        }
        assert_eq!((asked, catch_up.deadline(None)), (MOST_IN_VAIN as usize, None));
    }

    /// Asks whenever that is due until `end`, and says when.
    fn ask_until(catch_up: &mut CatchUp, from: u64, end: u64) -> Vec<u64> {
        let others = [4, 5].map(|node| Member { node: NodeId(node), incarnation: Incarnation(1) });
        let is_asked = |ms: &u64| {
            let (mut out, now) = (vec![], Time::ZERO + Duration::from_millis(*ms));
            catch_up.ask(now, ShardId(0), (&others, &[]), Position::ZERO, None, &mut out);
            !out.is_empty()
        };
        (from..end).step_by(10).filter(is_asked).collect()
    }

    #[test]
    fn an_answer_fits_however_late_it_is_and_lengthens_the_timeout() {
        let mut catch_up = CatchUp::default();
        catch_up.add_damaged(Position(3));
        assert_eq!(ask_until(&mut catch_up, 0, 4000), [0, 500, 1500, 3500]);
        // The first of the four, and then those of the others.
        let late = Time::ZERO + Duration::from_secs(4);
        assert!(catch_up.records(late, 1, vec![stored(3)], Position(4)).is_some());
        assert!(catch_up.records(late, 2, vec![stored(3)], Position(4)).is_none(), "it is being written");
        catch_up.writing(Ticket(0), Ticket(1));
        catch_up.written(Ticket(1), None);
        catch_up.add_damaged(Position(7));
        assert_eq!(ask_until(&mut catch_up, 4000, 20_000), [4000, 12_000]);
    }

    #[test]
    fn a_late_refusal_ends_nothing() {
        let mut catch_up = CatchUp::default();
        catch_up.add_damaged(Position(3));
        assert_eq!(ask_until(&mut catch_up, 0, 600), [0, 500]);
        let now = Time::ZERO + Duration::from_millis(600);
        catch_up.refused(now, 1);
        assert!(catch_up.records(now, 2, vec![stored(3)], Position(4)).is_some());
    }

    #[test]
    fn a_damaged_record_that_another_lacks_holds_up_no_other() {
        let mut catch_up = CatchUp::default();
        catch_up.add_damaged(Position(3));
        catch_up.add_damaged(Position(7));
        let others = [Member { node: NodeId(5), incarnation: Incarnation(1) }];
        let mut now = Time::ZERO;
        let mut asked = vec![];
        for _ in 0..4 {
            catch_up.ask(now, ShardId(0), (&others, &[]), Position::ZERO, None, &mut vec![]);
            asked.extend(catch_up.question.as_ref().map(|question| question.range.from.0));
            catch_up.refused(now, catch_up.last_request);
            now = now + PAUSE;
        }
        assert_eq!(asked, [3, 7, 3, 7]);
    }

    #[test]
    fn no_more_damage_is_remembered_than_the_limit() {
        let mut catch_up = CatchUp::default();
        (0..=MOST_DAMAGED as u64).for_each(|position| catch_up.add_damaged(Position(position)));
        assert_eq!(catch_up.damaged.len(), MOST_DAMAGED);
        catch_up.trimmed(Position(10));
        assert_eq!(catch_up.damaged.keys().next(), Some(&Position(10)));
    }
}
