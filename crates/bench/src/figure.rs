//! Measured figures, and settings.

use serde::de::IntoDeserializer;
use serde::de::value::Error;
use serde::{Deserialize, Serialize};

/// A measured figure, in print order, with its JSON name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Figure {
    #[serde(rename = "p50_us")]
    P50,
    #[serde(rename = "p90_us")]
    P90,
    #[serde(rename = "p99_us")]
    P99,
    #[serde(rename = "p999_us")]
    P999,
    #[serde(rename = "max_us")]
    Max,
    #[serde(rename = "mean_us")]
    Mean,
    #[serde(rename = "rate_per_s")]
    Rate,
    #[serde(rename = "cpu_s_per_million")]
    Cpu,
    /// MB per second written to files, journals and records.
    #[serde(rename = "written_mb_per_s")]
    Written,
    #[serde(rename = "floor_ratio_p50")]
    P50OfFloor,
    #[serde(rename = "floor_ratio_p90")]
    P90OfFloor,
    #[serde(rename = "floor_ratio_p99")]
    P99OfFloor,
    #[serde(rename = "floor_ratio_p999")]
    P999OfFloor,
    #[serde(rename = "floor_ratio_max")]
    MaxOfFloor,
    #[serde(rename = "floor_ratio_mean")]
    MeanOfFloor,
    /// Time from acknowledgement until stable, under load.
    #[serde(rename = "stable_lag_p50_ms")]
    StableLagP50,
    #[serde(rename = "stable_lag_p99_ms")]
    StableLagP99,
    /// Time until everything acknowledged is stable, after the load.
    #[serde(rename = "stable_lag_ms")]
    StableLag,
    /// Rate as a part of the rate without a log.
    #[serde(rename = "direct_ratio_rate")]
    RateOfDirect,
    /// Latency while some targets are stopped and return, as multiples of the one before.
    #[serde(rename = "stopped_ratio_p50")]
    StoppedP50,
    #[serde(rename = "stopped_ratio_p99")]
    StoppedP99,
    /// Time from the return of the stopped targets until they have everything.
    #[serde(rename = "caught_up_ms")]
    CaughtUp,
    /// Rows in one transaction of a database.
    #[serde(rename = "rows_per_commit")]
    RowsPerCommit,
    /// Latency of the appends that run beside reads.
    #[serde(rename = "append_p50_us")]
    AppendP50,
    #[serde(rename = "append_p99_us")]
    AppendP99,
    #[serde(rename = "append_mean_us")]
    AppendMean,
    /// Latency of an append plus the read of its record.
    #[serde(rename = "append_and_read_p50_us")]
    BothP50,
    #[serde(rename = "append_and_read_p99_us")]
    BothP99,
    /// From an append's scheduled start until delivery to a target, or to a subscription, final or
    /// not.
    #[serde(rename = "delivery_p50_us")]
    DeliveryP50,
    #[serde(rename = "delivery_p99_us")]
    DeliveryP99,
    #[serde(rename = "delivery_mean_us")]
    DeliveryMean,
    /// From an append's scheduled start until the subscription confirms the record.
    #[serde(rename = "confirm_p50_us")]
    ConfirmP50,
    #[serde(rename = "confirm_p99_us")]
    ConfirmP99,
    #[serde(rename = "confirm_mean_us")]
    ConfirmMean,
    /// From an append's scheduled start until the result of a computation is released.
    #[serde(rename = "result_p50_us")]
    ResultP50,
    #[serde(rename = "result_p99_us")]
    ResultP99,
    #[serde(rename = "result_mean_us")]
    ResultMean,
    /// Times from delivery until the computation, of the computation, and from its end until final.
    #[serde(rename = "queue_mean_us")]
    QueueMean,
    #[serde(rename = "compute_mean_us")]
    ComputeMean,
    #[serde(rename = "wait_mean_us")]
    WaitMean,
    /// Time until a result, for appends before, during and after a disturbance.
    #[serde(rename = "result_before_us")]
    ResultBefore,
    #[serde(rename = "result_during_us")]
    ResultDuring,
    #[serde(rename = "result_after_us")]
    ResultAfter,
    /// Percentage of records delivered before they were final; failed predictions.
    #[serde(rename = "predicted_percent")]
    Predicted,
    #[serde(rename = "failed")]
    Failed,
    #[serde(rename = "empty_percent")]
    Empty,
    #[serde(rename = "empty_per_s")]
    EmptyRate,
    /// Processor use of the process, in percent of one processor.
    #[serde(rename = "cpu_percent")]
    Own,
    /// Processor use of nodes' threads, clients' threads, and other threads, such as journal
    /// writers.
    #[serde(rename = "nodes_percent")]
    Nodes,
    #[serde(rename = "clients_percent")]
    Clients,
    #[serde(rename = "others_percent")]
    Others,
    /// Idle processor time, and processor time of other processes.
    #[serde(rename = "idle_percent")]
    Idle,
    #[serde(rename = "foreign_percent")]
    Foreign,
    /// Longest time without an acknowledgement or a final record.
    #[serde(rename = "gap_ms")]
    Gap,
    /// Suspicions of nodes that were alive.
    #[serde(rename = "wrong_suspicions")]
    WrongSuspicions,
    /// Parts of the gap, each named after the step that ends it.
    #[serde(rename = "detect_ms")]
    Detect,
    #[serde(rename = "claim_ms")]
    Claim,
    #[serde(rename = "seal_ms")]
    Seal,
    #[serde(rename = "fence_ms")]
    Fence,
    #[serde(rename = "flush_ms")]
    Flush,
    #[serde(rename = "stage_ms")]
    Stage,
    #[serde(rename = "register_ms")]
    Register,
    #[serde(rename = "resume_ms")]
    Resume,
    /// From seal to flush: the protocol's own part.
    #[serde(rename = "core_ms")]
    Core,
    /// Names that a sequencing replica orders per second, of processor time and of elapsed time.
    #[serde(rename = "names_per_s")]
    Names,
    #[serde(rename = "names_per_clock_s")]
    NamesOnTheClock,
}

/// Latencies, each with its multiple of the floor.
pub(super) const LATENCIES: [(Figure, Figure); 6] = [
    (Figure::P50, Figure::P50OfFloor),
    (Figure::P90, Figure::P90OfFloor),
    (Figure::P99, Figure::P99OfFloor),
    (Figure::P999, Figure::P999OfFloor),
    (Figure::Max, Figure::MaxOfFloor),
    (Figure::Mean, Figure::MeanOfFloor),
];

impl Figure {
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::P50 => "p50 us",
            Self::P90 => "p90 us",
            Self::P99 => "p99 us",
            Self::P999 => "p99.9 us",
            Self::Max => "max us",
            Self::Mean => "mean us",
            Self::Rate => "per s",
            Self::Cpu => "cpu s/M",
            Self::Written => "written MB/s",
            Self::P50OfFloor
            | Self::P90OfFloor
            | Self::P99OfFloor
            | Self::P999OfFloor
            | Self::MaxOfFloor
            | Self::MeanOfFloor => "x floor",
            Self::RateOfDirect => "of direct",
            Self::StoppedP50 => "stopped, x p50",
            Self::StoppedP99 => "stopped, x p99",
            Self::CaughtUp => "caught up ms",
            Self::RowsPerCommit => "rows per commit",
            Self::StableLagP50 => "lag p50 ms",
            Self::StableLagP99 => "lag p99 ms",
            Self::StableLag => "lag after ms",
            Self::AppendP50 => "append p50 us",
            Self::AppendP99 => "append p99 us",
            Self::AppendMean => "append mean us",
            Self::BothP50 => "both p50 us",
            Self::BothP99 => "both p99 us",
            Self::DeliveryP50 => "delivery p50 us",
            Self::DeliveryP99 => "delivery p99 us",
            Self::DeliveryMean => "delivery mean us",
            Self::ConfirmP50 => "confirm p50 us",
            Self::ConfirmP99 => "confirm p99 us",
            Self::ConfirmMean => "confirm mean us",
            Self::ResultP50 => "result p50 us",
            Self::ResultP99 => "result p99 us",
            Self::ResultMean => "result mean us",
            Self::QueueMean => "queue mean us",
            Self::ComputeMean => "compute mean us",
            Self::WaitMean => "wait mean us",
            Self::ResultBefore => "before us",
            Self::ResultDuring => "during us",
            Self::ResultAfter => "after us",
            Self::Predicted => "predicted %",
            Self::Failed => "failed",
            Self::Empty => "empty %",
            Self::EmptyRate => "empty per s",
            Self::Own => "cpu %",
            Self::Nodes => "nodes %",
            Self::Clients => "clients %",
            Self::Others => "others %",
            Self::Idle => "idle %",
            Self::Foreign => "foreign %",
            Self::Gap => "gap ms",
            Self::WrongSuspicions => "wrong susp.",
            Self::Detect => "detect",
            Self::Claim => "claim",
            Self::Seal => "seal",
            Self::Fence => "fence",
            Self::Flush => "flush",
            Self::Stage => "stage",
            Self::Register => "register",
            Self::Resume => "resume",
            Self::Core => "seal to flush",
            Self::Names => "names per s",
            Self::NamesOnTheClock => "on the clock",
        }
    }

    /// Prints a value; `-` if it is not finite.
    pub(super) fn show(self, value: f64) -> String {
        let decimals = match self {
            _ if !value.is_finite() => return "-".to_owned(),
            Self::Rate | Self::Written | Self::Own | Self::Nodes | Self::Clients => 0,
            Self::Others | Self::Idle | Self::Foreign | Self::Names | Self::NamesOnTheClock => 0,
            Self::WrongSuspicions | Self::Failed | Self::EmptyRate => 0,
            Self::CaughtUp => 0,
            Self::Predicted | Self::Empty | Self::RowsPerCommit => 1,
            _ if self.heading().contains(" us") => 1,
            _ => 2,
        };
        format!("{value:.decimals$}")
    }
}

/// A setting that varies between rows, in print order, with its JSON name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Setting {
    #[serde(rename = "size")]
    Size,
    #[serde(rename = "clients")]
    Clients,
    /// Appends in flight per client.
    #[serde(rename = "in_flight")]
    InFlight,
    /// Requested appends per second.
    #[serde(rename = "asked_per_s")]
    Asked,
    #[serde(rename = "shards")]
    Shards,
    /// Delay from a record's acknowledgement until its read.
    #[serde(rename = "lag_ms")]
    Lag,
    /// Interval between reads, each of everything new.
    #[serde(rename = "period_ms")]
    Period,
    /// Computing time per batch.
    #[serde(rename = "compute_ms")]
    Compute,
    /// Number of cuts with fixed quotas.
    #[serde(rename = "window")]
    Window,
    /// Targets of a player.
    #[serde(rename = "targets")]
    Targets,
    /// Keys of a transaction.
    #[serde(rename = "keys")]
    Keys,
}

impl Setting {
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Size => "bytes of a record",
            Self::Clients => "clients",
            Self::InFlight => "in flight for each client",
            Self::Asked => "appends per second",
            Self::Shards => "shards",
            Self::Lag => "lag ms",
            Self::Period => "period ms",
            Self::Compute => "computing, ms",
            Self::Window => "window, cuts",
            Self::Targets => "targets",
            Self::Keys => "keys of a transaction",
        }
    }

    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Size => format!("{value} B"),
            Self::Clients => format!("{value} clients"),
            Self::InFlight => format!("{value} in flight"),
            Self::Asked => format!("{value}/s"),
            Self::Shards if value == 1.0 => "1 shard".to_owned(),
            Self::Shards => format!("{value} shards"),
            Self::Lag => format!("lag {value} ms"),
            Self::Period => format!("every {value} ms"),
            Self::Compute => format!("computing for {value} ms"),
            Self::Window => format!("window of {value} cuts"),
            Self::Targets => format!("{value} targets"),
            Self::Keys => format!("{value} KB"),
        }
    }
}

pub(super) fn named<'de, T: Deserialize<'de>>(name: &'de str) -> Option<T> {
    let name: serde::de::value::StrDeserializer<'de, Error> = name.into_deserializer();
    T::deserialize(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_settings_are_known_by_their_names() {
        assert_eq!(named("p999_us"), Some(Figure::P999));
        assert_eq!(named("lag_ms"), Some(Setting::Lag));
        assert_eq!((named::<Figure>("lag_ms"), named::<Setting>("rounds")), (None, None));
    }

    #[test]
    fn what_is_not_known_is_shown_as_such() {
        assert_eq!(Figure::P50OfFloor.show(f64::NAN), "-");
        assert_eq!(Figure::Rate.show(1234.5), "1234");
        assert_eq!([Figure::P50.show(0.25), Figure::Gap.show(0.25)], ["0.2", "0.25"]);
    }
}
