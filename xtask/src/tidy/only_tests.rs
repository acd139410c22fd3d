//! Code that is compiled for tests only.

use std::collections::BTreeSet;

use crate::workspace::Workspace;

/// Files of modules that are compiled for tests only.
pub(super) fn files(workspace: &Workspace) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for file in workspace.rust() {
        let folder = match file.path.rsplit_once('/') {
            Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder,
            _ => file.path.trim_end_matches(".rs"),
        };
        for declared in file.code.split("#[cfg(test)]").skip(1) {
            let module = declared.trim_start().strip_prefix("mod ").and_then(|rest| rest.split_once(';'));
            files.extend(module.map(|(name, _)| format!("{folder}/{}.rs", name.trim())));
        }
    }
    files
}

/// The code of a file without the tests at its end.
pub(super) fn without(code: &str) -> &str {
    let is_tests =
        |at: usize| code[at..].trim_start_matches("#[cfg(test)]").trim_start().starts_with("mod tests {");
    let end = code.match_indices("#[cfg(test)]").map(|(at, _)| at).find(|at| is_tests(*at));
    &code[..end.unwrap_or(code.len())]
}
