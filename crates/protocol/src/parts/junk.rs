//! The no-op that stands at a position whose record will never come.

use seriatim_model::storage::Run;
use seriatim_model::{Position, Record, RecordId, SessionId};

/// Junk: a no-op that is called after its position, so that every writer writes the same.
#[must_use]
pub fn junk(position: Position) -> (RecordId, Record) {
    (RecordId { session: SessionId::NOBODY, number: position.0 }, Record::no_op())
}

/// Whether this is what junk is called.
#[must_use]
pub fn is_junk(id: RecordId) -> bool {
    is_of_nobody(id.session)
}

/// Whether what is in this session is junk.
#[must_use]
pub fn is_of_nobody(session: SessionId) -> bool {
    session == SessionId::NOBODY
}

/// Adds a record to runs, at a position after all that they have.
pub fn push(runs: &mut Vec<Run>, position: Position, named: (RecordId, Record)) {
    match runs.last_mut().filter(|run| run.end() == position) {
        Some(run) => run.records.push(named),
        None => runs.push(Run { first: position, records: vec![named] }),
    }
}
