//! Collects a node's questions for etcd. Equal questions are sent once; questions about many logs
//! share a request while etcd is busy.
//!
//! An answer was true at some moment after its question: a question never joins a request already
//! sent. Only askers that wait for a new view receive cached answers, and later changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use seriatim_etcd::{RequestError, Update};
use seriatim_host::{Event, RegisterQuestion};
use seriatim_model::{Address, Endpoint, LogId, NodeId};
use seriatim_protocol::control::message::{NEWS, Refusal};
use seriatim_protocol::control::{LogEntry, Message, catalog};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::batches::{BATCH, LookedUp};
use super::entries::{Entries, EtcdError};
use super::etcd_worker::{Outage, note};
use super::news::{Answer, News};
use crate::alarm::until;

/// Most requests of each kind in flight at etcd.
const UNDER_WAY: usize = 4;
/// Most queued questions of each kind. Further ones are dropped; askers retransmit.
const WAITING: usize = 16 << 10;
/// Most catalog changes in flight at etcd.
const CHANGES: usize = 64;
/// Pause between lookups while all askers only wait for a new view.
const NEWS_EVERY: Duration = Duration::from_millis(20);
/// Most log names whose ids are remembered.
const HINTS: usize = 64 << 10;

type Asker = (Address, LogId);
type Gets = Vec<(LogId, Vec<Asker>)>;
type Swaps = Vec<(LogEntry, Asker)>;
/// Askers of each name, with their question numbers.
type Lookups = Vec<(String, Vec<(Asker, u64)>)>;

enum Landed {
    Gets(Gets, Result<Vec<Result<Option<LogEntry>, EtcdError>>, RequestError>),
    Swaps(Swaps, Result<Vec<Result<Message, EtcdError>>, RequestError>),
    Lookups(Lookups, Instant, Result<LookedUp, EtcdError>),
    /// Any other question, and whether it created a log.
    Other(Asker, bool, Result<Vec<Event>, EtcdError>),
}

pub(super) struct Desk {
    entries: Entries,
    me: NodeId,
    answered: mpsc::Sender<Event>,
    outage: Arc<Outage>,
    flights: JoinSet<Landed>,
    gets: BTreeMap<LogId, Vec<Asker>>,
    gets_under_way: usize,
    swaps: BTreeMap<(LogId, Address), (LogEntry, Asker)>,
    /// Logs with a compare-and-set in flight; each has at most one.
    swapping: BTreeSet<LogId>,
    swaps_under_way: usize,
    /// Askers of each name. A name without askers is looked up for the askers in `news`.
    lookups: BTreeMap<String, Vec<(Asker, u64)>>,
    lookups_under_way: bool,
    looked_at: Option<Instant>,
    others: VecDeque<RegisterQuestion>,
    others_under_way: usize,
    /// Whether a log is being created. Creations run one at a time: concurrent ones would take the
    /// same id.
    is_creating: bool,
    hints: BTreeMap<String, LogId>,
    news: News,
}

impl Desk {
    pub(super) fn new(
        entries: Entries,
        me: NodeId,
        answered: mpsc::Sender<Event>,
        outage: Arc<Outage>,
    ) -> Self {
        Self {
            news: News::new(entries.keys.clone()),
            entries,
            me,
            answered,
            outage,
            flights: JoinSet::new(),
            gets: BTreeMap::new(),
            gets_under_way: 0,
            swaps: BTreeMap::new(),
            swapping: BTreeSet::new(),
            swaps_under_way: 0,
            lookups: BTreeMap::new(),
            lookups_under_way: false,
            looked_at: None,
            others: VecDeque::new(),
            others_under_way: 0,
            is_creating: false,
            hints: BTreeMap::new(),
        }
    }

    /// Answers questions until their channel closes. `changes` are etcd's notifications of entries.
    pub(super) async fn run(
        mut self,
        mut questions: mpsc::Receiver<RegisterQuestion>,
        mut changes: mpsc::Receiver<Result<Update, RequestError>>,
    ) {
        loop {
            let look_at = self.look_at();
            let mut answers = tokio::select! {
                question = questions.recv() => match question {
                    Some(question) => self.take(question),
                    None => return,
                },
                Some(landed) = self.flights.join_next() => self.landed(landed.expect("no request panics")),
                Some(update) = changes.recv() => match update {
                    Ok(update) => self.news.watched(update),
                    Err(_) => {
                        self.news.forget_all();
                        vec![]
                    }
                },
                () = until(look_at) => vec![],
            };
            // Take all other questions that have arrived, so that they share requests.
            while let Ok(question) = questions.try_recv() {
                answers.extend(self.take(question));
            }
            self.news.forget();
            self.depart();
            for event in answers {
                // If the node is gone, so are its askers.
                let _ = self.answered.send(event).await;
            }
        }
    }

    fn take(&mut self, question: RegisterQuestion) -> Vec<Event> {
        let RegisterQuestion { asker, log: works_for, message } = question;
        let who = (asker, works_for);
        match message {
            Message::Get { log } | Message::Peek { log } if self.gets.len() < WAITING => {
                let askers = self.gets.entry(log).or_default();
                if !askers.contains(&who) {
                    askers.push(who);
                }
            }
            Message::CompareAndSet { entry } if self.swaps.len() < WAITING => {
                // A repeated proposal replaces the earlier one, which has no answer yet.
                self.swaps.insert((entry.id, asker), (entry, who));
            }
            Message::Get { .. } | Message::Peek { .. } | Message::CompareAndSet { .. } => {}
            Message::Lookup { request, name } => return self.look_up(who, request, name),
            message if self.others.len() < WAITING => {
                self.others.push_back(RegisterQuestion { asker, log: works_for, message });
            }
            _ => {}
        }
        vec![]
    }

    fn look_up(&mut self, who: Asker, request: u64, name: String) -> Vec<Event> {
        // No log can have this name, which may be of any length: it is not sent to etcd.
        if catalog::check_name(&name).is_err() {
            let message = Message::Refused { request, refusal: catalog::not_found(name) };
            return vec![Event::RegisterAnswered { to: who.0, log: who.1, message }];
        }
        let mut answers = vec![];
        if request == NEWS
            && let Some(log) = self.hints.get(&name)
            && let Answer::Known(message, is_to_be_sure) = self.news.ask(*log, who.0)
        {
            answers.push(Event::RegisterAnswered { to: who.0, log: who.1, message });
            if is_to_be_sure && self.lookups.len() < WAITING {
                self.lookups.entry(name).or_default();
            }
        } else if self.lookups.len() < WAITING {
            let askers = self.lookups.entry(name).or_default();
            match askers.iter_mut().find(|(asker, _)| *asker == who) {
                // The asker repeats its question: one answer serves both.
                Some((_, known)) => *known = request.max(*known),
                None => askers.push((who, request)),
            }
        }
        answers
    }

    /// Time of the next lookup for askers of a new view. `None`: none waits, or a lookup is in
    /// flight.
    fn look_at(&self) -> Option<Instant> {
        let waits = !self.lookups.is_empty() && !self.lookups_under_way;
        waits.then(|| self.looked_at.map_or_else(Instant::now, |at| at + NEWS_EVERY))
    }

    fn depart(&mut self) {
        while !self.gets.is_empty() && self.gets_under_way < UNDER_WAY {
            self.send_gets();
        }
        while self.swaps_under_way < UNDER_WAY && self.send_swaps() {}
        let is_urgent = self.lookups.values().flatten().any(|(_, request)| *request != NEWS);
        let is_due = self.look_at().is_some_and(|at| is_urgent || at <= Instant::now());
        if is_due && !self.lookups_under_way {
            self.send_lookups();
        }
        while self.others_under_way < CHANGES && self.send_other() {}
    }

    fn send_gets(&mut self) {
        let gets: Gets = (0..BATCH).map_while(|_| self.gets.pop_first()).collect();
        self.gets_under_way += 1;
        let entries = self.entries.clone();
        self.flights.spawn(async move {
            let logs: Vec<LogId> = gets.iter().map(|(log, _)| *log).collect();
            let found = entries.get_all(&logs).await;
            Landed::Gets(gets, found)
        });
    }

    fn send_swaps(&mut self) -> bool {
        let mut logs = BTreeSet::new();
        let free =
            self.swaps.iter().filter(|((log, _), _)| !self.swapping.contains(log) && logs.insert(*log));
        let keys: Vec<(LogId, Address)> = free.take(BATCH).map(|(key, _)| *key).collect();
        let proposals: Vec<LogEntry> = keys.iter().map(|key| self.swaps[key].0.clone()).collect();
        let count = Entries::fitting(&proposals);
        let swaps: Swaps = keys.iter().take(count).filter_map(|key| self.swaps.remove(key)).collect();
        if swaps.is_empty() {
            return false;
        }
        self.swaps_under_way += 1;
        self.swapping.extend(swaps.iter().map(|(entry, _)| entry.id));
        let entries = self.entries.clone();
        self.flights.spawn(async move {
            let proposals = swaps.iter().map(|(entry, _)| entry.clone()).collect();
            let answers = entries.compare_and_set_all(proposals).await;
            Landed::Swaps(swaps, answers)
        });
        true
    }

    fn send_lookups(&mut self) {
        let lookups: Lookups = (0..BATCH).map_while(|_| self.lookups.pop_first()).collect();
        let since = Instant::now();
        (self.lookups_under_way, self.looked_at) = (true, Some(since));
        let names: Vec<String> = lookups.iter().map(|(name, _)| name.clone()).collect();
        let hint = |name: &String| Some((name.clone(), *self.hints.get(name)?));
        let hints: BTreeMap<String, LogId> = names.iter().filter_map(hint).collect();
        let entries = self.entries.clone();
        self.flights.spawn(async move {
            let found = entries.look_up_all(names, &hints).await;
            Landed::Lookups(lookups, since, found)
        });
    }

    fn send_other(&mut self) -> bool {
        let may_leave = |question: &RegisterQuestion| !(self.is_creating && creates(&question.message));
        let next = self.others.iter().position(may_leave);
        let Some(question) = next.and_then(|index| self.others.remove(index)) else { return false };
        let (who, creates) = ((question.asker, question.log), creates(&question.message));
        self.others_under_way += 1;
        self.is_creating |= creates;
        let (entries, me) = (self.entries.clone(), self.me);
        self.flights.spawn(async move {
            let answers = change(&entries, me, question).await;
            Landed::Other(who, creates, answers)
        });
        true
    }

    fn landed(&mut self, landed: Landed) -> Vec<Event> {
        match landed {
            Landed::Gets(gets, found) => {
                self.gets_under_way -= 1;
                self.got(gets, found)
            }
            Landed::Swaps(swaps, outcomes) => {
                self.swaps_under_way -= 1;
                self.swapped(swaps, outcomes)
            }
            Landed::Lookups(lookups, since, found) => {
                self.lookups_under_way = false;
                self.looked_up(lookups, since, found)
            }
            Landed::Other(who, created, outcome) => {
                self.others_under_way -= 1;
                self.is_creating &= !created;
                note(&self.outage, outcome.as_ref().err());
                outcome.unwrap_or_else(|error| unanswered(who, &error).into_iter().collect())
            }
        }
    }

    fn got(
        &mut self,
        gets: Gets,
        found: Result<Vec<Result<Option<LogEntry>, EtcdError>>, RequestError>,
    ) -> Vec<Event> {
        let found = found.map_err(EtcdError::from);
        note(&self.outage, found.as_ref().err());
        let mut answers = vec![];
        for (index, (log, askers)) in gets.into_iter().enumerate() {
            let entry = found.as_ref().map_err(EtcdError::clone);
            let entry =
                entry.and_then(|found| found.get(index).cloned().unwrap_or(Err(EtcdError::Contended)));
            let message = entry.map(|entry| catalog::current(log, entry));
            answers.extend(askers.into_iter().filter_map(|who| self.say(who, message.clone())));
        }
        answers
    }

    fn swapped(
        &mut self,
        swaps: Swaps,
        outcomes: Result<Vec<Result<Message, EtcdError>>, RequestError>,
    ) -> Vec<Event> {
        let mut outcomes = outcomes.map_err(EtcdError::from).map(Vec::into_iter);
        note(&self.outage, outcomes.as_ref().err());
        let mut answers = vec![];
        for (proposed, who) in swaps {
            self.swapping.remove(&proposed.id);
            let outcome = match &mut outcomes {
                Ok(outcomes) => outcomes.next().unwrap_or(Err(EtcdError::Contended)),
                Err(error) => Err(error.clone()),
            };
            if let Ok(Message::Current { entry }) = &outcome {
                answers.extend(self.news.note(entry, Instant::now()));
            }
            answers.extend(self.say(who, outcome));
        }
        answers
    }

    fn looked_up(
        &mut self,
        lookups: Lookups,
        since: Instant,
        found: Result<LookedUp, EtcdError>,
    ) -> Vec<Event> {
        note(&self.outage, found.as_ref().err());
        let mut askers: BTreeMap<String, Vec<(Asker, u64)>> = lookups.into_iter().collect();
        let LookedUp { logs, nodes } = match found {
            Ok(found) => found,
            Err(error) => {
                let all = askers.into_values().flatten();
                return all.filter_map(|(who, _)| unanswered(who, &error)).collect();
            }
        };
        self.news.nodes = nodes;
        let mut answers = vec![];
        for (name, entry) in logs {
            let askers = askers.remove(&name).unwrap_or_default();
            answers.extend(self.found(name, entry, askers, since));
        }
        answers
    }

    fn found(
        &mut self,
        name: String,
        entry: Result<Option<LogEntry>, EtcdError>,
        askers: Vec<(Asker, u64)>,
        since: Instant,
    ) -> Vec<Event> {
        let mut answers = vec![];
        if let Ok(Some(entry)) = &entry {
            if self.hints.len() >= HINTS {
                self.hints.clear();
            }
            self.hints.insert(name.clone(), entry.id);
            for ((asker, _), _) in askers.iter().filter(|(_, request)| *request == NEWS) {
                self.news.tell(entry, *asker);
            }
            answers.extend(self.news.note(entry, since));
            // A log without a view has no replica that could report it: notify this node's
            // controller.
            answers.extend(catalog::waits_for_view(entry).then(|| call(self.me, entry.id)));
        }
        for (who, request) in askers {
            let message = entry.clone().map(|entry| match entry {
                Some(entry) => Message::Found { request, entry, nodes: self.news.nodes.clone() },
                None => Message::Refused { request, refusal: catalog::not_found(name.clone()) },
            });
            answers.extend(self.say(who, message));
        }
        answers
    }

    fn say(&self, who: Asker, message: Result<Message, EtcdError>) -> Option<Event> {
        match message {
            Ok(message) => Some(Event::RegisterAnswered { to: who.0, log: who.1, message }),
            Err(error) => {
                note(&self.outage, Some(&error));
                unanswered(who, &error)
            }
        }
    }
}

fn creates(message: &Message) -> bool {
    matches!(message, Message::Create { .. })
}

fn call(me: NodeId, log: LogId) -> Event {
    Event::RegisterAnswered {
        to: Address::Node(me, Endpoint::Controller),
        log,
        message: Message::Get { log },
    }
}

/// Reports the failure to a client. A controller retransmits without a report.
fn unanswered((asker, log): Asker, error: &EtcdError) -> Option<Event> {
    let message = Message::Unanswered { why: format!("the register cannot be used: {error}") };
    let told = matches!(asker, Address::Client(..));
    told.then_some(Event::RegisterAnswered { to: asker, log, message })
}

/// Changes what a log keeps: its limits or pins. Returns the answer; `changed` is the new entry, if
/// anything changed.
async fn keep(
    entries: &Entries,
    (request, log): (u64, LogId),
    change: impl Fn(&LogEntry) -> Result<Option<LogEntry>, Refusal>,
    changed: &mut Option<LogEntry>,
) -> Result<Message, EtcdError> {
    let outcome = entries.reshape(log, |entry, _| change(entry)).await?;
    let answer = outcome.as_ref().map(|_| log).map_err(Refusal::clone);
    *changed = outcome.ok().flatten();
    Ok(catalog::answer(request, answer))
}

/// Notifies the node that applies the log's retention limits and pins. It reads them again before
/// it applies them.
fn tell_limits(entry: LogEntry) -> Option<Event> {
    let to = Address::Node(catalog::retained_by(&entry)?, Endpoint::Controller);
    Some(Event::RegisterAnswered { to, log: entry.id, message: Message::Registered { entry } })
}

/// Returns the answer and notices to other nodes.
async fn change(entries: &Entries, me: NodeId, question: RegisterQuestion) -> Result<Vec<Event>, EtcdError> {
    let RegisterQuestion { asker, log, message } = question;
    let (mut waits_for_view, mut tells_limits) = (None, None);
    let answer = match message {
        Message::List { request } => {
            let (entries, nodes) = entries.list().await?;
            Message::Listing { request, entries, nodes }
        }
        Message::Create { request, name, config } => {
            let outcome = entries.create(request, &name, &config).await?;
            waits_for_view = outcome.as_ref().ok().copied();
            catalog::answer(request, outcome)
        }
        Message::Delete { request, name, log } => catalog::answer(request, entries.delete(&name, log).await?),
        Message::AddShard { request, log, shard } => {
            let change = |entry: &LogEntry, nodes: &[NodeId]| catalog::with_shard(entry, shard, nodes);
            let outcome = entries.reshape(log, change).await?;
            waits_for_view = outcome.is_ok().then_some(log);
            catalog::answer(request, outcome.map(|_| log))
        }
        Message::RemoveShard { request, log, shard } => {
            let change = |entry: &LogEntry, _: &[NodeId]| catalog::without_shard(entry, shard);
            let outcome = entries.reshape(log, change).await?;
            waits_for_view = outcome.is_ok().then_some(log);
            catalog::answer(request, outcome.map(|_| log))
        }
        Message::SetRetention { request, log, change } => {
            let change = |entry: &LogEntry| catalog::with_retention(entry, change);
            keep(entries, (request, log), change, &mut tells_limits).await?
        }
        Message::Pin { request, log, name, position, most_bytes } => {
            let change = |entry: &LogEntry| catalog::with_pin(entry, &name, position, most_bytes);
            keep(entries, (request, log), change, &mut tells_limits).await?
        }
        Message::Unpin { request, log, name } => {
            let change = |entry: &LogEntry| Ok(catalog::without_pin(entry, &name));
            keep(entries, (request, log), change, &mut tells_limits).await?
        }
        Message::Part { request, node, change } => {
            catalog::answer(request, entries.part(node, change).await?.map(|()| LogId(0)))
        }
        Message::AskPartings { request } => {
            Message::PartingsAre { request, partings: entries.partings().await? }
        }
        Message::EndSession { log, view, ended, since } => {
            entries.end_session(log, view, ended, since).await?
        }
        Message::Join { node } => entries.join(node, None).await?,
        Message::Move { node, version } => entries.join(node, Some(version)).await?,
        Message::Retired { log, node } => {
            entries.retired(log, node).await?;
            return Ok(vec![]);
        }
        _ => return Ok(vec![]),
    };
    let answer = Event::RegisterAnswered { to: asker, log, message: answer };
    let mut told = vec![answer];
    told.extend(waits_for_view.map(|log| call(me, log)));
    told.extend(tells_limits.and_then(tell_limits));
    Ok(told)
}
