//! A position that a shard should have given out and did not: is it a gap, or is the view out of
//! date?

use seriatim_model::{Position, ShardId, Time};

use super::directory::Directory;
use crate::failure::Failure;

/// A shard did not give out a position although it should have it, by the view that is known.
///
/// Before anybody is blamed, the register is asked whether there is a newer view, in which another
/// shard may have the position. If there is none, all shards are asked again: what they said before
/// may be of a view that placed the position elsewhere. Only where it does not come then either
/// there is a gap.
#[derive(Debug, Default)]
pub(crate) struct Doubt {
    open: Option<Open>,
    /// The position for which all were asked again in the present view, since it did not come.
    asked_again: Option<Position>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    position: Position,
    shard: ShardId,
    /// Only answers to later questions count.
    asked: u64,
}

/// The consequence of the register's answer that there is no newer view.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All shards are to be asked again for this position.
    AskAgain(Position),
    /// They were, and it did not come.
    Gap(Failure),
}

impl Doubt {
    /// Whether the register's answer is awaited.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// `shard` should have given out `position`. The register is asked.
    pub(crate) fn raise(&mut self, now: Time, position: Position, shard: ShardId, directory: &mut Directory) {
        self.open = Some(Open { position, shard, asked: directory.asked() });
        directory.ask_surely(now);
    }

    /// The position is not wanted any more.
    pub(crate) fn let_go(&mut self) {
        self.open = None;
    }

    /// There is a newer view. `asked_again` is the position for which all are asked in it because
    /// it did not come before.
    pub(crate) fn enter_view(&mut self, asked_again: Option<Position>) {
        *self = Self { open: None, asked_again };
    }

    /// The register says, in answer to this question, that there is no newer view.
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

    /// A doubt about a position, and the number of the question that settles it.
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
        // In a newer view nobody was asked yet, unless it is said so.
        let answer = raised(&mut doubt);
        assert_eq!(doubt.view_confirmed(answer), Some(Verdict::AskAgain(AT)));
        doubt.enter_view(Some(AT));
        let answer = raised(&mut doubt);
        assert!(matches!(doubt.view_confirmed(answer), Some(Verdict::Gap(_))));
    }
}
