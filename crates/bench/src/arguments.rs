//! The command line of `seriatim bench`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, value_parser};
use seriatim_model::limits::{DEFAULT_MAX_RECORD_BYTES, MAX_IN_FLIGHT, MAX_SHARDS, PLAYER_TARGETS, WINDOWS};
use seriatim_model::{Durability, Order};

/// Longest round trip. Beyond, distant nodes would count as lost.
const MAX_RTT: Duration = Duration::from_millis(50);

/// Most keys of a transaction: together with their lengths they fit into a record.
const MOST_KEYS: i64 = DEFAULT_MAX_RECORD_BYTES as i64 / 1024 / 2;

/// The arguments after `seriatim bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Latency of appends at a given rate, as a multiple of the floor.
    Latency(LatencyArguments),
    /// Appends that become stable, with as many in flight as the clients keep.
    Throughput(ThroughputArguments),
    /// How long a read takes of what was just appended, or appended a while ago.
    Read(ReadBenchArguments),
    /// How appends that become stable grow with the number of shards, and where the ceiling is.
    Scale(ScaleArguments),
    /// Appends per second while a shard is added to the log.
    #[command(mut_arg("rounds", |rounds| rounds.default_value("1")))]
    Grow(GrowArguments),
    /// How long appends stall when a node is lost, and where that time goes.
    #[command(mut_arg("rounds", |rounds| rounds.default_value("30")))]
    Failover(FailoverArguments),
    /// How many names one sequencing replica orders alone, in one thread, without its sockets.
    #[command(mut_arg("rounds", |rounds| rounds.default_value("5")))]
    Metadata(MetadataArguments),
    /// How long others wait for stable records when a client dies between its names and its
    /// records.
    #[command(mut_arg("rounds", |rounds| rounds.default_value("20")))]
    Stall(StallArguments),
    /// How much sooner a program that computes on records before they are final has its results.
    Speculate(SpeculateArguments),
    /// How long a player takes from an entry to its targets; with --sink sqlite, how much of a
    /// database's own rate it reaches.
    Player(PlayerArguments),
    /// Draw charts of what was recorded with --json, and put tables of it into a page.
    Plot(PlotArguments),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LatencyArguments {
    #[command(flatten)]
    pub(crate) comparison: ComparisonArguments,
    #[command(flatten)]
    pub(crate) paced: PacedArguments,
    /// Append as soon as the last append of the same client returned, instead of on a schedule.
    #[arg(long, conflicts_with = "rate")]
    pub(crate) closed: bool,
    /// How many clients.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) clients: u32,
    /// How many shards; several, separated by commas.
    #[arg(long, default_value = "1", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=i64::from(MAX_SHARDS)))]
    pub(crate) shards: Vec<u32>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ThroughputArguments {
    #[command(flatten)]
    pub(crate) comparison: ComparisonArguments,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    /// How many shards.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=i64::from(MAX_SHARDS)))]
    pub(crate) shards: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReadBenchArguments {
    #[command(flatten)]
    pub(crate) comparison: ComparisonArguments,
    #[command(flatten)]
    pub(crate) paced: PacedArguments,
    /// How long after its acknowledgement a record is read, for example 3ms; several, separated by
    /// commas.
    #[arg(long, default_value = "0,3ms", value_delimiter = ',', value_parser = duration)]
    pub(crate) lag: Vec<Duration>,
    /// Instead, find the tail at this interval, such as every 3ms, and read everything new below
    /// it; several, separated by commas.
    #[arg(long, value_delimiter = ',', conflicts_with = "lag", value_parser = period)]
    pub(crate) period: Vec<Duration>,
    /// How many records are read together.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) together: u32,
    /// How many shards.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=i64::from(MAX_SHARDS)))]
    pub(crate) shards: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SpeculateArguments {
    #[command(flatten)]
    pub(crate) comparison: ComparisonArguments,
    #[command(flatten)]
    pub(crate) paced: PacedArguments,
    /// How many clients append.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) clients: u32,
    /// How many shards; several, separated by commas.
    #[arg(long, default_value = "2", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=i64::from(MAX_SHARDS)))]
    pub(crate) shards: Vec<u32>,
    /// How long a program computes on a batch of records, such as 1.5ms, independent of its size;
    /// several, separated by commas.
    #[arg(long, default_value = "1.5ms", value_delimiter = ',', value_parser = duration)]
    pub(crate) compute: Vec<Duration>,
    /// Keep a processor busy while computing, instead of only taking the time.
    #[arg(long)]
    pub(crate) spin: bool,
    /// The programs: one that reads the whole log, or one for each shard.
    #[arg(long, value_enum, default_value_t = Subscribers::All)]
    pub(crate) subscribe: Subscribers,
    /// For how many cuts quotas are fixed in advance, where there are any; several, separated by
    /// commas.
    #[arg(long, default_value = "100", value_delimiter = ',', value_parser = value_parser!(u32).range(i64::from(*WINDOWS.start())..=i64::from(*WINDOWS.end())))]
    pub(crate) window: Vec<u32>,
    #[command(flatten)]
    pub(crate) disturbance: DisturbanceArguments,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PlayerArguments {
    #[command(flatten)]
    pub(crate) comparison: ComparisonArguments,
    /// How many targets; several, separated by commas.
    #[arg(long, default_value = "20", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=PLAYER_TARGETS as i64))]
    pub(crate) targets: Vec<u32>,
    /// How many keys of 1 KB a transaction has, whose hashes choose its targets; several, separated
    /// by commas.
    #[arg(long, default_value = "10", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=MOST_KEYS))]
    pub(crate) keys: Vec<u32>,
    /// Transactions per second.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: u64,
    /// Append as soon as the last append returned, instead of on a schedule.
    #[arg(long, conflicts_with = "rate")]
    pub(crate) closed: bool,
    /// The targets: with grpc the delays of services are measured, with sqlite the rate of
    /// databases.
    #[arg(long, value_enum, default_value_t = Sink::Grpc)]
    pub(crate) sink: Sink,
    /// In the second third of a measurement, stop this many targets.
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    pub(crate) stop: Option<u32>,
}

/// The targets of a measured player.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sink {
    /// Services in memory, over gRPC.
    Grpc,
    /// SQLite databases in files.
    Sqlite,
}

/// A disturbance of the log in the second third of a measurement: one of these, or none.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
pub(crate) struct DisturbanceArguments {
    /// In the second third, multiply the appends to the first shard by this.
    #[arg(long, value_name = "TIMES", value_parser = value_parser!(u32).range(2..=1000))]
    pub(crate) burst: Option<u32>,
    /// From the second third on, multiply the appends to the first shard by this.
    #[arg(long, value_name = "TIMES", value_parser = value_parser!(u32).range(2..=1000))]
    pub(crate) change: Option<u32>,
    /// In the second third, delay everything that a replica of one shard sends by this, such as
    /// 3ms.
    #[arg(long, value_name = "TIME", value_parser = rtt)]
    pub(crate) slow: Option<Duration>,
    /// At the beginning of the second third, lose the node of a shard's replica that has no other
    /// role; or all nodes of a shard, which come back at its end (with --shards 3 and --durability
    /// disk).
    #[arg(long, value_enum)]
    pub(crate) kill: Option<Killed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Killed {
    /// A backup of a shard.
    Replica,
    /// All replicas of a shard.
    Shard,
}

/// The programs that read a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subscribers {
    /// One, which reads all of it.
    All,
    /// One for each shard.
    Shard,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ScaleArguments {
    #[command(flatten)]
    pub(crate) comparison: ComparisonArguments,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
    /// The numbers of shards to measure: several, separated by commas, or from..to.
    #[arg(long, default_value = "1,2,4,8")]
    pub(crate) shards: ShardCounts,
}

/// The arguments that all comparisons of orderings have.
#[derive(Clone, Debug, Args)]
pub(crate) struct ComparisonArguments {
    /// The orderings to measure, separated by commas.
    #[arg(long, default_value = "erwin-bb,erwin-st", value_delimiter = ',')]
    pub(crate) order: Vec<Order>,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..=3600))]
    pub(crate) duration: u64,
    /// Put this time, such as 1ms, between a message and its answer, as if the nodes were further
    /// apart.
    #[arg(long, default_value = "0", value_parser = rtt)]
    pub(crate) rtt: Duration,
    #[command(flatten)]
    pub(crate) copies: CopiesArguments,
    #[command(flatten)]
    pub(crate) repeat: RepeatArguments,
}

/// How often something is measured, and where the figures go.
#[derive(Clone, Debug, Args)]
pub(crate) struct RepeatArguments {
    /// How often each is measured, in turn with the others.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Write the figures to a file, as JSON.
    #[arg(long, value_name = "F")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with the figures and their charts to a file, as HTML.
    #[arg(long, value_name = "F")]
    pub(crate) report: Option<PathBuf>,
}

/// Where the records of a throw-away cluster of three nodes are.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CopiesArguments {
    #[command(flatten)]
    pub(crate) durable: DurabilityArgument,
    /// How many replicas each shard has.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=3))]
    pub(crate) replicas: u32,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DurabilityArgument {
    /// Where an acknowledged record is: 'disk' or 'memory' of every replica.
    #[arg(long, default_value = "memory")]
    pub(crate) durability: Durability,
}

/// Appends on a schedule. Several values, separated by commas, are measured one after the other.
#[derive(Clone, Debug, Args)]
pub(crate) struct PacedArguments {
    /// Bytes of a record.
    #[arg(long, default_value = "4096", value_delimiter = ',', value_parser = size)]
    pub(crate) size: Vec<usize>,
    /// Appends per second, over all clients.
    #[arg(long, default_value = "1000", value_delimiter = ',', value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: Vec<u64>,
}

/// Appends as many as there is room for. Several values, separated by commas, are measured one
/// after the other.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArguments {
    /// Bytes of a record.
    #[arg(long, default_value = "100", value_delimiter = ',', value_parser = size)]
    pub(crate) size: Vec<usize>,
    /// How many clients.
    #[arg(long, default_value = "8", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) clients: Vec<u32>,
    /// How many appends each client keeps in flight.
    #[arg(long, default_value = "256", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=MAX_IN_FLIGHT as i64))]
    pub(crate) in_flight: Vec<u32>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GrowArguments {
    #[command(flatten)]
    pub(crate) comparison: ComparisonArguments,
    #[command(flatten)]
    pub(crate) load: LoadArguments,
}

/// Charts of what was recorded.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlotArguments {
    /// Files that were recorded with --json. The charts of F.json are drawn into F.svg beside it.
    #[arg(required = true, value_name = "F.json")]
    pub(crate) files: Vec<PathBuf>,
    /// Put the table of each file, and its charts, between the lines '<!-- figures: F -->' and
    /// '<!-- end: F -->' of this page.
    #[arg(long, value_name = "PAGE.md")]
    pub(crate) page: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct FailoverArguments {
    /// The orderings to measure one after the other, separated by commas.
    #[arg(long, default_value = "erwin-bb", value_delimiter = ',')]
    pub(crate) order: Vec<Order>,
    /// The role whose node is lost in each round.
    #[arg(long, value_enum, default_value_t = Victim::Sequencer)]
    pub(crate) kill: Victim,
    /// Stop the node's process in the middle (SIGSTOP) instead of killing it (SIGKILL).
    #[arg(long)]
    pub(crate) pause: bool,
    /// Where the nodes have their view register.
    #[arg(long, value_enum, default_value_t = RegisterKind::Embedded)]
    pub(crate) register: RegisterKind,
    #[command(flatten)]
    pub(crate) durable: DurabilityArgument,
    #[command(flatten)]
    pub(crate) repeat: RepeatArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Victim {
    /// The leader and a follower, in turn, or the only sequencer.
    Sequencer,
    /// The sequencing replica that leads.
    Leader,
    /// A sequencing replica that follows.
    Follower,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RegisterKind {
    /// In a node that is not lost.
    Embedded,
    /// In an etcd that is started for it.
    Etcd,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MetadataArguments {
    /// How many followers confirm what the leader ordered.
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(0..=8))]
    pub(crate) followers: u32,
    /// How many shards.
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) shards: u32,
    /// How many clients.
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u64).range(1..=1024))]
    pub(crate) clients: u64,
    /// How many names a client sends at once; several, separated by commas.
    #[arg(long, default_value = "256", value_delimiter = ',', value_parser = value_parser!(u64).range(1..=2048))]
    pub(crate) batch: Vec<u64>,
    /// Seconds of each round.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u64).range(1..))]
    pub(crate) duration: u64,
    #[command(flatten)]
    pub(crate) repeat: RepeatArguments,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StallArguments {
    /// Appends per second of the others, each of which waits for its position.
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: u64,
    /// How many shards.
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u32).range(1..=i64::from(MAX_SHARDS)))]
    pub(crate) shards: u32,
    /// Put this time, such as 1ms, between a message and its answer, as if the nodes were further
    /// apart.
    #[arg(long, default_value = "0", value_parser = rtt)]
    pub(crate) rtt: Duration,
    #[command(flatten)]
    pub(crate) copies: CopiesArguments,
    #[command(flatten)]
    pub(crate) repeat: RepeatArguments,
}

/// Numbers of shards: `1,2,4`, `1..8`, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardCounts(pub(crate) Vec<u32>);

impl FromStr for ShardCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}': give numbers from 1 to {MAX_SHARDS}, such as 1,2,4 or 1..8");
        let number = |text: &str| text.trim().parse().ok().filter(|number| (1..=MAX_SHARDS).contains(number));
        let mut counts = vec![];
        for part in text.split(',') {
            let (from, to) = part.split_once("..").unwrap_or((part, part));
            let (from, to) = number(from).zip(number(to)).ok_or_else(wrong)?;
            if from > to {
                return Err(wrong());
            }
            counts.extend(from..=to);
        }
        Ok(Self(counts))
    }
}

/// Parses a time with its unit, such as `3ms`; without one, in milliseconds.
///
/// # Errors
/// If it is no time, or longer than an hour. The text shows valid ones.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration; use a unit, for example 3ms, 0.2ms, 200us or 1s");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_us = match &text[digits.len()..] {
        "us" => 1.0,
        "" | "ms" => 1e3,
        "s" => 1e6,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let seconds = number * unit_us / 1e6;
    let is_sane = (0.0..=3600.0).contains(&seconds);
    if is_sane { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    if period.is_zero() { Err("a period takes some time".into()) } else { Ok(period) }
}

fn rtt(text: &str) -> Result<Duration, String> {
    let rtt = duration(text)?;
    if rtt > MAX_RTT {
        return Err(format!(
            "a round trip takes at most {MAX_RTT:?}; nodes further away would count as lost"
        ));
    }
    Ok(rtt)
}

fn size(text: &str) -> Result<usize, String> {
    let most = DEFAULT_MAX_RECORD_BYTES as usize;
    let size = text.parse().ok().filter(|size| (1..=most).contains(size));
    size.ok_or_else(|| format!("a record has 1 to {most} bytes here"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArguments,
    }

    fn parsed(line: &str) -> Result<BenchCommand, String> {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        Ok(Line::try_parse_from(words).map_err(|error| error.to_string())?.bench.command)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Line::command().debug_assert();
    }

    #[test]
    fn each_bench_has_its_own_number_of_rounds() {
        let Ok(BenchCommand::Latency(latency)) = parsed("latency") else { panic!() };
        let Ok(BenchCommand::Failover(failover)) = parsed("failover") else { panic!() };
        let Ok(BenchCommand::Stall(stall)) = parsed("stall --rounds 7") else { panic!() };
        let rounds = [latency.comparison.repeat.rounds, failover.repeat.rounds, stall.repeat.rounds];
        assert_eq!(rounds, [3, 30, 7]);
    }

    #[test]
    fn times_have_units() {
        let us = |text| duration(text).map(|duration| duration.as_micros());
        assert_eq!(
            ["0", "3", "3ms", "0.2ms", "200us", "1s"].map(us),
            [0, 3000, 3000, 200, 200, 1_000_000].map(Ok)
        );
        for wrong in ["", "ms", "-1ms", "3 ms", "1h", "NaN", "inf", "1e99"] {
            assert!(us(wrong).is_err_and(|text| text.contains("for example 3ms")), "{wrong}");
        }
    }

    #[test]
    fn shards_are_a_list_or_a_range() {
        let counts = |text: &str| text.parse().map(|ShardCounts(counts)| counts);
        assert_eq!(counts("1,2,4"), Ok(vec![1, 2, 4]));
        assert_eq!(counts("1..4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(counts("1..2,8"), Ok(vec![1, 2, 8]));
        for wrong in ["", "0", "4..1", "1..", "300", "x"] {
            assert!(counts(wrong).is_err_and(|text| text.contains("such as 1,2,4")), "{wrong}");
        }
    }

    #[test]
    fn wrong_arguments_are_told_what_would_be_right() {
        for (line, hint) in [
            ("latency --order erwin", "known: erwin-bb"),
            ("latency --rtt 1h", "for example 3ms"),
            ("latency --rtt 1s", "at most 50ms"),
            ("latency --size 0", "1 to 1048576 bytes"),
            ("latency --rate 0", "1..=1000000"),
            ("latency --closed --rate 10", "cannot be used with"),
            ("latency --replicas 4", "1..=3"),
            ("throughput --rate 10", "unexpected argument"),
            ("throughput --in-flight 0", "1..=65536"),
            ("scale --shards 8..1", "such as 1,2,4"),
            ("read --lag soon", "for example 3ms"),
            ("stall --rounds 0", "1.."),
            ("read --period 0", "takes some time"),
            ("read --period 1ms --lag 0", "cannot be used with"),
            ("latency --rate 10,0", "1..=1000000"),
            ("speculate --window 1", "2..=10000"),
            ("speculate --burst 1", "2..=1000"),
            ("speculate --burst 2 --change 2", "cannot be used with"),
            ("speculate --slow 1s", "at most 50ms"),
            ("speculate --kill leader", "possible values: replica, shard"),
            ("player --targets 0", "1..=1024"),
            ("player --keys 513", "1..=512"),
            ("player --sink kafka", "possible values: grpc, sqlite"),
            ("player --closed --rate 10", "cannot be used with"),
            ("plot", "F.json"),
        ] {
            assert!(parsed(line).is_err_and(|text| text.contains(hint)), "{line}: {:?}", parsed(line));
        }
    }
}
