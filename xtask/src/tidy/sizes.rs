//! Functions and files stay small. Larger ones only shrink.

use std::collections::BTreeMap;

use super::ratchet::Entry;
use super::{Finding, ratchet};
use crate::source::functions;
use crate::workspace::Workspace;

const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 800;

/// The ratchet does not raise this limit.
const FILE_LINES_AT_MOST: usize = 1000;

/// Larger files and functions. Each line: `path limit` or `path:function limit`.
const RATCHET: &str = "xtask/ratchet.txt";

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let (mut entries, mut findings) =
        ratchet::read(workspace, RATCHET, "`path limit` or `path:function limit`");
    for size in sizes(workspace) {
        let entry = entries.remove(&size.key);
        findings.extend(judge(&size, entry));
    }
    findings.extend(ratchet::left_over(RATCHET, entries));
    findings
}

struct Size {
    /// Key of the entry in the ratchet.
    key: String,
    path: String,
    line: usize,
    lines: usize,
    limit: usize,
}

/// Files, and functions: the longest of a name in a file.
fn sizes(workspace: &Workspace) -> Vec<Size> {
    let mut sizes = Vec::new();
    for file in workspace.rust() {
        let path = file.path.clone();
        sizes.push(Size {
            key: path.clone(),
            path: path.clone(),
            line: 1,
            lines: file.lines().count(),
            limit: FILE_LINES,
        });
        let mut longest = BTreeMap::new();
        for function in functions(&file.code) {
            let known = longest.entry(function.name.clone()).or_insert_with(|| function.clone());
            if function.lines > known.lines {
                *known = function;
            }
        }
        sizes.extend(longest.into_values().map(|function| Size {
            key: format!("{path}:{}", function.name),
            path: path.clone(),
            line: function.line,
            lines: function.lines,
            limit: FUNCTION_LINES,
        }));
    }
    sizes
}

fn judge(size: &Size, entry: Option<Entry>) -> Option<Finding> {
    let Size { key, lines, limit, .. } = size;
    let here = |message: String| Some(Finding::new(&size.path, size.line, message));
    if *limit == FILE_LINES && *lines > FILE_LINES_AT_MOST {
        return here(format!("{lines} lines; split it: no file has more than {FILE_LINES_AT_MOST}"));
    }
    let Some(entry) = entry else {
        let what = if *limit == FILE_LINES { "the file" } else { "the function" };
        return (lines > limit)
            .then(|| here(format!("`{key}`: {lines} lines; split {what} to at most {limit}")))?;
    };
    let there = |message: String| Some(Finding::new(RATCHET, entry.line, message));
    if *lines <= *limit {
        there(format!("`{key}` has {lines} lines, within the limit of {limit}: remove the line"))
    } else if *lines > entry.limit {
        here(format!("`{key}` grew from {} to {lines} lines; it may only shrink", entry.limit))
    } else if *lines < entry.limit {
        there(format!("`{key}` shrank to {lines} lines: lower its number from {}", entry.limit))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn f() {{{}}}\n", "\n".repeat(lines - 1))
    }

    fn found(text: &str, ratchet: &str) -> Vec<String> {
        let files = [("crates/a/src/lib.rs", text), (RATCHET, ratchet)];
        check(&Workspace::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn limits_are_inclusive() {
        assert_eq!(found(&function(70), ""), [""; 0]);
        assert_eq!(found(&function(71), "").len(), 1);
        assert_eq!(found(&"\n".repeat(800), ""), [""; 0]);
        assert_eq!(found(&"\n".repeat(801), "").len(), 1);
    }

    #[test]
    fn an_entry_fits_exactly() {
        assert_eq!(found(&function(90), "# why\n\ncrates/a/src/lib.rs:f 90"), [""; 0]);
        assert!(found(&function(91), "crates/a/src/lib.rs:f 90")[0].contains("grew from 90 to 91"));
        assert!(found(&function(89), "crates/a/src/lib.rs:f 90")[0].contains("lower its number"));
        assert!(found(&function(70), "crates/a/src/lib.rs:f 90")[0].contains("remove the line"));
        assert!(found("", "crates/a/src/lib.rs:f 90")[0].contains("does not exist"));
        assert!(found("", "nonsense")[0].contains("is not"));
    }

    #[test]
    fn nothing_lifts_the_cap_of_a_file() {
        assert_eq!(found(&"\n".repeat(1000), "crates/a/src/lib.rs 1000"), [""; 0]);
        assert!(found(&"\n".repeat(1001), "crates/a/src/lib.rs 1001")[0].contains("no file has more"));
    }

    #[test]
    fn the_longest_of_a_name_counts() {
        let text = format!("{}impl T {{ fn f() {{}} }}", function(80));
        assert_eq!(found(&text, "crates/a/src/lib.rs:f 80"), [""; 0]);
    }
}
