//! The rules that roles and checkers share.

use seriatim_model::Position;

/// Positions below this are final: every replica dropped them, so every replica that a view change may
/// choose starts above them (LazyLog §4.3).
#[must_use]
pub fn stable_bound(confirmed: impl Iterator<Item = Position>) -> Position {
    confirmed.min().unwrap_or(Position::ZERO)
}

/// The tail: a bound above the position of every acknowledged append. An acknowledged record is held or
/// ordered on every replica; whichever replica's order wins, the record lies below that replica's count.
#[must_use]
pub fn tail(counts: impl Iterator<Item = Position>) -> Position {
    counts.max().unwrap_or(Position::ZERO)
}

/// How far a session is committed: every member of one view acknowledged it.
#[must_use]
pub fn committed(acknowledged: impl Iterator<Item = u64>) -> u64 {
    acknowledged.min().unwrap_or(0)
}
