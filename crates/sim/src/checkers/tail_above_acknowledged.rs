//! The reported tail lies above every append acknowledged before the client asked for the tail.

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{History, Outcome};

pub(super) fn check(history: &History) -> Finding {
    let places = history.places();
    let mut done: Vec<_> = history
        .appends
        .iter()
        .enumerate()
        .filter(|(_, append)| append.outcome == Outcome::Acknowledged)
        .filter_map(|(index, append)| Some((append.completed?, *places.get(&index)?, &append.payload)))
        .collect();
    done.sort_unstable();
    let mut questions: Vec<_> =
        history.tails.iter().filter_map(|question| Some((question.invoked, question.returned?))).collect();
    questions.sort_unstable();
    let mut done = done.into_iter().peekable();
    let mut highest = None;
    for (invoked, (returned, _, tail)) in questions {
        while let Some((completed, position, payload)) =
            done.next_if(|(completed, _, _)| *completed < invoked)
        {
            highest = highest.max(Some((position, completed, payload)));
        }
        let given_up = |((position, known), completed, _): &_| {
            // A lost record may have been appended again, at this position.
            let is_so = history.was_given_up(*position, *completed, returned.max(*known));
            history.excuse(Excuse::Reordered, is_so)
        };
        let above = highest.filter(|found| found.0.0 >= tail && !given_up(found));
        if let Some(((position, _), _, payload)) = above {
            return Err(format!(
                "the tail asked for at moment {invoked} was {tail}, but {payload:?}, acknowledged before, \
                 is at position {position}"
            ));
        }
    }
    Ok(())
}
