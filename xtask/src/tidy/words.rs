//! Names that state the purpose of a function.

use super::Finding;
use crate::source::line_of;
use crate::workspace::Workspace;

/// Finds functions that are named like a question and change something.
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
    fn a_question_changes_nothing() {
        let text = "fn is_a(&self) {}\nfn is_b(&mut self) {}\nfn has_c(\n    &mut self,\n    d: u8,\n) {}\nfn island(&mut self) {}\nfn is_e(f: &mut F) {}\n";
        assert_eq!(lines(questions(&Workspace::of(&[(PATH, text)]))), [2, 3]);
    }
}
