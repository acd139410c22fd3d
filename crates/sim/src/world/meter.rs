//! A node's work that is not yet charged as a cost.

use seriatim_store::MemoryDisk;

/// Counter values at the last charge.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Bytes written to disk, and given to the journal.
    disk: u64,
    journal: u64,
    /// Bytes read from disk, and entries visited by stores.
    read: u64,
    visits: u64,
}

/// Work since the last charge, in bytes and entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) journaled: u64,
    pub(super) stored: u64,
    pub(super) read: u64,
    pub(super) visited: u64,
}

impl Meter {
    /// Returns the work since the last charge. `journal`: bytes pending for the journal; `visits`:
    /// entries visited so far.
    pub(super) fn work(&mut self, journal: u64, visits: u64, disk: &MemoryDisk) -> Work {
        let counters = disk.counters();
        Work {
            journaled: journal.saturating_sub(std::mem::replace(&mut self.journal, journal)),
            // The sum may fall: visits of a removed store are no longer counted.
            visited: visits.saturating_sub(std::mem::replace(&mut self.visits, visits)),
            read: counters.bytes_read - std::mem::replace(&mut self.read, counters.bytes_read),
            stored: counters.bytes_written - std::mem::replace(&mut self.disk, counters.bytes_written),
        }
    }

    /// Bytes of a finished journal write. `journal` bytes are still pending.
    pub(super) fn wrote(&mut self, journal: u64, disk: &MemoryDisk) -> u64 {
        let written = disk.counters().bytes_written;
        self.journal = journal;
        written - std::mem::replace(&mut self.disk, written)
    }

    /// Notes that a process began or ended: earlier writes are not charged.
    pub(super) fn forget_writes(&mut self, disk: &MemoryDisk) {
        self.disk = disk.counters().bytes_written;
        self.journal = 0;
    }

    /// Notes that a process has started: its initial reads are no step.
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
