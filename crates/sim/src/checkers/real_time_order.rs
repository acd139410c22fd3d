//! If append B started after append A was acknowledged, B's position is greater than A's.

use super::Finding;
use crate::history::{Append, History, Outcome};

pub(super) fn check(history: &History) -> Finding {
    let positions = history.positions();
    let placed = |(index, append): (usize, &'_ Append)| {
        positions.get(&index).map(|position| (append.clone(), *position))
    };
    let placed: Vec<_> = history.appends.iter().enumerate().filter_map(placed).collect();
    let acknowledged = |append: &Append| append.outcome == Outcome::Acknowledged;
    let mut done: Vec<_> = placed.iter().filter(|(append, _)| acknowledged(append)).collect();
    done.sort_by_key(|(append, _)| append.completed);
    let mut started: Vec<_> = placed.iter().collect();
    started.sort_by_key(|(append, _)| append.invoked);
    let mut done = done.into_iter().peekable();
    let mut highest: Option<&(Append, seriatim_model::Position)> = None;
    for later in started {
        while let Some(earlier) = done.next_if(|(append, _)| append.completed < Some(later.0.invoked)) {
            if highest.is_none_or(|(_, position)| earlier.1 > *position) {
                highest = Some(earlier);
            }
        }
        let given_up = |earlier: &Append, position| {
            let bound = later.0.completed.unwrap_or(u64::MAX);
            history.was_given_up(position, earlier.completed.unwrap_or_default(), bound)
        };
        let above =
            highest.filter(|(earlier, position)| *position >= later.1 && !given_up(earlier, *position));
        if let Some((earlier, position)) = above {
            return Err(format!(
                "{:?} was acknowledged, at position {position}, before {:?} started, at position {}",
                earlier.payload, later.0.payload, later.1
            ));
        }
    }
    Ok(())
}
