//! The excuses that let something pass although it looks like a broken promise, by kind: an excuse
//! that is never counted hides what it likes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use crate::history::History;

/// Why a broken promise is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excuse {
    /// A log that lost more memory than it can bear ended unavailable: what it acknowledged and was
    /// not read may be gone.
    Unavailable,
    /// A disk was lost while a view was being formed that counted on it alone.
    SpoiledInViewChange,
    /// A run ended with a record that is left damaged only.
    DamagedEnd,
    /// A subscription ended at a record that is left damaged only.
    Withheld,
    /// A reader did not get a record of a log that lost more memory than it can bear.
    Missing,
    /// Such a log gave out what was trimmed.
    Untrimmed,
    /// After an accepted loss, a position had another record.
    Overwritten,
    /// After an accepted loss, a record was at another position, or in the log again.
    Moved,
    /// After an accepted loss, an acknowledged append was not in the log.
    Gone,
    /// After an accepted loss, an append or a tail was below what had been acknowledged before.
    Reordered,
    /// After an accepted loss, nobody had a position.
    Gap,
    /// After an accepted loss, an answer lacked what its shard had given out, or another shard had
    /// it.
    Disowned,
    /// After an accepted loss, a session's numbers had gaps, or went on after its end.
    SessionForgotten,
    /// A store was put aside, which was damaged, or set back, or not synced.
    PutAside,
}

/// How often which excuse was needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excuses(RefCell<BTreeMap<Excuse, u64>>);

impl Excuses {
    /// One was needed.
    pub fn note(&self, excuse: Excuse) {
        *self.0.borrow_mut().entry(excuse).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (excuse, count) in other.0.borrow().iter() {
            *self.0.get_mut().entry(*excuse).or_default() += count;
        }
    }

    /// How often one was needed.
    #[must_use]
    pub fn count(&self, excuse: Excuse) -> u64 {
        self.0.borrow().get(&excuse).copied().unwrap_or_default()
    }
}

impl History {
    /// Whether an excuse holds. That is counted: it is asked for only where a promise would be
    /// broken otherwise.
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
