//! `seriatim-sim`: runs many fresh seeds in parallel.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks on its terminal")]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use seriatim_model::Order;
use seriatim_protocol::Mutation;
use seriatim_sim::coverage::Coverage;
use seriatim_sim::mutations::MUTATIONS;
use seriatim_sim::profiles::{self, Profile};
use seriatim_sim::run::{Outcome, run};

/// From this number of seeds on, every kind of fault must strike at every step.
const SEEDS_FOR_COVERAGE: u64 = 3000;

/// Runs whole clusters from seeds, and judges them.
#[derive(Debug, Parser)]
#[command(name = "seriatim-sim", version)]
struct Arguments {
    /// The ordering.
    #[arg(long, default_value = Order::ALL[0].properties().name, value_parser = ordering())]
    protocol: Order,
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed; from the clock unless given.
    #[arg(long)]
    from: Option<u64>,
    /// Print what happened, event by event.
    #[arg(long)]
    trace: bool,
    /// How many seeds to run at once; as many as there are processors unless given.
    #[arg(long)]
    threads: Option<usize>,
    /// Build in a deliberate defect, by the name that it has in the code: the run should fail.
    #[arg(long)]
    mutation: Option<String>,
    /// Run plans of this kind instead of any.
    #[arg(long, default_value = profiles::ANY.name, value_parser = profile())]
    profile: Profile,
    /// Go on after a failure, and list the failing seeds.
    #[arg(long)]
    keep_going: bool,
}

fn ordering() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new(Order::ALL.map(|order| order.properties().name))
        .try_map(|name| name.parse::<Order>())
}

fn profile() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(profiles::ALL.iter().map(|profile| profile.name))
        .map(|name| Profile::named(&name).expect("it is one of them"))
}

#[derive(Debug, Default)]
struct Progress {
    next: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
    coverage: Mutex<Coverage>,
    failures: Mutex<Vec<Outcome>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let from = arguments.from.unwrap_or_else(seed_from_clock);
    let mutation = match arguments.mutation.as_deref().map(mutation_named) {
        Some(None) => {
            eprintln!("seriatim-sim: no such mutation; see Mutation in seriatim-protocol");
            return ExitCode::from(2);
        }
        found => found.flatten(),
    };
    if let Some(why) = arguments.profile.unfit(arguments.protocol) {
        let (profile, order) = (arguments.profile.name, arguments.protocol);
        eprintln!("seriatim-sim: the profile '{profile}' says nothing about {order}: {why}");
        return ExitCode::from(2);
    }
    let began = Instant::now();
    let progress = Progress::default();
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1).max(1) {
            scope.spawn(|| work(&arguments, mutation, from, &progress, began));
        }
    });
    let coverage = progress.coverage.into_inner().expect("no thread panicked");
    let mut failures = progress.failures.into_inner().expect("no thread panicked");
    failures.sort_by_key(|outcome| outcome.seed);
    if arguments.seeds > 1 {
        print!("{coverage}");
    }
    verdict(&arguments, from, began, &coverage, &failures)
}

fn mutation_named(name: &str) -> Option<Mutation> {
    MUTATIONS.iter().map(|mutation| mutation.mutation).find(|mutation| format!("{mutation:?}") == name)
}

fn work(arguments: &Arguments, mutation: Option<Mutation>, from: u64, progress: &Progress, began: Instant) {
    while !progress.stop.load(Ordering::Relaxed) {
        let index = progress.next.fetch_add(1, Ordering::Relaxed);
        if index >= arguments.seeds {
            return;
        }
        let plan = arguments.profile.plan(from.wrapping_add(index), arguments.protocol).mutated(mutation);
        let outcome = run(plan, arguments.trace);
        for line in &outcome.trace {
            println!("{line}");
        }
        progress.coverage.lock().expect("no thread panicked").add(&outcome.coverage);
        if !outcome.objections.is_empty() {
            progress.failures.lock().expect("no thread panicked").push(outcome);
            progress.stop.store(!arguments.keep_going, Ordering::Relaxed);
        }
        let done = progress.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(100) && std::io::stderr().is_terminal() {
            let speed = done as f64 / began.elapsed().as_secs_f64();
            eprint!("\r{done} of {} seeds, {speed:.0} a second", arguments.seeds);
            // Progress output is best effort.
            drop(std::io::stderr().flush());
        }
    }
}

fn verdict(
    arguments: &Arguments,
    from: u64,
    began: Instant,
    coverage: &Coverage,
    failures: &[Outcome],
) -> ExitCode {
    for failure in failures {
        for objection in &failure.objections {
            println!("seed {}: {objection}", failure.seed);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let counts = format!(
        "{} seeds from {from}, {} acknowledged appends ({} of them again), {} reads, {} maps, {} tails, {} trims, {} views, {} \
         faults, {} checkpoints, {} stragglers, {} resumed and {} expired sessions, {} unavailable logs, {} copies, {} \
         dismissals, {} damaged records, {} stores put aside, {} accepted losses, {} joins and {} leaves of shards, {} \
         sessions ended for orphans, {} deleted logs, {} drained and {} removed nodes, {}, {:.1} s, {:.0} seeds a second",
        coverage.runs,
        coverage.acknowledged,
        coverage.appended_again,
        coverage.reads,
        coverage.maps,
        coverage.tails,
        coverage.trims,
        coverage.views,
        coverage.faults.values().sum::<u64>(),
        coverage.checkpoints,
        coverage.stragglers,
        coverage.resumed,
        coverage.expired,
        coverage.unavailable,
        coverage.copies,
        coverage.dismissals,
        coverage.damages,
        coverage.put_aside,
        coverage.accepted_losses,
        coverage.joins,
        coverage.leaves,
        coverage.ended_for_orphans,
        coverage.deletions,
        coverage.drained,
        coverage.removed,
        coverage.excuses,
        seconds,
        coverage.runs as f64 / seconds,
    );
    let missing = missing(arguments, coverage);
    match failures {
        [] if missing.is_empty() => {
            println!("ok: {counts}");
            ExitCode::SUCCESS
        }
        [] => {
            println!("failed: never hit: {}; {counts}", missing.join(", "));
            ExitCode::FAILURE
        }
        [first, ..] => {
            println!(
                "failed: {} of {counts}; replay with: cargo run --release -p seriatim-sim -- --protocol {} \
                 --profile {} --seeds 1 --from {} --trace",
                failures.len(),
                arguments.protocol,
                arguments.profile.name,
                first.seed
            );
            ExitCode::FAILURE
        }
    }
}

/// Events that should have happened in this number of seeds, and did not.
fn missing(arguments: &Arguments, coverage: &Coverage) -> Vec<String> {
    let is_judged = arguments.seeds >= SEEDS_FOR_COVERAGE && arguments.profile.name == profiles::ANY.name;
    if is_judged { coverage.missing(arguments.protocol) } else { vec![] }
}

/// Milliseconds since 1970.
fn seed_from_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
