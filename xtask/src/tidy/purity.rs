//! The deciding crates stay pure.

use super::Finding;
use super::dependencies::{dependencies, manifests};
use crate::workspace::{TextFile, Workspace};

/// Pure crates, by folder. Their `clippy.toml` files are equal.
pub(super) const PURE: &[&str] = &["model", "protocol", "delivery", "store", "host"];

/// External packages for pure crates: data structures and checksums.
const PURE_DEPENDENCIES: &[&str] = &["bytes", "crc32c", "rangemap", "thiserror"];

/// Additional packages for the store: names of disk errors.
const STORE_DEPENDENCIES: &[&str] = &["rustix"];

/// The only item of these packages that the store may use.
const ERRORS: &str = "rustix::io::Errno";

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rules = |name: &str| workspace.file(&format!("crates/{name}/clippy.toml")).map(|file| &file.text);
    for (name, manifest) in manifests(workspace).filter(|(name, _)| PURE.contains(name)) {
        let path = format!("crates/{name}/clippy.toml");
        match rules(name) {
            None => findings.push(Finding::new(&path, 1, "is missing; copy crates/model/clippy.toml")),
            Some(own) if Some(own) != rules(PURE[0]) => {
                let message = "differs from crates/model/clippy.toml; the pure crates share their rules";
                findings.push(Finding::new(&path, 1, message));
            }
            Some(_) => {}
        }
        for dependency in dependencies(manifest).iter().filter(|dependency| !dependency.only_for_tests) {
            let package = dependency.package.as_str();
            let is_known = package.starts_with("seriatim-")
                || PURE_DEPENDENCIES.contains(&package)
                || name == "store" && STORE_DEPENDENCIES.contains(&package);
            if !is_known {
                let message = format!(
                    "`{package}` is not known to be pure; if it touches no clock, file, socket, thread or \
                     randomness, add it to PURE_DEPENDENCIES in xtask/src/tidy/purity.rs"
                );
                findings.push(Finding::new(&manifest.path, dependency.line, message));
            }
        }
    }
    findings.extend(workspace.below("crates/store/src/").filter_map(beyond_errors));
    findings
}

fn beyond_errors(file: &TextFile) -> Option<Finding> {
    let uses = |line: &&str| line.replace(ERRORS, "").contains("rustix::");
    let line = file.text.lines().position(|line| uses(&line))?;
    let message = format!("the store decides: of rustix it names errors alone ({ERRORS})");
    Some(Finding::new(&file.path, line + 1, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "disallowed-types = []";

    fn with(store: &str, rules: &[(&str, &str)]) -> usize {
        let mut files = vec![("crates/model/Cargo.toml", ""), ("crates/store/Cargo.toml", store)];
        files.extend_from_slice(rules);
        check(&Workspace::of(&files)).len()
    }

    #[test]
    fn the_rules_are_there_and_the_same() {
        let same = [("crates/model/clippy.toml", RULES), ("crates/store/clippy.toml", RULES)];
        let other = [("crates/model/clippy.toml", RULES), ("crates/store/clippy.toml", "")];
        assert_eq!((with("", &same), with("", &other), with("", &same[..1]), with("", &[])), (0, 1, 1, 2));
    }

    #[test]
    fn the_store_asks_no_operating_system() {
        let with = |text| check(&Workspace::of(&[("crates/store/src/disk.rs", text)])).len();
        assert_eq!((with("use rustix::io::Errno;"), with("rustix::io::pwritev(file)")), (0, 1));
    }

    #[test]
    fn a_runtime_is_not_pure_but_may_test() {
        let same = [("crates/model/clippy.toml", RULES), ("crates/store/clippy.toml", RULES)];
        assert_eq!(with("[dependencies]\ntokio = \"1\"\nrustix = \"1\"", &same), 1);
        assert_eq!(with("[dev-dependencies]\ntempfile = \"3\"", &same), 0);
    }
}
