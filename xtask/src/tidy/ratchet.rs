//! Lists of exceptions to a limit, each with a number that may only fall.

use std::collections::BTreeMap;

use super::Finding;
use crate::workspace::Workspace;

pub(super) struct Entry {
    /// Its line in the list's file, from 1.
    pub(super) line: usize,
    pub(super) limit: usize,
}

/// Reads lines `key number`; `#` begins a comment. An invalid line is a finding, which shows
/// `form`.
pub(super) fn read(workspace: &Workspace, path: &str, form: &str) -> (BTreeMap<String, Entry>, Vec<Finding>) {
    let mut entries = BTreeMap::new();
    let mut findings = Vec::new();
    let Some(file) = workspace.file(path) else { return (entries, findings) };
    for (line, text) in file.lines().filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#')) {
        let parsed = text.rsplit_once(' ').and_then(|(key, limit)| Some((key.trim(), limit.parse().ok()?)));
        match parsed {
            None => findings.push(Finding::new(path, line, format!("is not {form}"))),
            Some((key, limit)) => {
                if entries.insert(key.to_owned(), Entry { line, limit }).is_some() {
                    findings.push(Finding::new(path, line, format!("`{key}` is listed twice")));
                }
            }
        }
    }
    (entries, findings)
}

/// Findings for entries that match nothing.
pub(super) fn left_over(path: &str, entries: BTreeMap<String, Entry>) -> impl Iterator<Item = Finding> {
    entries.into_iter().map(move |(key, entry)| {
        Finding::new(path, entry.line, format!("`{key}` does not exist any more; remove the line"))
    })
}
