//! The position found for a given time has no record below it that was appended at or after that
//! time: lower positions were final before, by true time plus the lag of clocks.

use std::time::Duration;

use seriatim_model::Time;

use super::Finding;
use crate::history::{History, Sought};
use crate::operator::Told;

/// Error of clocks with millisecond resolution.
const MILLIS: u64 = 3;

pub(super) fn check(history: &History) -> Finding {
    let told = history.told.iter().filter_map(|told| match told {
        Told::Sought(sought) => Some(sought),
        _ => None,
    });
    for Sought { right_ms, answer } in history.sought.iter().chain(told) {
        let latest = Time::ZERO + Duration::from_millis(right_ms + history.clocks_behind_ms + MILLIS);
        let index = history.final_at.partition_point(|(then, _)| *then <= latest);
        let was_final = index.checked_sub(1).map_or(0, |index| history.final_at[index].1.0);
        if answer.0 > was_final {
            return Err(format!(
                "of the time {right_ms} ms after the beginning it was said that it begins at {answer}, when only what is \
                 below {was_final} was final"
            ));
        }
    }
    Ok(())
}
