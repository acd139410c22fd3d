//! After the last fault everything completes in bounded time: appends, questions, membership,
//! reads. A log that lost more than it can bear reports that.

use super::Finding;
use crate::excuses::Excuse;
use crate::history::{End, History, Outcome};

pub(super) fn check(history: &History) -> Finding {
    if let Some(problem) = history.problems.first() {
        return Err(problem.clone());
    }
    if let Some((_, _, told)) = history.withheld.first() {
        return Err(told.clone());
    }
    match &history.end {
        End::Running => Err("the run did not come to its end".into()),
        End::Stuck(what) => Err(format!("not at rest in time: {what}")),
        End::Unavailable(why) if !history.lost_too_much => {
            Err(format!("the log says that it is unavailable, and lost nothing that it cannot bear: {why}"))
        }
        End::Unavailable(_) => {
            history.excuse(Excuse::Unavailable, true);
            Ok(())
        }
        End::Damaged(_) => Ok(()),
        End::AtRest { .. } if history.accepted.is_some() && !history.lost_too_much => {
            Err("an operator was told to accept a loss, and nothing was lost that the log cannot bear".into())
        }
        End::AtRest { .. } => {
            let pending = history.appends.iter().find(|append| append.outcome == Outcome::Pending);
            pending.map_or(Ok(()), |append| Err(format!("{:?} has no outcome", append.payload)))
        }
    }
}
