//! Phrases that hide the actor or the object only become fewer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Finding, ratchet};
use crate::prose::{self, Figures};
use crate::workspace::Workspace;

/// Limits, as lines `KEY NUMBER`: markers of each text; words and long lines of all comments.
pub const LIMITS: &str = "xtask/prose.txt";

/// A text without a limit may have no markers.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let (mut limits, mut findings) = ratchet::read(workspace, LIMITS, "`key number`");
    for (key, figure) in numbers(&prose::measure(workspace)) {
        let entry = limits.remove(&key);
        let (line, limit) = entry.map_or((1, 0), |entry| (entry.line, entry.limit));
        if figure > limit {
            let message = format!(
                "`{key}` has {figure} and may have {limit}: name the actor and the object; \
                 `cargo xtask prose` counts"
            );
            findings.push(Finding::new(LIMITS, line, message));
        }
    }
    findings.extend(ratchet::left_over(LIMITS, limits));
    findings
}

/// The list with each number lowered to the present figure; texts without a limit get theirs.
#[must_use]
pub fn lowered(workspace: &Workspace) -> String {
    let (limits, _) = ratchet::read(workspace, LIMITS, "`key number`");
    let mut out = workspace.file(LIMITS).map_or(String::new(), |file| {
        file.text
            .lines()
            .filter(|line| line.starts_with('#'))
            .fold(String::new(), |text, line| text + line + "\n")
    });
    for (key, figure) in numbers(&prose::measure(workspace)) {
        let limit = limits.get(&key).map_or(figure, |entry| figure.min(entry.limit));
        if limit > 0 {
            let _ = writeln!(out, "{key} {limit}");
        }
    }
    out
}

fn numbers(figures: &BTreeMap<String, Figures>) -> Vec<(String, usize)> {
    let (mut numbers, mut words, mut long_lines) = (vec![], 0, 0);
    for (key, of) in figures {
        numbers.push((key.clone(), of.markers));
        if key.ends_with(" comments") {
            words += of.words;
            long_lines += of.long_lines;
        }
    }
    numbers.push(("words of comments".into(), words));
    numbers.push(("long lines of comments".into(), long_lines));
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "// It goes on.\nfn f() {}\n";

    fn findings(limits: &str) -> Vec<String> {
        let files = [("crates/a/src/lib.rs", CODE), (LIMITS, limits)];
        check(&Workspace::of(&files)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_figure_does_not_rise_above_its_limit() {
        assert!(findings("a comments 1\nwords of comments 3\n").is_empty());
        assert!(findings("a comments 2\nwords of comments 9\n").is_empty());
        let risen = findings("words of comments 3\n");
        assert!(
            matches!(&risen[..], [one] if one.contains("`a comments` has 1 and may have 0")),
            "{risen:?}"
        );
        let gone = findings("a comments 1\nb comments 1\nwords of comments 3\n");
        assert!(matches!(&gone[..], [one] if one.contains("`b comments` does not exist")), "{gone:?}");
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let with = |limits| lowered(&Workspace::of(&[("crates/a/src/lib.rs", CODE), (LIMITS, limits)]));
        assert_eq!(
            with("# Falls.\na comments 7\nwords of comments 2\n"),
            "# Falls.\na comments 1\nwords of comments 2\n"
        );
        assert_eq!(with(""), "a comments 1\nwords of comments 3\n");
    }
}
