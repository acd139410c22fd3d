//! Strings that no file may contain.

use std::collections::BTreeMap;

use super::Finding;
use crate::source::{line_of, words};
use crate::workspace::{TextFile, Workspace};

pub(super) fn stubs(workspace: &Workspace) -> Vec<Finding> {
    let forbidden = [
        ("todo!", "write it, or return an error that says what is missing"),
        ("unimplemented!", "write it, or return an error that says what is missing"),
        ("dbg!", "remove it"),
        ("#[ignore", "make the test run, or move it to `cargo xtask soak`"),
    ];
    let mut findings = Vec::new();
    for file in workspace.rust() {
        for (needle, advice) in forbidden {
            for (at, _) in file.code.match_indices(needle).filter(|(at, _)| !continues_name(&file.code, *at))
            {
                findings.push(Finding::new(
                    &file.path,
                    line_of(&file.code, at),
                    format!("`{needle}`: {advice}"),
                ));
            }
        }
    }
    findings
}

fn continues_name(code: &str, at: usize) -> bool {
    code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Files that may sleep. Each line: `path reason`.
const SLEEP_ALLOWED: &str = "xtask/sleep-allowed.txt";

/// Finds `sleep` and `sleep_until` in other files.
pub(super) fn sleeps(workspace: &Workspace) -> Vec<Finding> {
    let (mut allowed, mut findings) = read_allowed(workspace);
    for file in workspace.rust() {
        let calls = sleep_calls(&file.code);
        let is_allowed = allowed.remove(file.path.as_str());
        match (calls.as_slice(), is_allowed) {
            ([], Some(line)) => {
                let message = format!("`{}` does not sleep any more; remove the line", file.path);
                findings.push(Finding::new(SLEEP_ALLOWED, line, message));
            }
            (_, Some(_)) => {}
            (calls, None) => {
                let message = format!(
                    "sleeps: wait for what it waits for, with a deadline; if there is nothing to wait for, add the \
                     file and the reason to {SLEEP_ALLOWED}"
                );
                let finding = |&at: &usize| Finding::new(&file.path, line_of(&file.code, at), &message);
                findings.extend(calls.iter().map(finding));
            }
        }
    }
    let gone =
        |(path, line)| Finding::new(SLEEP_ALLOWED, line, format!("`{path}` does not exist; remove the line"));
    findings.extend(allowed.into_iter().map(gone));
    findings
}

fn sleep_calls(code: &str) -> Vec<usize> {
    let words = words(code);
    let mut calls = Vec::new();
    for (index, (at, word)) in words.iter().enumerate() {
        let is_call =
            matches!(*word, "sleep" | "sleep_until") && code[at + word.len()..].trim_start().starts_with('(');
        let is_method = code[..*at].trim_end().ends_with('.');
        let is_definition = index > 0 && words[index - 1].1 == "fn";
        if is_call && !is_method && !is_definition {
            calls.push(*at);
        }
    }
    calls
}

fn read_allowed(workspace: &Workspace) -> (BTreeMap<&str, usize>, Vec<Finding>) {
    let mut allowed = BTreeMap::new();
    let mut findings = Vec::new();
    let lines = workspace.file(SLEEP_ALLOWED).into_iter().flat_map(TextFile::lines);
    for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#')) {
        match text.trim().split_once(' ') {
            Some((path, reason)) if !reason.trim().is_empty() => {
                allowed.insert(path, line);
            }
            _ => findings.push(Finding::new(SLEEP_ALLOWED, line, "is not `path reason`")),
        }
    }
    (allowed, findings)
}

pub(super) fn commented_code(workspace: &Workspace) -> Vec<Finding> {
    const STARTS: &[&str] =
        &["let ", "use ", "fn ", "pub ", "return ", "self.", "assert", "if ", "for ", "match "];
    let is_code = |line: &str| {
        let Some(comment) = line.trim_start().strip_prefix("// ") else { return false };
        let comment = comment.trim();
        STARTS.iter().any(|start| comment.starts_with(start)) && comment.ends_with([';', '{'])
    };
    let mut findings = Vec::new();
    for file in workspace.rust() {
        for (line, _) in file.lines().filter(|(_, text)| is_code(text)) {
            findings.push(Finding::new(&file.path, line, "is code in a comment; delete it, git keeps it"));
        }
    }
    findings
}

/// Folders of single machines, split so that this file does not contain them.
const HOME_FOLDERS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

const CRATES_IO: &str = "https://github.com/rust-lang/crates.io-index";

/// Finds paths and hosts that exist only where they were written.
pub(super) fn places(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in workspace.files() {
        for (line, text) in file.lines() {
            let mut found = |message: String| findings.push(Finding::new(&file.path, line, message));
            for folder in HOME_FOLDERS.iter().filter(|folder| has_absolute(text, folder)) {
                found(format!(
                    "names a folder below {folder}, which others do not have; use a relative path"
                ));
            }
            for host in hosts(text).filter(|host| is_private(host)) {
                found(format!("names the host {host}; the project's text names public hosts only"));
            }
            if let Some(registry) = other_registry(text) {
                found(format!("takes packages from {registry}; only crates.io is allowed"));
            }
        }
    }
    findings
}

fn has_absolute(text: &str, folder: &str) -> bool {
    text.match_indices(folder).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + folder.len()..].chars().next();
        let is_inside = before.is_some_and(|c| c.is_alphanumeric() || "._-~*}/".contains(c));
        !is_inside && after.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.')
    })
}

/// Hosts of the addresses in a text, without port.
fn hosts(text: &str) -> impl Iterator<Item = &str> {
    text.split("://").skip(1).map(|rest| {
        let is_end = |c: char| c.is_whitespace() || "/?#\"'`<>(){}[],".contains(c);
        let authority = rest.split(is_end).next().unwrap_or(rest);
        let host = authority.rsplit('@').next().unwrap_or(authority);
        host.split(':').next().unwrap_or(host)
    })
}

fn is_private(host: &str) -> bool {
    let is_internal =
        ["internal", "corp", "lan", "local"].iter().any(|end| host.ends_with(&format!(".{end}")));
    let is_registry =
        ["artifactory", "nexus", "registry", "mirror", "proxy"].iter().any(|word| host.contains(word));
    is_internal || is_registry
}

/// The package source in a text, unless crates.io.
fn other_registry(text: &str) -> Option<&str> {
    let kind = ["\"registry+", "\"sparse+"].into_iter().find(|kind| text.contains(kind))?;
    let address = text.split(kind).nth(1)?.split('"').next()?;
    (address != CRATES_IO && address.contains("://")).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    fn lines(findings: Vec<Finding>) -> Vec<(String, usize)> {
        findings.into_iter().map(|finding| (finding.path, finding.line)).collect()
    }

    #[test]
    fn stubs_are_found_in_code_only() {
        let text =
            "// todo!()\nfn f() { todo!(\"x\") }\n#[ignore = \"slow\"]\nfn g() { dbg!(unimplemented!()) }";
        let found = lines(stubs(&Workspace::of(&[(PATH, text)])));
        let numbers: Vec<usize> = found.iter().map(|(_, line)| *line).collect();
        assert_eq!(numbers, [2, 4, 4, 3]);
        assert!(stubs(&Workspace::of(&[(PATH, "my_todo!(); let s = \"dbg!(\";")])).is_empty());
    }

    #[test]
    fn sleeping_needs_a_reason() {
        let text = "use tokio::time::sleep;\nasync fn f() {\n    sleep(TICK).await;\n    std::thread::sleep(TICK);\n}";
        assert_eq!(lines(sleeps(&Workspace::of(&[(PATH, text)]))), [(PATH.into(), 3), (PATH.into(), 4)]);
        let with = |list| lines(sleeps(&Workspace::of(&[(PATH, text), (SLEEP_ALLOWED, list)])));
        assert_eq!(with("# files\ncrates/a/src/lib.rs polls a process that tells nothing"), []);
        assert_eq!(with("crates/a/src/lib.rs").len(), 3);
        assert_eq!(with("crates/a/src/lib.rs so\ncrates/b/src/lib.rs so"), [(SLEEP_ALLOWED.into(), 2)]);
        let stale = Workspace::of(&[
            (PATH, "fn sleep(s: &S) { s.sleep() }"),
            (SLEEP_ALLOWED, "crates/a/src/lib.rs so"),
        ]);
        assert_eq!(lines(sleeps(&stale)), [(SLEEP_ALLOWED.into(), 1)]);
    }

    #[test]
    fn code_in_comments_is_told_from_prose() {
        let text = "// let x = 1;\n// if this fails, say so; use the other\n/// let x = 1;\n// for a while {";
        assert_eq!(
            lines(commented_code(&Workspace::of(&[(PATH, text)]))),
            [(PATH.into(), 1), (PATH.into(), 4)]
        );
    }

    #[test]
    fn homes_are_found() {
        for folder in HOME_FOLDERS {
            let text = format!("ok\nsee {folder}me/notes\n");
            assert_eq!(lines(places(&Workspace::of(&[("a.md", &text)]))), [("a.md".into(), 2)], "{folder}");
            let harmless = format!("docs{folder}me https://example.com{folder}me \"{folder}\"");
            assert!(places(&Workspace::of(&[("a.md", &harmless)])).is_empty(), "{folder}");
        }
    }

    #[test]
    fn private_hosts_are_found() {
        let found = |text: &str| places(&Workspace::of(&[("a.toml", text)])).len();
        assert_eq!(found("see https://docs.rs/bytes and http://127.0.0.1:7700"), 0);
        assert_eq!(found(&format!("source = \"registry+{CRATES_IO}\"")), 0);
        assert_eq!(found(concat!("https://me:word@builds.example.", "corp/x")), 1);
        assert_eq!(found(concat!("url = 'http:", "//crates-mirror.example.com:80/'")), 1);
        assert_eq!(found(concat!("source = \"sparse", "+https://example.com/index/\"")), 1);
    }
}
