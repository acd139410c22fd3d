//! `cargo xtask tidy | commits | soak | assertions | prose | ci`: see [`USAGE`].
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks on its terminal")]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{fs, io};

use xtask::workspace::Workspace;
use xtask::{assertions, commits, prose, soak, tidy};

const USAGE: &str = "\
usage: cargo xtask COMMAND
  tidy                   check the project's shape; the same checks run under cargo test --workspace
  commits [BASE]         check the subjects of the commits since BASE, or since there is a rule for them
  soak [OPTION VALUE]..  run what is too long for continuous integration
       --seeds N         simulated clusters of each ordering, each from a seed of its own (default 20000)
       --fault-seeds N   simulated clusters of each ordering and each profile of faults (default 1000)
       --overload-seeds N  simulated clusters of each ordering and each profile of load (default 50)
       --from N          the first seed (default: derived from the time)
       --model-minutes N for how long larger models of the view change are explored (default 40)
       --kill-loops N    real clusters whose processes are killed (default 50)
       --player-loops N  real players and targets that are killed (default 100)
       --failover-loops N  how often each loss of a node is tried on real clusters (default 20)
       --disk-loops N      how often the disk of a real node fills up and is trimmed (default 300)
       --load-seconds N  for how long each kind of load lasts that is more than the machine can carry (default 20)
       --extreme-minutes N  for how long nodes are sent valid messages with extreme numbers (default 30)
       --fuzz-minutes N  for how long each decoder gets what is no encoding (default 30)
  assertions FOLDER      the cost of assertions, from NAME.with and NAME.without there; see bench/assertions.sh
  assertions off         switches all assertions of the deciding crates off in this tree, for such a profile
  prose                  the phrases that hide an actor or an object, and words, for each crate and page
  prose --write          lowers the limits in xtask/prose.txt to these figures
  prose --sample N --seed N  prints N comments, drawn by the seed, with the code below them
  ci                     what continuous integration runs";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["commits"] => run_commits(None),
        ["commits", base] => run_commits(Some(base)),
        ["soak", options @ ..] => match soak::Options::parse(options, soak::seed_from_clock()) {
            Ok(options) => soak::run(&options),
            Err(problem) => usage(&problem),
        },
        ["assertions", "off"] => report(switch_assertions_off()),
        ["assertions", folder] => report(print_costs(Path::new(folder))),
        ["prose"] => report(print_prose()),
        ["prose", "--write"] => report(write_limits()),
        ["prose", "--sample", count, "--seed", seed] => match (count.parse(), seed.parse()) {
            (Ok(count), Ok(seed)) => report(print_sample(count, seed)),
            _ => usage("--sample and --seed take numbers"),
        },
        ["ci"] => run_ci(),
        [] => usage("which command?"),
        other => usage(&format!("unknown arguments: {}", other.join(" "))),
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("xtask: {problem}\n{USAGE}");
    ExitCode::from(2)
}

fn run_tidy() -> ExitCode {
    let workspace = match Workspace::load_own() {
        Ok(workspace) => workspace,
        Err(error) => {
            eprintln!("xtask: cannot read the workspace: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut count = 0;
    for check in tidy::CHECKS {
        let findings = (check.run)(&workspace);
        println!("{:<20} {}", check.name, if findings.is_empty() { "ok" } else { check.about });
        for finding in &findings {
            println!("  {finding}");
        }
        count += findings.len();
    }
    match count {
        0 => ExitCode::SUCCESS,
        _ => {
            eprintln!("xtask: {count} to mend");
            ExitCode::FAILURE
        }
    }
}

fn report(outcome: io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn switch_assertions_off() -> io::Result<()> {
    for file in Workspace::load_own()?.rust() {
        if let Some(text) = assertions::disarmed(file) {
            fs::write(Workspace::own_root().join(&file.path), text)?;
        }
    }
    Ok(())
}

fn print_prose() -> io::Result<()> {
    print!("{}", prose::table(&prose::measure(&Workspace::load_own()?)));
    Ok(())
}

fn print_sample(count: usize, seed: u64) -> io::Result<()> {
    print!("{}", prose::sample(&Workspace::load_own()?, count, seed));
    Ok(())
}

fn write_limits() -> io::Result<()> {
    let workspace = Workspace::load_own()?;
    fs::write(Workspace::own_root().join(tidy::PROSE_LIMITS), tidy::lowered_limits(&workspace))
}

/// Prints the costs of assertions for each pair of `NAME.with` and `NAME.without` in the folder.
fn print_costs(folder: &Path) -> io::Result<()> {
    let mut profiles = vec![];
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort_unstable();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "with")) {
        let read = |path: &Path| Ok::<_, io::Error>(assertions::Profile::parse(&fs::read_to_string(path)?));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        profiles.push((name, read(path)?, read(&path.with_extension("without"))?));
    }
    print!("{}", assertions::table(&assertions::find(&Workspace::load_own()?), &profiles, 10));
    Ok(())
}

/// Without a history the check is skipped, unless `base` is given.
fn run_commits(base: Option<&str>) -> ExitCode {
    match commits::check(&Workspace::own_root(), base) {
        Ok((count, problems)) if problems.is_empty() => {
            println!("{count} commits have subjects as they should be");
            ExitCode::SUCCESS
        }
        Ok((_, problems)) => {
            for problem in &problems {
                println!("  {problem}");
            }
            eprintln!("xtask: {} subjects to mend", problems.len());
            ExitCode::FAILURE
        }
        Err(reason) if base.is_none() => {
            println!("skipped: there are no commits to look at: {reason}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run_ci() -> ExitCode {
    match Command::new("bash").arg(Workspace::own_root().join(".ci/run")).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: cannot start bash: {error}");
            ExitCode::FAILURE
        }
    }
}
