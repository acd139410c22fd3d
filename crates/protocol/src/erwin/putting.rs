//! How a client puts records on shards, and sends their ids to the sequencing replicas, in the same
//! round trip (LazyLog §5.1).
//!
//! A record is stored when every replica of its shard in the client's view acknowledged it in that
//! view.

use std::collections::BTreeMap;
use std::ops::Range;

use seriatim_model::limits::Limits;
use seriatim_model::{
    Address, Endpoint, IdRun, NodeId, Record, RecordId, SessionId, ShardId, Time, View, ViewNumber,
};

use super::ShardMessage;
use super::appends::{Appends, Pending, Target};
use super::client::{Failure, LogClient, Out, Reply, Session};
use crate::mutation::Mutation;
use crate::parts::appending::{ClientEffect, reply};
use crate::parts::{Conversation, IdSet, ShardChoice};
use crate::{roles, shard};

type Replica = (ShardId, NodeId);

#[derive(Clone, Debug, Default)]
pub(super) struct Putting {
    /// Below this number every sequencing replica of the present view has the ids. Earlier views do
    /// not count: an id may be void since.
    pub(super) ids_held: u64,
    /// Below this number some sequencing replica of this view was sent the ids, so a shard may wait
    /// for their records.
    pub(super) ids_sent: u64,
    /// Below this number every record is stored in this view, or completed.
    stored_below: u64,
    replicas: BTreeMap<(ShardId, NodeId), Progress>,
}

/// Puts to one replica.
///
/// Invariant: its records below `sent` are stored there, or in flight, or in `refused`;
/// `unanswered` counts the records in flight, and `in_flight` their bytes.
#[derive(Clone, Debug)]
struct Progress {
    bit: u16,
    sent: u64,
    /// Refused ids, to resend.
    refused: IdSet,
    /// Next number to resend: refused ids from here on come first, then unsent records, then
    /// earlier refused ids. So a fenced replica gets every record in turn, even through a small
    /// window.
    again_from: u64,
    /// Whether the replica is not in this view yet: it keeps records without acknowledging them.
    /// Meanwhile it gets only records whose ids were sent, since a view change may wait for these.
    is_fenced: bool,
    unanswered: u64,
    in_flight: usize,
    /// Lowest number that may be in flight.
    lowest: u64,
    pace: Conversation,
}

impl Progress {
    fn new(now: Time, bit: u16, base: u64, limits: Limits) -> Self {
        let pace = Conversation::new(now, limits.batch_bytes);
        Self {
            bit,
            sent: base,
            refused: IdSet::default(),
            again_from: base,
            is_fenced: false,
            unanswered: 0,
            in_flight: 0,
            lowest: base,
            pace,
        }
    }

    /// Resends everything from `base` on.
    fn restart(&mut self, base: u64) {
        (self.sent, self.unanswered, self.in_flight) = (base, 0, 0);
        self.is_fenced = false;
        self.refused.clear();
    }

    fn has_more(&self, end: u64) -> bool {
        self.sent < end || !self.refused.is_empty()
    }

    /// Whether this record is in flight to the replica.
    fn awaits(&self, id: RecordId, target: &Target) -> bool {
        id.number < self.sent && target.stored & self.bit == 0 && !self.refused.contains(id)
    }

    /// A record is no longer in flight.
    fn lands(&mut self, bytes: usize) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.in_flight = self.in_flight.saturating_sub(bytes);
        assert!(
            self.unanswered > 0 || self.in_flight == 0,
            "nothing is on its way, and {} bytes of it",
            self.in_flight
        );
    }

    /// Next records to send, if there is room.
    fn next(&mut self, unstored: &Unstored, ids_sent: u64, end: u64) -> Option<Batch> {
        let most = self.pace.room(self.in_flight)?;
        let end = match self.is_fenced {
            false => end,
            // At least one record: the answer shows when the replica takes part again.
            true if self.in_flight == 0 => {
                let first = self.refused.first_from(0).map_or(self.sent, |ids| ids.first);
                ids_sent.max(first + 1).min(end)
            }
            true => ids_sent,
        };
        self.next_again(unstored, self.again_from..end, most)
            .or_else(|| self.next_unsent(unstored, end, most))
            .or_else(|| self.next_again(unstored, 0..end, most))
    }

    fn next_unsent(&mut self, unstored: &Unstored, end: u64, most: usize) -> Option<Batch> {
        let batch = unstored.batch(self.sent..end, most);
        self.sent = batch.as_ref().map_or(end, Batch::next).max(self.sent);
        self.again_from = self.sent;
        batch
    }

    fn next_again(&mut self, unstored: &Unstored, numbers: Range<u64>, most: usize) -> Option<Batch> {
        self.again_from = numbers.start;
        while let Some(ids) = self.refused.first_from(self.again_from)
            && ids.first < numbers.end
        {
            let end = ids.end().min(self.sent).min(numbers.end);
            let batch = unstored.batch(ids.first..end, most);
            let next = batch.as_ref().map_or(end, Batch::next);
            self.refused.remove(ids.head(next - ids.first));
            self.again_from = next;
            if batch.is_some() {
                return batch;
            }
        }
        None
    }
}

/// Consecutive records for one message.
struct Batch {
    first: u64,
    records: Vec<Record>,
    bytes: usize,
}

impl Batch {
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

struct Unstored<'a> {
    appends: &'a Appends,
    /// The shard, and the replica's bit in [`Target::stored`].
    at: (ShardId, u16),
    /// Maximum number of records per message.
    batch_records: usize,
}

impl Unstored<'_> {
    /// First run of consecutive records in `numbers`, at most `most` bytes.
    fn batch(&self, numbers: Range<u64>, most: usize) -> Option<Batch> {
        let (shard, bit) = self.at;
        let end = numbers.end;
        let base = self.appends.base();
        let from = numbers.start.clamp(base, end.max(base));
        let unsent = self.appends.from(from).take_while(|(number, _)| *number < end);
        let is_wanted = |pending: &Pending| {
            pending.target.shard == Some(shard) && pending.target.stored & bit == 0 && !pending.completed
        };
        let mut unsent = unsent.skip_while(|(_, pending)| !is_wanted(pending)).peekable();
        let (first, _) = unsent.peek().copied()?;
        let (mut records, mut bytes) = (vec![], 0);
        for (_, pending) in unsent.take_while(|(_, pending)| is_wanted(pending)).take(self.batch_records) {
            let size = pending.record.size();
            if !records.is_empty() && bytes + size > most {
                break;
            }
            bytes += size;
            records.push(pending.record.clone());
        }
        Some(Batch { first, records, bytes })
    }
}

impl Putting {
    pub(super) fn enter_view(&mut self, now: Time, view: &View, base: u64, limits: Limits) {
        (self.ids_held, self.ids_sent, self.stored_below) = (base, base, base);
        self.replicas.clear();
        for members in &view.shards {
            for (index, member) in members.replicas.iter().enumerate() {
                let progress = Progress::new(now, 1 << index, base, limits);
                self.replicas.insert((members.shard, member.node), progress);
            }
        }
    }

    pub(super) fn is_stored(&self, target: &Target) -> bool {
        // If records travel with their ids, the client waits for no shard.
        let Some(shard) = target.shard else { return self.replicas.is_empty() };
        let mut replicas = self.of(shard).peekable();
        replicas.peek().is_some() && replicas.all(|(_, progress)| target.stored & progress.bit != 0)
    }

    fn of(&self, shard: ShardId) -> impl Iterator<Item = (NodeId, &Progress)> {
        let range = (shard, NodeId(0))..=(shard, NodeId(u32::MAX));
        self.replicas.range(range).map(|((_, node), progress)| (*node, progress))
    }

    /// Stops waiting for answers about a record.
    pub(super) fn forget(&mut self, id: RecordId, Pending { target, record, .. }: &Pending) {
        let Some(shard) = target.shard else { return };
        let range = (shard, NodeId(0))..=(shard, NodeId(u32::MAX));
        for (_, progress) in self.replicas.range_mut(range) {
            if progress.awaits(id, target) {
                progress.lands(record.size());
            }
        }
    }

    /// Number below which every replica was sent its records; `None` if they travel with ids.
    pub(super) fn sent_below(&self) -> Option<u64> {
        self.replicas.values().map(|progress| progress.sent).min()
    }

    pub(super) fn deadline(&self, end: u64) -> Option<Time> {
        let due = |progress: &Progress| {
            let resumes_at = progress.pace.resumes_at().filter(|_| progress.has_more(end));
            resumes_at.or_else(|| (progress.unanswered > 0).then(|| progress.pace.resend_at()))
        };
        self.replicas.values().filter_map(due).min()
    }

    pub(super) fn restart(&mut self) {
        (self.ids_held, self.ids_sent, self.stored_below) = (0, 0, 0);
        for progress in self.replicas.values_mut() {
            progress.restart(0);
            progress.lowest = 0;
        }
    }

    pub(super) fn disconnected(&mut self, now: Time, gone: NodeId, base: u64) {
        for ((_, node), progress) in &mut self.replicas {
            if *node == gone {
                progress.restart(base);
                progress.pace.disconnected(now);
            }
        }
    }

    /// Replicas that have not stored everything; for the `bool` see [`LogClient::waits_for`].
    pub(super) fn waits_for(&self, end: u64) -> impl Iterator<Item = (NodeId, Option<bool>)> {
        let is_behind = move |progress: &Progress| progress.unanswered > 0 || progress.has_more(end);
        let behind = self.replicas.iter().filter(move |(_, progress)| is_behind(progress));
        behind.map(|((_, node), progress)| (*node, progress.pace.busy()))
    }

    /// Number below which ids may leave. No id leaves before its record, or while more than `ahead`
    /// bytes of earlier records are not stored. This delays no append: its own record queues behind
    /// these. It shortens view changes, which wait for every record whose id has left and that no
    /// shard has.
    pub(super) fn ids_below(&mut self, appends: &Appends, ahead: usize) -> u64 {
        let end = appends.end();
        let Some(sent) = self.sent_below() else { return end };
        let mut stored = self.stored_below.max(appends.base());
        while stored < sent
            && let Some(pending) = appends.get(stored)
            && (pending.completed || self.is_stored(&pending.target))
        {
            stored += 1;
        }
        self.stored_below = stored;
        let Some(next) = appends.get(stored) else { return sent.min(end) };
        let most = next.upto - next.record.size() as u64 + ahead as u64;
        appends.within(most).max(stored + 1).min(sent).min(end)
    }

    /// Sends new, refused and timed-out records; returns whether a replica timed out.
    pub(super) fn send(
        &mut self,
        now: Time,
        (view, session): (ViewNumber, SessionId),
        appends: &Appends,
        limits: Limits,
        out: &mut Out,
    ) -> bool {
        let (base, end) = (appends.base(), appends.end());
        let (ids_sent, mut has_timed_out) = (self.ids_sent, false);
        for ((shard, node), progress) in &mut self.replicas {
            if progress.pace.pauses(now) {
                continue;
            }
            let (at, batch_records) = ((*shard, progress.bit), limits.batch_records);
            let unstored = Unstored { appends, at, batch_records };
            let mut batches = vec![];
            progress.sent = progress.sent.max(base);
            if progress.unanswered == 0 {
                progress.pace.begins(now);
            } else if progress.pace.times_out(now) {
                // The first batch probes; the client resends later ones only if the replica misses
                // it.
                has_timed_out = true;
                batches.extend(unstored.batch(base..progress.sent.min(end), limits.batch_bytes));
            }
            while let Some(batch) = progress.next(&unstored, ids_sent, end) {
                progress.unanswered += batch.records.len() as u64;
                progress.in_flight += batch.bytes;
                batches.push(batch);
            }
            for Batch { first, records, .. } in batches {
                let message = ShardMessage::Put { view, session, first, records };
                let to = Address::Node(*node, Endpoint::Shard(*shard));
                out.push(ClientEffect::Send { to, message: message.into() });
            }
        }
        has_timed_out
    }

    /// A replica is not in this view: resends after a pause. If it `keeps` records, resends only
    /// records whose ids were sent.
    fn fenced(&mut self, now: Time, from: Replica, session: SessionId, appends: &Appends, keeps: bool) {
        let (first, count) = (appends.base(), appends.len() as u64);
        self.send_again(from, IdRun { session, first, count }, appends);
        if let Some(progress) = self.replicas.get_mut(&from) {
            progress.is_fenced = keeps;
            progress.pace.fenced(now);
        }
    }

    /// A replica lacked room: resends after a pause.
    fn had_no_room(
        &mut self,
        now: Time,
        from: Replica,
        ids: IdRun,
        appends: &Appends,
        (disk_full, jitter): (bool, f64),
    ) {
        self.send_again(from, ids, appends);
        if let Some(progress) = self.replicas.get_mut(&from) {
            progress.again_from = progress.again_from.min(ids.first);
            progress.pace.refused(now, disk_full, jitter);
        }
    }

    /// Marks the part of `ids` that is in flight to a replica as refused.
    fn send_again(&mut self, from: Replica, ids: IdRun, appends: &Appends) {
        let Some(progress) = self.replicas.get_mut(&from) else { return };
        let mut refused: Option<IdRun> = None;
        for number in ids.first.max(appends.base())..ids.end().min(appends.end()).min(progress.sent) {
            let Some(pending) = appends.get(number) else { break };
            let goes_there = pending.target.shard == Some(from.0) && !pending.completed;
            if goes_there && progress.awaits(RecordId { session: ids.session, number }, &pending.target) {
                progress.lands(pending.record.size());
                match &mut refused {
                    Some(run) if run.end() == number => run.count += 1,
                    _ => {
                        let next = IdRun { first: number, count: 1, ..ids };
                        progress.refused.extend(refused.replace(next));
                    }
                }
            }
        }
        progress.refused.extend(refused);
    }

    /// A replica stored the records of `ids`. Returns whether it belongs to the view.
    fn stored(&mut self, now: Time, from: Replica, ids: IdRun, appends: &mut Appends) -> bool {
        let Some(progress) = self.replicas.get_mut(&from) else { return false };
        let (base, bit) = (appends.base(), progress.bit);
        let mut taken = 0;
        for number in ids.first.max(base)..ids.end() {
            let Some(pending) = appends.get_mut(number) else { break };
            if pending.target.shard != Some(from.0) || pending.target.stored & bit != 0 {
                continue;
            }
            let id = RecordId { session: ids.session, number };
            if progress.awaits(id, &pending.target) && !pending.completed {
                progress.lands(pending.record.size());
            }
            pending.target.stored |= bit;
            taken += pending.record.size();
        }
        progress.is_fenced = false;
        progress.pace.takes(now, taken);
        progress.refused.remove(ids);
        let before = progress.lowest;
        progress.lowest = before.max(base);
        while let Some(pending) = appends.get(progress.lowest)
            && progress.lowest < progress.sent
            && (pending.target.shard != Some(from.0) || pending.target.stored & bit != 0 || pending.completed)
        {
            progress.lowest += 1;
        }
        if progress.lowest > before {
            progress.pace.advances(now);
        }
        true
    }
}

impl LogClient {
    /// Why a record cannot be put. Only shards see the record, so no sequencing replica can object.
    pub(super) fn objection(&self, record: &Record, choice: ShardChoice) -> Option<Failure> {
        let config = self.log.config();
        if config.order.places_by_position() {
            return matches!(choice, ShardChoice::Fixed(_)).then_some(Failure::NoChoice(config.order));
        }
        let open = self.log.view().map(View::open_shards);
        match (choice, open) {
            (ShardChoice::Fixed(shard), Some(open)) if !open.contains(&shard) => {
                Some(Failure::NoSuchShard { shard, open: open.to_vec() })
            }
            _ if config.is_too_large(record) => Some(Failure::TooLarge { limit: config.max_record_bytes }),
            _ => None,
        }
    }

    pub(super) fn shard_answered(
        &mut self,
        now: Time,
        from: Replica,
        message: roles::Message,
        out: &mut Out,
    ) {
        let current = self.log.view_number();
        let Session::Open(session) = self.session else { return };
        match message {
            roles::Message::ErwinShard(ShardMessage::Stored { view, ids })
                if view == current && ids.session == session =>
            {
                self.stored(now, from, ids, out);
            }
            roles::Message::ErwinShard(ShardMessage::NotAppended { view, ids })
                if view == current && ids.session == session =>
            {
                self.not_appended(now, ids, out);
            }
            roles::Message::Shard(shard::Message::Busy { view, ids, disk_full })
                if view == current && ids.session == session =>
            {
                let word = (disk_full, self.jitter.draw());
                self.putting.had_no_room(now, from, ids, &self.appends, word);
            }
            roles::Message::Shard(shard::Message::Fenced { .. }) => {
                let keeps = !self.config.options.mutates(Mutation::IdsSentToFenced);
                self.putting.fenced(now, from, session, &self.appends, keeps);
                self.log.ask_register(now);
                if self.config.options.mutates(Mutation::AgainInDoubt) {
                    self.not_appended(now, IdRun { session, first: self.appends.base(), count: 1 }, out);
                }
            }
            _ => {}
        }
    }

    fn stored(&mut self, now: Time, from: Replica, ids: IdRun, out: &mut Out) {
        if !self.putting.stored(now, from, ids, &mut self.appends) {
            return;
        }
        // More ids may leave now.
        self.work_is_due = true;
        for number in ids.first.max(self.appends.base())..ids.end().min(self.appends.end()) {
            self.complete_if_done(number, out);
        }
        self.release();
    }

    /// These ids are no-ops: their records were late at their shard, or lost with its replicas
    /// before acknowledgement. This is definite, so appending an unordered record again duplicates
    /// nothing.
    pub(super) fn not_appended(&mut self, now: Time, ids: IdRun, out: &mut Out) {
        let Session::Open(session) = self.session else { return };
        for number in ids.first.max(self.appends.base())..ids.end().min(self.appends.end()) {
            let pending = self.appends.get_mut(number).filter(|pending| !pending.completed);
            let Some(pending) = pending else { continue };
            pending.completed = true;
            self.putting.forget(RecordId { session, number }, pending);
            if now < pending.spec.again_until {
                let record = pending.record.clone();
                let Pending { token, spec, again, .. } = *pending;
                self.appends.push(token, record, spec, again + 1);
                self.work_is_due = true;
            } else {
                let failure = Failure::NotAppended(RecordId { session, number });
                out.push(reply(pending.token, Reply::Failed(failure)));
            }
        }
        self.work_is_due = true;
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Incarnation, Member, Placement, Position, ShardMembers};

    use super::*;
    use crate::parts::appending::AppendSpec;

    const A: SessionId = SessionId(7);
    const SHARD: ShardId = ShardId(0);
    const FIRST: Replica = (SHARD, NodeId(1));
    const SECOND: Replica = (SHARD, NodeId(2));

    fn view() -> View {
        let member = |node| Member { node: NodeId(node), incarnation: Incarnation(1) };
        let replicas = vec![member(1), member(2)];
        View {
            number: ViewNumber(1),
            sequencers: vec![],
            leader: NodeId(1),
            shards: vec![ShardMembers { shard: SHARD, replicas, begins: Position::ZERO }],
            retired: vec![],
            placement: Placement::new(vec![SHARD], 1),
            first: Position::ZERO,
            start: Position::ZERO,
        }
    }

    fn begin(count: u64) -> (Putting, Appends) {
        let (mut putting, mut appends) = (Putting::default(), Appends::new(0));
        (0..count).for_each(|token| appends.push(token, Record::new(b"record", 0), AppendSpec::default(), 0));
        appends.choose_shards(A, &view(), 1);
        putting.enter_view(Time::ZERO, &view(), 0, Limits::default());
        (putting, appends)
    }

    /// The numbers put, by node.
    fn send(putting: &mut Putting, now: Time, appends: &Appends) -> Vec<(u32, Vec<u64>)> {
        let mut out = vec![];
        putting.send(now, (ViewNumber(1), A), appends, Limits::default(), &mut out);
        let puts = out.into_iter().map(|effect| match effect {
            ClientEffect::Send {
                to: Address::Node(node, _),
                message: roles::Message::ErwinShard(ShardMessage::Put { first, records, .. }),
            } => (node.0, (first..first + records.len() as u64).collect()),
            other => panic!("{other:?}"),
        });
        puts.collect()
    }

    fn ids(first: u64, count: u64) -> IdRun {
        IdRun { session: A, first, count }
    }

    #[test]
    fn a_record_is_stored_when_every_replica_of_its_shard_has_it() {
        let (mut putting, mut appends) = begin(2);
        assert_eq!(send(&mut putting, Time::ZERO, &appends), [(1, vec![0, 1]), (2, vec![0, 1])]);
        assert!(putting.stored(Time::ZERO, FIRST, ids(0, 2), &mut appends));
        assert!(putting.stored(Time::ZERO, SECOND, ids(1, 1), &mut appends));
        assert!(!putting.stored(Time::ZERO, (SHARD, NodeId(3)), ids(0, 1), &mut appends));
        let is_stored = |number| putting.is_stored(&appends.get(number).expect("not done with").target);
        assert_eq!((is_stored(0), is_stored(1)), (false, true));
    }

    #[test]
    fn names_wait_for_records_before_their_own_that_are_not_stored() {
        let (mut putting, mut appends) = begin(3);
        assert_eq!(putting.ids_below(&appends, 0), 0, "no name leaves before its record");
        send(&mut putting, Time::ZERO, &appends);
        assert_eq!(putting.ids_below(&appends, 0), 1, "the first one does not wait");
        for replica in [FIRST, SECOND] {
            putting.stored(Time::ZERO, replica, ids(0, 1), &mut appends);
        }
        assert_eq!(putting.ids_below(&appends, 0), 2);
        assert_eq!(putting.ids_below(&appends, 1 << 20), 3);
    }

    #[test]
    fn a_replica_gets_again_what_it_refused_and_nothing_else() {
        let (mut putting, mut appends) = begin(3);
        send(&mut putting, Time::ZERO, &appends);
        putting.stored(Time::ZERO, FIRST, ids(0, 1), &mut appends);
        putting.had_no_room(Time::ZERO, FIRST, ids(0, 2), &appends, (false, 1.0));
        assert_eq!(send(&mut putting, Time::ZERO, &appends), [], "not before a pause");
        let later = putting.deadline(appends.end()).expect("the pause ends");
        assert_eq!(send(&mut putting, later, &appends), [(1, vec![1])]);
    }
}
