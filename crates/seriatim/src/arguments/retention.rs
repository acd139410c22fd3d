//! Parses retention limits and times of the command line.

use std::time::{Duration, SystemTime};

use clap::Args;
use seriatim_model::retention::LimitChange;
use seriatim_model::{Order, Retention, RetentionChange};

/// The limits of a log.
#[derive(Debug, Args)]
pub(crate) struct RetentionArguments {
    /// Keep records for this time, such as 7d, 12h or 90s; older records are trimmed.
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub(crate) retain_age: Option<LimitArgument>,
    /// Keep at most this many bytes of records, such as 10GiB, each record counted once; the oldest
    /// are trimmed first.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) retain_bytes: Option<LimitArgument>,
    #[arg(long, value_name = "N", value_parser = records, help = format!(
        "Keep the last N positions; records below them are trimmed. Empty positions count: in a log of order {} most positions \
         may be empty",
        Order::names_where(|order| order.has_quotas)
    ))]
    pub(crate) retain_records: Option<LimitArgument>,
}

/// A limit. None: the log has no such limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitArgument(Option<u64>);

impl RetentionArguments {
    /// An absent option changes nothing.
    pub(crate) fn change(&self) -> RetentionChange {
        let change = |limit: Option<LimitArgument>| match limit {
            None => LimitChange::Keep,
            Some(LimitArgument(None)) => LimitChange::Lift,
            Some(LimitArgument(Some(limit))) => LimitChange::Set(limit),
        };
        RetentionChange {
            age_ms: change(self.retain_age),
            bytes: change(self.retain_bytes),
            records: change(self.retain_records),
        }
    }

    pub(crate) fn limits(&self) -> Retention {
        self.change().applied_to(Retention::default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.retain_age.is_none() && self.retain_bytes.is_none() && self.retain_records.is_none()
    }
}

const NONE: &str = "none";

/// Parses a limit, and checks it as the model does.
fn limit(text: &str, read: impl FnOnce(&str) -> Result<Retention, String>) -> Result<LimitArgument, String> {
    if text == NONE {
        return Ok(LimitArgument(None));
    }
    let limits = read(text)?;
    limits.check()?;
    Ok(LimitArgument(limits.age_ms.or(limits.bytes).or(limits.records)))
}

fn age(text: &str) -> Result<LimitArgument, String> {
    limit(text, |text| {
        let wrong = |_| {
            format!(
                "'{text}' is not a duration; use a unit, for example 7d, 12h or 90s ('none' removes the limit)"
            )
        };
        let age = humantime::parse_duration(text).map_err(wrong)?;
        let age_ms = Some(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        Ok(Retention { age_ms, ..Retention::default() })
    })
}

fn bytes(text: &str) -> Result<LimitArgument, String> {
    limit(text, |text| {
        let bytes = byte_count(text).map_err(|wrong| format!("{wrong} ('none' removes the limit)"))?;
        Ok(Retention { bytes: Some(bytes), ..Retention::default() })
    })
}

fn records(text: &str) -> Result<LimitArgument, String> {
    limit(text, |text| {
        let wrong = |_| {
            format!(
                "'{text}' is not a number of positions; give one such as 1000000 ('none' removes the limit)"
            )
        };
        Ok(Retention { records: Some(text.parse().map_err(wrong)?), ..Retention::default() })
    })
}

/// Parses a number of bytes with an optional unit.
pub(crate) fn byte_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a number of bytes; give one such as 10GiB, 500MB or 1048576");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1000 * 1000,
        "GB" => 1000 * 1000 * 1000,
        "TB" => 1000 * 1000 * 1000 * 1000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let is_number = part.len() <= 9 && part.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number || digits.ends_with('.') {
        return Err(wrong());
    }
    let part: u64 = if part.is_empty() { 0 } else { part.parse().map_err(|_| wrong())? };
    let tens = 10u64.pow(digits.split_once('.').map_or(0, |(_, part)| part.len() as u32));
    let more = u64::try_from(u128::from(unit) * u128::from(part) / u128::from(tens)).map_err(|_| wrong())?;
    whole.checked_mul(unit).and_then(|bytes| bytes.checked_add(more)).ok_or_else(wrong)
}

/// Fewest digits of seconds since 1970, so from 1973 on. A shorter number may be a year or a date.
const DIGITS_OF_SECONDS: usize = 9;
const LAST_SECOND: u64 = 253_402_300_799;

/// Parses an instant: a date with an optional time of day and offset from UTC, seconds since 1970,
/// or an age.
pub(super) fn instant(text: &str) -> Result<SystemTime, String> {
    instant_at(text, SystemTime::now())
}

fn instant_at(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    let instant = match text.strip_suffix(" ago") {
        Some(age) => humantime::parse_duration(age.trim()).ok().and_then(|age| now.checked_sub(age)),
        None => seconds(text).or_else(|| date(text)),
    };
    instant.filter(|instant| *instant >= SystemTime::UNIX_EPOCH).ok_or_else(|| {
        format!(
            "'{text}' is not a time; give a date, such as 2026-11-22, 2026-11-22T10:00Z or 2026-11-22T12:00+02:00 (UTC without an \
             offset); seconds since 1970, such as 1795341600; or an age, such as '1h ago'"
        )
    })
}

fn seconds(text: &str) -> Option<SystemTime> {
    let is_number = text.len() >= DIGITS_OF_SECONDS && text.bytes().all(|digit| digit.is_ascii_digit());
    let seconds = text.parse().ok().filter(|seconds| is_number && *seconds <= LAST_SECOND)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn date(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text.trim_end_matches('Z'), "00:00:00"));
    let (time, offset) = match time.find(['Z', '+', '-']) {
        Some(end) => (time[..end].trim_end(), &time[end..]),
        None => (time, "Z"),
    };
    let seconds = if time.matches(':').count() == 1 { ":00" } else { "" };
    let as_in_utc = humantime::parse_rfc3339(&format!("{date}T{time}{seconds}Z")).ok()?;
    // East of Greenwich, clocks are ahead of UTC.
    match offset.split_at(1) {
        ("Z", "") => Some(as_in_utc),
        ("+", offset) => as_in_utc.checked_sub(offset_of(offset)?),
        ("-", offset) => as_in_utc.checked_add(offset_of(offset)?),
        _ => None,
    }
}

/// Parses an offset from UTC: `02`, `0200` or `02:00`.
fn offset_of(text: &str) -> Option<Duration> {
    let digits = text.replacen(':', "", usize::from(text.find(':') == Some(2)));
    let is_offset = matches!(digits.len(), 2 | 4) && digits.bytes().all(|digit| digit.is_ascii_digit());
    let (hours, minutes) = is_offset.then(|| digits.split_at(2))?;
    let hours: u64 = hours.parse().ok().filter(|hours| *hours < 24)?;
    let minutes: u64 =
        if minutes.is_empty() { 0 } else { minutes.parse().ok().filter(|minutes| *minutes < 60)? };
    Some(Duration::from_secs((hours * 60 + minutes) * 60))
}

pub(crate) fn age_in_words(age_ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(age_ms)).to_string()
}

pub(crate) fn bytes_in_words(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(limit: Result<LimitArgument, String>) -> Option<u64> {
        limit.expect("it is a limit").0
    }

    #[test]
    fn limits_have_units() {
        assert_eq!(
            [age("7d"), age("90s"), age("1h 30m")].map(is),
            [Some(604_800_000), Some(90_000), Some(5_400_000)]
        );
        let sizes = ["10GiB", "500MB", "1048576", "1.5MiB", "none"].map(|text| is(bytes(text)));
        assert_eq!(sizes, [Some(10 << 30), Some(500_000_000), Some(1 << 20), Some(3 << 19), None]);
        assert_eq!(is(records("1000")), Some(1000));
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (wrong, words) in [
            (age("soon"), "'soon' is not a duration; use a unit, for example 7d"),
            (age("7"), "'7' is not a duration"),
            (age("10ms"), "records are kept for 1 s to 36500 days, not for 0.01 s"),
            (age("-3d"), "'-3d' is not a duration"),
            (bytes("ten"), "'ten' is not a number of bytes"),
            (bytes("10"), "a log keeps 64 KiB to 256 PiB, not 10 bytes"),
            (bytes("1.GiB"), "is not a number of bytes"),
            (bytes("99999999999TiB"), "is not a number of bytes"),
            (bytes("-1"), "is not a number of bytes"),
            (records("0"), "positions, not 0"),
            (records("many"), "'many' is not a number of positions"),
        ] {
            let said = wrong.expect_err(words);
            assert!(said.contains(words), "{said}");
        }
        for wrong in [
            "",
            "yesterday",
            "2026-13-01",
            "2026-11-22T25:00Z",
            "10:00",
            "2026",
            "20261122",
            "1795341600000",
            "-1795341600",
            "1h",
            "soon ago",
            "99999y ago",
            "1969-12-31T23:59Z",
            "1970-01-01T00:00+00:01",
            "2026-11-22T10:00+2",
            "2026-11-22T10:00+24:00",
            "2026-11-22T10:00+02:60",
            "2026-11-22T10:00+0:200",
            "2026-11-22T10:00+02:00Z",
            "2026-11-22T10:00Z+02:00",
            "2026-11-22+02:00",
        ] {
            let said = instant(wrong).expect_err(wrong);
            assert!(said.starts_with(&format!("'{wrong}' is not a time; ")), "{said}");
            for form in ["2026-11-22T10:00Z", "2026-11-22T12:00+02:00", "seconds since 1970", "'1h ago'"] {
                assert!(said.contains(form), "{said}");
            }
        }
    }

    #[test]
    fn an_instant_may_leave_out_what_is_zero() {
        let all =
            ["2026-11-22T10:00Z", "2026-11-22 10:00", "2026-11-22T10:00:00Z", "2026-11-22T10:00:00.000Z"];
        let seconds =
            all.map(|text| instant(text).unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
        assert_eq!(seconds, [1_795_341_600; 4]);
        assert_eq!(instant("1970-01-02"), Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)));
    }
    #[test]
    fn an_instant_may_have_an_offset_or_be_seconds_or_an_age() {
        let at = |seconds| Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        for same in [
            "2026-11-22T12:00+02:00",
            "2026-11-22 12:00:00+02:00",
            "2026-11-22 12:00 +02:00",
            "2026-11-22T12:00+0200",
            "2026-11-22T12:00+02",
            "2026-11-22T04:30-05:30",
            "2026-11-22T10:00-00:00",
            "2026-11-23T00:00:00.000+14:00",
            "1795341600",
        ] {
            assert_eq!(instant(same), at(1_795_341_600), "{same}");
        }
        assert_eq!((instant("100000000"), instant("253402300799")), (at(100_000_000), at(LAST_SECOND)));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_341_600);
        for (age, seconds) in
            [("1h ago", 3600), ("1h 30m ago", 5400), ("90 minutes ago", 5400), ("7d ago", 604_800)]
        {
            assert_eq!(instant_at(age, now), at(1_795_341_600 - seconds), "{age}");
        }
    }
}
