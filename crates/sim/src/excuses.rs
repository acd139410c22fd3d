//! Excuses for apparent violations, counted by kind: an excuse that no run ever needs would hide
//! real violations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use crate::history::History;

/// Why an apparent violation is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excuse {
    /// A log that lost too much memory ended unavailable: acknowledged records that were never read
    /// may be gone.
    Unavailable,
    /// A disk was lost while a view was formed that relied on it alone.
    SpoiledInViewChange,
    /// A run ended with a record whose only copies are damaged.
    DamagedEnd,
    /// A subscription ended at a record whose only copies are damaged.
    Withheld,
    /// A reader missed a record of a log that lost too much memory.
    Missing,
    /// A log that lost too much memory served trimmed records.
    Untrimmed,
    /// After an accepted loss, a position had another record.
    Overwritten,
    /// After an accepted loss, a record was at another position, or in the log again.
    Moved,
    /// After an accepted loss, an acknowledged append was not in the log.
    Gone,
    /// After an accepted loss, an append or a tail was below an earlier acknowledged append.
    Reordered,
    /// After an accepted loss, no shard had a position.
    Gap,
    /// After an accepted loss, an answer lacked records that its shard or another one had served.
    Disowned,
    /// After an accepted loss, a session's numbers had gaps or continued after its end.
    SessionForgotten,
    /// A damaged, set back or unsynced store was put aside.
    PutAside,
}

/// Number of uses of each excuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excuses(RefCell<BTreeMap<Excuse, u64>>);

impl Excuses {
    /// Counts one use.
    pub fn note(&self, excuse: Excuse) {
        *self.0.borrow_mut().entry(excuse).or_default() += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (excuse, count) in other.0.borrow().iter() {
            *self.0.get_mut().entry(*excuse).or_default() += count;
        }
    }

    /// Number of uses.
    #[must_use]
    pub fn count(&self, excuse: Excuse) -> u64 {
        self.0.borrow().get(&excuse).copied().unwrap_or_default()
    }
}

impl History {
    /// Counts the excuse if it `holds`, and returns `holds`. Call it only where a promise would be
    /// broken without the excuse.
    pub fn excuse(&self, excuse: Excuse, holds: bool) -> bool {
        if holds {
            self.excuses.note(excuse);
        }
        holds
    }
}

impl fmt::Display for Excuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.borrow();
        if counts.is_empty() {
            return f.write_str("nothing excused");
        }
        let texts: Vec<String> = counts.iter().map(|(excuse, count)| format!("{excuse:?} {count}")).collect();
        write!(f, "excused ({})", texts.join(", "))
    }
}
