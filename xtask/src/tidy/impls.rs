//! Types stay small, by the lines of their `impl`s in all files. Larger ones only shrink.

use std::collections::BTreeMap;

use super::{Finding, only_tests, ratchet};
use crate::source::impls;
use crate::workspace::Workspace;

const LINES: usize = 1000;

/// Larger types. Each line: `module:Type lines`.
const RATCHET: &str = "xtask/impls.txt";

struct Type {
    path: String,
    line: usize,
    lines: usize,
}

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let (mut entries, mut findings) = ratchet::read(workspace, RATCHET, "`module:Type lines`");
    for (key, Type { path, line, lines }) in types(workspace) {
        let entry = entries.remove(&key);
        let here = |message: String| Finding::new(&path, line, message);
        match entry {
            None if lines > LINES => findings.push(here(format!(
                "`{key}` has {lines} lines of `impl`, more than {LINES}: give a part of what it does to a type of its own"
            ))),
            Some(entry) if lines > LINES && lines > entry.limit => findings.push(here(format!(
                "`{key}` grew from {} to {lines} lines of `impl`; it may only shrink",
                entry.limit
            ))),
            Some(entry) if lines <= LINES => findings.push(Finding::new(
                RATCHET,
                entry.line,
                format!("`{key}` has {lines} lines, within the limit of {LINES}: remove the line"),
            )),
            Some(entry) if lines < entry.limit => findings.push(Finding::new(
                RATCHET,
                entry.line,
                format!("`{key}` shrank to {lines} lines: lower its number from {}", entry.limit),
            )),
            _ => {}
        }
    }
    findings.extend(ratchet::left_over(RATCHET, entries));
    findings
}

/// Types with the lines of their `impl`s, per module: a folder or file at the top of a crate.
fn types(workspace: &Workspace) -> BTreeMap<String, Type> {
    let tests = only_tests::files(workspace);
    let mut types = BTreeMap::new();
    for file in
        workspace.rust().filter(|file| !tests.contains(&file.path) && !file.path.ends_with("_tests.rs"))
    {
        let Some((krate, below)) = file.path.split_once("/src/") else { continue };
        let module = below.split('/').next().unwrap_or(below).trim_end_matches(".rs");
        for block in impls(only_tests::without(&file.code)) {
            let new = || Type { path: file.path.clone(), line: block.line, lines: 0 };
            let key = format!("{krate}/src/{module}:{}", block.of);
            types.entry(key).or_insert_with(new).lines += block.lines;
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: usize) -> String {
        format!("impl A {{{}}}\n", "\n".repeat(lines - 1))
    }

    fn found(files: &[(&str, &str)], list: &str) -> Vec<String> {
        let files = [files, &[(RATCHET, list)]].concat();
        check(&Workspace::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_of_one_module_are_counted_together() {
        let (half, more) = (block(500), block(501));
        let two = |first: &'static str, second: &'static str, lines: &str| {
            found(&[(first, &half), (second, lines)], "")
        };
        assert_eq!(two("crates/a/src/b.rs", "crates/a/src/b/c.rs", &half), [""; 0]);
        assert_eq!(two("crates/a/src/b.rs", "crates/a/src/b/c.rs", &more).len(), 1);
        assert_eq!(two("crates/a/src/b.rs", "crates/a/src/d.rs", &more), [""; 0]);
        assert_eq!(two("crates/a/src/b.rs", "crates/c/src/b.rs", &more), [""; 0]);
    }

    #[test]
    fn tests_do_not_count() {
        let text = format!("{}#[cfg(test)]\nmod tests {{\n{}}}", block(600), block(600));
        assert_eq!(found(&[("crates/a/src/b.rs", &text)], ""), [""; 0]);
        assert_eq!(
            found(&[("crates/a/src/b_tests.rs", &block(1200)), ("crates/a/tests/b.rs", &block(1200))], ""),
            [""; 0]
        );
    }

    #[test]
    fn an_entry_fits_exactly() {
        let with = |lines, list| found(&[("crates/a/src/b.rs", &block(lines))], list);
        assert_eq!(with(1100, "# why\ncrates/a/src/b:A 1100"), [""; 0]);
        assert!(with(1101, "crates/a/src/b:A 1100")[0].contains("grew from 1100 to 1101"));
        assert!(with(1099, "crates/a/src/b:A 1100")[0].contains("lower its number"));
        assert!(with(1000, "crates/a/src/b:A 1100")[0].contains("remove the line"));
        assert!(with(10, "crates/a/src/b:B 1100")[0].contains("does not exist"));
        assert!(with(10, "nonsense")[0].contains("is not"));
    }
}
