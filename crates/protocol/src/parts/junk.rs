//! The no-op at a position whose record will never come.

use seriatim_model::storage::Run;
use seriatim_model::{Position, Record, RecordId, SessionId};

/// A no-op named after its position, so that all writers write the same.
#[must_use]
pub fn junk(position: Position) -> (RecordId, Record) {
    (RecordId { session: SessionId::NOBODY, number: position.0 }, Record::no_op())
}

/// Whether this is an id of junk.
#[must_use]
pub fn is_junk(id: RecordId) -> bool {
    is_of_nobody(id.session)
}

/// Whether this is the session of junk.
#[must_use]
pub fn is_of_nobody(session: SessionId) -> bool {
    session == SessionId::NOBODY
}

/// Adds a record at a position above all runs.
pub fn push(runs: &mut Vec<Run>, position: Position, named: (RecordId, Record)) {
    match runs.last_mut().filter(|run| run.end() == position) {
        Some(run) => run.records.push(named),
        None => runs.push(Run { first: position, records: vec![named] }),
    }
}
