//! Allowed dependencies of each crate, and reasons for external ones.

use std::collections::BTreeSet;

use super::Finding;
use crate::workspace::{TextFile, Workspace};

/// Our folders below `crates/`, and the crates that each may depend on. In the order of the layers:
/// a crate names only crates above it.
pub(super) const TABLE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("protocol", &["model"]),
    ("delivery", &["model", "protocol"]),
    ("store", &["model"]),
    ("net", &["model"]),
    ("host", &["model", "protocol", "store"]),
    ("client", &["model", "protocol", "delivery", "net"]),
    ("etcd", &[]),
    ("node", &["model", "protocol", "delivery", "store", "net", "host", "client", "etcd"]),
    ("sim", &["model", "protocol", "delivery", "store", "host"]),
    ("target", &[]),
    ("player", &["model", "protocol", "delivery", "client", "target"]),
    ("bench", &["model", "protocol", "net", "client", "node", "player", "target"]),
    ("seriatim", &["model", "store", "client", "node", "player", "bench"]),
];

/// Additional crates for tests and examples.
const FOR_TESTS: &[(&str, &[&str])] =
    &[("client", &["node"]), ("player", &["node"]), ("seriatim", &["sim", "etcd", "target"])];

pub(super) fn table(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, file) in manifests(workspace) {
        let Some((_, allowed)) = TABLE.iter().find(|(row, _)| *row == name) else {
            let message =
                format!("crate `{name}` is in no row of TABLE in xtask/src/tidy/dependencies.rs; add it");
            findings.push(Finding::new(&file.path, 1, message));
            continue;
        };
        let for_tests = FOR_TESTS.iter().find(|(row, _)| *row == name).map_or(&[][..], |(_, more)| more);
        for dependency in dependencies(file) {
            let Some(ours) = our_folder(&dependency.package) else { continue };
            let in_tests = dependency.only_for_tests && (for_tests.contains(&ours) || ours == name);
            if !allowed.contains(&ours) && !in_tests {
                let message = format!(
                    "`{name}` may not depend on `{ours}`, only on: {}; move what it needs down, or change TABLE in \
                     xtask/src/tidy/dependencies.rs and ARCHITECTURE.md and say why in docs/decisions",
                    join(allowed)
                );
                findings.push(Finding::new(&file.path, dependency.line, message));
            }
        }
    }
    findings
}

pub(super) fn architecture(workspace: &Workspace) -> Vec<Finding> {
    const PATH: &str = "ARCHITECTURE.md";
    let Some(file) = workspace.file(PATH) else {
        let message = format!("is missing; it holds the table of dependencies:\n{}", rows().join("\n"));
        return vec![Finding::new(PATH, 1, message)];
    };
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let missing = |row: &String| !lines.contains(&row.as_str());
    let message =
        |row: String| Finding::new(PATH, 1, format!("lacks this row of the table of dependencies: {row}"));
    rows().into_iter().filter(missing).map(message).collect()
}

fn rows() -> Vec<String> {
    let row = |(name, allowed): &(&str, &[&str])| match FOR_TESTS.iter().find(|(row, _)| row == name) {
        Some((_, more)) => format!("| {name} | {} (tests also {}) |", join(allowed), join(more)),
        None => format!("| {name} | {} |", join(allowed)),
    };
    TABLE.iter().map(row).collect()
}

fn join(names: &[&str]) -> String {
    if names.is_empty() { "–".into() } else { names.join(", ") }
}

/// Each external dependency needs a row in the list of reasons.
pub(super) fn reasons(workspace: &Workspace) -> Vec<Finding> {
    const PATH: &str = "docs/decisions/dependencies.md";
    let Some(list) = workspace.file(PATH) else {
        return vec![Finding::new(PATH, 1, "is missing; it holds a line for each dependency")];
    };
    let explained: BTreeSet<&str> = list.text.lines().filter_map(explained_crate).collect();
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for file in workspace.files().iter().filter(|file| is_manifest(&file.path)) {
        for dependency in dependencies(file) {
            let package = dependency.package;
            if our_folder(&package).is_some()
                || explained.contains(package.as_str())
                || !seen.insert(package.clone())
            {
                continue;
            }
            let message =
                format!("`{package}` has no line in {PATH}: what for, who keeps it, what else there was");
            findings.push(Finding::new(&file.path, dependency.line, message));
        }
    }
    findings
}

/// The crate of a row `| name | …`, with or without backquotes.
fn explained_crate(line: &str) -> Option<&str> {
    let cell = line.strip_prefix('|')?.split('|').next()?;
    Some(cell.trim().trim_matches('`'))
}

pub(super) fn lints(workspace: &Workspace) -> Vec<Finding> {
    let inherits = |file: &&TextFile| {
        let lints = parse(file).ok()?.get("lints")?.get("workspace")?.as_bool()?;
        Some(lints)
    };
    let members =
        workspace.files().iter().filter(|file| is_manifest(&file.path) && file.path != "Cargo.toml");
    members
        .filter(|file| inherits(file) != Some(true))
        .map(|file| {
            Finding::new(
                &file.path,
                1,
                "takes no part in the workspace's lints; add [lints] workspace = true",
            )
        })
        .collect()
}

fn is_manifest(path: &str) -> bool {
    path == "Cargo.toml" || path.ends_with("/Cargo.toml")
}

pub(super) fn manifests(workspace: &Workspace) -> impl Iterator<Item = (&str, &TextFile)> {
    workspace.below("crates/").filter_map(|file| {
        let name = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        Some((name, file))
    })
}

pub(super) struct Dependency {
    pub(super) package: String,
    pub(super) only_for_tests: bool,
    /// Line in the manifest, from 1.
    pub(super) line: usize,
}

/// All dependencies of a manifest, also of the workspace, the build and single targets.
pub(super) fn dependencies(file: &TextFile) -> Vec<Dependency> {
    let Ok(manifest) = parse(file) else { return Vec::new() };
    let mut found = Vec::new();
    let mut tables = vec![&manifest];
    tables.extend(manifest.get("workspace").and_then(toml::Value::as_table));
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    for table in tables {
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let Some(entries) = table.get(section).and_then(toml::Value::as_table) else { continue };
            for (key, value) in entries {
                let renamed = value.get("package").and_then(toml::Value::as_str);
                found.push(Dependency {
                    package: renamed.unwrap_or(key).into(),
                    only_for_tests: section == "dev-dependencies",
                    line: line_of_key(file, key),
                });
            }
        }
    }
    found
}

fn parse(file: &TextFile) -> Result<toml::Table, toml::de::Error> {
    file.text.parse()
}

fn line_of_key(file: &TextFile, key: &str) -> usize {
    let starts = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    file.lines().find(|(_, line)| starts(line)).map_or(1, |(number, _)| number)
}

fn our_folder(package: &str) -> Option<&str> {
    match package {
        "seriatim" => Some(package),
        _ => package.strip_prefix("seriatim-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "[dependencies]\nbytes.workspace = true\n";

    #[test]
    fn the_table_is_layered() {
        for (index, (_, allowed)) in TABLE.iter().enumerate() {
            for name in *allowed {
                assert!(TABLE[..index].iter().any(|(row, _)| row == name), "{name} stands below");
            }
        }
    }

    #[test]
    fn a_forbidden_dependency_is_found_where_it_stands() {
        let store = "[dependencies]\nseriatim-model.workspace = true\nseriatim-net = { path = \"../net\" }\n";
        let found =
            table(&Workspace::of(&[("crates/model/Cargo.toml", MODEL), ("crates/store/Cargo.toml", store)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].path.as_str(), found[0].line), ("crates/store/Cargo.toml", 3));
    }

    #[test]
    fn renaming_and_targets_hide_nothing() {
        let store =
            "[target.'cfg(unix)'.dependencies]\nn = { package = \"seriatim-net\", path = \"../net\" }\n";
        assert_eq!(table(&Workspace::of(&[("crates/store/Cargo.toml", store)])).len(), 1);
    }

    #[test]
    fn only_tests_of_the_binary_use_the_simulator() {
        let tests = "[dev-dependencies]\nseriatim-sim.workspace = true\n";
        let binary = "[dependencies]\nseriatim-sim.workspace = true\n";
        let with = |manifest| table(&Workspace::of(&[("crates/seriatim/Cargo.toml", manifest)])).len();
        assert_eq!((with(tests), with(binary)), (0, 1));
    }

    #[test]
    fn an_unknown_crate_is_found() {
        assert_eq!(table(&Workspace::of(&[("crates/util/Cargo.toml", MODEL)])).len(), 1);
    }

    #[test]
    fn a_dependency_needs_its_line() {
        let with = |list| {
            let files = [("crates/model/Cargo.toml", MODEL), ("docs/decisions/dependencies.md", list)];
            reasons(&Workspace::of(&files)).len()
        };
        assert_eq!((with("| `bytes` | buffers | tokio |"), with("bytes are used")), (0, 1));
    }

    #[test]
    fn the_document_has_every_row() {
        let text = rows().join("\n");
        assert!(architecture(&Workspace::of(&[("ARCHITECTURE.md", &text)])).is_empty());
        let less = text.replace("| model | – |", "");
        assert_eq!(architecture(&Workspace::of(&[("ARCHITECTURE.md", &less)])).len(), 1);
    }

    #[test]
    fn lints_are_inherited() {
        let with = |text| lints(&Workspace::of(&[("crates/model/Cargo.toml", text)])).len();
        assert_eq!((with(MODEL), with("[lints]\nworkspace = true\n")), (1, 0));
    }
}
