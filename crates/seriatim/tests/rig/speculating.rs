//! A program that computes on records before they are final, and records the confirmed ones.

use std::collections::VecDeque;

use bytes::Bytes;
use seriatim_client::{Event, Log, LogConfig, Order, Position, RecordId, SubscribeOptions};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::cluster::Cluster;
use crate::history::History;
use crate::workload::{DEADLINE, QUIET, open};

/// A speculative reader: its unconfirmed records, and the confirmed bound.
///
/// Invariant: `given` is in the order of positions, all of them at `confirmed` or above.
struct Told {
    history: History,
    confirmed: Position,
    given: VecDeque<(Position, RecordId, Bytes)>,
}

impl Told {
    fn new(history: History) -> Self {
        Self { history, confirmed: Position(0), given: VecDeque::new() }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Deliver { position, id, record, .. } => {
                let next = self.given.back().map_or(self.confirmed, |(last, ..)| *last + 1);
                if position < next {
                    self.history
                        .violation(format!("a speculating program was given {position} after {next}"));
                }
                self.given.push_back((position, id, record.payload().clone()));
            }
            Event::Confirm { upto } => self.confirm(upto),
            Event::Fail { after } => {
                let is_due = self.given.back().is_some_and(|(last, ..)| *last >= after);
                if after < self.confirmed || !is_due {
                    let confirmed = self.confirmed;
                    self.history.violation(format!("{after} fails, with {confirmed} confirmed"));
                }
                self.given.retain(|(position, ..)| *position < after);
            }
            other => self.history.violation(format!("a speculating program was told {other:?}")),
        }
    }

    /// Confirmed records count as read.
    fn confirm(&mut self, upto: Position) {
        if upto < self.confirmed {
            self.history.violation(format!("{upto} is confirmed after {}", self.confirmed));
        }
        let below = self.given.partition_point(|(position, ..)| *position < upto);
        for (position, id, payload) in self.given.drain(..below).collect::<Vec<_>>() {
            self.passes_over(position);
            self.history.observe(position, id, payload);
            self.confirmed = position + 1;
        }
        self.passes_over(upto);
        self.confirmed = self.confirmed.max(upto);
    }

    /// Checks and notes that no record lies between the confirmed bound and `next`.
    fn passes_over(&self, next: Position) {
        if next <= self.confirmed {
            return;
        }
        if self.history.may_have_no_ops() {
            self.history.skip(self.confirmed, next);
        } else {
            let confirmed = self.confirmed;
            self.history.violation(format!("confirmed up to {next}, and given nothing from {confirmed} on"));
        }
    }
}

/// Speculates until everything written before the stop is confirmed.
pub(crate) async fn speculate(
    address: String,
    name: String,
    history: History,
    mut stop: watch::Receiver<bool>,
) {
    let log = open(&address, &name).await;
    let options = SubscribeOptions::default().speculative();
    let mut events = log.subscribe(Position(0), options).await.expect("a subscription");
    let mut told = Told::new(history);
    loop {
        tokio::select! {
            event = events.next() => told.take(event.expect("it has no end").expect("it outlives restarts")),
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    let mut tail = tail_of(&log).await;
    let mut quiet_since = Instant::now();
    while told.confirmed < tail {
        match timeout(QUIET, events.next()).await {
            Ok(event) => {
                told.take(event.expect("it has no end").expect("it outlives restarts"));
                quiet_since = Instant::now();
            }
            // The tail may exceed the last record while replicas disagree.
            Err(_) => tail = tail.min(tail_of(&log).await),
        }
        let confirmed = told.confirmed;
        assert!(quiet_since.elapsed() < DEADLINE, "{name}: nothing above {confirmed} of {tail} is confirmed");
    }
}

async fn tail_of(log: &Log) -> Position {
    log.check_tail().await.expect("the tail")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_panics_ends_its_subscription_and_hurts_nobody_else() {
    let cluster = Cluster::start(&[]).await;
    let client = cluster.client(DEADLINE).await;
    for order in Order::ALL {
        let name = order.to_string();
        client.create(&name, LogConfig { order, ..LogConfig::default() }).await.expect("it is created");
        let log = client.log(&name).await.expect("it is there");
        let panics = log
            .speculate(Position(0), 0)
            .compute(|count: &mut u32, position, _| {
                *count += 1;
                assert!(*count < 3, "the program has a bug at {position}");
            })
            .undo(|count, ()| *count -= 1)
            .externalize(|_, _, ()| ())
            .run();
        let panics = tokio::spawn(panics);
        let mut tail = Position(0);
        for _ in 0..5 {
            tail = log.append_sync("one more").await.expect("it is appended") + 1;
        }
        assert!(panics.await.expect_err("it panics").is_panic());
        // The client and the log continue to work.
        let sees = log.speculate(Position(0), 0).compute(|count: &mut u32, _, _| *count += 1);
        let sees = sees.undo(|count, ()| *count -= 1).externalize(|_, _, ()| ()).until(tail).run();
        assert_eq!(timeout(DEADLINE, sees).await.expect("it ends").expect("nothing is wrong"), 5, "{order}");
    }
    assert_eq!(cluster.complaints(), "", "nothing is worth a warning");
}
