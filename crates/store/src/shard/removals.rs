//! Files of which nothing is needed: which there are, and which go next.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::trim::{Removal, TrimFile};
use super::{Place, Rewriting};

/// How many segments are deleted at once. A file of 64 MiB takes a few milliseconds.
pub(super) const REMOVED_AT_ONCE: u32 = 8;

/// The files that a store leaves to a thread that may wait: those that are to be deleted, a few at
/// a time, and those that have to be durable before.
///
/// Invariant: `removed_to` ≤ the trim file's first segment ≤ `dead_to`.
#[derive(Debug)]
pub(super) struct Removals {
    /// The segments below this one have no files any more.
    removed_to: u32,
    /// Of the segments below this one nothing is needed. Without a journal the trim file says so
    /// once all that this relies on is durable.
    dead_to: u32,
    /// The segments whose packed binding logs count, and whose old ones are to be deleted.
    replaced: VecDeque<u32>,
    /// The removal that was named last.
    under_way: Option<UnderWay>,
    /// Whether there is no journal that would repeat what is lost: then what made segments dead is
    /// synced first.
    is_write_behind: bool,
}

/// Work on files that the store left to a thread that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    /// Segments below this one are deleted.
    Segments { to: u32 },
    /// So many old binding logs are deleted.
    Logs { count: usize },
    /// Everything is synced that this relies on.
    Sync(Synced),
}

/// All is durable that the packed logs of segments below one rely on, and that says that nothing is
/// needed of the segments below another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Synced {
    pub(super) written_to: u32,
    pub(super) dead_to: u32,
}

impl Removals {
    /// The removals of a store that is opened: files are there from the segment `removed_to` on,
    /// and nothing is needed of those below `dead_to`.
    pub(super) fn new(removed_to: u32, dead_to: u32, replaced: VecDeque<u32>, is_write_behind: bool) -> Self {
        Self { removed_to, dead_to, replaced, under_way: None, is_write_behind }
    }

    pub(super) fn is_write_behind(&self) -> bool {
        self.is_write_behind
    }

    /// Of the segments below this one nothing is needed.
    pub(super) fn dead_to(&self) -> u32 {
        self.dead_to
    }

    /// Nothing is needed of the segments below this one, as far as is known now.
    pub(super) fn note_dead(&mut self, dead_to: u32) {
        self.dead_to = dead_to;
    }

    /// The old binding log of a segment is not needed: the packed one counts.
    pub(super) fn note_replaced(&mut self, number: u32) {
        self.replaced.push_back(number);
    }

    /// The segments that were given up and still have files.
    pub(super) fn given_up(&self, trim: &TrimFile) -> Range<u32> {
        self.removed_to..trim.first_segment()
    }

    /// Whether there is anything to be deleted, or to be synced.
    pub(super) fn has_next(&self, trim: &TrimFile, rewriting: &Rewriting) -> bool {
        self.next_under_way(trim.first_segment(), rewriting).is_some()
    }

    fn next_under_way(&self, first_segment: u32, rewriting: &Rewriting) -> Option<UnderWay> {
        assert!(
            self.removed_to <= first_segment && first_segment <= self.dead_to,
            "files are removed below {}, given up below {first_segment}, and not needed below {}",
            self.removed_to,
            self.dead_to
        );
        let written_to = rewriting.written_to();
        if self.removed_to < first_segment {
            Some(UnderWay::Segments {
                to: first_segment.min(self.removed_to.saturating_add(REMOVED_AT_ONCE)),
            })
        } else if !self.replaced.is_empty() {
            Some(UnderWay::Logs { count: self.replaced.len().min(REMOVED_AT_ONCE as usize) })
        } else if self.is_write_behind && (rewriting.sure_to() < written_to || first_segment < self.dead_to) {
            Some(UnderWay::Sync(Synced { written_to, dead_to: self.dead_to }))
        } else {
            None
        }
    }

    /// Names the next removal.
    pub(super) fn next(
        &mut self,
        trim: &TrimFile,
        rewriting: &Rewriting,
        place: &Place,
        unsynced: &BTreeSet<String>,
    ) -> Option<Removal> {
        self.under_way = self.next_under_way(trim.first_segment(), rewriting);
        let delete = match self.under_way? {
            UnderWay::Segments { to } => {
                (self.removed_to..to).flat_map(|number| place.all_files(number)).collect()
            }
            UnderWay::Logs { count } => {
                self.replaced.iter().take(count).map(|number| place.bindings_file(*number)).collect()
            }
            UnderWay::Sync(_) => vec![],
        };
        // Without a journal, what made the names final that old logs tell is in later ones: it must
        // not be lost alone.
        let sync = match self.is_write_behind {
            true => unsynced.iter().cloned().chain([trim.name().to_owned()]).collect(),
            false => vec![trim.name().to_owned()],
        };
        Some(Removal::new(sync, delete))
    }

    /// The removal that was named last is done. Says what is durable by that.
    pub(super) fn done(&mut self) -> Option<Synced> {
        match self.under_way.take()? {
            UnderWay::Segments { to } => self.removed_to = to,
            UnderWay::Logs { count } => _ = self.replaced.drain(..count),
            UnderWay::Sync(synced) => return Some(synced),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removals(is_write_behind: bool) -> Removals {
        Removals::new(1, 20, [30, 31].into(), is_write_behind)
    }

    fn steps(removals: &mut Removals, first_segment: u32, rewriting: &Rewriting) -> Vec<UnderWay> {
        let mut steps = vec![];
        while let Some(step) = removals.next_under_way(first_segment, rewriting) {
            steps.push(step);
            removals.under_way = Some(step);
            if removals.done().is_some() {
                break;
            }
        }
        steps
    }

    #[test]
    fn segments_go_a_few_at_a_time_and_then_replaced_logs() {
        let expected =
            [UnderWay::Segments { to: 9 }, UnderWay::Segments { to: 12 }, UnderWay::Logs { count: 2 }];
        assert_eq!(steps(&mut removals(false), 12, &Rewriting::new(5)), expected);
    }

    #[test]
    fn without_a_journal_the_reasons_are_synced_before_more_is_given_up() {
        let synced = UnderWay::Sync(Synced { written_to: 5, dead_to: 20 });
        assert_eq!(steps(&mut removals(true), 12, &Rewriting::new(5)).last(), Some(&synced));
        let all = steps(&mut removals(true), 20, &Rewriting::new(5));
        assert_eq!(all.last(), Some(&UnderWay::Logs { count: 2 }), "all is given up");
    }

    #[test]
    #[should_panic(expected = "and not needed below 20")]
    fn nothing_is_given_up_that_is_needed() {
        _ = removals(false).next_under_way(21, &Rewriting::new(5));
    }
}
