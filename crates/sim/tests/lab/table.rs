//! Tables of measured values in `docs/protocols.md`: measured again and compared with the page.
//!
//! `SERIATIM_TABLE=write cargo test -p seriatim-sim --test lab` writes the values into the page.

use std::fmt::Write as _;
use std::path::Path;
use std::thread;

use seriatim_model::order::Properties;
use seriatim_model::{Durability, Order};

use crate::costs::{self, Costs};
use crate::crashes::{self, Fates, Recovery, Victim};
use crate::spent::Spent;

const PAGE: &str = "docs/protocols.md";

#[test]
fn the_page_of_protocols_says_what_is_measured() {
    replace(PAGE, "measured", "costs", &cost_table());
    replace(PAGE, "measured", "crashes", &crash_tables());
}

#[test]
fn the_page_of_protocols_says_what_each_ordering_is() {
    replace(PAGE, "written", "properties", &property_table());
}

#[test]
fn the_readme_says_for_whom_each_ordering_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = std::fs::read_to_string(path).expect("it is there");
    for order in Order::ALL {
        let Properties { name, wanted, .. } = order.properties();
        let costs = costs::measure(order, Durability::Memory);
        let (returns, known) = (round_trips(costs.acknowledged), round_trips(costs.bound));
        let row = format!("| {wanted} | `{name}` | {returns} | {known}");
        assert!(page.contains(&row), "README.md has no row that begins: {row}");
    }
}

fn round_trips(spent: Spent) -> String {
    match spent.delays() {
        2 => "1 round trip".to_owned(),
        delays if delays % 2 == 0 => format!("{} round trips", delays / 2),
        delays => format!("{}.5 round trips", delays / 2),
    }
}

/// Compares a table or a trace with the text between the marks of its name, or writes it there.
pub(crate) fn replace(page: &str, how: &str, name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (begin, end) = (format!("<!-- {how}: {name} -->\n"), format!("<!-- end: {name} -->\n"));
    let (before, rest) = page.split_once(&begin).expect("the table's beginning is marked");
    let (found, after) = rest.split_once(&end).expect("the table's end is marked");
    if std::env::var("SERIATIM_TABLE").is_ok_and(|value| value == "write") {
        let page = [before, &begin, table, &end, after].concat();
        std::fs::write(&path, page).expect("the page can be written");
    } else {
        let differ = |(said, meant): &(&str, &str)| said != meant;
        let lines = found.lines().zip(table.lines()).filter(differ);
        let lines = lines.map(|(said, meant)| format!("the page: {said}\n{how}: {meant}\n"));
        let lines: String = lines.collect();
        assert!(found == table, "{name}:\n{lines}(SERIATIM_TABLE=write takes it over)");
    }
}

/// A table with a column for each ordering.
fn table(title: &str, rows: impl IntoIterator<Item = (String, Vec<String>)>) -> String {
    let mut text = format!("| {title} |");
    Order::ALL.iter().for_each(|order| write!(text, " `{order}` |").expect("a string takes everything"));
    text += "\n|---|";
    text += &"---|".repeat(Order::ALL.len());
    for (what, cells) in rows {
        write!(text, "\n| {what} | {} |", cells.join(" | ")).expect("a string takes everything");
    }
    text + "\n"
}

fn property_table() -> String {
    let columns = Order::ALL.map(|order| order.properties().in_words());
    let rows = columns[0].iter().enumerate().map(|(row, (what, _))| {
        let cells = columns.iter().map(|column| column[row].1.to_owned()).collect();
        ((*what).to_owned(), cells)
    });
    table("", rows)
}

fn cost_table() -> String {
    let measured: Vec<(Costs, Costs)> = Order::ALL
        .iter()
        .map(|order| (costs::measure(*order, Durability::Memory), costs::measure(*order, Durability::Disk)))
        .collect();
    type Cell = fn(&Costs, &Costs) -> String;
    let rows: [(&str, Cell); 15] = [
        ("an append is acknowledged after", |memory, _| memory.acknowledged.to_string()),
        ("the same at `disk`", |_, disk| disk.acknowledged.to_string()),
        ("its position is final after", |memory, _| memory.stable.to_string()),
        ("the same at `disk`", |_, disk| disk.stable.to_string()),
        ("its receipt has the position, if requested, after", |memory, _| memory.bound.to_string()),
        ("a subscriber receives it after", |memory, _| memory.delivered.to_string()),
        ("a subscriber with predictions receives it after", |memory, _| memory.foretold.to_string()),
        ("the same at `disk`", |_, disk| disk.foretold.to_string()),
        ("that prediction is confirmed after", |memory, _| memory.confirmed.to_string()),
        ("the same at `disk`", |_, disk| disk.confirmed.to_string()),
        ("a read of a final position takes", |memory, _| memory.read.to_string()),
        ("`check_tail` takes", |memory, _| memory.tail.to_string()),
        ("messages until the acknowledgement", |memory, _| memory.messages_before.to_string()),
        ("messages in total", |memory, _| memory.messages.to_string()),
        ("syncs in total at `disk`", |_, disk| disk.syncs.to_string()),
    ];
    let rows = rows.into_iter().map(|(what, cell)| {
        (what.to_owned(), measured.iter().map(|(memory, disk)| cell(memory, disk)).collect())
    });
    table("", rows)
}

/// Effects of each victim's crash for each order, if its process dies and if it falls silent.
type Measured = Vec<(Victim, Vec<Option<(Recovery, Recovery)>>)>;

fn crash_tables() -> String {
    let measured = measured_crashes();
    let rows = |cell: fn(&Recovery, &Recovery) -> String| {
        let cells = move |recoveries: &[Option<(Recovery, Recovery)>]| -> Vec<String> {
            let cells = recoveries.iter().map(|both| both.as_ref().map(|(died, silent)| cell(died, silent)));
            cells.map(|cell| cell.unwrap_or_else(|| "–".to_owned())).collect()
        };
        measured.iter().map(move |(victim, recoveries)| (name(*victim).to_owned(), cells(recoveries)))
    };
    let tables = [
        table(
            "appends in flight are acknowledged within",
            rows(|died, silent| either(fate(died), fate(silent))),
        ),
        table(
            "an append right after the crash is acknowledged within",
            rows(|died, silent| within(died.next, silent.next)),
        ),
        table(
            "a subscriber receives that append within",
            rows(|died, silent| within(died.delivered, silent.delivered)),
        ),
        table(
            "a read of a final position is answered within",
            rows(|died, silent| within(died.read, silent.read)),
        ),
        return_table(),
    ];
    tables.join("\n")
}

fn return_table() -> String {
    let measured = |victim: &Victim| {
        Order::ALL.iter().map(|order| crashes::measure_return(*order, *victim)).collect::<Vec<_>>()
    };
    let rows = Victim::ALL.iter().map(|victim| (*victim, measured(victim)));
    let rows = rows.filter(|(_, spent)| spent.iter().any(Option::is_some));
    let shown = |spent: &Option<Spent>| spent.map_or_else(|| "–".to_owned(), |spent| spent.to_string());
    let title = "an append during the return of the process is acknowledged within";
    table(title, rows.map(|(victim, spent)| (name(victim).to_owned(), spent.iter().map(shown).collect())))
}

fn measured_crashes() -> Measured {
    let of = |victim| {
        move |order: &Order| {
            let died = crashes::measure(*order, victim, true)?;
            Some((died, crashes::measure(*order, victim, false)?))
        }
    };
    let measure = |victim| (victim, Order::ALL.iter().map(of(victim)).collect());
    thread::scope(|scope| {
        let running: Vec<_> = Victim::ALL.map(|victim| scope.spawn(move || measure(victim))).into();
        running.into_iter().map(|thread| thread.join().expect("it was measured")).collect()
    })
}

fn name(victim: Victim) -> &'static str {
    match victim {
        Victim::Client => "a client",
        Victim::Leader => "the leader or sequencer",
        Victim::Follower => "a follower",
        Victim::Primary => "the shard's primary",
        Victim::Backup => "a backup",
        Victim::Controller => "the leader or sequencer, while its controller replaces a backup",
        Victim::Register => "the register",
    }
}

fn within(died: impl ToString, silent: impl ToString) -> String {
    either(died.to_string(), silent.to_string())
}

/// Value if a process dies, followed by the value if it falls silent, unless equal.
fn either(died: String, silent: String) -> String {
    if died == silent { died } else { format!("{died}; {silent}") }
}

fn fate(recovery: &Recovery) -> String {
    let Fates { refused, untold, .. } = recovery.fates;
    match (untold, refused) {
        (true, _) => "may or may not be in the log".to_owned(),
        (false, true) => format!("{}, or definitely not in the log", recovery.answered),
        (false, false) => recovery.answered.to_string(),
    }
}
