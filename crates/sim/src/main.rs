//! `seriatim-sim`: fresh seeds, many at once.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks on its terminal")]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use seriatim_model::Order;
use seriatim_protocol::Deviation;
use seriatim_sim::coverage::Coverage;
use seriatim_sim::mutations::MUTATIONS;
use seriatim_sim::plan::Plan;
use seriatim_sim::profiles;
use seriatim_sim::run::{Outcome, run};

/// From how many seeds on every kind of fault must have struck at every step.
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
    deviation: Option<String>,
    /// Run plans of this kind instead of any.
    #[arg(long, value_enum, default_value = "any")]
    profile: Profile,
    /// Go on after a failure, and list the failing seeds.
    #[arg(long)]
    keep_going: bool,
}

/// Reads the name of an ordering.
fn ordering() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new(Order::ALL.map(|order| order.properties().name))
        .try_map(|name| name.parse::<Order>())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Profile {
    Any,
    Quiet,
    Churn,
    LeaderCutOff,
    CutOff,
    LostForGood,
    FullForGood,
    SmallDisks,
    OneFault,
    ShardRestarts,
    DyingAttempts,
    Disorder,
    DyingLeaders,
    Forgetful,
    HalfSeen,
    LostRecords,
    AppendedAgain,
    Lookups,
    Orphans,
    Resumed,
    ShutOut,
    UndecidedRecords,
    RacingControllers,
    Absences,
    DiskLosses,
    SetBack,
    BitRot,
    Mending,
    PowerLosses,
    PowerLossesInCheckpoints,
    Chains,
    Cuts,
    Endings,
    ManySessions,
    AcceptedLosses,
    TrimmedAbsences,
    HalfTrimmed,
    Copies,
    Reshaped,
    TakingTime,
    ResumedLosses,
    WithinCapacity,
    Overload,
    SlowClients,
    DeathAmidWrites,
    OneSession,
    Burst,
    LongViewChange,
    OverloadCrash,
    OverloadSlowDisk,
    LargeRecords,
    OverloadResets,
    TwoLogs,
    Mute,
    LongLog,
    PartLosses,
    LyingDisks,
    OwnBytes,
    Echoes,
    LongFaults,
    FleetingLogs,
    Limited,
    Departures,
}

impl Profile {
    fn plan(self, seed: u64) -> Plan {
        match self {
            Self::Any => Plan::from_seed(seed),
            Self::Quiet => profiles::quiet(seed),
            Self::Churn => profiles::churn(seed),
            Self::LeaderCutOff => profiles::leader_cut_off(seed),
            Self::CutOff => profiles::cut_off(seed),
            Self::LostForGood => profiles::lost_for_good(seed),
            Self::FullForGood => profiles::full_for_good(seed),
            Self::SmallDisks => profiles::small_disks(seed),
            Self::OneFault => profiles::one_fault(seed),
            Self::ShardRestarts => profiles::shard_restarts(seed),
            Self::DyingAttempts => profiles::dying_attempts(seed),
            Self::Disorder => profiles::disorder(seed),
            Self::DyingLeaders => profiles::dying_leaders(seed),
            Self::Forgetful => profiles::forgetful(seed),
            Self::HalfSeen => profiles::half_seen(seed),
            Self::LostRecords => profiles::lost_records(seed),
            Self::AppendedAgain => profiles::appended_again(seed),
            Self::Lookups => profiles::lookups(seed),
            Self::Orphans => profiles::orphans(seed),
            Self::Resumed => profiles::resumed(seed),
            Self::ShutOut => profiles::shut_out(seed),
            Self::UndecidedRecords => profiles::undecided_records(seed),
            Self::RacingControllers => profiles::racing_controllers(seed),
            Self::Absences => profiles::absences(seed),
            Self::DiskLosses => profiles::disk_losses(seed),
            Self::SetBack => profiles::set_back(seed),
            Self::BitRot => profiles::bit_rot(seed),
            Self::Mending => profiles::mending(seed),
            Self::PowerLosses => profiles::power_losses(seed),
            Self::PowerLossesInCheckpoints => profiles::power_losses_in_checkpoints(seed),
            Self::Chains => profiles::chains(seed),
            Self::Cuts => profiles::cuts(seed),
            Self::Endings => profiles::endings(seed),
            Self::ManySessions => profiles::many_sessions(seed),
            Self::AcceptedLosses => profiles::accepted_losses(seed),
            Self::TrimmedAbsences => profiles::trimmed_absences(seed),
            Self::HalfTrimmed => profiles::half_trimmed(seed),
            Self::Copies => profiles::copies(seed),
            Self::Reshaped => profiles::reshaped(seed),
            Self::ResumedLosses => profiles::resumed_losses(seed),
            Self::TakingTime => profiles::taking_time(seed),
            Self::WithinCapacity => profiles::within_capacity(seed),
            Self::Overload => profiles::overload(seed),
            Self::OneSession => profiles::one_session(seed),
            Self::SlowClients => profiles::slow_clients(seed),
            Self::DeathAmidWrites => profiles::death_amid_writes(seed),
            Self::LongViewChange => profiles::long_view_change(seed),
            Self::Burst => profiles::burst(seed),
            Self::OverloadCrash => profiles::overload_crash(seed),
            Self::OverloadSlowDisk => profiles::overload_slow_disk(seed),
            Self::TwoLogs => profiles::two_logs(seed),
            Self::Mute => profiles::mute(seed),
            Self::OverloadResets => profiles::overload_resets(seed),
            Self::PartLosses => profiles::part_losses(seed),
            Self::LyingDisks => profiles::lying_disks(seed),
            Self::OwnBytes => profiles::own_bytes(seed),
            Self::Echoes => profiles::echoes(seed),
            Self::LongFaults => profiles::long_faults(seed),
            Self::FleetingLogs => profiles::fleeting_logs(seed),
            Self::Limited => profiles::limited(seed),
            Self::Departures => profiles::departures(seed),
            Self::LongLog => profiles::long_log(seed),
            Self::LargeRecords => profiles::large_records(seed),
        }
    }
}

/// The state that the threads share.
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
    let deviation = match arguments.deviation.as_deref().map(deviation_named) {
        Some(None) => {
            eprintln!("seriatim-sim: no such deviation; see Deviation in seriatim-protocol");
            return ExitCode::from(2);
        }
        found => found.flatten(),
    };
    let began = Instant::now();
    let progress = Progress::default();
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1).max(1) {
            scope.spawn(|| work(&arguments, deviation, from, &progress, began));
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

fn deviation_named(name: &str) -> Option<Deviation> {
    MUTATIONS.iter().map(|mutation| mutation.deviation).find(|deviation| format!("{deviation:?}") == name)
}

/// Runs seeds until there are none left.
fn work(arguments: &Arguments, deviation: Option<Deviation>, from: u64, progress: &Progress, began: Instant) {
    while !progress.stop.load(Ordering::Relaxed) {
        let index = progress.next.fetch_add(1, Ordering::Relaxed);
        if index >= arguments.seeds {
            return;
        }
        let plan =
            arguments.profile.plan(from.wrapping_add(index)).ordered(arguments.protocol).deviating(deviation);
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
            // A progress line that cannot be shown is no reason to stop.
            drop(std::io::stderr().flush());
        }
    }
}

/// The last line, and the exit status.
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
                 --seeds 1 --from {} --trace",
                failures.len(),
                arguments.protocol,
                first.seed
            );
            ExitCode::FAILURE
        }
    }
}

/// The events that should have happened in so many seeds, and did not.
fn missing(arguments: &Arguments, coverage: &Coverage) -> Vec<String> {
    let is_judged = arguments.seeds >= SEEDS_FOR_COVERAGE && matches!(arguments.profile, Profile::Any);
    if is_judged { coverage.missing(arguments.protocol) } else { vec![] }
}

/// A seed that differs from run to run: milliseconds since 1970.
fn seed_from_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
