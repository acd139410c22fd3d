//! If append B started after append A was acknowledged, B's position is greater than A's.

use seriatim_model::Position;

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{Append, History, Moment, Outcome};

pub(super) fn check(history: &History) -> Finding {
    let places = history.places();
    let placed = |(index, append): (usize, &'_ Append)| {
        places.get(&index).map(|(position, known)| (append.clone(), *position, *known))
    };
    let placed: Vec<_> = history.appends.iter().enumerate().filter_map(placed).collect();
    let acknowledged = |append: &Append| append.outcome == Outcome::Acknowledged;
    let mut done: Vec<_> = placed.iter().filter(|(append, ..)| acknowledged(append)).collect();
    done.sort_by_key(|(append, ..)| append.completed);
    let mut started: Vec<_> = placed.iter().collect();
    started.sort_by_key(|(append, ..)| append.invoked);
    let mut done = done.into_iter().peekable();
    let mut highest: Option<&(Append, Position, Moment)> = None;
    for later in started {
        while let Some(earlier) = done.next_if(|(append, ..)| append.completed < Some(later.0.invoked)) {
            if highest.is_none_or(|(_, position, _)| earlier.1 > *position) {
                highest = Some(earlier);
            }
        }
        let given_up = |(earlier, position, known): &(Append, Position, Moment)| {
            // An application may have appended a lost record again after it waited for later
            // appends too. Then this is the record's second position.
            let bound = later.0.completed.unwrap_or(Moment::MAX).max(later.2).max(*known);
            let is_so = history.was_given_up(*position, earlier.completed.unwrap_or_default(), bound);
            history.excuse(Excuse::Reordered, is_so)
        };
        let above = highest.filter(|found| found.1 >= later.1 && !given_up(found));
        if let Some((earlier, position, _)) = above {
            return Err(format!(
                "{:?} was acknowledged, at position {position}, before {:?} started, at position {}",
                earlier.payload, later.0.payload, later.1
            ));
        }
    }
    Ok(())
}
