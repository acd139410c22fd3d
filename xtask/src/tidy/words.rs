//! How sentences and names say who acts.

use super::Finding;
use crate::source::line_of;
use crate::workspace::{TextFile, Workspace};

/// Words that hide the acting role at the beginning of a comment.
const HIDES_ITS_ROLE: &[&str] = &["Who", "Whoever", "Whom", "Whose", "What", "Whatever", "Those"];

/// Finds comments that begin with a pronoun in place of the role that acts, or of the thing that is meant.
pub(super) fn comments(workspace: &Workspace) -> Vec<Finding> {
    let message = "begins with a pronoun; begin with the role that acts, or with the thing that is meant";
    let findings = |file: &TextFile| -> Vec<Finding> {
        let begun = file.lines().zip(file.code.lines()).scan(false, |was_comment, ((line, text), code)| {
            let comment = comment(text, code);
            // A paragraph of a comment begins like one.
            let is_first = !std::mem::replace(was_comment, comment.is_some_and(|text| !text.is_empty()));
            Some((line, comment.filter(|_| is_first)))
        });
        let hides = |(line, comment): (usize, Option<&str>)| {
            let word = comment?.split(|c: char| !c.is_alphabetic()).next()?;
            HIDES_ITS_ROLE.contains(&word).then(|| Finding::new(&file.path, line, message))
        };
        begun.filter_map(hides).collect()
    };
    workspace.rust().flat_map(findings).collect()
}

/// The text of a line that is a comment and nothing else.
fn comment<'a>(text: &'a str, code: &str) -> Option<&'a str> {
    if !code.trim().is_empty() {
        return None;
    }
    let text = text.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

/// Finds functions whose name says that they tell how something is, and that change it.
pub(super) fn questions(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in workspace.rust() {
        for (at, _) in file.code.match_indices("fn ") {
            let rest = &file.code[at + 3..];
            let Some((name, parameters)) = rest.split_once('(') else { continue };
            let name = name.split('<').next().unwrap_or(name);
            let asks = ["is_", "are_", "has_", "can_"].iter().any(|prefix| name.starts_with(prefix));
            let changes = parameters
                .trim_start()
                .strip_prefix("&mut self")
                .is_some_and(|rest| rest.starts_with([',', ')']));
            if asks && changes {
                let message =
                    format!("`{name}` changes what it asks about: name it for what it does, or take `&self`");
                findings.push(Finding::new(&file.path, line_of(&file.code, at), message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    fn lines(findings: Vec<Finding>) -> Vec<usize> {
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_comment_begins_with_the_role() {
        let text = "//! What it is.\n\n/// The leader. Goes to\n/// Who asked.\nfn f() {} // Who cares\n\n    // Whoever asks\n/// Whole.\n";
        assert_eq!(lines(comments(&Workspace::of(&[(PATH, text)]))), [1, 7]);
        let text = "/// The leader.\n///\n/// What it does.\n";
        assert_eq!(lines(comments(&Workspace::of(&[(PATH, text)]))), [3]);
    }

    #[test]
    fn a_question_changes_nothing() {
        let text = "fn is_a(&self) {}\nfn is_b(&mut self) {}\nfn has_c(\n    &mut self,\n    d: u8,\n) {}\nfn island(&mut self) {}\nfn is_e(f: &mut F) {}\n";
        assert_eq!(lines(questions(&Workspace::of(&[(PATH, text)]))), [2, 3]);
    }
}
