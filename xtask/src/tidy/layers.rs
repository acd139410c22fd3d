//! The protocol crate's folders lie in layers. None imports from a layer above it.

use std::collections::BTreeSet;

use super::protocols::{ROOT, group, named_modules};
use super::{Finding, only_tests};
use crate::source::{line_of, words};
use crate::workspace::{TextFile, Workspace};

/// Layers that orderings share, the lowest first. Above them are the folders of the orderings, then
/// the crate's root files: the enum of all messages, and the constructors.
pub(super) const SHARED: &[&str] = &["mutation", "parts", "shard", "control"];

/// Items of `roles` that every layer may name. One enum has a variant for each folder's messages,
/// so that a frame has one decoder, and each folder wraps its messages in it. So all layers name
/// the enum, its inputs and effects, and the contract of an ordering role.
const ENVELOPE: &[&str] =
    &["Family", "Message", "RoleEffect", "RoleInput", "SequencingRole", "SequencingStatus"];

/// Each folder's module of messages, which every layer may name.
const MESSAGES: &str = "message";

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let tests = only_tests::files(workspace);
    let orderings = orderings(workspace);
    let mut findings = vec![];
    for file in workspace.below(ROOT).filter(|file| file.path.ends_with(".rs") && !tests.contains(&file.path))
    {
        let Some(below) = file.path.strip_prefix(ROOT) else { continue };
        let own = below.split('/').next().unwrap_or(below).trim_end_matches(".rs");
        if own == "lib" {
            continue;
        }
        let upward = upward(file, own, &orderings).into_iter();
        findings.extend(upward.map(|(module, line)| {
            let message = format!(
                "names `{module}`, which is above it: move what both need down, or give it as an argument"
            );
            Finding::new(&file.path, line, message)
        }));
    }
    findings
}

pub(super) fn orderings(workspace: &Workspace) -> BTreeSet<&str> {
    let folders = workspace.below(ROOT).filter_map(|file| file.path.strip_prefix(ROOT)?.split_once('/'));
    folders.map(|(folder, _)| folder).filter(|folder| !SHARED.contains(folder)).collect()
}

fn height(module: &str, orderings: &BTreeSet<&str>) -> usize {
    let shared = SHARED.iter().position(|shared| *shared == module);
    shared.unwrap_or(SHARED.len() + usize::from(!orderings.contains(module)))
}

/// Names of higher modules in a file's code, or of items of `roles` outside of `ENVELOPE`, with
/// lines.
fn upward(file: &TextFile, own: &str, orderings: &BTreeSet<&str>) -> Vec<(String, usize)> {
    let code = only_tests::without(&file.code);
    let height = |module: &str| height(module, orderings);
    let named = named_modules(code)
        .into_iter()
        .chain(climbed(file))
        .map(|(name, at)| (defining(&name).to_owned(), at));
    let travels = |at: usize, name: &str| {
        let path = code[at..].strip_prefix(name).and_then(|path| path.trim_start().strip_prefix("::"));
        path.is_some_and(|path| words(path).first().is_some_and(|(_, word)| *word == MESSAGES))
    };
    let above =
        named.filter(|(name, at)| height(name) > height(own) && name != "roles" && !travels(*at, name));
    let of_roles = roles_items(code).into_iter().filter(|(item, _)| !ENVELOPE.contains(&item.as_str()));
    let of_roles =
        of_roles.filter(|_| height("roles") > height(own)).map(|(item, at)| (format!("roles::{item}"), at));
    above.chain(of_roles).map(|(name, at)| (name, line_of(code, at))).collect()
}

/// Modules that a file reaches by the `super::` that lead to the crate's root.
fn climbed(file: &TextFile) -> Vec<(String, usize)> {
    let below = file.path.strip_prefix(ROOT).unwrap_or(&file.path);
    let depth = below.trim_end_matches("/mod.rs").split('/').count();
    let words = words(only_tests::without(&file.code));
    let is_super = |at: &usize| words[*at].1 == "super";
    let starts = (0..words.len()).filter(|at| is_super(at) && (*at == 0 || !is_super(&(at - 1))));
    let climbed = starts.filter(|at| (*at..words.len()).take_while(is_super).count() == depth);
    climbed.filter_map(|at| words.get(at + depth)).map(|(at, name)| ((*name).to_owned(), *at)).collect()
}

/// The module of a name that the crate's root re-exports.
fn defining(name: &str) -> &str {
    match name {
        "Mutation" | "Options" => "mutation",
        "LogClient" => "client",
        "Message" => "roles",
        other => other,
    }
}

fn roles_items(code: &str) -> Vec<(String, usize)> {
    let mut items = Vec::new();
    for (at, _) in words(code).into_iter().filter(|(_, word)| *word == "roles") {
        let Some(path) = code[at + "roles".len()..].trim_start().strip_prefix("::") else { continue };
        let start = code.len() - path.len();
        match path.trim_start().chars().next() {
            Some('{') => items.extend(group(code, start).into_iter().filter(|(name, _)| name != "self")),
            Some('*') => items.push(("*".into(), start)),
            _ => items.extend(words(path).first().map(|(_, word)| ((*word).to_owned(), start))),
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, code: &str) -> Vec<String> {
        let others = ["crates/protocol/src/cuts/sequencer.rs", "crates/protocol/src/corfu/sequencer.rs"];
        let files = [(others[0], ""), (others[1], ""), (path, code)];
        check(&Workspace::of(&files)).iter().map(ToString::to_string).collect()
    }

    const PARTS: &str = "crates/protocol/src/parts/gate.rs";

    #[test]
    fn nothing_is_imported_from_above() {
        for (path, code, count) in [
            (PARTS, "use crate::control::LogEntry;", 1),
            (PARTS, "use crate::{control, shard::Held};", 2),
            (PARTS, "fn f() { crate::corfu::f(); }", 1),
            (PARTS, "fn f() -> crate::LogClient {}", 1),
            (PARTS, "use super::super::control::LogEntry;", 1),
            (PARTS, "use super::control::LogEntry;", 0),
            ("crates/protocol/src/parts/mod.rs", "use super::control::LogEntry;", 1),
            (PARTS, "use crate::control::message::{Message, NEWS};", 0),
            (PARTS, "use crate::control::messages::Message;", 1),
            (PARTS, "use crate::{control, control::message};", 1),
            ("crates/protocol/src/shard/core.rs", "use crate::control::behind;", 1),
            ("crates/protocol/src/corfu/mod.rs", "use crate::constructors::new;", 1),
            ("crates/protocol/src/control/mod.rs", "use crate::shard::Held;", 0),
            ("crates/protocol/src/cuts/mod.rs", "use crate::{control, parts::Gate, shard};", 0),
            ("crates/protocol/src/client.rs", "use crate::{corfu, roles};", 0),
            ("crates/protocol/src/lib.rs", "pub use crate::client::LogClient;", 0),
            (PARTS, "use crate::mutation::Options; use crate::Options;", 0),
        ] {
            assert_eq!(found(path, code).len(), count, "{path}: {code}");
        }
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::corfu;\n}";
        assert_eq!(found(PARTS, tests), [""; 0]);
    }

    #[test]
    fn of_the_roles_everybody_names_what_travels() {
        let envelope = "use crate::roles::{self, RoleEffect};\nfn f(m: roles::Message) -> crate::Message {}";
        assert_eq!(found(PARTS, envelope), [""; 0]);
        for code in [
            "fn f() { crate::roles::new_sequencing_role(); }",
            "use crate::roles;\nfn f() { roles::recover(); }",
            "use crate::roles::{Message, recover};",
            "use crate::roles::*;",
        ] {
            assert_eq!(found(PARTS, code).len(), 1, "{code}");
        }
    }
}
