//! One append as a story: the traces of `docs/design/append.md`.

use std::path::Path;
use std::time::Duration;

use seriatim_model::{LogConfig, Order, Position, ShardId};
use seriatim_protocol::parts::ShardChoice;
use seriatim_protocol::parts::appending::{AppendSpec, Reply};

use crate::lab::{Lab, Party, REGISTER};
use crate::programs::{Answer, Ask, Program};
use crate::spent::Pace;
use crate::table::replace;
use crate::trace::{Shown, Trace};
use crate::words::Names;

const PAGE: &str = "docs/design/append.md";
/// A message takes 0.1 ms, an fsync of a journal 1 ms.
const PACE: Pace = Pace { delay: 100_000, sync: 1_000_000 };
const NODES: u32 = 8;
/// Shards whose replicas share no node with another role.
const SHARDS: [ShardId; 2] = [ShardId(3), ShardId(5)];

const A: u64 = 1;
const B: u64 = 2;
const READER: u64 = 3;
/// Clients that append to one of the shards each before A and B do.
const EARLIER: [u64; 2] = [4, 5];
/// Client, token and expected position of each append.
const APPENDS: [(u64, u64, Position); 3] =
    [(A, 1, Position(100)), (A, 2, Position(101)), (B, 1, Position(102))];
const SOON: Duration = Duration::from_millis(100);

/// The leader dies when the trace has a line (message or write) of this name from this party.
struct Moment {
    name: &'static str,
    party: &'static str,
    line: &'static str,
}

#[test]
fn the_page_of_the_append_shows_the_trace() {
    let moments = [
        Moment { name: "erwin-st, unheard", party: "A", line: "Append" },
        Moment { name: "erwin-st, unbound", party: "S1", line: "journal" },
        Moment { name: "erwin-st, bound", party: "S1", line: "Truncate" },
    ];
    shows(Order::ErwinSt, "erwin-st", &moments);
    let moments = [
        Moment { name: "belfast, unheard", party: "PX", line: "Report" },
        Moment { name: "belfast, uncommitted", party: "S2", line: "Held" },
        Moment { name: "belfast, committed", party: "S1", line: "Cover" },
    ];
    shows(Order::Belfast, "belfast", &moments);
}

fn shows(order: Order, name: &str, moments: &[Moment]) {
    let mut lab = prepared(order);
    append(&mut lab);
    ends(&mut lab, name, Shown::Everything);
    for Moment { name, party, line } in moments {
        let mut lab = prepared(order);
        let leader = lab.look_up().view.expect("it has a view").leader;
        append(&mut lab);
        let is_there = |lab: &Lab| lab.trace.as_ref().is_some_and(|trace| trace.has(party, line));
        assert!(lab.wait_until(SOON, is_there), "{name}: {party} has no {line}");
        lab.stop_node(leader, true);
        ends(&mut lab, name, Shown::Appenders);
    }
}

/// A log whose next position is 100.
fn prepared(order: Order) -> Lab {
    let mut lab = Lab::with_nodes(PACE, NODES);
    // The first window of belfast has 5 cuts with 20 positions each.
    let config = LogConfig { order, replicas: 2, sequencers: 3, window: 5, ..LogConfig::default() };
    let entry = lab.open_with(config, &SHARDS);
    for client in [A, B].into_iter().chain(EARLIER) {
        lab.start(client, Program::appender(&entry, client));
        lab.ask(client, 0, Ask::OpenSession);
    }
    lab.start(READER, Program::speculator(&entry, Position::ZERO));
    lab.wait(SOON);
    // These records give the second window quotas of 2 and 1.
    let records = if order.has_quotas() { [4, 2] } else { [14, 6] };
    for round in 1..=5 {
        for ((client, shard), records) in EARLIER.into_iter().zip(SHARDS).zip(records) {
            (0..records).for_each(|nth| lab.append(client, round * 100 + nth, on(shard)));
        }
        lab.wait(Duration::from_millis(2));
    }
    lab.wait(SOON);
    lab
}

fn on(shard: ShardId) -> AppendSpec {
    AppendSpec { shard: ShardChoice::Fixed(shard), ..AppendSpec::default() }
}

fn append(lab: &mut Lab) {
    let entry = lab.look_up();
    let view = entry.view.expect("it has a view");
    let mut parties = vec![(Party::Client(A), "A"), (Party::Client(B), "B"), (Party::Client(READER), "R")];
    let members = view.sequencers.iter().zip(["S1", "S2", "S3"]);
    let replicas = view.shards.iter().flat_map(|shard| &shard.replicas).zip(["PX", "BX", "PY", "BY"]);
    parties.extend(members.chain(replicas).map(|(member, name)| (Party::Node(member.node), name)));
    parties.push((Party::Node(REGISTER), "register"));
    let session = |client| match lab.told(client, 0).map(|told| &told.answer) {
        Some(Answer::Appending(Reply::Session { session, .. })) => *session,
        other => panic!("{other:?}"),
    };
    let sessions = [(session(A), "A"), (session(B), "B")].into();
    let names = Names { sessions, shards: SHARDS.into_iter().zip(["X", "Y"]).collect() };
    lab.trace = Some(Trace::new((entry.id, view.number), lab.now, parties, names));
    let [(_, first, _), (_, second, _), (_, other, _)] = APPENDS;
    lab.append(A, first, on(SHARDS[0]));
    lab.append(A, second, on(SHARDS[0]));
    lab.append(B, other, AppendSpec { sync: true, ..on(SHARDS[1]) });
}

fn ends(lab: &mut Lab, name: &str, shown: Shown) {
    lab.wait(SOON);
    for (client, token, position) in APPENDS {
        let answer = lab.told(client, token).map(|told| &told.answer);
        let is_appended = matches!(answer, Some(Answer::Appending(Reply::Appended { .. })));
        assert!(is_appended, "{name}: {answer:?}");
        assert_eq!(lab.position(client, token), Some(position), "{name}");
    }
    assert!(!lab.took_back(), "{name}: a prediction failed");
    let trace = lab.trace.take().expect("it was begun");
    replace(PAGE, "traced", name, &trace.text(shown));
}

/// Table rows of the page name a file before its functions.
#[test]
fn the_page_of_the_append_names_functions_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join(PAGE)).expect("the page is there");
    let mut count = 0;
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let mut code = String::new();
        for name in row.split('`').skip(1).step_by(2) {
            if name.ends_with(".rs") {
                let path = root.join("crates").join(name);
                code = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{name} is not there"));
            } else if !code.is_empty() {
                count += 1;
                let is_there = ["(", "<"].iter().any(|end| code.contains(&format!("fn {name}{end}")));
                assert!(is_there, "no function `{name}` in the file before it: {row}");
            }
        }
    }
    assert!(count > 0, "{PAGE} names no function");
}
