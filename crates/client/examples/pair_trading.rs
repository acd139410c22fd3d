//! High-frequency trading (SpecLog, OSDI '25, §5): each exchange appends its share prices to its
//! own shard, and a task learns to predict one price from the others, in the order of all changes.
//!
//! ```sh
//! cargo run --release -p seriatim-client --example pair_trading # own cluster
//! cargo run --release -p seriatim-client --example pair_trading 127.0.0.1:7700
//! ```
//!
//! The task processes price changes in batches. After each batch it improves its weights (linear
//! regression by gradient descent), and would trade if the first price is far from its prediction.
//! It computes on each price at once and trades when the price is final: the trade depends on the
//! order of the changes, which must not change afterwards.

mod support;

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use seriatim_client::{StoredRecord, SubscribeOptions};
use support::{Application, Arrival, Failure, compare, tell};

/// Price changes per batch.
const BATCH: u32 = 4;
/// Step size of the gradient descent.
const STEP: f64 = 0.002;
/// Passes of the descent over the window's batches.
const PASSES: usize = 8;
/// Difference between a price and its prediction, above which the task trades.
const OFF: f64 = 0.5;
/// Initial price; the regression uses differences from it.
const PAR: f64 = 100.0;

#[derive(Clone)]
struct Trading {
    /// Each has its own shard.
    exchanges: u32,
    shares: usize,
    /// Changes per price.
    changes: usize,
    /// Number of latest batches that the regression uses.
    window: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Market {
    prices: Vec<f64>,
    /// Changes since the last batch.
    changed: u32,
    /// Prices at the end of each batch in the window, the oldest first.
    batches: VecDeque<Vec<f64>>,
    /// Weight of each price, except the first, in the prediction of the first.
    weights: Vec<f64>,
}

/// Effect of a price change: the replaced state, for undo.
#[derive(Clone, Debug)]
struct Noted {
    share: usize,
    price: f64,
    changed: u32,
    batch: Option<Batch>,
}

/// Effect of a batch's end: the dropped batch and replaced weights, for undo, and the trade.
#[derive(Clone, Debug)]
struct Batch {
    oldest: Vec<f64>,
    weights: Vec<f64>,
    trade: Option<Trade>,
}

#[derive(Clone, Debug, PartialEq)]
enum Trade {
    Buy { price: f64 },
    Sell { price: f64 },
}

impl Market {
    /// Prediction of the first price from the others.
    fn reckoned(weights: &[f64], prices: &[f64]) -> f64 {
        PAR + weights.iter().zip(&prices[1..]).map(|(weight, price)| weight * (price - PAR)).sum::<f64>()
    }

    fn learn(&mut self) {
        for prices in (0..PASSES).flat_map(|_| &self.batches) {
            let error = prices[0] - Self::reckoned(&self.weights, prices);
            for (weight, price) in self.weights.iter_mut().zip(&prices[1..]) {
                *weight += STEP * error * (price - PAR);
            }
        }
    }

    fn trade(&self) -> Option<Trade> {
        let (price, reckoned) = (self.prices[0], Self::reckoned(&self.weights, &self.prices));
        match price - reckoned {
            off if off > OFF => Some(Trade::Sell { price }),
            off if off < -OFF => Some(Trade::Buy { price }),
            _ => None,
        }
    }

    fn end_batch(&mut self) -> Batch {
        let weights = self.weights.clone();
        self.batches.push_back(self.prices.clone());
        let oldest = self.batches.pop_front().expect("one was added");
        self.learn();
        Batch { oldest, weights, trade: self.trade() }
    }

    fn undo_batch(&mut self, batch: Batch) {
        self.batches.push_front(batch.oldest);
        self.batches.pop_back();
        self.weights = batch.weights;
    }
}

impl Trading {
    /// Prices of one day: the first is the mean of the second and third, with occasional jumps.
    fn prices_of(&self, day: u64, changes: usize) -> Vec<Vec<f64>> {
        let mut random = StdRng::seed_from_u64(day);
        let mut others = vec![PAR; self.shares - 1];
        let mut round = |number: usize| {
            others
                .iter_mut()
                .for_each(|price| *price = PAR + (*price - PAR) * 0.9 + random.random_range(-1.0..1.0));
            let jump = if number % 50 == 49 { 3.0 } else { 0.0 };
            let first = (others[0] + others[1]) / 2.0 + jump;
            [&[first][..], &others[..]].concat()
        };
        (0..changes).map(&mut round).collect()
    }
}

impl Application for Trading {
    type State = Market;
    type Effect = Noted;
    type Answer = Trade;

    fn shards(&self) -> u32 {
        self.exchanges
    }

    fn sources(&self) -> Vec<Vec<Arrival>> {
        let prices = self.prices_of(1, self.changes);
        let exchange = |exchange: u32| {
            let shares = (exchange as usize..self.shares).step_by(self.exchanges as usize);
            let changes =
                prices.iter().flat_map(|prices| shares.clone().map(move |share| (share, prices[share])));
            let arrival = |(share, price): (usize, f64)| Arrival {
                text: price.to_string(),
                key: Some(format!("share {share}")),
                shard: Some(exchange),
            };
            changes.map(arrival).collect()
        };
        (0..self.exchanges).map(exchange).collect()
    }

    fn tasks(&self) -> Vec<(SubscribeOptions, usize)> {
        vec![(SubscribeOptions::default(), self.changes * self.shares)]
    }

    fn start(&self) -> Market {
        let yesterday = self.prices_of(0, self.window).into();
        let weights = vec![0.0; self.shares - 1];
        Market { prices: vec![PAR; self.shares], changed: 0, batches: yesterday, weights }
    }

    fn compute(&self, market: &mut Market, record: &StoredRecord) -> Noted {
        let (payload, key) = (record.payload(), record.key().expect("each price has its share"));
        let text = |bytes| std::str::from_utf8(bytes).expect("prices and shares are text");
        let share = text(&key).strip_prefix("share ").and_then(|share| share.parse().ok());
        let share: usize = share.expect("the number of a share");
        let price = text(&payload).parse().expect("a price");

        let (price, changed) = (std::mem::replace(&mut market.prices[share], price), market.changed);
        market.changed = (changed + 1) % BATCH;
        let batch = (market.changed == 0).then(|| market.end_batch());
        Noted { share, price, changed, batch }
    }

    fn undo(&self, market: &mut Market, noted: Noted) {
        if let Some(batch) = noted.batch {
            market.undo_batch(batch);
        }
        market.changed = noted.changed;
        market.prices[noted.share] = noted.price;
    }

    fn answer(&self, noted: &Noted) -> Option<Trade> {
        noted.batch.as_ref()?.trade.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let trading = Trading { exchanges: 2, shares: 8, changes: 250, window: 4096 };
    let runs = compare(&trading, support::address(), Duration::from_millis(4)).await?;
    tell(&runs, "trades");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Trading = Trading { exchanges: 2, shares: 4, changes: 100, window: 200 };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_log_leads_to_the_trades_of_its_order() {
        for run in compare(&SMALL, None, Duration::from_millis(2)).await.unwrap() {
            assert_eq!(&run.outcomes[0].state.prices, SMALL.prices_of(1, SMALL.changes).last().unwrap());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn prices_in_one_order_have_the_weights_that_they_were_made_with() {
        let one = Trading { exchanges: 1, ..SMALL };
        for run in compare(&one, None, Duration::from_millis(1)).await.unwrap() {
            let weights = &run.outcomes[0].state.weights;
            for (weight, right) in weights.iter().zip([0.5, 0.5, 0.0]) {
                assert!((weight - right).abs() < 0.1, "{weights:?}");
            }
            // The first price jumps up in every fiftieth batch.
            let sells =
                run.answers().filter(|trade| matches!(trade, Trade::Sell { price } if *price > PAR)).count();
            assert!(sells >= 1, "{:?}", run.outcomes[0].answers);
        }
    }

    #[test]
    fn what_is_undone_was_never_there() {
        support::undo_restores(&SMALL);
    }
}
