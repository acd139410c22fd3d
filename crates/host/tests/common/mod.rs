//! What tests of single hosts share.

use seriatim_host::{Event, Host};
use seriatim_model::Time;
use seriatim_store::MemoryDisk;

/// Does all the disk work that is wanted, checkpoints included.
pub(crate) fn write_all(host: &mut Host, disk: &MemoryDisk) {
    loop {
        let write = host.next_journal_write(Time::ZERO);
        let files = host.next_sync();
        if write.is_none() && files.is_none() {
            return;
        }
        if let Some(write) = write {
            host.handle(Time::ZERO, Event::JournalWritten(write.perform(disk)));
        }
        if let Some(files) = files {
            host.handle(Time::ZERO, Event::FilesSynced(files.perform(disk)));
        }
        host.settle(Time::ZERO);
    }
}
