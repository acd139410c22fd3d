//! Time as a number of delays, syncs and timers.

use std::fmt;

use seriatim_model::Time;

/// A sync in nanoseconds, distinct from hundreds of delays.
const SYNC: u64 = 1_000;
/// A wait of this many nanoseconds is for a timer.
const TIMER: u64 = 100_000;

/// Durations of a message delay and of a sync, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) delay: u64,
    pub(crate) sync: u64,
}

impl Pace {
    /// A delay takes 1 ns, a sync 1000 ns, and every timer more: the digits of a duration count the
    /// waits for each.
    pub(crate) const COUNTED: Self = Self { delay: 1, sync: SYNC };
    /// A pace at which syncs take no time.
    pub(crate) const DELAYS: Self = Self { delay: 1, sync: 0 };
}

/// A duration at [`Pace::COUNTED`], in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spent(u64);

impl Spent {
    /// First pause of a rejected client: a shorter duration contains no such pause.
    pub(crate) const RETRY: Self = Self(30 * TIMER);

    /// The message delays of a span that contains nothing else.
    pub(crate) fn delays(self) -> u64 {
        assert!(self.0 < SYNC, "{self} are more than delays");
        self.0
    }

    pub(crate) fn between(began: Time, ended: Time) -> Self {
        Self(u64::try_from((ended - began).as_nanos()).expect("minutes at most"))
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A timer that began a few delays before the span ends as many delays before a whole number
        // of its units.
        let delays = self.0 % SYNC;
        let (delays, nanos) = if delays > SYNC / 2 { (0, self.0 + SYNC - delays) } else { (delays, self.0) };
        let syncs = nanos % TIMER / SYNC;
        let ms = (nanos / TIMER).div_ceil(10);
        let counted = |count: u64, unit: &str| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
        let parts =
            [(delays, counted(delays, "delay")), (syncs, counted(syncs, "sync")), (ms, format!("{ms} ms"))];
        let parts: Vec<String> =
            parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        f.write_str(&parts.join(" + "))
    }
}
