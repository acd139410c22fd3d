//! Checks by reading. Each lists problems, their places, and remedies.

mod dependencies;
mod documents;
mod first_screen;
mod impls;
mod invariants;
mod layers;
mod only_tests;
mod orderings;
mod plain;
mod protocols;
mod purity;
mod ratchet;
mod sizes;
mod strings;
mod words;

use std::fmt;

use crate::workspace::Workspace;

pub use plain::{LIMITS as PROSE_LIMITS, lowered as lowered_limits};

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File below the root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem and its remedy.
    pub message: String,
}

impl Finding {
    fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// A check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name, and that of its test.
    pub name: &'static str,
    /// The rule.
    pub about: &'static str,
    /// Lists violations.
    pub run: fn(&Workspace) -> Vec<Finding>,
}

/// All checks. `xtask/tests/tidy.rs` has a test of each name.
pub const CHECKS: &[Check] = &[
    Check {
        name: "dependency_table",
        about: "a crate depends only on those of our crates that xtask's table allows",
        run: dependencies::table,
    },
    Check {
        name: "architecture",
        about: "ARCHITECTURE.md shows the same table",
        run: dependencies::architecture,
    },
    Check {
        name: "dependency_reasons",
        about: "docs/decisions/dependencies.md has a line for each dependency",
        run: dependencies::reasons,
    },
    Check {
        name: "purity",
        about: "a pure crate has the purity rules and depends on nothing that performs effects",
        run: purity::check,
    },
    Check {
        name: "lints",
        about: "every crate takes part in the workspace's lints",
        run: dependencies::lints,
    },
    Check {
        name: "protocol_imports",
        about: "an ordering imports parts, shard, control and itself, never another ordering",
        run: protocols::imports,
    },
    Check {
        name: "layers",
        about: "no folder of the protocol crate imports from a layer above, but for what travels",
        run: layers::check,
    },
    Check {
        name: "orderings_named",
        about: "no ordering is named outside of its folder, but for what shrinks in xtask/orderings-named.txt",
        run: orderings::check,
    },
    Check {
        name: "sizes",
        about: "no function over 70 lines, no file over 800, but for what shrinks in xtask/ratchet.txt",
        run: sizes::check,
    },
    Check {
        name: "impls",
        about: "no type has over 1,000 lines of `impl`, but for what shrinks in xtask/impls.txt",
        run: impls::check,
    },
    Check { name: "stubs", about: "nothing is left to be written, ignored or debugged", run: strings::stubs },
    Check {
        name: "sleeps",
        about: "nothing sleeps but what xtask/sleep-allowed.txt gives a reason for",
        run: strings::sleeps,
    },
    Check {
        name: "commented_code",
        about: "code that is not used is deleted, not commented out",
        run: strings::commented_code,
    },
    Check {
        name: "places",
        about: "no text names somebody's folders, hosts or package registry",
        run: strings::places,
    },
    Check {
        name: "crate_docs",
        about: "every crate root starts with what the crate is for",
        run: documents::crate_docs,
    },
    Check {
        name: "glossary",
        about: "docs/glossary.md defines each of the project's words, once, in alphabetical order",
        run: documents::glossary,
    },
    Check {
        name: "decisions",
        about: "a decision is a short dated page with a status in docs/decisions/README.md; at most 35 pages",
        run: documents::decisions,
    },
    Check {
        name: "documents",
        about: "the documents that everyone looks for exist, say how to start, and are short",
        run: documents::present,
    },
    Check {
        name: "named_files",
        about: "every page and source file that a text names exists",
        run: documents::named,
    },
    Check {
        name: "named_functions",
        about: "docs/where.md answers the usual questions, each with a file and a function that exist",
        run: documents::functions,
    },
    Check {
        name: "invariants",
        about: "an invariant that a pure crate states is asserted",
        run: invariants::check,
    },
    Check {
        name: "prose",
        about: "texts have no more phrases that hide an actor or an object than xtask/prose.txt allows",
        run: plain::check,
    },
    Check {
        name: "first_screen",
        about: "the README's first screen has at most 60 lines and needs no glossary",
        run: first_screen::check,
    },
    Check {
        name: "questions",
        about: "a function that asks how something is does not change it",
        run: words::questions,
    },
];
