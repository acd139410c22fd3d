//! The figures that can be found out, and the settings.

use serde::de::IntoDeserializer;
use serde::de::value::Error;
use serde::{Deserialize, Serialize};

/// A figure that can be found out about a subject. They are printed in this order; the names are
/// those in JSON.
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
    /// The number of operations per second.
    #[serde(rename = "rate_per_s")]
    Rate,
    #[serde(rename = "cpu_s_per_million")]
    Cpu,
    /// Millions of bytes that were written to files per second, journals and records.
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
    /// How long records took from their acknowledgement until they were stable, under load.
    #[serde(rename = "stable_lag_p50_ms")]
    StableLagP50,
    #[serde(rename = "stable_lag_p99_ms")]
    StableLagP99,
    /// How long everything acknowledged took to become stable, after the load.
    #[serde(rename = "stable_lag_ms")]
    StableLag,
    /// The appends beside which something was read.
    #[serde(rename = "append_p50_us")]
    AppendP50,
    #[serde(rename = "append_p99_us")]
    AppendP99,
    #[serde(rename = "append_mean_us")]
    AppendMean,
    /// An append and the read of its record.
    #[serde(rename = "append_and_read_p50_us")]
    BothP50,
    #[serde(rename = "append_and_read_p99_us")]
    BothP99,
    /// From when an append should have begun until a subscription had its record, whether that was
    /// final or not.
    #[serde(rename = "delivery_p50_us")]
    DeliveryP50,
    #[serde(rename = "delivery_p99_us")]
    DeliveryP99,
    #[serde(rename = "delivery_mean_us")]
    DeliveryMean,
    /// The same until the subscription was told that the record is final.
    #[serde(rename = "confirm_p50_us")]
    ConfirmP50,
    #[serde(rename = "confirm_p99_us")]
    ConfirmP99,
    #[serde(rename = "confirm_mean_us")]
    ConfirmMean,
    /// The same until the result of a computation on it was out.
    #[serde(rename = "result_p50_us")]
    ResultP50,
    #[serde(rename = "result_p99_us")]
    ResultP99,
    #[serde(rename = "result_mean_us")]
    ResultMean,
    /// From delivery until the program was free to compute; how long it computed; and from then
    /// until the record was final.
    #[serde(rename = "queue_mean_us")]
    QueueMean,
    #[serde(rename = "compute_mean_us")]
    ComputeMean,
    #[serde(rename = "wait_mean_us")]
    WaitMean,
    /// The same until the result was out, of records before, during and after a disturbance.
    #[serde(rename = "result_before_us")]
    ResultBefore,
    #[serde(rename = "result_during_us")]
    ResultDuring,
    #[serde(rename = "result_after_us")]
    ResultAfter,
    /// How many of all records came before they were known to be final; and how many were taken
    /// back.
    #[serde(rename = "predicted_percent")]
    Predicted,
    #[serde(rename = "failed")]
    Failed,
    /// How many of all positions have no record.
    #[serde(rename = "empty_percent")]
    Empty,
    /// Positions without a record per second.
    #[serde(rename = "empty_per_s")]
    EmptyRate,
    /// How much of one processor was used, by all of the process; more than 100 on more than one.
    #[serde(rename = "cpu_percent")]
    Own,
    /// The same by the nodes' threads, by the clients', and by those that write journals and the
    /// rest.
    #[serde(rename = "nodes_percent")]
    Nodes,
    #[serde(rename = "clients_percent")]
    Clients,
    #[serde(rename = "others_percent")]
    Others,
    /// The processor time that nobody used; and that of other processes.
    #[serde(rename = "idle_percent")]
    Idle,
    #[serde(rename = "foreign_percent")]
    Foreign,
    /// The longest time in which nothing was acknowledged, or final.
    #[serde(rename = "gap_ms")]
    Gap,
    /// How often a node took another for gone that was there.
    #[serde(rename = "wrong_suspicions")]
    WrongSuspicions,
    /// Its parts, each up to the step that it is named after.
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
    /// From seal to flush: what is the protocol's own.
    #[serde(rename = "core_ms")]
    Core,
    /// Names per second of a processor, and of the clock.
    #[serde(rename = "names_per_s")]
    Names,
    #[serde(rename = "names_per_clock_s")]
    NamesOnTheClock,
}

/// Latencies, each with its multiple of the floor's.
pub(super) const LATENCIES: [(Figure, Figure); 6] = [
    (Figure::P50, Figure::P50OfFloor),
    (Figure::P90, Figure::P90OfFloor),
    (Figure::P99, Figure::P99OfFloor),
    (Figure::P999, Figure::P999OfFloor),
    (Figure::Max, Figure::MaxOfFloor),
    (Figure::Mean, Figure::MeanOfFloor),
];

impl Figure {
    /// The heading of its column.
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

    /// A value of it, as it is printed; nothing is known of one that is not finite.
    pub(super) fn show(self, value: f64) -> String {
        let decimals = match self {
            _ if !value.is_finite() => return "-".to_owned(),
            Self::Rate | Self::Written | Self::Own | Self::Nodes | Self::Clients => 0,
            Self::Others | Self::Idle | Self::Foreign | Self::Names | Self::NamesOnTheClock => 0,
            Self::WrongSuspicions | Self::Failed | Self::EmptyRate => 0,
            Self::Predicted | Self::Empty => 1,
            _ if self.heading().contains(" us") => 1,
            _ => 2,
        };
        format!("{value:.decimals$}")
    }
}

/// A setting that is the same for a whole row, and differs from row to row. They are told in this
/// order; the names are those in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Setting {
    /// Bytes of a record.
    #[serde(rename = "size")]
    Size,
    #[serde(rename = "clients")]
    Clients,
    /// Appends that each client keeps on their way.
    #[serde(rename = "in_flight")]
    InFlight,
    /// Appends a second that were asked for.
    #[serde(rename = "asked_per_s")]
    Asked,
    #[serde(rename = "shards")]
    Shards,
    /// How long after its acknowledgement a record is read.
    #[serde(rename = "lag_ms")]
    Lag,
    /// How often everything new is read.
    #[serde(rename = "period_ms")]
    Period,
    /// How long a program computes on what has come.
    #[serde(rename = "compute_ms")]
    Compute,
    /// Cuts for which quotas are fixed.
    #[serde(rename = "window")]
    Window,
}

impl Setting {
    /// The text under its axis.
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
        }
    }

    /// A value of it, for people.
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
        }
    }
}

/// The figure, or the setting, that has this name in JSON.
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
