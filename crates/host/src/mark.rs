//! Journal progress that nodes report to each other and remember.
//!
//! A disk may go back in time: a virtual machine is restored, or a sync was acknowledged too early.
//! The node cannot detect that, but other nodes remember its progress. A node that returns with
//! less than its earlier incarnations reported on the same disk discards its roles' state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Incarnations remembered individually for each disk; of earlier ones only the highest entry.
const INCARNATIONS: usize = 4;
const DISKS: usize = 4;

/// A node's disk and its last durable journal entry. The host writes it, the detector reads it.
#[derive(Clone, Debug, Default)]
pub struct DiskMark(Arc<Mark>);

#[derive(Debug, Default)]
struct Mark {
    disk: AtomicU64,
    durable: AtomicU64,
    /// Last durable entry when the node started; [`u64::MAX`] after the disk was found set back.
    began_at: AtomicU64,
}

impl DiskMark {
    pub(crate) fn new(disk: u64, began_at: u64) -> Self {
        let [disk, durable, began_at] = [disk, began_at, began_at].map(AtomicU64::new);
        Self(Arc::new(Mark { disk, durable, began_at }))
    }

    pub(crate) fn reaches(&self, durable: u64) {
        self.0.durable.store(durable, Ordering::Release);
    }

    /// Gives a set-back disk a new number.
    pub(crate) fn becomes(&self, disk: u64) {
        self.0.began_at.store(u64::MAX, Ordering::Relaxed);
        self.0.disk.store(disk, Ordering::Release);
    }

    /// Whether the disk was set back.
    pub(crate) fn is_another(&self) -> bool {
        self.0.began_at.load(Ordering::Relaxed) == u64::MAX
    }

    /// Disk and last durable entry. The load order prevents pairing the old disk with a new entry.
    pub(crate) fn read(&self) -> (u64, u64) {
        let durable = self.0.durable.load(Ordering::Acquire);
        (self.0.disk.load(Ordering::Acquire), durable)
    }

    /// Whether the node started with less than others remember.
    pub(crate) fn is_behind(&self, remembered: u64) -> bool {
        self.0.began_at.load(Ordering::Relaxed) < remembered
    }
}

/// Disks and incarnations that another node reported, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    disks: Vec<Disk>,
}

#[derive(Debug)]
struct Disk {
    disk: u64,
    /// Incarnations with the last entry of each, in the order of first hearing. Earlier ones may
    /// still run: the later one may have a copy of the disk.
    incarnations: Vec<(u64, u64)>,
    last: u64,
    /// Highest entry of the incarnations no longer listed.
    earlier: u64,
}

impl Shown {
    pub(crate) fn note(&mut self, disk: u64, incarnation: u64, durable: u64) {
        let at = self.disks.iter().position(|known| known.disk == disk);
        let mut known = at.map_or_else(
            || Disk { disk, incarnations: vec![], last: incarnation, earlier: 0 },
            |at| self.disks.remove(at),
        );
        known.last = incarnation;
        match known.incarnations.iter_mut().find(|(known, _)| *known == incarnation) {
            Some((_, shown)) => *shown = durable.max(*shown),
            None => known.incarnations.push((incarnation, durable)),
        }
        if known.incarnations.len() > INCARNATIONS {
            known.earlier = known.earlier.max(known.incarnations.remove(0).1);
        }
        self.disks.push(known);
        if self.disks.len() > DISKS {
            self.disks.remove(0);
        }
    }

    /// Highest entry of the latest disk that incarnations before the last one reported.
    pub(crate) fn before_last(&self) -> u64 {
        let Some(Disk { incarnations, last, earlier, .. }) = self.disks.last() else { return 0 };
        let before = incarnations.iter().take_while(|(incarnation, _)| incarnation != last);
        before.map(|(_, durable)| *durable).fold(*earlier, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_lives_showed_of_the_same_disk_is_remembered() {
        let mut shown = Shown::default();
        assert_eq!(shown.before_last(), 0);
        shown.note(1, 10, 50);
        shown.note(1, 10, 90);
        assert_eq!(shown.before_last(), 0, "the incarnation itself showed that");
        shown.note(1, 11, 80);
        assert_eq!(shown.before_last(), 90);
        // A late heartbeat of the earlier incarnation changes nothing.
        shown.note(1, 10, 85);
        shown.note(1, 11, 95);
        assert_eq!(shown.before_last(), 90);
        // A copy of the disk starts while the node runs. Only the copy is behind.
        shown.note(1, 12, 40);
        assert_eq!(shown.before_last(), 95);
        shown.note(1, 11, 99);
        assert_eq!(shown.before_last(), 90);
        shown.note(2, 13, 3);
        assert_eq!(shown.before_last(), 0, "another disk");
        (20..40).for_each(|incarnation| shown.note(1, incarnation, incarnation));
        assert_eq!(shown.before_last(), 99);
        (100..200).for_each(|disk| shown.note(disk, disk, 1));
        assert_eq!((shown.disks.len(), shown.before_last()), (DISKS, 0));
    }

    #[test]
    fn a_mark_is_behind_what_others_remember_until_it_is_another_disk() {
        let mark = DiskMark::new(7, 80);
        assert!(!mark.is_behind(80) && mark.is_behind(81));
        mark.reaches(90);
        assert_eq!(mark.clone().read(), (7, 90));
        assert!(mark.is_behind(81), "later writes do not replace the lost ones");
        mark.becomes(8);
        assert!(mark.read() == (8, 90) && !mark.is_behind(u64::MAX));
    }
}
