//! Runs the scripts beside each protocol in `src/**/scripts/`: inputs of a machine, and its
//! effects.
//!
//! A script starts with prose: its subject, and a line `# Stands for:` with the section of the
//! paper or the rule. Paragraphs follow: commands, `----`, and the effects of one machine, or
//! `nothing`. The machine takes all commands of a paragraph, and is then woken if it asked for
//! that. A paragraph without `----` prepares, and must have no effects.
//!
//! ```text
//! log sequencers=1,2,3 shards=4+5,6+7 durability=memory     creates it; shard 0 on nodes 4 and 5
//! log order=erwin-st | log order=corfu                      the same, in another ordering
//! view v2 sequencers=1#2*,2,3 first=3 start=5               registers it; `*` marks the leader
//! claim v3                                                  claims it
//! sequencer 1 | sequencer 1 in v1                           the machine: new, or in the view;
//! shard 0.4 in v1 | controller node=2 | register | client   others too; by default on node 1
//! restart | restart lost                                    with durable state; without memory
//! client1: append v1 a0 a1                                  a message: sender and content
//! register answers | register applies                       takes the last question; in the second
//!                                                           case the answer is lost
//! request 7 append a0 | request 8 append a1 key=k           a request of the application
//! request 9 append a2 shard=1 | … shard=in-turn             the same, for a chosen shard
//! request 9 append a2 again-until-ms=100                    the same, again if it became a no-op
//! persisted | persisted 3                                   all writes, or up to #3, are durable
//! read 1 0:a0 | read 1 damaged=3                            the store's answer
//! found 1 a0 a1 | mapped 1 owned=2*s0+1*s1                  the same, about ids and about shards
//! silent 2 | heard 2                                        a node is silent, or answers again
//! pressed | relieved                                        its journal is behind, or caught up
//! wait 100ms | disconnected client1 | disk full | store-failed 3
//! ```
//!
//! `a0` is record 0 of session `a`, with payload "a0" unless given (`a0=x`, `a0[100]` for 100
//! bytes); `a@5:0` if the tail was 5 when the session opened; `a'0` in the client's next session.
//! `7:a0` is a record at position 7; `#2` marks a second incarnation. `s1:a0` is a name for shard
//! 1, `s1:a0,a1` are two; `!a0` became a no-op.
//!
//! `SERIATIM_SCRIPTS=write cargo test -p seriatim-protocol` writes the effects into the scripts;
//! read the difference before you keep it.

#![expect(clippy::disallowed_methods, reason = "scripts are files, and a test may read them")]

mod chains;
mod cuts;
mod effects;
mod messages;
mod script;
mod store;
mod words;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use script::Script;

/// The folders called `scripts`, and their subfolders.
fn folders() -> Vec<PathBuf> {
    let mut found = vec![];
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    if folder.components().any(|part| part.as_os_str() == "scripts") {
        found.push(folder.to_owned());
    }
    entries(folder).iter().filter(|path| path.is_dir()).for_each(|path| walk(path, found));
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listing = fs::read_dir(folder).expect("the folder can be read");
    let mut paths: Vec<_> = listing.map(|entry| entry.expect("the folder can be read").path()).collect();
    paths.sort();
    paths
}

/// Paths and texts of the scripts, read once: another test may write the files.
static TEXTS: LazyLock<Vec<(PathBuf, String)>> = LazyLock::new(|| {
    let files = folders().into_iter().flat_map(|folder| entries(&folder)).filter(|path| path.is_file());
    let read = |path: &PathBuf| fs::read_to_string(path).expect("the script can be read");
    files.map(|path| (path.clone(), read(&path))).collect()
});

fn scripts() -> impl Iterator<Item = (&'static Path, Script)> {
    TEXTS.iter().map(|(path, text)| (path.as_path(), Script::parse(text)))
}

#[test]
fn every_script_has_the_effects_that_it_says() {
    let write = std::env::var("SERIATIM_SCRIPTS").is_ok_and(|value| value == "write");
    let mut complaints = String::new();
    for (path, mut script) in scripts() {
        let outcome = script.run();
        if write && outcome.is_ok() {
            fs::write(path, script.to_string()).expect("the script can be written");
            continue;
        }
        for (line, complaint) in outcome.err().into_iter().chain(script.differences()) {
            complaints += &format!("\n{}:{line}\n{complaint}\n", path.display());
        }
    }
    assert!(complaints.is_empty(), "{complaints}\n(SERIATIM_SCRIPTS=write takes over what happened)");
}

#[test]
fn every_script_says_what_it_shows_and_what_it_stands_for() {
    for (path, script) in scripts() {
        let prose = script.prose();
        assert!(prose.contains("Stands for:"), "{}: `# Stands for: …` is missing", path.display());
        assert!(prose.lines().count() > 1, "{}: what does it show?", path.display());
        assert!(path.extension().is_some_and(|ending| ending == "txt"), "{}: not a .txt", path.display());
    }
}

#[test]
fn every_folder_of_scripts_has_some() {
    assert!(!folders().is_empty());
    for folder in folders() {
        assert!(!entries(&folder).is_empty(), "{}: no scripts", folder.display());
    }
}

fn complaint(text: &str) -> String {
    let mut script = Script::parse(text);
    match script.run() {
        Err((line, complaint)) => format!("{line}: {complaint}"),
        Ok(()) => {
            script.differences().into_iter().map(|(line, report)| format!("{line}: {report}")).collect()
        }
    }
}

#[test]
fn a_script_that_makes_no_sense_fails() {
    for (line, wrong) in [
        ("sequencer 2 in v1 now", "what is 'now'?"),
        ("client1: apend v1 a0", "no message is called 'apend'"),
        ("client1: append v1 a0 lowst=1", "what is 'lowst=1'?"),
        ("somebody: append v1 a0", "who is 'somebody'?"),
        ("jump", "no command is called 'jump'"),
    ] {
        let told = complaint(&format!("sequencer 2 in v1\n{line}\n"));
        assert!(told.contains(wrong) && told.starts_with("2:"), "{line}: {told}");
    }
}

#[test]
fn a_script_that_expects_something_else_is_shown_the_difference() {
    let told =
        complaint("log durability=memory\nsequencer 2 in v1\n\nclient1: append v1 a0\n----\nnothing\n");
    let shown = "4:     client1: append v1 a0\n    ----\n  + -> client1: acknowledged v1 a next=1";
    assert_eq!(told, shown);
}

#[test]
fn a_message_is_read_as_it_is_written() {
    for line in [
        "shard0.4: put v1 a0 a1=x a2[30]",
        "shard0.4: order v1 batch=3 backups=5+6#2 stable=3 s0:a0,a1 s0:!a2,!a3 s1:!b7 s0:b8",
        "shard0.4: replicate-order v1 batch=3 replicas=5+4 incarnation=2 stable=3 s0:a0,a1 s1:!b7",
        "shard0.4: fetch-records v1 batch=3 a0 a1 b7",
        "shard0.4: fetched-records v1 batch=3 a0 a1=x missing=a2,b7 voids=a3",
        "shard0.4: bound v1 batch=3 stable=3 voids=a0,a1,b7",
        "shard0.4: mapped-records request=1 0:a0 2:a1 owned=1*s0+1*s1+1*s0 upto=3",
        "shard0.4: stored v1 a0 a1",
        "shard0.4: not-appended v1 a0 a1",
        "shard0.4: busy v1 a0 a1 disk-full",
        "seq1: busy v1 a next=2 disk-full",
        "seq1: not-appended v1 a next=4 a0 a2",
        "seq1: append v1 s0:a4 s1:a5 lowest=4",
        "seq1: forward v1 s0:a@5:0 s1:a@5:1",
        "seq1: truncate v1 from=0 a0 !a1 !a2 !b0 b1",
        "controller: stage v2 ordered=3 sessions=a:3(0@0+!1+2@2)",
        "controller: stage v2 ordered=3 sessions=a:3/5(2@2)",
        "shard0.4: orphans v1 a0 a1 b7",
        "seq1: undecided v1 a first=3",
        "seq1: undecided v1 a",
        "seq1: undecided v1 a first=3 end=5",
        "seq1: freeze v1 a",
        "seq2: frozen v1 a3",
        "seq1: end v1 a3",
        "client1: close v1 a",
    ] {
        assert_eq!(world::World::default().read_back(line).as_deref(), Ok(line));
    }
}
