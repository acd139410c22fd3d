//! A reader that uses the shard protocol directly and trusts no answer.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::storage::Found;
use seriatim_model::{
    Address, Endpoint, NodeId, Position, RetiredShard, ShardId, ShardMembers, Time, limits,
};
use seriatim_protocol::Message as AnyMessage;
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::shard::{Message, ReadError};

use crate::history::{History, Moment, Served};
use crate::random::Random;

/// Time before a question is repeated.
const TIMEOUT: Duration = Duration::from_millis(400);
/// Wait before the register is asked again.
const LOOK_UP_EVERY: Duration = Duration::from_millis(100);
/// Wait of a read at a shard.
const WAIT_MS: u32 = 150;
/// Subscription credit in bytes: small, so that it runs out.
const CREDIT: u64 = 2000;

/// How records are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Primaries push.
    Subscribe,
    /// Waiting reads, at random replicas.
    Poll,
    /// Reads without waiting, at one replica, until it has no more.
    Drain {
        /// The shard.
        shard: ShardId,
        /// The replica; 0 is the primary.
        replica: usize,
    },
}

/// Reads a log from a position on.
#[derive(Debug)]
pub struct Reader {
    control: NodeId,
    style: Style,
    entry: LogEntry,
    from: Position,
    cursors: Vec<Cursor>,
    next_request: u64,
    look_up_at: Option<Time>,
    trimmed: Position,
    /// Every position below `read_to` was served, lost or trimmed; `read` has served positions
    /// above. Cursors do not show this: a shard that joined has positions below them before the
    /// reader knows it.
    read_to: Position,
    read: BTreeSet<Position>,
    random: Random,
}

#[derive(Debug)]
struct Cursor {
    shard: ShardId,
    next: Position,
    asked: Option<Asked>,
    ask_at: Time,
    used_credit: u64,
    is_done: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    request: u64,
    node: NodeId,
    moment: Moment,
    at: Time,
    from: Position,
    subscribed: bool,
}

impl Reader {
    /// Reads the log of `entry` from `from` on.
    #[must_use]
    pub fn new(control: NodeId, entry: LogEntry, style: Style, from: Position, random: Random) -> Self {
        let look_up_at = entry.view.is_none().then_some(Time::ZERO);
        let cursors = vec![];
        let mut reader = Self {
            control,
            style,
            entry,
            from,
            cursors,
            next_request: 0,
            look_up_at,
            trimmed: Position::ZERO,
            read_to: from,
            read: BTreeSet::new(),
            random,
        };
        reader.follow_shards();
        reader
    }

    /// Follows the view's shards, including retired ones.
    fn follow_shards(&mut self) {
        let Some(view) = &self.entry.view else { return };
        self.cursors.retain(|cursor| view.holders(cursor.shard).is_some());
        let retired = view.retired.iter().map(RetiredShard::members);
        for ShardMembers { shard, .. } in view.shards.iter().chain(retired) {
            let is_wanted = match self.style {
                Style::Drain { shard: only, .. } => *shard == only,
                _ => true,
            };
            if is_wanted && self.cursors.iter().all(|cursor| cursor.shard != *shard) {
                self.cursors.push(Cursor {
                    shard: *shard,
                    next: self.from,
                    asked: None,
                    ask_at: Time::ZERO,
                    used_credit: 0,
                    is_done: false,
                });
            }
        }
    }

    /// Bound below which every position was read, lost or trimmed.
    #[must_use]
    pub fn frontier(&self) -> Position {
        self.read_to
    }

    fn note_read(&mut self, positions: impl IntoIterator<Item = Position>) {
        self.read.extend(positions);
        while let Some(position) = self.read.first().copied().filter(|position| *position <= self.read_to) {
            self.read.pop_first();
            self.read_to = self.read_to.max(position.next());
        }
    }

    /// Whether a drain is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.cursors.iter().all(|cursor| cursor.is_done)
    }

    /// Highest trim point reported to it.
    #[must_use]
    pub fn trimmed(&self) -> Position {
        self.trimmed
    }

    /// The latest known register entry.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        &self.entry
    }

    /// Latest time for [`Reader::timer`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let cursors = self.cursors.iter().filter(|cursor| !cursor.is_done).map(|cursor| match cursor.asked {
            Some(asked) => asked.at + TIMEOUT,
            None => cursor.ask_at,
        });
        let cursors = if self.entry.view.is_some() { cursors.min() } else { None };
        [cursors, self.look_up_at].into_iter().flatten().min()
    }

    /// Sends the questions that are due.
    pub fn timer(&mut self, now: Time, history: &mut History, out: &mut Vec<(Address, AnyMessage)>) {
        if self.look_up_at.is_some_and(|at| now >= at) {
            self.look_up_at = Some(now + LOOK_UP_EVERY);
            let message = control::Message::Lookup { request: 1, name: self.entry.name.clone() };
            out.push((Address::Node(self.control, Endpoint::Register), message.into()));
        }
        for index in 0..self.cursors.len() {
            let cursor = &mut self.cursors[index];
            if let Some(asked) = cursor.asked.filter(|asked| now >= asked.at + TIMEOUT) {
                let to = Address::Node(asked.node, Endpoint::Shard(cursor.shard));
                out.push((to, Message::Cancel { request: asked.request }.into()));
                cursor.asked = None;
                self.look_up_at = self.look_up_at.or(Some(now));
            }
            if cursor.asked.is_none() && !cursor.is_done && now >= cursor.ask_at {
                self.ask(now, index, history, out);
            }
        }
    }

    fn ask(&mut self, now: Time, index: usize, history: &mut History, out: &mut Vec<(Address, AnyMessage)>) {
        let shard = self.cursors[index].shard;
        let Some(members) = self.entry.view.as_ref().and_then(|view| view.holders(shard)) else { return };
        let replica = match self.style {
            Style::Subscribe => 0,
            Style::Poll => self.random.below(members.replicas.len() as u64) as usize,
            Style::Drain { replica, .. } => replica,
        };
        let Some(member) = members.replicas.get(replica) else {
            self.cursors[index].is_done = true;
            return;
        };
        self.next_request += 1;
        let request = self.next_request;
        let max_records = self.random.between(1, 20) as u32;
        let cursor = &mut self.cursors[index];
        let from = cursor.next;
        let subscribed = self.style == Style::Subscribe;
        let moment = history.tick();
        cursor.asked = Some(Asked { request, node: member.node, moment, at: now, from, subscribed });
        cursor.used_credit = 0;
        let end = Position(u64::MAX);
        let message = match self.style {
            Style::Subscribe => Message::Subscribe { request, from, credit: CREDIT },
            Style::Poll => Message::Read { request, from, end, max_records, wait_ms: WAIT_MS },
            Style::Drain { .. } => Message::Read { request, from, end, max_records: 1000, wait_ms: 0 },
        };
        out.push((Address::Node(member.node, Endpoint::Shard(shard)), message.into()));
    }

    /// The connection to a node is closed.
    pub fn disconnected(&mut self, now: Time, node: NodeId) {
        for cursor in &mut self.cursors {
            if cursor.asked.is_some_and(|asked| asked.node == node) {
                cursor.asked = None;
                cursor.ask_at = now + LOOK_UP_EVERY;
                self.look_up_at = self.look_up_at.or(Some(now));
            }
        }
    }

    /// Takes a message.
    pub fn receive(
        &mut self,
        now: Time,
        from: Address,
        message: AnyMessage,
        history: &mut History,
        out: &mut Vec<(Address, AnyMessage)>,
    ) {
        match message {
            AnyMessage::Control(control::Message::Found { entry, .. }) => {
                if entry.version >= self.entry.version {
                    self.entry = entry;
                    self.follow_shards();
                }
                if self.entry.view.is_some() {
                    self.look_up_at = None;
                }
            }
            AnyMessage::Shard(message) => {
                if let Address::Node(node, Endpoint::Shard(shard)) = from {
                    self.answered(now, node, shard, message, history, out);
                }
            }
            _ => {}
        }
    }

    fn answered(
        &mut self,
        now: Time,
        node: NodeId,
        shard: ShardId,
        message: Message,
        history: &mut History,
        out: &mut Vec<(Address, AnyMessage)>,
    ) {
        let asked = self.cursors.iter().find(|cursor| cursor.shard == shard).and_then(|cursor| cursor.asked);
        let Some(asked) = asked.filter(|asked| asked.node == node) else { return };
        if request_of(&message).is_some_and(|request| request != asked.request) {
            return;
        }
        if let Message::ReadFailed { error, .. } = message {
            return self.refused(now, shard, &error, history);
        }
        let Some((delivered_from, found)) = found_in(message) else { return self.turned_away(now, shard) };
        let Found { records, empty, upto } = found;
        self.note_read(records.iter().map(|stored| stored.position));
        self.note_read(empty.iter().flat_map(|span| span.positions()));
        let bytes: u64 = records.iter().map(|stored| stored.record.size() as u64).sum();
        let bytes = bytes + limits::SPAN_BYTES * empty.len() as u64;
        let served = Served {
            at: 0,
            asked: asked.moment,
            subscribed: asked.subscribed,
            node,
            shard,
            from: delivered_from.unwrap_or(asked.from),
            upto,
            records: 0..0,
            empty,
        };
        history.serve(served, &records);
        let drains = matches!(self.style, Style::Drain { .. });
        let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.shard == shard) else { return };
        let Some(from) = delivered_from else {
            cursor.is_done = drains && upto <= cursor.next;
            if upto <= cursor.next {
                // The replica sent no further records: the log has none, or the replica has left
                // the view.
                self.look_up_at = self.look_up_at.or(Some(now));
            }
            cursor.next = cursor.next.max(upto);
            cursor.asked = None;
            cursor.ask_at = now;
            return;
        };
        if from > cursor.next {
            // A message was lost: the subscription is useless from here on.
            cursor.asked = None;
            cursor.ask_at = now;
            return;
        }
        cursor.next = cursor.next.max(upto);
        cursor.used_credit += bytes;
        cursor.asked = Some(Asked { at: now, ..asked });
        if cursor.used_credit >= CREDIT / 2 {
            let bytes = std::mem::take(&mut cursor.used_credit);
            let to = Address::Node(node, Endpoint::Shard(shard));
            out.push((to, Message::Credit { request: asked.request, bytes }.into()));
        }
    }

    fn turned_away(&mut self, now: Time, shard: ShardId) {
        let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.shard == shard) else { return };
        cursor.asked = None;
        cursor.ask_at = now + LOOK_UP_EVERY;
        self.look_up_at = self.look_up_at.or(Some(now));
    }

    fn refused(&mut self, now: Time, shard: ShardId, error: &ReadError, history: &mut History) {
        let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.shard == shard) else { return };
        cursor.asked = None;
        cursor.ask_at = now + Duration::from_millis(5);
        match *error {
            ReadError::Trimmed { first } => {
                cursor.next = cursor.next.max(first);
                self.trimmed = self.trimmed.max(first);
                self.read_to = self.read_to.max(first);
                self.note_read([]);
            }
            // The application notes the loss and continues. A drain skips to `end`: its shard has
            // nothing below. For other readers another shard may hold the next position.
            ReadError::Lost { position, end } => {
                history.was_told_lost(shard, position);
                let passed = if matches!(self.style, Style::Drain { .. }) { end } else { position.next() };
                cursor.next = cursor.next.max(passed);
                cursor.ask_at = now;
                self.note_read([position]);
            }
            // A replica of another view may hold the record.
            ReadError::Missing { .. } => self.look_up_at = self.look_up_at.or(Some(now)),
            _ => {}
        }
    }
}

fn request_of(message: &Message) -> Option<u64> {
    match message {
        Message::Records { request, .. }
        | Message::RecordsWith { request, .. }
        | Message::Deliver { request, .. }
        | Message::DeliverWith { request, .. }
        | Message::ReadFailed { request, .. } => Some(*request),
        _ => None,
    }
}

/// Contents of an answer; for a subscription also its first position.
fn found_in(message: Message) -> Option<(Option<Position>, Found)> {
    match message {
        Message::Records { records, upto, .. } => Some((None, Found { records, empty: vec![], upto })),
        Message::RecordsWith { records, empty, upto, .. } => Some((None, Found { records, empty, upto })),
        Message::Deliver { from, records, upto, .. } => {
            Some((Some(from), Found { records, empty: vec![], upto }))
        }
        Message::DeliverWith { from, records, empty, upto, .. } => {
            Some((Some(from), Found { records, empty, upto }))
        }
        _ => None,
    }
}
