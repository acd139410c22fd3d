//! Time as a number of delays, of syncs, and what timers add.

use std::fmt;

use seriatim_model::Time;

/// The duration of a sync in nanoseconds, so that it is told from hundreds of delays.
const SYNC: u64 = 1_000;
/// A wait of so many nanoseconds is for a timer.
const TIMER: u64 = 100_000;

/// How long things take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// A message on its way.
    pub(crate) delay: u64,
    /// A sync of a journal.
    pub(crate) sync: u64,
}

impl Pace {
    /// A delay is a nanosecond, a sync a thousand of them, and every timer more than all of these:
    /// the digits of a span of time say how often each was waited for.
    pub(crate) const COUNTED: Self = Self { delay: 1, sync: SYNC };
    /// The same without syncs.
    pub(crate) const DELAYS: Self = Self { delay: 1, sync: 0 };
}

/// A span of time in which a delay and a sync took what [`Pace::COUNTED`] says, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spent(u64);

impl Spent {
    /// A longer span has waited for more than the first pause of a client that was turned away.
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
        // A timer that began some delays before the span did is over as many delays before a whole
        // number of its units.
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
