//! Orderings stay apart from one another.

use std::collections::BTreeSet;

use super::Finding;
use crate::source::{line_of, words};
use crate::workspace::{TextFile, Workspace};

pub(super) const ROOT: &str = "crates/protocol/src/";

/// Folders that orderings share. They know no ordering.
const SHARED: &[&str] = &["parts", "shard", "control"];

/// Modules that orderings may use and that may name orderings: messages, and deliberate defects.
const ENVELOPES: &[&str] = &["roles", "mutation"];

pub(super) fn imports(workspace: &Workspace) -> Vec<Finding> {
    let orderings: BTreeSet<&str> =
        workspace.below(ROOT).filter_map(folder).filter(|name| !SHARED.contains(name)).collect();
    let mut findings = Vec::new();
    for file in workspace.below(ROOT).filter(|file| file.path.ends_with(".rs")) {
        let Some(own) = folder(file).or_else(|| module_file(file, &orderings)) else { continue };
        for (name, at) in named_modules(&file.code) {
            let is_allowed = match SHARED.contains(&own) {
                true => !orderings.contains(name.as_str()),
                false => name == own || SHARED.contains(&name.as_str()) || ENVELOPES.contains(&name.as_str()),
            };
            if !is_allowed {
                let message = format!(
                    "`{own}` may not use `{name}` of this crate, only itself, {}; move what both need to parts",
                    SHARED.join(", ")
                );
                findings.push(Finding::new(&file.path, line_of(&file.code, at), message));
            }
        }
        for at in detours(&file.code, &orderings, own) {
            let message = format!("`{own}` may not name another ordering; move what both need to parts");
            findings.push(Finding::new(&file.path, line_of(&file.code, at), message));
        }
    }
    findings
}

fn folder(file: &TextFile) -> Option<&str> {
    file.path.strip_prefix(ROOT)?.split_once('/').map(|(folder, _)| folder)
}

/// The folder of a file at the crate's root with the same name.
fn module_file<'a>(file: &'a TextFile, orderings: &BTreeSet<&str>) -> Option<&'a str> {
    let name = file.path.strip_prefix(ROOT)?.strip_suffix(".rs")?;
    (orderings.contains(name) || SHARED.contains(&name)).then_some(name)
}

/// Names after `crate::`, in groups too, with their bytes.
pub(super) fn named_modules(code: &str) -> Vec<(String, usize)> {
    let mut named = Vec::new();
    for (at, _) in words(code).into_iter().filter(|(_, word)| matches!(*word, "crate" | "seriatim_protocol"))
    {
        let after = at + words(&code[at..])[0].1.len();
        let rest = &code[after..];
        let Some(path) = rest.trim_start().strip_prefix("::") else { continue };
        let start = code.len() - path.len();
        match path.trim_start().chars().next() {
            Some('{') => named.extend(group(code, start)),
            Some('*') => named.push(("*".into(), start)),
            _ => named.extend(words(path).first().map(|(offset, word)| ((*word).into(), start + offset))),
        }
    }
    named
}

/// First name of each member of the first group at or after `from`.
pub(super) fn group(code: &str, from: usize) -> Vec<(String, usize)> {
    let mut members = Vec::new();
    let mut depth = 0;
    let mut expects_name = false;
    for (offset, c) in code[from..].char_indices() {
        let at = from + offset;
        match c {
            '{' => {
                depth += 1;
                expects_name = depth == 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            ',' if depth == 1 => expects_name = true,
            _ if c.is_whitespace() => {}
            _ if expects_name && depth == 1 => {
                let word = words(&code[at..]).first().filter(|(start, _)| *start == 0).map(|(_, word)| *word);
                members.push((word.map_or_else(|| c.to_string(), str::to_owned), at));
                expects_name = false;
            }
            _ => {}
        }
    }
    members
}

/// Where `super::` names another ordering, or `Message::` its variant.
fn detours(code: &str, orderings: &BTreeSet<&str>, own: &str) -> Vec<usize> {
    let words = words(code);
    let detours = |pair: &[(usize, &str)]| {
        let [(at, word), (name_at, name)] = *pair else { return None };
        let other = match word {
            "super" => name.to_owned(),
            "Message" => snake_case(name),
            _ => return None,
        };
        let between = code[at + word.len()..name_at].trim();
        (between == "::" && other != own && orderings.contains(other.as_str())).then_some(at)
    };
    words.windows(2).filter_map(detours).collect()
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(erwin: &str) -> Vec<usize> {
        let files = [
            ("crates/protocol/src/lib.rs", "pub mod corfu; pub use crate::corfu::Sequencer;"),
            ("crates/protocol/src/erwin/leader.rs", erwin),
            ("crates/protocol/src/corfu/mod.rs", "use crate::parts::seal;"),
            ("crates/protocol/src/parts/mod.rs", ""),
        ];
        imports(&Workspace::of(&files)).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_ordering_uses_shared_folders_and_itself() {
        let code = "use crate::parts::{seal, window};\nuse crate::{control, erwin::message, shard::{Push, Ack}};\n\
                    use super::message::Append;\nuse seriatim_model::View;\npub(crate) fn f() {}\n\
                    // crate::corfu\nconst C: &str = \"crate::corfu\";";
        assert_eq!(found(code), [0; 0]);
    }

    #[test]
    fn another_ordering_is_found() {
        assert_eq!(found("\nuse crate::corfu::Token;"), [2]);
        assert_eq!(found("use crate::{\n    parts::seal,\n    corfu::{self, parts},\n};"), [3]);
        assert_eq!(found("\n\nuse super::super::corfu;"), [3]);
        assert_eq!(found("fn f(t: crate :: corfu::Token) {}"), [1]);
        assert_eq!(found("fn f(m: Message) { if let Message::Corfu(_) = m {} }"), [1]);
        assert_eq!(found("use crate::*;"), [1]);
        assert_eq!(found("use crate::Order;"), [1]);
    }

    #[test]
    fn shared_folders_know_no_ordering() {
        let files = [
            ("crates/protocol/src/erwin/mod.rs", ""),
            ("crates/protocol/src/parts/seal.rs", "use crate::{erwin, roles::Message};"),
            ("crates/protocol/src/shard.rs", "use super::erwin;"),
        ];
        assert_eq!(imports(&Workspace::of(&files)).len(), 2);
    }
}
