//! A node's work, as far as it was charged for.

use seriatim_store::MemoryDisk;

/// How far a node's counters were looked at: what they count beyond is work that it is to be
/// charged for.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// How much was written to its disk, and given to its journal.
    disk: u64,
    journal: u64,
    /// How much was read from its disk, and looked at by its stores.
    read: u64,
    visits: u64,
}

/// The work of a node since it was charged last, in bytes and in entries that were visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) journaled: u64,
    pub(super) stored: u64,
    pub(super) read: u64,
    pub(super) visited: u64,
}

impl Meter {
    /// The work since the last call, of a node with so many bytes on their way to its journal,
    /// whose stores have visited so many entries.
    pub(super) fn work(&mut self, journal: u64, visits: u64, disk: &MemoryDisk) -> Work {
        let counters = disk.counters();
        Work {
            journaled: journal.saturating_sub(std::mem::replace(&mut self.journal, journal)),
            // Visits of a store that is gone are not counted any more.
            visited: visits.saturating_sub(std::mem::replace(&mut self.visits, visits)),
            read: counters.bytes_read - std::mem::replace(&mut self.read, counters.bytes_read),
            stored: counters.bytes_written - std::mem::replace(&mut self.disk, counters.bytes_written),
        }
    }

    /// The bytes of a write of the journal that ended, which left so many on their way.
    pub(super) fn wrote(&mut self, journal: u64, disk: &MemoryDisk) -> u64 {
        let written = disk.counters().bytes_written;
        self.journal = journal;
        written - std::mem::replace(&mut self.disk, written)
    }

    /// A process began or ended: what was written before is charged to nobody.
    pub(super) fn forget_writes(&mut self, disk: &MemoryDisk) {
        self.disk = disk.counters().bytes_written;
        self.journal = 0;
    }

    /// A process has started: what it read for that is no step.
    pub(super) fn forget_reads(&mut self, visits: u64, disk: &MemoryDisk) {
        (self.read, self.visits) = (disk.counters().bytes_read, visits);
    }
}

#[cfg(test)]
mod tests {
    use seriatim_store::Disk;

    use super::*;

    #[test]
    fn work_is_charged_once() {
        let (mut meter, disk) = (Meter::default(), MemoryDisk::new());
        disk.create("file").expect("there is room");
        disk.write_at("file", 0, &[vec![0; 10].into()]).expect("there is room");
        let work = meter.work(7, 3, &disk);
        assert_eq!(work, Work { journaled: 7, stored: 10, read: 0, visited: 3 });
        disk.read_at("file", 0, 4).expect("it is there");
        let work = meter.work(9, 2, &disk);
        assert_eq!(work, Work { journaled: 2, stored: 0, read: 4, visited: 0 });
        disk.write_at("file", 10, &[vec![0; 5].into()]).expect("there is room");
        assert_eq!(meter.wrote(0, &disk), 5);
        assert_eq!(meter.work(1, 2, &disk), Work { journaled: 1, stored: 0, read: 0, visited: 0 });
    }
}
