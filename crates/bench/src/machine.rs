//! Description and load of this machine.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(super) fn machine() -> String {
    let cores = cores();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    format!("{cores} cores, {}", model.map_or("unknown processor", |(_, model)| model.trim()))
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(super) fn cpu_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

pub(super) fn cpu_time_of_this_thread() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Processor time by thread name, without threads that have ended.
pub(super) fn cpu_time_of_threads() -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let (name, time) = ticks_of(&stat);
        *times.entry(name.to_owned()).or_default() += time;
    }
    times
}

/// Bytes that this process's writes bring to the disk, in whole pages.
pub(super) fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    written.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

/// Idle time, summed over all processors.
pub(super) fn idle_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // Skip the word `cpu` and the times user, nice and system; take the times idle and waiting for
    // disks.
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(4).take(2);
    Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// Name and processor time in a `stat` line.
fn ticks_of(stat: &str) -> (&str, Duration) {
    // Fields 14 and 15 of the line (user and system time, in ticks of 10 ms), counted after the
    // name in parentheses.
    let (name, fields) = stat.rsplit_once(')').unwrap_or_default();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    (name.split_once('(').map_or(name, |(_, name)| name), Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_parentheses_and_spaces() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14";
        assert_eq!(ticks_of(stat), ("a (b) c", Duration::from_secs(2)));
        assert_eq!(ticks_of(""), ("", Duration::ZERO));
    }
}
