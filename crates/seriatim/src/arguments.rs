//! The command line. Scripts depend on it: names do not change.

mod numbers;
mod player;
mod retention;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use seriatim_bench::{BenchArguments, duration};
use seriatim_model::order::Properties;
use seriatim_model::{Announced, Durability, Filter, Order};

use numbers::within;
pub(crate) use player::{PlayerCommand, PlayerRunArguments};
pub(crate) use retention::{RetentionArguments, age_in_words, byte_count, bytes_in_words};

/// Address of a cluster on this machine.
pub(crate) const DEFAULT_SERVER: &str = "127.0.0.1:7700";

/// A fault-tolerant shared log: many clients append, all readers see one total order, and you
/// choose when order is paid for.
#[derive(Debug, Parser)]
#[command(name = "seriatim", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// Cluster to connect to: HOST:PORT of one or more of its nodes, separated by commas.
    #[arg(
        long,
        global = true,
        env = "SERIATIM_SERVER",
        default_value = DEFAULT_SERVER,
        value_name = "ADDR"
    )]
    pub(crate) server: String,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Checks conditions between arguments.
    ///
    /// # Errors
    /// The reason, for the user.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match &self.command {
            Command::Tail(tail) if tail.speculative && !tail.print.json => Err(
                "--speculative needs --json: a record that is not final may be taken back, and a plain line cannot",
            ),
            Command::Tail(TailArguments { from: Some(from), until: Some(until), .. }) if until < from => {
                Err("--until is below --from: there is nothing to print")
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster in one process; prints "ready HOST:PORT" when it serves.
    Dev(DevArguments),
    /// Run one node of a cluster; prints "ready HOST:PORT" when it has joined.
    Serve(ServeArguments),
    /// See it work: a throw-away cluster, four clients, a kill in the middle, and a check of every
    /// record.
    Demo(DemoArguments),
    /// Create, list, show, change and delete logs; add and remove shards.
    #[command(subcommand)]
    Log(LogCommand),
    /// Append the lines of a file or of standard input, one record each.
    Append(AppendArguments),
    /// Print records from the first one to the current tail.
    Read(ReadArguments),
    /// Print records as they become final, or earlier, starting at the tail.
    Tail(TailArguments),
    /// Print the tail, a bound above the position of every acknowledged append; exact when no
    /// append is in flight.
    CheckTail {
        /// Name of the log.
        name: String,
    },
    /// Print the position of the first record appended at a time or later.
    Seek {
        /// Name of the log.
        name: String,
        /// A date such as 2026-11-22T10:00Z or 2026-11-22T12:00+02:00, seconds since 1970, or an
        /// age such as '1h ago'.
        #[arg(long, value_name = "TIME", value_parser = retention::instant)]
        time: SystemTime,
    },
    /// Delete all records below a position, permanently.
    Trim {
        /// Name of the log.
        name: String,
        /// First position to keep.
        #[arg(value_parser = numbers::position)]
        position: u64,
        /// Trim even above a pin.
        #[arg(long)]
        despite_pins: bool,
    },
    /// Show the health of nodes and logs; exits with 1 if anything is wrong.
    Status(StatusArguments),
    /// Deliver the entries of a log to databases and services, in order and once.
    #[command(subcommand)]
    Player(PlayerCommand),
    /// Cluster administration.
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Measure latency, throughput and failover, beside the speed of the machine itself.
    Bench(BenchArguments),
}

#[derive(Debug, Args)]
pub(crate) struct DevArguments {
    /// Directory of the cluster's data.
    #[arg(long, default_value = "seriatim-data", value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Address of the first node; port 0 takes a free port.
    #[arg(long, default_value = "127.0.0.1:7700", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// Most bytes that each node's files may take, such as 10GiB; at least 512MiB [default: the
    /// whole file system].
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) max_disk_bytes: Option<u64>,
    /// Number of nodes [default: 3, or as before].
    #[arg(long, value_parser = within(1..=9_u32))]
    pub(crate) nodes: Option<u32>,
    /// A setting of the section `limits` of a node's file, for all nodes; repeatable: see
    /// docs/seriatim.example.toml.
    #[arg(long = "limit", value_name = "NAME=NUMBER")]
    pub(crate) limits: Vec<String>,
    #[command(flatten)]
    pub(crate) events: EventArguments,
    #[command(flatten)]
    pub(crate) stop: StopArguments,
    /// Hold unsynced writes in memory, so that a kill loses as much as a power cut. For tests.
    #[arg(long, hide = true)]
    pub(crate) volatile_disk: bool,
    /// Most records that a sequencing replica holds before it answers Busy. For tests.
    #[arg(long, hide = true)]
    pub(crate) ring_records: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Print JSON; with --watch, one line each time.
    #[arg(long)]
    pub(crate) json: bool,
    /// Refresh every SECONDS until interrupted [default: 2].
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = within(1..=3600_u64)
    )]
    pub(crate) watch: Option<u64>,
    /// Wait at most SECONDS until everything is well and every replica is caught up, then print the
    /// status: use it between the restarts of two nodes.
    #[arg(
        long,
        value_name = "SECONDS",
        conflicts_with = "watch",
        value_parser = within(1..=86_400_u64)
    )]
    pub(crate) wait: Option<u64>,
}

/// How a server ends.
#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// Longest orderly shutdown after SIGTERM or Ctrl-C. After it the server ends as if killed,
    /// names the unfinished work, and exits with 1.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = within(1..=3600_u64))]
    pub(crate) stop_within: u64,
}

impl StopArguments {
    pub(crate) fn bound(&self) -> Duration {
        Duration::from_secs(self.stop_within)
    }
}

/// How a server reports events on standard error.
#[derive(Debug, Args)]
pub(crate) struct EventArguments {
    /// Events to report: failures (error), also warnings for operators (warn), also changes of
    /// nodes and views (info).
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL")]
    pub(crate) log_level: LogLevel,
    /// Lines for people, or one JSON object per line.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub(crate) log_format: LogFormat,
}

/// Lowest level of reported events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
}

impl LogLevel {
    pub(crate) fn level(self) -> tracing::Level {
        match self {
            Self::Error => tracing::Level::ERROR,
            Self::Warn => tracing::Level::WARN,
            Self::Info => tracing::Level::INFO,
        }
    }
}

/// Format of reported events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Configuration of the node: see docs/seriatim.example.toml.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) events: EventArguments,
    #[command(flatten)]
    pub(crate) stop: StopArguments,
    /// Hold unsynced writes in memory, so that a kill loses as much as a power cut. For tests.
    #[arg(long, hide = true)]
    pub(crate) volatile_disk: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// The lines to append [default: a generated access log of 100,000 lines].
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Create a log.
    Create(CreateArguments),
    /// Print the names of all logs.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change the retention limits of a log; 'none' removes a limit.
    Set {
        /// Name of the log.
        name: String,
        #[command(flatten)]
        retention: RetentionArguments,
    },
    /// Keep a log's records from a position on, beyond its retention limits; an existing pin moves
    /// up.
    Pin {
        /// Name of the log.
        name: String,
        /// Name of the pin.
        pin: String,
        /// First position to keep.
        #[arg(value_parser = numbers::position)]
        position: u64,
        /// Break the pin when its records take more bytes than this [default: 10GiB, or as before].
        #[arg(long, value_name = "BYTES", value_parser = retention::byte_count)]
        most_bytes: Option<u64>,
    },
    /// Remove a pin from a log.
    Unpin {
        /// Name of the log.
        name: String,
        /// Name of the pin, as `seriatim log show` prints it.
        pin: String,
    },
    /// Show the settings of a log, its members, and its disk use.
    Show {
        /// Name of the log.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a shard to a log in use; the shard takes its share of new records.
    AddShard {
        /// Name of the log.
        name: String,
    },
    /// Close a shard to new records. Its records can be read until they are trimmed.
    RemoveShard {
        /// Name of the log.
        name: String,
        /// Number of the shard, as `seriatim log show` prints it.
        #[arg(value_parser = numbers::shard)]
        shard: u32,
    },
    /// Delete a log with all its records, permanently.
    Delete {
        /// Name of the log.
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// Name of the log: letters, digits, '-', '_' and '.'.
    pub(crate) name: String,
    #[arg(long, default_value_t = Order::default(), help = orders(), long_help = each_order())]
    pub(crate) order: Order,
    /// Number of shards.
    #[arg(long, default_value_t = 2, value_parser = numbers::number::<u32>)]
    pub(crate) shards: u32,
    /// Replicas of each shard [default: 3, or the number of nodes].
    #[arg(long, value_parser = numbers::number::<u32>)]
    pub(crate) replicas: Option<u32>,
    #[arg(long, value_parser = numbers::number::<u32>, help = format!(
        "Number of sequencing replicas [default: 3, or the number of nodes; {} 1]",
        in_logs(|order| order.has_one_sequencer)
    ))]
    pub(crate) sequencers: Option<u32>,
    /// Fewest sequencing replicas with which the log accepts appends [default: 2, or 1 if it has
    /// one].
    #[arg(long, value_parser = within(1..=u32::MAX))]
    pub(crate) min_sequencers: Option<u32>,
    /// Fewest replicas of each shard with which the log accepts appends [default: 2, or 1 if it has
    /// one].
    #[arg(long, value_parser = within(1..=u32::MAX))]
    pub(crate) min_replicas: Option<u32>,
    /// Where every replica has an acknowledged record: on 'disk' or in 'memory'.
    #[arg(long, default_value = "disk")]
    pub(crate) durability: Durability,
    #[arg(long, default_value_t = seriatim_model::limits::DEFAULT_STRIPE, value_parser = numbers::number::<u64>, help = format!(
        "Consecutive positions, or {} appends of a session, that one shard takes before the next",
        in_logs(|order| !order.places_by_position)
    ))]
    pub(crate) stripe: u64,
    /// Largest record, in bytes.
    #[arg(long, default_value_t = seriatim_model::limits::DEFAULT_MAX_RECORD_BYTES, value_parser = numbers::number::<u32>)]
    pub(crate) max_record_bytes: u32,
    #[arg(long, value_name = "TIME", value_parser = interval_us, help = format!(
        "Shortest time between two cuts of a log of order {}, at least 0.1ms [default: 1ms]",
        Order::names_where(|order| order.has_cuts)
    ))]
    pub(crate) interval: Option<u32>,
    #[arg(long, value_name = "CUTS", value_parser = window, help = format!(
        "Number of cuts for which a log of order {} fixes the quotas of its shards in advance, 2 to 10000 [default: 100]",
        Order::names_where(|order| order.has_quotas)
    ))]
    pub(crate) window: Option<u32>,
    #[arg(long, value_name = "N", value_parser = numbers::number::<u64>, help = format!(
        "Number of positions, 1 to 10000000, after which the log forgets a session that appended nothing; {} {} times as many, \
         because empty positions count [default: 10000000]",
        in_logs(|order| order.has_quotas),
        seriatim_model::limits::IDLE_TIMES_IF_PADDED
    ))]
    pub(crate) session_idle_positions: Option<u64>,
    #[command(flatten)]
    pub(crate) retention: RetentionArguments,
}

/// Help of `--order` in one line.
fn orders() -> String {
    format!("The ordering of the log: {}", Order::names_where(|_| true))
}

/// Help of `--order` with a description of each ordering.
fn each_order() -> String {
    let each = |order: Order| {
        let Properties { name, about, wanted, .. } = order.properties();
        format!("\n\n{name}: {about}. For those who want {wanted}.")
    };
    format!("{}.{}", orders(), Order::ALL.map(each).concat())
}

/// Names the orderings for which `is_one` holds.
fn in_logs(is_one: impl Fn(Properties) -> bool) -> String {
    format!("in a log of order {}", Order::names_where(is_one))
}

fn window(text: &str) -> Result<u32, String> {
    let limits = seriatim_model::limits::WINDOWS;
    let cuts = text.parse().map_err(|_| format!("'{text}' is not a number of cuts"))?;
    match limits.contains(&cuts) {
        true => Ok(cuts),
        false => Err(format!("a window has {} to {} cuts", limits.start(), limits.end())),
    }
}

/// Parses a time in microseconds.
fn interval_us(text: &str) -> Result<u32, String> {
    let limits = seriatim_model::limits::INTERVALS_US;
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        return Err(format!("'{text}' is not a duration; use a unit, for example 1ms, 0.2ms or 500us"));
    }
    let micros = u32::try_from(duration(text)?.as_micros()).unwrap_or(u32::MAX);
    let millis = |micros: &u32| f64::from(*micros) / 1000.0;
    let wrong = || format!("an interval has {}ms to {}ms", millis(limits.start()), millis(limits.end()));
    if limits.contains(&micros) { Ok(micros) } else { Err(wrong()) }
}

#[derive(Debug, Args)]
pub(crate) struct AppendArguments {
    /// Name of the log.
    pub(crate) name: String,
    /// File with the lines to append; '-' is standard input [default: standard input].
    #[arg(long, value_name = "F")]
    pub(crate) file: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t, value_name = "FORM", help = format!(
        "Form of a line: a plain record, or JSON as `read --json` prints it, with its own key and headers; {}, lines whose keys \
         alternate between shards are slow, because each change of shard waits for an acknowledgement: see --unordered and \
         --shard",
        in_logs(|order| order.has_cuts)
    ))]
    pub(crate) input: InputFormat,
    /// Records end with a NUL byte instead of a newline: a file without NUL is one record.
    #[arg(short = '0', long, conflicts_with = "input")]
    pub(crate) null: bool,
    #[arg(long, value_name = "KEY", help = format!(
        "Key of every record; {}, records with the same key go to the same shard",
        in_logs(|order| !order.places_by_position)
    ))]
    pub(crate) key: Option<String>,
    #[arg(long, value_name = "N", conflicts_with = "key", value_parser = numbers::shard, help = format!(
        "Append all records to this shard, {}; records in flight when it is lost or removed go to another shard",
        in_logs(|order| !order.places_by_position)
    ))]
    pub(crate) shard: Option<u32>,
    #[arg(long, help = format!(
        "Append the lines in any order: retry a record that did not reach its shard in time, and, {}, append to several \
         shards at once",
        in_logs(|order| order.has_cuts)
    ))]
    pub(crate) unordered: bool,
    #[arg(long, value_name = "F", conflicts_with = "unordered", help = format!(
        "Save the progress in this file, and continue from it if it exists: after an interruption, run the same command \
         again with the same or a longer input, and each line is appended once; {}, a line that a killed run had only \
         announced is skipped and reported",
        in_logs(|order| order.announces == Announced::Id)
    ))]
    pub(crate) resume: Option<PathBuf>,
    /// Wait for the final position of each record.
    #[arg(long)]
    pub(crate) sync: bool,
    /// Print a JSON receipt for each record as soon as it is known.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Form of the records in the input of an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// Plain records.
    #[default]
    Lines,
    /// One JSON record per line.
    Json,
}

/// How records are printed.
#[derive(Debug, Args)]
pub(crate) struct PrintArguments {
    /// Print JSON with position, time, session, number, key and headers.
    #[arg(long)]
    pub(crate) json: bool,
    /// End each record with a NUL byte instead of a newline.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) null: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    /// Name of the log.
    pub(crate) name: String,
    /// First position to print [default: the first position that is left].
    #[arg(long, value_name = "P", value_parser = numbers::position)]
    pub(crate) from: Option<u64>,
    /// Most records to print.
    #[arg(long, value_name = "N", value_parser = numbers::records)]
    pub(crate) count: Option<u64>,
    /// Skip and report records that are lost, as an operator accepted.
    #[arg(long)]
    pub(crate) skip_lost: bool,
    #[command(flatten)]
    pub(crate) print: PrintArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TailArguments {
    /// Name of the log.
    pub(crate) name: String,
    /// First position to print [default: the tail].
    #[arg(long, value_name = "P", value_parser = numbers::position)]
    pub(crate) from: Option<u64>,
    /// Stop before this position, when all positions below it are final [default: never].
    #[arg(long, value_name = "P", value_parser = numbers::position)]
    pub(crate) until: Option<u64>,
    /// Print records before they are final, with lines that confirm them or take them back. Needs
    /// --json.
    #[arg(long)]
    pub(crate) speculative: bool,
    /// Only records whose key begins with PREFIX (key=PREFIX), or with a header of this kind whose
    /// value does (header:KIND=PREFIX).
    #[arg(long, value_name = "WHICH", value_parser = OsStringValueParser::new().try_map(filter))]
    pub(crate) filter: Option<Filter>,
    /// Only records on these shards, by number, separated by commas.
    #[arg(long, value_name = "N,...", value_parser = numbers::shard, value_delimiter = ',')]
    pub(crate) shards: Option<Vec<u32>>,
    /// Skip and report records that are lost, as an operator accepted.
    #[arg(long)]
    pub(crate) skip_lost: bool,
    #[command(flatten)]
    pub(crate) print: PrintArguments,
}

/// Parses `--filter`.
fn filter(text: OsString) -> Result<Filter, String> {
    let text = text.to_str().ok_or("it is not valid UTF-8")?;
    let (what, prefix) = text.split_once('=').ok_or("use key=PREFIX or header:KIND=PREFIX")?;
    let filter = match (what, what.strip_prefix("header:")) {
        ("key", _) => Filter::key_prefix(prefix.to_owned()),
        (_, Some(kind)) => {
            let kind = kind
                .parse()
                .map_err(|_| format!("'{kind}' is not the kind of a header, 0 to {}", u16::MAX))?;
            Filter::header(kind, prefix.to_owned())
        }
        _ => return Err(format!("use key=PREFIX or header:KIND=PREFIX, not '{what}=...'")),
    };
    match filter.is_possible() {
        true => Ok(filter),
        false => Err("the prefix is longer than a key or a header may be".into()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Show what would be lost if an unavailable log continued without its missing replicas.
    Recover {
        /// Name of the log.
        name: String,
        /// Accept the loss: the log continues without the lost records.
        #[arg(long)]
        accept_loss: bool,
    },
    /// Move all roles of a node to other nodes, always with enough replicas, and say when the node
    /// can be stopped.
    Drain {
        /// Number of the node.
        #[arg(value_parser = numbers::node)]
        node: u32,
        /// Return at once; `seriatim status` shows the progress.
        #[arg(long)]
        no_wait: bool,
        /// Cancel the drain: the node can receive roles again. Moved roles stay where they are.
        #[arg(long, conflicts_with = "no_wait")]
        cancel: bool,
    },
    /// Move all roles of a node, which may be lost, to one other node, and say when that is done.
    Replace {
        /// Number of the node to replace.
        #[arg(value_parser = numbers::node)]
        node: u32,
        /// Number of the node that takes over.
        #[arg(long, value_name = "NODE", value_parser = numbers::node)]
        by: u32,
        /// Return at once; `seriatim status` shows the progress.
        #[arg(long)]
        no_wait: bool,
    },
    /// Forget a stopped node without roles. Its number is never used again.
    Remove {
        /// Number of the node.
        #[arg(value_parser = numbers::node)]
        node: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_bounds() {
        assert_eq!([window("2"), window("100"), window("10000")], [Ok(2), Ok(100), Ok(10_000)]);
        for wrong in ["0", "1", "10001"] {
            assert_eq!(window(wrong), Err("a window has 2 to 10000 cuts".into()));
        }
        assert_eq!(window("all"), Err("'all' is not a number of cuts".into()));
    }

    #[test]
    fn an_interval_has_a_unit_and_bounds() {
        assert_eq!(
            [interval_us("0.1ms"), interval_us("500us"), interval_us("2ms")],
            [Ok(100), Ok(500), Ok(2000)]
        );
        assert!(interval_us("1us").unwrap_err().contains("0.1ms"));
        for wrong in ["soon", "5", "0", "0.5", "ms", ""] {
            assert!(interval_us(wrong).unwrap_err().contains("is not a duration"), "{wrong}");
        }
    }

    #[test]
    fn the_room_of_a_disk_has_a_unit() {
        let dev = |bytes: &'static str| {
            let command = DevArguments::augment_args(clap::Command::new("dev"));
            let given = command.try_get_matches_from(["dev", "--max-disk-bytes", bytes]);
            given.map(|given| given.get_one::<u64>("max_disk_bytes").copied())
        };
        assert_eq!(dev("600MiB").unwrap(), Some(600 << 20));
        assert_eq!(dev("536870912").unwrap(), Some(512 << 20));
        let refusal = dev("much").unwrap_err().to_string();
        assert!(refusal.contains("give one such as 10GiB, 500MB or 1048576\n"), "{refusal}");
    }
}
