//! Nothing that was appended at a time that is asked for, or later, lies below the answer:
//! everything below it was final before, by the true time and as far as clocks were behind.

use std::time::Duration;

use seriatim_model::Time;

use super::Finding;
use crate::history::{History, Sought};
use crate::operator::Told;

/// The error of clocks that show whole milliseconds.
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
