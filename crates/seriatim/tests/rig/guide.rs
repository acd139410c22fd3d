//! Runs the commands of `README.md`, `docs/cluster.md` and `docs/player.md` in one shell, and
//! compares the output.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use crate::members::has_etcd;
use crate::process::{BINARY, NO_DISK_WARNING, own_host};

const CLUSTER: &str = include_str!("../../../../docs/cluster.md");
const PLAYER: &str = include_str!("../../../../docs/player.md");
const README: &str = include_str!("../../../../README.md");

/// An `sh` block, and the `text` block with its output.
#[derive(Debug, Default)]
struct Block {
    commands: Vec<String>,
    prints: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    let mut language = None;
    for line in page.lines() {
        match (language, line.strip_prefix("```")) {
            (None, Some(opens)) => {
                if opens == "sh" {
                    blocks.push(Block::default());
                }
                language = Some(opens);
            }
            (Some(_), Some(_)) => language = None,
            (Some("sh"), None) => blocks.last_mut().expect("it was opened").commands.push(line.to_owned()),
            (Some("text"), None) => {
                blocks.last_mut().expect("it is below commands").prints.push(line.to_owned());
            }
            _ => {}
        }
    }
    blocks
}

pub(crate) fn commands(page: &str) -> String {
    let lines = blocks(page).into_iter().flat_map(|block| block.commands);
    lines.map(|line| line + "\n").collect()
}

pub(crate) fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let begins = page.find(heading).unwrap_or_else(|| panic!("there is no '{heading}'"));
    let rest = &page[begins + heading.len()..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// A process group. Dropping it kills it.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // All its processes may have ended already.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Runs commands up to the first failure, then kills their processes. Returns success and output.
pub(crate) async fn run(commands: &str, directory: &Path) -> (bool, String) {
    shell(&["-e", "-u", "-x", "-o", "pipefail"], commands, directory).await
}

/// Pastes commands into a `bash`: a command with standard input receives the next ones.
async fn shell(options: &[&str], commands: &str, directory: &Path) -> (bool, String) {
    let binaries = Path::new(BINARY).parent().expect("it is in a folder").display();
    let path = format!("{}:{binaries}:{}", directory.display(), std::env::var("PATH").unwrap_or_default());
    let (pasted, printed) = (directory.join("pasted"), directory.join("printed"));
    fs::write(&pasted, commands).expect("the commands are written");
    let output = fs::File::create(&printed).expect("a file");
    let shell = Command::new("bash")
        .args(options)
        .arg("-s")
        .current_dir(directory)
        .env("PATH", path)
        .stdin(fs::File::open(&pasted).expect("the commands"))
        .stderr(output.try_clone().expect("the file"))
        .stdout(output)
        .process_group(0)
        .spawn();
    let mut shell = shell.expect("bash starts");
    let group = Group(shell.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it has an id"));
    let status = tokio::time::timeout(Duration::from_secs(180), shell.wait()).await;
    drop(group);
    let printed = fs::read_to_string(&printed).expect("what was printed");
    (status.is_ok_and(|status| status.expect("it can be waited for").success()), printed)
}

const NEXT: &str = "--- next block ---";
/// Prefix of the shell's line for a failed command.
const FAILED: &str = "--- failed: line ";

/// Pastes a page's blocks without pauses and checks their output.
async fn paste(page: &str, directory: &Path) {
    let blocks = blocks(page);
    let mut script = format!("set -o pipefail; trap 'echo \"{FAILED}$LINENO\"' ERR\n");
    for block in &blocks {
        block.commands.iter().for_each(|line| script += &format!("{line}\n"));
        script += &format!("echo '{NEXT}'\n");
    }
    let (_, printed) = shell(&[], &script, directory).await;
    let is_of_server = |line: &str| line.starts_with("20") && line.contains("Z  ");
    let is_of_job = |line: &str| line.starts_with("bash: line ") && line.contains(" Killed ");
    let failed: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix(FAILED)).collect();
    let fails = (1..).zip(script.lines()).filter(|(_, line)| line.contains("# fails"));
    let fails: Vec<String> = fails.map(|(number, _)| number.to_string()).collect();
    assert_eq!(failed, fails, "the lines that fail; {script}\n{printed}");
    let output = printed.lines().filter(|line| {
        !line.starts_with(FAILED) && !is_of_server(line) && !is_of_job(line) && !line.is_empty()
    });
    let output: Vec<&str> = output.collect();
    let parts: Vec<&[&str]> = output.split(|line| *line == NEXT).collect();
    assert_eq!(parts.len(), blocks.len() + 1, "the shell ran all blocks: {printed}");
    for (block, part) in blocks.iter().zip(parts) {
        let page: Vec<&str> = block.prints.iter().map(String::as_str).collect();
        let (page, part) = (in_order(&page), in_order(part));
        if block.commands.iter().any(|command| command.contains(" -- demo")) {
            let shapes = |lines: &[&str]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
            assert_eq!(shapes(&page), shapes(&part), "the page shows another demo than {part:#?}");
            continue;
        }
        assert!(
            is_like(&page, &part),
            "{:#?} print\n{part:#?}, and the page says\n{page:#?}",
            block.commands
        );
    }
}

/// A line of the demo without the numbers, the chart's bars and the place of its arrows, which
/// differ from run to run.
fn shape(line: &str) -> String {
    let is_drawn = |c: char| c.is_ascii_digit() || c == '.' || c == '^' || ('▁'..='█').contains(&c);
    let words = line.split_whitespace().map(|word| word.replace(is_drawn, ""));
    let words = words.map(|word| if word == "s" { "ms".to_owned() } else { word });
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Drops blank lines; sorts the `ready` lines, which come at any time, to the front.
fn in_order<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let lines = lines.iter().copied().filter(|line| !line.is_empty());
    let (mut ready, others): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("ready "));
    ready.sort_unstable();
    ready.into_iter().chain(others).collect()
}

/// Whether lines match the page: `…` stands for any text, and alone for any lines. Ignores blanks.
fn is_like(page: &[&str], lines: &[&str]) -> bool {
    match (page, lines) {
        ([], lines) => lines.is_empty(),
        (["…", page @ ..], _) => (0..=lines.len()).any(|at| is_like(page, &lines[at..])),
        ([expected, page @ ..], [line, lines @ ..]) => is_line_like(expected, line) && is_like(page, lines),
        _ => false,
    }
}

fn is_line_like(expected: &str, line: &str) -> bool {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, line) = (squeezed(expected), squeezed(line));
    let parts: Vec<&str> = expected.split('…').map(str::trim).collect();
    let [first, .., last] = parts[..] else { return expected == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in &parts[1..parts.len() - 1] {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn a_line_that_differs_from_the_page_is_noticed() {
    assert!(is_like(&["a  …  c", "…", "e"], &["a b c", "x", "y", "e"]));
    assert!(is_like(&["…", "e"], &["e"]));
    for lines in [&["a b", "e"][..], &["a b c"], &["a b c", "e", "f"], &["ab c", "E"]] {
        assert!(!is_like(&["a  …  c", "…", "e"], lines), "{lines:?}");
    }
    assert!(!is_like(&[], &["more"]));
    assert_eq!(shape("client 1  ▅ ▇"), shape("client 2 █"));
    assert_eq!(shape("   ^ killed at 515 ms"), shape(" killed at 1.5 ms ^"));
    assert_ne!(shape("^ killed at 515 ms"), shape("^ stopped at 515 ms"));
}

/// A `cargo` that compiles nothing: it links the binary under test and skips other packages.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
    "build --release") mkdir -p target/release && ln -sf "$SERIATIM" target/release/seriatim ;;
    "run --release -- "*) shift 3 && exec "$SERIATIM" "$@" ;;
    "test --workspace") ;;
    "run --release -p seriatim-sim -- --protocol erwin-bb --seeds 1000") ;;
    "run --release -p seriatim-client --example fraud_monitoring") ;;
    *) echo "the page asks for: cargo $*" && exit 1 ;;
esac
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_works_as_it_is_pasted() {
    let directory = tempfile::tempdir().expect("a directory");
    let cargo = directory.path().join("cargo");
    fs::write(&cargo, CARGO.replace("$SERIATIM", BINARY)).expect("a stand-in for cargo");
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("it can be run");
    // Own loopback address, so that no port is taken, and own folder.
    let (host, folder) = (own_host(), directory.path().join("tmp"));
    fs::create_dir(&folder).expect("a folder");
    let dev = format!("seriatim dev --limit {NO_DISK_WARNING} --listen {host}:7700");
    let page = README.replace("127.0.0.1", &host).replace("/tmp/", &format!("{}/", folder.display()));
    let page = page.replacen("```sh\n", &format!("```sh\nexport SERIATIM_SERVER={host}:7700\n"), 1);
    paste(&page.replace("\nseriatim dev &", &format!("\n{dev} &")), directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tour_of_the_player_works_as_it_is_pasted() {
    let directory = tempfile::tempdir().expect("a directory");
    // Own loopback address, so that no port is taken.
    let host = own_host();
    let dev = format!("seriatim dev --limit {NO_DISK_WARNING} --listen {host}:7700 >");
    let page = PLAYER.replacen("```sh\n", &format!("```sh\nexport SERIATIM_SERVER={host}:7700\n"), 1);
    paste(&page.replace("\nseriatim dev >", &format!("\n{dev}")), directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_to_a_cluster_works_as_it_is_pasted() {
    if !has_etcd("the guide to a cluster") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    // Own loopback address, so that no port is taken.
    let page = CLUSTER.replace("127.0.0.1", &own_host());
    let page = page
        .replace("cluster = \"main\"\nEND", &format!("cluster = \"main\"\n[limits]\n{NO_DISK_WARNING}\nEND"));
    paste(&page, directory.path()).await;
}
