//! Runs that are too long for continuous integration, up to the first failure, and a summary.

use std::fmt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use seriatim_model::Order;

use crate::workspace::Workspace;

const TRIM_PAUSE_MS: u64 = 10_000;

/// The simulator's profiles with particular faults.
const FAULTS: [&str; 21] = [
    "one-fault",
    "lost-for-good",
    "full-for-good",
    "small-disks",
    "cut-off",
    "set-back",
    "part-losses",
    "lying-disks",
    "echoes",
    "own-bytes",
    "long-faults",
    "fleeting-logs",
    "limited",
    "departures",
    "players",
    "players-and-faults",
    "resumed",
    "shut-out",
    "resumed-losses",
    "reshaped-losses",
    "taking-time",
];
/// The profiles with more load than capacity.
const LOADS: [&str; 14] = [
    "within-capacity",
    "overload",
    "burst",
    "slow-clients",
    "death-amid-writes",
    "one-session",
    "overload-crash",
    "overload-slow-disk",
    "overload-resets",
    "two-logs",
    "mute",
    "long-view-change",
    "large-records",
    "long-log",
];
/// Cases of each decoder property per round.
const CASES: u64 = 2000;

/// The extent of a soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Simulated clusters of each ordering.
    pub seeds: u64,
    /// Simulated clusters of each ordering, per profile of faults.
    pub fault_seeds: u64,
    /// Simulated clusters of each ordering, per profile of load.
    pub overload_seeds: u64,
    /// The first seed.
    pub from: u64,
    /// Minutes for larger models of the view change, after the models that end in macro steps.
    pub model_minutes: u64,
    /// Rounds of kill loops on real clusters.
    pub kill_loops: u64,
    /// Rounds of kill loops on real players and their targets.
    pub player_loops: u64,
    /// Tries of each loss of a node on real clusters.
    pub failover_loops: u64,
    /// Times that a real node's disk fills up and is trimmed.
    pub disk_loops: u64,
    /// Seconds of load for each cell of the load matrix.
    pub load_seconds: u64,
    /// Minutes of valid messages with extreme numbers.
    pub extreme_minutes: u64,
    /// Minutes of invalid encodings for each decoder.
    pub fuzz_minutes: u64,
}

impl Options {
    /// Reads a command line. `from` is the default first seed.
    ///
    /// # Errors
    /// The wrong argument.
    pub fn parse(arguments: &[&str], from: u64) -> Result<Self, String> {
        let mut options = Self {
            seeds: 20_000,
            fault_seeds: 1000,
            overload_seeds: 50,
            from,
            model_minutes: 40,
            kill_loops: 50,
            player_loops: 100,
            failover_loops: 20,
            disk_loops: 300,
            load_seconds: 20,
            extreme_minutes: 30,
            fuzz_minutes: 30,
        };
        for pair in arguments.chunks(2) {
            let field = match pair[0] {
                "--seeds" => &mut options.seeds,
                "--fault-seeds" => &mut options.fault_seeds,
                "--overload-seeds" => &mut options.overload_seeds,
                "--from" => &mut options.from,
                "--model-minutes" => &mut options.model_minutes,
                "--kill-loops" => &mut options.kill_loops,
                "--player-loops" => &mut options.player_loops,
                "--failover-loops" => &mut options.failover_loops,
                "--disk-loops" => &mut options.disk_loops,
                "--load-seconds" => &mut options.load_seconds,
                "--extreme-minutes" => &mut options.extreme_minutes,
                "--fuzz-minutes" => &mut options.fuzz_minutes,
                other => return Err(format!("unknown option {other}")),
            };
            let value = pair.get(1).ok_or_else(|| format!("{} needs a number", pair[0]))?;
            *field = value.parse().map_err(|_| format!("{} needs a number, not {value}", pair[0]))?;
        }
        Ok(options)
    }
}

/// Milliseconds since 1970.
#[must_use]
pub fn seed_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    name: String,
    /// Variables in addition to this program's environment.
    environment: Vec<(&'static str, String)>,
    arguments: Vec<String>,
    /// Minutes of repetition; once, if 0.
    minutes: u64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={value} ")?;
        }
        write!(f, "cargo {}", self.arguments.join(" "))
    }
}

impl Step {
    fn new(name: String, arguments: &str) -> Self {
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Self { name, environment: vec![], arguments, minutes: 0 }
    }

    fn with(mut self, name: &'static str, count: u64) -> Self {
        self.environment.push((name, count.to_string()));
        self
    }

    fn for_minutes(self, minutes: u64) -> Self {
        Self { minutes, ..self }
    }
}

fn simulations(options: &Options) -> Vec<Step> {
    let Options { seeds, fault_seeds, overload_seeds, from, .. } = *options;
    let simulate = |order: Order, profile: Option<&str>, seeds: u64| {
        let of = profile.map(|name| format!(" --profile {name}")).unwrap_or_default();
        let arguments =
            format!("run --release -p seriatim-sim -- --protocol {order} --seeds {seeds} --from {from}{of}");
        let what = profile.map(|name| format!(" ({name})")).unwrap_or_default();
        Step::new(format!("{seeds} simulated clusters of {order} from seed {from}{what}"), &arguments)
    };
    let any = Order::ALL.iter().filter(|_| seeds > 0).map(|order| simulate(*order, None, seeds));
    let of = |profiles: &'static [&'static str], seeds: u64| {
        let pairs =
            profiles.iter().flat_map(|profile| Order::ALL.iter().map(move |order| (*profile, *order)));
        pairs.filter(move |_| seeds > 0).map(move |(profile, order)| simulate(order, Some(profile), seeds))
    };
    any.chain(of(&FAULTS, fault_seeds)).chain(of(&LOADS, overload_seeds)).collect()
}

/// The commands of a soak, the cheapest to replay first. A count of 0 omits a command.
fn steps(options: &Options) -> Vec<Step> {
    let Options { model_minutes, kill_loops, failover_loops, load_seconds, .. } = *options;
    let Options { player_loops, disk_loops, extreme_minutes, fuzz_minutes, .. } = *options;
    let kill = "test --release -p seriatim --test rig --";
    let explore = Step::new(
        format!("{model_minutes} minutes of larger models of the view change"),
        "test --release -p seriatim-sim --test model --",
    );
    let decode = "test --release -p seriatim-net -p seriatim-store -p seriatim-model -p seriatim-protocol";
    let play = Step::new(format!("{player_loops} kill loops of players"), &format!("{kill} player::"));
    let lose = Step::new(format!("{failover_loops} losses of each kind"), &format!("{kill} failover::"));
    let fill = Step::new(
        format!("{disk_loops} times a full disk and a trim"),
        &format!("{kill} disks::a_disk_that_fills_up_and"),
    );
    let trim = Step::new(
        format!("a trim of each log after {} s", TRIM_PAUSE_MS / 1000),
        &format!("{kill} trims::a_trim_frees_the_room_of_a_quiet_log"),
    );
    let load =
        Step::new(format!("{load_seconds} s of each kind of load"), &format!("{kill} --nocapture load::"));
    let extremes = Step::new(
        format!("{extreme_minutes} minutes of valid messages with extreme numbers"),
        "test --release -p seriatim-host --test extremes",
    );
    let all = [
        (model_minutes, explore.with("SERIATIM_MODEL_MINUTES", model_minutes)),
        (
            kill_loops,
            Step::new(format!("{kill_loops} kill loops"), kill).with("SERIATIM_RIG_LOOPS", kill_loops),
        ),
        (player_loops, play.with("SERIATIM_PLAYER_LOOPS", player_loops)),
        (failover_loops, lose.with("SERIATIM_RIG_FAILOVER_LOOPS", failover_loops)),
        (disk_loops, fill.with("SERIATIM_RIG_DISK_LOOPS", disk_loops)),
        (disk_loops, trim.with("SERIATIM_RIG_TRIM_PAUSE_MS", TRIM_PAUSE_MS)),
        (load_seconds, load.with("SERIATIM_RIG_LOAD_SECONDS", load_seconds)),
        (extreme_minutes, extremes.for_minutes(extreme_minutes)),
        (
            fuzz_minutes,
            Step::new(format!("{fuzz_minutes} minutes for each decoder"), decode)
                .with("PROPTEST_CASES", CASES)
                .for_minutes(fuzz_minutes),
        ),
    ];
    let wanted = all.into_iter().filter(|(count, _)| *count > 0).map(|(_, step)| step);
    simulations(options).into_iter().chain(wanted).collect()
}

/// Runs everything up to the first failure, and prints a summary.
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

/// Runs once, or until its minutes are over: each round draws other cases.
fn perform(step: &Step) -> bool {
    let end = Instant::now() + Duration::from_secs(60 * step.minutes);
    loop {
        if !perform_once(step) {
            return false;
        }
        if Instant::now() >= end {
            return true;
        }
    }
}

#[expect(clippy::print_stderr, reason = "a command line talks on its terminal")]
fn perform_once(step: &Step) -> bool {
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

    const FEW: Options = Options {
        seeds: 7,
        fault_seeds: 0,
        overload_seeds: 0,
        from: 9,
        model_minutes: 1,
        kill_loops: 2,
        player_loops: 6,
        failover_loops: 4,
        disk_loops: 8,
        load_seconds: 5,
        extreme_minutes: 6,
        fuzz_minutes: 3,
    };

    #[test]
    fn options_are_read() {
        let options = Options::parse(&["--seeds", "7", "--fuzz-minutes", "3"], 9).unwrap();
        let expected = Options {
            fault_seeds: 1000,
            overload_seeds: 50,
            model_minutes: 40,
            kill_loops: 50,
            player_loops: 100,
            failover_loops: 20,
            disk_loops: 300,
            load_seconds: 20,
            extreme_minutes: 30,
            ..FEW
        };
        assert_eq!(options, expected);
        assert_eq!(Options::parse(&["--seeds"], 9).unwrap_err(), "--seeds needs a number");
        assert_eq!(Options::parse(&["--seeds", "x"], 9).unwrap_err(), "--seeds needs a number, not x");
        assert_eq!(Options::parse(&["--sids", "1"], 9).unwrap_err(), "unknown option --sids");
    }

    #[test]
    fn commands_are_as_documented() {
        let commands: Vec<String> = steps(&FEW).iter().map(ToString::to_string).collect();
        let (simulated, others) = commands.split_at(Order::ALL.len());
        let run = "cargo run --release -p seriatim-sim -- --protocol";
        assert_eq!(simulated, Order::ALL.map(|order| format!("{run} {order} --seeds 7 --from 9")));
        let expected = [
            "SERIATIM_MODEL_MINUTES=1 cargo test --release -p seriatim-sim --test model --",
            "SERIATIM_RIG_LOOPS=2 cargo test --release -p seriatim --test rig --",
            "SERIATIM_PLAYER_LOOPS=6 cargo test --release -p seriatim --test rig -- player::",
            "SERIATIM_RIG_FAILOVER_LOOPS=4 cargo test --release -p seriatim --test rig -- failover::",
            "SERIATIM_RIG_DISK_LOOPS=8 cargo test --release -p seriatim --test rig -- disks::a_disk_that_fills_up_and",
            "SERIATIM_RIG_TRIM_PAUSE_MS=10000 cargo test --release -p seriatim --test rig -- trims::a_trim_frees_the_room_of_a_quiet_log",
            "SERIATIM_RIG_LOAD_SECONDS=5 cargo test --release -p seriatim --test rig -- --nocapture load::",
            "cargo test --release -p seriatim-host --test extremes",
            "PROPTEST_CASES=2000 cargo test --release -p seriatim-net -p seriatim-store -p seriatim-model -p seriatim-protocol",
        ];
        assert_eq!(others, expected);
        let minutes: Vec<u64> = steps(&FEW).iter().map(|step| step.minutes).collect();
        assert_eq!(minutes[minutes.len() - 2..], [6, 3]);
    }

    #[test]
    fn each_profile_is_simulated_on_each_ordering() {
        let options = Options { fault_seeds: 3, overload_seeds: 2, ..FEW };
        let commands: Vec<String> = simulations(&options).iter().map(ToString::to_string).collect();
        let ([.., last], orders) = (Order::ALL, Order::ALL.len());
        assert_eq!(commands.len(), orders * (1 + FAULTS.len() + LOADS.len()));
        let run = "cargo run --release -p seriatim-sim -- --protocol";
        assert_eq!(commands[orders], format!("{run} erwin-bb --seeds 3 --from 9 --profile one-fault"));
        assert_eq!(
            commands[commands.len() - 1],
            format!("{run} {last} --seeds 2 --from 9 --profile long-log")
        );
    }

    #[test]
    fn nothing_of_a_kind_leaves_it_out() {
        let nothing = Options {
            seeds: 0,
            model_minutes: 0,
            kill_loops: 0,
            player_loops: 0,
            failover_loops: 0,
            disk_loops: 0,
            load_seconds: 0,
            extreme_minutes: 0,
            ..FEW
        };
        assert_eq!(steps(&nothing).len(), 1);
    }

    #[test]
    fn the_summary_says_what_failed_and_how_to_repeat_it() {
        let (steps, loops) = (steps(&FEW), Order::ALL.len() + 1);
        let done = [(&steps[0], Duration::from_secs(60)), (&steps[loops], Duration::from_millis(500))];
        let text = summary(&done, true, steps.len());
        assert!(
            text.contains("passed      60.0 s  7 simulated clusters of erwin-bb from seed 9\n"),
            "{text}"
        );
        let again = format!("{} of {} not run; again: SERIATIM_RIG_LOOPS=2 ", steps.len() - 2, steps.len());
        assert!(text.contains(&format!("FAILED       0.5 s  2 kill loops\n{again}")), "{text}");
    }
}
