//! Runs every check of `cargo xtask tidy` under `cargo test --workspace`.

use std::fmt::Write as _;
use std::sync::OnceLock;

use xtask::tidy::CHECKS;
use xtask::workspace::Workspace;

fn workspace() -> &'static Workspace {
    static WORKSPACE: OnceLock<Workspace> = OnceLock::new();
    WORKSPACE.get_or_init(|| Workspace::load_own().expect("the workspace can be read"))
}

fn demand(name: &str) {
    let check = CHECKS.iter().find(|check| check.name == name).expect("the check exists");
    let findings = (check.run)(workspace());
    let mut text = String::new();
    for finding in &findings {
        let _ = writeln!(text, "  {finding}");
    }
    assert!(findings.is_empty(), "{}:\n{text}", check.about);
}

macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                demand(stringify!($name));
            }
        )*

        #[test]
        fn every_check_has_its_test() {
            let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

checks! {
    dependency_table,
    architecture,
    dependency_reasons,
    purity,
    lints,
    protocol_imports,
    layers,
    orderings_named,
    sizes,
    impls,
    stubs,
    sleeps,
    commented_code,
    places,
    crate_docs,
    glossary,
    decisions,
    documents,
    named_files,
    named_functions,
    invariants,
    prose,
    first_screen,
    questions,
}
