//! The command line. Scripts depend on it: names stay as they are.

mod numbers;
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
pub(crate) use retention::{RetentionArguments, age_in_words, byte_count, bytes_in_words};

/// A fault-tolerant shared log: many clients append, everyone reads one total order, and you choose
/// when order is paid for.
#[derive(Debug, Parser)]
#[command(name = "seriatim", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// The cluster to talk to: HOST:PORT of any of its nodes, or of several, separated by commas.
    #[arg(
        long,
        global = true,
        env = "SERIATIM_SERVER",
        default_value = "127.0.0.1:7700",
        value_name = "ADDR"
    )]
    pub(crate) server: String,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Whether the arguments go together, beyond what each of them says.
    ///
    /// # Errors
    /// Says why not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match &self.command {
            Command::Tail(tail) if tail.speculative && !tail.print.json => Err(
                "--speculative needs --json: a record that is not final may be taken back, and a line that is printed plainly cannot",
            ),
            Command::Tail(TailArguments { from: Some(from), until: Some(until), .. }) if until < from => {
                Err("--until is a position before --from: nothing lies between")
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
    /// Create, list, show and delete logs, add and remove their shards, change what they keep.
    #[command(subcommand)]
    Log(LogCommand),
    /// Append the lines of a file, or of standard input, a record each.
    Append(AppendArguments),
    /// Print the records from the first one to the tail as it is now.
    Read(ReadArguments),
    /// Print records as they become final, or before that, from the tail on.
    Tail(TailArguments),
    /// Print the tail: a bound above the position of every acknowledged append, exact when nothing
    /// is on its way.
    CheckTail {
        /// The log.
        name: String,
    },
    /// Print the position at which what was appended at a time or later begins.
    Seek {
        /// The log.
        name: String,
        /// The time: a date such as 2026-11-22T10:00Z or 2026-11-22T12:00+02:00, seconds since
        /// 1970, or an age such as '1h ago'.
        #[arg(long, value_name = "TIME", value_parser = retention::instant)]
        time: SystemTime,
    },
    /// Delete all records below a position, for good.
    Trim {
        /// The log.
        name: String,
        /// The first position to keep.
        #[arg(value_parser = numbers::position)]
        position: u64,
    },
    /// Print how nodes and logs are, and why; exit status 1 if something is not well.
    Status(StatusArguments),
    /// Decide what only an operator may decide.
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Measure latency and throughput beside what the machine itself can do, and failover.
    Bench(BenchArguments),
}

#[derive(Debug, Args)]
pub(crate) struct DevArguments {
    /// Where the cluster keeps its data.
    #[arg(long, default_value = "seriatim-data", value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Where the first node listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7700", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// How many bytes each node's files may take, such as 10GiB; 512MiB at least [default: what the
    /// file system has].
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub(crate) max_disk_bytes: Option<u64>,
    /// How many nodes the cluster has [default: 3, or what it had before].
    #[arg(long, value_parser = within(1..=9_u32))]
    pub(crate) nodes: Option<u32>,
    /// A setting of the section `limits` of a node's file, for all nodes; may be given several
    /// times: see docs/seriatim.example.toml.
    #[arg(long = "limit", value_name = "NAME=NUMBER")]
    pub(crate) limits: Vec<String>,
    #[command(flatten)]
    pub(crate) events: EventArguments,
    #[command(flatten)]
    pub(crate) stop: StopArguments,
    /// Hold unsynced writes in memory, so that a kill loses what a power cut would. For tests.
    #[arg(long, hide = true)]
    pub(crate) volatile_disk: bool,
    /// How many records a sequencing replica holds before it answers Busy. For tests.
    #[arg(long, hide = true)]
    pub(crate) ring_records: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// As JSON; with --watch, a line each time.
    #[arg(long)]
    pub(crate) json: bool,
    /// Again and again, with so many seconds between, until it is stopped [default: 2].
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = within(1..=3600_u64)
    )]
    pub(crate) watch: Option<u64>,
    /// Wait until everything is well and every replica holds everything, for at most so many
    /// seconds, and print how it is then: after a node was restarted, and before the next one is.
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
    /// How long an orderly end may take after SIGTERM or Ctrl-C. Then the server ends as if it were
    /// killed, says what it waited for, and exits with status 1.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = within(1..=3600_u64))]
    pub(crate) stop_within: u64,
}

impl StopArguments {
    pub(crate) fn bound(&self) -> Duration {
        Duration::from_secs(self.stop_within)
    }
}

/// How a server tells what happens to it, on standard error.
#[derive(Debug, Args)]
pub(crate) struct EventArguments {
    /// The events that the server tells: only what went wrong (error), what an operator should look
    /// at (warn), and what becomes of nodes and views (info).
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL")]
    pub(crate) log_level: LogLevel,
    /// As lines for people, or as a line of JSON each.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub(crate) log_format: LogFormat,
}

/// From what level on events are told.
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

/// How events are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The node's configuration: see docs/seriatim.example.toml.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) events: EventArguments,
    #[command(flatten)]
    pub(crate) stop: StopArguments,
    /// Hold unsynced writes in memory, so that a kill loses what a power cut would. For tests.
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
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change what a log keeps at most; 'none' lifts a limit.
    Set {
        /// The log.
        name: String,
        #[command(flatten)]
        retention: RetentionArguments,
    },
    /// Print what a log promises, who takes part, and what it takes on disks.
    Show {
        /// The log.
        name: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a shard to a log that is in use: it takes its share of what is appended from then on.
    AddShard {
        /// The log.
        name: String,
    },
    /// Let a shard take no new records. What it holds can be read until it is trimmed.
    RemoveShard {
        /// The log.
        name: String,
        /// The number of the shard, as `seriatim log show` prints it.
        #[arg(value_parser = numbers::shard)]
        shard: u32,
    },
    /// Delete a log with all its records, for good.
    Delete {
        /// The log.
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// Its name: letters, digits, '-', '_' and '.'.
    pub(crate) name: String,
    #[arg(long, default_value_t = Order::default(), help = orders(), long_help = each_order())]
    pub(crate) order: Order,
    /// How many shards it is spread over.
    #[arg(long, default_value_t = 2, value_parser = numbers::number::<u32>)]
    pub(crate) shards: u32,
    /// How many replicas each shard has [default: 3, or as many as there are nodes].
    #[arg(long, value_parser = numbers::number::<u32>)]
    pub(crate) replicas: Option<u32>,
    #[arg(long, value_parser = numbers::number::<u32>, help = format!(
        "How many sequencing replicas it has [default: 3, or as many as there are nodes; {} 1]",
        in_logs(|order| order.has_one_sequencer)
    ))]
    pub(crate) sequencers: Option<u32>,
    /// With how few sequencing replicas it goes on accepting appends [default: 2, or 1 if it has
    /// one].
    #[arg(long, value_parser = within(1..=u32::MAX))]
    pub(crate) min_sequencers: Option<u32>,
    /// With how few replicas of each shard it goes on accepting appends [default: 2, or 1 if it has
    /// one].
    #[arg(long, value_parser = within(1..=u32::MAX))]
    pub(crate) min_replicas: Option<u32>,
    /// Where an acknowledged record is: 'disk' or 'memory' of every replica.
    #[arg(long, default_value = "disk")]
    pub(crate) durability: Durability,
    #[arg(long, default_value_t = seriatim_model::limits::DEFAULT_STRIPE, value_parser = numbers::number::<u64>, help = format!(
        "How many consecutive positions, or {} appends of a session, one shard takes",
        in_logs(|order| !order.places_by_position)
    ))]
    pub(crate) stripe: u64,
    /// The largest record, in bytes.
    #[arg(long, default_value_t = seriatim_model::limits::DEFAULT_MAX_RECORD_BYTES, value_parser = numbers::number::<u32>)]
    pub(crate) max_record_bytes: u32,
    #[arg(long, value_name = "TIME", value_parser = interval_us, help = format!(
        "How often a log of order {} is ordered at most, from 0.1ms on [default: 1ms]",
        Order::names_where(|order| order.has_cuts)
    ))]
    pub(crate) interval: Option<u32>,
    #[arg(long, value_name = "CUTS", value_parser = window, help = format!(
        "For how many cuts a log of order {} fixes the quotas of its shards in advance, 2 to 10000 [default: 100]",
        Order::names_where(|order| order.has_quotas)
    ))]
    pub(crate) window: Option<u32>,
    #[arg(long, value_name = "N", value_parser = numbers::number::<u64>, help = format!(
        "After how many positions of the log, 1 to 10000000, a session that appended nothing meanwhile is forgotten; {} after {} \
         times as many, since empty ones count [default: 10000000]",
        in_logs(|order| order.has_quotas),
        seriatim_model::limits::IDLE_TIMES_IF_PADDED
    ))]
    pub(crate) session_idle_positions: Option<u64>,
    #[command(flatten)]
    pub(crate) retention: RetentionArguments,
}

/// The choice of an order, in a line.
fn orders() -> String {
    format!("When order is paid for: {}", Order::names_where(|_| true))
}

/// The same, with what each is, and for whom.
fn each_order() -> String {
    let each = |order: Order| {
        let Properties { name, about, wanted, .. } = order.properties();
        format!("\n\n{name}: {about}. For those who want {wanted}.")
    };
    format!("{}.{}", orders(), Order::ALL.map(each).concat())
}

/// The logs of which this is true.
fn in_logs(is_one: impl Fn(Properties) -> bool) -> String {
    format!("in a log of order {}", Order::names_where(is_one))
}

/// A number of cuts.
fn window(text: &str) -> Result<u32, String> {
    let limits = seriatim_model::limits::WINDOWS;
    let cuts = text.parse().map_err(|_| format!("'{text}' is no number of cuts"))?;
    match limits.contains(&cuts) {
        true => Ok(cuts),
        false => Err(format!("a window has {} to {} cuts", limits.start(), limits.end())),
    }
}

/// A time in microseconds.
fn interval_us(text: &str) -> Result<u32, String> {
    let limits = seriatim_model::limits::INTERVALS_US;
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        return Err(format!("'{text}' is no time: give one with its unit, such as 1ms, 0.2ms or 500us"));
    }
    let micros = u32::try_from(duration(text)?.as_micros()).unwrap_or(u32::MAX);
    let millis = |micros: &u32| f64::from(*micros) / 1000.0;
    let wrong = || format!("an interval has {}ms to {}ms", millis(limits.start()), millis(limits.end()));
    if limits.contains(&micros) { Ok(micros) } else { Err(wrong()) }
}

#[derive(Debug, Args)]
pub(crate) struct AppendArguments {
    /// The log.
    pub(crate) name: String,
    /// The file whose lines to append; - is standard input, too [default: standard input].
    #[arg(long, value_name = "F")]
    pub(crate) file: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t, value_name = "FORM", help = format!(
        "Each line is a record as it is, or one as JSON, as `read --json` prints it, with a key and headers of its own; {}, \
         lines with keys in turn on several shards are slow, since each change of shard waits for an acknowledgement: see \
         --unordered and --shard",
        in_logs(|order| order.has_cuts)
    ))]
    pub(crate) input: InputFormat,
    /// Records end with a NUL byte, not with a newline: a file without one is a single record.
    #[arg(short = '0', long, conflicts_with = "input")]
    pub(crate) null: bool,
    #[arg(long, value_name = "KEY", help = format!(
        "Give each record this key; {}, records with the same key go to the same shard",
        in_logs(|order| !order.places_by_position)
    ))]
    pub(crate) key: Option<String>,
    #[arg(long, value_name = "N", conflicts_with = "key", value_parser = numbers::shard, help = format!(
        "Put all records on this shard, {}; those that are on their way when it is lost or removed go to another",
        in_logs(|order| !order.places_by_position)
    ))]
    pub(crate) shard: Option<u32>,
    #[arg(long, help = format!(
        "Do not mind the order of the lines: append a record again that did not reach its shard in time, and, {}, append \
         to all shards at once that keys choose",
        in_logs(|order| order.has_cuts)
    ))]
    pub(crate) unordered: bool,
    #[arg(long, value_name = "F", conflicts_with = "unordered", help = format!(
        "Keep in this file how far it came, and go on from there if the file exists: run the same command again after an \
         interruption, with the same input or a longer one, and each line is appended once; {} a line that a killed run \
         had only named is left out, and told of",
        in_logs(|order| order.announces == Announced::Id)
    ))]
    pub(crate) resume: Option<PathBuf>,
    /// Wait for the final position of each record.
    #[arg(long)]
    pub(crate) sync: bool,
    /// Print a receipt for each record as soon as it is known, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The form of the records in the input of an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// Records as they are.
    #[default]
    Lines,
    /// Records as JSON, one a line.
    Json,
}

/// How records are printed.
#[derive(Debug, Args)]
pub(crate) struct PrintArguments {
    /// As JSON, with position, time, session, number, and key and headers if there are some.
    #[arg(long)]
    pub(crate) json: bool,
    /// End each record with a NUL byte, not with a newline.
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) null: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArguments {
    /// The log.
    pub(crate) name: String,
    /// The first position to print [default: the first there is].
    #[arg(long, value_name = "P", value_parser = numbers::position)]
    pub(crate) from: Option<u64>,
    /// At most this many records.
    #[arg(long, value_name = "N", value_parser = numbers::records)]
    pub(crate) count: Option<u64>,
    /// Go on after records that are lost, as an operator accepted, and say which they are.
    #[arg(long)]
    pub(crate) skip_lost: bool,
    #[command(flatten)]
    pub(crate) print: PrintArguments,
}

#[derive(Debug, Args)]
pub(crate) struct TailArguments {
    /// The log.
    pub(crate) name: String,
    /// The first position to print [default: the tail].
    #[arg(long, value_name = "P", value_parser = numbers::position)]
    pub(crate) from: Option<u64>,
    /// Stop before this position, when all before it is final [default: never].
    #[arg(long, value_name = "P", value_parser = numbers::position)]
    pub(crate) until: Option<u64>,
    /// Print records before they are final, with lines that say up to where they are, or from where
    /// on they are void. Needs --json.
    #[arg(long)]
    pub(crate) speculative: bool,
    /// Only records whose key begins with PREFIX (key=PREFIX), or that have a header of this kind
    /// whose value does (header:KIND=PREFIX).
    #[arg(long, value_name = "WHICH", value_parser = OsStringValueParser::new().try_map(filter))]
    pub(crate) filter: Option<Filter>,
    /// Only records on these shards, by number, separated by commas.
    #[arg(long, value_name = "N,...", value_parser = numbers::shard, value_delimiter = ',')]
    pub(crate) shards: Option<Vec<u32>>,
    /// Go on after records that are lost, as an operator accepted, and say which they are.
    #[arg(long)]
    pub(crate) skip_lost: bool,
    #[command(flatten)]
    pub(crate) print: PrintArguments,
}

/// Reads which records are wanted.
fn filter(text: OsString) -> Result<Filter, String> {
    let text = text.to_str().ok_or("it is not valid UTF-8")?;
    let (what, prefix) = text.split_once('=').ok_or("write key=PREFIX or header:KIND=PREFIX")?;
    let filter = match (what, what.strip_prefix("header:")) {
        ("key", _) => Filter::key_prefix(prefix.to_owned()),
        (_, Some(kind)) => {
            let kind = kind
                .parse()
                .map_err(|_| format!("'{kind}' is not the kind of a header, 0 to {}", u16::MAX))?;
            Filter::header(kind, prefix.to_owned())
        }
        _ => return Err(format!("'{what}' is neither key nor header:KIND")),
    };
    match filter.is_possible() {
        true => Ok(filter),
        false => Err("it is longer than the key and the headers of a record may be".into()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Say what would be lost if a log that waits for it went on without what no replica holds any
    /// more.
    Recover {
        /// The log.
        name: String,
        /// Let the log go on, without what is lost.
        #[arg(long)]
        accept_loss: bool,
    },
    /// Let other nodes take over all that a node has, without a moment in which there are fewer
    /// replicas, and say when it is safe to stop it.
    Drain {
        /// The node.
        #[arg(value_parser = numbers::node)]
        node: u32,
        /// Return at once; `seriatim status` shows how far it is.
        #[arg(long)]
        no_wait: bool,
        /// Let the node stay after all: it may be given roles again. What others took over stays
        /// with them.
        #[arg(long, conflicts_with = "no_wait")]
        cancel: bool,
    },
    /// Let one node take over all that another has, which may be lost; and say when that is done.
    Replace {
        /// The node that is to go.
        #[arg(value_parser = numbers::node)]
        node: u32,
        /// The node that is to take over.
        #[arg(long, value_name = "NODE", value_parser = numbers::node)]
        by: u32,
        /// Return at once; `seriatim status` shows how far it is.
        #[arg(long)]
        no_wait: bool,
    },
    /// Forget a node that was stopped and has no roles any more. Its number is never used again.
    Remove {
        /// The node.
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
        assert_eq!(window("all"), Err("'all' is no number of cuts".into()));
    }

    #[test]
    fn an_interval_has_a_unit_and_bounds() {
        assert_eq!(
            [interval_us("0.1ms"), interval_us("500us"), interval_us("2ms")],
            [Ok(100), Ok(500), Ok(2000)]
        );
        assert!(interval_us("1us").unwrap_err().contains("0.1ms"));
        for wrong in ["soon", "5", "0", "0.5", "ms", ""] {
            assert!(interval_us(wrong).unwrap_err().contains("is no time"), "{wrong}");
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
