//! The project's documents.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use super::Finding;
use crate::prose;
use crate::workspace::{TextFile, Workspace};

const WORDS: &[&str] = &[
    "backup",
    "binding",
    "claim",
    "controller",
    "cut",
    "durability level",
    "fence",
    "flush",
    "follower",
    "incarnation",
    "install history",
    "journal",
    "leader",
    "log",
    "no-op",
    "orderer",
    "placement",
    "position",
    "primary",
    "receipt",
    "record",
    "record id",
    "replica",
    "ring",
    "seal",
    "sequencing replica",
    "session",
    "shard",
    "stable",
    "stage",
    "stripe",
    "tail",
    "ticket",
    "trim point",
    "view",
    "view register",
];

pub(super) fn crate_docs(workspace: &Workspace) -> Vec<Finding> {
    let is_root = |path: &str| {
        path.ends_with("/src/lib.rs")
            || path.ends_with("/src/main.rs")
            || path.contains("/src/bin/")
            || is_test(path)
    };
    let documented =
        |text: &str| text.lines().find(|line| !line.trim().is_empty()).is_some_and(|l| l.starts_with("//!"));
    let roots = workspace.rust().filter(|file| is_root(&file.path));
    roots
        .filter(|file| !documented(&file.text))
        .map(|file| {
            Finding::new(&file.path, 1, "start the crate with `//!`: what it is for, in a sentence or a few")
        })
        .collect()
}

/// Whether a test's root is at `path`: a file in `tests`, or `main.rs` in a folder of it.
fn is_test(path: &str) -> bool {
    let Some((_, below)) = path.split_once("/tests/") else { return false };
    !below.contains('/') || below.ends_with("/main.rs") && below.matches('/').count() == 1
}

/// The glossary defines each word once, in alphabetical order. An entry starts with `- **word**`.
pub(super) fn glossary(workspace: &Workspace) -> Vec<Finding> {
    const PATH: &str = "docs/glossary.md";
    let Some(file) = workspace.file(PATH) else {
        return vec![missing(PATH, "defines each of the project's words")];
    };
    let mut defined = BTreeSet::new();
    let mut findings = Vec::new();
    let mut before = String::new();
    for (line, text) in file.lines() {
        let word = text.strip_prefix("- **").and_then(|rest| rest.split_once("**")).map(|(word, _)| word);
        if let Some(word) = word.filter(|word| !defined.insert(*word)) {
            findings.push(Finding::new(PATH, line, format!("defines `{word}` a second time")));
        }
        if let Some(word) = word.map(str::to_lowercase) {
            if word < before {
                findings.push(Finding::new(
                    PATH,
                    line,
                    format!("`{word}` comes before `{before}` in the alphabet"),
                ));
            }
            before = word;
        }
    }
    for word in WORDS.iter().filter(|word| !defined.contains(*word)) {
        findings.push(Finding::new(PATH, 1, format!("lacks `{word}`; add a line `- **{word}**: …`")));
    }
    findings
}

/// Checks the decisions: their names and titles, at most 35 pages of 900 words, and a row with a
/// status for each page in the table of docs/decisions/README.md.
pub(super) fn decisions(workspace: &Workspace) -> Vec<Finding> {
    const FOLDER: &str = "docs/decisions/";
    const TABLE: &str = "docs/decisions/README.md";
    const PAGES: usize = 35;
    const WORDS_OF_A_PAGE: usize = 900;
    let table = workspace.file(TABLE).map_or("", |file| file.text.as_str());
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let has_row = |name: &str| {
        let link = format!("]({name})");
        rows.iter().any(|row| match row[..] {
            [_, decision, status] => decision.contains(&link) && is_status(status),
            _ => false,
        })
    };
    let pages: Vec<&TextFile> = workspace.below(FOLDER).filter(|file| file.path != TABLE).collect();
    let mut findings = Vec::new();
    for file in &pages {
        let name = &file.path[FOLDER.len()..];
        let words = word_count(file);
        let is_named = name == "dependencies.md" || is_dated(name);
        let wrong = [
            (!is_named, "name a decision YYYY-MM-DD-title.md, in small letters and hyphens".to_owned()),
            (!file.text.starts_with("# "), "start a decision with its title: `# …`".to_owned()),
            (words > WORDS_OF_A_PAGE, format!("has {words} words, more than {WORDS_OF_A_PAGE}")),
            (!has_row(name), format!("has no row in {TABLE} with `in force` or `replaced by [PAGE](…)`")),
        ];
        let wrong = wrong.into_iter().filter(|(is_wrong, _)| *is_wrong);
        findings.extend(wrong.map(|(_, message)| Finding::new(&file.path, 1, message)));
    }
    if pages.len() > PAGES {
        let message = format!("{} pages, more than {PAGES}: fold one into docs/design", pages.len());
        findings.push(Finding::new(TABLE, 1, message));
    }
    findings
}

/// Whether a cell says that a decision is in force, or names the page that replaced it.
fn is_status(cell: &str) -> bool {
    cell == "in force" || cell.starts_with("replaced by [")
}

fn is_dated(name: &str) -> bool {
    let Some(title) = name.strip_suffix(".md") else { return false };
    let is_number =
        |from: usize, to: usize| title.get(from..to).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let is_within = |from, to, range: std::ops::RangeInclusive<u32>| {
        is_number(from, to) && title[from..to].parse().is_ok_and(|n| range.contains(&n))
    };
    let has_date = is_number(0, 4) && is_within(5, 7, 1..=12) && is_within(8, 10, 1..=31);
    let has_hyphens = [4, 7, 10].iter().all(|&at| title.as_bytes().get(at) == Some(&b'-'));
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    has_date && has_hyphens && title.len() > 11 && title.bytes().skip(11).all(is_plain)
}

pub(super) fn present(workspace: &Workspace) -> Vec<Finding> {
    const EXPECTED: &[(&str, &str)] = &[
        ("README.md", "says what this is and how to start"),
        ("CHANGELOG.md", "says what changed for users"),
        ("STYLE.md", "says how the code is written"),
        ("LICENSE", "is the licence"),
    ];
    const COMMANDS: &[&str] = &["cargo run --release -- demo", "cargo test --workspace"];
    const ARCHITECTURE_WORDS: usize = 900;
    const CHANGELOG_LINES: usize = 60;
    let absent = EXPECTED.iter().filter(|(path, _)| workspace.file(path).is_none());
    let mut findings: Vec<Finding> = absent.map(|(path, what)| missing(path, what)).collect();
    if let Some(readme) = workspace.file("README.md") {
        for command in COMMANDS.iter().filter(|command| !readme.text.contains(*command)) {
            findings.push(Finding::new(
                "README.md",
                1,
                format!("does not mention `{command}`, the way to start"),
            ));
        }
    }
    let is_longer = |path: &str, count: usize, most: usize, of: &str| {
        let message = format!("has {count} {of}, more than {most}; delete what other pages say");
        (count > most).then(|| Finding::new(path, 1, message))
    };
    if let Some(page) = workspace.file("ARCHITECTURE.md") {
        findings.extend(is_longer(&page.path, word_count(page), ARCHITECTURE_WORDS, "words"));
    }
    if let Some(page) = workspace.file("CHANGELOG.md") {
        findings.extend(is_longer(&page.path, page.lines().count(), CHANGELOG_LINES, "lines"));
    }
    findings
}

/// The words of a page outside of its blocks of code. Signs such as the lines of a table are none.
fn word_count(page: &TextFile) -> usize {
    prose::page(page).split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Checks that each page and source file that a text names exists: as a path from the root or from
/// the text, or as the end of a path.
pub(super) fn named(workspace: &Workspace) -> Vec<Finding> {
    let paths: BTreeSet<&str> = workspace.files().iter().map(|file| file.path.as_str()).collect();
    let exists = |name: &str, from: &str| {
        let beside = resolve(from, name);
        paths.contains(beside.as_str())
            || paths.iter().any(|path| {
                path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'))
            })
    };
    let mut findings = Vec::new();
    for file in workspace.files().iter().filter(|file| names_files(&file.path)) {
        let is_rust = file.path.ends_with(".rs");
        for (line, text) in file.lines().filter(|(_, text)| !is_rust || text.trim_start().starts_with("//")) {
            for name in file_names(text).filter(|name| !exists(name, &file.path)) {
                findings.push(Finding::new(
                    &file.path,
                    line,
                    format!("names `{name}`, which does not exist"),
                ));
            }
        }
    }
    findings
}

/// The questions that docs/where.md answers at least.
const QUESTIONS: &[&str] = &[
    "Where does a client receive `Busy`?",
    "Where is a journal record's checksum computed?",
    "What happens to an append when the leader dies?",
    "Where is a field added to a receipt?",
    "Where is a field added to `status`?",
    "Where is a field added to the command line?",
    "Which threads does a node run?",
    "What happens on a full disk?",
    "Where is the record limit enforced?",
    "Who calls fsync?",
];

/// Checks that each row of docs/where.md (question, file, function) names a file below `crates/`
/// and functions of that file, and that the page answers each of [`QUESTIONS`].
pub(super) fn functions(workspace: &Workspace) -> Vec<Finding> {
    const PATH: &str = "docs/where.md";
    let Some(page) = workspace.file(PATH) else {
        return vec![missing(PATH, "says which file and function answer a question")];
    };
    let (mut answered, mut findings) = (BTreeSet::new(), Vec::new());
    for (line, text) in page.lines().filter(|(_, text)| text.starts_with('|')) {
        let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
        if cells[0] == "question" || cells[0].starts_with("---") {
            continue;
        }
        let wrong = match cells[..] {
            [question, file, functions] => {
                answered.insert(question);
                unanswered(workspace, file, functions)
            }
            _ => Some("needs three cells: question, file, function".to_owned()),
        };
        findings.extend(wrong.map(|message| Finding::new(PATH, line, message)));
    }
    for question in QUESTIONS.iter().filter(|question| !answered.contains(*question)) {
        findings.push(Finding::new(PATH, 1, format!("does not answer: {question}")));
    }
    findings
}

/// Why a row answers no question.
fn unanswered(workspace: &Workspace, file: &str, functions: &str) -> Option<String> {
    let path = format!("crates/{}", file.trim_matches('`'));
    let Some(source) = workspace.file(&path) else {
        return Some(format!("names {path}, which does not exist"));
    };
    let mut names = functions.split('`').skip(1).step_by(2).peekable();
    if names.peek().is_none() {
        return Some("names no function".to_owned());
    }
    let defines = |name: &str| {
        [format!("fn {name}("), format!("fn {name}<")].iter().any(|start| source.code.contains(start))
    };
    names.find(|name| !defines(name)).map(|name| format!("names `{name}`, which is not in {path}"))
}

fn names_files(path: &str) -> bool {
    [".rs", ".md", ".txt", ".sh", ".toml"].iter().any(|end| path.ends_with(end))
}

/// Pages and source files that a line names, except in URLs.
fn file_names(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./:*".contains(c);
    let words = line.split(move |c: char| !is_part(c)).map(|word| word.trim_end_matches(['.', ':']));
    let is_file = |word: &&str| {
        let stem = word.strip_suffix(".md").or_else(|| word.strip_suffix(".rs"));
        stem.is_some_and(|stem| !stem.is_empty() && !stem.contains([':', '*']))
    };
    words.filter(is_file).map(|word| word.trim_start_matches("./"))
}

/// A path relative to the folder of the file at `from`.
fn resolve(from: &str, name: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in Path::new(name).components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    parts.join("/")
}

fn missing(path: &str, what: &str) -> Finding {
    Finding::new(path, 1, format!("is missing; it {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crate_roots_are_documented() {
        let with = |path, text| crate_docs(&Workspace::of(&[(path, text)])).len();
        assert_eq!(with("crates/a/src/lib.rs", "//! Words.\n"), 0);
        assert_eq!(with("crates/a/src/lib.rs", "pub mod b;\n"), 1);
        assert_eq!(with("crates/a/src/b.rs", "pub mod b;\n"), 0);
        assert_eq!(with("crates/a/tests/rig/main.rs", "mod b;\n"), 1);
        assert_eq!(with("crates/a/tests/rig/b.rs", "mod b;\n"), 0);
    }

    #[test]
    fn each_word_is_defined_once() {
        let text: String = WORDS.iter().map(|word| format!("- **{word}**: something\n")).collect();
        let with = |text: &str| glossary(&Workspace::of(&[("docs/glossary.md", text)])).len();
        assert_eq!((with(&text), with(&text.replace("**tail**", "tail"))), (0, 1));
        assert_eq!(with(&format!("- **backup**: again\n{text}")), 1);
        assert_eq!(with(&format!("{text}- **Zeal**: a word\n- **yard**: another\n")), 1);
    }

    #[test]
    fn decisions_are_dated() {
        for name in ["2026-11-21-host-crate.md", "2026-01-01-a.md"] {
            assert!(is_dated(name), "{name}");
        }
        for name in [
            "host.md",
            "2026-11-21.md",
            "2026-11-21-.md",
            "2026-13-21-a.md",
            "2026-11-21-A.md",
            "2026-11-21-a",
        ] {
            assert!(!is_dated(name), "{name}");
        }
    }

    #[test]
    fn each_decision_has_a_row_with_a_status() {
        const TABLE: &str = "docs/decisions/README.md";
        let long = format!("# A\n{}", "word ".repeat(900));
        let with = |path, text, row| decisions(&Workspace::of(&[(path, text), (TABLE, row)])).len();
        let page = "docs/decisions/2026-11-21-a.md";
        assert_eq!(with(page, "# A\n", "| 2026-11-21 | [A](2026-11-21-a.md) | in force |\n"), 0);
        assert_eq!(with(page, "# A\n", "| x | [A](2026-11-21-a.md) | replaced by [B](b.md) |\n"), 0);
        assert_eq!(with(page, "# A\n", "| x | [A](2026-11-21-a.md) | |\n"), 1, "no status");
        assert_eq!(with(page, "# A\n", "| x | A | replaced by [A](2026-11-21-a.md) |\n"), 1, "no link");
        assert_eq!(with(page, "# A\n", "[A](2026-11-21-a.md)\n"), 1, "no row");
        let row = "| x | [A](2026-11-21-a.md) | in force |\n";
        assert_eq!(with(page, &long, row), 1, "too long");
        let row = "| x | [D](dependencies.md) [H](host.md) | in force |\n";
        assert_eq!(with("docs/decisions/dependencies.md", "# Dependencies\n", row), 0);
        assert_eq!(with("docs/decisions/host.md", "no title", row), 2);
    }

    #[test]
    fn few_decisions_have_pages() {
        let with = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("2026-11-21-a{number}.md")).collect();
            let rows = names.iter().map(|name| format!("| x | [A]({name}) | in force |\n"));
            let table: String = rows.collect();
            let paths: Vec<String> = names.iter().map(|name| format!("docs/decisions/{name}")).collect();
            let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "# A\n")).collect();
            files.push(("docs/decisions/README.md", &table));
            decisions(&Workspace::of(&files)).len()
        };
        assert_eq!((with(35), with(36)), (0, 1));
    }

    #[test]
    fn files_that_are_named_exist() {
        let with = |path, text| {
            let files =
                [("docs/a.md", ""), ("docs/decisions/b.md", ""), ("crates/x/src/y/z.rs", ""), (path, text)];
            named(&Workspace::of(&files)).len()
        };
        let found = "See [it](a.md), docs/decisions/b.md, `y/z.rs`: z.rs. https://example.com/q.md";
        assert_eq!(with("docs/c.md", found), 0);
        assert_eq!(with("docs/decisions/c.md", "[it](../a.md) and [this](b.md)"), 0);
        assert_eq!(
            with("docs/c.md", "[it](b.md), `x/z.rs`, [this](../a.md)"),
            2,
            "what a link leads to, and what a path leads to"
        );
        assert_eq!(with("crates/x/src/w.rs", "//! See gone.md.\nlet name = \"gone.md\";"), 1);
        assert_eq!(with("crates/x/src/w.rs", "/// All of `*.rs` and `.md`."), 0);
    }

    #[test]
    fn each_question_leads_to_a_function() {
        let with = |questions: &[&str], more: &str| {
            let rows =
                questions.iter().map(|question| format!("| {question} | `x/src/y/z.rs` | `begin` |\n"));
            let rows: String = rows.collect();
            let page = format!("# Where\n\n| question | file | function |\n|---|---|---|\n{rows}{more}");
            let code = ("crates/x/src/y/z.rs", "fn begin() {}\nfn end<T>() {} // fn gone()\n");
            functions(&Workspace::of(&[code, ("docs/where.md", &page)])).len()
        };
        assert_eq!(with(QUESTIONS, ""), 0);
        assert_eq!(with(QUESTIONS, "| Where? | `x/src/y/z.rs` | `begin`, `end` |\n"), 0);
        assert_eq!(with(QUESTIONS, "| Where? | `x/src/y/z.rs` | `begin`, `gone` |\n"), 1, "wrong function");
        assert_eq!(with(QUESTIONS, "| Where? | `x/src/y/w.rs` | `begin` |\n"), 1, "wrong file");
        assert_eq!(with(QUESTIONS, "| Where? | `x/src/y/z.rs` | - |\n"), 1, "no function");
        assert_eq!(with(QUESTIONS, "| Where? | `x/src/y/z.rs` |\n"), 1, "too few cells");
        assert_eq!(with(&QUESTIONS[1..], ""), 1, "missing question");
        assert_eq!(functions(&Workspace::of(&[])).len(), 1, "missing page");
    }

    #[test]
    fn the_readme_says_how_to_start() {
        let all = [
            ("README.md", "cargo run --release -- demo"),
            ("CHANGELOG.md", ""),
            ("STYLE.md", ""),
            ("LICENSE", ""),
        ];
        assert_eq!(present(&Workspace::of(&all)).len(), 1);
        assert_eq!(present(&Workspace::of(&all[..3])).len(), 2);
    }

    #[test]
    fn some_documents_stay_short() {
        let with = |path, text: &str| {
            let all = [("README.md", ""), ("STYLE.md", ""), ("LICENSE", ""), (path, text)];
            let findings = present(&Workspace::of(&all)).into_iter();
            findings.filter(|finding| finding.message.contains("more than")).count()
        };
        let pictures = format!("```text\n{}```\n", "word\n".repeat(1000));
        assert_eq!(with("ARCHITECTURE.md", &format!("{pictures}{}", "word ".repeat(900))), 0);
        assert_eq!(with("ARCHITECTURE.md", &"word ".repeat(901)), 1);
        assert_eq!(with("CHANGELOG.md", &"- A line\n".repeat(60)), 0);
        assert_eq!(with("CHANGELOG.md", &"- A line\n".repeat(61)), 1);
    }
}
