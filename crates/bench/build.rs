//! Puts the commit into the binary, for recorded figures.

use std::process::Command;

fn main() {
    let described = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    // A source archive has no git history: then the commit is "unknown".
    let commit = described.ok().filter(|output| output.status.success());
    let commit =
        commit.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=SERIATIM_COMMIT={commit}");
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/refs/heads");
}
