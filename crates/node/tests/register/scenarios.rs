//! Behaviour that each implementation of the register (in memory, in a node, in etcd) must have.

use std::collections::BTreeSet;
use std::time::Duration;

use seriatim_model::retention::LimitChange;
use seriatim_model::{
    Incarnation, LogConfig, LogId, Member, NodeId, Pin, Placement, Position, Retention, RetentionChange,
    ShardId, View, ViewNumber, limits,
};
use seriatim_protocol::control::message::NEWS;
use seriatim_protocol::control::{
    LogEntry, Message, NodeAddress, NodeParting, Parting, PartingChange, Refusal, catalog,
};

use crate::talk::{NODES, Talk, controller, creation, deletion, itself};

/// Longer than the pause between two reminders to forget a log.
const REMINDED: Duration = Duration::from_millis(2500);

/// Name and steps. A scenario begins with three nodes and no log.
pub(crate) type Scenario = (&'static str, fn(&mut Talk));

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("an unknown log is gone", unknown),
    ("a log is created once, and its controller called", created),
    ("a creation that is asked for again is the same", created_again),
    ("what cannot be is refused", refused),
    ("a name is looked up", looked_up),
    ("a listing is in the order of names", listed),
    ("a compare-and-set wins or loses, and everyone sees it", compared),
    ("of two that race, one wins", raced),
    ("of two that create the same, one does", created_twice),
    ("a log's limits change, and whoever applies them is told", limited),
    ("a log's pins change, and the node that applies its limits is notified", pinned),
    ("a deleted log is forgotten by each node", deleted),
    ("an id is never given again", never_again),
    ("who joins is known to all", joined),
    ("a node that leaves is given nothing, and is forgotten when it is gone", parted),
];

/// Scenarios during which the register must not restart.
pub(crate) const WITHIN_AN_INCARNATION: &[Scenario] = &[
    ("what an older incarnation of a node said is late", late),
    ("who waits for a view is told of it", told),
];

fn unknown(talk: &mut Talk) {
    assert_eq!(talk.get(NODES[0], LogId(1)), None);
    let entry = catalog::place(LogId(4), "a".into(), LogConfig::default(), &NODES).unwrap();
    let answer = talk.answer(NODES[1], Message::CompareAndSet { entry });
    assert_eq!(answer, Message::Gone { log: LogId(4) });
}

fn created(talk: &mut Talk) {
    let log = talk.create(NODES[0], "orders");
    talk.hears(controller(NODES[0]), |message| *message == Message::Get { log });
    let expected = catalog::place(log, "orders".into(), LogConfig::default(), &NODES).unwrap();
    for node in NODES {
        assert_eq!(talk.get(node, log), Some(expected.clone()));
    }
    let again = talk.answer_once(NODES[1], creation(700, "orders"));
    let refusal = Refusal::Exists { name: "orders".into() };
    assert_eq!(again, Message::Refused { request: 700, refusal });
}

fn created_again(talk: &mut Talk) {
    let first = talk.answer_once(NODES[0], creation(700, "orders"));
    assert!(matches!(first, Message::Done { request: 700, log } if catalog::count(log) == 1), "{first:?}");
    talk.restart();
    assert_eq!(talk.answer(NODES[1], creation(700, "orders")), first);
    let config = LogConfig { shards: 1, ..LogConfig::default() };
    let other = Message::Create { request: 700, name: "orders".into(), config };
    let refusal = Refusal::Exists { name: "orders".into() };
    assert_eq!(talk.answer_once(NODES[1], other), Message::Refused { request: 700, refusal });
    assert_eq!(catalog::count(talk.create(NODES[2], "invoices")), 2);
}

fn refused(talk: &mut Talk) {
    let too_many = LogConfig { replicas: 4, ..LogConfig::default() };
    for (name, config) in [("a/b", LogConfig::default()), ("", LogConfig::default()), ("a", too_many)] {
        let create = Message::Create { request: 7, name: name.into(), config };
        let answer = talk.answer_once(NODES[0], create);
        let is_impossible = |refusal: &Refusal| matches!(refusal, Refusal::Impossible { .. });
        assert!(
            matches!(&answer, Message::Refused { request: 7, refusal } if is_impossible(refusal)),
            "{answer:?}"
        );
    }
    let delete = deletion("a", LogId(1));
    let refusal = Refusal::NoSuchLog { name: "a".into() };
    assert_eq!(talk.answer_once(NODES[0], delete), Message::Refused { request: 8, refusal });
    // Refused questions leave nothing behind.
    assert_eq!(catalog::count(talk.create(NODES[0], "a")), 1);
}

fn limited(talk: &mut Talk) {
    let log = talk.create(NODES[0], "orders");
    let entry = with_view(talk.get(NODES[0], log).expect("it was created"), 1);
    talk.answer(NODES[1], Message::CompareAndSet { entry });
    let entry = talk.get(NODES[0], log).expect("it is there");
    let leader = entry.view.as_ref().expect("it has a view").leader;
    let change = |records| RetentionChange {
        age_ms: LimitChange::Keep,
        bytes: LimitChange::Keep,
        records: LimitChange::Set(records),
    };
    let set = |records| Message::SetRetention { request: 5, log, change: change(records) };
    let answer = talk.answer_once(NODES[2], set(0));
    let is_impossible = |refusal: &Refusal| matches!(refusal, Refusal::Impossible { .. });
    assert!(
        matches!(&answer, Message::Refused { request: 5, refusal } if is_impossible(refusal)),
        "{answer:?}"
    );
    for _ in 0..2 {
        assert_eq!(talk.answer(NODES[2], set(7)), Message::Done { request: 5, log });
    }
    let retention = Retention { records: Some(7), ..Retention::default() };
    let expected = LogEntry {
        version: entry.version + 1,
        config: LogConfig { retention, ..entry.config.clone() },
        ..entry
    };
    talk.hears(controller(leader), |message| *message == Message::Registered { entry: expected.clone() });
    assert_eq!(talk.answer(NODES[1], Message::Peek { log }), Message::Current { entry: expected });
}

fn pinned(talk: &mut Talk) {
    let log = talk.create(NODES[0], "orders");
    let entry = with_view(talk.get(NODES[0], log).expect("it was created"), 1);
    talk.answer(NODES[1], Message::CompareAndSet { entry });
    let entry = talk.get(NODES[0], log).expect("it is there");
    let leader = entry.view.as_ref().expect("it has a view").leader;
    let set = |position| Message::Pin {
        request: 5,
        log,
        name: "billing".into(),
        position: Position(position),
        most_bytes: None,
    };
    for position in [7, 9, 9] {
        assert_eq!(talk.answer(NODES[2], set(position)), Message::Done { request: 5, log });
    }
    let answer = talk.answer_once(NODES[2], set(8));
    assert!(matches!(&answer, Message::Refused { request: 5, .. }), "{answer:?}");
    let pin = Pin {
        name: "billing".into(),
        position: Position(9),
        most_bytes: limits::PIN_BYTES,
        is_broken: false,
    };
    let expected = LogEntry { version: entry.version + 2, pins: vec![pin], ..entry.clone() };
    talk.hears(controller(leader), |message| *message == Message::Registered { entry: expected.clone() });
    talk.restart();
    assert_eq!(talk.answer(NODES[1], Message::Peek { log }), Message::Current { entry: expected });
    let remove = Message::Unpin { request: 6, log, name: "billing".into() };
    for _ in 0..2 {
        assert_eq!(talk.answer(NODES[2], remove.clone()), Message::Done { request: 6, log });
    }
    let expected = LogEntry { version: entry.version + 3, ..entry };
    assert_eq!(talk.answer(NODES[1], Message::Peek { log }), Message::Current { entry: expected });
}

fn looked_up(talk: &mut Talk) {
    let lookup = |name: &str| Message::Lookup { request: 9, name: name.into() };
    let refusal = Refusal::NoSuchLog { name: "orders".into() };
    assert_eq!(talk.answer(NODES[0], lookup("orders")), Message::Refused { request: 9, refusal });
    let log = talk.create(NODES[1], "orders");
    talk.forget();
    let Message::Found { request: 9, entry, nodes } = talk.answer(NODES[0], lookup("orders")) else {
        panic!("it was created")
    };
    assert_eq!((entry.id, entry.name.as_str()), (log, "orders"));
    assert_eq!(nodes.iter().map(|node| node.node).collect::<Vec<_>>(), NODES);
    // The log has no view yet: its controller is notified.
    talk.hears(controller(NODES[0]), |message| *message == Message::Get { log });
    let answer = talk.answer(NODES[0], lookup("a/b"));
    assert!(matches!(answer, Message::Refused { refusal: Refusal::Impossible { .. }, .. }), "{answer:?}");
}

fn listed(talk: &mut Talk) {
    for name in ["b", "c", "a", "B", "a.1"] {
        talk.create(NODES[0], name);
    }
    let Message::Listing { request: 3, entries, nodes } = talk.answer(NODES[2], Message::List { request: 3 })
    else {
        panic!("a listing")
    };
    assert_eq!(names(&entries), ["B", "a", "a.1", "b", "c"]);
    assert_eq!(nodes.len(), 3);
}

/// Askers at any node are notified once per view, whichever node registers it.
fn told(talk: &mut Talk) {
    let log = talk.create(NODES[0], "orders");
    let lookup = || Message::Lookup { request: NEWS, name: "orders".into() };
    let askers = NODES.map(|node| talk.asker(node));
    for asker in askers {
        talk.ask(asker, lookup());
        talk.hears(
            asker,
            |message| matches!(message, Message::Found { request: NEWS, entry, .. } if entry.view.is_none()),
        );
    }
    let other = talk.asker(NODES[0]);
    talk.ask(other, Message::Lookup { request: 5, name: "orders".into() });
    talk.hears(other, |_| true);
    for (view, node) in (1..).zip(NODES) {
        let entry = with_view(talk.get(NODES[0], log).unwrap(), view);
        talk.answer_once(node, Message::CompareAndSet { entry });
        for asker in askers {
            talk.hears(asker, |message| has_view(message, view));
            // The answer to a repeated question has no older view.
            talk.ask(asker, lookup());
            talk.hears(asker, |message| has_view(message, view));
        }
    }
    talk.delete(NODES[1], "orders", log);
    for asker in askers {
        talk.hears(asker, |message| matches!(message, Message::Refused { request: NEWS, .. }));
    }
    assert_eq!(talk.hears_within(Duration::ZERO, other, |_| true), None);
}

fn has_view(message: &Message, view: u64) -> bool {
    matches!(message, Message::Found { entry, nodes, .. } if entry.view_number() == ViewNumber(view) && nodes.len() == 3)
}

pub(crate) fn with_view(mut entry: LogEntry, number: u64) -> LogEntry {
    let member = Member { node: NODES[0], incarnation: Incarnation(1) };
    entry.claimed = ViewNumber(number);
    entry.view = Some(View {
        number: ViewNumber(number),
        sequencers: vec![member],
        leader: NODES[0],
        shards: vec![],
        retired: vec![],
        placement: Placement::new(vec![ShardId(0)], 64),
        first: Position::ZERO,
        start: Position::ZERO,
    });
    entry
}

fn names(entries: &[LogEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.name.as_str()).collect()
}

fn compared(talk: &mut Talk) {
    let log = talk.create(NODES[0], "orders");
    let mut known = talk.get(NODES[0], log).unwrap();
    for claimant in 1..=3 {
        let proposed = LogEntry { claimant, ..known.clone() };
        let answer = talk.answer_once(NODES[0], Message::CompareAndSet { entry: proposed.clone() });
        let expected = LogEntry { version: known.version + 1, ..proposed };
        assert_eq!(answer, Message::Current { entry: expected.clone() });
        for node in NODES {
            assert_eq!(talk.get(node, log), Some(expected.clone()));
        }
        let stale = LogEntry { claimant: 99, ..known };
        let answer = talk.answer_once(NODES[1], Message::CompareAndSet { entry: stale });
        assert_eq!(answer, Message::Current { entry: expected.clone() });
        known = expected;
    }
    let early = LogEntry { version: known.version + 1, claimant: 99, ..known.clone() };
    let answer = talk.answer_once(NODES[1], Message::CompareAndSet { entry: early });
    assert_eq!(answer, Message::Current { entry: known });
}

fn raced(talk: &mut Talk) {
    let log = talk.create(NODES[0], "orders");
    for round in 0..10 {
        let known = talk.get(NODES[0], log).unwrap();
        let askers = NODES.map(|node| talk.asker(node));
        for (asker, node) in askers.into_iter().zip(NODES) {
            let entry = LogEntry { claimant: u64::from(node.0), ..known.clone() };
            talk.ask(asker, Message::CompareAndSet { entry });
        }
        let answers = askers.map(|asker| match talk.hears(asker, |_| true) {
            Message::Current { entry } => entry,
            other => panic!("{other:?}"),
        });
        let current = talk.get(NODES[round % 3], log).unwrap();
        assert_eq!(current.version, known.version + 1, "exactly one won");
        assert!(answers.iter().all(|answer| *answer == current), "everyone was told of the one that won");
    }
}

fn created_twice(talk: &mut Talk) {
    let askers = NODES.map(|node| talk.asker(node));
    for (asker, request) in askers.into_iter().zip(700..) {
        talk.ask(asker, creation(request, "orders"));
    }
    let answers = askers.map(|asker| talk.hears(asker, |_| true));
    let done = |answer: &&Message| matches!(answer, Message::Done { .. });
    let exists =
        |answer: &&Message| matches!(answer, Message::Refused { refusal: Refusal::Exists { .. }, .. });
    assert_eq!(answers.iter().filter(done).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(exists).count(), 2, "{answers:?}");
    // Different names are all created, each with its own id.
    let askers = [0, 1, 2, 3, 4, 5].map(|index| talk.asker(NODES[index % 3]));
    for (asker, request) in askers.into_iter().zip(710..) {
        talk.ask(asker, creation(request, &format!("log-{request}")));
    }
    let ids: BTreeSet<LogId> = askers
        .map(|asker| match talk.hears(asker, |_| true) {
            Message::Done { log, .. } => log,
            other => panic!("{other:?}"),
        })
        .into();
    let counts: BTreeSet<u64> = ids.into_iter().map(catalog::count).collect();
    assert_eq!(counts, BTreeSet::from([2, 3, 4, 5, 6, 7]));
}

fn deleted(talk: &mut Talk) {
    let log = talk.create(NODES[0], "orders");
    let entry = talk.get(NODES[0], log).unwrap();
    assert_eq!(catalog::hosts(&entry), BTreeSet::from(NODES));
    for (name, log) in [("orders", LogId(log.0 + 1)), ("invoices", log)] {
        let refusal = Refusal::NoSuchLog { name: name.into() };
        let answer = talk.answer_once(NODES[1], deletion(name, log));
        assert_eq!(answer, Message::Refused { request: 8, refusal });
    }
    talk.delete(NODES[1], "orders", log);
    for node in NODES {
        assert_eq!(talk.get(node, log), None);
    }
    let answer = talk.answer_once(NODES[0], Message::CompareAndSet { entry });
    assert_eq!(answer, Message::Gone { log });
    // A retransmitted deletion succeeds, also when another log has the name.
    talk.delete(NODES[0], "orders", log);
    let next = talk.create(NODES[1], "orders");
    talk.delete(NODES[2], "orders", log);
    assert_eq!(talk.get(NODES[0], next).unwrap().name, "orders");
    let is_reminder = |message: &Message| *message == Message::RemoveLog { log };
    for node in NODES {
        // Reminders repeat until the node has forgotten the log.
        talk.hears(itself(node), is_reminder);
        talk.hears(itself(node), is_reminder);
    }
    for (index, node) in NODES.into_iter().enumerate() {
        talk.ask(itself(node), Message::Retired { log, node });
        // An earlier reminder may still be in flight: wait until none comes.
        while talk.hears_within(REMINDED / 2, itself(node), is_reminder).is_some() {
            talk.ask(itself(node), Message::Retired { log, node });
        }
        talk.forget();
        for waiting in &NODES[index + 1..] {
            talk.hears(itself(*waiting), is_reminder);
        }
        assert_eq!(talk.hears_within(REMINDED, itself(node), is_reminder), None);
    }
}

fn never_again(talk: &mut Talk) {
    let (a, old) = (talk.create(NODES[0], "a"), talk.create(NODES[0], "b"));
    talk.delete(NODES[0], "b", old);
    for node in NODES {
        talk.ask(itself(node), Message::Retired { log: old, node });
    }
    talk.restart();
    assert_eq!(talk.get(NODES[0], old), None);
    let b = talk.create(NODES[0], "b");
    assert_eq!([a, old, b].map(catalog::count), [1, 2, 3]);
    assert_eq!(talk.get(NODES[1], a).unwrap().name, "a");
    assert_eq!(talk.get(NODES[1], b).unwrap().name, "b");
}

fn joined(talk: &mut Talk) {
    talk.moves(NODES[1], "node-2:2");
    for node in NODES {
        talk.hears_of(node, 3, |listed| listed.node == NODES[1] && listed.address == "node-2:2");
    }
    talk.forget();
    talk.join(NODES[2], "node-3:1");
    talk.hears_of(NODES[2], 3, |_| true);
    let newcomer = NodeId(12);
    talk.join(newcomer, "node-12:1");
    for node in NODES {
        talk.hears_of(node, 4, |listed| listed.node == newcomer && listed.address == "node-12:1");
    }
    let Message::Listing { nodes, .. } = talk.answer(NODES[0], Message::List { request: 1 }) else {
        panic!("a listing")
    };
    let listed: Vec<_> = nodes.iter().map(|node| (node.node.0, node.address.as_str())).collect();
    assert_eq!(listed, [(1, "node-1:1"), (2, "node-2:2"), (3, "node-3:1"), (12, "node-12:1")]);
}

fn parted(talk: &mut Talk) {
    let newcomer = NodeId(12);
    talk.join(newcomer, "node-12:1");
    talk.hears_of(NODES[2], 4, |listed| listed.node == newcomer);
    let part = |node, change| Message::Part { request: 8, node, change };
    let done = Message::Done { request: 8, log: LogId(0) };
    let refused = |talk: &mut Talk, node, change| match talk.answer(NODES[1], part(node, change)) {
        Message::Refused { refusal, .. } => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let drain = PartingChange::Drain { by: None };
    assert!(refused(talk, NodeId(77), drain).contains("there is no node 77"));
    let log = talk.create(NODES[0], "a");
    assert!(refused(talk, NODES[2], PartingChange::Remove).contains("still has roles in log 'a'"));
    // All nodes learn of the drain, and so does any asker.
    assert_eq!(talk.answer(NODES[1], part(newcomer, drain)), done);
    let drained = vec![NodeParting { node: newcomer, parting: Parting::Drained { by: None } }];
    for node in NODES {
        let said = Message::Partings { partings: drained.clone() };
        talk.hears(itself(node), |message| *message == said);
    }
    let are = |partings| Message::PartingsAre { request: 1, partings };
    assert_eq!(talk.answer(NODES[0], Message::AskPartings { request: 1 }), are(drained));
    for name in ["b", "c", "d", "e"] {
        let log = talk.create(NODES[0], name);
        let entry = talk.get(NODES[0], log).expect("the log");
        assert!(!catalog::hosts(&entry).contains(&newcomer), "{entry:?}");
    }
    assert_eq!(talk.answer(NODES[1], part(newcomer, PartingChange::Stay)), done);
    assert_eq!(talk.answer(NODES[0], Message::AskPartings { request: 1 }), are(vec![]));
    // The removed node is no longer listed, and no deletion waits for it.
    talk.delete(NODES[0], "a", log);
    for _ in 0..2 {
        assert_eq!(talk.answer(NODES[1], part(newcomer, PartingChange::Remove)), done);
    }
    let removed = vec![NodeParting { node: newcomer, parting: Parting::Removed }];
    talk.restart();
    assert_eq!(talk.answer(NODES[0], Message::AskPartings { request: 1 }), are(removed));
    let Message::Listing { nodes, .. } = talk.answer(NODES[0], Message::List { request: 1 }) else {
        panic!("a listing")
    };
    assert!(nodes.iter().all(|listed| listed.node != newcomer), "{nodes:?}");
    assert!(refused(talk, newcomer, drain).contains("was removed, and its number is not used again"));
    talk.join(newcomer, "node-12:2");
    let Message::Listing { nodes, .. } = talk.answer(NODES[0], Message::List { request: 1 }) else {
        panic!("a listing")
    };
    assert!(nodes.iter().all(|listed| listed.node != newcomer), "{nodes:?}");
}

fn late(talk: &mut Talk) {
    let is_at = |address: &'static str| {
        move |listed: &NodeAddress| listed.node == NODES[1] && listed.address == address
    };
    talk.join(NODES[1], "node-2:2");
    let version = talk.see_elsewhere(NODES[1]);
    let place = |address: &str| NodeAddress { node: NODES[1], address: address.to_owned() };
    // Node 2 joins at its old address before the move arrives, which then fails.
    talk.forget();
    talk.join(NODES[1], "node-2:1");
    talk.hears_of(NODES[1], 3, is_at("node-2:1"));
    talk.ask(itself(NODES[1]), Message::Move { node: place("node-2:2"), version });
    talk.see_elsewhere(NODES[1]);
    talk.moves(NODES[1], "node-2:3");
    talk.hears_of(NODES[1], 3, is_at("node-2:3"));
    for late in
        [Message::Join { node: place("node-2:1") }, Message::Move { node: place("node-2:2"), version }]
    {
        talk.ask(itself(NODES[1]), late);
        talk.see_elsewhere(NODES[1]);
    }
    let Message::Listing { nodes, .. } = talk.answer(NODES[0], Message::List { request: 1 }) else {
        panic!("a listing")
    };
    assert_eq!(nodes[1], place("node-2:3"));
}
