//! A description of this machine, and its load meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor and how much of it there is.
pub(super) fn machine() -> String {
    let cores = cores();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    format!("{cores} cores, {}", model.map_or("unknown processor", |(_, model)| model.trim()))
}

/// How many processors there are for this process.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The processor time that this process has used.
pub(super) fn cpu_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

/// The processor time that this thread has used.
pub(super) fn cpu_time_of_this_thread() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The processor time of each kind of thread, by its name. Threads that have ended are not in it.
pub(super) fn cpu_time_of_threads() -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let (name, time) = ticks_of(&stat);
        *times.entry(name.to_owned()).or_default() += time;
    }
    times
}

/// How many bytes of files this process has made different from what is on disk, in whole pages:
/// all that its writes bring to the disk.
pub(super) fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    written.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

/// The time that the processors had nothing to do, of all of them together.
pub(super) fn idle_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // Of the first line: after user, nice and system time, that without work and that in which a
    // disk had some.
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(4).take(2);
    Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// The name and the processor time in a line of `stat`.
fn ticks_of(stat: &str) -> (&str, Duration) {
    // Fields 14 and 15, counted after the name in parentheses; in ticks of 10 ms.
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
