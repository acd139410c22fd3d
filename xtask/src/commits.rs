//! The form of a commit subject: an area, then the new state, in at most 72 characters.

use std::path::Path;
use std::process::Command;

/// Lists of commits show no more of a subject.
const SUBJECT: usize = 72;

/// The rule holds for commits since this file.
const SINCE: &str = "xtask/src/commits.rs";

/// The problem of a subject, if any. A merge needs no area.
#[must_use]
pub fn problem(subject: &str, is_merge: bool) -> Option<String> {
    let length = subject.chars().count();
    if length > SUBJECT {
        return Some(format!("{length} characters, more than {SUBJECT}"));
    }
    if is_merge {
        return None;
    }
    let Some((area, text)) = subject.split_once(": ") else {
        return Some("no area before it, as in `shard: a replica says what it holds`".into());
    };
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/, ".contains(c);
    if area.is_empty() || !area.chars().all(is_area) {
        return Some(format!("`{area}` is no area: small letters, as in `shard: …` or `host, node: …`"));
    }
    let first = text.split_whitespace().next().unwrap_or_default();
    let mut letters = first.chars();
    let is_capital = letters.next().is_some_and(char::is_uppercase);
    // Names in code, signals and abbreviations keep their capitals.
    let is_name = letters.any(char::is_uppercase) || first.contains("::");
    if first.is_empty() || (is_capital && !is_name) {
        return Some("begins with a capital; it goes on from its area, in small letters".into());
    }
    text.ends_with('.').then(|| "ends with a full stop".into())
}

/// Number of commits since `base` (by default since the rule), and the problem of each wrong
/// subject.
///
/// # Errors
/// If git fails, or the history is too short.
pub fn check(root: &Path, base: Option<&str>) -> Result<(usize, Vec<String>), String> {
    let base = match base {
        Some(base) => base.to_owned(),
        None => {
            let added = git(root, &["log", "--diff-filter=A", "--format=%H", "--", SINCE])?;
            added.lines().last().ok_or("the history does not reach back to where the rule begins")?.to_owned()
        }
    };
    let listed = git(root, &["log", "--format=%h\t%p\t%s", &format!("{base}..HEAD")])?;
    let mut problems = Vec::new();
    for line in listed.lines() {
        let mut parts = line.splitn(3, '\t');
        let (Some(commit), Some(parents), Some(subject)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(format!("git says `{line}`"));
        };
        if let Some(problem) = problem(subject, parents.contains(' ')) {
            problems.push(format!("{commit} `{subject}`: {problem}"));
        }
    }
    Ok((listed.lines().count(), problems))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output();
    let output = output.map_err(|error| format!("git does not run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_an_area_and_is_short() {
        for subject in [
            "shard: a replica says what it holds",
            "host, node: a claim is not told of as a view",
            "protocol/shard: the acting role begins each comment",
            "sim: EndedByOne is in the list",
            "model: `Order::ALL` is the list of orderings",
            "rig: SIGKILL ends a node in its start",
        ] {
            assert_eq!(problem(subject, false), None, "{subject}");
        }
        for (subject, expected) in [
            ("A start that finds no room", "no area"),
            ("Shard: a replica", "is no area"),
            (": a replica", "is no area"),
            ("shard: A replica says what it holds", "capital"),
            ("shard: a replica says what it holds.", "full stop"),
            ("shard:  ", "capital"),
        ] {
            let found = problem(subject, false).unwrap_or_default();
            assert!(found.contains(expected), "{subject}: {found}");
        }
        let long = format!("shard: {}", "é".repeat(65));
        assert_eq!(problem(&long, false), None);
        assert!(problem(&format!("{long}é"), false).unwrap_or_default().contains("73 characters"));
    }

    #[test]
    fn a_merge_needs_no_area() {
        assert_eq!(problem("Merge branch 'house-b' into merge-x", true), None);
        assert!(problem("Merge branch 'house-b' into merge-x", false).is_some());
        assert!(problem(&"m".repeat(73), true).is_some());
    }

    #[test]
    fn a_folder_without_history_has_a_reason() {
        let nowhere = Path::new("/nowhere");
        assert!(check(nowhere, None).is_err());
    }
}
