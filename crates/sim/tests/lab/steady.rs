//! Shards with quotas under a steady load: few positions stay empty, and predictions deliver
//! records early.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_delivery::subscriber::Event;
use seriatim_model::storage::Stored;
use seriatim_model::{Durability, LogConfig, Order, Position, Time};
use seriatim_protocol::parts::appending::AppendSpec;

use crate::lab::Lab;
use crate::programs::{Answer, Ask, Program};
use crate::spent::Pace;

const APPENDERS: u64 = 16;
const SUBSCRIBER: u64 = 100;
/// A message takes a tenth of an interval.
const PACE: Pace = Pace { delay: 100_000, sync: 0 };
/// The first part of a load does not count.
const BEGINNING: Duration = Duration::from_millis(500);
const COUNTED: Duration = Duration::from_millis(400);

#[derive(Debug, Default)]
struct Borne {
    records: u64,
    /// Empty positions.
    empty: u64,
    predicted: u64,
    /// Average times.
    acknowledged: Duration,
    delivered: Duration,
    confirmed: Duration,
}

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 11
    }

    /// Random span between independent events.
    fn span(&mut self, mean: Duration) -> Duration {
        let uniform = (self.next() as f64 + 1.0) / (1_u64 << 53) as f64;
        mean.mul_f64(-uniform.ln())
    }
}

/// Times of the appends, by client and token.
type Appends = BTreeMap<(u64, u64), Time>;

fn load(order: Order, shards: u32, per_second: u32) -> Borne {
    load_at(PACE, order, shards, per_second)
}

fn load_at(pace: Pace, order: Order, shards: u32, per_second: u32) -> Borne {
    let mut lab = Lab::new(pace);
    let durability = if pace.sync == 0 { Durability::Memory } else { Durability::Disk };
    let entry = lab.create(LogConfig { order, durability, shards, ..LogConfig::default() });
    for client in 1..=APPENDERS {
        lab.start(client, Program::appender(&entry, client));
        lab.ask(client, 0, Ask::OpenSession);
    }
    lab.start(SUBSCRIBER, Program::speculator(&entry, Position::ZERO));
    lab.wait(Duration::from_millis(100));
    let (mut numbers, mut appends, began) = (Numbers(7), Appends::new(), lab.now);
    for token in 1.. {
        lab.wait(numbers.span(Duration::from_secs(1) / per_second));
        let since = lab.now - began;
        if since >= BEGINNING + COUNTED {
            break;
        }
        let client = 1 + numbers.next() % APPENDERS;
        lab.append(client, token, AppendSpec::default());
        if since >= BEGINNING {
            appends.insert((client, token), lab.now);
        }
    }
    lab.wait(Duration::from_millis(100) + Duration::from_nanos(pace.sync) * 10);
    assert!(!lab.took_back(), "nothing was lost");
    borne(&lab, &appends)
}

fn borne(lab: &Lab, appends: &Appends) -> Borne {
    let mut borne = Borne { records: appends.len() as u64, ..Borne::default() };
    let mut unconfirmed: BTreeMap<Position, Time> = BTreeMap::new();
    let mut span: Option<(Position, Position)> = None;
    for told in &lab.told {
        match &told.answer {
            Answer::Appending(_) => {
                if let Some(began) = appends.get(&(told.client, told.token)) {
                    borne.acknowledged += told.at - *began;
                }
            }
            Answer::Subscription(Event::Deliver { records, speculative }) => {
                let counted = records
                    .iter()
                    .filter_map(|stored| Some((stored.position, *appends.get(&appended(stored))?)));
                for (position, began) in counted {
                    borne.delivered += told.at - began;
                    borne.predicted += u64::from(*speculative);
                    unconfirmed.insert(position, began);
                    span = Some((span.map_or(position, |(first, _)| first), position));
                }
            }
            Answer::Subscription(Event::Confirm { upto }) => {
                let left = unconfirmed.split_off(upto);
                for began in std::mem::replace(&mut unconfirmed, left).into_values() {
                    borne.confirmed += told.at - began;
                }
            }
            _ => {}
        }
    }
    assert!(unconfirmed.is_empty(), "everything is final");
    let (first, last) = span.expect("records were delivered");
    borne.empty = last.since(first) + 1 - borne.records;
    let records = u32::try_from(borne.records).expect("there are some thousands");
    for sum in [&mut borne.acknowledged, &mut borne.delivered, &mut borne.confirmed] {
        *sum /= records;
    }
    borne
}

fn appended(stored: &Stored) -> (u64, u64) {
    let payload = stored.record.payload();
    let text = std::str::from_utf8(&payload).expect("it is text");
    let (token, client) = text.split_once(" of ").expect("it is an append");
    (client.parse().expect("it is a number"), token.parse().expect("it is a number"))
}

/// SpecLog §3.2 and §6.2: every record is delivered before it is final, much sooner than without
/// predictions, and an append takes as long. Records arrive at random. With fewer records per turn
/// and more shards, more turns are late, and their rest stays empty.
#[test]
fn under_a_steady_load_few_positions_stay_empty_and_every_record_is_early() {
    // Allowed empty positions per thousand, and the allowed fraction of the time until delivery.
    let cases = [(1, 4000, 30, 0.34), (2, 20_000, 50, 0.6), (4, 20_000, 120, 0.65)];
    for (shards, per_second, per_mille, part) in cases {
        let [late, early] = [Order::Scalog, Order::Belfast].map(|order| load(order, shards, per_second));
        let of = format!("{shards} shards, {per_second} records a second: {early:?}, and otherwise {late:?}");
        assert!(early.empty * 1000 <= (early.records + early.empty) * per_mille, "{of}");
        assert_eq!(early.predicted, early.records, "{of}");
        assert!(early.acknowledged <= late.acknowledged.mul_f64(1.05), "{of}");
        assert!(early.delivered <= late.delivered.mul_f64(part), "{of}");
    }
}

/// A slow disk brings records in groups. Records being written need no empty positions behind them,
/// and a shard with a disk as slow as all others is not late. A record is delivered once it is
/// durable, without a wait for the leader's current write.
#[test]
fn where_disks_are_slow_few_positions_stay_empty_and_every_record_is_early() {
    for (sync_ms, shards, per_second) in [(2, 2, 4000), (5, 1, 4000), (5, 2, 20_000), (20, 2, 4000)] {
        let pace = Pace { sync: sync_ms * 1_000_000, ..PACE };
        let [late, early] =
            [Order::Scalog, Order::Belfast].map(|order| load_at(pace, order, shards, per_second));
        let of = format!(
            "{sync_ms} ms, {shards} shards, {per_second} records a second: {early:?}, and otherwise {late:?}"
        );
        assert!(early.empty * 1000 <= (early.records + early.empty) * 60, "{of}");
        assert_eq!(early.predicted, early.records, "{of}");
        assert!(early.acknowledged <= late.acknowledged.mul_f64(1.3), "{of}");
        assert!(early.delivered <= late.delivered.mul_f64(0.5), "{of}");
    }
}
