//! Costs of an append and its read without failures: delays, syncs, messages.

use std::time::Duration;

use seriatim_model::{Durability, LogConfig, NodeId, Order, Position, ShardId, View};
use seriatim_protocol::parts::appending::{AppendSpec, Reply};

use crate::lab::Lab;
use crate::programs::{Answer, Ask, Program};
use crate::spent::{Pace, Spent};

pub(crate) const APPENDER: u64 = 1;
pub(crate) const READER: u64 = 2;
const SUBSCRIBER: u64 = 3;
/// Number of measurements, each at another moment: a wait for a timer may take its whole interval.
const TIMES: u64 = 16;
/// Work without failures and retransmissions ends within this time.
const SOON: Duration = Duration::from_millis(50);
/// Time by which replicas that the log no longer needs have recorded that.
const SETTLED: Duration = Duration::from_secs(4);
/// Pause between appends; no multiple of a timer's interval.
const PAUSE: Duration = Duration::from_micros(5_070);

/// Highest costs of one append and its read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    pub(crate) acknowledged: Spent,
    /// Until an append that asks for its position is acknowledged.
    pub(crate) bound: Spent,
    /// Until the shard's primary knows that the record is final.
    pub(crate) stable: Spent,
    pub(crate) delivered: Spent,
    /// Until a subscriber with predictions has the record.
    pub(crate) foretold: Spent,
    /// Until that subscriber knows that the record is final.
    pub(crate) confirmed: Spent,
    pub(crate) read: Spent,
    pub(crate) tail: Spent,
    /// Messages until the acknowledgement.
    pub(crate) messages_before: u64,
    pub(crate) messages: u64,
    pub(crate) syncs: u64,
}

impl Costs {
    fn or_worse(self, other: Self) -> Self {
        Self {
            acknowledged: self.acknowledged.max(other.acknowledged),
            bound: self.bound.max(other.bound),
            stable: self.stable.max(other.stable),
            delivered: self.delivered.max(other.delivered),
            foretold: self.foretold.max(other.foretold),
            confirmed: self.confirmed.max(other.confirmed),
            read: self.read.max(other.read),
            tail: self.tail.max(other.tail),
            messages_before: self.messages_before.max(other.messages_before),
            messages: self.messages.max(other.messages),
            syncs: self.syncs.max(other.syncs),
        }
    }
}

/// Three sequencing replicas and three shard replicas, each on its own node; a client of each kind;
/// and a first record that all clients have read.
pub(crate) fn prepared(pace: Pace, order: Order, durability: Durability) -> (Lab, View) {
    let mut lab = Lab::new(pace);
    let config = LogConfig { order, durability, replicas: 3, sequencers: 3, ..LogConfig::default() };
    let entry = lab.open_apart(config);
    lab.start(APPENDER, Program::appender(&entry, 7));
    lab.start(READER, Program::reader(&entry));
    lab.start(SUBSCRIBER, Program::subscriber(&entry, Position::ZERO));
    lab.ask(APPENDER, 0, Ask::OpenSession);
    lab.wait(SOON);
    lab.append(APPENDER, 1, AppendSpec::default());
    lab.wait(SOON);
    assert!(lab.handed_over(APPENDER, 1).is_some(), "the first record is there");
    lab.ask(READER, 1, Ask::Read(Position::ZERO));
    lab.wait(SOON);
    assert!(lab.told(READER, 1).is_some(), "the first record is read");
    (lab, entry.view.expect("it has a view"))
}

pub(crate) fn primary(view: &View) -> (NodeId, ShardId) {
    let shard = &view.shards[0];
    (shard.primary().node, shard.shard)
}

pub(crate) fn measure(order: Order, durability: Durability) -> Costs {
    let (mut lab, view) = prepared(Pace::COUNTED, order, durability);
    lab.wait(SETTLED);
    let times = (1..=TIMES).map(|number| {
        lab.wait(PAUSE);
        append_and_read(&mut lab, &view, number)
    });
    let costs = times.fold(Costs::default(), Costs::or_worse);
    let (foretold, confirmed) = measure_predictions(order, durability);
    Costs { foretold, confirmed, ..costs }
}

/// Longest times until a subscriber with predictions has a record, and until its confirmation.
fn measure_predictions(order: Order, durability: Durability) -> (Spent, Spent) {
    let mut lab = Lab::new(Pace::COUNTED);
    let config = LogConfig { order, durability, replicas: 3, sequencers: 3, ..LogConfig::default() };
    let entry = lab.open_apart(config);
    lab.start(APPENDER, Program::appender(&entry, 7));
    lab.start(SUBSCRIBER, Program::speculator(&entry, Position::ZERO));
    lab.ask(APPENDER, 0, Ask::OpenSession);
    lab.wait(SOON);
    let mut most = (Spent::default(), Spent::default());
    for number in 0..=TIMES {
        lab.wait(PAUSE);
        let began = lab.now;
        lab.append(APPENDER, number + 1, AppendSpec::default());
        lab.wait(SOON);
        let foretold = lab.handed_over(APPENDER, number + 1).expect("it is delivered");
        let position = lab.position(APPENDER, number + 1).expect("it is delivered");
        let confirmed = lab.confirmed(position).expect("it is confirmed");
        // The first append also opens the first window.
        if number > 0 {
            most.0 = most.0.max(Spent::between(began, foretold));
            most.1 = most.1.max(Spent::between(began, confirmed));
        }
    }
    assert!(!lab.took_back(), "nothing was lost");
    most
}

fn append_and_read(lab: &mut Lab, view: &View, number: u64) -> Costs {
    let token = number * 10;
    let (node, shard) = primary(view);
    let before = lab.stable(node, shard);
    let (began, messages, syncs) = (lab.now, lab.messages, lab.syncs);
    lab.append(APPENDER, token, AppendSpec::default());
    assert!(lab.wait_until(SOON, |lab| lab.told(APPENDER, token).is_some()), "it is acknowledged");
    let acknowledged = Spent::between(began, lab.now);
    let messages_before = lab.messages - messages;
    assert!(lab.wait_until(SOON, |lab| lab.stable(node, shard) > before), "it is final");
    let stable = Spent::between(began, lab.now);
    lab.wait(SOON);
    let (messages, syncs) = (lab.messages - messages, lab.syncs - syncs);
    let delivered = Spent::between(began, lab.handed_over(APPENDER, token).expect("it is delivered"));

    let position = lab.position(APPENDER, token).expect("it is delivered");
    let read = answer(lab, READER, token + 1, Ask::Read(position)).0;
    let tail = answer(lab, APPENDER, token + 2, Ask::CheckTail).0;
    let began = lab.now;
    lab.append(APPENDER, token + 3, AppendSpec { sync: true, ..AppendSpec::default() });
    lab.wait(SOON);
    let told = lab.told(APPENDER, token + 3).expect("it is acknowledged");
    let is_bound = matches!(told.answer, Answer::Appending(Reply::Appended { position: Some(_), .. }));
    assert!(is_bound, "{told:?}");
    let bound = Spent::between(began, told.at);
    Costs {
        acknowledged,
        bound,
        stable,
        delivered,
        read,
        tail,
        messages_before,
        messages,
        syncs,
        ..Costs::default()
    }
}

/// Asks a client's program. Returns the answer and the time until it.
fn answer(lab: &mut Lab, client: u64, token: u64, ask: Ask) -> (Spent, &Answer) {
    let began = lab.now;
    lab.ask(client, token, ask);
    lab.wait(SOON);
    let told = lab.told(client, token).expect("it is answered");
    (Spent::between(began, told.at), &told.answer)
}

#[test]
fn a_chain_costs_two_delays_for_each_of_its_replicas() {
    for replicas in 1..=4 {
        let mut lab = Lab::new(Pace::COUNTED);
        let config = LogConfig {
            order: Order::Corfu,
            durability: Durability::Memory,
            replicas,
            sequencers: 1,
            ..LogConfig::default()
        };
        let entry = lab.open_log(config);
        lab.start(APPENDER, Program::appender(&entry, 7));
        lab.start(SUBSCRIBER, Program::subscriber(&entry, Position::ZERO));
        lab.ask(APPENDER, 0, Ask::OpenSession);
        lab.wait(SOON);
        let began = lab.now;
        lab.append(APPENDER, 1, AppendSpec::default());
        lab.wait(SOON);
        let told = lab.told(APPENDER, 1).expect("it is acknowledged");
        let Answer::Appending(Reply::Appended { position, .. }) = told.answer else { panic!("{told:?}") };
        assert_eq!(position, Some(Position::ZERO));
        let delays = (told.at - began).as_nanos();
        assert_eq!(delays, u128::from(2 + 2 * replicas), "{replicas} replicas");
        // The primary notifies the client and the subscriber together.
        assert_eq!(lab.handed_over(APPENDER, 1), Some(told.at));
    }
}

/// Message delays of an append: to primary, backup, leader and followers, and back to leader,
/// primary and client.
const CUT_PATH: u64 = 7;

fn with_cuts(order: Order, interval_us: u32) -> Lab {
    let mut lab = Lab::new(Pace::DELAYS);
    let durability = Durability::Memory;
    let entry = lab.open_log(LogConfig { order, durability, interval_us, ..LogConfig::default() });
    lab.start(APPENDER, Program::appender(&entry, 7));
    lab.start(SUBSCRIBER, Program::subscriber(&entry, Position::ZERO));
    lab.ask(APPENDER, 0, Ask::OpenSession);
    lab.wait(SOON);
    lab
}

#[test]
fn with_cuts_an_append_takes_its_path_and_at_most_two_intervals() {
    for interval_us in [100, 1000, 5000] {
        let mut lab = with_cuts(Order::Scalog, interval_us);
        let interval = u64::from(interval_us) * 1000;
        let mut began = vec![];
        for token in 1..=40 {
            began.push(lab.now);
            lab.append(APPENDER, token, AppendSpec::default());
            // The first append is alone; later appends start at various times of an interval.
            let pause =
                if token == 1 { SOON } else { Duration::from_nanos(interval * (token % 7) / 5 + token) };
            lab.wait(pause);
        }
        lab.wait(SOON);
        for (token, began) in (1..).zip(began) {
            let told = lab.told(APPENDER, token).expect("it is acknowledged");
            let Answer::Appending(Reply::Appended { position, .. }) = told.answer else { panic!("{told:?}") };
            assert_eq!(position, Some(Position(token - 1)));
            let took = (told.at - began).as_nanos() as u64;
            let most = if token == 1 { CUT_PATH } else { CUT_PATH + 2 * interval };
            assert!((CUT_PATH..=most).contains(&took), "append {token} took {took} of at most {most} delays");
            assert_eq!(lab.handed_over(APPENDER, token), Some(told.at));
        }
    }
}

fn with_quotas() -> impl Iterator<Item = Order> {
    Order::ALL.into_iter().filter(|order| order.has_quotas())
}

#[test]
fn a_record_is_foretold_when_its_replicas_have_it_however_many_shards_there_are() {
    for (order, shards) in with_quotas().flat_map(|order| [(order, 1), (order, 2), (order, 3)]) {
        let mut lab = Lab::new(Pace::DELAYS);
        let durability = Durability::Memory;
        let entry = lab.open_log(LogConfig { order, durability, shards, ..LogConfig::default() });
        lab.start(APPENDER, Program::appender(&entry, 7));
        lab.start(SUBSCRIBER, Program::speculator(&entry, Position::ZERO));
        lab.ask(APPENDER, 0, Ask::OpenSession);
        lab.wait(SOON);
        for token in 1..=200 {
            let began = lab.now;
            lab.append(APPENDER, token, AppendSpec::default());
            lab.wait(SOON);
            let position = lab.position(APPENDER, token).expect("it is delivered");
            let foretold = lab.handed_over(APPENDER, token).expect("it is delivered") - began;
            let confirmed = lab.confirmed(position).expect("it is confirmed") - began;
            let told = lab.told(APPENDER, token).expect("it is acknowledged").at - began;
            // The other shards are asked for their turns, which takes one more delay.
            let most = if shards == 1 { CUT_PATH } else { CUT_PATH + 1 };
            assert_eq!(foretold.as_nanos(), 4, "append {token} of {shards} shards");
            assert!(
                u64::try_from(confirmed.as_nanos()).is_ok_and(|took| took <= most),
                "{token}: {confirmed:?}"
            );
            assert!(u64::try_from(told.as_nanos()).is_ok_and(|took| took <= most), "{token}: {told:?}");
        }
        assert!(!lab.took_back(), "nothing was lost");
    }
}

#[test]
fn a_log_with_cuts_that_nobody_uses_says_nothing_and_writes_nothing() {
    for order in Order::ALL.into_iter().filter(|order| order.has_cuts()) {
        let mut lab = with_cuts(order, 1000);
        for token in 1..=7 {
            lab.append(APPENDER, token, AppendSpec::default());
            lab.wait(Duration::from_secs(1));
            assert!(lab.told(APPENDER, token).is_some(), "it is acknowledged");
            let (messages, syncs) = (lab.messages, lab.syncs);
            lab.wait(Duration::from_secs(100));
            assert_eq!((lab.messages - messages, lab.syncs - syncs), (0, 0));
        }
    }
}

#[test]
fn a_log_whose_shards_have_quotas_says_nothing_either_whatever_is_half_met() {
    for (shards, window) in [(1, 100), (2, 3), (3, 100), (8, 4)] {
        let mut lab = Lab::new(Pace::DELAYS);
        let (order, durability) = (Order::Belfast, Durability::Memory);
        let entry =
            lab.create(LogConfig { order, durability, shards, window, replicas: 1, ..LogConfig::default() });
        lab.start(APPENDER, Program::appender(&entry, 7));
        lab.start(SUBSCRIBER, Program::speculator(&entry, Position::ZERO));
        lab.ask(APPENDER, 0, Ask::OpenSession);
        lab.wait(SOON);
        // One record, then a few windows, then a part of one.
        for appends in [1, 40, 3] {
            let last = lab.told.iter().map(|told| told.token).max().unwrap_or(0);
            for token in last + 1..=last + appends {
                lab.append(APPENDER, token, AppendSpec::default());
                lab.wait(Duration::from_micros(300));
            }
            lab.wait(Duration::from_secs(1));
            assert!(lab.told(APPENDER, last + appends).is_some(), "{shards} shards: it is acknowledged");
            let (messages, syncs) = (lab.messages, lab.syncs);
            lab.wait(Duration::from_secs(100));
            assert_eq!((lab.messages - messages, lab.syncs - syncs), (0, 0), "{shards} shards");
        }
    }
}

#[test]
fn the_tail_of_an_empty_log_is_its_beginning() {
    for order in Order::ALL {
        let mut lab = Lab::new(Pace::COUNTED);
        let entry = lab.open_log(LogConfig { order, ..LogConfig::default() });
        lab.start(APPENDER, Program::appender(&entry, 7));
        let (_, told) = answer(&mut lab, APPENDER, 1, Ask::CheckTail);
        assert!(matches!(told, Answer::Appending(Reply::Tail(Position::ZERO))), "{order}: {told:?}");
    }
}
