//! Stated invariants are asserted.

use super::Finding;
use super::only_tests;
use super::purity::PURE;
use crate::workspace::{TextFile, Workspace};

/// A file of a deciding crate that states an invariant asserts something outside of tests, or says
/// where. Readers judge whether it is the right assertion.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let tests = only_tests::files(workspace);
    let is_judged = |file: &&TextFile| {
        let below = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        below.is_some_and(|(name, _)| PURE.contains(&name)) && !tests.contains(&file.path)
    };
    workspace.rust().filter(is_judged).filter_map(unasserted).collect()
}

fn unasserted(file: &TextFile) -> Option<Finding> {
    let states = |text: &str| text.trim_start().starts_with("///") && text.contains("Invariant");
    let (line, text) = file.lines().find(|(_, text)| states(text))?;
    let asserts = only_tests::without(&file.code).match_indices("assert").any(|(at, _)| {
        let (before, after) = file.code.split_at(at);
        !before.ends_with("debug_")
            && ["assert!", "assert_eq!", "assert_ne!"].iter().any(|name| after.starts_with(name))
    });
    let message =
        "states an invariant that nothing in this file asserts; assert it where it could break first";
    (!asserts && !text.contains("asserted where")).then(|| Finding::new(&file.path, line, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stated_is_asserted() {
        let stated = "/// Invariant: `a < b`.\nstruct A;\n";
        let found =
            |path: &str, more: &str| check(&Workspace::of(&[(path, &format!("{stated}{more}"))])).len();
        const PATH: &str = "crates/store/src/a.rs";
        assert_eq!(found(PATH, ""), 1);
        assert_eq!(found(PATH, "fn f() { assert!(a < b) }"), 0);
        assert_eq!(found(PATH, "fn f() { debug_assert!(a < b) }"), 1, "a server would not look");
        assert_eq!(found(PATH, "#[cfg(test)]\nmod tests {\n    fn f() { assert!(a < b) }\n}"), 1);
        assert_eq!(found("crates/node/src/a.rs", ""), 0, "it decides nothing");
        let elsewhere = "/// Invariants, asserted where the attempt asks: …\ntrait A {}\n";
        assert_eq!(check(&Workspace::of(&[(PATH, elsewhere)])), []);
    }
}
