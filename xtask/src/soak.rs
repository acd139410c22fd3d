//! The runs that are too long for continuous integration: one after another, stopping at the first that
//! fails, with what ran at the end.

use std::fmt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::workspace::Workspace;

/// How long to soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many simulated clusters, each from its own seed.
    pub seeds: u64,
    /// The first seed.
    pub from: u64,
    /// For how many minutes larger models of the view change are explored, after those that come to an end
    /// in strides.
    pub model_minutes: u64,
    /// How many real clusters whose processes are killed.
    pub kill_loops: u64,
    /// How often each loss of a node is tried on real clusters that go on without it.
    pub failover_loops: u64,
    /// For how many seconds each cell of the load matrix is appended to.
    pub load_seconds: u64,
    /// How many cases for each property of the decoders.
    pub fuzz_cases: u64,
}

impl Options {
    /// The options of a command line; the first seed is `from` unless it says otherwise.
    ///
    /// # Errors
    /// Which argument is wrong.
    pub fn parse(arguments: &[&str], from: u64) -> Result<Self, String> {
        let mut options = Self {
            seeds: 20_000,
            from,
            model_minutes: 40,
            kill_loops: 50,
            failover_loops: 20,
            load_seconds: 20,
            fuzz_cases: 20_000,
        };
        for pair in arguments.chunks(2) {
            let field = match pair[0] {
                "--seeds" => &mut options.seeds,
                "--from" => &mut options.from,
                "--model-minutes" => &mut options.model_minutes,
                "--kill-loops" => &mut options.kill_loops,
                "--failover-loops" => &mut options.failover_loops,
                "--load-seconds" => &mut options.load_seconds,
                "--fuzz-cases" => &mut options.fuzz_cases,
                other => return Err(format!("unknown option {other}")),
            };
            let value = pair.get(1).ok_or_else(|| format!("{} needs a number", pair[0]))?;
            *field = value.parse().map_err(|_| format!("{} needs a number, not {value}", pair[0]))?;
        }
        Ok(options)
    }
}

/// A seed that differs from run to run: milliseconds since 1970.
#[must_use]
pub fn seed_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    /// What it does, with its count.
    name: String,
    /// Set for it besides the environment of this program.
    environment: Vec<(&'static str, String)>,
    /// The arguments of cargo.
    arguments: Vec<String>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={value} ")?;
        }
        write!(f, "cargo {}", self.arguments.join(" "))
    }
}

/// The commands in their order: the cheapest to replay first. A count of 0 leaves a command out.
fn steps(options: &Options) -> Vec<Step> {
    let Options { seeds, from, model_minutes, kill_loops, failover_loops, load_seconds, fuzz_cases } =
        options;
    let step = |count: &u64, name: String, environment: Option<&'static str>, arguments: &str| {
        let environment = environment.map(|name| (name, count.to_string())).into_iter().collect();
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        (*count > 0).then_some(Step { name, environment, arguments })
    };
    let simulate = |order: &str| {
        format!("run --release -p seriatim-sim -- --protocol {order} --seeds {seeds} --from {from}")
    };
    let simulated = |order: &str| format!("{seeds} simulated clusters of {order} from seed {from}");
    let explore = "test --release -p seriatim-sim --test model --";
    let explored = format!("{model_minutes} minutes of larger models of the view change");
    let kill = "test --release -p seriatim --test rig --";
    let lose = format!("{kill} failover::");
    let load = format!("{kill} --nocapture load::");
    let decode = "test --release -p seriatim-net -p seriatim-store -p seriatim-model -p seriatim-protocol";
    let all = [
        step(seeds, simulated("erwin-bb"), None, &simulate("erwin-bb")),
        step(seeds, simulated("erwin-st"), None, &simulate("erwin-st")),
        step(model_minutes, explored, Some("SERIATIM_MODEL_MINUTES"), explore),
        step(kill_loops, format!("{kill_loops} kill loops"), Some("SERIATIM_RIG_LOOPS"), kill),
        step(
            failover_loops,
            format!("{failover_loops} losses of each kind"),
            Some("SERIATIM_RIG_FAILOVER_LOOPS"),
            &lose,
        ),
        step(
            load_seconds,
            format!("{load_seconds} s of each kind of load"),
            Some("SERIATIM_RIG_LOAD_SECONDS"),
            &load,
        ),
        step(fuzz_cases, format!("{fuzz_cases} cases for each decoder"), Some("PROPTEST_CASES"), decode),
    ];
    all.into_iter().flatten().collect()
}

/// Runs everything, and says at the end what ran.
#[must_use]
#[expect(clippy::print_stdout, reason = "a command line talks on its terminal")]
pub fn run(options: &Options) -> ExitCode {
    let steps = steps(options);
    println!("soak: the first seed is {}; repeat this run with --from {0}", options.from);
    let mut done = Vec::new();
    let mut failed = false;
    for step in &steps {
        println!("\n== {}: {step}", step.name);
        let started = Instant::now();
        failed = !perform(step);
        done.push((step, started.elapsed()));
        if failed {
            break;
        }
    }
    print!("{}", summary(&done, failed, steps.len()));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[expect(clippy::print_stderr, reason = "a command line talks on its terminal")]
fn perform(step: &Step) -> bool {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(&step.arguments).current_dir(Workspace::own_root());
    command.envs(step.environment.iter().map(|(name, value)| (*name, value)));
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("soak: cannot start cargo: {error}");
            false
        }
    }
}

fn summary(done: &[(&Step, Duration)], failed: bool, planned: usize) -> String {
    let mut text = String::from("\n== summary\n");
    for (index, (step, took)) in done.iter().enumerate() {
        let outcome = if failed && index + 1 == done.len() { "FAILED" } else { "passed" };
        text += &format!("{outcome}  {:>8.1} s  {}\n", took.as_secs_f64(), step.name);
    }
    if let (true, Some((step, _))) = (failed, done.last()) {
        text += &format!("{} of {planned} not run; again: {step}\n", planned - done.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options = Options::parse(&["--seeds", "7", "--fuzz-cases", "3"], 9).unwrap();
        let expected = Options {
            seeds: 7,
            from: 9,
            model_minutes: 40,
            kill_loops: 50,
            failover_loops: 20,
            load_seconds: 20,
            fuzz_cases: 3,
        };
        assert_eq!(options, expected);
        assert_eq!(Options::parse(&["--seeds"], 9).unwrap_err(), "--seeds needs a number");
        assert_eq!(Options::parse(&["--seeds", "x"], 9).unwrap_err(), "--seeds needs a number, not x");
        assert_eq!(Options::parse(&["--sids", "1"], 9).unwrap_err(), "unknown option --sids");
    }

    #[test]
    fn commands_are_as_documented() {
        let options = Options {
            seeds: 7,
            from: 9,
            model_minutes: 1,
            kill_loops: 2,
            failover_loops: 4,
            load_seconds: 5,
            fuzz_cases: 3,
        };
        let commands: Vec<String> = steps(&options).iter().map(ToString::to_string).collect();
        let expected = [
            "cargo run --release -p seriatim-sim -- --protocol erwin-bb --seeds 7 --from 9",
            "cargo run --release -p seriatim-sim -- --protocol erwin-st --seeds 7 --from 9",
            "SERIATIM_MODEL_MINUTES=1 cargo test --release -p seriatim-sim --test model --",
            "SERIATIM_RIG_LOOPS=2 cargo test --release -p seriatim --test rig --",
            "SERIATIM_RIG_FAILOVER_LOOPS=4 cargo test --release -p seriatim --test rig -- failover::",
            "SERIATIM_RIG_LOAD_SECONDS=5 cargo test --release -p seriatim --test rig -- --nocapture load::",
            "PROPTEST_CASES=3 cargo test --release -p seriatim-net -p seriatim-store -p seriatim-model -p seriatim-protocol",
        ];
        assert_eq!(commands, expected);
    }

    #[test]
    fn nothing_of_a_kind_leaves_it_out() {
        assert_eq!(
            steps(&Options {
                seeds: 0,
                from: 0,
                model_minutes: 0,
                kill_loops: 0,
                failover_loops: 0,
                load_seconds: 0,
                fuzz_cases: 1
            })
            .len(),
            1
        );
    }

    #[test]
    fn the_summary_says_what_failed_and_how_to_repeat_it() {
        let options = Options {
            seeds: 7,
            from: 9,
            model_minutes: 1,
            kill_loops: 2,
            failover_loops: 4,
            load_seconds: 5,
            fuzz_cases: 3,
        };
        let steps = steps(&options);
        let done = [(&steps[0], Duration::from_secs(60)), (&steps[3], Duration::from_millis(500))];
        let text = summary(&done, true, steps.len());
        assert!(
            text.contains("passed      60.0 s  7 simulated clusters of erwin-bb from seed 9\n"),
            "{text}"
        );
        assert!(
            text.contains("FAILED       0.5 s  2 kill loops\n5 of 7 not run; again: SERIATIM_RIG_LOOPS=2 "),
            "{text}"
        );
    }
}
