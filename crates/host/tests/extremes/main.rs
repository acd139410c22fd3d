//! Client messages with extreme numbers, to every role of every ordering: each is rejected or
//! harmless.

mod cluster;
mod draw;
mod messages;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use seriatim_model::wire::{WireError, decode_one, encode_one};
use seriatim_model::{LogId, Order, Position, SessionId, ViewNumber};
use seriatim_protocol::Message;

use cluster::{APPENDED, Cluster, ENDPOINTS, Known};
use draw::{Draw, EXTREMES};
use messages::Kind;

const NOTHING: Known =
    Known { log: LogId(1), view: ViewNumber(1), session: SessionId(1 << 32), next: 0, tail: Position::ZERO };

fn from_clients() -> Vec<Kind> {
    let is_one = |kind: &Kind| {
        let message = (kind.make)(&mut Draw::new(Order::ErwinBb, NOTHING, &|_| None));
        ENDPOINTS.into_iter().any(|endpoint| message.is_from_client_to(endpoint))
    };
    messages::all().into_iter().filter(is_one).collect()
}

/// The usual message, and each extreme in all its numbers or in one.
fn variants(kind: &Kind, order: Order) -> usize {
    let mut draw = Draw::new(order, NOTHING, &|_| None);
    (kind.make)(&mut draw);
    1 + EXTREMES.len() * (draw.drawn() + 1)
}

fn variant(kind: &Kind, order: Order, known: Known, variant: usize) -> Message {
    let (extreme, place) = match variant.checked_sub(1) {
        None => (None, 0),
        Some(index) => (Some(index % EXTREMES.len()), index / EXTREMES.len()),
    };
    let pick = |number: usize| extreme.filter(|_| place == 0 || place == number + 1);
    (kind.make)(&mut Draw::new(order, known, &pick))
}

#[derive(Default)]
struct Outcome {
    taken: usize,
    refused: usize,
    /// Messages that ended a role, or after which the log failed.
    failed: BTreeSet<String>,
}

impl Outcome {
    /// Each variant refers to a session with records appended after the previous message.
    fn give(&mut self, kind: &Kind, order: Order) {
        let (mut cluster, mut last) = (Cluster::with_log(order), String::from("nothing"));
        // After the last one: an append, and a restart of both nodes.
        for number in 0..=variants(kind, order) {
            let given = catch_unwind(AssertUnwindSafe(|| {
                if cluster.entry().is_none() {
                    cluster = Cluster::with_log(order);
                }
                let known = cluster.append();
                if number == variants(kind, order) {
                    cluster.restart();
                    cluster.append();
                    return None;
                }
                let message = variant(kind, order, known, number);
                last = format!("{} in {order}: {message:?}", kind.name);
                Some(cluster.take(known.log, &message))
            }));
            match given {
                Ok(Some(Ok(()))) => self.taken += 1,
                Ok(Some(Err(cause))) => {
                    let is_named = matches!(cause, WireError::TooLarge { .. } | WireError::Invalid(_));
                    assert!(is_named, "{last}: {cause}");
                    self.refused += 1;
                }
                Ok(None) => {}
                Err(_) => {
                    self.failed.insert(last.clone());
                    cluster = Cluster::with_log(order);
                }
            }
        }
    }

    fn judge(&self) {
        let listed: Vec<&str> = self.failed.iter().map(String::as_str).collect();
        assert!(listed.is_empty(), "{} ended a role:\n{}", listed.len(), listed.join("\n"));
        let (taken, refused) = (self.taken, self.refused);
        assert!(taken > refused && refused > 0, "{taken} taken, {refused} refused");
    }
}

#[test]
fn what_clients_send_ends_no_role() {
    for order in Order::ALL {
        let mut outcome = Outcome::default();
        from_clients().iter().for_each(|kind| outcome.give(kind, order));
        outcome.judge();
    }
}

#[test]
fn what_clients_send_to_logs_that_are_not_there_ends_no_node() {
    let mut cluster = Cluster::without_log();
    for kind in from_clients() {
        for number in 0..variants(&kind, Order::ErwinSt) {
            let message = variant(&kind, Order::ErwinSt, NOTHING, number);
            let logs = if number == 0 { &[1, 0, u64::MAX - 1, u64::MAX][..] } else { &[1] };
            for log in logs.iter().copied().map(LogId) {
                // An undecodable message only closes its connection.
                let _refused = cluster.take(log, &message);
                if cluster.entry().is_some() {
                    // The message created a log.
                    cluster.restart();
                    cluster = Cluster::without_log();
                }
            }
        }
    }
    cluster.restart();
}

#[test]
fn reading_a_message_of_any_kind_ends_nothing() {
    for kind in messages::all() {
        for order in Order::ALL {
            for number in 0..variants(&kind, order) {
                let bytes = encode_one(&variant(&kind, order, NOTHING, number));
                let is_read =
                    catch_unwind(AssertUnwindSafe(|| decode_one::<Message>(bytes).map(drop))).is_ok();
                assert!(is_read, "{}, {number} in {order}", kind.name);
            }
        }
    }
}

#[test]
fn clients_talk_to_every_role() {
    for endpoint in ENDPOINTS {
        let made = |kind: Kind| variant(&kind, Order::ErwinBb, NOTHING, 0);
        assert!(from_clients().into_iter().map(made).any(|message| message.is_from_client_to(endpoint)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn several_messages_with_some_extreme_numbers_end_no_role(
        order in proptest::sample::select(&Order::ALL[..]),
        drawn in proptest::collection::vec(
            (any::<prop::sample::Index>(), proptest::collection::vec(0..2 * EXTREMES.len(), 1..24)),
            1..6,
        ),
    ) {
        let mut cluster = Cluster::with_log(order);
        let (kinds, known) = (from_clients(), cluster.append());
        prop_assert!(known.next >= APPENDED);
        for (kind, picks) in drawn {
            let pick = |n: usize| picks.get(n).copied().filter(|pick| *pick < EXTREMES.len());
            let message = (kind.get(&kinds).make)(&mut Draw::new(order, known, &pick));
            let _refused = cluster.take(known.log, &message);
        }
        if cluster.entry().is_some() {
            cluster.append();
        }
        cluster.restart();
    }
}
