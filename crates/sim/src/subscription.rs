//! Tests the client library's subscriber.

use std::collections::{BTreeSet, VecDeque};

use seriatim_delivery::subscriber::{Event, Request};
use seriatim_delivery::{Failure, Selection, Subscriber};
use seriatim_model::storage::Stored;
use seriatim_model::{
    Address, Effect, Filter, Input, Machine, NodeId, Peer, Position, ShardId, Time, View, ViewNumber,
};
use seriatim_protocol::Message;
use seriatim_protocol::control::LogEntry;

use crate::chosen::Wanted;
use crate::excuses::Excuse;
use crate::history::{Foretelling, History};
use crate::plan::Plan;
use crate::random::Random;

/// A subscription to the whole log or to some shards.
#[derive(Debug)]
pub struct Subscription {
    /// Wanted shards. `None`: all.
    shards: Option<BTreeSet<ShardId>>,
    /// Its index in the history's choices.
    choice: usize,
    machine: Subscriber,
    random: Random,
    /// Next position to receive.
    next: Position,
    /// Records that the application still requests.
    wants: u64,
    has_ended: bool,
    /// Whether it skips lost records.
    skips_lost: bool,
    speculative: Option<Speculative>,
}

#[derive(Debug)]
struct Speculative {
    /// Its number in the history.
    number: usize,
    /// Whether it wants all records.
    is_whole: bool,
    /// Predicted records that are not yet confirmed.
    standing: VecDeque<Stored>,
    confirmed: Position,
}

/// Wanted shards (`None`: all): one, or some initial ones if shards join and leave. Drawn
/// separately, like predictions, so that known seeds keep their meaning.
fn chosen_shards(plan: &Plan, is_speculative: bool) -> Option<BTreeSet<ShardId>> {
    let mut random = Random::new(plan.seed ^ 0x0054_A8D5);
    let is_chosen = random.percent(30) && plan.config.shards > 1;
    if plan.reshapes.is_empty() {
        let one = is_chosen.then(|| ShardId(random.below(u64::from(plan.config.shards)) as u32));
        return one.filter(|_| is_speculative).map(|shard| [shard].into());
    }
    let mut random = Random::new(plan.seed ^ 0x5E1E_C7ED);
    let is_chosen = random.percent(50);
    let shards = some_of(plan.config.shards, &mut random);
    is_chosen.then_some(shards)
}

/// A random, nonempty subset of `count` shards.
fn some_of(count: u32, random: &mut Random) -> BTreeSet<ShardId> {
    let one = ShardId(random.below(u64::from(count)) as u32);
    (0..count).map(ShardId).filter(|shard| *shard == one || random.percent(40)).collect()
}

impl Speculative {
    fn confirm(&mut self, upto: Position, history: &mut History) {
        let below = self.standing.partition_point(|stored| stored.position < upto);
        let records: Vec<Stored> = self.standing.drain(..below).collect();
        if self.is_whole {
            history.confirm(self.confirmed, upto, &records);
        }
        self.confirmed = upto;
    }
}

impl Subscription {
    /// Subscribes from the beginning of the log, with predictions in half of the seeds. `window` is
    /// in bytes.
    #[must_use]
    pub fn new(
        control: NodeId,
        entry: &LogEntry,
        mut random: Random,
        window: u64,
        plan: &Plan,
        history: &mut History,
    ) -> Self {
        let speculative = Random::new(plan.seed ^ 0x5BEC).percent(50);
        let prefix = (plan.workload.keyed && speculative && random.percent(50)).then(|| b"k0".to_vec());
        let wanted = Wanted { prefix, shards: chosen_shards(plan, speculative) };
        Self::of((control, entry, window), random, (speculative, wanted), plan, history)
    }

    /// Subscribes to a shard that will join, with or without others, or only to others.
    #[must_use]
    pub fn to_joining(
        control: NodeId,
        entry: &LogEntry,
        joining: ShardId,
        window: u64,
        plan: &Plan,
        history: &mut History,
    ) -> Self {
        let mut random = Random::new(plan.seed ^ 0x0701_0000 ^ u64::from(joining.0));
        let mut shards = BTreeSet::from([joining]);
        if random.percent(60) {
            shards.extend(some_of(joining.0, &mut random));
        }
        let has_nodes = |shard: &ShardId| !entry.shards[shard.0 as usize].is_empty();
        shards.retain(has_nodes);
        let wanted = Wanted { prefix: None, shards: Some(shards) };
        let speculative = random.percent(50);
        Self::of((control, entry, window), random, (speculative, wanted), plan, history)
    }

    fn of(
        (control, entry, window): (NodeId, &LogEntry, u64),
        random: Random,
        (speculative, wanted): (bool, Wanted),
        plan: &Plan,
        history: &mut History,
    ) -> Self {
        let Wanted { prefix, shards } = wanted.clone();
        let filter = prefix.clone().map(Filter::key_prefix);
        let skips_lost = Random::new(plan.seed ^ 0x105E).percent(50);
        let selection = Selection { speculative, filter, shards: shards.clone(), skips_lost };
        let range = (Position::ZERO, None);
        let machine = Subscriber::with(control, entry.clone(), range, window, selection, plan.options);
        let choice = history.choose(wanted.clone());
        let speculative = speculative.then(|| Speculative {
            is_whole: prefix.is_none() && shards.is_none(),
            number: history.speculate(wanted),
            standing: VecDeque::new(),
            confirmed: Position::ZERO,
        });
        let next = Position::ZERO;
        Self { shards, choice, machine, random, next, wants: 0, has_ended: false, skips_lost, speculative }
    }

    /// Bound of the final positions that were delivered or trimmed; with predictions, of the
    /// confirmed ones.
    #[must_use]
    pub fn next(&self) -> Position {
        self.speculative.as_ref().map_or(self.machine.confirmed(), |speculative| speculative.confirmed)
    }

    fn has_lost_its_shards(&self) -> bool {
        let Some((view, shards)) = self.machine.entry().view.as_ref().zip(self.shards.as_ref()) else {
            return false;
        };
        shards.iter().all(|shard| view.holders(*shard).is_none())
    }

    /// Whether all chosen shards have left the view, at least one is retired, and all records of
    /// the retired ones were delivered.
    fn has_read_its_retired_shards(&self) -> bool {
        let entry = self.machine.entry();
        let Some((view, shards)) = entry.view.as_ref().zip(self.shards.as_ref()) else { return false };
        let mut retired = shards.iter().filter_map(|shard| view.retired(*shard)).peekable();
        retired.peek().is_some()
            && shards.iter().all(|shard| view.shard(*shard).is_none())
            && retired.all(|retired| self.next() >= retired.ends(&entry.history))
    }

    /// Whether it has every wanted record below `end`. Retired shards have no records above their
    /// end.
    #[must_use]
    pub fn has_all_below(&self, end: Position) -> bool {
        let known = self.machine.entry().view.as_ref().zip(self.shards.as_ref());
        let retired_until = |(view, shards): (&View, &BTreeSet<ShardId>)| {
            let retired = shards.iter().filter_map(|shard| view.retired(*shard));
            let until = retired.map(|retired| retired.until).max()?;
            shards.iter().all(|shard| view.shard(*shard).is_none()).then_some(until)
        };
        self.next() >= known.and_then(retired_until).map_or(end, |until| end.min(until))
    }

    /// Whether it knows this view or a later one.
    #[must_use]
    pub fn knows(&self, view: ViewNumber) -> bool {
        self.machine.entry().view_number() >= view
    }

    /// Notes that its client has died.
    pub fn leave(&self, history: &mut History) {
        history.choices[self.choice].has_ended = true;
        if let Some(speculative) = &self.speculative {
            history.speculations[speculative.number].goes_on = false;
        }
    }

    /// Whether it ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Latest time for [`Subscription::wake`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.wants {
            _ if self.has_ended => None,
            0 => Some(Time::ZERO),
            _ => self.machine.deadline(),
        }
    }

    /// Requests more records, and wakes the machine.
    pub fn wake(&mut self, now: Time, history: &mut History, out: &mut Vec<(Address, Message)>) {
        if self.wants == 0 {
            self.wants = self.random.between(1, 40);
            let request = Request::Want { records: self.wants, bytes: 1 << 20 };
            self.step(now, Input::Request { token: 1, request }, history, out);
        }
        if self.machine.deadline().is_some_and(|at| now >= at) {
            self.step(now, Input::Wake, history, out);
        }
    }

    /// Takes a message.
    pub fn receive(
        &mut self,
        now: Time,
        from: Address,
        message: Message,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        self.step(now, Input::Message { from, message }, history, out);
    }

    /// The connection to a node is closed.
    pub fn disconnected(
        &mut self,
        now: Time,
        node: NodeId,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        self.step(now, Input::Disconnected(Peer::Node(node)), history, out);
    }

    fn step(
        &mut self,
        now: Time,
        input: Input<Message, Request>,
        history: &mut History,
        out: &mut Vec<(Address, Message)>,
    ) {
        let mut effects = vec![];
        self.machine.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => out.push((to, message)),
                Effect::Reply { reply, .. } => self.told(reply, history),
                other => unreachable!("a subscriber has no disk: {other:?}"),
            }
        }
        let chosen = &mut history.choices[self.choice];
        (chosen.upto, chosen.has_ended) = (self.next(), self.has_ended);
    }

    fn foretold(&mut self, event: &Event, history: &mut History) {
        let Some(speculative) = &mut self.speculative else { return };
        let number = speculative.number;
        match event {
            Event::Deliver { records, .. } => {
                for Stored { position, id, record } in records {
                    let (position, id, is_void) = (*position, *id, record.is_no_op());
                    history.foretell(number, Foretelling::Record { position, id, is_void });
                }
                speculative.standing.extend(records.iter().cloned());
            }
            Event::Confirm { upto } | Event::Passed { upto } => {
                history.foretell(number, Foretelling::Confirm(*upto));
                speculative.confirm(*upto, history);
            }
            Event::Lost { from, end, .. } => {
                history.foretell(number, Foretelling::Lost(*from, *end));
                speculative.confirm(*from, history);
                speculative.confirmed = *end;
                // Predictions above may be void, with no report for positions below them.
                self.next = self.next.min(*from);
            }
            Event::Fail { after } => {
                history.foretell(number, Foretelling::Fail(*after));
                speculative.standing.retain(|stored| stored.position < *after);
                self.next = self.next.min(*after);
            }
            Event::Trimmed { first } => {
                history.foretell(number, Foretelling::Trimmed(*first));
                speculative.standing.retain(|stored| stored.position >= *first);
                speculative.confirmed = *first;
            }
            _ => {}
        }
    }

    fn told(&mut self, event: Event, history: &mut History) {
        self.foretold(&event, history);
        let chosen = &mut history.choices[self.choice];
        match &event {
            Event::Deliver { records, .. } => chosen.give(records),
            Event::Fail { after } => chosen.fail(*after),
            Event::Trimmed { first: end } | Event::Lost { end, .. } => chosen.pass(*end),
            _ => {}
        }
        match event {
            Event::Deliver { records, .. } if self.speculative.is_some() => {
                self.wants = self.wants.saturating_sub(records.len() as u64);
                self.next = records.last().map_or(self.next, |last| last.position.next());
            }
            Event::Passed { .. } if self.speculative.is_some() => self.wants = self.wants.saturating_sub(1),
            Event::Lost { shard, from, end } if self.skips_lost && from >= self.next => {
                self.wants = self.wants.saturating_sub(1);
                history.was_told_lost(shard, from);
                history.skip(self.shards.clone(), from, end);
                self.next = end;
            }
            Event::Confirm { .. } | Event::Fail { .. } if self.speculative.is_some() => {}
            Event::Deliver { records, .. } => {
                self.wants = self.wants.saturating_sub(records.len() as u64);
                let upto = records.last().map_or(self.next, |last| last.position.next());
                if self.shards.is_none() {
                    history.deliver(self.next, upto, &records);
                }
                self.next = upto;
            }
            Event::Trimmed { first } => self.next = first,
            // `next` may lie above void predictions, as for `Event::Lost`.
            Event::Failed(Failure::Lost { position, shard, .. })
                if !self.skips_lost
                    && (position >= self.next || self.speculative.is_some() && position >= self.next()) =>
            {
                history.was_told_lost(shard, position);
                self.has_ended = true;
            }
            Event::Failed(Failure::Missing { .. })
                if history.excuse(Excuse::Missing, history.lost_too_much) =>
            {
                self.has_ended = true;
            }
            Event::Failed(Failure::Missing { position, shard } | Failure::Damaged { position, shard }) => {
                let told = format!("a subscription at {} ended: {event:?}", self.next);
                history.withheld.push((shard, position, told));
                self.has_ended = true;
            }
            Event::Failed(Failure::Reassigned { position, start })
                if start < position && history.excuse(Excuse::Overwritten, history.accepted.is_some()) =>
            {
                self.has_ended = true;
            }
            // A shard was retired and completely trimmed.
            Event::Failed(Failure::ShardsLeft(_)) if self.has_lost_its_shards() => self.has_ended = true,
            Event::Failed(Failure::ShardsRetired(_)) if self.has_read_its_retired_shards() => {
                self.has_ended = true
            }
            other => history.problems.push(format!("a subscription at {} ended: {other:?}", self.next)),
        }
    }
}
