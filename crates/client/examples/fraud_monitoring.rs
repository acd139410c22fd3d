//! Fraud monitoring (SpecLog, OSDI '25, §5): payments go to any shard, and each of several tasks
//! reads the payments of its users from all shards.
//!
//! ```sh
//! cargo run --release -p seriatim-client --example fraud_monitoring # own cluster
//! cargo run --release -p seriatim-client --example fraud_monitoring 127.0.0.1:7700
//! ```
//!
//! A payment's key is its user's name, which begins with the letter of the user's task: replicas
//! filter by this letter. A task keeps the mean of each user's amounts, and the latest payments of
//! all its users. It flags a payment with an amount far above the user's mean, or with too few
//! similar payments among the latest. It computes on each payment at once, and publishes the flag
//! when the payment is final.

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use seriatim_client::{Filter, StoredRecord, SubscribeOptions};
use support::{Application, Arrival, Failure, compare, tell};

/// Features besides the amount: hour, distance from home, kind of shop, use of the card.
const FEATURES: usize = 4;
/// An amount above this multiple of the user's mean is flagged.
const TIMES: f64 = 5.0;
/// Number of similar payments below which a payment is flagged.
const NEIGHBOURS: usize = 5;
/// Largest squared distance between the features of similar payments.
const APART: f32 = 0.05;
/// Number of a user's payments before the user's amounts are judged.
const KNOWN: u32 = 5;

#[derive(Clone)]
struct Monitoring {
    shards: u32,
    /// Number of tasks; their letters begin with 'a'.
    tasks: u8,
    users: u32,
    /// Payments per task.
    payments: usize,
    /// Number of latest payments that a task keeps.
    known: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Known {
    users: BTreeMap<String, Amounts>,
    /// Features of the latest payments, the oldest first.
    payments: VecDeque<[f32; FEATURES]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Amounts {
    count: u32,
    mean: f64,
}

/// Effect of one payment: the state that it replaced, for undo, and its flag.
#[derive(Clone, Debug)]
struct Noted {
    user: String,
    before: Option<Amounts>,
    oldest: [f32; FEATURES],
    flag: Option<Flag>,
}

#[derive(Clone, Debug, PartialEq)]
enum Flag {
    Amount { user: String, amount: f64 },
    LikeNoOther { user: String },
}

impl Amounts {
    fn with(self, amount: f64) -> Self {
        let count = self.count + 1;
        Self { count, mean: self.mean + (amount - self.mean) / f64::from(count) }
    }

    fn are_far_below(self, amount: f64) -> bool {
        self.count >= KNOWN && amount > TIMES * self.mean
    }
}

impl Known {
    /// Whether too few known payments are similar.
    fn is_alone(&self, features: &[f32; FEATURES]) -> bool {
        let apart = |known: &&[f32; FEATURES]| {
            known.iter().zip(features).map(|(known, feature)| (known - feature).powi(2)).sum::<f32>()
        };
        self.payments.iter().filter(|known| apart(known) < APART).count() < NEIGHBOURS
    }
}

impl Monitoring {
    fn usual(random: &mut StdRng) -> [f32; FEATURES] {
        std::array::from_fn(|_| random.random_range(0.4_f32..0.6))
    }

    /// The task's payments: user, amount, features. One in forty has a large amount, one in forty
    /// odd features.
    fn payments_of(&self, task: u8) -> Vec<(String, f64, [f32; FEATURES])> {
        let mut random = StdRng::seed_from_u64(u64::from(task));
        let letter = char::from(b'a' + task);
        let mut payment = |number: usize| {
            let user = random.random_range(0..self.users);
            let usual = f64::from(10 + user) + random.random_range(-1.0..1.0);
            let (amount, features) = match number % 40 {
                20 => (usual * 20.0, Self::usual(&mut random)),
                30 => (usual, [0.99; FEATURES]),
                _ => (usual, Self::usual(&mut random)),
            };
            (format!("{letter}{user}"), amount, features)
        };
        (0..self.payments).map(&mut payment).collect()
    }
}

impl Application for Monitoring {
    type State = Known;
    type Effect = Noted;
    type Answer = Flag;

    fn shards(&self) -> u32 {
        self.shards
    }

    fn sources(&self) -> Vec<Vec<Arrival>> {
        // Each client appends payments of all users, to the shard on its node.
        let clients = self.shards as usize;
        let of_tasks: Vec<_> = (0..self.tasks).map(|task| self.payments_of(task)).collect();
        let all: Vec<_> = (0..self.payments)
            .flat_map(|number| of_tasks.iter().map(move |payments| &payments[number]))
            .collect();
        let arrivals = |client: usize| {
            let of_client = all.iter().copied().skip(client).step_by(clients);
            let arrival = |(user, amount, features): &(String, f64, [f32; FEATURES])| Arrival {
                text: format!("{amount} {}", features.map(|feature| feature.to_string()).join(" ")),
                key: Some(user.clone()),
                shard: Some(client as u32),
            };
            of_client.map(arrival).collect()
        };
        (0..clients).map(arrivals).collect()
    }

    fn tasks(&self) -> Vec<(SubscribeOptions, usize)> {
        let of = |task: u8| SubscribeOptions::default().filter(Filter::key_prefix(vec![b'a' + task]));
        (0..self.tasks).map(|task| (of(task), self.payments)).collect()
    }

    fn start(&self) -> Known {
        let mut random = StdRng::seed_from_u64(0);
        let payments = (0..self.known).map(|_| Self::usual(&mut random)).collect();
        Known { users: BTreeMap::new(), payments }
    }

    fn compute(&self, known: &mut Known, record: &StoredRecord) -> Noted {
        let (payload, key) = (record.payload(), record.key().expect("each payment has its user"));
        let text = std::str::from_utf8(&payload).expect("payments are text");
        let user = String::from_utf8(key.to_vec()).expect("so are users");
        let (amount, features) = text.split_once(' ').expect("an amount and features");
        let amount: f64 = amount.parse().expect("an amount");
        let mut features = features.split(' ').map(|feature| feature.parse().expect("a feature"));
        let features = std::array::from_fn(|_| features.next().expect("as many as there are"));

        let before = known.users.get(&user).copied();
        let amounts = before.unwrap_or_default();
        let flag = if amounts.are_far_below(amount) {
            Some(Flag::Amount { user: user.clone(), amount })
        } else {
            known.is_alone(&features).then(|| Flag::LikeNoOther { user: user.clone() })
        };
        known.users.insert(user.clone(), amounts.with(amount));
        known.payments.push_back(features);
        let oldest = known.payments.pop_front().expect("one was added");
        Noted { user, before, oldest, flag }
    }

    fn undo(&self, known: &mut Known, noted: Noted) {
        let Noted { user, before, oldest, .. } = noted;
        known.payments.push_front(oldest);
        known.payments.pop_back();
        match before {
            Some(amounts) => known.users.insert(user, amounts),
            None => known.users.remove(&user),
        };
    }

    fn answer(&self, noted: &Noted) -> Option<Flag> {
        noted.flag.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let monitoring = Monitoring { shards: 2, tasks: 2, users: 20, payments: 1000, known: 200_000 };
    let runs = compare(&monitoring, support::address(), Duration::from_millis(5)).await?;
    tell(&runs, "payments flagged");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Monitoring = Monitoring { shards: 2, tasks: 2, users: 2, payments: 120, known: 500 };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_log_flags_the_same_payments_and_they_are_right() {
        for run in compare(&SMALL, None, Duration::from_millis(2)).await.unwrap() {
            for (task, outcome) in (0..).zip(&run.outcomes) {
                let found: Vec<&Flag> = outcome.answers.iter().map(|(_, flag)| flag).collect();
                let too_large = |amount: f64| amount > 100.0;
                let payments = SMALL.payments_of(task);
                // A user's first amounts are not judged, and features that repeat become usual.
                let (large, odd) = (payments.iter().filter(|payment| too_large(payment.1)), 3);
                let flagged = found.iter().filter(|flag| matches!(flag, Flag::Amount { .. })).count();
                assert!((1..=large.count()).contains(&flagged), "{found:?}");
                assert_eq!(found.len() - flagged, odd, "{found:?}");
            }
        }
    }

    #[test]
    fn what_is_undone_was_never_there() {
        support::undo_restores(&SMALL);
    }
}
