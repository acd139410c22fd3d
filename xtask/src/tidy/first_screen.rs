//! A stranger understands the first screen of the README without the glossary.

use super::Finding;
use crate::prose;
use crate::workspace::{TextFile, Workspace};

const README: &str = "README.md";
const GLOSSARY: &str = "docs/glossary.md";
/// The most lines above the second heading.
const LINES: usize = 60;
/// The terms that the first screen may use.
const KNOWN: &[&str] = &["log", "shard", "append", "position"];

/// Finds a first screen with more than [`LINES`] lines, and terms of the glossary in its text.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let Some(readme) = workspace.file(README) else { return vec![] };
    let end = readme.text.find("\n## ").map_or(readme.text.len(), |end| end + 1);
    let screen = TextFile::new(README.into(), readme.text[..end].to_owned());
    let mut findings = vec![];
    let lines = screen.text.lines().count();
    if lines > LINES {
        let message = format!("has {lines} lines above its second heading, more than {LINES}");
        findings.push(Finding::new(README, 1, message));
    }
    let text = format!(" {} ", prose::words(&prose::page(&screen)).join(" "));
    let glossary = workspace.file(GLOSSARY).map_or("", |file| file.text.as_str());
    let terms = glossary.lines().filter_map(|line| Some(line.strip_prefix("- **")?.split_once("**")?.0));
    for term in terms.map(str::to_lowercase).filter(|term| !KNOWN.contains(&term.as_str())) {
        if text.contains(&format!(" {term} ")) || text.contains(&format!(" {term}s ")) {
            let message = format!("uses `{term}` above its second heading, a term of the glossary");
            findings.push(Finding::new(README, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_first_screen_and_a_term_are_found() {
        let found = |readme: &str| {
            let files = [(README, readme), (GLOSSARY, "- **fence**: F.\n- **log**: L.\n")];
            check(&Workspace::of(&files)).into_iter().map(|finding| finding.message).collect::<Vec<_>>()
        };
        assert!(found("# A log\n\nLogs.\n```\nfence\n```\n`fence`\n\n## More\nA fence.\n").is_empty());
        assert!(matches!(&found("# A\nTwo fences.\n\n## B\n")[..], [one] if one.contains("`fence`")));
        let long = format!("# A\n{}## B\n", "line\n".repeat(60));
        assert!(matches!(&found(&long)[..], [one] if one.contains("61 lines")));
    }
}
