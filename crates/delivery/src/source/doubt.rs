//! Decides whether a missing position is a gap, or the reader's view is outdated.

use seriatim_model::{Position, ShardId, Time};

use super::directory::Directory;
use crate::failure::Failure;

/// A shard did not send a position that it owns in the known view.
///
/// The register must first confirm the view, since a newer one may name another owner. Then all
/// shards are asked again, as their answers may be from another view. A position that is still
/// missing is a gap.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    open: Option<Open>,
    /// Position for which all shards were already asked again in this view.
    asked_again: Option<Position>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    position: Position,
    shard: ShardId,
    /// Number of the last question before the doubt. Only answers to later questions count.
    asked: u64,
}

/// What to do after the register has confirmed the view.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    AskAgain(Position),
    Gap(Failure),
}

impl Doubt {
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn raise(&mut self, now: Time, position: Position, shard: ShardId, directory: &mut Directory) {
        self.open = Some(Open { position, shard, asked: directory.asked() });
        directory.ask_surely(now);
    }

    pub(crate) fn let_go(&mut self) {
        self.open = None;
    }

    /// Enters a newer view. `asked_again`: missing position for which all shards are asked in it.
    pub(crate) fn enter_view(&mut self, asked_again: Option<Position>) {
        *self = Self { open: None, asked_again };
    }

    /// The register confirmed the known view in its answer to question number `answer`.
    pub(crate) fn view_confirmed(&mut self, answer: u64) -> Option<Verdict> {
        let Open { position, shard, .. } = self.open.take_if(|open| answer > open.asked)?;
        let was_asked = self.asked_again.replace(position) == Some(position);
        Some(match was_asked {
            true => Verdict::Gap(Failure::Gap { position, shard }),
            false => Verdict::AskAgain(position),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CONTROL, entry};

    const AT: Position = Position(3);

    /// Raises a doubt; returns the number of the question whose answer decides it.
    fn raised(doubt: &mut Doubt) -> u64 {
        let mut directory = Directory::new(CONTROL, entry(1, 1, 64));
        doubt.raise(Time(1), AT, ShardId(2), &mut directory);
        assert!(doubt.is_open() && directory.deadline() == Some(Time(1)));
        directory.asked() + 1
    }

    #[test]
    fn a_gap_is_one_when_all_were_asked_again_in_vain() {
        let mut doubt = Doubt::default();
        let answer = raised(&mut doubt);
        assert_eq!(doubt.view_confirmed(answer - 1), None, "it may be older than the doubt");
        assert_eq!(doubt.view_confirmed(answer), Some(Verdict::AskAgain(AT)));
        assert_eq!(doubt.view_confirmed(answer), None, "nothing is in doubt any more");
        let answer = raised(&mut doubt);
        let gap = Failure::Gap { position: AT, shard: ShardId(2) };
        assert_eq!(doubt.view_confirmed(answer), Some(Verdict::Gap(gap)));
    }

    #[test]
    fn a_newer_view_or_a_trim_ends_the_doubt() {
        let mut doubt = Doubt::default();
        let answer = raised(&mut doubt);
        doubt.let_go();
        assert_eq!(doubt.view_confirmed(answer), None);
        let answer = raised(&mut doubt);
        doubt.enter_view(None);
        assert_eq!(doubt.view_confirmed(answer), None);
        // A newer view ends the doubt. With `asked_again`, the next doubt about this position is a
        // gap.
        let answer = raised(&mut doubt);
        assert_eq!(doubt.view_confirmed(answer), Some(Verdict::AskAgain(AT)));
        doubt.enter_view(Some(AT));
        let answer = raised(&mut doubt);
        assert!(matches!(doubt.view_confirmed(answer), Some(Verdict::Gap(_))));
    }
}
