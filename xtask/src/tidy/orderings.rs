//! Only an ordering's own folder names it.
//!
//! Other code asks for a property of `Order::properties`. So a further ordering changes its own
//! folder, one row of that table, and the lines that construct it.

use std::collections::BTreeSet;

use seriatim_model::Order;

use super::{Finding, layers, only_tests, ratchet};
use crate::source::words;
use crate::workspace::{TextFile, Workspace};

const PROTOCOL: &str = "crates/protocol/src/";

/// Files that construct orderings, and the table of properties.
const CONSTRUCTORS: &[&str] = &[
    "crates/model/src/order.rs",
    "crates/protocol/src/client.rs",
    "crates/protocol/src/constructors.rs",
    "crates/protocol/src/lib.rs",
    "crates/protocol/src/roles.rs",
];

/// Files that name orderings. Each line: `path number`, with the number of naming lines.
const ALLOWED: &str = "xtask/orderings-named.txt";

/// Sum of the lines that the list may allow.
const LINES_AT_MOST: usize = 40;

/// Skips the orderings' own files, constructors, measurements and tests.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let names = Names::of(workspace);
    let tests = only_tests::files(workspace);
    let (mut allowed, mut findings) = ratchet::read(workspace, ALLOWED, "`path number`");
    let mut total = 0;
    for file in workspace.rust().filter(|file| !is_free(&file.path) && !tests.contains(&file.path)) {
        let lines = naming_lines(file, &names);
        total += lines.len();
        let entry = allowed.remove(&file.path);
        let limit = entry.as_ref().map_or(0, |entry| entry.limit);
        if lines.len() > limit {
            let message = format!(
                "{} lines name an ordering, where {limit} may: ask for one of Order's properties, or for a new one that \
                 says what is needed here",
                lines.len()
            );
            findings.push(Finding::new(&file.path, lines[0], message));
        } else if let Some(entry) = entry.filter(|entry| lines.len() < entry.limit || entry.limit == 0) {
            let message = match lines.len() {
                0 => format!("`{}` names no ordering any more: remove the line", file.path),
                count => {
                    format!("`{}` has {count} such lines left: lower its number from {limit}", file.path)
                }
            };
            findings.push(Finding::new(ALLOWED, entry.line, message));
        }
    }
    for (path, entry) in allowed {
        let message = format!("`{path}` does not exist any more, or may name orderings: remove the line");
        findings.push(Finding::new(ALLOWED, entry.line, message));
    }
    if total > LINES_AT_MOST {
        let message =
            format!("{total} lines name orderings outside of their places; at most {LINES_AT_MOST} may");
        findings.push(Finding::new(ALLOWED, 1, message));
    }
    findings
}

struct Names {
    /// Variants of `Order`, and those of messages and clients named after a folder.
    variants: BTreeSet<String>,
    /// Folders, as modules. Another thing may have such a name.
    folders: BTreeSet<String>,
}

impl Names {
    fn of(workspace: &Workspace) -> Self {
        let orders = Order::ALL.map(|order| format!("{order:?}"));
        let first_word = |variant: &String| {
            let end = variant.char_indices().skip(1).find(|(_, c)| c.is_uppercase()).map(|(at, _)| at);
            variant[..end.unwrap_or(variant.len())].to_lowercase()
        };
        let folders = layers::orderings(workspace).into_iter().map(str::to_owned);
        let folders: BTreeSet<String> = folders.chain(orders.iter().map(first_word)).collect();
        let called_after = folders.iter().map(|folder| folder[..1].to_uppercase() + &folder[1..]);
        Self { variants: called_after.chain(orders.iter().cloned()).collect(), folders }
    }

    /// Whether a line names an ordering: by a variant, or by a path through a folder.
    fn are_in(&self, line: &str) -> bool {
        let is_import = line.trim_start().trim_start_matches("pub ").starts_with("use ");
        words(line).iter().any(|(at, word)| {
            let is_path = is_import || line[at + word.len()..].starts_with("::");
            self.variants.contains(*word) || is_path && self.folders.contains(*word)
        })
    }
}

fn is_free(path: &str) -> bool {
    let is_ordering = path
        .strip_prefix(PROTOCOL)
        .and_then(|below| below.split_once('/'))
        .is_some_and(|(folder, _)| !layers::SHARED.contains(&folder));
    let is_test =
        path.ends_with("_tests.rs") || ["/tests/", "/examples/"].iter().any(|folder| path.contains(folder));
    // A suite for every ordering uses their properties.
    let is_test = is_test && !path.ends_with("/conformance.rs");
    is_ordering || is_test || CONSTRUCTORS.contains(&path) || path.starts_with("crates/bench/")
}

fn naming_lines(file: &TextFile, names: &Names) -> Vec<usize> {
    let lines = only_tests::without(&file.code).lines().enumerate();
    lines.filter(|(_, line)| names.are_in(line)).map(|(index, _)| index + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, code: &str, allowed: &str) -> Vec<String> {
        let files = [(path, code), (ALLOWED, allowed)];
        check(&Workspace::of(&files)).iter().map(ToString::to_string).collect()
    }

    const HOST: &str = "crates/host/src/role.rs";

    #[test]
    fn each_way_to_name_an_ordering_is_one() {
        for code in [
            "fn f(order: Order) -> bool { order == Order::ErwinBb }",
            "use seriatim_protocol::{Message, corfu};",
            "fn f(m: &Message) -> bool { matches!(m, Message::Erwin(_)) }",
            "fn f() { corfu::Sequencer::new(); }",
        ] {
            assert_eq!(found(HOST, code, "").len(), 1, "{code}");
        }
        let folder = ("crates/protocol/src/cuts/mod.rs", "");
        let in_folder = |code| check(&Workspace::of(&[folder, (HOST, code)])).len();
        assert_eq!(in_folder("fn f(m: Message) -> bool { matches!(m, Message::Cuts(_)) }"), 1);
        assert_eq!(in_folder("use seriatim_protocol::{Message, cuts};"), 1);
        assert_eq!(in_folder("fn f(cuts: Vec<u8>) -> usize { cuts.len() }"), 0);
        assert_eq!(found(HOST, "// corfu::\nfn f() -> &'static str { \"Scalog\" }", ""), [""; 0]);
    }

    #[test]
    fn orderings_constructors_measurements_and_tests_are_free() {
        let code = "use crate::corfu::Message;";
        for path in [
            "crates/protocol/src/corfu/client.rs",
            "crates/protocol/src/roles.rs",
            "crates/model/src/order.rs",
            "crates/bench/src/stall.rs",
            "crates/sim/tests/seeds.rs",
            "crates/delivery/src/fetch/fetch_tests.rs",
        ] {
            assert_eq!(found(path, code, ""), [""; 0], "{path}");
        }
        assert_eq!(found("crates/sim/tests/conformance.rs", code, "").len(), 1);
        let tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{code}\n}}");
        assert_eq!(found(HOST, &tests, ""), [""; 0]);
        let files = [
            ("crates/store/src/shard.rs", "#[cfg(test)]\nmod growth;"),
            ("crates/store/src/shard/growth_tests.rs", code),
        ];
        assert_eq!(check(&Workspace::of(&files)), []);
    }

    #[test]
    fn an_allowance_fits_exactly() {
        let two = "fn f() { erwin::f(); }\nfn g() { corfu::f(); corfu::g(); }\nfn h() {}";
        assert_eq!(found(HOST, two, "# why\ncrates/host/src/role.rs 2"), [""; 0]);
        assert!(
            found(HOST, two, "crates/host/src/role.rs 1")[0]
                .contains("2 lines name an ordering, where 1 may")
        );
        assert!(found(HOST, two, "crates/host/src/role.rs 3")[0].contains("lower its number from 3"));
        assert!(found(HOST, "", "crates/host/src/role.rs 1")[0].contains("remove the line"));
        assert!(found(HOST, "", "crates/host/src/gone.rs 1")[0].contains("does not exist"));
        assert!(found(HOST, "", "nonsense")[0].contains("is not `path number`"));
    }

    #[test]
    fn nothing_lifts_the_cap_of_them_all() {
        let many = "fn f() { erwin::f(); }\n".repeat(LINES_AT_MOST);
        assert_eq!(found(HOST, &many, &format!("{HOST} {LINES_AT_MOST}")), [""; 0]);
        let more = many + "fn g() { corfu::f(); }\n";
        assert!(found(HOST, &more, &format!("{HOST} {}", LINES_AT_MOST + 1))[0].contains("at most 40 may"));
    }
}
