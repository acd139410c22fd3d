//! The cost of the deciding crates' release assertions, from profiles of the simulator
//! (`bench/assertions.sh`).
//!
//! A callgrind profile has the instructions of each line, and at a call those of the called
//! function with its callees. An assertion costs the sum over its lines. Inlined code has its own
//! lines: so the script also profiles a build [without](disarmed) assertions. The simulator does
//! the same in both, so the difference is exact.

use std::collections::BTreeMap;

use crate::source::{line_of, words};
use crate::workspace::{TextFile, Workspace};

const DECIDING: [&str; 5] = ["model", "protocol", "delivery", "store", "host"];

/// An assertion in a deciding crate, outside of tests. Assertions about the outcome of a change
/// (`assert!(set.remove(&key))`) are excluded, since the change is not their cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assertion {
    /// Path of its file.
    pub path: String,
    /// First line, from 1.
    pub first: usize,
    /// Last line.
    pub last: usize,
    range: (usize, usize),
}

/// All assertions of the deciding crates.
#[must_use]
pub fn find(workspace: &Workspace) -> Vec<Assertion> {
    workspace.rust().flat_map(in_file).collect()
}

/// The file's text with assertions switched off. `None`: it has none.
#[must_use]
pub fn disarmed(file: &TextFile) -> Option<String> {
    let mut chars: Vec<char> = file.text.chars().collect();
    let assertions = in_file(file);
    for Assertion { range: (from, end), .. } in assertions.iter().rev() {
        chars.splice(*end..*end, " }".chars());
        chars.splice(*from..*from, "if false { ".chars());
    }
    (!assertions.is_empty()).then(|| chars.into_iter().collect())
}

fn in_file(file: &TextFile) -> Vec<Assertion> {
    let code = &file.code;
    let end = if decides(&file.path) { code.find("#[cfg(test)]\nmod ").unwrap_or(code.len()) } else { 0 };
    let asserts = |word: &str| ["assert", "assert_eq", "assert_ne"].contains(&word);
    let found = words(&code[..end]).into_iter().filter(|(_, word)| asserts(word));
    let macros = found.filter_map(|(at, word)| Some((at, closing(code, at + word.len())?)));
    let changes = |part: &str| part.contains(".remove(") || part.contains(".insert(");
    let judging = macros.filter(|(from, end)| !changes(&code[*from..*end]));
    let characters = |at: usize| code[..at].chars().count();
    let assertion = |(from, end)| Assertion {
        path: file.path.clone(),
        first: line_of(code, from),
        last: line_of(code, end),
        range: (characters(from), characters(end) + 1),
    };
    judging.map(assertion).collect()
}

fn decides(path: &str) -> bool {
    let is_source = DECIDING.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_test =
        path.contains("/tests/") || name.ends_with("_tests.rs") || ["tests.rs", "testing.rs"].contains(&name);
    is_source && !is_test
}

/// Index of the bracket that closes the macro call whose `!` is at `at`.
fn closing(code: &str, at: usize) -> Option<usize> {
    code[at..].strip_prefix("!(")?;
    let mut depth = 0;
    for (offset, c) in code[at..].char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => continue,
        };
        if depth == 0 {
            return Some(at + offset);
        }
    }
    None
}

/// Instructions by line, including those of calls, and in total.
#[derive(Debug, Default)]
pub struct Profile {
    /// Instructions by file and line.
    pub lines: BTreeMap<(String, usize), u64>,
    /// Instructions in the whole run.
    pub total: u64,
    /// Instructions on lines of the deciding crates, without called functions.
    pub deciding: u64,
}

impl Profile {
    /// Reads the output of `valgrind --tool=callgrind --dump-instr=no`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (mut profile, mut names) = (Self::default(), BTreeMap::new());
        let (mut file, mut line, mut is_call) = (String::new(), 0, false);
        for row in text.lines() {
            let (key, value) = row.split_once('=').unwrap_or((row, ""));
            match key {
                "fl" | "fi" | "fe" => file = named(value, &mut names),
                "cfi" | "cfl" => drop(named(value, &mut names)),
                "calls" => is_call = true,
                _ => {
                    let Some((at, count)) = counted(row, line) else { continue };
                    line = at;
                    *profile.lines.entry((file.clone(), line)).or_default() += count;
                    let own = if is_call { 0 } else { count };
                    profile.total += own;
                    profile.deciding += if decides(&file) { own } else { 0 };
                    is_call = false;
                }
            }
        }
        profile
    }

    /// The instructions of an assertion.
    #[must_use]
    pub fn cost(&self, assertion: &Assertion) -> u64 {
        let of = |line| self.lines.get(&(assertion.path.clone(), line)).copied().unwrap_or(0);
        (assertion.first..=assertion.last).map(of).sum()
    }
}

/// Callgrind writes a path once, as `(number) path`, then only the number.
fn named(value: &str, names: &mut BTreeMap<String, String>) -> String {
    let (number, path) = value.split_once(' ').unwrap_or((value, ""));
    if !path.is_empty() {
        let below = path.find("crates/").map_or(path, |at| &path[at..]);
        names.insert(number.to_owned(), below.to_owned());
    }
    names.get(number).cloned().unwrap_or_default()
}

/// A row's line number (absolute, or relative to the `last`) and count.
fn counted(row: &str, last: usize) -> Option<(usize, u64)> {
    let (line, count) = row.split_once(' ')?;
    let line = match line.split_at_checked(1)? {
        ("*", "") => last,
        ("+", more) => last + more.parse::<usize>().ok()?,
        ("-", less) => last.checked_sub(less.parse().ok()?)?,
        _ => line.parse().ok()?,
    };
    Some((line, count.parse().ok()?))
}

/// A Markdown table in percent of all instructions: the most expensive assertions, their sum, the
/// saving without them, and the share of the deciding crates.
#[must_use]
pub fn table(assertions: &[Assertion], profiles: &[(String, Profile, Profile)], rows: usize) -> String {
    let percent = |part: u64, profile: &Profile| 100.0 * part as f64 / profile.total as f64;
    let costs =
        |assertion| profiles.iter().map(move |(_, with, _)| percent(with.cost(assertion), with)).collect();
    let mut listed: Vec<(f64, String, Vec<f64>)> = vec![];
    for assertion in assertions {
        let costs: Vec<f64> = costs(assertion);
        let most = costs.iter().copied().fold(0.0, f64::max);
        let path = assertion.path.trim_start_matches("crates/").replace("/src/", "/");
        listed.push((most, format!("`{path}` line {}", assertion.first), costs));
    }
    listed.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let names: Vec<&str> = profiles.iter().map(|(name, ..)| name.as_str()).collect();
    let mut text = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let mut row = |name: &str, values: Vec<f64>| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
        text += &format!("| {name} | {} |\n", values.join(" | "));
    };
    listed.iter().take(rows).for_each(|(_, name, costs)| row(name, costs.clone()));
    let sums = (0..profiles.len()).map(|at| listed.iter().map(|(_, _, costs)| costs[at]).sum());
    row(&format!("all {}, by their lines", listed.len()), sums.collect());
    let saved = |with: &Profile, without: &Profile| percent(with.total, with) - percent(without.total, with);
    row(
        "all, by a build without them",
        profiles.iter().map(|(_, with, without)| saved(with, without)).collect(),
    );
    row(
        "the deciding crates, by their lines",
        profiles.iter().map(|(_, with, _)| percent(with.deciding, with)).collect(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn f(x: u8) {\n    assert!(\n        x > 0, \"§ (\"\n    );\n    g();\n    \
        assert!(set.remove(&x));\n}\n#[cfg(test)]\nmod tests { fn t() { assert!(true); } }\n";

    const PROFILE: &str = "version: 1\nevents: Ir\n\nfl=(1) /a/crates/host/src/a.rs\nfn=(1) f\n2 10\n+1 5\n\
        cfi=(2) /a/core.rs\ncfn=(2) g\ncalls=3 7\n* 100\nfi=(2)\n4 1\nfe=(1)\n-1 2\n\nfl=(2)\nfn=(2)\n7 100\n\
        totals: 118\n";

    fn workspace() -> Workspace {
        Workspace::of(&[("crates/host/src/a.rs", SOURCE), ("crates/node/src/a.rs", SOURCE)])
    }

    #[test]
    fn assertions_of_deciding_crates_are_found_outside_of_tests() {
        let found: Vec<_> = find(&workspace()).into_iter().map(|a| (a.path, a.first, a.last)).collect();
        assert_eq!(found, [("crates/host/src/a.rs".to_owned(), 2, 4)]);
    }

    #[test]
    fn a_file_is_the_same_without_them() {
        let workspace = workspace();
        let disarmed = disarmed(workspace.file("crates/host/src/a.rs").unwrap()).unwrap();
        assert!(
            disarmed.contains("if false { assert!(\n        x > 0, \"§ (\"\n    ) };\n    g();"),
            "{disarmed}"
        );
        assert!(disarmed.contains("    assert!(set.remove(&x));"), "{disarmed}");
        assert!(super::disarmed(workspace.file("crates/node/src/a.rs").unwrap()).is_none());
    }

    #[test]
    fn an_assertion_costs_its_lines_and_the_calls_made_there() {
        let profile = Profile::parse(PROFILE);
        assert_eq!((profile.total, profile.deciding), (118, 17));
        assert_eq!(profile.cost(&find(&workspace())[0]), 10 + 5 + 100 + 2);
    }

    #[test]
    fn the_table_has_the_dearest_and_the_sums() {
        let without = Profile { total: 59, ..Profile::default() };
        let profiles = [("x".to_owned(), Profile::parse(PROFILE), without)];
        let table = table(&find(&workspace()), &profiles, 10);
        let rows = ["| `host/a.rs` line 2 | 99.153 |", "| all 1, by their lines | 99.153 |"];
        assert!(rows.iter().all(|row| table.contains(row)), "{table}");
        assert!(table.contains("| all, by a build without them | 50.000 |"), "{table}");
    }
}
