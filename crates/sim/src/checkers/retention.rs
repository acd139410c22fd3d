//! Limits trim no record younger than the limit in true time, none that is not final, and none that
//! an intact pin keeps.
//!
//! Tolerance: ten elevenths of the age limit suffice, and per shard one part of a segment (file of
//! records) more may be trimmed.

use std::time::Duration;

use seriatim_model::retention::CATCHES_UP;
use seriatim_model::{Pin, Position, Retention, Time};

use super::Finding;
use crate::history::{History, Retained};

/// Limits apply for this long after their change, and new pins are ignored: the node read the entry
/// before.
pub(crate) const APPLIED_LATE: Duration = Duration::from_secs(5);
/// Bytes trimmed along with the last due position, per shard: one part of a segment. A part is 1
/// KiB or a 32nd of the segment; longer writes are split into less than twice that. Segments here
/// hold at most 50,000 bytes and one write, of 100,000 in a burst. A quarter more is for binding
/// logs.
const PART_BYTES: u64 = 12_288;

pub(super) fn check(history: &History) -> Finding {
    for trimmed in &history.retained {
        let stable = final_at(history, trimmed.at);
        if trimmed.trim > stable {
            return Err(format!("trimmed to {} when everything below {stable} was final", trimmed.trim));
        }
        if let Some(pin) = held_at(history, trimmed.at).find(|pin| trimmed.trim > pin.position) {
            return Err(format!("at {} trimmed to {} despite {pin:?}", trimmed.at, trimmed.trim));
        }
        if !limits_at(history, trimmed.at).any(|limits| allows(history, &limits, trimmed)) {
            let limits: Vec<_> = limits_at(history, trimmed.at).collect();
            return Err(format!(
                "at {} trimmed to {} of {stable}, with {} bytes used and {} of them kept, which none of {limits:?} allows",
                trimmed.at, trimmed.trim, trimmed.used, trimmed.kept
            ));
        }
    }
    Ok(())
}

fn allows(history: &History, limits: &Retention, trimmed: &Retained) -> bool {
    let Retained { at, trim, kept, .. } = *trimmed;
    let by_records = limits.records.is_some_and(|most| final_at(history, at).since(trim) >= most);
    let by_age = limits.age_ms.is_some_and(|age| {
        let truly = age * CATCHES_UP / (CATCHES_UP + 1);
        let then = Time(at.0.saturating_sub(truly.saturating_sub(MILLIS) * 1_000_000));
        trim <= final_at(history, then)
    });
    let parts = u64::from(history.shard_count) * PART_BYTES;
    let by_bytes = limits.bytes.is_some_and(|most| kept + SMALL + parts >= most);
    by_records || by_age || by_bytes
}

const MILLIS: u64 = 3;
/// Bytes that may change between the disk measurement and the trim.
const SMALL: u64 = 2048;

fn final_at(history: &History, at: Time) -> Position {
    let index = history.final_at.partition_point(|(then, _)| *then <= at);
    index.checked_sub(1).map_or(Position::ZERO, |index| history.final_at[index].1)
}

/// The pins at a time that had been intact, and had not moved down, for [`APPLIED_LATE`].
fn held_at(history: &History, at: Time) -> impl Iterator<Item = &Pin> {
    let before = |late: Duration| history.pins.partition_point(|(then, _)| *then + late <= at);
    let lists = match before(APPLIED_LATE) {
        0 => &[],
        first => &history.pins[first - 1..before(Duration::ZERO)],
    };
    let intact = |pins: &'_ [Pin], name: &str| {
        pins.iter().find(|pin| pin.name == name && !pin.is_broken).map(|pin| pin.position)
    };
    let last = lists.last().into_iter().flat_map(|(_, pins)| pins);
    last.filter(move |pin| {
        let positions: Vec<_> = lists.iter().map(|(_, pins)| intact(pins, &pin.name)).collect();
        positions.iter().all(Option::is_some) && positions.is_sorted()
    })
}

fn limits_at(history: &History, at: Time) -> impl Iterator<Item = Retention> {
    let limits = &history.limits;
    limits.iter().enumerate().filter_map(move |(index, (since, limits_then))| {
        let is_over = limits.get(index + 1).is_some_and(|(until, _)| *until + APPLIED_LATE < at);
        (*since <= at && !is_over).then_some(*limits_then)
    })
}
