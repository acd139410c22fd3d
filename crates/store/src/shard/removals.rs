//! Superfluous files, and the order of their deletion.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::trim::{Removal, TrimFile};
use super::{Place, Rewriting};

/// Most segments deleted at once. Deleting a file of 64 MiB takes a few milliseconds.
pub(super) const REMOVED_AT_ONCE: u32 = 8;

/// Work for a thread that may wait: files to delete, a few at a time, and files to sync before.
///
/// Invariant: `removed_to` ≤ the trim file's first segment ≤ `dead_to`.
#[derive(Debug)]
pub(super) struct Removals {
    /// Segments below this number have no files.
    removed_to: u32,
    /// Segments below this number are superfluous. Without a journal, the trim file's first segment
    /// follows once the reasons (entries in binding logs) are durable.
    dead_to: u32,
    /// Segments whose old binding logs must be deleted, because the packed ones are valid.
    replaced: VecDeque<u32>,
    under_way: Option<UnderWay>,
    /// Whether there is no journal. Nothing then repeats a lost entry, so the reasons for a
    /// deletion are synced first.
    is_write_behind: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    Segments {
        to: u32,
    },
    Logs {
        count: usize,
    },
    /// Sync the entries that are the reasons for later deletions.
    Sync(Synced),
}

/// Durable after a sync: the packed logs below `written_to`, and the reasons for abandoning
/// segments below `dead_to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Synced {
    pub(super) written_to: u32,
    pub(super) dead_to: u32,
}

impl Removals {
    /// The state at an opening: segments from `removed_to` on have files, and segments below
    /// `dead_to` are superfluous.
    pub(super) fn new(removed_to: u32, dead_to: u32, replaced: VecDeque<u32>, is_write_behind: bool) -> Self {
        Self { removed_to, dead_to, replaced, under_way: None, is_write_behind }
    }

    pub(super) fn is_write_behind(&self) -> bool {
        self.is_write_behind
    }

    pub(super) fn dead_to(&self) -> u32 {
        self.dead_to
    }

    pub(super) fn note_dead(&mut self, dead_to: u32) {
        self.dead_to = dead_to;
    }

    pub(super) fn note_replaced(&mut self, number: u32) {
        self.replaced.push_back(number);
    }

    /// Abandoned segments that still have files.
    pub(super) fn given_up(&self, trim: &TrimFile) -> Range<u32> {
        self.removed_to..trim.first_segment()
    }

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
        // Without a journal, later logs hold the facts that made an old log's ids final: sync those
        // too.
        let sync = match self.is_write_behind {
            true => unsynced.iter().cloned().chain([trim.name().to_owned()]).collect(),
            false => vec![trim.name().to_owned()],
        };
        Some(Removal::new(sync, delete))
    }

    /// Ends the last removal. Returns its sync, if any.
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
